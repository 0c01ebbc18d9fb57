"""Loops and ops over whole tables in a step's graph, and what they take."""

from __future__ import annotations

import pytest

from tfdiag.collect.loops import parts_of
from tfdiag.collect.part_times import Slowdown, part_times, times_of_ops, unseen_time
from tfdiag.collect.walked import Names
from tfdiag.compat.op_spans import OpSpan, Spans
from tfdiag.compat.placement import GraphNode
from tfdiag.model.layers import EmbeddingTable

NAMES = Names(frozenset({"rows", "rnn"}), "adam")
TABLE = EmbeddingTable("words", 1000, 8, "float32", 32_000)


def node(name: str, op: str = "MatMul", **fields: object) -> GraphNode:
    """Give a node."""
    return GraphNode(name, op, **fields)  # type: ignore[arg-type]


def test_loops_are_named_with_layer_and_kind() -> None:
    """Forwards and backwards; one inside another is a part of it, and that over steps is none."""
    step = [
        node("while", "While", calls=("steps",)),
        node("net/rows/map/while", "While", function="steps", calls=("each",)),
        node("net/rows/map/while/while", "While", function="each", calls=("inner",)),
        node("net/rows/map/while/EagerPyFunc", "EagerPyFunc", function="inner"),
        node("gradient_tape/net/rnn/while", "StatelessWhile", function="steps", calls=("cell",)),
        node("scan/while_1", "While", function="steps"),
    ]
    found = parts_of(step, NAMES, recurrent=["rnn"]).loops
    assert [(each.name, each.kind, each.layer, each.part, each.calls_python) for each in found] == [
        ("while/net/rows/map/while", "map_fn", "rows", "forward", True),
        ("while/gradient_tape/net/rnn/while", "recurrent", "rnn", "backward", False),
        ("while/scan/while_1", "scan", "", "", False),
    ]


def test_ops_over_a_whole_table_are_told_by_their_shape() -> None:
    """What computes all rows and what writes them; not reading, and not what is written for single rows."""
    whole, rows = ((1000, 8),), ((32, 8),)
    step = [
        node("read", "ReadVariableOp", shapes=whole),
        node("words/Gather", "GatherV2", shapes=rows, inputs=("read",)),
        node("adam/spread", "UnsortedSegmentSum", shapes=((-1, 8),)),
        node("adam/sub", "Sub", shapes=whole, inputs=("adam/spread", "read")),
        node("adam/write", "AssignAddVariableOp", inputs=("handle", "adam/sub:0")),
        node("adam/nan", "Any", inputs=("adam/sub:0", "axes")),
        node("sgd/mul", "Mul", shapes=rows),
        node("sgd/write", "AssignSubVariableOp", inputs=("handle", "sgd/mul")),
        node("sgd/any", "Any", inputs=("sgd/mul:0", "axes")),
        node("sgd/scatter", "ResourceScatterSub", inputs=("handle", "ids", "sgd/mul")),
    ]
    assert parts_of(step, NAMES, tables=[TABLE]).tables == {
        "words": {"adam/spread", "adam/sub", "adam/write", "adam/nan"}
    }
    assert parts_of(step[-4:], NAMES, tables=[TABLE]).tables == {}


def test_a_fused_kernel_is_seen() -> None:
    """By the layer that it stands in."""
    assert parts_of([node("net/rnn/CudnnRNNV3", "CudnnRNNV3")], NAMES).fused == {"rnn"}


def span(name: str, begin: float, end: float, op: str = "Mul", line: int = 0) -> OpSpan:
    """Give a run of an op."""
    return OpSpan(name, op, line, begin, end)


def test_a_loop_takes_what_lies_between_its_ops() -> None:
    """Dispatching its next op is the loop's; another op's time is not; rounds are counted by most ops."""
    spans = Spans(
        (
            span("net/loop/while/body/_3/net/loop/while/a", 0.0, 1.0),
            span("net/loop/while/body/_3/net/loop/while/a", 2.0, 3.0),
            span("net/loop/while/body/_3/net/loop/while/b", 4.0, 6.0),
            span("net/loop/while/body/_3/net/loop/while/b", 7.0, 8.0),
            span("net/loop/while/LoopCond", 8.0, 8.5, "LoopCond"),
            span("net/other", 7.0, 7.5, line=1),
        )
    )
    (time,) = part_times(
        spans, lambda name: "loop" if name.startswith("net/loop/while/") else None, calls=2
    ).values()
    assert time.alone_s == pytest.approx((8.5 - 0.5) / 2)
    assert time.op_s == pytest.approx(5.0 / 4)
    assert time.repeats == 1.0


