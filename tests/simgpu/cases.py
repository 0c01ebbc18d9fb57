"""Inputs for every kernel of the simulated GPU, and the comparison with the CPU.

The library lists its kernels with the types that they are for. For each the builder of its op makes a few cases with
those types, and each case runs on both devices. So a kernel that is added without a builder fails a test, and one that
is added for a new type is compared at once.

Imported in the process of the scenario: see `test_kernels.py`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np


@dataclasses.dataclass
class Case:
    """The inputs and attributes of one call."""

    inputs: list[Any]
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: The CPU knows images with channels last only: the same call as it takes it, and how its result is turned.
    on_cpu: Case | None = None
    turned: Callable[[np.ndarray], np.ndarray] | None = None
    #: For what is no call of an op with tensors in and out: runs on the current device, returns an array.
    custom: Callable[[], Any] | None = None


class Maker:
    """Random inputs of the types that a kernel is for."""

    def __init__(self, types: dict[str, np.dtype[Any]], seed: int) -> None:
        self.types = types
        self.random = np.random.default_rng(seed)

    def __getitem__(self, attribute: str) -> np.dtype[Any]:
        return self.types[attribute]

    def array(self, shape: Iterable[int], dtype: Any = None, low: float = -2, high: float = 2) -> np.ndarray:
        """Evenly spread numbers; integers from 0 where the type has no sign."""
        dtype = np.dtype(self.types.get("T", np.float32) if dtype is None else dtype)
        shape = tuple(shape)
        if dtype.kind == "b":
            return self.random.integers(0, 2, shape).astype(bool)
        if dtype.kind == "u":
            low, high = max(low, 0), max(high, 1)
        if dtype.kind in "iu":
            return self.random.integers(int(low), int(high), shape, endpoint=True).astype(dtype)
        return np.asarray(self.random.uniform(low, high, shape)).astype(dtype)

    def index(self, value: Any, attribute: str) -> np.ndarray:
        """An axis, a shape or the like, of the kernel's index type."""
        return np.array(value, self.types.get(attribute, np.dtype(np.int32)))


Builder = Callable[[Maker], Iterator[Case]]
BUILDERS: dict[str, Builder] = {}


def builds(*ops: str) -> Callable[[Builder], Builder]:
    """Register a builder for ops that take the same inputs."""

    def register(builder: Builder) -> Builder:
        for op in ops:
            BUILDERS[op] = builder
        return builder

    return register


# ---- elementwise -----------------------------------------------------------------------------------------------------

_DOMAINS = {
    (-2.0, 2.0): (
        "Neg Abs Sign Square OnesLike Exp Expm1 Sigmoid Tanh Sin Cos Tan Atan Sinh Cosh Asinh Floor Ceil Round Rint "
        "Erf Erfc Relu Elu Selu Softplus Softsign Invert ZerosLike LogicalNot IsFinite IsInf IsNan"
    ),
    (0.1, 3.0): "Sqrt Rsqrt Log Log1p Reciprocal Inv Lgamma Digamma",
    (1.1, 3.0): "Acosh",
    (-0.9, 0.9): "Asin Acos Atanh Erfinv",
    (-4.0, 9.0): "Relu6",
}


def _unary(low: float, high: float) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        for shape in ((3, 5), (), (0, 2), (2, 3, 4)):
            yield Case([m.array(shape, m.types.get("T", bool), low, high)])

    return build


for (_low, _high), _ops in _DOMAINS.items():
    for _op in _ops.split():
        BUILDERS[_op] = _unary(_low, _high)

_BROADCASTS = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (5,)), ((0, 3), (1, 3)))


def _binary(a: tuple[float, float], b: tuple[float, float], shapes: Any = _BROADCASTS) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        dtype = m.types.get("T", np.dtype(bool))
        for x, y in shapes:
            yield Case([m.array(x, dtype, *a), m.array(y, dtype, *b)])

    return build


for _op in [
    "Add",
    "AddV2",
    "Sub",
    "Mul",
    "Maximum",
    "Minimum",
    "SquaredDifference",
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
    "LogicalAnd",
    "LogicalOr",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "MulNoNan",
    "DivNoNan",
]:
    BUILDERS[_op] = _binary((-3, 3), (-3, 3))
for _op in ["RealDiv", "Div", "FloorDiv", "FloorMod", "TruncateDiv", "Atan2", "Xdivy", "Xlogy", "Xlog1py"]:
    BUILDERS[_op] = _binary((-9, 9), (1, 4))
BUILDERS["Pow"] = _binary((1, 3), (0, 3))
BUILDERS["LeftShift"] = BUILDERS["RightShift"] = _binary((0, 7), (0, 3))
_SAME = (((3, 4), (3, 4)), ((2, 3, 2), (2, 3, 2)))
for _op in [
    "SigmoidGrad",
    "TanhGrad",
    "ReluGrad",
    "Relu6Grad",
    "EluGrad",
    "SeluGrad",
    "SoftplusGrad",
    "SoftsignGrad",
    "RsqrtGrad",
    "SqrtGrad",
    "ReciprocalGrad",
    "InvGrad",
]:
    BUILDERS[_op] = _binary((0.2, 0.9), (0.1, 0.9), _SAME)


@builds("ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad")
def _signed_grads(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4)), m.array((3, 4), low=-0.9, high=7)])


@builds("LeakyRelu")
def _leaky(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4))], {"alpha": 0.3})


@builds("CheckNumerics", "CheckNumericsV2")
def _check(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4))], {"message": "bad"})


