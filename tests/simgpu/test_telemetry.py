"""The telemetry over NVML's real C interface: everything that can be wrong with it, and a real diagnosis."""

from __future__ import annotations

from typing import Any

import pytest

from tfdiag.compat.gpu import hardware_signs

from .harness import Simgpu

OURS = {"throttled-gpu", "shared-gpu", "gpu-memory-pressure", "slow-link", "gpu-not-used"}


def through_the_door(_probe: Any) -> dict[str, Any]:
    """Open the door under one fault after the other; the library reads them at each init."""
    import os
    import sys
    from dataclasses import fields

    from tfdiag.compat import nvml as door
    from tfdiag.model.gpu import GpuSamples
    from tfdiag.model.quantity import Missing, Quantity

    early = "pynvml" in sys.modules

    def plain(value: Any) -> Any:
        return (
            value.value
            if isinstance(value, Quantity)
            else value.reason
            if isinstance(value, Missing)
            else value
        )

    def look(**knobs: object) -> Any:
        names = {f"SIMGPU_NVML_{name.upper()}": str(value) for name, value in knobs.items()}
        os.environ.update(names)
        try:
            opened = door.Nvml.open()
            if isinstance(opened, Missing):
                return opened.reason
            boards = opened.boards()
            found: Any = boards
            if isinstance(boards, Missing):
                found = boards.reason
            else:
                found = {
                    "driver": opened.driver,
                    "cuda": opened.cuda,
                    "boards": [seen(board) for board in boards],
                }
            opened.close()
            return found
        finally:
            for name in names:
                os.environ.pop(name)

    def seen(board: Any) -> Any:
        reader = board.reader()
        samples = [reader.read(float(moment)) for moment in range(7)]
        use = reader.use() if not reader.lost else Missing(reader.lost)
        reader.close()
        return {
            "uuid": board.uuid,
            "mig": board.mig,
            "lost": board.lost or reader.lost,
            "facts": {name: plain(value) for name, value in board.facts().items()},
            "samples": samples,
            "refused": reader.refused,
            "memory": plain(use) if isinstance(use, Missing) else {str(k): v for k, v in use.memory.items()},
            "busy": "" if isinstance(use, Missing) else plain(use.busy) if isinstance(use.busy, Missing)
            else {str(k): v for k, v in use.busy.items()},
            "slices": [seen(part) for part in board.slices],
        }  # fmt: skip

    answers = {
        "not loaded": look(init=9),
        "differ": look(init=18),
        "no permission": look(init=4),
        "unheard of": look(init=77),
        "healthy": look(processes="4242:512:35", gpm=1, nvlinks=4),
        "lost": look(lost_after_calls=0, lost_device=1),
        "unsupported": look(
            fail="nvmlDeviceGetPower*=3,nvmlDeviceGetTemperature*=3,nvmlDeviceGetPcieThroughput=3,"
            "nvmlDeviceGetFieldValues=3,nvmlDeviceGet*Pcie*=3,nvmlDeviceGetEnforced*=3"
        ),
        "old": look(
            fail="nvmlDeviceGet*EventReasons=13,nvmlDeviceGetMemoryInfo_v2=13,nvmlGpm*=13,"
            "nvmlDeviceGetFieldValues=13,nvmlDeviceGet*Processes_v3=13,nvmlDeviceGetGpuMaxPcie*=13"
        ),
        "secret": look(fail="nvmlDeviceGet*Process*=4", processes="4242:512:35"),
        "mute": look(fail="nvmlDevice*=999"),
        "cut": look(mig=2, fail="nvmlDeviceGetProcessUtilization=3"),
    }

    # The caller's own use: opened before ours, in use after it.
    import pynvml

    pynvml.nvmlInit()
    look()
    count = pynvml.nvmlDeviceGetCount()

    # A GPU that is lost while it is read: an init of somebody else's makes the library look at its faults again.
    opened = door.Nvml.open()
    first, second = (board.reader() for board in opened.boards())
    before = [first.read(0.0), second.read(0.0)]
    os.environ.update({"SIMGPU_NVML_LOST_AFTER_CALLS": "0", "SIMGPU_NVML_LOST_DEVICE": "1"})
    pynvml.nvmlInit()
    after = [first.read(1.0), second.read(1.0), second.read(2.0)]
    lost = [first.lost, second.lost]
    # Somebody shuts NVML down once too often.
    for _ in range(3):
        pynvml.nvmlShutdown()
    gone = first.read(2.0)
    opened.close()
    answers["in mid-run"] = {
        "before": before, "after": after, "lost": lost, "gone": gone, "why": first.lost,
        "users": pynvml._nvmlLib_refcount, "early": early, "count": count, "names": [f.name for f in fields(GpuSamples)],
    }  # fmt: skip
    return answers


