"""The simulated GPU as TensorFlow sees it: it trains, takes the time that it was told to, and tells the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .harness import Run, ScenarioError, Simgpu
from .truth import Truth, overlap_ns


def train(probe: Any, device: str) -> Any:
    import keras
    import numpy as np
    import tensorflow as tf

    with tf.device(device):
        keras.utils.set_random_seed(3)
        layers = [keras.layers.Dense(24, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(4)]
        model = keras.Sequential([keras.Input((8,)), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, jit_compile=False)
        rng = np.random.default_rng(0)
        x = rng.random((256, 8), "float32")
        y = x[:, :4].argmax(1)
        history = model.fit(x, y, batch_size=32, epochs=3, shuffle=False, verbose=0)
        probe.mark("trained")
        counters = probe.counters()
        by_op = probe.by_op()
    details = [tf.config.experimental.get_device_details(d) for d in tf.config.list_physical_devices("GPU")]
    return {"loss": history.history["loss"], "counters": counters, "by_op": by_op, "details": details}


@pytest.fixture(scope="module")
def trained(simgpu: Simgpu) -> Run:
    """A small model trained on the GPU."""
    return simgpu(train, "GPU:0")


def test_a_model_learns_what_it_learns_on_the_cpu(simgpu: Simgpu, trained: Run) -> None:
    """The same seeds give the same losses on both devices, dropout included."""
    on_cpu = simgpu(train, "CPU:0").result["loss"]
    assert trained.result["loss"] == pytest.approx(on_cpu, rel=1e-5)
    assert on_cpu[-1] < on_cpu[0]


def test_the_log_and_the_counters_agree(trained: Run) -> None:
    """The log has one row for each piece of work that the counters count, with the same times and bytes."""
    truth, counters = trained.truth, trained.result["counters"]
    before = truth.where(truth.t1 <= truth.moment("trained"))
    assert len(before.of("kernel")) == counters["kernels"]
    assert before.of("kernel").total_ns == counters["kernel_ns"]
    assert before.of("h2d").bytes.sum() == counters["h2d_bytes"]
    assert before.of("d2h").bytes.sum() == counters["d2h_bytes"]
    assert trained.result["by_op"]["MatMul"][0] == (before.name == "MatMul").sum()


def test_every_batch_crosses_the_bus_once(trained: Run) -> None:
    """Three epochs of eight batches of 32 x 8 floats are 24 copies of 1 KiB."""
    copies = trained.truth.of("h2d")
    assert (copies.bytes == 32 * 8 * 4).sum() == 24


def test_times_are_in_order(trained: Run) -> None:
    """The host calls before the device works, and a stream does one thing after the other."""
    truth = trained.truth
    assert (truth.api0 <= truth.t0).all()
    assert (truth.t0 <= truth.t1).all()
    for stream in set(truth.stream.tolist()) - {-1}:
        rows = truth.where(truth.stream == stream)
        assert (rows.t0[1:] >= rows.t1[:-1]).all()


def move_and_multiply(probe: Any) -> None:
    import tensorflow as tf

    with tf.device("CPU:0"):
        big, small = [tf.ones((512, 512)) for _ in range(5)], tf.ones((64, 64))
    with tf.device("GPU:0"):
        on_gpu = tf.identity(small)
        probe.mark("start")
        copied = [tf.identity(b) for b in big]
        for _ in range(200):
            on_gpu = tf.matmul(on_gpu, on_gpu) * 0.0
        on_gpu.numpy(), copied[-1].numpy()
        probe.mark("end")


def _as_modelled(work: Truth) -> np.ndarray:
    """Durations where the host was quick enough to play the GPU."""
    return (work.t1 - work.t0)[~work.overrun]


@pytest.fixture(scope="module", params=["default", "slow bus", "slow launch", "small GPU"])
def machine(simgpu: Simgpu, request: pytest.FixtureRequest) -> tuple[str, Run]:
    """The same work on each of the machines."""
    return request.param, simgpu(move_and_multiply, preset=request.param)


def test_a_machine_takes_the_time_that_it_models(machine: tuple[str, Run]) -> None:
    """Copies, kernels and launches are never shorter than modelled, and not much longer in the middle of the field."""
    preset, run = machine
    truth = run.truth.between("start", "end")
    modelled = {  # ns: a copy of 1 MiB from pageable memory, a product of 64 x 64, a launch
        "default": (2**20 / 6 + 8e3, 3e3, 4e3),
        "slow bus": (2**20 / 0.2 + 8e3, 3e3, 4e3),
        "slow launch": (2**20 / 6 + 8e3, 3e3, 60e3),
        "small GPU": (2**20 / 6 + 8e3, 2 * 64**3 / 20, 4e3),
    }[preset]
    copies = truth.where((truth.kind == "h2d") & (truth.bytes == 2**20))
    products = truth.where(truth.name == "MatMul")
    assert len(copies) == 5
    assert len(products) == 200
    measured = (_as_modelled(copies), _as_modelled(products), products.api1 - products.api0)
    for times, expected in zip(measured, modelled, strict=True):
        if len(times):
            assert times.min() >= expected * 0.999
            assert np.median(times) < expected * 1.5 + 20e3


def test_prefetching_to_the_device_hides_copies(simgpu: Simgpu) -> None:
    """Copies overlap with kernels when a thread of their own makes them, and only then."""

    def feed(probe: Any, prefetch: bool) -> Any:
        import tensorflow as tf

        data = tf.data.Dataset.from_tensors(tf.ones((256, 1024))).repeat(12)
        if prefetch:
            data = data.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))
        with tf.device("GPU:0"):
            weights = tf.random.stateless_uniform((1024, 1024), (1, 2))

            @tf.function
            def step(x: Any) -> Any:
                for _ in range(4):
                    x = tf.matmul(x, weights)
                return tf.reduce_sum(x)

            step(tf.ones((256, 1024)))
            probe.mark("start")
            for batch in data:
                step(batch).numpy()
            probe.mark("end")

    # A copy waits for the kernels that are queued, so it hides behind those that the host is still launching.
    # Milliseconds each: threads that wait so long sleep, and do not fight for the cores.
    knobs = {"gflops": 200, "launch_us": 3000, "pageable_gbps": 0.1, "h2d_gbps": 0.1, "compute": 0}
    shares = []
    for prefetch in (False, True):
        run = simgpu(feed, prefetch, knobs=knobs)
        truth = run.truth.between("start", "end")
        copies = truth.where((truth.kind == "h2d") & (truth.bytes == 2**20))
        assert len(copies) >= 10
        shares.append(overlap_ns(copies, truth.of("kernel")) / copies.busy_ns)
    assert shares[0] < 0.02, shares
    assert shares[1] > 0.1, shares


def test_the_profiler_tells_what_the_log_tells(simgpu: Simgpu) -> None:
    """tf.profiler writes one event for each kernel and copy, joined with its launch, at the very same times."""

    def profile(probe: Any) -> Any:
        import glob

        import tensorflow as tf
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        with tf.device("GPU:0"):
            x = tf.ones((64, 64))
            tf.matmul(x, x).numpy()
            tf.profiler.experimental.start("profile")
            probe.mark("start")
            for _ in range(20):
                tf.matmul(x, x)
            tf.matmul(x, x).numpy()
            probe.mark("end")
            tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        with open(glob.glob("profile/**/*.xplane.pb", recursive=True)[0], "rb") as file:
            space.ParseFromString(file.read())
        events, launches = [], 0
        for plane in space.planes:
            names = {k: v.name for k, v in plane.event_metadata.items()}
            stats = {k: v.name for k, v in plane.stat_metadata.items()}
            for line in plane.lines:
                for event in line.events:
                    joined = [s.uint64_value for s in event.stats if stats[s.metadata_id] == "correlation_id"]
                    if plane.name.startswith("/device:GPU"):
                        start = line.timestamp_ns + event.offset_ps // 1000
                        events.append((names[event.metadata_id], start, event.duration_ps // 1000, joined[0]))
                    else:
                        launches += bool(joined)
        return {"events": events, "launches": launches}

    run = simgpu(profile)
    truth = run.truth.between("start", "end")
    events = {tuple(event) for event in run.result["events"]}
    assert sum(event[0] == "MatMul" for event in events) == 21
    # The profiler counts from its own start: what is the same is what lies between.
    base = min(start for name, start, *_ in events if name == "MatMul")
    rows = {
        (str(name), int(t0), int(t1 - t0), int(c))
        for name, t0, t1, c in zip(truth.name, truth.t0, truth.t1, truth.correlation, strict=True)
    }
    first = min(t0 for name, t0, *_ in rows if name == "MatMul")
    relative = {(name, start - base, length, c) for name, start, length, c in events}
    assert {(name, t0 - first, length, c) for name, t0, length, c in rows} <= relative
    assert run.result["launches"] == len(events)


def test_nvml_follows_what_the_gpu_does(simgpu: Simgpu) -> None:
    """Utilisation, clocks, power, memory, traffic, processes and GPM rise while the GPU works, and fall afterwards."""

    def work(probe: Any) -> Any:
        import os
        import time

        import pynvml as n
        import tensorflow as tf

        n.nvmlInit()
        h = n.nvmlDeviceGetHandleByIndex(0)

        def read() -> dict[str, Any]:
            return {
                "gpu": n.nvmlDeviceGetUtilizationRates(h).gpu,
                "clock": n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
                "power": n.nvmlDeviceGetPowerUsage(h),
                "reasons": n.nvmlDeviceGetCurrentClocksEventReasons(h),
                "received": n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES),
            }

        idle = read()
        with tf.device("CPU:0"):
            batch = tf.ones((512, 1024))
        with tf.device("GPU:0"):
            x = tf.ones((512, 512))
            first = n.nvmlGpmSampleGet(h, n.nvmlGpmSampleAlloc())
            readings = []
            for _ in range(60):
                y = tf.matmul(x, x)
                tf.identity(batch)
                y.numpy()
                readings.append(read())
            busy = readings[-1]
            busy["received"] = max(r["received"] for r in readings)
            second = n.nvmlGpmSampleGet(h, n.nvmlGpmSampleAlloc())
        metrics = n.c_nvmlGpmMetricsGet_t()
        metrics.version, metrics.numMetrics = n.NVML_GPM_METRICS_GET_VERSION, 3
        metrics.sample1, metrics.sample2 = first, second
        wanted = (
            n.NVML_GPM_METRIC_SM_UTIL,
            n.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
            n.NVML_GPM_METRIC_INTEGER_UTIL,
        )
        for i, metric in enumerate(wanted):
            metrics.metrics[i].metricId = metric
        n.nvmlGpmMetricsGet(metrics)
        processes = n.nvmlDeviceGetComputeRunningProcesses(h)
        sample = n.nvmlDeviceGetProcessUtilization(h, 0)[0]
        used = n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used
        deadline = time.monotonic() + 20
        # Utilisation and clock reasons look back over windows of their own.
        while ((now := read())["gpu"] > 0 or now["reasons"] == 0) and time.monotonic() < deadline:
            pass
        return {
            "idle": idle,
            "busy": busy,
            "after": read(),
            "gpm": [(m.value, m.nvmlReturn) for m in metrics.metrics[:3]],
            "processes": [(p.pid, p.usedGpuMemory) for p in processes],
            "sample": (sample.pid, sample.smUtil),
            "pid": os.getpid(),
            "used": used,
        }

    run = simgpu(work, knobs={"gflops": 30, "compute": 0}, nvml={"gpm": 1}).result
    idle, busy, after = run["idle"], run["busy"], run["after"]
    assert idle["gpu"] == after["gpu"] == 0
    assert busy["gpu"] >= 50
    assert idle["clock"] < busy["clock"]
    assert idle["power"] < busy["power"]
    assert (idle["reasons"], busy["reasons"], after["reasons"]) == (1, 0, 1)
    assert idle["received"] == 0 < busy["received"]
    (sm, sm_code), (received, received_code), (_, integer_code) = run["gpm"]
    assert (sm_code, received_code, integer_code) == (0, 0, 3)
    assert 40 <= sm <= 100
    assert received > 0
    assert run["processes"] == [[run["pid"], run["used"]]]
    assert run["used"] > 0
    assert run["sample"][0] == run["pid"]
    assert run["sample"][1] >= 50


def test_cuda_visible_devices_renumbers_for_tensorflow_only(simgpu: Simgpu) -> None:
    """TensorFlow's GPU 0 is the machine's GPU 2, which NVML goes on calling 2; a UUID names a GPU as well."""

    def use_first(probe: Any) -> Any:
        import pynvml as n
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        for device in gpus:
            with tf.device(device.name.removeprefix("/physical_device:")):
                tf.matmul(tf.ones((256, 256)), tf.ones((256, 256))).numpy()
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
        used = [n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).used > 0 for h in handles]
        return {"gpus": len(gpus), "used": used}

    uuid = "GPU-51a60000-0000-4000-8000-000000000000"
    run = simgpu(use_first, knobs={"count": 3, "mem_mb": 500}, env={"CUDA_VISIBLE_DEVICES": f"2,{uuid},7,1"})
    assert run.result["gpus"] == 2
    assert run.result["used"] == [True, False, True]
    assert set(run.truth.of("kernel").device) == {0, 1}


def test_two_gpus_train_together(simgpu: Simgpu) -> None:
    """MirroredStrategy reduces gradients between both GPUs; NVLink and the profiler tell what passes."""

    def mirror(probe: Any) -> Any:
        import keras
        import numpy as np
        import pynvml as n
        import tensorflow as tf

        from tfdiag.timeline import condense, read_trace

        strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.HierarchicalCopyAllReduce())
        with strategy.scope():
            model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(1)])
            model.compile("sgd", "mse", jit_compile=False)
        x, y = np.ones((64, 16), "float32"), np.ones((64, 1), "float32")
        loss = model.fit(x, y, batch_size=16, epochs=2, verbose=0).history["loss"]
        tf.profiler.experimental.start("profile")
        probe.mark("profiled")
        model.fit(x, y, batch_size=16, verbose=0)
        probe.mark("end")
        tf.profiler.experimental.stop()
        n.nvmlInit()
        handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        fields = [
            n.nvmlDeviceGetFieldValues(h, [n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX])[0] for h in handles
        ]
        return {
            "loss": loss,
            "replicas": strategy.num_replicas_in_sync,
            "events": condense(read_trace("profile")).events,
            "sent": [f.value.ullVal for f in fields],
        }

    run = simgpu(mirror, preset="two GPUs")
    assert run.result["replicas"] == 2
    assert run.result["loss"][1] < run.result["loss"][0]
    kernels = run.truth.of("kernel")
    assert (kernels.device == 0).sum() > 50
    assert (kernels.device == 1).sum() > 50
    between = run.truth.of("d2d")
    crossing = between.where(between.device != between.peer)
    assert len(crossing) > 0
    assert run.result["sent"] == [int(crossing.bytes.sum()) // 1024] * 2
    profiled = run.truth.between("profiled", "end").of("d2d")
    assert run.result["events"]["copies to other devices"] == (profiled.device != profiled.peer).sum()


def test_a_knob_that_is_no_number_stops_the_process(simgpu: Simgpu) -> None:
    """A misspelt bandwidth must not become a bandwidth of zero."""

    def start(probe: Any) -> Any:
        import tensorflow as tf

        return len(tf.config.list_physical_devices("GPU"))

    with pytest.raises(ScenarioError, match="SIMGPU_MEM_MB=plenty is not a number"):
        simgpu(start, knobs={"mem_mb": "plenty"})