@builds("Cast")
def _cast(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 7), m["SrcT"], 0, 9)])
    if m["DstT"].kind != "u":
        yield Case([m.array((3, 7), m["SrcT"], -9, 9)])


# ---- reductions ------------------------------------------------------------------------------------------------------


@builds("Sum", "Mean", "Prod", "Max", "Min", "All", "Any", "EuclideanNorm")
def _reduce(m: Maker) -> Iterator[Case]:
    dtype = m.types.get("T", np.dtype(bool))
    for shape, axes, keep in (
        ((3, 4), [1], False),
        ((2, 3, 4), [0, -1], True),
        ((5,), [0], False),
        ((2, 3), [], False),
    ):
        yield Case([m.array(shape, dtype), m.index(axes, "Tidx")], {"keep_dims": keep})


@builds("ArgMax", "ArgMin")
def _arg(m: Maker) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case([m.array((4, 5, 3)), m.index(axis, "Tidx")])


@builds("AddN")
def _add_n(m: Maker) -> Iterator[Case]:
    yield Case([[m.array((3, 4)) for _ in range(3)]])


@builds("Cumsum", "Cumprod")
def _scan(m: Maker) -> Iterator[Case]:
    for axis, exclusive, reverse in ((0, False, False), (1, True, False), (-1, False, True), (1, True, True)):
        x = m.array((3, 4, 2), low=0.5, high=2)
        yield Case([x, m.index(axis, "Tidx")], {"exclusive": exclusive, "reverse": reverse})


@builds("TopKV2")
def _top_k(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 6), low=-20, high=20), m.index(4, "Tk")])


@builds("InTopKV2")
def _in_top_k(m: Maker) -> Iterator[Case]:
    yield Case([m.array((5, 6), np.float32), m.array((5,), m["T"], 0, 5), np.array(2, m["T"])])


@builds("Qr")
def _qr(m: Maker) -> Iterator[Case]:
    for shape, full in (((5, 3), False), ((4, 4), True), ((2, 3, 5), False)):
        x = m.array(shape)

        # The signs of the columns are free: compare the product and the triangle's absolute values.
        def custom(x: np.ndarray = x, full: bool = full) -> Any:
            import tensorflow as tf

            q, r = tf.raw_ops.Qr(input=x, full_matrices=full)
            return np.concatenate([np.ravel(q.numpy() @ r.numpy()), np.ravel(np.abs(r.numpy()))])

        yield Case([], custom=custom)


# ---- shapes ----------------------------------------------------------------------------------------------------------


@builds("Fill")
def _fill(m: Maker) -> Iterator[Case]:
    yield Case([m.index([2, 3], "index_type"), m.array(())])


@builds("SelectV2")
def _select(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4), bool), m.array((3, 4)), m.array((3, 4))])
    yield Case([m.array((3, 1), bool), m.array((4,)), m.array(())])


@builds("Select")
def _old_select(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4), bool), m.array((3, 4)), m.array((3, 4))])
    yield Case([m.array((3,), bool), m.array((3, 4)), m.array((3, 4))])


@builds("BroadcastTo")
def _broadcast(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 1)), m.index([2, 3, 4], "Tidx")])


@builds("Tile")
def _tile(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 3)), m.index([2, 2], "Tmultiples")])


@builds("Transpose")
def _transpose(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 3, 4)), m.index([2, 0, 1], "Tperm")])


@builds("ReverseV2")
def _reverse(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 3, 4)), m.index([0, -1], "Tidx")])


@builds("Roll")
def _roll(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 5)), m.index([1, -2], "Tshift"), m.index([0, 1], "Taxis")])


@builds("Pack")
def _pack(m: Maker) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case([[m.array((2, 3)) for _ in range(3)]], {"axis": axis})


@builds("Unpack")
def _unpack(m: Maker) -> Iterator[Case]:
    for axis in (0, -1):
        yield Case([m.array((3, 2, 3))], {"axis": axis, "num": 3})


@builds("ConcatV2")
def _concat(m: Maker) -> Iterator[Case]:
    for axis in (0, -1):
        sizes = [(n, 3) if axis == 0 else (3, n) for n in (2, 1, 4)]
        yield Case([[m.array(s) for s in sizes], m.index(axis, "Tidx")])


@builds("Concat")
def _old_concat(m: Maker) -> Iterator[Case]:
    yield Case([np.array(1, np.int32), [m.array((2, 3)), m.array((2, 1))]])


@builds("Split")
def _split(m: Maker) -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case([np.array(axis, np.int32), m.array((4, 6))], {"num_split": 2})


@builds("SplitV")
def _split_v(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 6)), m.index([1, -1, 3], "Tlen"), np.array(1, np.int32)], {"num_split": 3})


@builds("Pad")
def _pad(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 3)), m.index([[1, 0], [2, 1]], "Tpaddings")])


@builds("PadV2")
def _pad_v2(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 3)), m.index([[1, 0], [2, 1]], "Tpaddings"), m.array((), low=1)])


@builds("MirrorPad")
def _mirror(m: Maker) -> Iterator[Case]:
    for mode in ("REFLECT", "SYMMETRIC"):
        yield Case([m.array((3, 4)), m.index([[1, 2], [2, 1]], "Tpaddings")], {"mode": mode})


@builds("MirrorPadGrad")
def _mirror_grad(m: Maker) -> Iterator[Case]:
    for mode in ("REFLECT", "SYMMETRIC"):
        yield Case([m.array((6, 7)), m.index([[1, 2], [2, 1]], "Tpaddings")], {"mode": mode})


