"""What each remedy promises, and the code it gives, against what can be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS, Synthetic, analysed, chain, pipeline
from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.pipeline import PipelineModel
from tfdiag.checks.stages import is_python
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Suggestion
from tfdiag.remedies import (
    graph_step,
    more_steps_per_call,
    parallel_generators,
    parallel_map,
    prefetch,
    rarer_callback,
    rarer_validation,
)

STEP: dict[str, Any] = {"wait": 60 * MS, "compute": 39 * MS, "dispatch": 1 * MS, "cores": 4}
"""A step of 100 ms, of which 60 ms are waits."""


def three(gain: Maybe) -> tuple[float, float, float]:
    """Give low, value and high of a gain."""
    assert isinstance(gain, Quantity)
    assert gain.low is not None
    assert gain.high is not None
    return gain.low, gain.value, gain.high


# --- prefetch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "gains"),
    [
        (30 * MS, (2.5, 2.5, 2.5)),
        (35 * MS, (100 / 43.75, 2.5, 2.5)),
        (50 * MS, (100 / 62.5, 2, 100 / 45)),
        (90 * MS, (1, 100 / 90, 100 / 81)),
    ],
)
def test_prefetch_leaves_the_longer_of_input_and_step(alone: float, gains: tuple[float, float, float]):
    """Overlapped, the step takes the longer one; beside a running step an input gets a quarter slower."""
    assert three(prefetch.predict(analysed(**STEP, input_alone=alone))) == pytest.approx(gains)


def test_prefetch_predicts_nothing_without_the_input():
    """Without the input's own time there is no number."""
    found = prefetch.predict(analysed(**STEP))
    assert isinstance(found, Missing)
    assert "no time for the input alone" in found.reason


def test_prefetch_of_a_chain_that_nobody_knows():
    """Where Python does not know the chain, the code still is one that works."""
    suggestion = prefetch.suggest(analysed(**STEP, input_alone=30 * MS), "missing-prefetch")
    assert suggestion.code == "- dataset\n+ dataset.prefetch(tf.data.AUTOTUNE)"


# --- parallel map ------------------------------------------------------------------------------------


def parallel(of: Pipeline, **parts: Any) -> Suggestion:
    """Suggest parallel calls for the slowest stage."""
    analysis = analysed(**{**STEP, **parts}, pipeline=of)
    model = analysis.pipeline
    assert isinstance(model, PipelineModel)
    assert model.slowest is not None
    python = is_python(model, model.slowest)
    return parallel_map.suggest(analysis, "sequential-map", model, model.slowest, python=python)


def mapped(seconds: float, other: float = 0.0, **fields: Any) -> Pipeline:
    """Give a pipeline with a map and a batch, which take so long."""
    return chain(
        ("Range", 0.0),
        ("Map", seconds),
        ("BatchV2", other),
        written=("range(…)", "map(decode)", "batch(8)"),
        **fields,
    )


@pytest.mark.parametrize(
    ("seconds", "other", "gains"),
    [
        (100 * MS, 0.0, (100 / (1.1 * 43.75), 100 / 43.75, 2.5)),
        (200 * MS, 0.0, (100 / 55, 100 / (40 + 50 / 12), 2.5)),
        (100 * MS, 50 * MS, (100 / 90, 100 / 60, 110 / 60)),
        (390 * MS, 0.0, (1, 100 / (40 + 97.5 / 12), 2.5)),
    ],
)
def test_a_map_is_spread_over_the_cores(seconds: float, other: float, gains: tuple[float, float, float]):
    """The step's rest of 40 ms with what the batch adds to it, or the processor time of all on the cores.

    The step waits for 60 ms, so a batch takes these 60 (in the last case no less than a third of what it
    took alone); the low end is what follows from the stages alone. Input and step, which took turns, then
    work beside each other, and where more than half of the logical cores are busy they share some: for that a
    quarter of what they overlap by is added, between nothing and half.
    """
    assert three(parallel(mapped(seconds, other)).predicted) == pytest.approx(gains)


def test_a_python_function_computes_under_a_lock():
    """Three fifths of 80 ms wait and are spread over four cores, two fifths stay; at worst all of it does."""
    of = mapped(80 * MS, python_functions=("decode",))
    found = three(parallel(of, input_alone=80 * MS, input_cpu=0.4).predicted)
    assert found == pytest.approx((100 / 80, 100 / (40 + 33 / 4), 2.5))
    assert found[0] < three(parallel(mapped(80 * MS), input_alone=80 * MS, input_cpu=0.4).predicted)[0]


