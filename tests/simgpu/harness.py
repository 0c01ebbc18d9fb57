"""Run a function on a simulated machine, in a process of its own.

TensorFlow reads the plug-in's path at import, keeps the devices it finds for good, and aborts when a second plug-in is
loaded: one scenario is one process.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .build import Built
from .truth import Truth

#: What a scenario can import: the library under test, and this folder as `simgpu`.
PATHS = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
CHILD = Path(__file__).parent / "child.py"

#: Every knob of config.h, without the prefix SIMGPU_; `growth` makes TensorFlow's allocator grow as needed, and `state`
#: is the memory that processes share (of the run's own unless given).
KNOBS = frozenset(
    [
        "count",
        "mem_mb",
        "h2d_gbps",
        "d2h_gbps",
        "d2d_gbps",
        "pageable_gbps",
        "stage_gbps",
        "copy_us",
        "launch_us",
        "kernel_us",
        "gflops",
        "tensor_cores",
        "mem_gbps",
        "compute",
        "wait",
        "guard",
        "growth",
        "name",
        "state",
    ]
)

#: Machines to start from. Times are long against what two busy cores add: compare ratios, never absolute times.
PRESETS: Mapping[str, Mapping[str, float]] = {
    "default": {},
    # A copy costs more than the kernels that use it.
    "slow bus": {"h2d_gbps": 0.4, "d2h_gbps": 0.4, "pageable_gbps": 0.2, "stage_gbps": 2},
    # A busy host or a driver of its own mind: launching takes longer than computing.
    "slow launch": {"launch_us": 60, "kernel_us": 3},
    # Everything takes long on it; and there is little memory.
    "small GPU": {"gflops": 20, "mem_gbps": 4, "mem_mb": 512, "kernel_us": 10},
    "two GPUs": {"count": 2, "mem_mb": 2048},
    # Only times, for models too large to compute on the host.
    "times only": {"compute": 0},
}

#: What can be wrong with NVML. None: there is no library at all.
FAULTS: Mapping[str, Mapping[str, object] | None] = {
    "library missing": None,
    "driver not loaded": {"init": 9},
    "driver and library differ": {"init": 18},
    "no permission": {"init": 4},
    "no permission for processes": {"fail": "nvmlDeviceGet*Process*=4"},
    "lost from the start": {"lost_after_calls": 0},
    "fields unsupported": {"fail": "nvmlDeviceGetPower*=3,nvmlDeviceGetTemperature*=3,nvmlDeviceGetPcie*=3"},
    "old driver": {"fail": "nvmlDeviceGet*EventReasons=13,nvmlDeviceGetMemoryInfo_v2=13,nvmlGpm*=13"},
    "MIG": {"mig": 2},
}


class ScenarioError(AssertionError):
    """A scenario's function raised, or its process died."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of a scenario."""

    result: Any  # what the function returned
    truth: Truth  # what the GPUs did
    seconds: float
    stdout: str
    stderr: str


@dataclasses.dataclass(frozen=True)
class Simgpu:
    """The simulated GPU: call it with a function to run that in a process that has one.

    The function's source is taken along, so it must import what it needs itself; its first argument is the probe of
    `child.py`, the others and its result travel as JSON.
    """

    built: Built
    folder: Path

    def __call__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        preset: str = "default",
        knobs: Mapping[str, object] | None = None,
        nvml: Mapping[str, object] | str | None = "as it should be",
        env: Mapping[str, str] | None = None,
        timeout: float = 150.0,
    ) -> Run:
        """Run `function(probe, *arguments)`; `nvml` is the name of a fault, or the knobs of the NVML library."""
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{function.__name__.strip('_<>')}-"))
        request, response = folder / "request.json", folder / "response.json"
        request.write_text(json.dumps(_describe(function) | {"arguments": arguments, "paths": PATHS}))
        environment = self.environment(folder, preset=preset, knobs=knobs, nvml=nvml) | dict(env or {})
        start = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, str(CHILD), str(request), str(response)],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ScenarioError(f"{function.__name__} took more than {timeout} s") from error
        seconds = time.monotonic() - start
        if not response.exists():
            raise ScenarioError(
                f"the process of {function.__name__} ended with {done.returncode}:\n{done.stderr[-4000:]}"
            )
        answer = json.loads(response.read_text())
        if "error" in answer:
            raise ScenarioError(f"{function.__name__} failed:\n{answer['error']}\n{done.stderr[-2000:]}")
        log = folder / "log.csv"
        truth = Truth.read(log) if log.exists() else _NOTHING
        return Run(answer["result"], truth, seconds, done.stdout, done.stderr)

    def environment(
        self,
        folder: Path,
        *,
        preset: str = "default",
        knobs: Mapping[str, object] | None = None,
        nvml: Mapping[str, object] | str | None = "as it should be",
    ) -> dict[str, str]:
        """The variables that make a process see the simulated machine."""
        chosen = {"state": folder / "state", **PRESETS[preset], **(knobs or {})}
        unknown = set(chosen) - KNOBS
        if unknown:
            raise ValueError(f"unknown knobs {sorted(unknown)}; there are {sorted(KNOBS)}")
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith("SIMGPU_") and k != "CUDA_VISIBLE_DEVICES"
        }
        if isinstance(nvml, str):
            nvml = {} if nvml == "as it should be" else FAULTS[nvml]
        libraries = self.built.nvml if nvml is not None else _broken_library(folder)
        return inherited | {
            "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(self.built.device),
            "LD_LIBRARY_PATH": os.pathsep.join(
                filter(None, (str(libraries), inherited.get("LD_LIBRARY_PATH")))
            ),
            "SIMGPU_LOG": str(folder / "log.csv"),
            "TF_CPP_MIN_LOG_LEVEL": inherited.get("TF_CPP_MIN_LOG_LEVEL", "2"),
            **{f"SIMGPU_{key.upper()}": str(value) for key, value in chosen.items()},
            **{f"SIMGPU_NVML_{key.upper()}": str(value) for key, value in (nvml or {}).items()},
        }


def _globals(code: types.CodeType) -> set[str]:
    """Names that a function, and those within it, look up outside."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _globals(constant)
    return found - set(dir(builtins))


def _describe(function: Callable[..., Any]) -> dict[str, Any]:
    """The source of a function, once it is sure that it runs on its own."""
    free = sorted(_globals(function.__code__).union(function.__code__.co_freevars))
    if free:
        raise ValueError(
            f"{function.__name__} runs in another process and cannot see {', '.join(free)}: import it inside the "
            "function, or hand it over as an argument"
        )
    lines, line = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    return {
        "source": source,
        "line": line,
        "file": inspect.getsourcefile(function),
        "name": function.__name__,
    }


def _broken_library(folder: Path) -> Path:
    """A folder in which the loader finds a file that is no library, so that it looks no further.

    Not finding one there would not do: it would go on and find the real library of a machine with a GPU.
    """
    broken = folder / "no-nvml"
    broken.mkdir()
    (broken / "libnvidia-ml.so.1").touch()
    return broken


def _empty() -> Truth:
    import numpy as np

    columns = {f.name: np.empty(0, np.int64) for f in dataclasses.fields(Truth) if f.name != "marks"}
    return Truth(**columns)


_NOTHING = _empty()