@builds("SpaceToBatchND")
def _to_batch(m: Maker) -> Iterator[Case]:
    yield Case(
        [m.array((2, 3, 4, 2)), m.index([2, 3], "Tblock_shape"), m.index([[1, 0], [0, 2]], "Tpaddings")]
    )


@builds("BatchToSpaceND")
def _from_batch(m: Maker) -> Iterator[Case]:
    yield Case([m.array((12, 2, 2, 2)), m.index([2, 3], "Tblock_shape"), m.index([[1, 0], [0, 2]], "Tcrops")])


@builds("SpaceToDepth", "DepthToSpace")
def _depth(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 4, 6, 8))], {"block_size": 2, "data_format": "NHWC"})


@builds("MatrixDiagPartV3")
def _diag_part(m: Maker) -> Iterator[Case]:
    for k, align in (
        ([0, 0], "RIGHT_LEFT"),
        ([-1, 1], "RIGHT_LEFT"),
        ([-2, 1], "LEFT_RIGHT"),
        ([0, 2], "LEFT_LEFT"),
    ):
        k = np.array(k, np.int32)
        yield Case([m.array((2, 3, 4)), k, m.array((), low=1)], {"align": align})


@builds("MatrixDiagV3")
def _diag(m: Maker) -> Iterator[Case]:
    none = np.array(-1, np.int32)
    yield Case(
        [m.array((2, 3)), np.array([0, 0], np.int32), none, none, m.array(())], {"align": "RIGHT_LEFT"}
    )
    yield Case(
        [m.array((2, 3, 4)), np.array([-1, 1], np.int32), none, none, m.array(())], {"align": "RIGHT_LEFT"}
    )


@builds("MatrixBandPart")
def _band(m: Maker) -> Iterator[Case]:
    for low, high in ((1, 0), (-1, 1), (0, -1)):
        yield Case([m.array((2, 4, 5)), m.index(low, "Tindex"), m.index(high, "Tindex")])


# ---- slices ----------------------------------------------------------------------------------------------------------


@builds("Slice")
def _slice(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 5)), m.index([1, 2], "Index"), m.index([2, -1], "Index")])


_SLICES: tuple[tuple[list[int], list[int], list[int], dict[str, int]], ...] = (
    ([1, 0], [3, 4], [1, 2], {}),
    ([3, -1], [0, -5], [-1, -2], {}),
    ([0, 1], [0, 0], [1, 1], {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}),
    ([0, 0, 1], [0, 0, 3], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
)


@builds("StridedSlice")
def _strided(m: Maker) -> Iterator[Case]:
    for begin, end, step, masks in _SLICES:
        yield Case([m.array((4, 5, 3)), *(m.index(v, "Index") for v in (begin, end, step))], masks)


@builds("StridedSliceGrad")
def _strided_grad(m: Maker) -> Iterator[Case]:
    whole = (4, 5, 3)
    for begin, end, step, masks in _SLICES:
        shape = _sliced(whole, begin, end, step, masks)
        bounds = [m.index(v, "Index") for v in (whole, begin, end, step)]
        yield Case([*bounds, m.array(shape)], masks)


def _sliced(
    whole: tuple[int, ...], begin: list[int], end: list[int], step: list[int], masks: dict[str, int]
) -> Any:
    key: list[Any] = []
    for i in range(len(begin)):
        on = {name: value >> i & 1 for name, value in masks.items()}
        if on.get("ellipsis_mask"):
            key.append(...)
        elif on.get("new_axis_mask"):
            key.append(None)
        elif on.get("shrink_axis_mask"):
            key.append(begin[i])
        else:
            first = None if on.get("begin_mask") else begin[i]
            key.append(slice(first, None if on.get("end_mask") else end[i], step[i]))
    return np.empty(whole)[tuple(key)].shape


# ---- gathers ---------------------------------------------------------------------------------------------------------


@builds("GatherV2")
def _gather(m: Maker) -> Iterator[Case]:
    for axis, batch in ((0, 0), (1, 0), (-1, 0), (1, 1)):
        x, indices = m.array((3, 4, 2), m["Tparams"]), m.array((3, 2), m["Tindices"], 0, 1)
        yield Case([x, indices, m.index(axis, "Taxis")], {"batch_dims": batch})


@builds("GatherNd")
def _gather_nd(m: Maker) -> Iterator[Case]:
    for depth in (1, 2):
        yield Case([m.array((3, 4, 2), m["Tparams"]), m.array((2, 5, depth), m["Tindices"], 0, 2)])


@builds("ScatterNd")
def _scatter_nd(m: Maker) -> Iterator[Case]:
    yield Case([m.array((5, 1), m["Tindices"], 0, 3), m.array((5, 2)), np.array([4, 2], m["Tindices"])])


@builds("TensorScatterAdd", "TensorScatterSub", "TensorScatterMax", "TensorScatterMin")
def _scatter(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 2)), m.array((5, 1), m["Tindices"], 0, 3), m.array((5, 2))])


@builds("TensorScatterUpdate")
def _scatter_once(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 2)), np.array([[2], [0]], m["Tindices"]), m.array((2, 2))])


@builds("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin")
def _segments(m: Maker) -> Iterator[Case]:
    yield Case([m.array((6, 2)), m.array((6,), m["Tindices"], -1, 2), m.index(4, "Tnumsegments")])


