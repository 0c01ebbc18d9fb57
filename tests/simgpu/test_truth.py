"""The columns of the ground truth, without a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.device import run_truth

from .truth import Truth, overlap_ns, union_ns

HEADER = "kind,device,stream,name,op,api0,api1,t0,t1,bytes,correlation,tid,pinned,async,overrun,peer\n"


def write(path: Path, *rows: str) -> Truth:
    path.write_text(HEADER + "".join(row + "\n" for row in rows))
    return Truth.read(path)


def test_rows_become_columns(tmp_path: Path) -> None:
    """Kinds, flags, numbers and marks come out as what they are; a row cut short by a crash is left out."""
    truth = write(
        tmp_path / "log.csv",
        'kernel,0,13,MatMul,"model/dense, 1:MatMul",1,2,10,30,64,1,7,0,1,0,0',
        'mark,0,-1,"start",,20,20,20,20,0,0,0,0,0,0,0',
        'h2d,1,14,MemcpyH2D,"",3,4,20,50,128,2,7,1,1,1,1',
        "kernel,0,13,Mat",
    )
    assert truth.kind.tolist() == ["kernel", "h2d"]
    assert truth.op[0] == "model/dense, 1:MatMul"
    assert truth.pinned.tolist() == [False, True]
    assert truth.marks == (("start", 20),)
    assert truth.of("kernel").busy_ns == 20
    assert truth.of("h2d", device=1).bytes.sum() == 128
    assert len(truth.between("start", "start")) == 0
    with pytest.raises(KeyError, match="no mark 'end'"):
        truth.moment("end")


def test_a_log_without_rows_is_empty(tmp_path: Path) -> None:
    """A process that never touched the GPU leaves columns of length 0."""
    truth = write(tmp_path / "log.csv")
    assert len(truth) == 0
    assert truth.busy_ns == 0


def test_the_union_counts_every_moment_once() -> None:
    """Intervals that overlap, touch, contain each other or stand apart, in any order."""
    t0, t1 = np.array([10, 0, 40, 12, 60]), np.array([20, 15, 60, 14, 61])
    assert union_ns(t0, t1) == 20 + 21
    assert union_ns(t0[:0], t1[:0]) == 0


def test_overlap_is_what_both_have(tmp_path: Path) -> None:
    """The overlap of copies and kernels is the time when both ran."""
    truth = write(
        tmp_path / "log.csv",
        "kernel,0,13,A,,0,0,0,30,0,1,7,0,1,0,0",
        "h2d,0,14,B,,0,0,20,50,0,2,7,0,1,0,0",
    )
    assert overlap_ns(truth.of("kernel"), truth.of("h2d")) == 10


def calls_of(begin: int, count: int) -> list[str]:
    """Calls of 100 ns each: 30 of kernels, then a copy and another, half hidden; 20 between calls."""

    def mark(name: str, at: int) -> str:
        return f'mark,0,-1,"{name}",,{at},{at},{at},{at},0,0,0,0,0,0,0'

    def work(kind: str, at: int, end: int, peer: int = 0) -> str:
        return f"{kind},0,13,A,,{at},{at},{at},{end},0,1,7,0,1,0,{peer}"

    rows = []
    for at in range(begin, begin + 100 * count, 100):
        rows += [mark("call", at), work("kernel", at + 10, at + 40), work("h2d", at + 30, at + 60)]
        rows += [work("d2h", at + 55, at + 65), work("d2d", at + 65, at + 70, peer=1), mark("done", at + 80)]
    return [mark("before", begin - 10), *rows, mark("diagnosis", begin + 100 * count)]


def test_the_benchmark_gives_each_moment_to_one_segment(tmp_path: Path) -> None:
    """Kernels first, then copies, then what is idle inside of a call; the rest is the host's."""
    truth = write(tmp_path / "log.csv", *calls_of(1000, 21))
    segments, count = run_truth(truth, "before", "diagnosis")
    assert count == 15  # without a quarter, and without the last one, whose end nobody saw
    assert {name: value / count for name, value in segments.items()} == {
        "device_compute": 30, "collective": 5, "host_to_device": 20, "device_to_host": 5,
        "idle in calls": 20, "host": 20,
    }  # fmt: skip