def test_the_door_survives_everything(simgpu: Simgpu) -> None:
    """Each fault is a reason, each reading fails by itself, and the caller's own use of NVML is left alone."""
    answers = simgpu(through_the_door, preset="two GPUs").result

    assert answers["not loaded"] == "the NVIDIA driver is not loaded"
    assert "different versions" in answers["differ"]
    assert "no permission" in answers["no permission"]
    assert answers["unheard of"] == "NVML answers with error 77"

    healthy = answers["healthy"]
    assert (healthy["driver"], healthy["cuda"]) == ("550.54.15", "12.4")
    first = healthy["boards"][0]
    assert {name: value for name, value in first["facts"].items() if isinstance(value, str)} == {
        "bus_id": "00000000:01:00.0",
        "compute_capability": "9.0",
    }
    assert first["facts"]["max_sm_clock"] == 1410
    assert first["facts"]["power_limit"] == first["facts"]["default_power_limit"] == 400
    assert first["facts"]["nvlinks"] == 4
    assert first["refused"] == {}
    # Counters and GPM need two samples; what changes slowly is read now and then.
    names = set(answers["in mid-run"]["names"]) - {"at_s"}
    assert set().union(*first["samples"]) == names
    assert set(first["samples"][0]) == names - {
        "pcie_received", "pcie_sent", "nvlink_received", "nvlink_sent",
        "sm_active", "sm_occupancy", "tensor_active", "dram_active",
    }  # fmt: skip
    assert set(first["samples"][0]) - set(first["samples"][1]) == {
        "temperature",
        "memory_clock",
        "ecc_uncorrected",
    }
    assert first["samples"][1]["utilisation"] == 0.35
    assert first["memory"] == {"4242": 512 << 20}
    assert first["busy"] == {"4242": 0.35}

    fine, lost = answers["lost"]["boards"]
    assert fine["lost"] == ""
    assert lost["lost"] == "the GPU fell off the bus"
    assert lost["facts"] == {}
    assert not any(lost["samples"])

    unsupported = answers["unsupported"]["boards"][0]
    reason = "this GPU does not support it"
    for name in ("power", "temperature", "pcie_received", "pcie_generation"):
        assert unsupported["refused"][name] == reason
    assert unsupported["facts"]["power_limit"] == reason
    assert {"utilisation", "sm_clock", "throttle", "used_memory"} <= set(unsupported["samples"][6])

    old = answers["old"]["boards"][0]
    assert {"throttle", "used_memory", "pcie_received"} <= set(old["samples"][0])
    assert old["refused"]["sm_active"] == "the driver is too old for it"
    assert old["facts"]["pcie_gpu_generation"] == "the driver is too old for it"
    assert old["facts"]["pcie_max_generation"] == 4
    assert old["memory"] == {}

    secret = answers["secret"]["boards"][0]
    assert secret["memory"] == "NVML gives no permission for it"
    assert "utilisation" in secret["samples"][0]
    mute = answers["mute"]
    assert mute if isinstance(mute, str) else all(not any(board["samples"]) for board in mute["boards"])

    whole = answers["cut"]["boards"][0]
    assert whole["mig"] == "on"
    assert [part["mig"] for part in whole["slices"]] == ["slice", "slice"]
    part = whole["slices"][0]
    assert part["uuid"].startswith("MIG-")
    assert part["refused"]["utilisation"] == reason
    assert part["facts"]["memory"] < whole["facts"]["memory"]
    assert {"power", "sm_clock", "throttle"} <= set(part["samples"][0])

    run = answers["in mid-run"]
    assert all(run["before"])
    assert run["after"][0]
    assert run["after"][1:] == [{}, {}]
    assert run["lost"] == ["", "the GPU fell off the bus"]
    assert (run["gone"], run["why"]) == ({}, "another part of the process shut NVML down")
    assert run["users"] == 0
    assert run["count"] == 2
    assert not run["early"]


