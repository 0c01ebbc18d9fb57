"""What events are, by their names: TensorFlow, XLA, CUPTI and ROCm have words of their own.

Where they were seen: TensorFlow 1.x timelines; traces of TensorFlow 2.3 to 2.21 and of JAX with CUDA and
ROCm. Names that are gone or new make events of no special kind: they are counted, and what they would have
told is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from tfdiag.timeline.columns import Column, Work

__all__ = [
    "CALL",
    "COMPILING",
    "DISPATCH",
    "GETS_NEXT",
    "LAUNCH_CALL",
    "PROCESSING",
    "PYTHON",
    "RUN",
    "is_derived",
    "layer_of",
    "matching",
    "stem_of",
    "work_of",
]  # fmt: skip

GETS_NEXT = re.compile(
    r"IteratorGetNext(AsOptional|Sync)?Op::DoCompute$|MultiDeviceIteratorGetNextFromShardOp::DoCompute$"
)
"""The step asks for its batch. `IteratorGetNext/_N:_Send` is none: that is the batch's copy to the device."""
TF1_GETS_NEXT = re.compile(r"(IteratorGetNext|QueueDequeue)\w*$")
ITERATOR = re.compile(r"Iterator::(Model|Root)(::|$)")
RUN = re.compile(r"FunctionRun$")
"""A function runs, from the call to its end."""
CALL = re.compile(r"Eager(Local)?Execute: (__\S+)$")
"""The same from outside, with the function's name; ops have no underscores before theirs."""
PROCESSING = re.compile(r"ExecutorState::Process$")
PYTHON = re.compile(r"\$\S+:\d+ |\$builtins")
"""Python functions, as the profiler's Python tracer names them."""
DISPATCH = re.compile(
    r"FunctionRun$|Eager(Local|Kernel)?Execute\b|KernelAndDevice\w*::|TFE_Py_\w+|PjitFunction\(|PjRt\w*::|"
    r"PJRT_LoadedExecutable_Execute|GpuExecutable::|XlaLaunch|XlaCompile|tfdiag step$|SessionRun|ExecuteSync"
)
"""The host is at work for the device, or waits for it, inside a step."""
LAUNCH_CALL = re.compile(
    r"cu(da)?(LaunchKernel|GraphLaunch|LaunchCooperative)|hip\w*Launch\w*Kernel|hipGraphLaunch"
)
COMPILING = re.compile(
    r"XlaCompile\w*|\w*::Compile(AndLoad)?$|backend_compile|XlaCompilationCache|RunBackend$"
)

_COLLECTIVE = re.compile(
    r"nccl|rccl|all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|all[-_]?to[-_]?all", re.IGNORECASE
)
_H2D = re.compile(
    r"(mem)?cpy_?(async)?_?h(to|2)d|copyhosttodevice|mem_?copy_?h(to|2)d|\bh2d\b", re.IGNORECASE
)
_D2H = re.compile(
    r"(mem)?cpy_?(async)?_?d(to|2)h|copydevicetohost|mem_?copy_?d(to|2)h|\bd2h\b", re.IGNORECASE
)
_D2D = re.compile(r"(mem)?cpy_?(async)?_?d(to|2)d|copydevicetodevice|memcpyother|copyother", re.IGNORECASE)
_PEER = re.compile(r"(mem)?cpy_?(async)?_?p(to|2)p", re.IGNORECASE)
_MEMSET = re.compile(r"^\[?cu\w*memset|^memset|fillbuffer|^hipmemset", re.IGNORECASE)
_DERIVED = re.compile(
    r"^(Steps|Step|XLA Modules|XLA Ops|Async XLA Ops|XLA TraceMe|TensorFlow Name Scope|TensorFlow Ops|"
    r"Framework Name Scope|Framework Ops|Source code|Source|Launch Stats|SparseCore.*)$"
)
_WRAPPER = re.compile(
    r"^(StatefulPartitionedCall|PartitionedCall|gradient_tape|gradients|Grad|grad|jit\(.*\)|pjit\(.*\)|"
    r"transpose\(.*\)|jvp\(.*\)|vmap\(.*\)|while|body|cond|branch_\d+_fun|cluster_.*|replica_\d+|"
    r"one_step_on_iterator|one_step_on_data|train_step|_\w*SendRecv|Adam|SGD|RMSprop)(_\d+)?$"
)


_INLINED = re.compile(r"(?:body|cond|then|else|branch\w*)/_\d+/")
"""Behind this stands an op of a function that was inlined, by its whole name."""
_OP_SCOPE = re.compile(r"[A-Z]\w*?(_grad)?(_\d+)?$")


def is_derived(line: str) -> bool:
    """Say whether a line repeats others: the profiler's own summary of them."""
    return bool(_DERIVED.match(line))


def matching(names: list[str], pattern: re.Pattern[str] | Callable[[str], object]) -> Column:
    """Give the indices of the names that a pattern matches from their beginning."""
    test = pattern.match if isinstance(pattern, re.Pattern) else pattern
    return np.array([index for index, name in enumerate(names) if test(name)], np.int64)


def work_of(name: str) -> int:
    """Say what a device does, by the event's name."""
    if _H2D.search(name):
        return Work.H2D
    if _D2H.search(name):
        return Work.D2H
    if _PEER.search(name):
        return Work.PEER
    if _D2D.search(name):
        return Work.D2D
    if _MEMSET.search(name):
        return Work.MEMSET
    if _COLLECTIVE.search(name):
        return Work.COLLECTIVE
    return Work.KERNEL


def layer_of(op: str) -> str:
    """Give the layer that an op belongs to: `sequential/dense` of `gradient_tape/sequential/dense/MatMul`."""
    path = _INLINED.split(op.split(":", 1)[0].split(";", 1)[0])[-1]
    # `jit(f)/a/b` splits at the slashes outside of parentheses.
    parts = [part for part in re.split(r"/(?![^(]*\))", path) if part and not _WRAPPER.match(part)]
    parts = parts[:-1]
    while len(parts) > 1 and _OP_SCOPE.match(parts[-1]):  # the op of a layer that this is the gradient of
        parts.pop()
    return "/".join(parts[:3])


def stem_of(function: str) -> str:
    """Give a function's name without the number of its tracing."""
    return re.sub(r"_\d+$", "", function)
