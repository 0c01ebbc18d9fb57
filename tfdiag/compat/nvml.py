"""The door to NVML, by way of pynvml: it survives whatever the driver does.

Nothing is imported before a library of NVML was found, and each reading fails by itself. NVML counts its
users, so a door that is opened and closed leaves the caller's own use of pynvml alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Board", "Nvml", "Reader", "Use", "library_there"]

_REASONS = {
    1: "another part of the process shut NVML down",
    3: "this GPU does not support it",
    4: "NVML gives no permission for it",
    6: "there is none",
    9: "the NVIDIA driver is not loaded",
    12: "there is no NVML library",
    13: "the driver is too old for it",
    15: "the GPU fell off the bus",
    16: "the GPU needs a reset",
    18: "the driver and its libraries have different versions: load the driver again, or restart the machine",
}
_FOR_GOOD = frozenset([3, 4, 13])
"""What is answered like that once is answered like that always."""
_LOST = frozenset([1, 15, 16])
_NOT_FOUND = 6
_TOO_OLD = 13
_UNKNOWN = 0xFFFFFFFFFFFFFFFF
"""What NVML writes for the memory of a process that it can't tell."""
_KB = 1024.0
_SLOW = 5
"""Readings that change slowly, or are costly, are taken at every so many samples."""
_MOST_LINKS = 18
_GPM = {2: "sm_active", 3: "sm_occupancy", 5: "tensor_active", 10: "dram_active"}
_COUNTERS = {198: "pcie_received", 197: "pcie_sent", 139: "nvlink_received", 138: "nvlink_sent"}
"""NVML's fields of bytes since the start; those of NVLink count in KiB."""
_NVLINK = frozenset([138, 139])


def library_there() -> bool:
    """Say whether a library of NVML can be loaded; without one that takes well below a millisecond."""
    if "pynvml" in sys.modules:
        return True
    names = ["libnvidia-ml.so.1"]
    if sys.platform == "win32":
        system = os.environ.get("WINDIR", "C:/Windows")
        programs = os.environ.get("ProgramFiles", "C:/Program Files")  # noqa: SIM112  # its name on Windows
        names = [f"{system}/System32/nvml.dll", f"{programs}/NVIDIA Corporation/NVSMI/nvml.dll"]
    for name in names:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False