def test_another_function_does_not_hold_the_lock():
    """A Python function whose name is part of this one's is another function."""
    plain, other = parallel(mapped(80 * MS)), parallel(mapped(80 * MS, python_functions=("code",)))
    assert three(plain.predicted) == three(other.predicted)


def test_the_argument_is_given_once():
    """A map that already has a fixed number of calls gets another one, not a second one."""
    of = chain(
        ("Range", 0.0), ("MapAndBatchV2", 80 * MS), written=("range(…)", "map(f, num_parallel_calls=…)")
    )
    assert parallel(of).code == (
        "  dataset = (\n"
        "      tf.data.Dataset.range(…)\n"
        "-     .map(f, num_parallel_calls=…)\n"
        "+     .map(f, num_parallel_calls=tf.data.AUTOTUNE)\n"
        "  )"
    )


def test_a_map_that_nobody_wrote_gets_general_code():
    """Without the caller's chain the code shows the argument alone."""
    suggestion = parallel(chain(("Range", 0.0), ("Map", 80 * MS)))
    assert suggestion.code == "- dataset.map(fn)\n+ dataset.map(fn, num_parallel_calls=tf.data.AUTOTUNE)"
    assert "map(…)" in suggestion.text


# --- generators --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "cores", "gains"),
    [
        (0.0, 4, (100 / 80, 2.5, 2.5)),
        (1.0, 4, (100 / 80, 100 / 80, 2.5)),
        (0.5, 4, (100 / 80, 2, 2.5)),
        (0.0, 1, (100 / 80, 100 / 80, 100 / 80)),
    ],
)
def test_generators_wait_side_by_side_and_compute_in_turn(
    cpu: float, cores: int, gains: tuple[float, float, float]
):
    """80 ms a batch: what waits is spread over the cores, what computes is not; at worst nothing is."""
    analysis = analysed(**{**STEP, "cores": cores}, input_alone=80 * MS, input_cpu=cpu, replay_cpu=0.0)
    assert three(parallel_generators.predict(analysis, None)) == pytest.approx(gains)


def test_generators_are_timed_by_the_runtime_too():
    """Without the input alone the slowest stage has the time, of which half may compute.

    80 ms that work ahead of a step of 100 which waits are 100 in the job; five eighths of that remain.
    """
    of = chain(("Generator", 80 * MS), ("Prefetch", 0.0))
    analysis = analysed(**STEP, pipeline=of)
    assert isinstance(analysis.pipeline, PipelineModel)
    found = parallel_generators.predict(analysis, analysis.pipeline.stages[0])
    assert three(found)[1] == pytest.approx(1.6)


def test_generators_without_a_time_have_no_prediction():
    """Nothing measured, nothing promised."""
    found = parallel_generators.predict(analysed(**STEP, pipeline=pipeline("from_generator")), None)
    assert found == Missing("the generator's own time was not measured")


@pytest.mark.parametrize(("machine", "parts"), [({"cores": 8}, 8), ({"cores": 1}, 2), ({"quota": 3.5}, 3)])
def test_as_many_generators_as_cores(machine: dict[str, Any], parts: int):
    """One part a core, and two at least."""
    (suggestion,) = parallel_generators.suggest(analysed(**{**STEP, **machine}), "python-generator", None)
    assert f"tf.data.Dataset.range({parts}).interleave(" in suggestion.code


# --- fixed cost --------------------------------------------------------------------------------------


def test_several_steps_share_the_fixed_cost():
    """Of 40 ms in 100 fifteen sixteenths can go: at least two fifths of that, likely three quarters."""
    gone = 40 * 15 / 16
    found = three(more_steps_per_call.predict(analysed(**STEP), 40 * MS))
    assert found == pytest.approx((100 / (100 - 0.4 * gone), 100 / (100 - 0.75 * gone), 100 / (100 - gone)))


def test_a_bigger_batch_shares_the_fixed_cost_among_rows():
    """Four times the rows cost 40 ms once and 60 ms four times: 70 ms for what took 100, give or take."""
    found = more_steps_per_call.suggest_bigger_batch(analysed(**STEP), "tiny-steps", 40 * MS)
    assert three(found.predicted) == pytest.approx((100 / 87.5, 100 / 70, 100 / 56))


