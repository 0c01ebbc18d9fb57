"""autotune-off: the job keeps tf.data from using the cores."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Part, chain, sampled, stage
from tests.unit.checks.running import evidence, not_run, only, results, value, with_wait
from tfdiag.checks.input.autotune_off import CHECK
from tfdiag.model.pipeline import Edit, Function, Pipeline
from tfdiag.model.quantity import Missing, Quantity

PLAIN = Function("decode")
PYTHON = Function("f", python=True, stateful=True)


def mapped(
    function: Function | None = PLAIN, *, each: float = 4 * MS, op: str = "Map",
    parallel: float | None = None, calls: int | None = None, **fields: Any,
) -> Pipeline:  # fmt: skip
    """Give a sampled map of 40 ms a batch in a job that switched autotune off."""
    label = "map(decode)" if calls is None else "map(decode, num_parallel_calls=…)"
    node = {"function": function, "parallelism": calls}
    return sampled(
        Part("Range", "range(…)"),
        Part(op, label, each, 1.0, node, parallel=parallel),
        Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10}),
        **{"autotune": False, "prefetch_injected": False, **fields},
    )


def fixed(calls: int, **fields: Any) -> Pipeline:
    """Give a map that may make so many calls at a time, with autotune on; 160 ms a batch on one thread."""
    return mapped(op="ParallelMap", calls=calls, each=16 * MS, **{"autotune": True, **fields})


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
@pytest.mark.parametrize("of", [mapped(), fixed(2)])
def test_fires_when_the_step_waits(of: Pipeline, share: float, fires: bool):
    """A map that keeps up may be as serial as it likes."""
    assert bool(results(CHECK, **with_wait(share), pipeline=of)) is fires


@pytest.mark.parametrize(
    ("function", "autotune", "fires"),
    [
        (PLAIN, False, True),
        (PLAIN, True, False),
        (Function("f", stateful=True), False, False),
        (Function("f", random=True), False, False),
        (PYTHON, False, False),
        (None, False, False),
    ],
)
def test_fires_for_what_tfdata_would_do_by_itself(function: Function | None, autotune: bool, fires: bool):
    """tf.data leaves functions with state serial, whatever the options say."""
    found = results(CHECK, **with_wait(0.4), pipeline=mapped(function, autotune=autotune))
    assert bool(found) is fires


@pytest.mark.parametrize(("calls", "fires"), [(1, True), (3, True), (4, False), (8, False), (-1, False)])
def test_fires_for_a_number_below_the_cores(calls: int, fires: bool):
    """Four cores have use for four calls; AUTOTUNE is no number."""
    assert bool(results(CHECK, **with_wait(0.4), cores=4, pipeline=fixed(calls))) is fires


@pytest.mark.parametrize(
    ("threads", "tunable", "autotune", "fires"),
    [(2, False, True, True), (2, True, True, False), (4, False, True, False), (2, False, False, False)],
)
def test_the_runtime_tells_without_a_graph(threads: float, tunable: bool, autotune: bool, fires: bool):
    """A knob that can't be turned was fixed; with autotune off it may have been AUTOTUNE."""
    of = Pipeline(
        (stage(1, "Range", 0.0), stage(2, "ParallelMapV2", 80 * MS, threads=threads, tunable=tunable)),
        2,
        autotune=autotune,
    )
    assert bool(results(CHECK, **with_wait(0.4), cores=4, pipeline=of)) is fires


@pytest.mark.parametrize(("label", "fires"), [("map(f)", False), ("map(f, num_parallel_calls=…)", True)])
def test_a_fused_map_is_fixed_where_a_number_was_written(label: str, fires: bool):
    """One call at a time is what a serial map makes, and one that was told to."""
    fused = stage(2, "MapAndBatchV2", 80 * MS, threads=1, tunable=False)
    of = Pipeline((stage(1, "Range", 0.0), fused), 2, ("range(…)", label))
    assert bool(results(CHECK, **with_wait(0.4), cores=4, pipeline=of)) is fires


@pytest.mark.parametrize(("faster", "fires"), [(1.32, False), (1.35, True), (None, True)])
@pytest.mark.parametrize("calls", [None, 2])
def test_silent_where_threads_hardly_help(calls: int | None, faster: float | None, fires: bool):
    """Two threads on a function of which half is locked are 4/3 as fast."""
    of = mapped(op="Map" if calls is None else "ParallelMap", each=16 * MS, calls=calls, parallel=faster)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(("faster", "fires"), [(None, False), (1.32, False), (1.9, True)])
def test_a_python_function_must_have_been_sampled(faster: float | None, fires: bool):
    """Whether threads help a Python function is not known before it was tried on some."""
    of = mapped(PYTHON, op="ParallelMap", calls=2, each=16 * MS, parallel=faster)
    assert bool(results(CHECK, **with_wait(0.4), pipeline=of)) is fires


