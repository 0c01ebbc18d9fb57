"""Segments of a step against the make-up of the job, and the bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Cut, Synthetic, analysed
from tfdiag.analyse.analysis import Analysis, analyse
from tfdiag.analyse.breakdown import input_facts, replay_facts, usable_cores
from tfdiag.model.measurements import InputAlone, Replay
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import SEGMENTS, Step
from tfdiag.stats import Estimate

JOBS: dict[str, dict[str, Any]] = {
    "compute": {},
    "input": {"wait": 20 * MS, "compute": 4 * MS},
    "dispatch": {"compute": 0.2 * MS, "dispatch": 0.6 * MS, "loop": 0.1 * MS},
    "callback": {"callbacks": {"A": 3 * MS, "B": 1 * MS}, "loop": 0.5 * MS},
    "everything": {
        "wait": 3 * MS,
        "compute": 4 * MS,
        "dispatch": 2 * MS,
        "loop": 1 * MS,
        "callbacks": {"A": 1.5 * MS},
        "epochs": 6,
        "calls_per_epoch": 30,
        "restart": 40 * MS,
        "epoch_callbacks": {"Save": 25 * MS},
        "between_epochs": 5 * MS,
        "validation": 120 * MS,
    },
    "short epochs": {"wait": 3 * MS, "epochs": 50, "calls_per_epoch": 4, "between_epochs": 9 * MS},
    "epochs of a call": {"epochs": 80, "calls_per_epoch": 1, "validation": 30 * MS},
    "epochs of two calls": {"epochs": 80, "calls_per_epoch": 2, "epoch_callbacks": {"Save": 30 * MS}},
    "rare validation": {"epochs": 8, "calls_per_epoch": 25, "validation": 80 * MS, "validation_freq": 2},
    "several steps a call": {"wait": 8 * MS, "compute": 24 * MS, "loop": 2 * MS, "steps_per_call": 8},
    "several steps a call and epochs": {
        "wait": 8 * MS, "steps_per_call": 4, "epochs": 5, "calls_per_epoch": 40, "validation": 300 * MS,
    },
    "no waits": {"wait": 5 * MS, "waits": False},
    "no replay": {"wait": 5 * MS, "replay": False},
    "neither": {"wait": 5 * MS, "replay": False, "waits": False},
    "retraces": {"wait": 2 * MS, "retraces": tuple(range(100, 200, 4)), "retrace": 60 * MS},
    "noise": {"wait": 5 * MS, "noise": 0.2, "loop": 1 * MS, "callbacks": {"A": 2 * MS}},
    "outliers": {"noise": 0.05, "extra": {150: 0.3, 170: 0.1}},
    "eager": {"dispatch": 8 * MS, "compute": 2 * MS, "graph": 2.5 * MS, "job": {"run_eagerly": True}},
}  # fmt: skip

EXACT = sorted(set(JOBS) - {"noise", "outliers", "retraces", "no waits", "no replay", "neither", "eager"})


def step(**parts: Any) -> Step:
    """Give the step of a job that has one."""
    found = analysed(**parts).step
    assert isinstance(found, Step)
    return found


def seconds(found: Step, name: str) -> float:
    """Give a segment that is not missing."""
    segment = found.segments[name]
    assert isinstance(segment, Quantity), segment
    return segment.value


def items(found: Step) -> dict[str, float]:
    """Give the parts of the host segment."""
    return {item.name: item.per_step.value for item in found.host_items}


@pytest.mark.parametrize("job", sorted(JOBS))
def test_segments_add_up_to_the_step(job: str):
    """The segments that are known are the mean step, none is below zero, and the items are the host's."""
    found = step(**JOBS[job])
    known = [part.value for part in found.segments.values() if isinstance(part, Quantity)]
    assert math.fsum(known) == pytest.approx(found.mean_s, rel=1e-9)
    assert min(known) >= 0
    assert math.fsum(items(found).values()) == pytest.approx(seconds(found, "host"), rel=1e-9)
    assert tuple(found.segments) == SEGMENTS
    assert found.mean.value == found.mean_s


