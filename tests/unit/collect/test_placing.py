"""From the nodes of a graph to where its ops run, on graphs of known make-up."""

from __future__ import annotations

from typing import Any

import pytest

from tfdiag.collect.placing import main_device, marks, place, text_layers
from tfdiag.collect.walked import Known, Names, normal, short, walk
from tfdiag.compat.placement import GraphNode, HeldVariable
from tfdiag.model.quantity import Missing, Quantity

CPU, GPU = (f"/job:localhost/replica:0/task:0/device:{kind}:0" for kind in ("CPU", "GPU"))
FLOAT = {"T": "float32"}
NAMES = Names(frozenset({"dense", "middle", "words"}), "adam")


def cut(middle: str = "Cumsum", types: dict[str, str] | None = None, **more: Any) -> list[list[GraphNode]]:
    """Give a step on a GPU with an op on the CPU in its middle, and the batch on its way in."""
    sent: dict[str, Any] = {"sender": GPU, "receiver": CPU}
    back: dict[str, Any] = {"sender": CPU, "receiver": GPU}
    on_gpu = [
        GraphNode("x/_1", "_Recv", GPU, types={"tensor_type": "float32"}, wire="edge_1_x", **back),
        GraphNode("net/dense/MatMul", "MatMul", GPU, ("x/_1",), FLOAT),
        GraphNode("net/dense/Relu", "Relu", GPU, ("net/dense/MatMul",), FLOAT),
        GraphNode("net/dense/Relu/_2", "_Send", GPU, ("net/dense/Relu",), FLOAT, wire="edge_2_Relu", **sent),
        GraphNode("net/middle/_3", "_Recv", GPU, types={"tensor_type": "float32"}, wire="edge_3", **back),
        GraphNode("net/out/MatMul", "MatMul", GPU, ("net/middle/_3",), FLOAT),
    ]
    on_cpu = [
        GraphNode("next", "IteratorGetNext", CPU, ("iterator",)),
        GraphNode("next/_1", "_Send", CPU, ("next:1",), FLOAT, wire="edge_1_x", **back),
        GraphNode("net/dense/Relu/_4", "_Recv", CPU, types=FLOAT, wire="edge_2_Relu", **sent),
        GraphNode("net/middle/op", middle, CPU, ("net/dense/Relu/_4",), types or FLOAT, **more),
        GraphNode("net/middle/op/_5", "_Send", CPU, ("net/middle/op",), FLOAT, wire="edge_3", **back),
        # An order of ops across devices is sent as a tensor without elements.
        GraphNode("order", "Const", CPU, empty=True),
        GraphNode("order/_6", "_Send", CPU, ("order",), FLOAT, wire="edge_6", **back),
    ]
    return [on_cpu, on_gpu]


def traced(device: str = "", op: str = "Cumsum") -> list[GraphNode]:
    """Give the same step before it was cut up."""
    return [
        GraphNode("next", "IteratorGetNext", shapes=(None, (-1, 10))),
        GraphNode("net/dense/MatMul", "MatMul", types=FLOAT, shapes=((-1, 5),)),
        GraphNode("net/dense/Relu", "Relu", types=FLOAT, shapes=((-1, 5),)),
        GraphNode("net/middle/op", op, device, types=FLOAT, shapes=((4, 5),)),
        GraphNode("net/out/MatMul", "MatMul", types=FLOAT),
    ]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("net/dense/MatMul", "net/dense/MatMul"),
        ("StatefulPartitionedCall/net/dense/MatMul", "net/dense/MatMul"),
        ("PartitionedCall_2/net/StatefulPartitionedCall_1/mul", "net/mul"),
        ("net/map/while/body/_31/net/map/while/EagerPyFunc", "net/map/while/net/map/while/EagerPyFunc"),
        ("net/cond/then/_5/net/cond/add", "net/cond/net/cond/add"),
        ("net/body/dense", "net/body/dense"),
    ],
)
def test_names_lose_what_inlining_adds(name: str, plain: str):
    """A layer may be called `body`; only with a number behind it it is inlining's."""
    assert normal(name) == plain


def test_devices_are_shortened():
    """As a person writes them."""
    assert (short(GPU), short("/device:CPU:0"), short("")) == ("/GPU:0", "/CPU:0", "")


@pytest.mark.parametrize(
    ("path", "layer", "part"),
    [
        ("functional/dense/MatMul", "dense", "forward"),
        ("functional/dense_3/MatMul", "dense", "forward"),
        ("gradient_tape/functional/dense/MatMul/MatMul_1", "dense", "backward"),
        ("adam/Sqrt", "", "optimizer"),
        ("Adam/AssignAddVariableOp", "", "optimizer"),
        ("compute_loss/mean_squared_error/sub", "", "loss"),
        ("compile_metrics/mae/Abs", "", "metrics"),
        ("add", "", ""),
    ],
)
def test_parts_and_layers_come_from_scopes(path: str, layer: str, part: str):
    """A layer that is called twice gets a number in its scope."""
    assert (NAMES.layer(path), NAMES.part(path)) == (layer, part)


