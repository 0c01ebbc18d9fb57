"""The door to the tracing of `tf.function`s: when one is traced, how long it takes, what is different.

Names that are replaced while somebody watches, and what happens where they are gone (`missing` says so):

- `tensorflow.python.eager.polymorphic_function.tracing_compilation._create_concrete_function` (2.14 to 2.21):
  each trace of each function passes through it, and nothing else does, so that it costs a step nothing.
- `FunctionType.parameters`, `.type_constraint` and the trace types below it (2.14 to 2.21): without them a
  trace is not told of.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdiag.compat.tensorflow import in_function

__all__ = ["TraceWatch", "Traced", "difference"]

_MODULE = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
_NAME = "_create_concrete_function"
_LONGEST = 60
"""Characters of a value that is shown."""

Signature = tuple[tuple[str, str, str], ...]
"""Of each argument, as far into it as it goes: its name, its kind, and what it is."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace that has just been made."""

    function: str
    where: str
    seconds: float
    signature: Signature
    earlier: tuple[Signature, ...]
    """Of the traces of the same Python function before."""
    anew: bool
    """The `tf.function` around it is another one than before."""


class TraceWatch:
    """Tells of each trace that the watched thread makes."""

    def __init__(self, clock: Callable[[], float], on_trace: Callable[[Traced], None]) -> None:
        self._clock = clock
        self._on_trace = on_trace
        self._thread = 0
        self._module: Any = None
        self._pair: tuple[Any, Any] | None = None
        self._seen: dict[str, list[Signature]] = {}
        self._caches: dict[str, Any] = {}
        self.missing = ""

    def start(self) -> None:
        """Watch this thread."""
        self.stop()
        try:
            self._module = importlib.import_module(_MODULE)
            original = getattr(self._module, _NAME)
        except (ImportError, AttributeError):
            self.missing = "this TensorFlow traces functions in another place"
            return
        self._thread = threading.get_ident()

        def traced(function_type: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread or in_function():
                return original(function_type, *args, **kwargs)
            begin = self._clock()
            result = original(function_type, *args, **kwargs)
            took = self._clock() - begin
            # Whatever it can't make of it, the caller's function has to run.
            with contextlib.suppress(Exception):
                self._note(function_type, args[-1] if args else kwargs.get("tracing_options"), took)
            return result

        self._pair = (original, traced)
        setattr(self._module, _NAME, traced)

    def stop(self) -> None:
        """Watch no more; harmless when nothing is on."""
        self._thread = 0
        pair, self._pair = self._pair, None
        if pair is not None and getattr(self._module, _NAME, None) is pair[1]:
            setattr(self._module, _NAME, pair[0])
        self._caches.clear()

    def _note(self, function_type: Any, options: Any, took: float) -> None:
        name, where = _place(options)
        key = f"{name} {where}"
        signature = tuple(_arguments(function_type))
        cache = getattr(options, "function_cache", None)
        seen = self._seen.setdefault(key, [])
        anew = bool(seen) and self._caches.get(key) is not cache
        self._caches[key] = cache
        told = Traced(name, where, took, signature, tuple(seen[-_KEPT:]), anew)
        seen.append(signature)
        self._on_trace(told)


_KEPT = 20
"""Earlier traces of a function that a new one is compared with."""


def _place(options: Any) -> tuple[str, str]:
    """Give a function's name, and where it is written."""
    function: Any = getattr(options, "python_function", None)
    for _ in range(10):
        # TensorFlow wraps the caller's function, more than once.
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    while hasattr(function, "func"):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = str(getattr(function, "__name__", "") or getattr(options, "name", "") or "a function")
    if code is None:
        return name, ""
    return name, f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def _arguments(function_type: Any) -> Iterator[tuple[str, str, str]]:
    for name, parameter in function_type.parameters.items():
        yield from _parts(name, parameter.type_constraint)


def _parts(path: str, kind: Any) -> Iterator[tuple[str, str, str]]:
    """Go into a trace type as far as it has parts."""
    what = type(kind).__name__
    if what in ("Tuple", "List"):
        inner = kind.components if hasattr(kind, "components") else kind.components_tuple.components
        for index, part in enumerate(inner):
            yield from _parts(f"{path}[{index}]", part)
    elif what == "Dict":
        for key, part in kind.mapping.items():
            yield from _parts(f"{path}[{key!r}]", part)
    elif what == "Literal":
        yield path, "value", _short(repr(kind.value))
    elif what == "Weakref":
        yield path, "object", type(kind._ref()).__name__
    elif hasattr(kind, "shape") and hasattr(kind, "dtype"):
        yield path, "tensor", f"{getattr(kind.dtype, 'name', kind.dtype)} {kind.shape}"
    else:
        yield path, what, _short(repr(kind))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def difference(traced: Traced) -> tuple[str, str, str, str]:
    """Say what was different from the trace before that was most alike: cause, argument, before, after."""
    if not traced.earlier:
        return "first", "", "", ""
    alike = [sum(a == b for a, b in zip(each, traced.signature, strict=False)) for each in traced.earlier]
    # Of those that are equally alike, the latest one.
    best = max(range(len(alike)), key=lambda index: (alike[index], index))
    before = traced.earlier[best]
    if before == traced.signature:
        return ("made anew" if traced.anew else "unknown"), "", "", ""
    if [part[0] for part in before] != [part[0] for part in traced.signature]:
        return "structure", "", f"{len(before)} parts", f"{len(traced.signature)} parts"
    for (name, kind, text), (_, now, after) in zip(before, traced.signature, strict=True):
        if (kind, text) == (now, after):
            continue
        if kind != now:
            return "type", name, f"{kind} {text}", f"{now} {after}"
        if kind == "tensor":
            same_type = text.split(" ", 1)[0] == after.split(" ", 1)[0]
            return ("shape" if same_type else "type"), name, text, after
        return (kind if kind in ("value", "object") else "type"), name, text, after
    return "unknown", "", "", ""
