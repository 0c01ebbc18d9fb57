"""The errors that tfdiag raises, one tree.

TfdiagError
├── TensorFlowMissingError   no TensorFlow (or no Keras) can be imported
├── UsageError               an argument that can't be used; nothing has been touched
│   ├── ModelError           the model can't be diagnosed as it is
│   └── DatasetError         the dataset is empty or of a wrong structure
├── JobError                 the caller's job failed while it was measured; the cause is chained
├── SnapshotError            the state of the model can't be kept, so nothing was run
├── TraceError               a trace can't be analysed
│   ├── TraceFormError       it is no trace, of an unknown form, cut or damaged
│   ├── TraceEmptyError      it holds no events
│   └── TraceLimitError      it is larger than the limit
└── ReportError              a file that is not a report, or of an unknown version
"""

from __future__ import annotations

__all__ = [
    "DatasetError",
    "JobError",
    "ModelError",
    "ReportError",
    "SnapshotError",
    "TensorFlowMissingError",
    "TfdiagError",
    "TraceEmptyError",
    "TraceError",
    "TraceFormError",
    "TraceLimitError",
    "UsageError",
]


class TfdiagError(Exception):
    """Base of every error that tfdiag raises."""


class TensorFlowMissingError(TfdiagError):
    """TensorFlow is not installed, or can't be imported."""


class UsageError(TfdiagError):
    """An argument can't be used; raised before anything is touched.

    Not a ValueError: AutoGraph raises an error again as its own type only if it takes a message and
    nothing else, which a ValueError in the bases would hide.
    """


class ModelError(UsageError):
    """The model can't be diagnosed as it is."""


class DatasetError(UsageError):
    """The dataset can't be trained on as it is."""


class JobError(TfdiagError):
    """The caller's own code failed while it was measured; `__cause__` is its error."""


class SnapshotError(TfdiagError):
    """The state of the model can't be kept, so the job was not run."""


class TraceError(TfdiagError):
    """A trace can't be analysed."""


class TraceFormError(TraceError):
    """It is no trace, of an unknown form, cut or damaged."""


class TraceEmptyError(TraceError):
    """It holds no events."""


class TraceLimitError(TraceError):
    """It is larger than the limit, which can be raised."""


class ReportError(TfdiagError, ValueError):
    """A saved report can't be read."""