@pytest.mark.parametrize("job", EXACT)
def test_segments_are_the_make_up_of_the_job(job: str):
    """Mean, wait, compute and dispatch are what the job was made of, to a thousandth of the step."""
    made = Synthetic(**JOBS[job])
    found = step(**JOBS[job])
    close = made.mean_step * 1e-3
    per_step = 1 / made.steps_per_call
    assert found.mean_s == pytest.approx(made.mean_step, abs=close)
    if made.epochs > 1:
        assert isinstance(found.epoch_restart, Quantity)
        assert found.epoch_restart.value == pytest.approx(made.restart, abs=close)
    else:
        assert isinstance(found.epoch_restart, Missing)
    wait = made.wait + made.restart / made.calls_per_epoch
    assert seconds(found, "input_wait") == pytest.approx(wait * per_step, abs=close)
    assert seconds(found, "device_compute") == pytest.approx(made.compute * per_step, abs=close)
    assert seconds(found, "launch") == pytest.approx(made.dispatch * per_step, abs=close)
    assert seconds(found, "compile") == 0
    assert seconds(found, "unexplained") == pytest.approx(0, abs=close)


def test_host_is_itemised():
    """Each callback, validation, the loop and what lies between epochs have their own line."""
    found = items(step(**JOBS["everything"]))
    assert found == {
        "callback A.on_train_batch_end": pytest.approx(1.5 * MS),
        "loop": pytest.approx(1 * MS),
        "validation": pytest.approx(120 * MS / 30),
        "callback Save.on_epoch_end": pytest.approx(25 * MS / 30),
        "epoch": pytest.approx(5 * MS / 30),
    }


def test_an_epoch_costs_are_spread_over_its_steps():
    """Epochs of double the length halve what their ends cost a step."""
    short, long = (
        step(epochs=4, calls_per_epoch=calls, between_epochs=100 * MS, validation=200 * MS)
        for calls in (50, 100)
    )
    assert items(short)["validation"] == pytest.approx(4 * MS)
    assert items(long)["validation"] == pytest.approx(2 * MS)
    assert items(short)["epoch"] == pytest.approx(2 * MS)
    assert items(long)["epoch"] == pytest.approx(1 * MS)


def test_validation_freq_is_heeded():
    """Validation after every second epoch costs half a step's share."""
    every, second = (
        step(epochs=8, calls_per_epoch=25, validation=80 * MS, validation_freq=freq) for freq in (1, 2)
    )
    assert items(every)["validation"] == pytest.approx(3.2 * MS)
    assert items(second)["validation"] == pytest.approx(1.6 * MS)


def test_a_cut_validation_counts_as_a_whole_one():
    """The step holds the validation that the job would have had, and the item says that it was cut."""
    found = step(validation_cut=Cut(calls=10, of_steps=500, call_s=2 * MS))
    assert items(found)["validation"] == pytest.approx((1.0 + 5 * MS) / 200)
    assert found.mean_s == pytest.approx(11 * MS + (1.0 + 5 * MS) / 200)
    (note,) = [item.note for item in found.host_items if item.name == "validation"]
    assert note == "cut short after 10 of 500 calls and extrapolated"


def test_epochs_of_unknown_length_are_not_spread():
    """Nothing is made up of one end of an epoch whose length nobody knows."""
    found = step(epoch_known=False, validation=500 * MS)
    assert found.mean_s == pytest.approx(11 * MS)
    assert set(items(found)) == {"loop"}


def test_an_unfollowed_end_says_so():
    """After a single epoch the item `epoch` is empty and says what is not in it."""
    found = step(between_epochs=99.0)
    (item,) = [item for item in found.host_items if item.name == "epoch"]
    assert item.per_step.value == pytest.approx(0, abs=1e-9)
    assert "no epoch ended by itself" in item.note


def test_callbacks_never_exceed_what_lies_between():
    """Callbacks that took longer than the gap between calls are cut to it, in proportion."""
    made = Synthetic(callbacks={"A": 2 * MS, "B": 1 * MS}).measurements()
    live = made.live
    assert not isinstance(live, Missing)
    doubled = replace(live, callbacks=tuple(replace(row, total_s=2 * row.total_s) for row in live.callbacks))
    found = analyse(replace(made, live=doubled)).step
    assert isinstance(found, Step)
    parts = items(found)
    assert parts["callback A.on_train_batch_end"] == pytest.approx(2 * MS)
    assert parts["callback B.on_train_batch_end"] == pytest.approx(1 * MS)
    assert parts["loop"] == pytest.approx(0, abs=1e-9)