@builds("OneHot")
def _one_hot(m: Maker) -> Iterator[Case]:
    for axis in (-1, 0):
        yield Case(
            [m.array((3, 2), m["TI"], 0, 5), np.array(4, np.int32), m.array(()), m.array(())], {"axis": axis}
        )


@builds("Bucketize")
def _bucketize(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 5), low=-5, high=15)], {"boundaries": [-1.0, 3.0, 7.0]})


@builds("DenseBincount")
def _bincount(m: Maker) -> Iterator[Case]:
    for shape, weights, binary in (((8,), True, False), ((3, 6), False, False), ((3, 6), False, True)):
        w = m.array(shape) if weights else np.empty(0, m["T"])
        x = m.array(shape, m["Tidx"], 0, 6)
        yield Case([x, np.array(5, m["Tidx"]), w], {"binary_output": binary})


@builds("Where")
def _where(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 5), low=0, high=1).round().astype(m["T"])])
    yield Case([np.zeros((3,), m["T"])])


# ---- random numbers --------------------------------------------------------------------------------------------------


def _key(m: Maker) -> tuple[np.ndarray, np.ndarray]:
    return m.random.integers(0, 2**62, 1).astype(np.uint64), m.random.integers(0, 2**62, 2).astype(np.uint64)


@builds("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2")
def _stateless(m: Maker) -> Iterator[Case]:
    for shape in ([7], [3, 5], [1]):
        yield Case([m.index(shape, "Tshape"), *_key(m), np.array(1, np.int32)])


@builds("StatelessRandomUniformFullIntV2")
def _stateless_full(m: Maker) -> Iterator[Case]:
    yield Case([m.index([3, 5], "Tshape"), *_key(m), np.array(1, np.int32)])


@builds("StatelessRandomUniformIntV2")
def _stateless_int(m: Maker) -> Iterator[Case]:
    bounds = [np.array(v, m["dtype"]) for v in (3, 1000)]
    yield Case([m.index([3, 5], "Tshape"), *_key(m), np.array(1, np.int32), *bounds])


@builds("StatelessRandomGetKeyCounter")
def _key_counter(m: Maker) -> Iterator[Case]:
    yield Case([np.array([12345, -6], m["Tseed"])])


@builds("RandomUniform", "RandomStandardNormal", "TruncatedNormal")
def _stateful(m: Maker) -> Iterator[Case]:
    yield Case([m.index([3, 7], "T")], {"seed": 5, "seed2": 6})


@builds("RandomUniformInt")
def _stateful_int(m: Maker) -> Iterator[Case]:
    yield Case([m.index([3, 7], "T"), *(np.array(v, m["Tout"]) for v in (-4, 90))], {"seed": 5, "seed2": 6})


# ---- layers ----------------------------------------------------------------------------------------------------------


@builds("MatMul")
def _matmul(m: Maker) -> Iterator[Case]:
    for a, b in itertools.product((False, True), repeat=2):
        x, y = m.array((5, 3) if a else (3, 5)), m.array((4, 5) if b else (5, 4))
        yield Case([x, y], {"transpose_a": a, "transpose_b": b})


@builds("BatchMatMul", "BatchMatMulV2")
def _batch_matmul(m: Maker) -> Iterator[Case]:
    for a, b in itertools.product((False, True), repeat=2):
        x, y = m.array((2, 5, 3) if a else (2, 3, 5)), m.array((2, 4, 5) if b else (2, 5, 4))
        yield Case([x, y], {"adj_x": a, "adj_y": b})


@builds("Einsum")
def _einsum(m: Maker) -> Iterator[Case]:
    yield Case([[m.array((2, 3, 4)), m.array((2, 5, 4))]], {"equation": "bij,bkj->bik"})
    yield Case([[m.array((3, 4)), m.array((4, 2, 5))]], {"equation": "ab,bcd->acd"})
    yield Case([[m.array((3, 4))]], {"equation": "ab->ba"})


_ACTIVATIONS = ("", "Relu", "Relu6", "Elu", "Tanh", "Sigmoid", "LeakyRelu")


@builds("_FusedMatMul")
def _fused_matmul(m: Maker) -> Iterator[Case]:
    for activation in _ACTIVATIONS:
        x, y, b = m.array((3, 5)), m.array((5, 4)), m.array((4,))
        yield _fused("_FusedMatMul", [x, y], b, activation, {"transpose_a": False, "transpose_b": False})


@builds("_FusedConv2D")
def _fused_conv(m: Maker) -> Iterator[Case]:
    for activation in _ACTIVATIONS:
        x, f, b = m.array((2, 5, 5, 3)), m.array((3, 3, 3, 4)), m.array((4,))
        yield _fused("_FusedConv2D", [x, f], b, activation, {"strides": [1, 1, 1, 1], "padding": "SAME"})


