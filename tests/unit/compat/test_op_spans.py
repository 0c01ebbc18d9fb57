"""Spans of ops, kernels and copies, from traces of known make-up."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from tfdiag.compat.op_spans import read_spans
from tfdiag.model.quantity import Missing

MS = 1_000_000_000
"""In picoseconds."""


def written(folder: Path, planes: dict[str, dict[str, list[tuple[str, int, int]]]]) -> Path:
    """Write events (name, begin and duration in ms) by plane and line."""
    form: Any = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = form.XSpace()
    for name, lines in planes.items():
        plane = space.planes.add(name=name)
        for line_name, events in lines.items():
            line = plane.lines.add(name=line_name, timestamp_ns=1_000_000_000)
            for event, begin, length in events:
                number = len(plane.event_metadata) + 1
                plane.event_metadata[number].name = event
                line.events.add(metadata_id=number, offset_ps=begin * MS, duration_ps=length * MS)
    (folder / "host.xplane.pb").write_bytes(space.SerializeToString())
    return folder


def test_ops_kernels_and_copies_are_told_apart(tmp_path: Path) -> None:
    """Ops by their form; what other lines say again, and what fills memory, is neither kernel nor copy."""
    spans = read_spans(
        written(
            tmp_path,
            {
                "/host:CPU": {
                    "tf_Compute": [
                        ("net/dense/MatMul:MatMul#id=3,long_name=x#", 1, 2),
                        ("ExecutorState::Process", 0, 9),
                        ("Iterator::Prefetch", 0, 1),
                        ("EagerExecute: Mul", 0, 1),
                    ]
                },
                "/device:GPU:0": {
                    "Stream #13(Compute)": [("ampere_sgemm", 2, 3), ("Memset", 0, 1)],
                    "Stream #14(MemcpyH2D)": [("MemcpyH2D", 0, 1), ("CopyDeviceToHost memcpy", 5, 1)],
                    "TensorFlow Ops": [("MatMul", 2, 3)],
                },
                "/device:CUSTOM:x": {"line": [("thing", 0, 1)]},
            },
        )
    )
    assert not isinstance(spans, Missing)
    ((op),) = spans.ops
    assert (op.name, op.op) == ("net/dense/MatMul", "MatMul")
    assert (op.begin, op.end) == (pytest.approx(1.001), pytest.approx(1.003))
    assert spans.kernels == ((pytest.approx(1.002), pytest.approx(1.005)),)
    assert [direction for direction, _, _ in spans.copies] == ["host to device", "device to host"]


def test_what_can_not_be_read_is_missing(tmp_path: Path) -> None:
    """No file, and a trace without ops."""
    assert isinstance(read_spans(tmp_path), Missing)
    assert isinstance(read_spans(written(tmp_path, {"/host:CPU": {"main": [("python", 0, 1)]}})), Missing)