def test_callbacks_never_exceed_what_lies_between_epochs():
    """Callbacks of an epoch that took longer than the gap are cut to it, one after the other."""
    made = Synthetic(
        epochs=5, calls_per_epoch=40, epoch_callbacks={"A": 40 * MS, "B": 20 * MS}, validation=80 * MS
    ).measurements()
    live = made.live
    assert not isinstance(live, Missing)
    rows = tuple(replace(row, total_s=1.25 * row.total_s) for row in live.callbacks)
    found = analyse(replace(made, live=replace(live, callbacks=rows))).step
    assert isinstance(found, Step)
    assert items(found) == {
        "loop": pytest.approx(0, abs=1e-9),
        "validation": pytest.approx(2 * MS),
        "callback A.on_epoch_end": pytest.approx(50 * MS / 40),
        "callback B.on_epoch_end": pytest.approx(10 * MS / 40),
        "epoch": pytest.approx(0, abs=1e-9),
    }


def test_retraces_are_compile():
    """Traces that go on are time of the segment `compile`, and not of compute."""
    found = step(retraces=tuple(range(100, 200, 4)), retrace=60 * MS)
    assert seconds(found, "compile") == pytest.approx(found.mean_s - 11 * MS)
    assert seconds(found, "compile") > 10 * MS
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)


@pytest.mark.parametrize("job", [{"run_eagerly": True}, {"loop": "custom"}])
def test_traces_nobody_counts_are_missing(job: dict[str, Any]):
    """Without a traced step there is no count of traces, which is not the same as none."""
    assert isinstance(step(job=job).segments["compile"], Missing)


# --- what nothing explains ---------------------------------------------------------------------------


def test_what_the_replay_cannot_account_for_is_unexplained():
    """A live call that takes longer than wait and replay has a rest, and compute stays as replayed."""
    found = step(wait=3 * MS, compute=14 * MS, dispatch=1 * MS, replay_call=11 * MS)
    assert seconds(found, "unexplained") == pytest.approx(4 * MS)
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)
    assert seconds(found, "launch") == pytest.approx(1 * MS)
    assert seconds(found, "input_wait") == pytest.approx(3 * MS)


def test_a_slower_replay_explains_all():
    """A replay that takes longer than the live call leaves nothing over, and adds nothing."""
    found = step(wait=3 * MS, compute=10 * MS, dispatch=1 * MS, replay_call=15 * MS)
    assert seconds(found, "unexplained") == 0
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)


def test_the_pace_of_the_job_explains():
    """A replay at the job's own pace is what the live call is held against, where it is slower."""
    parts = {"compute": 14 * MS, "dispatch": 1 * MS, "replay_call": 11 * MS}
    assert seconds(step(**parts, paced=15 * MS), "unexplained") == pytest.approx(0, abs=1e-9)
    assert seconds(step(**parts, paced=13 * MS), "unexplained") == pytest.approx(2 * MS)
    assert seconds(step(**parts, paced=2 * MS), "unexplained") == pytest.approx(4 * MS)


def test_an_outlier_is_unexplained():
    """A slow call that nothing accounts for is in the mean, and not called compute."""
    found = step(extra={150: 1.0})
    assert found.mean_s == pytest.approx(11 * MS + 1.0 / found.steady_steps)
    assert seconds(found, "unexplained") == pytest.approx(1.0 / found.steady_steps)


def test_a_negative_wait_is_none():
    """Two clocks may tell a wait a hair below zero; no segment is."""
    made = Synthetic().measurements()
    live = made.live
    assert not isinstance(live, Missing)
    off = replace(live, wait_s=(-0.01 * MS,) * len(live.wait_s))
    found = analyse(replace(made, live=off)).step
    assert isinstance(found, Step)
    assert seconds(found, "input_wait") == 0
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)


@pytest.mark.parametrize("replayed", [True, False])
def test_a_wait_beyond_the_call_is_the_call(replayed: bool):
    """A wait can't be longer than the call in which it was; nothing becomes negative for it."""
    made = Synthetic(compute=0.01 * MS, dispatch=0.01 * MS, replay=replayed).measurements()
    live = made.live
    assert not isinstance(live, Missing)
    off = replace(live, wait_s=(0.5 * MS,) * len(live.wait_s))
    found = analyse(replace(made, live=off)).step
    assert isinstance(found, Step)
    known = [part.value for part in found.segments.values() if isinstance(part, Quantity)]
    assert seconds(found, "input_wait") == pytest.approx(0.02 * MS)
    assert min(known) >= 0
    assert math.fsum(known) == pytest.approx(found.mean_s, rel=1e-9)


