"""Looks at the GPUs a few times a second while the job runs.

Everything that goes into the driver happens on a thread of its own, the loading of its library too: a driver
can take seconds to answer, or never do so, and the job must not wait for it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from tfdiag.collect.visible import Listed, tensorflow_names, visible_gpus
from tfdiag.compat import gpu as door
from tfdiag.compat import host
from tfdiag.compat.nvml import Board, Nvml, Reader, Use, library_there
from tfdiag.model.gpu import Allocator, Gpu, GpuProcess, GpuSamples, GpuTelemetry, Series
from tfdiag.model.measurements import Device
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["NO_GPU", "GpuSampler"]

NO_GPU = "there is no GPU: TensorFlow lists none, and the system shows none of NVIDIA's"
PERIOD_S = 0.2
_MOST_OF_A_CORE = 0.002
"""Samples that cost more are taken less often."""
_LONGEST_S = 5.0
_UNITS = {
    "utilisation": "share", "memory_utilisation": "share", "used_memory": "B", "sm_clock": "MHz",
    "memory_clock": "MHz", "power": "W", "temperature": "°C", "throttle": "bits",
    "pcie_generation": "generation", "pcie_width": "lanes", "pcie_received": "B/s", "pcie_sent": "B/s",
    "nvlink_received": "B/s", "nvlink_sent": "B/s", "ecc_uncorrected": "errors", "sm_active": "share",
    "sm_occupancy": "share", "tensor_active": "share", "dram_active": "share",
}  # fmt: skip
_FULL_RATE = 600
"""After so many samples the period doubles, and so on: a report must not grow with the budget."""
_KEEP = 1200
"""Samples kept; older ones are dropped, so that weeks of training take no more memory than minutes."""
_LATE = 5
"""After so many periods without a sample a call into the driver counts as lost."""
_HUNG = "a call into the driver did not come back"
_HIDDEN = "the driver lists no process on it, not even this one"
_FOREIGN = (
    "the driver lists processes, but not this one: it numbers them from outside of a container, so it is not "
    "known which of them is ours"
)


@dataclass(slots=True)
class _Seen:
    """A process, over all looks at its GPU."""

    name: str
    ours: bool
    memory: float = math.nan
    busy: float = 0.0
    seen: int = 0


@dataclass(slots=True)
class _Watched:
    """A GPU that is sampled."""

    reader: Reader
    rows: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    processes: dict[int, _Seen] = field(default_factory=dict)
    looks: int = 0
    busy_looks: int = 0
    """Looks in which the driver told what each process used."""
    missing: str = ""


class GpuSampler:
    """A thread that samples until it is stopped; on a machine without a GPU there is none.

    It stops within a period. Where the driver keeps a call for itself, the thread is left in it and ends when
    the call comes back. `alive` says whether what is watched still runs: the thread ends by itself when it
    does not.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        devices: Iterable[Device] = (),
        period_s: float = PERIOD_S,
        alive: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._alive = alive
        self._devices = tuple(devices)
        self._period_s = self._next_s = period_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._hardware: tuple[str, ...] = ()
        self._hung = False
        self._failed = ""
        self._facts: GpuTelemetry | None = None
        self._watched: dict[str, _Watched] = {}
        self._at: list[float] = []
        self._memory: dict[str, list[tuple[float, float]]] = {}
        self._limits: dict[str, Maybe] = {}
        self._memory_held = False
        self._opening_s = math.nan
        self._first_at = math.nan
        self._taken = 0
        self._cpu_s = 0.0

    def __enter__(self) -> GpuSampler:  # noqa: PYI034  # typing.Self is younger than Python 3.10
        self._hardware = door.hardware_signs()
        if library_there() or self._hardware or self._gpus_of_tensorflow():
            self._thread = threading.Thread(target=self._run, name="tfdiag-gpu", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._period_s)
            late = not self._at or self._clock() - self._at[-1] > _LATE * self._next_s
            self._hung = self._thread.is_alive() and late

    def hold_memory(self) -> None:
        """Look no more at how much memory is in use: what follows needs more than the job does."""
        self._memory_held = True

    def capability(self, device: str) -> float | None:
        """Give what the driver says of the compute capability of a device of TensorFlow's."""
        name = device.rpartition("device:")[2].lstrip("/")
        for gpu in self._facts.gpus if self._facts is not None else ():
            if gpu.tensorflow == name:
                with contextlib.suppress(ValueError):  # not told
                    return float(gpu.compute_capability)
        return None

    def telemetry(self) -> GpuTelemetry | Missing:
        """Give what was seen."""
        if self._thread is None:
            return Missing(NO_GPU)
        facts = self._facts
        if facts is None:
            return Missing(self._failed or "the driver did not answer while the job ran")
        if not facts.gpus and not facts.software.hardware and not self._gpus_of_tensorflow():
            # A library without a GPU: a node of a cluster, an image made for GPUs.
            return Missing(f"there is no GPU: {facts.gpus_missing or 'NVML lists none'}")
        moments = list(self._at)
        steps = sorted(later - before for before, later in itertools.pairwise(moments))
        wall = moments[-1] - self._first_at if len(moments) > 1 else 0.0
        return GpuTelemetry(
            gpus=tuple(self._with_samples(gpu) for gpu in facts.gpus),
            gpus_missing=facts.gpus_missing,
            driver=facts.driver,
            cuda=facts.cuda,
            mapping_missing=facts.mapping_missing,
            software=facts.software,
            allocators=tuple(self._allocator(name) for name in self._memory),
            period_s=steps[len(steps) // 2] if steps else 0.0,
            opening=Quantity(self._opening_s, "s", source="until the first sample", count=1)
            if math.isfinite(self._opening_s)
            else Missing("no sample was taken"),
            cost=Quantity(
                self._cpu_s / wall, "share", source="clock of the sampling thread", count=self._taken
            )
            if wall > 0
            else Missing("fewer than two samples were taken"),
        )

    # --- on the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001  # whatever a driver does must not reach the job
            self._failed = f"looking at the GPUs failed: {type(error).__name__}: {error}"

    def _watch(self) -> None:
        began = self._clock()
        opened = Nvml.open()
        try:
            self._look_around(opened)
            if not self._watched and not self._memory:
                return  # there is nothing to see that changes
            self._opening_s = self._clock() - began
            while not self._stop.wait(self._sample()) and self._alive():
                pass
        finally:
            for watched in self._watched.values():
                watched.reader.close()
            if isinstance(opened, Nvml):
                opened.close()

    def _look_around(self, opened: Nvml | Missing) -> None:
        """Read what does not change, and choose what to sample."""
        boards: tuple[Board, ...] | Missing = opened if isinstance(opened, Missing) else opened.boards()
        missing = boards.reason if isinstance(boards, Missing) else ""
        boards = () if isinstance(boards, Missing) else boards
        seen = door.physical_gpus() if self._gpus_of_tensorflow() else []
        machine = [
            Listed(board.uuid, board.name, tuple(part.uuid for part in board.slices)) for board in boards
        ]
        visible = visible_gpus(
            machine, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")
        )
        names = tensorflow_names(machine, visible, seen)
        targets = [part for board in boards for part in (board, *board.slices)]
        if not isinstance(names, Missing):
            targets = [board for board in targets if board.mig != "slice" or board.uuid in names]
        software = door.software(look_for_libraries=not seen, hardware=self._hardware)
        facts = []
        for board in targets:
            if self._stop.is_set():
                return
            name = "" if isinstance(names, Missing) else names.get(board.uuid, "")
            facts.append(
                Gpu(
                    index=board.index, uuid=board.uuid, name=board.name, tensorflow=name, mig=board.mig,
                    cut=board.lost, **board.facts(),
                )
            )  # fmt: skip
            # Where it is not known which GPUs are TensorFlow's, all may be.
            if not board.lost and seen and (name or isinstance(names, Missing)):
                self._watched[board.uuid] = _Watched(board.reader())
        for device in self._devices:
            if device.kind == "GPU":
                name = device.name.rpartition("device:")[2]
                self._memory[name] = []
                self._limits[name] = door.allocator_limit(name)
        self._facts = GpuTelemetry(
            gpus=tuple(facts),
            gpus_missing=missing,
            driver="" if isinstance(opened, Missing) else opened.driver,
            cuda="" if isinstance(opened, Missing) else opened.cuda,
            mapping_missing=names.reason if boards and isinstance(names, Missing) else "",
            software=software,
        )

    def _sample(self) -> float:
        """Take a sample of everything, and give the time until the next."""
        begin, now = time.thread_time(), self._clock()
        for watched in self._watched.values():
            due = watched.reader.looks_due
            row = watched.reader.read(now)
            if row:
                watched.rows.append((now, row))
            if due:
                self._look_at_processes(watched)
        for device, samples in () if self._memory_held else self._memory.items():
            allocated = door.allocated(device)
            if not isinstance(allocated, Missing):
                samples.append(allocated)
        self._at.append(now)
        self._first_at = now if self._taken == 0 else self._first_at
        self._taken += 1
        # The first reading of the memory stays: the peak before this run is told by it.
        kept: tuple[list[Any], ...] = (
            self._at, *self._memory.values(), *(watched.rows for watched in self._watched.values()),
        )  # fmt: skip
        for series in kept:
            if len(series) > _KEEP:
                del series[1 : _KEEP // 2]
        spent = time.thread_time() - begin
        self._cpu_s += spent
        slower = self._period_s * 2.0 ** (self._taken // _FULL_RATE)
        # The first look opens what later ones find open.
        each = spent if self._taken > 1 else 0.0
        self._next_s = min(_LONGEST_S, max(slower, each / _MOST_OF_A_CORE))
        return self._next_s

    def _look_at_processes(self, watched: _Watched) -> None:
        use = watched.reader.use()
        if not isinstance(use, Use):
            watched.missing = use.reason
            return
        watched.looks += 1
        if not isinstance(use.busy, Missing):
            watched.busy_looks += 1
        for pid, held in use.memory.items():
            seen = watched.processes.get(pid)
            if seen is None:
                seen = watched.processes[pid] = _Seen(host.process_name(pid), host.is_ours(pid))
            seen.seen += 1
            seen.memory = held if math.isnan(seen.memory) else max(seen.memory, held)
            if not isinstance(use.busy, Missing):
                seen.busy += use.busy.get(pid, 0.0)

    def _gpus_of_tensorflow(self) -> bool:
        return any(device.kind == "GPU" for device in self._devices)

    # --- what comes of it ---------------------------------------------------------------------------

    def _with_samples(self, gpu: Gpu) -> Gpu:
        watched = self._watched.get(gpu.uuid)
        if watched is None:
            return gpu
        rows = list(watched.rows)
        reader = watched.reader
        processes = dict(watched.processes)
        # TensorFlow holds every GPU that it sees, so one of the processes is ours.
        foreign = "" if any(seen.ours for seen in processes.values()) else _FOREIGN if processes else _HIDDEN
        known = {f.name: getattr(gpu, f.name) for f in fields(Gpu)}
        known |= {
            "samples": _series(rows, reader.refused)
            if rows
            else Missing(reader.lost or "no sample was taken"),
            "processes": tuple(
                _process(pid, seen, watched, named=not foreign) for pid, seen in processes.items()
            ),
            "processes_missing": watched.missing or foreign,
            "looks": watched.looks,
            "cut": reader.lost or self._failed or (_HUNG if self._hung else ""),
        }
        return Gpu(**known)

    def _allocator(self, device: str) -> Allocator:
        samples = list(self._memory[device])
        if not samples:
            missing = Missing("TensorFlow's allocator does not tell")
            return Allocator(device, missing, missing, self._limits[device])
        first_peak, last_peak = samples[0][1], samples[-1][1]
        highest = max(used for used, _ in samples)
        in_use = Quantity(highest, "B", source="TensorFlow's allocator, sampled", count=len(samples))
        peak: Maybe = Missing("the peak that TensorFlow knows is from before the diagnosis")
        if last_peak > first_peak or highest >= last_peak:
            peak = Quantity(last_peak, "B", source="TensorFlow's allocator", count=1)
        return Allocator(device, in_use, peak, self._limits[device])


def _series(rows: list[tuple[float, dict[str, float]]], refused: dict[str, str]) -> GpuSamples:
    found: dict[str, Series | Missing] = {}
    for name, unit in _UNITS.items():
        values = tuple(row.get(name, math.nan) for _, row in rows)
        if all(math.isnan(value) for value in values):
            found[name] = Missing(refused.get(name, "NVML gave no value"))
        else:
            source = (
                "NVML, GPM"
                if name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
                else "NVML"
            )
            found[name] = Series(values, unit, source)
    return GpuSamples(at_s=tuple(at for at, _ in rows), **found)


def _process(pid: int, seen: _Seen, watched: _Watched, *, named: bool) -> GpuProcess:
    return GpuProcess(
        pid=pid,
        # A number from outside may be that of another process in here.
        name=seen.name if named else "",
        ours=seen.ours,
        memory=Missing("the driver does not tell")
        if math.isnan(seen.memory)
        else Quantity(seen.memory, "B", source="NVML"),
        utilisation=Quantity(
            seen.busy / watched.busy_looks, "share", source="NVML, by process", count=watched.busy_looks
        )
        if watched.busy_looks
        else Missing("the driver does not tell what single processes use"),
        seen=seen.seen,
    )
