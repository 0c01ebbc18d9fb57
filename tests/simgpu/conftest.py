"""Fixtures of the simulated GPU, and warnings as errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from .fixture import simgpu

__all__ = ["simgpu"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make every warning in a test of this folder an error."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("error"), append=False)