def without_a_library(_probe: Any) -> dict[str, Any]:
    """Sample a machine that has no NVML."""
    import sys
    import threading
    import time

    from tfdiag.collect.telemetry import GpuSampler
    from tfdiag.compat.nvml import Nvml, library_there
    from tfdiag.model.quantity import Missing

    opened = Nvml.open()
    before = threading.active_count()
    with GpuSampler(time.perf_counter) as sampler:
        during = threading.active_count()
    found = sampler.telemetry()
    return {
        "there": library_there(),
        "opened": opened.reason,
        "threads": during - before,
        "telemetry": found.reason if isinstance(found, Missing) else "",
        "pynvml": "pynvml" in sys.modules,
        "tensorflow": "tensorflow" in sys.modules,
    }


@pytest.mark.skipif(bool(hardware_signs()), reason="this machine has a GPU")
def test_a_machine_without_a_gpu_pays_nothing(simgpu: Simgpu) -> None:
    """No thread, no import, no word: where there is no library and no sign of a GPU there is nothing to do."""
    run = simgpu(without_a_library, nvml=None)
    assert run.result.pop("telemetry").startswith("there is no GPU")
    assert run.result == {
        "there": False,
        "opened": "there is no NVML library",
        "threads": 0,
        "pynvml": False,
        "tensorflow": False,
    }
    assert (run.stdout, run.stderr) == ("", "")


def sample_alone(_probe: Any, samples: int) -> dict[str, Any]:
    """Sample a GPU without a job and without TensorFlow, which is said to see it."""
    import json
    import time

    from tfdiag.collect import telemetry
    from tfdiag.model.codec import encode
    from tfdiag.model.gpu import GpuSoftware
    from tfdiag.model.measurements import Device
    from tfdiag.model.quantity import Missing

    absent = Missing("there is no TensorFlow here")
    telemetry.door.physical_gpus = lambda: [("GPU:0", "")]
    telemetry.door.allocated = lambda device: absent
    telemetry.door.allocator_limit = lambda device: absent
    telemetry.door.software = lambda **_: GpuSoftware()
    sampler = telemetry.GpuSampler(time.perf_counter, [Device("/device:GPU:0", "GPU")], period_s=0.005)
    with sampler:
        while len(sampler._at) < samples:
            time.sleep(0.005)
    return {"telemetry": json.loads(json.dumps(encode(sampler.telemetry()))), "hung": sampler._hung}


def test_a_gpu_that_is_lost_leaves_what_was_seen(simgpu: Simgpu) -> None:
    """Samples until then, why there are no more, and no guess about whose a process of another number is."""
    nvml = {"lost_after_calls": 250, "processes": "4242:512:35"}
    result = simgpu(sample_alone, 60, nvml=nvml).result
    (gpu,) = result["telemetry"]["gpus"]
    assert gpu["cut"] == "the GPU fell off the bus"
    assert 5 < len(gpu["samples"]["at_s"]) < 60
    assert gpu["samples"]["utilisation"]["values"][-1] == 0.35
    assert gpu["samples"]["sm_active"] == {"missing": "only Hopper and later GPUs have it"}
    assert [process["pid"] for process in gpu["processes"]] == [4242]
    assert "not this one" in gpu["processes_missing"]
    assert result["telemetry"]["allocators"][0]["peak"]["missing"]
    assert result["hung"] is False


def test_a_slice_is_what_tensorflow_sees_of_a_partitioned_gpu(simgpu: Simgpu) -> None:
    """Memory and processes of the slice, clocks and power of the whole; what a slice has not is missing."""
    result = simgpu(sample_alone, 8, nvml={"mig": 2, "gpm": 1}).result
    whole, part = result["telemetry"]["gpus"]
    assert (whole["mig"], whole["tensorflow"], part["mig"], part["tensorflow"]) == (
        "on",
        "",
        "slice",
        "GPU:0",
    )
    assert part["memory"]["value"] == whole["memory"]["value"] / 2
    samples = part["samples"]
    assert samples["utilisation"] == {"missing": "this GPU does not support it"}
    assert samples["sm_clock"]["values"][0] == 210
    assert "values" in samples["sm_active"]
    assert part["processes_missing"].startswith("the driver lists no process")