class _Refused(Exception):
    """NVML's answer to one question, with its code; 0 where it was no answer of NVML's."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Use:
    """What one look at the processes of a GPU gave."""

    memory: dict[int, float]
    """Bytes by process, `nan` where the driver does not tell."""
    busy: dict[int, float] | Missing
    """Share of the time since the last look in which kernels of a process ran."""


class Nvml:
    """An open door; `close` gives back what `open` took."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.driver = self.text("nvmlSystemGetDriverVersion")
        self.cuda = self._cuda()

    @classmethod
    def open(cls) -> Nvml | Missing:
        """Open the door, or say why that is not possible."""
        if not library_there():
            return Missing(_REASONS[12])
        try:
            library = importlib.import_module("pynvml")
        except ImportError as error:
            return Missing(f"pynvml can't be imported: {error}")
        try:
            library.nvmlInit()
        except _failures(library) as error:
            return Missing(_refusal(error).reason)
        return cls(library)

    def close(self) -> None:
        """Give back our use of NVML; others in the process keep theirs."""
        with contextlib.suppress(_Refused):
            self.ask("nvmlShutdown")

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a function of NVML; whatever goes wrong is a `_Refused`."""
        try:
            return getattr(self.library, name)(*arguments)
        except _failures(self.library) as error:
            raise _refusal(error) from error

    def text(self, name: str, *arguments: Any) -> str:
        """Ask for a text, empty where there is none."""
        try:
            answer = self.ask(name, *arguments)
        except _Refused:
            return ""
        return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)

    def number(self, unit: str, factor: float, name: str, *arguments: Any) -> Maybe:
        """Ask for a number that does not change."""
        try:
            answer = float(self.ask(name, *arguments))
        except _Refused as refused:
            return Missing(refused.reason)
        return Quantity(answer * factor, unit, source="NVML")

    def boards(self) -> tuple[Board, ...] | Missing:
        """List the GPUs of the machine, by PCI bus; also those that fell off it."""
        try:
            count = int(self.ask("nvmlDeviceGetCount"))
        except _Refused as refused:
            return Missing(refused.reason)
        return tuple(self._board(index) for index in range(count))

    def _board(self, index: int) -> Board:
        try:
            device = self.ask("nvmlDeviceGetHandleByIndex", index)
        except _Refused as refused:
            return Board(self, index, None, lost=refused.reason)
        board = Board(
            self,
            index,
            device,
            uuid=self.text("nvmlDeviceGetUUID", device),
            name=self.text("nvmlDeviceGetName", device),
        )
        try:
            on, _ = self.ask("nvmlDeviceGetMigMode", device)
            board.mig = "on" if on else "off"
        except _Refused:
            return board
        if on:
            board.slices = tuple(self._slices(board))
        return board

    def _slices(self, board: Board) -> Iterator[Board]:
        try:
            most = int(self.ask("nvmlDeviceGetMaxMigDeviceCount", board.device))
        except _Refused:
            return
        for place in range(most):
            try:
                device = self.ask("nvmlDeviceGetMigDeviceHandleByIndex", board.device, place)
            except _Refused:
                continue  # places need not be filled from the start
            yield Board(
                self,
                board.index,
                device,
                uuid=self.text("nvmlDeviceGetUUID", device),
                name=self.text("nvmlDeviceGetName", device),
                mig="slice",
                whole=board,
            )

    def _cuda(self) -> str:
        try:
            version = int(self.ask("nvmlSystemGetCudaDriverVersion_v2"))
        except _Refused:
            return ""
        return f"{version // 1000}.{version % 1000 // 10}"


@dataclass(slots=True)
class Board:
    """A GPU, or a MIG slice of one."""

    nvml: Nvml
    index: int
    device: Any
    uuid: str = ""
    name: str = ""
    mig: Literal["", "off", "on", "slice"] = ""
    slices: tuple[Board, ...] = ()
    whole: Board | None = None
    """What it is a slice of: clocks, power, heat and the bus belong to the whole."""
    lost: str = ""

    def facts(self) -> dict[str, Any]:
        """Read what does not change, by the names of the fields of `Gpu`."""
        if self.lost:
            return {}
        nvml, n, device = self.nvml, self.nvml.library, self.device
        board = self.whole.device if self.whole is not None else device
        return {
            "bus_id": self._bus_id(board),
            "compute_capability": self._capability(board),
            "memory": self._memory(),
            "max_sm_clock": nvml.number("MHz", 1.0, "nvmlDeviceGetMaxClockInfo", board, n.NVML_CLOCK_SM),
            "max_memory_clock": nvml.number("MHz", 1.0, "nvmlDeviceGetMaxClockInfo", board, n.NVML_CLOCK_MEM),
            "power_limit": nvml.number("W", 1e-3, "nvmlDeviceGetEnforcedPowerLimit", board),
            "default_power_limit": nvml.number("W", 1e-3, "nvmlDeviceGetPowerManagementDefaultLimit", board),
            "slowdown_temperature": nvml.number(
                "°C", 1.0, "nvmlDeviceGetTemperatureThreshold", board, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
            ),
            "pcie_max_generation": nvml.number(
                "generation", 1.0, "nvmlDeviceGetMaxPcieLinkGeneration", board
            ),
            "pcie_gpu_generation": nvml.number(
                "generation", 1.0, "nvmlDeviceGetGpuMaxPcieLinkGeneration", board
            ),
            "pcie_max_width": nvml.number("lanes", 1.0, "nvmlDeviceGetMaxPcieLinkWidth", board),
            "nvlinks": self._nvlinks(board),
            "bar1": self._bar1(board),
            "ecc": self._ecc(board),
        }

    def reader(self) -> Reader:
        """Give what reads this GPU again and again."""
        return Reader(self)

    def _bus_id(self, board: Any) -> str:
        try:
            found = self.nvml.ask("nvmlDeviceGetPciInfo", board).busId
        except (_Refused, AttributeError):
            return ""
        return found.decode(errors="replace") if isinstance(found, bytes) else str(found)

    def _capability(self, board: Any) -> str:
        try:
            major, minor = self.nvml.ask("nvmlDeviceGetCudaComputeCapability", board)
        except _Refused:
            return ""
        return f"{major}.{minor}"

    def _memory(self) -> Maybe:
        try:
            return Quantity(float(memory(self.nvml, self.device).total), "B", source="NVML")
        except _Refused as refused:
            return Missing(refused.reason)

    def _bar1(self, board: Any) -> Maybe:
        try:
            total = self.nvml.ask("nvmlDeviceGetBAR1MemoryInfo", board).bar1Total
        except (_Refused, AttributeError) as error:
            return Missing(str(error))
        return Quantity(float(total), "B", source="NVML")

    def _ecc(self, board: Any) -> Maybe:
        try:
            current, _ = self.nvml.ask("nvmlDeviceGetEccMode", board)
        except _Refused as refused:
            return Missing(refused.reason)
        return Quantity(float(current), "", source="NVML")

    def _nvlinks(self, board: Any) -> Maybe:
        active = 0
        for link in range(_MOST_LINKS):
            try:
                active += bool(self.nvml.ask("nvmlDeviceGetNvLinkState", board, link))
            except _Refused as refused:
                if link == 0:
                    return Missing(refused.reason)
                break
        return Quantity(float(active), "links", source="NVML")


def memory(nvml: Nvml, device: Any) -> Any:
    """Read a GPU's memory; old drivers know the older form only, which counts the driver's own as used."""
    version = getattr(nvml.library, "nvmlMemory_v2", None)
    if version is not None:
        try:
            return nvml.ask("nvmlDeviceGetMemoryInfo", device, version)
        except _Refused as refused:
            if refused.code != _TOO_OLD:
                raise
    return nvml.ask("nvmlDeviceGetMemoryInfo", device)


@dataclass(slots=True)
class _Reading:
    """A call that gives one or more numbers."""

    call: Callable[[], dict[str, float]]
    names: tuple[str, ...]
    every: int = 1


@dataclass(slots=True)
class _Counted:
    """What a counter stood at, and when."""

    at_s: float = math.nan
    values: dict[str, float] = field(default_factory=dict)


class Reader:
    """Reads one GPU again and again; what it can't read is left out from then on, with the reason."""

    def __init__(self, board: Board) -> None:
        self._nvml = board.nvml
        self._device = board.device
        self._board = board.whole.device if board.whole is not None else board.device
        self.refused: dict[str, str] = {}
        """Readings that there will never be, and why."""
        self.lost = board.lost
        """Why there is nothing more to read, empty while there is."""
        self._ticks = 0
        self._now = math.nan
        self._counted = _Counted()
        self._seen_us = 0
        self._gpm: _Gpm | None = None
        self._busy_missing = ""
        # Newer names first; old drivers know the older.
        self._reasons = [
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ]
        self._computing = [f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (3, 2)]
        self._drawing = [f"nvmlDeviceGetGraphicsRunningProcesses_v{version}" for version in (3, 2)]
        self._readings = [] if self.lost else self._all_readings(board)

    def read(self, now_s: float) -> dict[str, float]:
        """Take one sample: what was read at this moment, by the names of the fields of `GpuSamples`."""
        self._now = now_s
        found: dict[str, float] = {}
        for reading in list(self._readings):
            if self.lost:
                break
            if self._ticks % reading.every:
                continue
            try:
                found.update(reading.call())
            except _Refused as refused:
                self._give_up(reading, refused)
        self._ticks += 1
        return found

    @property
    def looks_due(self) -> bool:
        """Say whether the processes are to be looked at with this sample."""
        return not self.lost and self._ticks % _SLOW == 0

    def use(self) -> Use | Missing:
        """Look who uses the GPU."""
        try:
            held = self._processes()
        except _Refused as refused:
            self._note_lost(refused)
            return Missing(refused.reason)
        if self._busy_missing:
            return Use(held, Missing(self._busy_missing))
        try:
            return Use(held, self._busy())
        except _Refused as refused:
            self._note_lost(refused)
            if refused.code in _FOR_GOOD:
                self._busy_missing = refused.reason
            return Use(held, Missing(refused.reason))

    def close(self) -> None:
        """Give back what the readings hold in the driver."""
        if self._gpm is not None:
            self._gpm.close()
            self._gpm = None

    # --- readings -----------------------------------------------------------------------------------

    def _all_readings(self, whole_or_slice: Board) -> list[_Reading]:
        nvml, n, board = self._nvml, self._nvml.library, self._board

        def one(name: str, factor: float, function: str, *arguments: Any, every: int = 1) -> _Reading:
            return _Reading(
                lambda: {name: factor * float(nvml.ask(function, board, *arguments))}, (name,), every
            )

        readings = [
            _Reading(self._rates, ("utilisation", "memory_utilisation")),
            _Reading(lambda: {"used_memory": float(memory(nvml, self._device).used)}, ("used_memory",)),
            one("sm_clock", 1.0, "nvmlDeviceGetClockInfo", n.NVML_CLOCK_SM),
            one("memory_clock", 1.0, "nvmlDeviceGetClockInfo", n.NVML_CLOCK_MEM, every=_SLOW),
            one("power", 1e-3, "nvmlDeviceGetPowerUsage"),
            one("temperature", 1.0, "nvmlDeviceGetTemperature", n.NVML_TEMPERATURE_GPU, every=_SLOW),
            _Reading(self._throttle, ("throttle",)),
            one("pcie_generation", 1.0, "nvmlDeviceGetCurrPcieLinkGeneration"),
            one("pcie_width", 1.0, "nvmlDeviceGetCurrPcieLinkWidth"),
            one(
                "ecc_uncorrected", 1.0, "nvmlDeviceGetTotalEccErrors",
                n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC, every=_SLOW,
            ),
        ]  # fmt: skip
        readings += self._traffic()
        gpm = _Gpm.of(nvml, whole_or_slice)
        if isinstance(gpm, Missing):
            self.refused.update(dict.fromkeys(_GPM.values(), gpm.reason))
        else:
            self._gpm = gpm
            readings.append(_Reading(gpm.read, tuple(_GPM.values())))
        return readings

    def _rates(self) -> dict[str, float]:
        rates = self._nvml.ask("nvmlDeviceGetUtilizationRates", self._device)
        return {"utilisation": rates.gpu / 100, "memory_utilisation": rates.memory / 100}

    def _throttle(self) -> dict[str, float]:
        return {"throttle": float(self._first_known(self._reasons, self._board))}

    def _first_known(self, names: list[str], device: Any) -> Any:
        """Ask by the newest name that the driver knows."""
        while len(names) > 1:
            try:
                return self._nvml.ask(names[0], device)
            except _Refused as refused:
                if refused.code not in (0, _TOO_OLD):
                    raise
                del names[0]
        return self._nvml.ask(names[0], device)

    def _traffic(self) -> Iterator[_Reading]:
        """Count bytes where the GPU does; else listen to the bus now and then, which takes 20 ms each."""
        try:
            known = self._counters()
        except _Refused as refused:
            known = {}
            self.refused.update(dict.fromkeys(_COUNTERS.values(), refused.reason))
        if known:
            yield _Reading(self._rates_of_counters, tuple(known))
        for name in _COUNTERS.values():
            if name not in known:
                self.refused.setdefault(name, "this GPU does not count it")
        n = self._nvml.library
        which = {"pcie_received": n.NVML_PCIE_UTIL_RX_BYTES, "pcie_sent": n.NVML_PCIE_UTIL_TX_BYTES}
        for name, counter in which.items():
            if name not in known:
                self.refused.pop(name, None)
                yield _Reading(partial(self._heard, name, counter), (name,), _SLOW)

    def _heard(self, name: str, counter: int) -> dict[str, float]:
        return {name: _KB * float(self._nvml.ask("nvmlDeviceGetPcieThroughput", self._board, counter))}

    def _counters(self) -> dict[str, float]:
        values = self._nvml.ask("nvmlDeviceGetFieldValues", self._board, list(_COUNTERS))
        return {
            _COUNTERS[value.fieldId]: float(value.value.ullVal) * (_KB if value.fieldId in _NVLINK else 1.0)
            for value in values
            if value.nvmlReturn == 0 and value.fieldId in _COUNTERS
        }

    def _rates_of_counters(self) -> dict[str, float]:
        before, self._counted = self._counted, _Counted(self._now, self._counters())
        passed = self._now - before.at_s
        if not passed > 0:  # nan at the first sample
            return {}
        rates = {
            name: (count - before.values[name]) / passed
            for name, count in self._counted.values.items()
            if name in before.values
        }
        return {name: rate for name, rate in rates.items() if rate >= 0}  # counters may wrap

    # --- processes ----------------------------------------------------------------------------------

    def _processes(self) -> dict[int, float]:
        listed = list(self._first_known(self._computing, self._device))
        with contextlib.suppress(_Refused):  # a MIG slice has none
            listed += self._first_known(self._drawing, self._device)
        held: dict[int, float] = {}
        for process in listed:
            used = process.usedGpuMemory
            known = used is not None and used != _UNKNOWN
            held[int(process.pid)] = float(used) if known else math.nan
        return held

    def _busy(self) -> dict[int, float]:
        try:
            samples = self._nvml.ask("nvmlDeviceGetProcessUtilization", self._device, self._seen_us)
        except _Refused as refused:
            if refused.code == _NOT_FOUND:  # nobody computed since the last look
                return {}
            raise
        shares: dict[int, list[float]] = {}
        for sample in samples:
            if sample.pid and sample.smUtil <= 100:  # drivers leave entries empty, or with rubbish in them
                shares.setdefault(int(sample.pid), []).append(sample.smUtil / 100)
                self._seen_us = max(self._seen_us, int(sample.timeStamp))
        return {pid: sum(values) / len(values) for pid, values in shares.items()}

    # --- refusals -----------------------------------------------------------------------------------

    def _give_up(self, reading: _Reading, refused: _Refused) -> None:
        self._note_lost(refused)
        if refused.code in _FOR_GOOD or refused.code == 0:
            self._readings.remove(reading)
            self.refused.update(dict.fromkeys(reading.names, refused.reason))

    def _note_lost(self, refused: _Refused) -> None:
        if refused.code in _LOST:
            self.lost = refused.reason


