"""Reading an XSpace from its bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.traces import Event, Plane, Ref, space
from tfdiag.timeline import wire
from tfdiag.timeline.columns import Line, Timeline, Work
from tfdiag.timeline.wire import PADDING, Buffer, CutError
from tfdiag.timeline.xspace import padded, read_xspace

NS = 1000


def read(*planes: Plane, **extra: object) -> Timeline:
    """Read the planes of a trace."""
    return read_xspace(padded(space(*planes, **extra)), "test")  # type: ignore[arg-type]


def rows(timeline: Timeline, line: Line) -> list[tuple[str, int, int]]:
    """Give name, begin and duration of the events of a line."""
    names = [timeline.names[index] for index in line.label.tolist()]
    return list(zip(names, line.start.tolist(), (line.end - line.start).tolist(), strict=True))


def test_events_come_back():
    """Name, begin and duration of each event, from lines with zeros of their own."""
    early = Plane("/host:CPU", {"main": [Event("a", 5, 2), Event("b", 7, 0)]}, zero=10**18)
    late = Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 1, 3)]}, zero=10**18 + 50)
    timeline = read(early, late, hostname="box")
    assert timeline.hosts == ["box"]
    assert timeline.devices == [("box", "/device:GPU:0")]
    host, device = timeline.lines
    assert rows(timeline, host) == [("a", 5, 2), ("b", 7, 0)]
    assert rows(timeline, device) == [("k", 51, 3)]
    assert (host.kind, device.kind) == ("host", "device")


def test_numbers_of_every_length():
    """Times from 1 ps to longer than nine bytes hold, and so do negative ones."""
    times = [0, 1, 127 * NS, 2**21, 2**28, 2**35, 2**42, 2**49, 2**52]
    (line,) = read(Plane("/host:CPU", {"main": [Event("a", each, each) for each in times]})).lines
    assert line.start.tolist() == times
    assert (line.end - line.start).tolist() == times
    (line,) = read(Plane("/host:CPU", {"main": [Event("a", -3, 5), Event("a", 4, -2)]})).lines
    assert line.start.tolist() == [-3, 4]
    assert line.end.tolist() == [2, 2]


def test_fields_in_another_order():
    """A writer that orders the fields otherwise is read as well, stats and all."""
    stats = {"correlation_id": 7}
    plane = Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 1, 3, stats)] * 3}, reverse_fields=True)
    (line,) = read(plane).lines
    assert line.start.tolist() == [1, 1, 1]
    assert line.end.tolist() == [4, 4, 4]


def test_lines_that_began_before_the_profiler():
    """They keep the time of the day, the others count from the profiler's start, which the trace tells."""
    start = 1_700_000_000 * 10**9
    device = Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 5, 1)]}, zero=start - 2)
    host = Plane("/host:CPU", {"main": [Event("a", 5, 1)]}, zero=10)
    told = Plane("Task Environment", {}, stats={"other": "text", "profile_start_time": start})
    for planes in ((device, host, told), (told, device, host)):
        timeline = read(*planes)
        begins = {line.kind: int(line.start[0]) for line in timeline.lines}
        assert begins["host"] - begins["device"] == 12
        assert timeline.warnings == []


def test_a_line_with_a_strange_clock_is_left_out():
    """Without that the times can't be joined, and a trace does not last for days."""
    near = Plane("/host:CPU", {"a": [Event("a", 0, 1)], "b": [Event("b", 0, 1)]}, zero=100)
    far = Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 5, 1)]}, zero=10**18)
    timeline = read(near, far)
    assert [line.kind for line in timeline.lines] == ["host", "host", "derived"]
    assert "days away" in timeline.warnings[0]


def test_copies_to_another_device():
    """They are told by their name, or by the device that receives."""
    events = [
        Event("MemcpyP2P", 0, 1),
        Event("MemcpyD2D", 1, 1, {"memcpy_details": "kind_src:device kind_dst:device size:8 dest:1"}),
        Event("MemcpyD2D", 2, 1, {"memcpy_details": "kind_src:device kind_dst:device size:8 dest:0"}),
    ]
    (line,) = read(Plane("/device:GPU:0", {"Stream #1(Compute,MemcpyD2D)": events})).lines
    assert line.work is not None
    assert line.work.tolist() == [Work.PEER, Work.PEER, Work.D2D]


