"""How much of a core does the sampling of the host and of the GPUs take?

    python -m benchmarks.telemetry [--seconds N] [--gpus N]

A process samples the machine and simulated GPUs at 5 Hz, these over the real interface of NVML, with
everything that a diagnosis reads: the clocks of the sampling threads over the wall time. Simulated calls cost
the processor what pynvml and a small library take; a driver adds its own. Beside it: what a machine without a
GPU pays, and how long stopping takes, also while a call hangs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.stats import Goal, bootstrap, report
from tests.simgpu.build import build
from tests.simgpu.harness import Simgpu

LIMIT = 0.005
LIMIT_WITHOUT_MS = 5.0
PERIOD_S = 0.2
CHILD = """
import json, statistics, sys, time
from tfdiag.collect import telemetry
from tfdiag.collect.sampler import HostSampler
from tfdiag.model.gpu import GpuSoftware
from tfdiag.model.measurements import Device
from tfdiag.model.quantity import Missing

seconds, gpus = float(sys.argv[1]), int(sys.argv[2])
telemetry.door.physical_gpus = lambda: [(f"GPU:{i}", "") for i in range(gpus)]
telemetry.door.allocated = lambda device: (0.0, 0.0)
telemetry.door.allocator_limit = lambda device: Missing("no TensorFlow here")
telemetry.door.software = lambda **_: GpuSoftware()
devices = [Device(f"/device:GPU:{i}", "GPU") for i in range(gpus)]
sampler, host = telemetry.GpuSampler(time.perf_counter, devices), HostSampler(time.perf_counter)
with host:
    with sampler:
        time.sleep(seconds)
        begin = time.perf_counter()
    stopped, begin = time.perf_counter() - begin, time.perf_counter()
host_stopped = time.perf_counter() - begin
found, machine = sampler.telemetry(), host.telemetry()
print(json.dumps({
    "cost": found.cost.value, "count": found.cost.count, "period": found.period_s,
    "opening": found.opening.value, "stopped": stopped, "alive": sampler._thread.is_alive(),
    "host_cost": machine.cost.value, "host_period": machine.period_s, "host_stopped": host_stopped,
    "sampled": sum(not isinstance(gpu.samples, Missing) for gpu in found.gpus),
}))
"""
WITHOUT = """
import json, time
from tfdiag.collect.telemetry import GpuSampler

def once():
    begin = time.perf_counter()
    with GpuSampler(time.perf_counter) as sampler:
        pass
    sampler.telemetry()
    return (time.perf_counter() - begin) * 1e3

print(json.dumps([once() for _ in range(20)]))
"""


def run(simgpu: Simgpu, folder: Path, script: str, *arguments: object, **machine: Any) -> Any:
    """Run a script on a simulated machine, and give what it prints."""
    place = Path(tempfile.mkdtemp(dir=folder))
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=simgpu.environment(place, **machine),
        cwd=Path(__file__).parents[1],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    """Measure, in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpus", type=int, default=1)
    chosen = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simgpu = Simgpu(build(), folder)
        knobs = {"count": chosen.gpus}
        nvml = {"gpm": 1, "nvlinks": 4, "processes": "4242:512:35"}
        runs = [
            run(simgpu, folder, CHILD, chosen.seconds, chosen.gpus, knobs=knobs, nvml=nvml)
            for _ in range(chosen.rounds)
        ]
        hung = run(simgpu, folder, CHILD, 3, 1, nvml={"delay_us": 50000})
        without = run(simgpu, folder, WITHOUT, nvml=None)
    cost, low, high = bootstrap([one["cost"] + one["host_cost"] for one in runs])
    idle, idle_low, idle_high = bootstrap(without)
    print(f"a sample every {runs[0]['period'] * 1e3:.0f} ms, of {runs[0]['sampled']} GPU(s)", end="")
    print(f", and every {runs[0]['host_period'] * 1e3:.0f} ms of the host, for", end=" ")
    print(f"{max(one['host_cost'] for one in runs):.2%} of a core")
    print(f"the first sample after {max(one['opening'] for one in runs) * 1e3:.0f} ms")
    goals = [
        Goal(
            "processor time of sampling host and GPUs at 5 Hz over wall time", cost, LIMIT, low=low, high=high
        ),
        Goal(
            "stopping the sampling", max(max(one["stopped"], one["host_stopped"]) for one in runs), PERIOD_S,
            unit="s",
        ),
        Goal("stopping the sampling while a call hangs", hung["stopped"], 1.1 * PERIOD_S, unit="s"),
        Goal(
            "telemetry on a machine without a GPU",
            idle,
            LIMIT_WITHOUT_MS,
            unit="ms",
            low=idle_low,
            high=idle_high,
        ),
    ]  # fmt: skip
    report("telemetry", goals, {"runs": runs, "hung": hung, "without_ms": without})


if __name__ == "__main__":
    main()