def test_walks_functions_and_knows_loops():
    """What a loop's body calls is in the loop; a function that is not called is not in the step."""
    nodes = [
        GraphNode("call", "StatefulPartitionedCall", calls=("step",)),
        GraphNode("map/while", "While", function="step", calls=("body",), device=CPU),
        GraphNode("map/while/py", "EagerPyFunc", function="body", token="pyfunc_1"),  # noqa: S106  # no secret
        GraphNode("if", "If", function="step", calls=("then",)),
        GraphNode("if/text", "StringSplitV2", function="then"),
        GraphNode("never", "EagerPyFunc", function="other"),
    ]
    known = Known(function=lambda token: ("halve", f"net.py:{token[-1]}"))
    found = place(nodes, (), known)
    assert [(op.op, op.kind, op.in_loop, op.where) for op in found.ops] == [
        ("EagerPyFunc", "python", True, "net.py:1"),
        ("StringSplitV2", "text", False, ""),
    ]
    assert {each.path for each in walk(nodes)} >= {"call/map/while/map/while/py", "call/if/if/text"}


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (GraphNode("a", "LookupTableFindV2", types={"Tin": "int64"}), "text"),
        (GraphNode("a", "Equal", types={"T": "string"}), "text"),
        (GraphNode("a", "PyFunc"), "python"),
        (GraphNode("a", "Identity", types={"T": "string"}), None),
        (GraphNode("a", "Const", types={"dtype": "string"}), None),
        (GraphNode("a", "StringFormat"), None),
        (GraphNode("a", "PrintV2"), None),
        (GraphNode("a", "Shape", types={"T": "string"}), None),
        (GraphNode("a", "AssertGuard", types={"T": "string"}), None),
        (GraphNode("a", "MatMul", types=FLOAT), None),
    ],
)
def test_tells_text_and_python_from_the_rest(node: GraphNode, kind: str | None):
    """Constants, messages and what only carries strings process no text."""
    assert [op.kind for op in place([node], (), Known()).ops] == ([kind] if kind else [])


def test_finds_the_op_in_the_middle():
    """It is on the CPU, takes from the GPU and gives to it."""
    found = place(traced(), cut(), Known(NAMES))
    (op,) = found.ops
    assert (op.name, op.kind, op.layer, op.device) == ("net/middle/op", "host", "middle", "/CPU:0")
    assert main_device(found.devices) == "/GPU:0"
    assert {each.device: each.ops for each in found.devices} == {"/CPU:0": 1, "/GPU:0": 3}


def test_tells_copies_by_their_purpose():
    """The batch goes in, two tensors cross inside; what only stands for an order is none."""
    found = place(traced(), cut(), Known(NAMES, batch=32))
    told = {copy.tensor: (copy.direction, copy.purpose, copy.shape) for copy in found.copies}
    assert told == {
        "next:1": ("host to device", "input", "(?, 10)"),
        "net/dense/Relu:0": ("device to host", "inside", "(?, 5)"),
        "net/middle/op:0": ("host to device", "inside", "(4, 5)"),
    }
    sizes = {copy.tensor: copy.bytes for copy in found.copies}
    assert sizes["net/middle/op:0"] == Quantity(80.0, "B", source="shape in the graph")
    guessed = sizes["net/dense/Relu:0"]
    assert isinstance(guessed, Quantity)
    assert (guessed.value, guessed.origin) == (32 * 5 * 4, "estimated")
    unknown = place(traced(), cut(), Known(NAMES)).copies
    assert any(isinstance(copy.bytes, Missing) for copy in unknown)


@pytest.mark.parametrize(
    ("device", "kernel", "reason"),
    [
        ("/device:CPU:0", "yes", "pinned"),
        ("", "no", "no kernel"),
        ("", "not for this type", "no kernel for this type"),
        ("", "yes", "not known"),
        ("", None, "not known"),
    ],
)
def test_says_why_an_op_is_on_the_cpu(device: str, kernel: str | None, reason: str):
    """What the caller asked for comes first, then what the accelerator can."""
    known = Known(NAMES, has_kernel=lambda _op, _types: kernel)
    (op,) = place(traced(device), cut(), known).ops
    assert op.reason == reason


@pytest.mark.parametrize(
    ("middle", "types"),
    [("StridedSlice", {"T": "int32"}), ("Identity", FLOAT), ("ReadVariableOp", {"dtype": "float32"})],
)
def test_what_belongs_on_the_host_is_no_finding(middle: str, types: dict[str, str]):
    """Shapes, mere carriers, and reading a variable, which is the variable's matter."""
    assert place(traced(op=middle), cut(middle, types), Known(NAMES)).ops == ()