@pytest.mark.parametrize(("op", "fires"), [("Map", True), ("Filter", False), ("Interleave", False)])
def test_fires_for_maps_only(op: str, fires: bool):
    """tf.data makes no other stage parallel by itself."""
    assert bool(results(CHECK, **with_wait(0.4), pipeline=mapped(op=op))) is fires


@pytest.mark.parametrize(("cores", "fires"), [(1, False), (2, True)])
def test_silent_on_a_single_core(cores: int, fires: bool):
    """Parallel calls need cores."""
    assert bool(results(CHECK, **with_wait(0.4), cores=cores, pipeline=mapped())) is fires


def test_shows_its_numbers():
    """Wait, time of the stage, and its calls against the cores."""
    found = only(CHECK, **with_wait(0.4), cores=4, pipeline=fixed(2))
    assert value(found, "wait for input per step") == pytest.approx(40 * MS)
    calls = evidence(found, "parallel calls of this stage")
    assert calls.threshold is not None
    assert (value(found, calls.name), calls.threshold.value) == (2, 4)
    assert found.finding.where == "map(decode, num_parallel_calls=…)"
    assert "held to 2 parallel calls on 4 cores" in found.finding.title
    assert found.finding.cost.value == pytest.approx(0.4)


def test_suggests_to_leave_the_number_to_tfdata():
    """80 ms on two threads are 40 on four, which hide behind 60."""
    (suggestion,) = only(
        CHECK, **with_wait(0.4), cores=4, pipeline=fixed(2, prefetch_injected=True)
    ).suggestions
    assert suggestion.id == "autotune-off/tune"
    assert suggestion.edits == (Edit("tune", 1),)
    assert (
        "-     .map(decode, num_parallel_calls=…)\n+     .map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
        in (suggestion.code)
    )
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(100 / 60)


@pytest.mark.parametrize(("injected", "after"), [(False, 60), (True, 60)])
def test_writes_what_tfdata_would_do_by_itself(injected: bool, after: float):
    """The map of 40 ms works ahead on four cores; 10 ms of batching are hidden only by a prefetch."""
    of = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(decode)", 4 * MS, 1.0, {"function": PLAIN}),
        Part("Batch", "batch(10)", 10 * MS, 1.0, {"size": 10}),
        autotune=False,
        prefetch_injected=injected,
    )
    parts = {"wait": 50 * MS, "compute": 59 * MS, "dispatch": 1 * MS}
    (suggestion,) = only(CHECK, **parts, cores=4, pipeline=of).suggestions
    assert suggestion.id == "autotune-off/explicit"
    assert suggestion.edits == (Edit("parallel", 1), *([] if injected else [Edit("prefetch")]))
    assert "+     .map(decode, num_parallel_calls=tf.data.AUTOTUNE)" in suggestion.code
    assert ("+     .prefetch(tf.data.AUTOTUNE)" in suggestion.code) is not injected
    assert isinstance(suggestion.predicted, Quantity)
    assert suggestion.predicted.value == pytest.approx(110 / after)


def test_maps_that_matter_are_made_parallel_together():
    """One of a third of the costliest one's time is; one of a tenth, or with state, is not."""
    of = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(decode)", 3 * MS, 1.0, {"function": PLAIN}),
        Part("Map", "map(scale)", 1 * MS, 1.0, {"function": Function("scale")}),
        Part("Map", "map(cast)", 0.3 * MS, 1.0, {"function": Function("cast")}),
        Part("Map", "map(count)", 1 * MS, 1.0, {"function": Function("count", stateful=True)}),
        Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10}),
        autotune=False,
    )
    (suggestion,) = only(CHECK, **with_wait(0.4), cores=4, pipeline=of).suggestions
    assert suggestion.edits == (Edit("parallel", 1), Edit("parallel", 2))
    assert "map(decode) and map(scale)" in suggestion.text


def test_a_part_of_the_wait_is_a_part_of_the_cost():
    """The map has 40 of the 50 ms that its thread does."""
    of = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(decode)", 4 * MS, 1.0, {"function": PLAIN}),
        Part("Batch", "batch(10)", 10 * MS, 1.0, {"size": 10}),
        autotune=False,
    )
    assert only(CHECK, **with_wait(0.4), pipeline=of).finding.cost.value == pytest.approx(0.32)


def test_undecided_without_times_of_stages():
    """Without times no stage can be called the slowest."""
    of = chain(("Map", 0.0), autotune=False)
    assert "time" in not_run(CHECK, **with_wait(0.4), pipeline=of)


def test_undecided_without_the_pipeline():
    """A pipeline that nobody knows is not called fine."""
    assert "gone" in not_run(CHECK, **with_wait(0.4), pipeline=Missing("gone"))