class _Gpm:
    """The metrics of Hopper and later: what happened between two samples in the driver's memory."""

    def __init__(self, nvml: Nvml, device: Any, instance: int | None, samples: list[Any]) -> None:
        self._nvml = nvml
        self._device = device
        self._instance = instance
        self._samples = samples
        self._taken = False
        n = nvml.library
        self._asked = n.c_nvmlGpmMetricsGet_t()
        self._asked.version = n.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(_GPM)
        for place, metric in enumerate(_GPM):
            self._asked.metrics[place].metricId = metric

    @classmethod
    def of(cls, nvml: Nvml, board: Board) -> _Gpm | Missing:
        """Give the metrics of a GPU, or say why there are none."""
        whole = board.whole if board.whole is not None else board
        samples: list[Any] = []
        try:
            if not nvml.ask("nvmlGpmQueryDeviceSupport", whole.device).isSupportedDevice:
                return Missing("only Hopper and later GPUs have it")
            instance = None
            if board.whole is not None:
                instance = int(nvml.ask("nvmlDeviceGetGpuInstanceId", board.device))
            samples.extend(nvml.ask("nvmlGpmSampleAlloc") for _ in range(2))
            return cls(nvml, whole.device, instance, samples)
        except (_Refused, AttributeError) as error:
            for sample in samples:
                with contextlib.suppress(_Refused):
                    nvml.ask("nvmlGpmSampleFree", sample)
            return Missing(str(error))

    def read(self) -> dict[str, float]:
        """Take a sample, and give what happened since the one before."""
        before, now = self._samples
        if self._instance is None:
            self._nvml.ask("nvmlGpmSampleGet", self._device, now)
        else:
            self._nvml.ask("nvmlGpmMigSampleGet", self._device, self._instance, now)
        self._samples = [now, before]
        if not self._taken:
            self._taken = True
            return {}
        self._asked.sample1, self._asked.sample2 = before, now
        self._nvml.ask("nvmlGpmMetricsGet", self._asked)
        found = {}
        for place, name in enumerate(_GPM.values()):
            metric = self._asked.metrics[place]
            if metric.nvmlReturn == 0 and math.isfinite(metric.value):
                found[name] = metric.value / 100
        return found

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            with contextlib.suppress(_Refused):
                self._nvml.ask("nvmlGpmSampleFree", sample)
        self._samples = []


def _failures(library: Any) -> tuple[type[Exception], ...]:
    """Give what a call into NVML can raise: its own errors, those of ctypes, and names too new for pynvml."""
    # pynvml's own, for a driver that is older than itself; older versions of pynvml have none.
    older: type[Exception] = getattr(library, "NVMLLibraryMismatchError", library.NVMLError)
    return (library.NVMLError, older, AttributeError, OSError, ValueError, TypeError, ctypes.ArgumentError)


def _refusal(error: Exception) -> _Refused:
    """Turn it into a code and a reason."""
    if isinstance(error, AttributeError):
        return _Refused(0, "this pynvml does not know it")
    code = getattr(error, "value", None)
    if not isinstance(code, int):
        return _Refused(0, f"the call into NVML failed: {type(error).__name__}")
    return _Refused(code, _REASONS.get(code, f"NVML answers with error {code}"))
