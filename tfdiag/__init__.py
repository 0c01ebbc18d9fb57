"""Says why a Keras training step is slow, and what to change.

TensorFlow and Keras are imported when they are first needed, not with this module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfdiag.errors import TfdiagError
from tfdiag.version import __version__

if TYPE_CHECKING:
    from tfdiag.comparison import compare_devices
    from tfdiag.diagnosis import diagnose
    from tfdiag.model.report import Finding, Suggestion
    from tfdiag.monitor.callback import DiagnosticsCallback
    from tfdiag.render.devices import DeviceComparison
    from tfdiag.render.report import Report, load
    from tfdiag.traces import analyze_trace
    from tfdiag.tuning import Tuned, tune

__all__ = [
    "DeviceComparison",
    "DiagnosticsCallback",
    "Finding",
    "Report",
    "Suggestion",
    "TfdiagError",
    "Tuned",
    "__version__",
    "analyze_trace",
    "compare_devices",
    "diagnose",
    "load",
    "tune",
]

_LAZY = {
    "DeviceComparison": "tfdiag.render.devices",
    "DiagnosticsCallback": "tfdiag.monitor.callback",
    "Finding": "tfdiag.model.report",
    "Report": "tfdiag.render.report",
    "Suggestion": "tfdiag.model.report",
    "Tuned": "tfdiag.tuning",
    "analyze_trace": "tfdiag.traces",
    "compare_devices": "tfdiag.comparison",
    "diagnose": "tfdiag.diagnosis",
    "load": "tfdiag.render.report",
    "tune": "tfdiag.tuning",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'tfdiag' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
