"""From columns to what a step consists of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces import MS, US, Event, Plane, job, space
from tfdiag.model.device import DeviceTrace, TracedSteps
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.timeline import condense, read_trace


def condensed(data: bytes) -> DeviceTrace:
    """Read and condense a trace."""
    return condense(read_trace(data))


def steps_of(trace: DeviceTrace) -> TracedSteps:
    """Give the steps; their segments add up."""
    assert isinstance(trace.steps, TracedSteps)
    assert sum(trace.steps.segments.values()) == pytest.approx(trace.steps.mean_s)
    return trace.steps


def in_ms(steps: TracedSteps) -> dict[str, float]:
    """Give the segments that take time."""
    return {name: round(seconds * 1e3, 4) for name, seconds in steps.segments.items() if seconds}


def test_gives_the_parts_of_a_step_back():
    """A step of known parts: each goes to its segment, and they add up."""
    data = job(host=2 * MS, wait=3 * MS, copy=4 * MS, late=MS // 2, kernel=MS, back=MS // 4, collective=MS)
    steps = steps_of(condensed(data))
    assert steps.count == 5
    assert steps.found_by == "calls of the function inference_one_step_on_iterator"
    assert steps.mean_s == pytest.approx(16.25e-3)
    assert in_ms(steps) == {
        "host": 2, "input_wait": 3, "host_to_device": 4, "launch": 2, "device_compute": 4,
        "device_to_host": 0.25, "collective": 1,
    }  # fmt: skip


def test_every_event_is_counted_once():
    """The kinds of events together are all events."""
    trace = condensed(job(6, wait=MS, copy=MS, back=MS, collective=MS))
    assert trace.events == {
        "kernels": 24, "collectives": 6, "copies to the device": 6, "copies to the host": 6,
        "launches by the host": 42, "on the host": 18,
    }  # fmt: skip


def test_what_a_kernel_hides_costs_nothing():
    """A copy, a wait and the host's work beside a kernel are the device's computing."""
    trace = condensed(job(copy=2 * MS, overlap=True, kernels=4))
    assert in_ms(steps_of(trace)) == {"device_compute": 4}
    copies = trace.devices[0].copy("host_to_device")
    assert copies is not None
    assert copies.overlapped_s == pytest.approx(copies.busy_s) == pytest.approx(10e-3)


def test_copies_tell_bytes_memory_and_bandwidth():
    """Totals are of the steps that were seen whole; five of six."""
    trace = condensed(job(copy=4 * MS, copy_bytes=8_000_000))
    copies = trace.devices[0].copy("host_to_device")
    assert copies is not None
    assert copies.count == 5
    assert copies.bytes == Quantity(40e6, "B", source="the trace", count=5)
    assert isinstance(copies.pageable_bytes, Quantity) and copies.pageable_bytes.value == 40e6
    assert isinstance(copies.pinned_bytes, Quantity) and copies.pinned_bytes.value == 0
    assert isinstance(copies.bandwidth, Quantity)
    assert copies.bandwidth.value == pytest.approx(2e9)
    assert trace.devices[0].copy("device_to_device") is None


def test_launches_and_their_gaps():
    """Kernels shorter than their launch, and the device's idling for launches that came late."""
    (device,) = condensed(job(kernel=2 * US, launch=5 * US, late=10 * US)).devices
    assert device.kernels == device.launches == device.short_kernels == 20
    assert device.median_kernel_s == pytest.approx(2e-6)
    assert device.late_gap_s == pytest.approx(19 * 10e-6)
    assert device.launch_s == pytest.approx(20 * 5e-6)