def _fused(op: str, inputs: list[Any], bias: np.ndarray, activation: str, attributes: dict[str, Any]) -> Case:
    """What the remapper folds together, against the ops one by one: the CPU's own fusions take other types."""

    def custom() -> Any:
        import tensorflow as tf
        from tensorflow.python.eager import context, execute

        if "GPU" in tf.constant(0.0).device or "GPU" in context.context().device_name:
            dtype = tf.as_dtype(bias.dtype).as_datatype_enum
            full = {"T": dtype, "num_args": 1, "epsilon": 1e-4, "leakyrelu_alpha": 0.3} | attributes
            full |= {"fused_ops": ["BiasAdd", activation] if activation else ["BiasAdd"]}
            if op == "_FusedConv2D":
                full |= {"TArgs": [dtype], "num_host_args": 0}
            pairs = tuple(item for pair in full.items() for item in pair)
            tensors = [tf.constant(t) for t in (*inputs, bias)]
            return execute.execute(op.encode(), 1, tensors, pairs, context.context())[0].numpy()
        wide = [tf.constant(t.astype(np.float32)) for t in (*inputs, bias)]
        raw = tf.raw_ops
        if op == "_FusedMatMul":
            y = raw.MatMul(a=wide[0], b=wide[1], **attributes)
        else:
            y = raw.Conv2D(input=wide[0], filter=wide[1], **attributes)
        y = raw.BiasAdd(value=y, bias=wide[2])
        if activation == "LeakyRelu":
            y = raw.LeakyRelu(features=y, alpha=0.3)
        elif activation in ("Tanh", "Sigmoid"):
            y = getattr(raw, activation)(x=y)
        elif activation:
            y = getattr(raw, activation)(features=y)
        return y.numpy().astype(bias.dtype)

    return Case([], custom=custom)


def _layouts(
    space: int, inputs: list[tuple[np.ndarray, bool]], attributes: dict[str, Any], images_out: bool
) -> Iterator[Case]:
    """The same call with channels last, and with channels first: the layout optimiser makes GPUs use the latter.

    Inputs come with whether they are images (or, as integers, the shape of some).
    """
    last, first = ("NHWC", "NCHW") if space == 2 else ("NDHWC", "NCDHW")
    to_first = (0, space + 1, *range(1, space + 1))
    to_last = (0, *range(2, space + 2), 1)
    spatial = ("strides", "ksize", "dilations")
    plain = Case([x for x, _ in inputs], attributes | {"data_format": last})
    yield plain

    def turn(x: np.ndarray, image: bool) -> np.ndarray:
        if not image:
            return x
        return x[list(to_first)] if x.ndim == 1 else np.ascontiguousarray(x.transpose(to_first))

    turned = {k: [v[i] for i in to_first] if k in spatial else v for k, v in attributes.items()}
    if attributes.get("explicit_paddings"):
        pairs = np.array(attributes["explicit_paddings"]).reshape(-1, 2)[list(to_first)]
        turned["explicit_paddings"] = [int(v) for v in pairs.ravel()]
    case = Case([turn(x, image) for x, image in inputs], turned | {"data_format": first}, on_cpu=plain)
    if images_out:
        case.turned = lambda y: y.transpose(to_last)
    yield case


def _conv_shapes(space: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]:
    one = [1] * (space + 2)
    two = [1, *[2] * space, 1]
    image, kernel = (2, *(6, 7, 5)[:space], 3), (3, 2, 2)[:space]
    yield image, (*kernel, 3, 4), {"strides": one, "padding": "SAME", "dilations": one}
    yield image, (*kernel, 3, 4), {"strides": two, "padding": "SAME", "dilations": one}
    yield image, (*kernel, 3, 4), {"strides": two, "padding": "VALID", "dilations": one}
    if space == 2:
        yield image, (*kernel, 3, 4), {"strides": one, "padding": "VALID", "dilations": two}
        explicit = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0]}
        yield image, (*kernel, 3, 4), {"strides": one, "dilations": one} | explicit


def _conv_out(
    image: tuple[int, ...], kernel: tuple[int, ...], a: dict[str, Any], channels: int
) -> tuple[int, ...]:
    shape = [image[0]]
    pads = np.array(a.get("explicit_paddings") or [0] * (2 * len(image))).reshape(-1, 2).sum(1)
    for i in range(1, len(image) - 1):
        reach = (kernel[i - 1] - 1) * a.get("dilations", [1] * len(image))[i] + 1
        n = image[i] + pads[i]
        shape.append(
            int(
                -(-image[i] // a["strides"][i])
                if a["padding"] == "SAME"
                else (n - reach) // a["strides"][i] + 1
            )
        )
    return (*shape, channels)


def _conv(space: int, kind: str) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        for image, kernel, a in _conv_shapes(space):
            x, f = m.array(image), m.array(kernel)
            dy = m.array(_conv_out(image, kernel, a, kernel[-1]))
            shape = m.index(image, "Tshape")
            if kind == "forward":
                yield from _layouts(space, [(x, True), (f, False)], a, True)
            elif kind == "input":
                yield from _layouts(space, [(shape, True), (f, False), (dy, True)], a, True)
            else:
                sizes = np.array(kernel, np.int32)
                yield from _layouts(space, [(x, True), (sizes, False), (dy, True)], a, False)

    return build


BUILDERS["Conv2D"], BUILDERS["Conv3D"] = _conv(2, "forward"), _conv(3, "forward")
BUILDERS["Conv2DBackpropInput"], BUILDERS["Conv3DBackpropInputV2"] = _conv(2, "input"), _conv(3, "input")
BUILDERS["Conv2DBackpropFilter"], BUILDERS["Conv3DBackpropFilterV2"] = _conv(2, "filter"), _conv(3, "filter")


def _depthwise(kind: str) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        for image, kernel, a in _conv_shapes(2):
            if "explicit_paddings" in a or a["dilations"][1] > 1:
                continue  # not on the CPU
            kernel = (*kernel[:2], 3, 2)
            x, f, dy = m.array(image), m.array(kernel), m.array(_conv_out(image, kernel, a, 6))
            shape, sizes = np.array(image, np.int32), np.array(kernel, np.int32)
            if kind == "forward":
                yield from _layouts(2, [(x, True), (f, False)], a, True)
            elif kind == "input":
                yield from _layouts(2, [(shape, True), (f, False), (dy, True)], a, True)
            else:
                yield from _layouts(2, [(x, True), (sizes, False), (dy, True)], a, False)

    return build


BUILDERS["DepthwiseConv2dNative"] = _depthwise("forward")
BUILDERS["DepthwiseConv2dNativeBackpropInput"] = _depthwise("input")
BUILDERS["DepthwiseConv2dNativeBackpropFilter"] = _depthwise("filter")


def _pool(space: int, kind: str) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        image = (2, *(6, 7, 5)[:space], 3)
        for size, stride, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (2, 1, "SAME")):
            a: dict[str, Any] = {
                "ksize": [1, *[size] * space, 1],
                "strides": [1, *[stride] * space, 1],
                "padding": padding,
            }
            x = _without_ties(m, image)
            dy = m.array(_conv_out(image, (size,) * space, a, 3))
            if kind == "forward":
                yield from _layouts(space, [(x, True)], a, True)
            elif kind == "average":
                yield from _layouts(space, [(np.array(image, np.int32), True), (dy, True)], a, True)
            else:
                # The forward result is an input, but only its shape matters to any sane kernel.
                y = _max_pooled(x, size, stride, padding, space)
                yield from _layouts(space, [(x, True), (y, True), (dy, True)], a, True)

    return build


