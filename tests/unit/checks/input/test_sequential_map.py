"""sequential-map: a serial map is what the step waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, pipeline, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.sequential_map import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

PLAIN = Function("decode")
WRITTEN = ("from_tensor_slices(…)", "map(decode)", "batch(32)", "prefetch(2)")


def serial(part: float = 0.9, name: str = "Map") -> Pipeline:
    """Give a pipeline in which a map takes this part of 50 ms, and two other stages share the rest."""
    rest = (1 - part) * 25 * MS
    stages = (("TensorSlice", rest), (name, part * 50 * MS), ("BatchV2", rest), ("Prefetch", 0.0))
    return chain(*stages, written=WRITTEN)


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, False), (0.057, True)])
def test_fires_when_the_step_waits(share: float, fires: bool):
    """A serial map that keeps up is no finding; of the wait it has nine tenths."""
    assert bool(results(CHECK, **with_wait(share), pipeline=serial())) is fires


@pytest.mark.parametrize(("part", "fires"), [(0.32, False), (0.35, True)])
def test_fires_when_the_map_takes_the_most(part: float, fires: bool):
    """A map that takes less than another stage of its thread is not what the step waits for."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=serial(part))) is fires


@pytest.mark.parametrize(
    ("name", "fires"),
    [("Map", True), ("MapV2", True), ("FlatMap", False), ("Generator", False), ("ParallelMapV2", False)],
)
def test_fires_for_maps_only(name: str, fires: bool):
    """Other stages have other causes and other cures."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=serial(name=name))) is fires


@pytest.mark.parametrize(
    ("threads", "tunable", "fires"), [(1, False, True), (1, True, False), (2, False, False)]
)
def test_fires_for_a_fused_map_on_one_thread(threads: float, tunable: bool, fires: bool):
    """A map fused with its batch is serial where its single thread is fixed."""
    fused = stage(2, "MapAndBatchV2", 40 * MS, threads=threads, tunable=tunable)
    of = Pipeline((stage(1, "TensorSlice", 1 * MS), fused), 2, WRITTEN)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(
    ("machine", "fires"),
    [({"cores": 1}, False), ({"cores": 2}, True), ({"cores": 8, "quota": 1.0}, False)],
)
def test_silent_on_a_single_core(machine: dict[str, Any], fires: bool):
    """Threads help where there are cores for them."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=serial(), **machine)) is fires


def test_shows_its_numbers():
    """Wait, the stage's time, and its threads, each with what it was held against; the cost is its part."""
    found = only(CHECK, **with_wait(0.4), pipeline=serial(), cores=4)
    assert value(found, "wait for input per step") == pytest.approx(40 * MS)
    assert value(found, "time of map(decode) for a batch") == pytest.approx(45 * MS)
    threads = evidence(found, "threads of this stage")
    assert threads.threshold is not None
    assert (value(found, threads.name), threads.threshold.value) == (1, 4)
    assert found.finding.cost.value == pytest.approx(0.36)
    assert found.finding.severity == "critical"
    assert found.finding.where == "map(decode)"


def test_suggests_parallel_calls_in_the_callers_words():
    """The map of the caller's chain gets its argument, and the gain is that of all cores."""
    parts = {**with_wait(0.4), "pipeline": serial(), "cores": 4}
    (suggestion,) = only(CHECK, **parts).suggestions
    assert suggestion.id == "sequential-map/parallel-map"
    assert suggestion.code == (
        "  dataset = (\n"
        "      tf.data.Dataset.from_tensor_slices(…)\n"
        "-     .map(decode)\n"
        "+     .map(decode, num_parallel_calls=tf.data.AUTOTUNE)\n"
        "      .batch(32)\n"
        "      .prefetch(2)\n"
        "  )"
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)


def test_undecided_without_times_of_stages():
    """A chain without the runtime's model has no times, so no stage can be called the slowest."""
    assert "no times" in not_run(CHECK, **with_wait(0.4), pipeline=pipeline(*WRITTEN))


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))


def test_undecided_without_the_wait():
    """Neither waits nor a replay: whether the step waits is not known."""
    assert "wait" in not_run(CHECK, **with_wait(0.4), pipeline=serial(), waits=False, replay=False)


def alone(function: Function | None = PLAIN, each: float = 4 * MS, **fields: Any) -> Pipeline:
    """Give a sampled map of 40 ms a batch, with a function of this kind."""
    part = {name: fields.pop(name) for name in ("parallel",) if name in fields}
    if fields.get("autotune", True):  # otherwise the runtime keeps no model
        fields.setdefault(
            "running", (stage(1, "Range", 0.0), stage(2, "Map", each), stage(3, "BatchV2", 0.0))
        )
    return sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(decode)", each, 1.0, {"function": function, **fields.pop("node", {})}, **part),
        Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10}),
        **fields,
    )


@pytest.mark.parametrize(("faster", "fires"), [(1.32, False), (1.35, True), (2.0, True), (None, True)])
def test_silent_where_threads_hardly_help(faster: float | None, fires: bool):
    """Half of the function locked: two threads make it 4/3 as fast, and more don't do much better."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=alone(parallel=faster))) is fires


@pytest.mark.parametrize(("overhead", "fires"), [(1.9 * MS, True), (2.1 * MS, False)])
def test_silent_where_calls_are_most_of_it(overhead: float, fires: bool):
    """Ten calls for a batch, of 40 ms: with 2 ms each they are half of it, and another check's case."""
    of = alone(call_overhead_s=Quantity(overhead, "s"))
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(
    ("function", "autotune", "fires"),
    [
        (PLAIN, True, True),
        (PLAIN, False, False),
        (Function("f", stateful=True), False, True),
        (Function("f", random=True, stateful=True), False, True),
        (None, False, True),
    ],
)
def test_what_autotune_would_do_is_another_check(function: Function | None, autotune: bool, fires: bool):
    """Serial only because autotune is off: autotune-off says so."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=alone(function, autotune=autotune))) is fires


@pytest.mark.parametrize("function", [Function("f", stateful=True), Function("f", random=True), None])
def test_a_map_with_state_is_serial_whatever_runs(function: Function | None):
    """tf.data leaves it alone, so that it was written serial is enough."""
    assert results(CHECK, **with_wait(0.4), pipeline=alone(function, running=()))


def test_undecided_whether_tfdata_made_it_parallel():
    """Written serial, without state, and nobody knows what runs."""
    assert "by itself" in not_run(CHECK, **with_wait(0.4), pipeline=alone(running=()))


def test_a_fixed_parallelism_is_another_check():
    """A map that was told to make one call at a time is held by its argument."""
    fused = (stage(1, "Range", 0.0), stage(2, "MapAndBatchV2", 40 * MS, threads=1, tunable=False))
    assert results(CHECK, **with_wait(0.4), pipeline=alone(running=fused))
    fixed = alone(running=fused, node={"parallelism": 1})
    assert not results(CHECK, **with_wait(0.4), pipeline=fixed)


def test_a_sampled_map_is_changed_as_data_too():
    """The graph's own id, and a gain from the sample: 40 ms on four cores hide behind 60."""
    (suggestion,) = only(CHECK, **with_wait(0.4), pipeline=alone(), cores=4).suggestions
    assert suggestion.edits == (Edit("parallel", 1),)
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)
    assert "deterministic=False" in suggestion.risk
