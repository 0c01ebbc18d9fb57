"""NVML as pynvml sees it: every reading that a monitor asks for, and everything that can be wrong with it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .harness import FAULTS, Simgpu

pytestmark = pytest.mark.filterwarnings("error")


def read_everything(_probe: Any) -> dict[str, Any]:
    import os
    import warnings

    warnings.simplefilter("error")
    import pynvml as n

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if hasattr(value, "_fields_"):
            return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
        if hasattr(value, "pid"):
            return dict(vars(value).items())
        return value

    n.nvmlInit()
    h = n.nvmlDeviceGetHandleByIndex(0)
    calls = {
        "driver": n.nvmlSystemGetDriverVersion,
        "nvml": n.nvmlSystemGetNVMLVersion,
        "cuda": n.nvmlSystemGetCudaDriverVersion,
        "branch": lambda: n.nvmlSystemGetDriverBranch().branch,
        "process name": lambda: n.nvmlSystemGetProcessName(os.getpid()),
        "count": n.nvmlDeviceGetCount,
        "name": lambda: n.nvmlDeviceGetName(h),
        "uuid": lambda: n.nvmlDeviceGetUUID(h),
        "serial": lambda: n.nvmlDeviceGetSerial(h),
        "index": lambda: n.nvmlDeviceGetIndex(h),
        "minor": lambda: n.nvmlDeviceGetMinorNumber(h),
        "pci": lambda: n.nvmlDeviceGetPciInfo(h),
        "capability": lambda: n.nvmlDeviceGetCudaComputeCapability(h),
        "architecture": lambda: n.nvmlDeviceGetArchitecture(h),
        "brand": lambda: n.nvmlDeviceGetBrand(h),
        "cores": lambda: n.nvmlDeviceGetNumGpuCores(h),
        "bus width": lambda: n.nvmlDeviceGetMemoryBusWidth(h),
        "vbios": lambda: n.nvmlDeviceGetVbiosVersion(h),
        "persistence": lambda: n.nvmlDeviceGetPersistenceMode(h),
        "compute mode": lambda: n.nvmlDeviceGetComputeMode(h),
        "affinity": lambda: list(n.nvmlDeviceGetCpuAffinity(h, 1)),
        "utilisation": lambda: n.nvmlDeviceGetUtilizationRates(h),
        "encoder": lambda: n.nvmlDeviceGetEncoderUtilization(h),
        "decoder": lambda: n.nvmlDeviceGetDecoderUtilization(h),
        "samples": lambda: n.nvmlDeviceGetSamples(h, n.NVML_GPU_UTILIZATION_SAMPLES, 0)[0],
        "memory": lambda: n.nvmlDeviceGetMemoryInfo(h),
        "memory v2": lambda: n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2),
        "bar1": lambda: n.nvmlDeviceGetBAR1MemoryInfo(h),
        "sm clock": lambda: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
        "memory clock": lambda: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
        "max sm clock": lambda: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
        "application clock": lambda: n.nvmlDeviceGetApplicationsClock(h, n.NVML_CLOCK_SM),
        "memory clocks": lambda: n.nvmlDeviceGetSupportedMemoryClocks(h),
        "graphics clocks": lambda: n.nvmlDeviceGetSupportedGraphicsClocks(h, 1215),
        "throttle reasons": lambda: n.nvmlDeviceGetCurrentClocksThrottleReasons(h),
        "event reasons": lambda: n.nvmlDeviceGetCurrentClocksEventReasons(h),
        "supported reasons": lambda: n.nvmlDeviceGetSupportedClocksThrottleReasons(h),
        "state": lambda: n.nvmlDeviceGetPerformanceState(h),
        "violation": lambda: n.nvmlDeviceGetViolationStatus(h, n.NVML_PERF_POLICY_POWER),
        "power": lambda: n.nvmlDeviceGetPowerUsage(h),
        "power limit": lambda: n.nvmlDeviceGetPowerManagementLimit(h),
        "enforced limit": lambda: n.nvmlDeviceGetEnforcedPowerLimit(h),
        "default limit": lambda: n.nvmlDeviceGetPowerManagementDefaultLimit(h),
        "limits": lambda: n.nvmlDeviceGetPowerManagementLimitConstraints(h),
        "energy": lambda: n.nvmlDeviceGetTotalEnergyConsumption(h),
        "temperature": lambda: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
        "temperature v": lambda: n.nvmlDeviceGetTemperatureV(h, n.NVML_TEMPERATURE_GPU),
        "slow down at": lambda: n.nvmlDeviceGetTemperatureThreshold(h, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "fan": lambda: n.nvmlDeviceGetFanSpeed(h),
        "pcie generation": lambda: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
        "max pcie generation": lambda: n.nvmlDeviceGetMaxPcieLinkGeneration(h),
        "pcie width": lambda: n.nvmlDeviceGetCurrPcieLinkWidth(h),
        "max pcie width": lambda: n.nvmlDeviceGetMaxPcieLinkWidth(h),
        "pcie sent": lambda: n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES),
        "pcie received": lambda: n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES),
        "pcie replays": lambda: n.nvmlDeviceGetPcieReplayCounter(h),
        "nvlink": lambda: [n.nvmlDeviceGetNvLinkState(h, i) for i in range(6)],
        "nvlink version": lambda: n.nvmlDeviceGetNvLinkVersion(h, 0),
        "nvlink peer": lambda: n.nvmlDeviceGetNvLinkRemotePciInfo(h, 0),
        "nvlink errors": lambda: n.nvmlDeviceGetNvLinkErrorCounter(h, 0, n.NVML_NVLINK_ERROR_DL_CRC_FLIT),
        "nvlink counter": lambda: n.nvmlDeviceGetNvLinkUtilizationCounter(h, 0, 0),
        "fields": lambda: [
            (v.fieldId, v.nvmlReturn, v.value.ullVal)
            for v in n.nvmlDeviceGetFieldValues(
                h,
                [
                    n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
                    n.NVML_FI_DEV_NVLINK_LINK_COUNT,
                    n.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
                    n.NVML_FI_DEV_POWER_INSTANT,
                    n.NVML_FI_DEV_MEMORY_TEMP,
                    9999,
                ],
            )
        ],
        "compute processes": lambda: n.nvmlDeviceGetComputeRunningProcesses(h),
        "graphics processes": lambda: n.nvmlDeviceGetGraphicsRunningProcesses(h),
        "process utilisation": lambda: n.nvmlDeviceGetProcessUtilization(h, 0),
        "processes utilisation": lambda: n.nvmlDeviceGetProcessesUtilizationInfo(h, 0),
        "ecc": lambda: n.nvmlDeviceGetEccMode(h),
        "ecc errors": lambda: n.nvmlDeviceGetTotalEccErrors(h, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 0),
        "ecc detail": lambda: n.nvmlDeviceGetDetailedEccErrors(h, n.NVML_MEMORY_ERROR_TYPE_CORRECTED, 0),
        "retired pages": lambda: n.nvmlDeviceGetRetiredPages(h, 0),
        "remapped rows": lambda: n.nvmlDeviceGetRemappedRows(h),
        "mig": lambda: n.nvmlDeviceGetMigMode(h),
        "gpm support": lambda: n.nvmlGpmQueryDeviceSupport(h).isSupportedDevice,
        "common ancestor": lambda: n.nvmlDeviceGetTopologyCommonAncestor(h, h),
        "event reasons idle": lambda: n.nvmlClocksEventReasonGpuIdle,
    }
    answers = {}
    for name, call in calls.items():
        try:
            answers[name] = plain(call())
        except n.NVMLError as error:
            answers[name] = f"error {error.value}"
    n.nvmlShutdown()
    return answers


def test_an_idle_gpu_answers_everything_that_a_monitor_asks(simgpu: Simgpu) -> None:
    """Every reading of an idle GPU comes through pynvml, and what it has not says so."""
    answers = simgpu(read_everything, knobs={"count": 2, "mem_mb": 1000}).result
    without = {
        name for name, answer in answers.items() if isinstance(answer, str) and answer.startswith("error")
    }
    assert {n: answers[n] for n in without} == {
        "fan": "error 3",
        "mig": "error 3",
        "process utilisation": "error 6",
        "processes utilisation": "error 6",
    }
    assert answers["count"] == 2
    assert answers["uuid"].startswith("GPU-")
    assert answers["utilisation"] == {"gpu": 0, "memory": 0}
    assert answers["memory"]["used"] + answers["memory"]["free"] == answers["memory"]["total"]
    v2 = answers["memory v2"]
    assert v2["used"] + v2["free"] + v2["reserved"] == v2["total"] == answers["memory"]["total"]
    assert v2["total"] - v2["reserved"] == 1000 << 20
    assert answers["event reasons"] == answers["throttle reasons"] == answers["event reasons idle"]
    assert answers["sm clock"] < answers["max sm clock"]
    assert answers["power"] < answers["power limit"]
    assert answers["nvlink"] == [1, 1, 1, 1, 0, 0]
    assert [f[1] for f in answers["fields"]] == [0, 0, 0, 0, 0, 3]
    assert answers["compute processes"] == []
    assert answers["pci"]["busId"] == "00000000:01:00.0"


def test_structures_have_the_size_that_pynvml_gives_them(simgpu: Simgpu) -> None:
    """The C structures are those of pynvml, so nothing is written beyond what the caller owns."""

    def sizes(_probe: Any) -> Any:
        import ctypes

        import pynvml

        library = ctypes.CDLL("libnvidia-ml.so.1")
        library.simgpu_nvml_sizes.restype = ctypes.c_char_p
        ours = dict(line.split() for line in library.simgpu_nvml_sizes().decode().splitlines())
        return [(name, int(size), ctypes.sizeof(getattr(pynvml, name))) for name, size in ours.items()]

    pairs = simgpu(sizes).result
    assert len(pairs) > 15
    assert [p for p in pairs if p[1] != p[2]] == []


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("library missing", 12),
        ("driver not loaded", 9),
        ("driver and library differ", 18),
        ("no permission", 4),
    ],
)
def test_a_driver_that_is_not_there_fails_at_init(simgpu: Simgpu, fault: str, code: int) -> None:
    """A missing library, a driver that is not loaded, of another version or out of reach is an NVMLError at init."""

    def start(_probe: Any) -> int:
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return error.value
        return 0

    assert simgpu(start, nvml=fault).result == code


def test_a_call_without_init_is_refused(simgpu: Simgpu) -> None:
    """Asking before init, after shutdown, or about a GPU that does not exist is an error of its own."""

    def ask(_probe: Any) -> list[int]:
        import ctypes

        library = ctypes.CDLL("libnvidia-ml.so.1")
        n, handle = ctypes.c_uint(), ctypes.c_void_p()
        codes = [library.nvmlDeviceGetCount_v2(ctypes.byref(n)), library.nvmlInit_v2()]
        codes.append(library.nvmlDeviceGetHandleByIndex_v2(7, ctypes.byref(handle)))
        codes.append(library.nvmlDeviceGetPowerUsage(ctypes.byref(n), ctypes.byref(n)))
        codes += [
            library.nvmlShutdown(),
            library.nvmlDeviceGetCount_v2(ctypes.byref(n)),
            library.nvmlShutdown(),
        ]
        return codes

    assert simgpu(ask).result == [1, 0, 2, 2, 0, 1, 1]


@pytest.mark.parametrize("fault", ["fields unsupported", "old driver", "no permission for processes"])
def test_single_readings_fail_and_leave_the_others_alone(simgpu: Simgpu, fault: str) -> None:
    """A field that is unsupported, too new for the driver or not permitted fails by itself."""
    answers = simgpu(read_everything, nvml=fault).result
    failed = {name: answer for name, answer in answers.items() if str(answer).startswith("error")}
    expected = {
        "fields unsupported": {"power": "error 3", "temperature": "error 3", "pcie received": "error 3"},
        "old driver": {"event reasons": "error 13", "memory v2": "error 13", "gpm support": "error 13"},
        "no permission for processes": {"compute processes": "error 4", "process utilisation": "error 4"},
    }[fault]
    assert expected.items() <= failed.items()
    assert answers["utilisation"] == {"gpu": 0, "memory": 0}


def watch_until_lost(_probe: Any, calls: int) -> dict[str, Any]:
    import pynvml as n

    n.nvmlInit()
    handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    good, codes = [0] * len(handles), [0] * len(handles)
    for _ in range(calls):
        for i, handle in enumerate(handles):
            try:
                n.nvmlDeviceGetUtilizationRates(handle)
                good[i] += 1
            except n.NVMLError as error:
                codes[i] = error.value
    n.nvmlShutdown()
    return {"good": good, "codes": codes}


def test_a_gpu_is_lost_after_some_calls(simgpu: Simgpu) -> None:
    """One of two GPUs falls off the bus in mid-run; the other answers on."""
    run = simgpu(
        watch_until_lost, 50, preset="two GPUs", nvml={"lost_device": 1, "lost_after_calls": 30}
    ).result
    assert run["codes"] == [0, 15]
    assert run["good"][0] == 50
    assert 0 < run["good"][1] < 50


def test_a_gpu_is_lost_after_some_time(simgpu: Simgpu) -> None:
    """Losing a GPU can be asked for by the clock; with zero seconds it is gone at once."""
    assert simgpu(watch_until_lost_at_once, nvml={"lost_after_s": 0}).result == 15


def watch_until_lost_at_once(_probe: Any) -> int:
    import pynvml as n

    n.nvmlInit()
    try:
        n.nvmlDeviceGetHandleByIndex(0)
    except n.NVMLError as error:
        return error.value
    return 0


def test_a_partitioned_gpu_hides_its_utilisation(simgpu: Simgpu) -> None:
    """With MIG on, the whole has no utilisation, and the slices have names, memory and numbers of their own."""

    def slices(_probe: Any) -> Any:
        import pynvml as n

        n.nvmlInit()
        whole = n.nvmlDeviceGetHandleByIndex(0)
        try:
            utilisation = n.nvmlDeviceGetUtilizationRates(whole).gpu
        except n.NVMLError as error:
            utilisation = f"error {error.value}"
        parts = []
        for i in range(n.nvmlDeviceGetMaxMigDeviceCount(whole)):
            try:
                part = n.nvmlDeviceGetMigDeviceHandleByIndex(whole, i)
            except n.NVMLError_NotFound:
                continue
            uuid = n.nvmlDeviceGetUUID(part)
            parts.append(
                {
                    "uuid": uuid,
                    "found": n.nvmlDeviceGetGpuInstanceId(n.nvmlDeviceGetHandleByUUID(uuid.encode())),
                    "is slice": n.nvmlDeviceIsMigDeviceHandle(part).value,
                    "parent": n.nvmlDeviceGetIndex(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)),
                    "memory": n.nvmlDeviceGetMemoryInfo(part).total,
                    "attributes": n.nvmlDeviceGetAttributes(part).memorySizeMB,
                }
            )
        return {
            "mode": n.nvmlDeviceGetMigMode(whole),
            "utilisation": utilisation,
            "total": n.nvmlDeviceGetMemoryInfo(whole).total,
            "parts": parts,
        }

    answer = simgpu(slices, nvml="MIG").result
    assert answer["mode"] == [1, 1]
    assert answer["utilisation"] == "error 3"
    assert [p["found"] for p in answer["parts"]] == [1, 2]
    assert {p["is slice"] for p in answer["parts"]} == {1}
    assert len({p["uuid"] for p in answer["parts"]}) == 2
    assert all(p["uuid"].startswith("MIG-") for p in answer["parts"])
    assert sum(p["memory"] for p in answer["parts"]) <= answer["total"]


def test_a_throttled_gpu_says_why(simgpu: Simgpu) -> None:
    """Throttle reasons, clocks, power, heat and the PCIe link are what a test sets, for one GPU of several."""
    nvml = {"throttle_1": 0x40, "temperature_c_1": 91, "power_w_1": 399, "pcie_gen": 1, "pcie_width": 4}

    def readings(_probe: Any) -> Any:
        import pynvml as n

        n.nvmlInit()
        found = []
        for i in range(2):
            h = n.nvmlDeviceGetHandleByIndex(i)
            found.append(
                {
                    "reasons": n.nvmlDeviceGetCurrentClocksEventReasons(h),
                    "clock": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM)
                    / n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
                    "temperature": n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
                    "power": n.nvmlDeviceGetPowerUsage(h),
                    "generation": [
                        n.nvmlDeviceGetCurrPcieLinkGeneration(h),
                        n.nvmlDeviceGetMaxPcieLinkGeneration(h),
                    ],
                    "width": [n.nvmlDeviceGetCurrPcieLinkWidth(h), n.nvmlDeviceGetMaxPcieLinkWidth(h)],
                }
            )
        return found

    cool, hot = simgpu(readings, preset="two GPUs", nvml=nvml).result
    assert cool["reasons"] == 1
    assert hot["reasons"] == 0x40
    assert hot["clock"] == pytest.approx(0.6, abs=0.01)
    assert (cool["temperature"], hot["temperature"]) == (36, 91)
    assert hot["power"] == 399_000
    assert hot["generation"] == [1, 4]
    assert hot["width"] == [4, 16]


def test_another_process_shares_the_gpu(simgpu: Simgpu) -> None:
    """A stranger's process shows in the list, in the memory and in the utilisation."""
    answers = simgpu(read_everything, nvml={"processes": "4242:512:35,4243:100:10:1"}).result
    assert [(p["pid"], p["usedGpuMemory"]) for p in answers["compute processes"]] == [(4242, 512 << 20)]
    assert [(p["pid"], p["smUtil"]) for p in answers["process utilisation"]] == [(4242, 35)]
    assert answers["utilisation"]["gpu"] == 35
    assert answers["memory v2"]["used"] == 512 << 20


