"""Which layer a kernel's op belongs to, by the op's name."""

from __future__ import annotations

import pytest

from tfdiag.timeline.names import layer_of


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("gradient_tape/sequential/dense/MatMul:MatMul", "sequential/dense"),
        ("StatefulPartitionedCall/sequential/conv2d/Conv2D:Conv2D", "sequential/conv2d"),
        ("jit(f)/a/b", "a"),
        # An inlined loop: the op has its whole name once more behind that of the loop's body.
        (
            "StatefulPartitionedCall/a_1/rnn_1/while/body/_15/a_1/rnn_1/while/cell_1/Tanh:Tanh",
            "a_1/rnn_1/cell_1",
        ),
        ("StatefulPartitionedCall/a_1/rnn_1/while/cond/_14/a_1/rnn_1/while/Less:Less", "a_1/rnn_1"),
    ],
)
def test_the_layer_of_an_op(op: str, layer: str) -> None:
    """Without what wrappers and inlining put into the name."""
    assert layer_of(op) == layer
