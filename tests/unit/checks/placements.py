"""Placements of known make-up, for the checks that look at them."""

from __future__ import annotations

from typing import Any

from tests.synthetic import MS
from tfdiag.model.placement import Copy, CopyTime, DeviceOps, OpTime, PlacedOp, Placement, Variables
from tfdiag.model.quantity import Missing, Quantity

__all__ = [
    "GPU_STEP", "copy", "copying", "host_op", "mixed", "on_cpu", "python_op", "text_op", "timed", "variables",
]  # fmt: skip

GPU_STEP: dict[str, Any] = {"accelerator": True, "compute": 99 * MS, "dispatch": 1 * MS}
"""A step of 100 ms beside a GPU."""


def on_cpu(*ops: PlacedOp, **fields: Any) -> Placement:
    """Give a step on a machine without an accelerator."""
    return Placement((DeviceOps("/CPU:0", 100, {"MatMul": 6}),), ops=ops, **fields)


def mixed(*ops: PlacedOp, cpu: int = 2, gpu: int = 100, **fields: Any) -> Placement:
    """Give a step on a GPU and the CPU."""
    devices = (DeviceOps("/CPU:0", cpu, {"Cast": cpu}), DeviceOps("/GPU:0", gpu, {"MatMul": gpu}))
    return Placement(tuple(each for each in devices if each.ops), ops=ops, **fields)


def python_op(**fields: Any) -> PlacedOp:
    """Give a Python function in a layer."""
    known = {
        "layer": "scale",
        "part": "forward",
        "reason": "python",
        "function": "halve",
        "where": "net.py:7",
    }
    return PlacedOp(
        **{
            "name": "net/scale/EagerPyFunc",
            "op": "EagerPyFunc",
            "kind": "python",
            "device": "/CPU:0",
            **known,
            **fields,
        }
    )


def text_op(**fields: Any) -> PlacedOp:
    """Give a table that words are looked up in."""
    known = {"layer": "words", "part": "forward", "reason": "text", "dtype": "string"}
    return PlacedOp(
        "net/words/LookupTableFindV2", "LookupTableFindV2", "text", "/CPU:0", **{**known, **fields}
    )


def host_op(**fields: Any) -> PlacedOp:
    """Give an op that somebody pinned to the CPU."""
    known = {"layer": "dense_1", "part": "forward", "reason": "pinned", "dtype": "float32"}
    return PlacedOp(
        **{
            "name": "net/dense_1/Cumsum",
            "op": "Cumsum",
            "kind": "host",
            "device": "/CPU:0",
            **known,
            **fields,
        }
    )


def copy(direction: Any = "device to host", size: float | None = 4e6, **fields: Any) -> Copy:
    """Give a tensor that crosses devices."""
    source, target = ("/GPU:0", "/CPU:0") if direction == "device to host" else ("/CPU:0", "/GPU:0")
    known = {
        "tensor": "net/dense_1/Relu:0", "op": "Relu", "reader": "net/dense_1/Cumsum", "source": source,
        "target": target, "direction": direction, "dtype": "float32", "shape": "(1000, 1000)",
        "bytes": Missing("the graph does not know the shape") if size is None else Quantity(size, "B"),
        "purpose": "inside", "layer": "dense_1",
    }  # fmt: skip
    return Copy(**{**known, **fields})


def timed(kind: Any, alone: float, busy: float | None = None) -> dict[str, Any]:
    """Give the times of one kind of ops, in seconds a call."""
    return {"times": (OpTime(kind, alone if busy is None else busy, alone),)}


def copying(*times: tuple[Any, float]) -> dict[str, Any]:
    """Give the times of copies by direction, in seconds a call."""
    return {"copy_times": tuple(CopyTime(direction, 1.0, seconds) for direction, seconds in times)}


def variables(*homes: tuple[str, int]) -> tuple[Variables, ...]:
    """Give the bytes of variables by device."""
    return tuple(Variables(device, 4, size, "net/dense/kernel:0") for device, size in homes)
