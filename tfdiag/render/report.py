"""`tfdiag.Report`: the data of a report, with the ways to show and keep it."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tfdiag.errors import ReportError, UsageError
from tfdiag.model import codec
from tfdiag.model.report import ReportData, Step
from tfdiag.render import html, markdown, metrics, summary, terminal
from tfdiag.render.format import quantity
from tfdiag.report import files

__all__ = ["Report", "load"]


@dataclass(frozen=True, slots=True, repr=False)
class Report(ReportData):
    """What a diagnosis found; print it, save it, or read its fields."""

    @classmethod
    def from_data(cls, data: ReportData) -> Report:
        """Give the same report with the ways to show it."""
        return cls(**{f.name: getattr(data, f.name) for f in fields(ReportData)})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """Build the report from what `to_dict` gave."""
        return codec.decode(cls, files.check_version(data))

    def to_dict(self) -> dict[str, Any]:
        """Give the whole report as plain JSON data, without loss."""
        return codec.encode(self)

    def to_json(self, indent: int | None = None) -> str:
        """Give the whole report as strict JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(self.to_dict(), allow_nan=False, indent=indent, separators=separators)

    def to_markdown(self) -> str:
        """Give the report as Markdown."""
        return markdown.to_markdown(self)

    def to_html(self) -> str:
        """Give the report as one HTML page that needs nothing else."""
        return html.to_html(self)

    def metrics(self) -> dict[str, float]:
        """Give the numbers under flat names; what is missing is absent."""
        return metrics.to_metrics(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report in the form that the name ends on: `.json`, `.html` or `.md`.

        Only `.json` keeps everything and can be loaded again.
        """
        forms = {".json": self.to_json, ".html": self.to_html, ".md": self.to_markdown}
        form = forms.get(Path(path).suffix.lower())
        if form is None:
            raise UsageError(
                f"can't save a report as {os.fspath(path)!r}: end the name on {', '.join(forms)}"
            )
        files.write(path, form())

    def log(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        """Log one line of JSON: verdict, step, findings and suggestions, without the raw series."""
        (logger or logging.getLogger("tfdiag")).log(level, "%s", summary.to_line(self))

    def __str__(self) -> str:
        """Give what a person reads in a terminal."""
        return terminal.to_text(self)

    def __repr__(self) -> str:
        """Give one short line: the fields hold long series."""
        step = quantity(self.step.mean) if isinstance(self.step, Step) else "not measured"
        return f"<tfdiag.Report {self.verdict.code!r}, step {step}, findings: {len(self.findings)}>"

    def _repr_html_(self) -> str:
        return html.to_fragment(self)


def load(path: str | os.PathLike[str]) -> Report:
    """Read a report that was saved as `.json`."""
    data = files.read(path)
    try:
        return Report.from_dict(data)
    except ReportError as error:
        raise ReportError(f"{os.fspath(path)}: {error}") from error