def _without_ties(m: Maker, shape: tuple[int, ...]) -> np.ndarray:
    """An image without equal values in any window of 3: which of two highest gets the gradient is nobody's promise."""
    places = np.indices(shape)[1:-1] % 3
    values = m.random.permutation(27)[sum(axis * 3**i for i, axis in enumerate(places))]
    return values.astype(m["T"])


def _max_pooled(x: np.ndarray, size: int, stride: int, padding: str, space: int) -> np.ndarray:
    import tensorflow as tf

    with tf.device("CPU:0"):
        pooled = tf.nn.max_pool(tf.cast(x, tf.float32), [size] * space, [stride] * space, padding)
    return pooled.numpy().astype(x.dtype)


BUILDERS["MaxPool"] = BUILDERS["AvgPool"] = _pool(2, "forward")
BUILDERS["MaxPool3D"] = BUILDERS["AvgPool3D"] = _pool(3, "forward")
BUILDERS["MaxPoolGrad"], BUILDERS["AvgPoolGrad"] = _pool(2, "max"), _pool(2, "average")
BUILDERS["MaxPool3DGrad"], BUILDERS["AvgPool3DGrad"] = _pool(3, "max"), _pool(3, "average")


@builds("BiasAdd")
def _bias(m: Maker) -> Iterator[Case]:
    yield from _layouts(2, [(m.array((2, 3, 4, 5)), True), (m.array((5,)), False)], {}, True)
    yield Case([m.array((4, 3)), m.array((3,))])


@builds("BiasAddV1")
def _old_bias(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 3)), m.array((3,))])


@builds("BiasAddGrad")
def _bias_grad(m: Maker) -> Iterator[Case]:
    yield from _layouts(2, [(m.array((2, 3, 4, 5)), True)], {}, False)
    yield Case([m.array((4, 3))])


@builds("Softmax", "LogSoftmax")
def _softmax(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 5))])


@builds("L2Loss")
def _l2(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 5))])


@builds("SoftmaxCrossEntropyWithLogits")
def _xent(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 3)), m.array((4, 3), low=0.1, high=0.5)])