# --- what is missing ---------------------------------------------------------------------------------


def test_waits_are_estimated_from_the_replay():
    """Without the runtime's gaps the wait is the call less the replay, and says that it is an estimate."""
    found = step(wait=5 * MS, waits=False)
    wait = found.segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.value == pytest.approx(5 * MS)
    assert wait.origin == "estimated"
    assert "keeps no model" in wait.source
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)


def test_without_a_replay_dispatch_is_not_told_apart():
    """Compute then holds the dispatch as an estimate, and `launch` is missing, not zero."""
    found = step(wait=5 * MS, replay=False)
    assert isinstance(found.segments["launch"], Missing)
    compute = found.segments["device_compute"]
    assert isinstance(compute, Quantity)
    assert (compute.value, compute.origin) == (pytest.approx(11 * MS), "estimated")
    assert seconds(found, "input_wait") == pytest.approx(5 * MS)


def test_with_neither_the_call_is_unexplained():
    """Without waits and replay nothing inside of the call is known."""
    found = step(wait=5 * MS, loop=1 * MS, replay=False, waits=False)
    missing = [found.segments[name] for name in ("input_wait", "device_compute", "launch")]
    assert all(isinstance(segment, Missing) for segment in missing)
    assert seconds(found, "unexplained") == pytest.approx(16 * MS)
    assert seconds(found, "host") == pytest.approx(1 * MS)


def test_without_an_empty_call_dispatch_is_missing():
    """Where the cost of dispatch was not measured, compute holds it as an estimate."""
    found = step(empty=False)
    assert found.segments["launch"] == Missing("the cost of dispatch was not measured")
    compute = found.segments["device_compute"]
    assert isinstance(compute, Quantity)
    assert (compute.value, compute.origin) == (pytest.approx(11 * MS), "estimated")


def test_an_eager_step_is_compute_as_a_graph():
    """What an eager step needs beyond its graph is dispatch."""
    found = step(**JOBS["eager"], empty=True)
    # The empty call takes 8 ms here, more than the graph; all that the graph needs could be dispatch.
    assert seconds(found, "device_compute") == 0
    assert seconds(found, "launch") == pytest.approx(10 * MS)


def test_an_eager_step_with_a_cheap_empty_call():
    """Compute is the graph less the empty call, all else of the call is dispatch."""
    found = step(dispatch=0.5 * MS, compute=9.5 * MS, graph=2.5 * MS, job={"run_eagerly": True})
    assert seconds(found, "device_compute") == pytest.approx(2 * MS)
    assert seconds(found, "launch") == pytest.approx(8 * MS)


@pytest.mark.parametrize("name", ["host_to_device", "device_to_host"])
def test_crossings_are_missing_with_the_right_reason(name: str):
    """Without an accelerator nothing crosses a bus; with one it was not traced."""
    alone, with_gpu = (step(accelerator=there).segments[name] for there in (False, True))
    assert isinstance(alone, Missing)
    assert "no accelerator" in alone.reason
    assert isinstance(with_gpu, Missing)
    assert "not traced" in with_gpu.reason


def test_collectives_of_one_replica_are_missing_for_another_reason():
    """One replica exchanges nothing; several do, unseen."""
    assert step().segments["collective"] == Missing("the job has one replica")
    assert step(job={"replicas": 2}).segments["collective"] == Missing("collectives are not traced yet")


# --- counts and facts --------------------------------------------------------------------------------


def test_steps_are_counted_not_calls():
    """Warm-up and steady state are told in steps, and the median without what lies between epochs."""
    found = step(wait=8 * MS, steps_per_call=4, epochs=2, calls_per_epoch=100, validation=1.0, noise=0.01)
    assert (found.warmup_steps % 4, found.steady_steps % 4) == (0, 0)
    assert found.warmup_steps + found.steady_steps <= 800
    assert found.steady_steps >= 350
    assert found.median.value == pytest.approx(19 * MS / 4, rel=0.01)
    assert found.mean_s == pytest.approx((19 * MS + 10 * MS) / 4, rel=0.01)