def test_without_a_step_the_fixed_cost_promises_nothing():
    """No step, no number, for the step's own reason or one that says what is missing."""
    short = analysed(calls_per_epoch=2)
    assert more_steps_per_call.predict(short, 1.0) == short.step
    assert isinstance(more_steps_per_call.suggest_bigger_batch(short, "tiny-steps", 1.0).predicted, Missing)


# --- graph -------------------------------------------------------------------------------------------


def eager(**parts: Any) -> Analysis:
    """Analyse an eager step of 100 ms beside 100 ms of waits."""
    return analysed(
        **{"wait": 100 * MS, "compute": 20 * MS, "dispatch": 80 * MS, "job": {"run_eagerly": True}, **parts}
    )


def test_a_graph_takes_its_own_time_and_leaves_the_rest():
    """A graph of 20 ms in place of 100 leaves 120 of 200."""
    assert three(graph_step.predict(eager(graph=20 * MS))) == pytest.approx((200 / 120,) * 3)


def test_a_graph_counts_per_step():
    """With four steps a call all times are a fourth, and the gain is the same."""
    found = three(graph_step.predict(eager(graph=20 * MS, steps_per_call=4)))
    assert found == pytest.approx((200 / 120,) * 3)


def test_a_step_is_never_faster_than_its_graph():
    """A replay that was slower than the job itself does not promise more than the graph can do."""
    found = three(graph_step.predict(eager(wait=0.0, replay_call=150 * MS, graph=20 * MS)))
    assert found == pytest.approx((5, 5, 5))


@pytest.mark.parametrize(("parts", "reason"), [({"replay": False}, "not replayed"), ({}, "graph")])
def test_a_graph_that_was_not_replayed_promises_nothing(parts: dict[str, Any], reason: str):
    """Without the replay, or without its graph, there is no number."""
    found = graph_step.predict(eager(**parts))
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_eager_everywhere_has_another_line_to_delete():
    """What was switched on for the whole program is switched off there."""
    suggestion = graph_step.suggest(eager(graph=20 * MS), "eager-step", everywhere=True)
    assert suggestion.code == (
        "- tf.config.run_functions_eagerly(True)\n+ tf.config.run_functions_eagerly(False)"
    )


# --- callbacks and validation ------------------------------------------------------------------------


def test_a_rarer_callback_keeps_a_hundredth():
    """40 ms at every batch leave 0.4; a tenth of what goes may stay, a fiftieth more may go."""
    found = rarer_callback.suggest(analysed(**STEP), "slow-callback", "Log", "on_train_batch_end", 40 * MS)
    gone = 40 * 0.99
    assert three(found.predicted) == pytest.approx(
        (100 / (100 - 0.9 * gone), 100 / (100 - gone), 100 / (100 - 1.02 * gone))
    )


def test_a_numbered_callback_is_a_class_all_the_same():
    """The second of two callbacks of a class is told apart by number, which is no part of the code."""
    found = rarer_callback.suggest(analysed(**STEP), "slow-callback", "Log #2", "on_train_batch_end", 1 * MS)
    assert found.code.splitlines()[0] == "  class Log:"
    assert found.id == "slow-callback/Log #2.on_train_batch_end"


@pytest.mark.parametrize(
    ("seconds", "factor"), [(1 * MS, 2), (15 * MS, 2), (17 * MS, 3), (49.5 * MS, 10), (89 * MS, 81)]
)
def test_rarer_validation_keeps_a_tenth(seconds: float, factor: int):
    """The factor brings validation to a tenth of the training time, and is two at least."""
    found = rarer_validation.suggest(analysed(**STEP), "validation-dominates", seconds)
    assert f"+ model.fit(…, validation_freq={factor})" in found.code
    low, value, high = three(found.predicted)
    assert value == pytest.approx(100 * MS / (100 * MS - seconds * (1 - 1 / factor)))
    assert low <= value <= high


def test_a_job_that_only_validates_promises_no_miracle():
    """Where validation is nearly all of the time, the upper end stays within twice the value."""
    made = Synthetic(compute=9 * MS, dispatch=1 * MS, calls_per_epoch=100, epochs=3, validation=99.0)
    found = rarer_validation.suggest(
        analysed(compute=9 * MS, dispatch=1 * MS, calls_per_epoch=100, epochs=3, validation=99.0),
        "validation-dominates",
        made.validation / 100,
    )
    _, value, high = three(found.predicted)
    assert value == pytest.approx(90, rel=0.02)
    assert high <= 2 * value + 1e-9