def test_idle_with_work_queued_is_unexplained():
    """The next kernel was launched long before, so it is not the host that the device waits for."""
    host = [Event("FunctionRun", at, 9 * MS, {"id": at}) for at in range(0, 60 * MS, 10 * MS)]
    calls, kernels = [], []
    for index, at in enumerate(range(0, 60 * MS, 10 * MS)):
        for part, (begin, took) in enumerate(((MS, MS), (6 * MS, 3 * MS))):
            identity = {"correlation_id": 2 * index + part + 1}
            calls.append(Event("cuLaunchKernel", at + MS // 2, 5 * US, identity))
            kernels.append(Event("gemm", at + begin, took, identity))
    trace = condensed(
        space(
            Plane("/device:GPU:0", {"Stream #1(Compute)": kernels}),
            Plane("/host:CPU", {"main": host, "gpu": calls}),
        )
    )
    assert in_ms(steps_of(trace)) == {"device_compute": 4, "launch": 1, "unexplained": 4, "host": 1}
    assert trace.devices[0].queued_gap_s == pytest.approx(5 * 4e-3)


def test_a_prefetch_in_the_background_is_no_wait():
    """Only what the step itself asks for is its wait; the copy of a batch has a name like it."""
    main, other, kernels = [], [], []
    for number in range(5):
        at = number * 10 * MS
        main.append(Event("FunctionRun", at, 8 * MS, {"id": -10 - number}))
        main.append(Event("IteratorGetNext/_7:_Send", at, 8 * MS))
        other.append(Event("IteratorGetNextOp::DoCompute", at, 10 * MS, {"id": 1000 + number}))
        other.append(Event("IteratorGetNextOp::DoCompute", at, 2 * MS, {"id": -10 - number}))
        kernels.append(Event("gemm", at + 3 * MS, 5 * MS))
    # Events of one thread nest; here each is on a thread of its own.
    lines = {"main": main, "asks/1": other[0::2], "asks/2": other[1::2]}
    trace = condensed(
        space(Plane("/device:GPU:0", {"Stream #1(Compute)": kernels}), Plane("/host:CPU", lines))
    )
    assert in_ms(steps_of(trace)) == {"input_wait": 2, "launch": 1, "device_compute": 5, "host": 2}


def test_the_end_of_an_epoch_is_no_part_of_a_step():
    """The pause is left out, and so is the call behind it, whose first batch takes longer."""
    data = job(13, host=MS, wait=2 * MS, kernels=4, late=MS, epoch=5, pause=100 * MS)
    with_pauses = steps_of(condensed(data))
    assert with_pauses.count == 12
    assert in_ms(with_pauses)["host"] == pytest.approx(1 + 200 / 12, abs=1e-3)
    trace = condense(read_trace(data), ends_of_epochs=[4, 9])
    steps = steps_of(trace)
    assert steps.count == 8
    assert in_ms(steps) == {"host": 1, "input_wait": 2, "launch": 4, "device_compute": 4}
    assert max(steps.duration_s) == pytest.approx(11e-3)
    (device,) = trace.devices
    assert device.kernels == 8 * 4
    # Nothing is known of the gap before the first kernel of each of the three stretches.
    assert device.late_gap_s == pytest.approx((8 * 4 - 3) * 1e-3 + (8 - 3) * 3e-3)
    assert steps.kernels == (4,) * 8


def test_a_trace_that_begins_with_an_epoch():
    """Its first call has the first batch."""
    trace = condense(read_trace(job(8)), ends_of_epochs=[-1])
    assert steps_of(trace).count == 6


def test_epochs_of_hardly_a_call():
    """Where no step would be left, those at the end of an epoch last as long as their calls."""
    data = job(9, host=MS, kernels=4, epoch=2, pause=100 * MS)
    steps = steps_of(condense(read_trace(data), ends_of_epochs=[1, 3, 5, 7]))
    assert steps.count == 8
    assert in_ms(steps) == {"host": 0.5, "device_compute": 4}


def kernels_at(*begins: int, took: int = MS, name: str = "gemm") -> list[Event]:
    """Give kernels alike."""
    return [Event(name, begin, took) for begin in begins]


def test_markers_go_before_functions():
    """Steps that the caller marked are steps."""
    marks = [Event("train", at * 10 * MS, 9 * MS, {"step_num": at}) for at in range(4)]
    runs = [Event("FunctionRun", at * 5 * MS, 4 * MS, {"id": at}) for at in range(8)]
    device = Plane("/device:GPU:0", {"Stream #1(Compute)": kernels_at(*range(0, 40 * MS, 5 * MS))})
    steps = steps_of(condensed(space(device, Plane("/host:CPU", {"main": marks + runs}))))
    assert steps.found_by == 'step markers "train"'
    assert steps.count == 3
    assert steps.mean_s == pytest.approx(10e-3)


def test_modules_of_xla_mark_steps():
    """Without a host's word the most costly module does."""
    modules = [Event(f"jit_train_step({7})", at * 10 * MS, 9 * MS, {}) for at in range(5)]
    modules += [Event("jit_small(1)", at * 10 * MS + 9 * MS, 10 * US, {}) for at in range(5)]
    lines = {"Stream #1(Compute)": kernels_at(*range(0, 50 * MS, 10 * MS)), "XLA Modules": modules}
    steps = steps_of(condensed(space(Plane("/device:GPU:0", lines))))
    assert steps.found_by == "runs of the XLA module jit_train_step"
    assert steps.count == 4
    assert in_ms(steps) == {"device_compute": 1, "unexplained": 9}


def test_without_marks_all_is_one_step():
    """And that is said; what the device waited for is not made up."""
    trace = condensed(space(Plane("/device:GPU:0", {"Stream #1(Compute)": kernels_at(0, 3 * MS)})))
    steps = steps_of(trace)
    assert steps.whole
    assert "counts as one" in steps.found_by
    assert in_ms(steps) == {"device_compute": 2, "unexplained": 2}
    assert ("what the device waited for", "the trace holds no events of the host") in trace.unknown


def test_several_devices_are_a_mean():
    """Each device has segments of its own; what did nothing is named."""
    one = Plane("/device:GPU:0", {"Stream #1(Compute)": kernels_at(0, 10 * MS, 20 * MS, took=6 * MS)})
    two = Plane("/device:GPU:1", {"Stream #1(Compute)": kernels_at(0, 10 * MS, 20 * MS, took=2 * MS)})
    host = Plane(
        "/host:CPU", {"main": [Event("FunctionRun", at * 10 * MS, 9 * MS, {"id": at}) for at in range(3)]}
    )
    trace = condensed(space(one, two, Plane("/device:GPU:2", {}), host))
    assert in_ms(steps_of(trace)) == {"device_compute": 4, "launch": 5, "host": 1}
    assert [device.name for device in trace.devices] == ["/device:GPU:0", "/device:GPU:1"]
    assert trace.idle_devices == ("/device:GPU:2",)


def test_no_event_of_a_device_says_how_to_get_some():
    """CUPTI was not permitted: that is a reason, not an idle device."""
    host = Plane("/host:CPU", {"main": [Event("FunctionRun", at * MS, MS, {"id": at}) for at in range(4)]})
    trace = condensed(space(Plane("/device:GPU:0", {}), host, errors=["CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"]))
    assert isinstance(trace.steps, Missing)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in trace.steps.reason
    assert ("what the profiler could not trace", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES") in trace.unknown


def test_without_an_accelerator_the_host_computes():
    """The step's own ops compute there; those of the input run beside it and while it waits."""
    main = [Event("FunctionRun", at * 10 * MS, 9 * MS, {"id": at - 9}) for at in range(4)]
    gets = [Event("IteratorGetNextOp::DoCompute", at * 10 * MS, 2 * MS, {"id": at - 9}) for at in range(4)]
    ops = [Event("ExecutorState::Process", at * 10 * MS + MS, 7 * MS, {"id": at - 9}) for at in range(4)]
    other = [Event("ExecutorState::Process", at * 10 * MS, 10 * MS, {"id": 50 + at}) for at in range(4)]
    lines = {"main": main, "get": gets, "pool": ops, "the input's pool": other}
    trace = condensed(space(Plane("/host:CPU", lines)))
    assert in_ms(steps_of(trace)) == {"device_compute": 6, "input_wait": 2, "launch": 1, "host": 1}
    assert trace.devices == ()


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([Event("gemm", 0, 5 * MS), Event("gemm", 2 * MS, 5 * MS)], "overlap on a stream"),
        ([Event("gemm", 0, 5 * MS), Event("gemm", 9 * MS, -2 * MS)], "the clock ran backwards"),
    ],
)
def test_clocks_out_of_order_are_said(events: list[Event], said: str):
    """Time is counted once whatever the clocks did, and a warning says that they did."""
    trace = condensed(space(Plane("/device:GPU:0", {"Stream #1(Compute)": events})))
    assert any(said in warning for warning in trace.warnings)
    assert steps_of(trace).mean_s > 0


def test_a_device_ahead_of_its_host_is_said():
    """Work that begins before it was launched shows that two clocks differ."""
    run = [Event("FunctionRun", at * 10 * MS, 9 * MS, {"id": at}) for at in range(3)]
    calls = [Event("cuLaunchKernel", 5 * MS, 5 * US, {"correlation_id": 1})]
    kernels = [Event("gemm", 2 * MS, MS, {"correlation_id": 1})]
    lines = {"main": run, "gpu": calls}
    trace = condensed(
        space(Plane("/device:GPU:0", {"Stream #1(Compute)": kernels}), Plane("/host:CPU", lines))
    )
    assert any("clocks of host and device differ" in warning for warning in trace.warnings)


def test_old_launches_carry_the_kernels_name():
    """In TensorFlow up to 2.4 the host's side of a launch has the kernel's name; its stats tell."""
    run = [Event("FunctionRun", at * 10 * MS, 9 * MS, {"id": at}) for at in range(3)]
    calls = [Event("gemm", at * 10 * MS, 9 * US, {"correlation_id": at + 1}) for at in range(3)]
    kernels = [Event("gemm", at * 10 * MS + MS, MS, {"correlation_id": at + 1}) for at in range(3)]
    lines = {"main": run, "tf_gpu_private_0/1": calls}
    trace = condensed(
        space(Plane("/device:GPU:0", {"Stream #1(Compute)": kernels}), Plane("/host:CPU", lines))
    )
    assert trace.events["kernels"] == 3
    assert trace.events["launches by the host"] == 3
    assert trace.devices[0].launches == 2


def test_the_busiest_ops_have_their_layer():
    """By op, most costly first."""
    first, second = condensed(job(kernels=3)).busiest
    assert (first.op, first.layer) == ("gradient_tape/sequential/dense_0/MatMul:MatMul", "sequential/dense_0")
    assert (first.count, second.count) == (10, 5)


def test_long_traces_stay_small():
    """A report does not grow with the steps of a trace."""
    steps = steps_of(condensed(job(600, kernels=1)))
    assert steps.count == 599
    assert len(steps.duration_s) == len(steps.busy_s) == len(steps.kernels) == 256


def test_hosts_of_a_run_are_taken_together(tmp_path: Path):
    """Each on a clock of its own, and the mean is of all."""
    run = tmp_path / "plugins" / "profile" / "2024_01_01"
    run.mkdir(parents=True)
    (run / "a.xplane.pb").write_bytes(job(5, kernel=MS))
    (run / "b.xplane.pb").write_bytes(job(5, kernel=3 * MS, late=1, collective=2))
    trace = condense(read_trace(tmp_path))
    assert trace.hosts == ("a", "b")
    assert [device.host for device in trace.devices] == ["a", "b"]
    assert steps_of(trace).mean_s == pytest.approx(8e-3, rel=1e-3)