def test_the_mean_has_an_interval():
    """The interval of the mean holds the true mean, and is not empty in a noisy job."""
    found = step(wait=5 * MS, noise=0.2)
    assert found.mean.low is not None
    assert found.mean.high is not None
    assert found.mean.low < 16 * MS < found.mean.high
    assert found.mean.high - found.mean.low > 0.1 * MS


def test_one_time_costs_stand_beside_the_step():
    """First call, compilation and first batch are told, and are not in the mean."""
    found = step(first_call=5.0, input_alone=2 * MS)
    assert isinstance(found.first_step, Quantity)
    assert found.first_step.value == pytest.approx(5.011)
    assert isinstance(found.compile_once, Quantity)
    assert found.compile_once.value == pytest.approx(5.0)
    assert isinstance(found.first_batch, Quantity)
    assert found.first_batch.value == 0.4
    assert found.mean_s == pytest.approx(11 * MS)
    assert step().first_batch == Missing("there was no time for the input alone")


def test_two_replays_are_no_facts():
    """Fewer than three calls, or batches, are no measurement."""
    assert isinstance(replay_facts(Replay((1.0, 1.0), 1.0, 1.0)), Missing)
    assert isinstance(input_facts(InputAlone((1.0, 1.0), 1.0, 1.0)), Missing)
    assert replay_facts(Missing("why")) == Missing("why")
    assert input_facts(Missing("why")) == Missing("why")


def test_facts_are_means_of_the_steady_part():
    """A slow first call is cut off, and the processor's time is spread over all calls."""
    facts = replay_facts(Replay((1.0, 0.02, 0.02, 0.02), 0.1, 1.0, (0.001,) * 3, (0.03,) * 3))
    assert not isinstance(facts, Missing)
    assert facts.call.value == pytest.approx(0.02)
    assert facts.paced.value == pytest.approx(0.03)
    assert isinstance(facts.empty, Estimate)
    assert facts.empty.value == pytest.approx(0.001)
    assert facts.cpu_per_call_s == pytest.approx(0.025)
    assert facts.graph == Missing("the job already runs as a graph")
    alone = input_facts(InputAlone((1.0, 0.03, 0.03, 0.03), 0.2, 1.0))
    assert not isinstance(alone, Missing)
    assert (alone.batch.value, alone.cpu_per_batch_s) == (pytest.approx(0.03), pytest.approx(0.05))


# --- bounds ------------------------------------------------------------------------------------------


def values(analysis: Analysis) -> dict[str, float | str]:
    """Give the bounds as numbers, or the reasons why not."""
    names = ("replay", "input_alone", "ideal_overlap", "best_speedup")
    found = {name: getattr(analysis.bounds, name) for name in names}
    return {name: q.value if isinstance(q, Quantity) else q.reason for name, q in found.items()}


def test_bounds_of_a_job_with_everything():
    """Replay and input are told for a step, overlap is the longer one, and the gain is over the replay."""
    found = analysed(wait=12 * MS, compute=9 * MS, steps_per_call=5, input_alone=3 * MS, noise=0.001)
    assert values(found) == {
        "replay": pytest.approx(2 * MS),
        "input_alone": pytest.approx(3 * MS),
        "ideal_overlap": pytest.approx(3 * MS),
        "best_speedup": pytest.approx(2.2, rel=0.01),
    }
    best = found.bounds.best_speedup
    assert isinstance(best, Quantity)
    assert best.low is not None
    assert best.high is not None
    assert best.low < best.value < best.high


def test_overlap_is_bound_by_the_cores():
    """Two jobs that compute all the time can't overlap on one core."""
    busy = {"input_alone": 8 * MS, "input_cpu": 1.0, "replay_cpu": 1.0}
    assert values(analysed(**busy, cores=1))["ideal_overlap"] == pytest.approx(19 * MS)
    assert values(analysed(**busy, cores=2))["ideal_overlap"] == pytest.approx(11 * MS)
    assert values(analysed(**busy, cores=8, quota=1.0))["ideal_overlap"] == pytest.approx(19 * MS)