def test_knobs_and_faults_are_checked(simgpu: Simgpu) -> None:
    """A knob that does not exist, and a function that looks outside itself, are refused before anything starts."""
    outside = 3

    def needs_it(_probe: Any) -> int:
        return outside

    with pytest.raises(ValueError, match="unknown knobs"):
        simgpu(watch_until_lost_at_once, knobs={"bandwith": 3})
    with pytest.raises(ValueError, match="cannot see outside"):
        simgpu(needs_it)
    with pytest.raises(KeyError):
        simgpu(watch_until_lost_at_once, nvml="no such fault")
    assert "MIG" in FAULTS


def test_an_uuid_is_stable_and_distinct(simgpu: Simgpu) -> None:
    """UUIDs and PCI addresses find the same GPU again."""

    def find(_probe: Any) -> Any:
        import pynvml as n

        n.nvmlInit()
        found = []
        for i in range(n.nvmlDeviceGetCount()):
            h = n.nvmlDeviceGetHandleByIndex(i)
            by_uuid = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h).encode())
            by_bus = n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h).busId.encode())
            found.append(
                (n.nvmlDeviceGetIndex(by_uuid), n.nvmlDeviceGetIndex(by_bus), n.nvmlDeviceGetUUID(h))
            )
        return found

    found = simgpu(find, knobs={"count": 3}, env={"CUDA_VISIBLE_DEVICES": "2"}).result
    assert [(a, b) for a, b, _ in found] == [(0, 0), (1, 1), (2, 2)]
    assert all(
        re.fullmatch(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", u)
        for *_, u in found
    )
    assert len({u for *_, u in found}) == 3
