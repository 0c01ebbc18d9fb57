"""What runs in the process of a scenario: one function, with the simulated GPU at hand.

Not imported by tests: `harness.py` starts it as a program. It must not import TensorFlow by itself, since scenarios
about NVML do without.
"""

from __future__ import annotations

import ast
import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


class _Counters(ctypes.Structure):
    """The layout of `Counters` in truth.h."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in [
            "kernels",
            "h2d",
            "d2h",
            "d2d",
            "memsets",
            "h2d_bytes",
            "d2h_bytes",
            "d2d_bytes",
            "kernel_ns",
            "copy_ns",
            "overruns",
            "pageable_h2d",
        ]
    )


class Probe:
    """The simulated GPU as a scenario sees it: the first argument of its function."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None

    @property
    def library(self) -> ctypes.CDLL:
        """The plug-in that TensorFlow has loaded."""
        if self._library is None:
            import tensorflow  # noqa: F401  loads what the plug-in links against

            self._library = ctypes.CDLL(os.environ["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"])
        return self._library

    def mark(self, name: str) -> None:
        """Write a named moment into the log."""
        self.library.simgpu_mark(name.encode())

    def counters(self, *, reset: bool = False) -> dict[str, int]:
        """Sums over everything that the GPUs did, since the start or the last reset."""
        counters = _Counters()
        self.library.simgpu_counters(ctypes.byref(counters), int(reset))
        return {name: getattr(counters, name) for name, _ in counters._fields_}

    def _text(self, function: str) -> str:
        size = getattr(self.library, function)(None, 0)
        buffer = ctypes.create_string_buffer(size + 1)
        getattr(self.library, function)(buffer, size + 1)
        return buffer.value.decode()

    def by_op(self) -> dict[str, tuple[int, int]]:
        """Number and nanoseconds of the kernels and copies, by name."""
        lines = (line.rsplit(" ", 2) for line in self._text("simgpu_by_op").splitlines())
        return {name: (int(n), int(ns)) for name, n, ns in lines}

    def kernels(self) -> list[tuple[str, dict[str, int]]]:
        """Every registered kernel: the op and the types it is for."""
        found = []
        for line in self._text("simgpu_kernels").splitlines():
            op, *types = line.split(" ")
            pairs = (t.split("=") for t in types)
            found.append((op, {attribute: int(number) for attribute, number in pairs}))
        return found

    def flush(self) -> None:
        """Write out the log."""
        self.library.simgpu_flush()


def _plain(value: Any) -> Any:
    """Numbers and arrays as JSON knows them."""
    for convert in ("numpy", "tolist"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    raise TypeError(f"a scenario returned a {type(value).__name__}, which JSON does not know")


def main(request: Path, response: Path) -> None:
    """Run the function that the request describes and write its result, or how it failed, to the response."""
    asked = json.loads(request.read_text())
    sys.path[:1] = asked["paths"]  # not the folder of this file, whose modules would hide others
    try:
        tree = ast.parse(asked["source"], asked["file"])
        ast.increment_lineno(tree, asked["line"] - 1)  # so that tracebacks and debuggers find the test
        names: dict[str, Any] = {"__name__": "__scenario__", "__file__": asked["file"]}
        exec(compile(tree, asked["file"], "exec"), names)
        probe = Probe()
        result = names[asked["name"]](probe, *asked["arguments"])
        answer = json.dumps({"result": result}, default=_plain)
        if probe._library is not None:
            probe.flush()
    except BaseException:
        answer = json.dumps({"error": traceback.format_exc()})
    response.write_text(answer)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