def test_what_a_layer_does_beside_its_loop_is_the_time_of_its_ops() -> None:
    """Not what lies between them, for there the loop runs; and rows on their way into it are its own."""
    spans = Spans(
        (
            span("net/each_row/dense", 0.0, 1.0),
            span("net/each_row/map/stack", 5.0, 6.0, "TensorListStack"),
            span("net/each_row/StatefulPartitionedCall/net/each_row/bias", 8.0, 10.0),
            span("net/other", 10.0, 20.0),
        )
    )
    found = times_of_ops(spans, lambda name: "row" if name.startswith("net/each_row/") else None, calls=2)
    assert found == {"row": pytest.approx(1.5)}


def test_on_a_gpu_kernels_and_idle_time_between_them_count() -> None:
    """Until another part's kernel runs, the GPU idles for the next launch of this one."""
    spans = Spans(
        (span("net/rnn/a", 1.0, 3.0), span("net/other", 5.0, 6.0)),
        kernels=((0.0, 1.0), (3.0, 5.0), (6.0, 7.0), (8.0, 9.0), (9.5, 10.0)),
        kernel_ops=("net/other:Mul", "net/rnn/a:Mul", "net/rnn/a:Mul", "net/other:Mul", "net/rnn/a:Mul"),
    )
    (time,) = part_times(spans, lambda name: "rnn" if name.startswith("net/rnn") else None, 1).values()
    assert time.alone_s == pytest.approx(4.0 + 0.5)


def quick(calls: int, disturbed: float = 0.0) -> Spans:
    """Give calls of a second in whose middle works something of which no op is shown."""
    ops, working = [], []
    for call in range(calls):
        longer = disturbed if call == 0 else 0.0
        ops += [
            span("a", call * 10, call * 10 + 0.2),
            span("b", call * 10 + 0.8 + longer, call * 10 + 1 + longer),
        ]
        working += [(call * 10, call * 10 + 1.0 + longer), (call * 10 + 0.3, call * 10 + 0.5)]
    return Spans(tuple(ops), working=tuple(working))


def test_a_loop_of_ops_that_are_too_quick_to_be_told() -> None:
    """It takes the longest stretch of work without an op of others; what lies between calls is no work."""
    assert unseen_time(quick(5), lambda _: None, 1, 5) == pytest.approx(0.6)
    assert unseen_time(quick(5, disturbed=3.0), lambda _: None, 1, 5) == pytest.approx(0.6)
    assert unseen_time(Spans(quick(5).ops), lambda _: None, 1, 5) is None
    together = Spans((span("a", 0, 1), span("b", 1, 2)), working=((0, 2),))
    assert unseen_time(together, lambda _: None, 1, 1) == 0.0


def test_a_loop_of_which_little_is_told_takes_all_of_its_stretch() -> None:
    """One op shows where it runs."""
    shown = quick(1)
    spans = Spans((*shown.ops, span("loop/x", 0.5, 0.52)), working=shown.working)
    member = lambda name: "loop" if name.startswith("loop") else None  # noqa: E731
    (time,) = part_times(spans, member, 1, loops=True).values()
    assert time.alone_s == pytest.approx(0.6)
    assert unseen_time(spans, member, 1, 1) == 0.0


def test_small_ops_bear_more_of_the_profiler_than_large_ones() -> None:
    """A traced call of 2 ms takes 1.6 without: a loop bears its half or more."""
    undone = Slowdown(traced_s=2e-3, plain_s=1.6e-3)
    assert undone.off_small(1e-3) == pytest.approx((0.72e-3, 0.64e-3, 0.8e-3))
    assert undone.off_small(1.9e-3) == pytest.approx((1.51e-3, 1.5e-3, 1.52e-3))
    assert undone.off_large(1e-3) == pytest.approx(0.9e-3)


def test_a_traced_call_that_was_quicker_changes_nothing() -> None:
    """What others did to the machine meanwhile is not the profiler's."""
    undone = Slowdown(traced_s=1e-3, plain_s=1.1e-3)
    assert undone.off_small(0.5e-3) == (0.5e-3, 0.5e-3, 0.5e-3)
    assert undone.off_large(0.5e-3) == 0.5e-3


def test_on_a_device_all_of_a_call_is_slowed_alike() -> None:
    """Kernels wait for a host that is slower for all of them."""
    undone = Slowdown(traced_s=2e-3, plain_s=1.6e-3, evenly=True)
    assert undone.off_small(1e-3) == pytest.approx((0.8e-3,) * 3)
    assert undone.off_large(1e-3) == pytest.approx(0.8e-3)