def test_text_and_python_keep_their_kind_on_a_gpu():
    """They are named once, as what they are."""
    found = place(traced(op="EagerPyFunc"), cut("EagerPyFunc"), Known(NAMES))
    assert [op.kind for op in found.ops] == ["python"]


def test_a_step_on_the_cpu_has_no_misplaced_ops():
    """Where most ops run on the CPU, none of them is out of place."""
    on_cpu, on_gpu = cut()
    more = [GraphNode(f"net/{n}", "MatMul", CPU, types=FLOAT) for n in range(9)]
    found = place(traced(), [[*on_cpu, *more], on_gpu], Known(NAMES))
    assert main_device(found.devices) == "/CPU:0"
    assert found.ops == ()


def test_variables_are_counted_by_device():
    """Integers, which live on the host, are not."""
    held = (
        HeldVariable("kernel:0", GPU, "float32", 400),
        HeldVariable("table:0", CPU, "float32", 4000),
        HeldVariable("bias:0", CPU, "float32", 40),
        HeldVariable("steps:0", CPU, "int64", 8),
    )
    found = place(traced(), cut(), Known(NAMES, held)).variables
    assert [(each.device, each.count, each.bytes, each.largest) for each in found] == [
        ("/CPU:0", 2, 4040, "table:0"),
        ("/GPU:0", 1, 400, "kernel:0"),
    ]


def test_functions_that_xla_compiles_are_counted():
    """Their ops can't be told apart on the device."""
    assert place([GraphNode("call", "StatefulPartitionedCall", xla=True)], (), Known()).clusters == 1


def test_ops_are_found_in_a_trace_by_either_name():
    """Inlined into their callers, or run as functions of their own."""
    nodes = [
        GraphNode("map/while", "While", calls=("body",)),
        GraphNode("map/while/py", "EagerPyFunc", function="body"),
    ]
    ops = place(nodes, (), Known()).ops
    assert set(marks(nodes, ops)) == {
        ("map/while/py", "EagerPyFunc"),
        ("map/while/map/while/py", "EagerPyFunc"),
    }


def test_a_text_layer_goes_as_a_whole():
    """All of its ops leave with it, unless it holds variables, which have to stay."""
    nodes = [
        GraphNode("net/words/StringSplitV2", "StringSplitV2"),
        GraphNode("net/words/RaggedToTensor/Cumsum", "Cumsum"),
        GraphNode("net/dense/MatMul", "MatMul"),
    ]
    ops = place(nodes, (), Known(NAMES)).ops
    whole = {("net/words/StringSplitV2", "StringSplitV2"), ("net/words/RaggedToTensor/Cumsum", "Cumsum")}
    assert set(text_layers(nodes, ops, NAMES)) == whole
    assert text_layers([*nodes, GraphNode("net/words/Read", "ReadVariableOp")], ops, NAMES) == {}
    assert text_layers(nodes, ops, Names()) == {}


def test_an_op_stands_in_its_layer_and_in_those_around_it():
    """The cell of a recurrent layer is a layer of its own, inside."""
    names = Names(frozenset({"encoder", "lstm_cell"}))
    path = "sequential/encoder_1/while/lstm_cell_1/Tanh"
    assert list(names.layers_around(path)) == ["lstm_cell", "encoder"]
    assert names.layer(path) == "lstm_cell"
    assert names.layer("sequential/other/Tanh") == ""


def test_what_accelerators_exchange_is_their_own_matter() -> None:
    """Gradients of replicas go nowhere near the host; a batch in a variant is a copy of unknown size."""
    other = GPU.replace("GPU:0", "GPU:1")
    wire: dict[str, Any] = {"wire": "edge_9", "sender": GPU, "receiver": other}
    packed: dict[str, Any] = {"wire": "edge_8", "sender": CPU, "receiver": GPU}
    variant = {"T": "variant"}
    parts = [
        [
            GraphNode("optional", "_Recv", GPU, types={"tensor_type": "variant"}, **packed),
            GraphNode("value", "OptionalGetValue", GPU, ("optional",)),
            GraphNode("gradient", "MatMul", GPU, ("value",), FLOAT),
            GraphNode("gradient/_1", "_Send", GPU, ("gradient",), FLOAT, **wire),
        ],
        [
            GraphNode("gradient/_2", "_Recv", other, types={"tensor_type": "float32"}, **wire),
            GraphNode("sum", "AddN", other, ("gradient/_2",), FLOAT),
        ],
        [
            GraphNode("next", "IteratorGetNextAsOptional", CPU),
            GraphNode("next/_1", "_Send", CPU, ("next",), variant, **packed),
        ],
    ]
    copies = {copy.tensor: copy for copy in place([], parts, Known()).copies}
    assert (copies["gradient:0"].purpose, copies["gradient:0"].direction) == ("peer", "device to device")
    assert copies["next:0"].purpose == "input"
    assert isinstance(copies["next:0"].bytes, Missing)
