"""What is opened, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.traces import MS, Plane, job, space
from tfdiag.errors import TfdiagError, TraceEmptyError, TraceFormError, TraceLimitError, UsageError
from tfdiag.model.device import TracedSteps
from tfdiag.timeline import condense, read_trace


def test_bytes_files_and_gzip_are_the_same(tmp_path: Path):
    """However the trace comes, it says the same."""
    data = job(copy=MS)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(data)
    packed = tmp_path / "host.xplane.pb.gz"
    packed.write_bytes(gzip.compress(data))
    steps = [
        condense(read_trace(each)).steps for each in (data, path, str(path), packed, gzip.compress(data))
    ]
    assert all(each == steps[0] for each in steps)


def test_the_newest_run_is_taken(tmp_path: Path):
    """A log directory has a folder for each run; the others are said to be there."""
    for age, name in enumerate(("2023_05_01", "2022_05_01")):
        run = tmp_path / "train" / "plugins" / "profile" / name
        run.mkdir(parents=True)
        (run / "host.xplane.pb").write_bytes(job())
        os.utime(run / "host.xplane.pb", (1e9 - age, 1e9 - age))
    timeline = read_trace(tmp_path)
    assert timeline.source.endswith("2023_05_01")
    assert timeline.warnings == ["the directory holds 2 runs; this is the newest one, 2023_05_01"]


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (b"", TraceEmptyError, "is empty"),
        (b"\x7fELF nothing of ours", TraceFormError, "neither an XSpace"),
        (b"a text\n" * 9, TraceFormError, "neither an XSpace"),
        (job()[:-9], None, ""),
        (job()[:200], TraceFormError, "cut"),
        (gzip.compress(job())[:-20], TraceFormError, "gzip file is cut"),
        (gzip.compress(b"words"), TraceFormError, "neither an XSpace"),
        (b'{"traceEvents": [', TraceFormError, "cut or damaged"),
        (b"[1, 2]", TraceFormError, "is JSON, but no timeline"),
        (b'{"a": 1}', TraceFormError, "is JSON, but no timeline"),
        (b'{"traceEvents": [{"ph": "X", "name": "a"}]}', TraceFormError, "trace for the browser"),
        (space(Plane("/host:CPU", {})), TraceEmptyError, "holds no events"),
        (space(Plane("/host:CPU", {}), errors=["no CUPTI here"]), TraceEmptyError, "no CUPTI here"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes, error: type[TfdiagError] | None, said: str):
    """Each kind of wrong input is one clear error, as bytes and as a file."""
    path = tmp_path / "trace"
    path.write_bytes(data)
    if error is None:
        assert any("cut" in each for each in read_trace(data).warnings)
        return
    for given in (data, path):
        with pytest.raises(error, match=said):
            read_trace(given)


def test_size_is_looked_at_before_reading(tmp_path: Path):
    """A file over the limit is not opened; what unpacks to more is refused too; the limit can be raised."""
    path = tmp_path / "large.xplane.pb"
    with path.open("wb") as file:
        file.truncate(3_000_000_000)
    with pytest.raises(TraceLimitError, match=r"3,000,000,000 bytes .* limit of 2,000,000,000"):
        read_trace(path)
    with pytest.raises(TraceLimitError, match="unpacked"):
        read_trace(gzip.compress(bytes(100_000)), limit_bytes=50_000)
    data = job()
    with pytest.raises(TraceLimitError, match="limit_bytes="):
        read_trace(data, limit_bytes=len(data) - 1)
    read_trace(data, limit_bytes=len(data))


@pytest.mark.parametrize("given", [None, 3, ["a"]])
def test_arguments_of_another_type(given: Any):
    """What is no path and no bytes is a usage error."""
    with pytest.raises(UsageError, match="path or bytes"):
        read_trace(given)


def test_places_without_a_trace(tmp_path: Path):
    """A missing file and an empty directory say what was looked for."""
    with pytest.raises(TraceFormError, match="No such file"):
        read_trace(tmp_path / "nothing.pb")
    with pytest.raises(TraceFormError, match="no trace in this directory"):
        read_trace(tmp_path)


def _timeline_of(*lanes: tuple[str, list[tuple[str, str, int, int]]]) -> bytes:
    events: list[dict[str, Any]] = []
    for pid, (name, own) in enumerate(lanes):
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        for op, node, start, took in own:
            args = {"name": node, "op": op}
            events.append(
                {
                    "ph": "X",
                    "cat": "Op",
                    "name": op,
                    "pid": pid,
                    "tid": 0,
                    "ts": start,
                    "dur": took,
                    "args": args,
                }
            )
    events.append({"ph": "s", "cat": "DataFlow", "name": "t", "pid": 0, "tid": 0, "ts": 3, "id": 0})
    return json.dumps({"traceEvents": events}).encode()


def test_times_that_are_none_are_no_events():
    """Infinite, missing or of words: counted, and left out."""
    lane = ("/gpu:0/stream:7 Compute", [("MatMul", "a/MatMul", 1000, 400)])
    good = json.loads(_timeline_of(lane))
    for ts in (float("inf"), float("nan"), 1e300, "soon", None):
        good["traceEvents"].append({"ph": "X", "name": "b", "pid": 0, "tid": 0, "ts": ts, "dur": 1})
    trace = condense(read_trace(json.dumps(good).encode()))
    assert trace.events == {"kernels": 1, "marks for the viewer": 7}


@pytest.mark.parametrize(
    "prefix", ["/gpu:0/", "/job:localhost/replica:0/task:0/device:GPU:0/", "/device:GPU:0/"]
)
def test_timelines_of_tensorflow_1(prefix: str):
    """Streams are the device, the summary of all streams counts once, and op lanes are the host."""
    kernels = [("MatMul", "layer/MatMul", 1000, 400), ("Relu", "layer/Relu", 1600, 200)]
    copies = [("MEMCPYHtoD", "edge_4_x", 700, 300)]
    host = [("QueueDequeueManyV2", "batch", 0, 500), ("MatMul", "layer/MatMul", 500, 400)]
    data = _timeline_of(
        ("/job:localhost/replica:0/task:0/cpu:0 Compute", host),
        (f"{prefix}stream:all Compute", [*kernels, *copies]),
        (f"{prefix}stream:7 Compute", kernels),
        (f"{prefix}stream:12 Compute", copies),
    )
    trace = condense(read_trace(data))
    assert trace.form == "TF1 timeline"
    assert trace.events == {
        "on the host": 2, "summaries of others": 3, "kernels": 2, "copies to the device": 1,
        "marks for the viewer": 5,
    }  # fmt: skip
    steps = trace.steps
    assert isinstance(steps, TracedSteps)
    assert steps.whole
    segments = {name: round(seconds * 1e6) for name, seconds in steps.segments.items() if seconds}
    assert segments == {
        "input_wait": 500, "launch": 200, "host_to_device": 300, "device_compute": 600, "unexplained": 200,
    }  # fmt: skip
    assert trace.busiest[0].layer == "layer"
