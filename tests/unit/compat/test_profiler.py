"""The door to the profiler: what TensorFlow itself writes is read as its own protobuf reads it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from tfdiag.compat.profiler import STEP_MARK, Tracer, step_mark
from tfdiag.model.quantity import Missing
from tfdiag.timeline import condense, read_trace


def test_a_trace_is_read_as_protobuf_reads_it(tmp_path: Path) -> None:
    """Every event with its name, begin and duration; and marked steps are found."""

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.matmul(x, x))

    data = tf.data.Dataset.from_tensors(tf.ones((64, 64))).repeat(8)
    step(tf.ones((64, 64)))
    tracer = Tracer(tmp_path)
    assert tracer.start(device=True) is None
    for number, batch in enumerate(data):
        with step_mark(number):
            step(batch)
    raw = tracer.take(10_000_000)
    assert isinstance(raw, bytes)
    assert not tracer.running

    expected: Counter[tuple[str, int, int]] = Counter()
    planes = xplane_pb2.XSpace.FromString(raw).planes
    zero = min(line.timestamp_ns for plane in planes for line in plane.lines if line.events)
    for plane in planes:
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns - zero + event.offset_ps // 1000
                end = line.timestamp_ns - zero + (event.offset_ps + event.duration_ps) // 1000
                expected[plane.event_metadata[event.metadata_id].name, begin, end] += 1
    timeline = read_trace(raw)
    found: Counter[tuple[str, int, int]] = Counter()
    for line in timeline.lines:
        names = [timeline.names[index] for index in line.label.tolist()]
        found.update(zip(names, line.start.tolist(), line.end.tolist(), strict=True))
    assert found == expected
    assert sum(found.values()) > 50

    trace = condense(timeline)
    assert not isinstance(trace.steps, Missing)
    assert trace.steps.found_by == f'step markers "{STEP_MARK}"'
    assert trace.steps.count == 7
    assert trace.input_wait_s > 0


def test_a_trace_over_the_limit_is_not_kept(tmp_path: Path) -> None:
    """What would take too long to read is Missing."""
    tracer = Tracer(tmp_path)
    assert tracer.start(device=True) is None
    found = tracer.take(10)
    assert isinstance(found, Missing)
    assert "bytes" in found.reason
    assert isinstance(tracer.take(10), Missing)