def train(_probe: Any, steps: int, check_stops: bool) -> dict[str, Any]:
    """Diagnose a job that keeps the GPU busy."""
    import json
    import os
    import threading
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tfdiag

    model = keras.Sequential([keras.layers.Dense(512, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    data = (
        tf.data.Dataset.from_tensors((np.ones((256, 512), "f"), np.ones((256, 1), "f"))).repeat().prefetch(2)
    )
    threads = threading.active_count()
    report = tfdiag.diagnose(model, data, budget=10, verify=False, steps=steps or None)
    result: dict[str, Any] = {
        "report": json.loads(report.to_json()),
        "text": str(report),
        "threads": threading.active_count() - threads,
    }
    if check_stops:
        import pynvml

        from tfdiag.collect.telemetry import GpuSampler

        users = pynvml._nvmlLib_refcount
        # Every call takes nearly a second: the thread hangs in one when it is told to stop.
        os.environ["SIMGPU_NVML_DELAY_US"] = "900000"
        sampler = GpuSampler(time.perf_counter, report.measurements.environment.devices)
        with sampler:
            while pynvml._nvmlLib_refcount == users:
                time.sleep(0.01)
            begin = time.perf_counter()
        result["stopped_s"] = time.perf_counter() - begin
        os.environ["SIMGPU_NVML_DELAY_US"] = "0"
        pynvml.nvmlInit()  # reads the delay again
        pynvml.nvmlShutdown()
        sampler._thread.join(30)
        result["alive"] = sampler._thread.is_alive()
        result["users"] = [users, pynvml._nvmlLib_refcount]
    return result


def findings(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in result["report"]["findings"] if finding["check"] in OURS}


def test_a_diagnosis_sees_what_is_wrong_with_the_gpu(simgpu: Simgpu) -> None:
    """Heat and a stranger on the second GPU, which is TensorFlow's first, are found; the thread ends with the run."""
    nvml = {
        "throttle_1": 0x40, "temperature_c_1": 91, "processes": "424242:512:35:1,424243:512:35:0", "reserved_mb": 0,
    }  # fmt: skip
    result = simgpu(
        train, 0, True, preset="small GPU", knobs={"count": 2}, nvml=nvml, env={"CUDA_VISIBLE_DEVICES": "1"}
    ).result
    found = findings(result)
    assert {"throttled-gpu", "shared-gpu"} <= set(found)
    assert "heat" in found["throttled-gpu"]["title"]
    assert "process 424242" in found["shared-gpu"]["title"]
    assert found["throttled-gpu"]["where"].startswith("GPU:0")
    hidden, gpu = result["report"]["measurements"]["gpu"]["gpus"]
    assert (hidden["tensorflow"], gpu["tensorflow"]) == ("", "GPU:0")
    assert "missing" in hidden["samples"]
    assert [process["ours"] for process in gpu["processes"]].count(True) == 1
    assert gpu["samples"]["temperature"]["values"][0] == 91
    live = result["report"]["measurements"]["live"]
    assert gpu["samples"]["at_s"][0] < live["start_s"][-1]
    assert gpu["samples"]["at_s"][-1] > live["start_s"][0]
    (allocator,) = result["report"]["measurements"]["gpu"]["allocators"]
    assert 0 < allocator["peak"]["value"] <= allocator["limit"]["value"] <= 512 << 20
    assert "\nGPU\n" in result["text"]
    assert result["threads"] == 0
    assert result["stopped_s"] < 0.9  # shorter than the call that it did not wait for
    assert not result["alive"]
    assert result["users"][0] == result["users"][1]


def test_a_healthy_gpu_gives_no_finding(simgpu: Simgpu) -> None:
    """A GPU at its full clock, alone, on its full link, is left in peace; and everything about it was decided."""
    result = simgpu(train, 0, False, preset="small GPU").result
    assert findings(result) == {}
    undecided = {check: reason for check, reason in result["report"]["not_run"] if check in OURS}
    assert undecided == {}


def test_a_gpu_that_tensorflow_does_not_see_is_named(simgpu: Simgpu) -> None:
    """NVML lists a GPU and this TensorFlow has none: the build is to blame, and the whole step computes on the CPU."""
    result = simgpu(train, 60, False, env={"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": ""}).result
    assert set(findings(result)) == {"gpu-not-used"}
    finding = findings(result)["gpu-not-used"]
    assert "CUDA" in finding["title"]
