"""Keeps the reports of a running job: one line of JSON each, in a file and in `logging`."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from tfdiag.render.report import Report

__all__ = ["ReportLog"]

FILE_NAME = "tfdiag.jsonl"
_logger = logging.getLogger("tfdiag")


class ReportLog:
    """Where the reports of one training run go."""

    def __init__(self, log_dir: str | os.PathLike[str] | None) -> None:
        self._path = None if log_dir is None else Path(log_dir) / FILE_NAME

    def write(self, report: Report) -> None:
        """Log the report, and append it to the file; a full disk does not end the training."""
        report.log(_logger)
        if self._path is None:
            return
        line = json.dumps(report.to_dict(), allow_nan=False, separators=(",", ":"))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            _logger.warning("tfdiag could not append its report to %s: %s", self._path, error)