@builds("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_xent(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 3)), m.array((4,), m["Tlabels"], 0, 2)])


@builds("FusedBatchNormV3")
def _batch_norm(m: Maker) -> Iterator[Case]:
    for training in (True, False):
        x, sums = m.array((3, 4, 5, 2)), [m.array((2,), m["U"], 0.5, 2) for _ in range(4)]
        a = {"is_training": training, "epsilon": 1e-3, "exponential_avg_factor": 1.0}
        # The reserved outputs are each device's own; compare what a model sees.
        yield Case([x, *sums], a | {"data_format": "NHWC", "_outputs": 3})


@builds("FusedBatchNormGradV3")
def _batch_norm_grad(m: Maker) -> Iterator[Case]:
    for training in (True, False):
        x, dy = m.array((3, 4, 5, 2)), m.array((3, 4, 5, 2))
        scale, mean, variance = (m.array((2,), m["U"], 0.5, 2) for _ in range(3))

        def custom(
            dy: Any = dy, x: Any = x, s: Any = (scale, mean, variance), training: bool = training
        ) -> Any:
            import tensorflow as tf

            # What the second reserved value means is each device's own affair: ask the forward kernel for it.
            zero = np.zeros(0 if training else 2, np.float32)
            moments = (zero, zero) if training else (s[1], s[2])
            fields = {"epsilon": 1e-3, "data_format": "NHWC", "is_training": training}
            forward = tf.raw_ops.FusedBatchNormV3(
                x=x, scale=s[0], offset=s[1], mean=moments[0], variance=moments[1], **fields
            )
            reserved = {f"reserve_space_{i + 1}": forward[3 + i] for i in range(3)}
            if not training:
                reserved |= {"reserve_space_1": s[1], "reserve_space_2": s[2]}
            grads = tf.raw_ops.FusedBatchNormGradV3(y_backprop=dy, x=x, scale=s[0], **reserved, **fields)
            return np.concatenate([np.ravel(g.numpy()).astype(np.float32) for g in grads[:3]]).astype(x.dtype)

        yield Case([], custom=custom)


# ---- images ----------------------------------------------------------------------------------------------------------

_SCALES = (
    {"align_corners": False, "half_pixel_centers": False},
    {"align_corners": True, "half_pixel_centers": False},
    {"align_corners": False, "half_pixel_centers": True},
)


@builds("ResizeBilinear", "ResizeNearestNeighbor")
def _resize(m: Maker) -> Iterator[Case]:
    for scale, size in itertools.product(_SCALES, ([7, 3], [2, 10])):
        yield Case([m.array((2, 4, 5, 3), low=0, high=99), np.array(size, np.int32)], dict(scale))


@builds("ResizeBilinearGrad")
def _resize_grad(m: Maker) -> Iterator[Case]:
    for scale, size in itertools.product(_SCALES, ([7, 3], [2, 10])):
        yield Case([m.array((2, *size, 3), np.float32), m.array((2, 4, 5, 3))], dict(scale))


@builds("ResizeNearestNeighborGrad")
def _nearest_grad(m: Maker) -> Iterator[Case]:
    for scale in _SCALES:
        yield Case([m.array((2, 8, 9, 3)), np.array([4, 5], np.int32)], dict(scale))


@builds("ImageProjectiveTransformV3")
def _projective(m: Maker) -> Iterator[Case]:
    turn = np.array([[0.9, -0.3, 1.2, 0.2, 1.1, -0.7, 0.01, 0.02]], np.float32)
    for interpolation, mode in itertools.product(
        ("NEAREST", "BILINEAR"), ("REFLECT", "WRAP", "CONSTANT", "NEAREST")
    ):
        x = m.array((2, 6, 5, 2), m["dtype"], 0, 20)
        inputs = [x, turn, np.array([5, 6], np.int32), np.array(2, np.float32)]
        yield Case(inputs, {"interpolation": interpolation, "fill_mode": mode})


@builds("AdjustContrastv2")
def _contrast(m: Maker) -> Iterator[Case]:
    yield Case([m.array((2, 4, 5, 3)), np.array(1.7, np.float32)])


@builds("RGBToHSV", "HSVToRGB")
def _colours(m: Maker) -> Iterator[Case]:
    yield Case([m.array((4, 5, 3), low=0.01, high=0.99)])


# ---- variables -------------------------------------------------------------------------------------------------------


@builds("AssignAddVariableOp", "AssignSubVariableOp")
def _assign(m: Maker) -> Iterator[Case]:
    start, change = m.array((3, 4), m["dtype"], 5, 9), m.array((3, 4), m["dtype"], 1, 4)
    name = "assign_add" if m.types.get("_op") == "AssignAddVariableOp" else "assign_sub"

    def custom() -> Any:
        import tensorflow as tf

        variable = tf.Variable(start)
        held = variable.read_value()  # so that the update must not happen in place
        getattr(variable, name)(tf.constant(change))
        return np.stack([variable.numpy(), held.numpy()])

    yield Case([], custom=custom)


@builds("Bitcast")
def _bitcast(m: Maker) -> Iterator[Case]:
    yield Case([m.array((3, 4), np.float32)], {"type": np.int32})
    yield Case([m.array((3, 2), np.int32)], {"type": np.int64})


# ---- lists -----------------------------------------------------------------------------------------------------------


def _lists(m: Maker) -> Iterator[Case]:
    """Lists of tensors: sums, sums with elements that were never written, zeros."""
    for dtype in ("float32", "float64", "float16", "int64", "int32"):
        a, b = m.array((3, 2), dtype), m.array((3, 2), dtype)
        zeros = m.types.get("_op") == "ZerosLike"

        def custom(a: np.ndarray = a, b: np.ndarray = b, zeros: bool = zeros) -> Any:
            import tensorflow as tf

            shape = tf.constant([2], tf.int32)
            lists = [tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=shape) for x in (a, b)]
            result = tf.raw_ops.ZerosLike(x=lists[0]) if zeros else tf.raw_ops.AddN(inputs=lists)
            stacked = tf.raw_ops.TensorListStack(
                input_handle=result, element_shape=shape, element_dtype=a.dtype
            )
            return stacked.numpy()

        yield Case([], custom=custom)


def _or_lists(plain: Builder) -> Builder:
    def build(m: Maker) -> Iterator[Case]:
        return _lists(m) if m.types["T"] == np.dtype(object) else plain(m)

    return build


for _op in ("AddN", "ZerosLike"):
    BUILDERS[_op] = _or_lists(BUILDERS[_op])


@builds("TensorListFromTensor", "TensorListGetItem", "TensorListPopBack")
def _masks(m: Maker) -> Iterator[Case]:
    op, masks = m.types["_op"], m.array((3, 2), m["element_dtype"])

    def custom() -> Any:
        import tensorflow as tf

        raw, shape, dtype = tf.raw_ops, tf.constant([2], tf.int32), masks.dtype
        whole = raw.TensorListFromTensor(tensor=masks, element_shape=shape)
        if op == "TensorListGetItem":
            fields = {"index": tf.constant(1), "element_shape": shape, "element_dtype": dtype}
            return raw.TensorListGetItem(input_handle=whole, **fields).numpy()
        rest, last = raw.TensorListPopBack(input_handle=whole, element_shape=shape, element_dtype=dtype)
        if op == "TensorListPopBack":
            return last.numpy()
        del rest
        places = [tf.constant(i) for i in range(3)]
        fields = {"element_shape": shape, "element_dtype": dtype}
        return np.stack(
            [raw.TensorListGetItem(input_handle=whole, index=i, **fields).numpy() for i in places]
        )

    yield Case([], custom=custom)