def test_bounds_without_their_measurement_say_why():
    """Each bound is missing for the reason of what it rests on."""
    found = values(analysed(replay=False))
    assert found["replay"] == "there was no time for a replay"
    assert found["input_alone"] == "there was no time for the input alone"
    assert found["ideal_overlap"] == "needs both the replay and the input alone"
    assert isinstance(found["best_speedup"], str)


def test_bounds_without_a_step_have_its_reason():
    """Where there is no step there are no bounds, for the same reason."""
    found = analysed(calls_per_epoch=2)
    assert isinstance(found.step, Missing)
    assert set(values(found).values()) == {found.step.reason}


def test_the_quota_counts_where_it_is_less():
    """A container's quota limits the cores, and is no limit above them."""
    cores = [usable_cores(Synthetic(cores=4, quota=quota).measurements()) for quota in (None, 1.5, 9.0)]
    assert cores == [4.0, 1.5, 4.0]


STAMPED = {"wait": 5 * MS, "waits": False, "way": 0.2 * MS}


def test_stamped_waits_are_measured():
    """Without the runtime's model the wait is what a batch took longer to arrive than in the replay."""
    found = step(**STAMPED)
    wait = found.segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.value == pytest.approx(5 * MS)
    assert wait.origin == "measured"
    assert wait.source == "when each batch arrived in the call, less the same in the replay"
    assert seconds(found, "device_compute") == pytest.approx(10 * MS)
    assert seconds(found, "launch") == pytest.approx(1 * MS)


def test_a_slower_replay_moves_no_stamped_wait():
    """A machine that is slower while it replays changes an estimated wait, but not a stamped one."""
    slower = {"wait": 5 * MS, "waits": False, "replay_call": 14 * MS}
    assert seconds(step(**slower), "input_wait") == pytest.approx(2 * MS)
    assert seconds(step(**slower, way=0.2 * MS), "input_wait") == pytest.approx(5 * MS)


def test_the_gaps_of_the_runtime_go_before_stamps():
    """Where the runtime told the waits they are taken."""
    wait = step(**{**STAMPED, "waits": True, "replay_way": 3 * MS}).segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.value == pytest.approx(5 * MS)
    assert "gaps" in wait.source


def test_the_stamped_wait_carries_the_spread_of_the_replay():
    """The interval is that of the live arrivals, widened by the quartiles of the replay's."""
    made = Synthetic(**STAMPED).measurements()
    assert isinstance(made.replay, Replay)
    spread = replace(made.replay, arrival_s=(0.1 * MS, 0.2 * MS, 0.3 * MS) * 20)
    found = analyse(replace(made, replay=spread)).step
    assert isinstance(found, Step)
    wait = found.segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert (wait.low, wait.value, wait.high) == pytest.approx((4.9 * MS, 5 * MS, 5.1 * MS))


def test_a_stamped_wait_is_not_below_zero_in_the_mean():
    """A way that was longer in the replay makes a wait of zero, single calls are not cut."""
    wait = step(wait=0.0, waits=False, way=0.2 * MS, replay_way=0.3 * MS).segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert (wait.low, wait.value, wait.high) == (0, 0, 0)
    noisy = step(wait=1 * MS, noise=0.8, waits=False, way=0.2 * MS)
    assert seconds(noisy, "input_wait") == pytest.approx(
        seconds(step(wait=1 * MS, noise=0.8), "input_wait"), rel=1e-6
    )


@pytest.mark.parametrize("lacking", [{"stamped": 0.4}, {"way": None}, {"way": None, "replay_way": 1 * MS}])
def test_without_stamps_the_wait_is_estimated(lacking: dict[str, Any]):
    """Stamps of too few calls, or of the replay alone, leave the call less the replay."""
    wait = step(**{**STAMPED, **lacking}).segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.origin == "estimated"
    assert wait.source.startswith("the call less the replay")


def test_a_replay_without_stamps_leaves_the_estimate():
    """Live arrivals alone hold the way to the batch too."""
    made = Synthetic(**STAMPED).measurements()
    assert isinstance(made.replay, Replay)
    found = analyse(replace(made, replay=replace(made.replay, arrival_s=()))).step
    assert isinstance(found, Step)
    wait = found.segments["input_wait"]
    assert isinstance(wait, Quantity)
    assert wait.origin == "estimated"
