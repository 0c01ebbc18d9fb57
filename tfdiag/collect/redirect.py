"""Sends what Keras' own callbacks write to a private folder for the time of a diagnosis."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tfdiag.compat import keras

__all__ = ["redirect_files"]

_PATHS = (
    "filepath", "_write_filepath", "filename", "backup_dir", "_weights_path", "_prev_weights_path",
    "_training_metadata_path", "_prev_training_metadata_path", "log_dir", "directory",
)  # fmt: skip


def redirect_files(callbacks: Iterable[Any], folder: Path) -> list[str]:
    """Change the paths of these callbacks; a snapshot puts them back. Names those that were changed."""
    changed = []
    for index, callback in enumerate(callbacks):
        if not keras.is_keras_object(callback):
            continue
        attributes = vars(callback)
        found = [name for name in _PATHS if isinstance(attributes.get(name), (str, os.PathLike))]
        for name in found:
            inside = re.sub(r"^[A-Za-z]:", "", str(attributes[name])).lstrip("/\\").replace("..", "_")
            target = folder / f"callback-{index}" / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            attributes[name] = str(target)
        if found:
            changed.append(type(callback).__name__)
    return changed
