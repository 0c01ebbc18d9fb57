"""Finds, opens and refuses: a path or bytes in, a `Timeline` out."""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tfdiag.errors import TraceEmptyError, TraceFormError, TraceLimitError, UsageError
from tfdiag.timeline import tf1
from tfdiag.timeline.columns import Column, Timeline, merged
from tfdiag.timeline.wire import PADDING, CutError
from tfdiag.timeline.xspace import looks_like_xspace, read_xspace

__all__ = ["LIMIT_BYTES", "read_trace"]

LIMIT_BYTES = 2_000_000_000
_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20
_Readable: TypeAlias = io.BufferedReader | io.BytesIO
_XSPACE = ".xplane.pb"


def read_trace(source: str | os.PathLike[str] | bytes, *, limit_bytes: int = LIMIT_BYTES) -> Timeline:
    """Read a trace: a file, its bytes, or a log directory: its newest run with all hosts."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        if len(data) > limit_bytes:
            raise _too_large("the bytes", len(data), limit_bytes)
        return _read(io.BytesIO(data), len(data), "bytes", limit_bytes)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(f"analyze_trace takes a path or bytes, got {type(source).__name__}")
    path = Path(source)
    try:
        if path.is_dir():
            return _run(path, limit_bytes)
        return _file(path, limit_bytes)
    except OSError as error:
        raise TraceFormError(f"{path}: can't be read: {error.strerror or error}") from error


def _too_large(what: str, size: int, limit: int) -> TraceLimitError:
    return TraceLimitError(
        f"{what}: {size:,} bytes are more than the limit of {limit:,}; pass limit_bytes= to read it all "
        "the same (it takes a few times its size in memory), or trace fewer steps"
    )


def _run(folder: Path, limit: int) -> Timeline:
    """Read the newest run below a log directory; each of its hosts has a file."""
    files = sorted(folder.rglob(f"*{_XSPACE}"))
    if not files:
        raise TraceFormError(
            f"{folder}: there is no trace in this directory: no file below it ends on {_XSPACE} "
            "(TensorBoard's callback writes plugins/profile/<run>/<host>.xplane.pb)"
        )
    runs: dict[Path, list[Path]] = {}
    for file in files:
        runs.setdefault(file.parent, []).append(file)
    newest = max(runs, key=lambda run: (max(file.stat().st_mtime_ns for file in runs[run]), run.name))
    sizes = sum(file.stat().st_size for file in runs[newest])
    if sizes > limit:
        raise _too_large(str(newest), sizes, limit)
    timeline = merged([_file(file, limit, host=file.name.removesuffix(_XSPACE)) for file in runs[newest]])
    timeline.source = str(newest)
    if len(runs) > 1:
        timeline.warnings.append(
            f"the directory holds {len(runs)} runs; this is the newest one, {newest.name}"
        )
    return timeline


def _file(path: Path, limit: int, host: str = "") -> Timeline:
    size = path.stat().st_size
    if size > limit:
        raise _too_large(str(path), size, limit)
    with path.open("rb") as file:
        return _read(file, size, str(path), limit, host)


def _read(file: _Readable, size: int, source: str, limit: int, host: str = "") -> Timeline:
    head = file.read(16)
    file.seek(0)
    if not size:
        raise TraceEmptyError(f"{source}: is empty: no trace was written, or the profiler was still running")
    if head[:2] == _GZIP:
        data = _unpacked(file, source, limit)
        return _read(io.BytesIO(data), len(data), source, limit, host)
    if not looks_like_xspace(head) and head.lstrip()[:1] in (b"{", b"["):
        return _checked(_json(file.read(), source), source)
    if not looks_like_xspace(head):
        raise TraceFormError(
            f"{source}: is neither an XSpace (*{_XSPACE}) nor a timeline of TensorFlow 1 (*.json): it begins "
            f"with {head[:8]!r}"
        )
    return _checked(_xspace(_array(file, size), source, host), source)


def _array(file: _Readable, size: int) -> Column:
    data = np.empty(size + PADDING, np.uint8)
    data[size:] = 0
    view = memoryview(data)[:size]  # type: ignore[arg-type]  # numpy's arrays are buffers since Python 3.12
    done = 0
    while done < size and (count := file.readinto(view[done:])):
        done += count
    data[done:] = 0
    return data


def _xspace(data: Column, source: str, host: str) -> Timeline:
    try:
        timeline = read_xspace(data, source, host)
    except (CutError, IndexError) as error:
        raise TraceFormError(
            f"{source}: is no XSpace, or is cut before its first part ends: {error}"
        ) from error
    return timeline


def _checked(timeline: Timeline, source: str) -> Timeline:
    if not any(len(line.start) for line in timeline.lines):
        said = f"; the profiler said: {timeline.errors[0].strip()[:300]}" if timeline.errors else ""
        why = f"; {timeline.warnings[0]}" if timeline.warnings else ""
        raise TraceEmptyError(f"{source}: holds no events: nothing ran while it was traced{said}{why}")
    return timeline


def _unpacked(file: _Readable, source: str, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        with gzip.GzipFile(fileobj=file) as unzipped:
            while piece := unzipped.read(_PIECE):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise _too_large(f"{source}, unpacked", size, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormError(f"{source}: the gzip file is cut or damaged: {error}") from error
    return b"".join(pieces)


def _json(data: bytes, source: str) -> Timeline:
    try:
        parsed: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceFormError(f"{source}: looks like JSON, but is cut or damaged: {error}") from error
    if tf1.is_timeline(parsed):
        return tf1.read_tf1(parsed, source)
    if tf1.is_trace_viewer(parsed):
        raise TraceFormError(
            f"{source}: is a trace for the browser, in which the profiler leaves much out; pass the file "
            f"that ends on {_XSPACE} beside it, or the log directory"
        )
    raise TraceFormError(f'{source}: is JSON, but no timeline: it has no "traceEvents" of TensorFlow 1')