def test_stats_of_devices():
    """Correlation, op (shared text or its own), bytes, memory and direction of copies."""
    copy = "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"
    events = [
        Event("k", 0, 1, {"correlation_id": 300, "other": 1.5, "tf_op": Ref("a/b:MatMul"), "more": "text"}),
        Event("k", 1, 1, {"hlo_op": "fusion.1", "correlation_id": -1}),
        Event("MemcpyH2D", 2, 1, {"memcpy_details": copy}),
        Event("MemcpyH2D", 3, 1, {"memcpy_details": Ref("size:12 dest:0 async:1")}),
        Event("Copy", 4, 1, {"memcpy_details": "kind_src:device kind_dst:pageable size:8"}),
        Event("MemcpyD2D", 5, 1),
        Event("Memset", 6, 1),
        Event("ncclDevKernel_AllReduce_Sum_f32", 7, 1),
    ]
    timeline = read(Plane("/device:GPU:0", {"Stream #1(Compute,MemcpyH2D)": events}))
    (line,) = timeline.lines
    assert line.work is not None and line.op is not None and line.bytes is not None
    assert line.pinned is not None and line.correlation is not None
    work = [Work.KERNEL, Work.KERNEL, Work.H2D, Work.H2D, Work.D2H, Work.D2D, Work.MEMSET, Work.COLLECTIVE]
    assert line.work.tolist() == work
    assert line.correlation.tolist()[:2] == [300, -1]
    assert [timeline.names[index] for index in line.op.tolist()[:2]] == ["a/b:MatMul", "fusion.1"]
    assert line.bytes.tolist()[2:6] == [4096, 12, 8, -1]
    assert line.pinned.tolist()[2:6] == [1, -1, 0, -1]


def test_stream_names_tell_what_events_do_not():
    """A stream that only copies says so, in CUDA's words."""
    (line,) = read(Plane("/device:GPU:0", {"Stream #9(MemcpyD2H)": [Event("strange", 0, 1)]})).lines
    assert line.work is not None
    assert line.work.tolist() == [Work.D2H]
    (line,) = read(Plane("/device:GPU:0", {"Stream #16(Kernel)": [Event("gemm", 0, 1)]})).lines
    assert line.work is not None
    assert line.work.tolist() == [Work.KERNEL]


def test_summaries_are_no_work():
    """Lines that the profiler adds repeat the others."""
    lines = {"XLA Modules": [Event("jit_step(1)", 0, 9)], "Steps": [Event("1", 0, 9)]}
    assert [line.kind for line in read(Plane("/device:GPU:0", lines)).lines] == ["derived", "derived"]


def test_many_events_are_walked_together(monkeypatch: pytest.MonkeyPatch):
    """Walking from guessed places at once finds what one walk finds, whatever the events look like."""
    draw = np.random.default_rng(0)
    events = []
    for index in range(4000):
        # Stats that look like events, and texts that look like anything.
        text = bytes(draw.integers(32, 120, int(draw.integers(0, 300))).tolist()).decode()
        bait = '"\x05\x08\x01\x10\x05' * int(draw.integers(0, 5))
        events.append(
            Event(f"e{index % 7}", index, index % 5, {"correlation_id": index, "note": bait + text})
        )
    data = space(Plane("/host:CPU", {"main": events}))
    alone = read_xspace(padded(data), "test").lines[0]
    monkeypatch.setattr(wire, "_SMALL", 0)
    monkeypatch.setattr(wire, "_CHUNK", 256)
    together = read_xspace(padded(data), "test").lines[0]
    assert together.start.tolist() == alone.start.tolist() == list(range(4000))
    assert together.label.tolist() == alone.label.tolist()
    assert together.correlation is not None
    assert together.correlation.tolist() == list(range(4000))


def test_a_cut_trace_gives_its_whole_parts():
    """A plane that is cut is left out and said; with none left there is nothing to read."""
    host = Plane("/host:CPU", {"main": [Event("a", 0, 1)]})
    data = space(host, Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 0, 1)] * 50}))
    timeline = read_xspace(padded(data[:-40]), "test")
    assert [line.name for line in timeline.lines] == ["main"]
    assert "cut" in timeline.warnings[0]
    with pytest.raises(CutError):
        read_xspace(padded(space(host)[:-3]), "test")


def test_every_byte_may_be_wrong():
    """Damage anywhere ends in an error of ours or in columns, never in a crash or an endless loop."""
    good = space(
        Plane("/device:GPU:0", {"Stream #1(Compute)": [Event("k", 0, 1, {"correlation_id": 5})] * 3}),
        Plane("/host:CPU", {"main": [Event("a", 0, 1)]}),
    )
    draw = np.random.default_rng(3)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] = int(draw.integers(0, 256))
        try:
            timeline = read_xspace(padded(bytes(bad)), "test")
        except CutError:
            continue
        assert all(len(line.start) == len(line.end) == len(line.label) for line in timeline.lines)


def test_words_begin_anywhere():
    """Eight bytes from any position, up to the last."""
    data = np.arange(64, dtype=np.uint8)
    buffer = Buffer(data)
    at = np.arange(64 - PADDING)
    expected = [int.from_bytes(bytes(data[i : i + 8]), "little") for i in at.tolist()]
    assert buffer.words(at).tolist() == expected