# ---- the comparison --------------------------------------------------------------------------------------------------

#: Relative to the largest value, by the type of the result. Short floats: the CPU rounds between steps.
_TOLERANCE = {"float64": 1e-6, "float32": 2e-5, "float16": 2e-2, "bfloat16": 8e-2}
_WIDER = {"float16": np.float32, "bfloat16": np.float32}


def compare(kernels: list[tuple[str, dict[str, int]]]) -> dict[str, dict[str, Any]]:
    """Run every kernel's cases on both devices: by op, the number of cases and kernels and what differed."""
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    report: dict[str, dict[str, Any]] = collections.defaultdict(
        lambda: {"kernels": 0, "cases": 0, "failures": []}
    )
    for number, (op, types) in enumerate(kernels):
        entry = report[op]
        entry["kernels"] += 1
        if op not in BUILDERS:
            entry["failures"].append("no builder")
            continue
        dtypes: dict[str, Any] = {a: _numpy_type(tf.as_dtype(t)) for a, t in types.items()}
        label = ",".join(f"{a}={d.name}" for a, d in dtypes.items())
        maker = Maker(dtypes | {"_op": op}, number)
        for case in BUILDERS[op](maker):
            entry["cases"] += 1
            problem = _difference(op, case, dtypes)
            if problem:
                entry["failures"].append(f"{label}: {problem}")
    return dict(report)


def _numpy_type(dtype: Any) -> np.dtype[Any]:
    return np.dtype(object if dtype.name == "variant" else dtype.as_numpy_dtype)


def _difference(op: str, case: Case, types: dict[str, Any]) -> str | None:
    import tensorflow as tf

    shapes = [getattr(x, "shape", "list") for x in case.inputs]
    try:
        with tf.device("GPU:0"):
            got = _call(op, case, types)
    except (tf.errors.OpError, TypeError, ValueError, RuntimeError) as error:
        return f"{shapes} {case.attributes}: on the GPU {type(error).__name__}: {str(error)[:300]}"
    expected = _on_cpu(op, case.on_cpu or case, types)
    if isinstance(expected, str):
        return expected
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        if case.turned:
            a = case.turned(a)
        if a.shape != b.shape:
            return f"{shapes} {case.attributes}: output {i} has shape {a.shape}, not {b.shape}"
        tolerance = _TOLERANCE.get(a.dtype.name, 0)
        x, y = a.astype(np.float64), b.astype(np.float64)
        scale = max(1.0, float(np.max(np.abs(y[np.isfinite(y)]), initial=0)))
        if not np.allclose(x, y, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"{shapes} {case.attributes}: output {i} differs: {x.ravel()[:6]} not {y.ravel()[:6]}"
    return None


def _on_cpu(op: str, case: Case, types: dict[str, Any]) -> list[np.ndarray] | str:
    """The CPU's result; where it has no kernel for the type, that of a wider one."""
    import tensorflow as tf

    try:
        with tf.device("CPU:0"):
            return _call(op, case, types)
    except (tf.errors.OpError, TypeError) as error:
        first = str(error)[:300]
    for wider in (np.float32, np.int64, np.int32, np.float64):
        narrow = {a: t for a, t in types.items() if a in ("T", "dtype", "Tparams", "U")}
        stands_for = {t.name for t in narrow.values()}
        if any((np.dtype(t).kind in "iub") != (np.dtype(wider).kind in "iu") for t in narrow.values()):
            continue

        def widen(x: Any, wider: Any = wider, names: set[str] = stands_for) -> Any:
            if isinstance(x, list):
                return [widen(v) for v in x]
            return x.astype(wider) if x.dtype.name in names else x

        try:
            with tf.device("CPU:0"):
                results = _call(op, dataclasses.replace(case, inputs=[widen(x) for x in case.inputs]), {})
        except (tf.errors.OpError, TypeError):
            continue
        return results
    return f"the CPU cannot: {first}"


def _call(op: str, case: Case, types: dict[str, Any]) -> list[np.ndarray]:
    import tensorflow as tf

    if case.custom:
        return [np.asarray(case.custom())]
    names, asked = _signature(op)
    arguments: dict[str, Any] = {name: _tensors(tf, x) for name, x in zip(names, case.inputs, strict=True)}
    arguments |= {k: v for k, v in case.attributes.items() if not k.startswith("_")}
    arguments |= {a: types[a] for a in asked if a in types}
    result = getattr(tf.raw_ops, op)(**arguments)
    results = list(result) if isinstance(result, (list, tuple)) else [result]
    return [r.numpy() for r in results[: case.attributes.get("_outputs")]]


@functools.cache
def _signature(op: str) -> tuple[list[str], list[str]]:
    """The names under which the Python function takes the inputs, and the types that they do not determine."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(op)
    inferred = {argument.type_attr for argument in definition.input_arg}
    attributes = [attribute.name for attribute in definition.attr]
    names = inspect.signature(getattr(tf.raw_ops, op)).parameters
    return [n for n in names if n not in attributes and n != "name"], [
        a for a in attributes if a not in inferred
    ]


def _tensors(tf: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [tf.constant(v) for v in value]
    return tf.constant(value)
