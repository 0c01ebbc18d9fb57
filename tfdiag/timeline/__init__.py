"""Traces as columns: files and bytes in, one condensed `DeviceTrace` out; needs numpy only."""

from tfdiag.timeline.condense import condense
from tfdiag.timeline.files import read_trace

__all__ = ["condense", "read_trace"]
