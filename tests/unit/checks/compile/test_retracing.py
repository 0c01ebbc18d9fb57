"""retracing: the step function is traced again and again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.compile.retracing import CHECK
from tfdiag.model.compilation import Compilation, Trace


def traces(calls: tuple[int, ...], cause: str = "value", **fields: Any) -> Compilation:
    """Give a first trace, and one of this cause in each of these calls."""
    given: dict[str, Any] = {"argument": "rate", "before": "0.1", "after": "0.2", "cause": cause, **fields}
    first = Trace("step", "train.py:7", 0, 0.5, "step", "first")
    return Compilation(
        (first, *(Trace("step", "train.py:7", call, 20 * MS, "step", **given) for call in calls))
    )


def retraced(share: float, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms in which every twentieth call is traced, for this share of all time."""
    calls = tuple(range(50, 200, 20))
    each = share * 100 * MS * 200 / len(calls)
    return {
        "compute": (99 - share * 100) * MS,
        "dispatch": 1 * MS,
        "retraces": calls,
        "retrace": each,
        "compilation": traces(calls),
        **parts,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.045, False), (0.056, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """Traces that cost less of the time are not worth a finding."""
    assert bool(results(CHECK, **retraced(share))) is fires


@pytest.mark.parametrize(("count", "fires"), [(2, False), (3, True)])
def test_single_traces_are_no_condition(count: int, fires: bool):
    """The last batch of an epoch may be traced, and one more; three are a habit."""
    calls = (100, 130, 160)[:count]
    parts = {"compute": 10 * MS, "retraces": calls, "retrace": 1.0, "compilation": traces(calls)}
    assert bool(results(CHECK, **parts)) is fires


def test_traces_of_the_warm_up_are_no_finding():
    """What ended with the warm-up is paid once."""
    parts = {"compute": 10 * MS, "retraces": (1, 2, 3, 5, 8), "retrace": 1.0}
    assert not results(CHECK, **parts, compilation=traces((1, 2, 3, 5, 8)))


def test_names_the_python_value_that_changes():
    """The argument, what it was and what it became, and the tensor to put in its place."""
    found = only(CHECK, **retraced(0.3))
    assert found.finding.title == (
        "The step is traced again and again, for 31% of its time: rate is a Python value that changes"
    )
    assert found.finding.where == "step (train.py:7)"
    assert found.finding.detail == "it was 0.1, then 0.2"
    assert value(found, "time of one trace") == pytest.approx(20 * MS)
    assert value(found, "traces") == 8
    assert "+ step(…, rate=tf.constant(rate))" in found.suggestions[0].code


@pytest.mark.parametrize(
    ("cause", "said", "code"),
    [
        ("shape", "the shape of rate changes", "drop_remainder=True"),
        ("type", "the type of rate changes", "tf.cast(rate, tf.float32)"),
        ("object", "rate is another object each time", "once, before the loop"),
        ("made anew", "the tf.function is made anew each time", "tf.function(step)  # once"),
        ("unknown", "traced again and again, for 31% of its time", "reduce_retracing=True"),
    ],
)
def test_each_cause_has_its_remedy(cause: str, said: str, code: str):
    """What is different decides what to change."""
    found = only(CHECK, **retraced(0.3, compilation=traces((70, 90, 110), cause)))
    assert said in found.finding.title
    assert code in found.suggestions[0].code


def test_the_most_frequent_cause_is_told():
    """One odd trace among many does not name the finding."""
    many = traces((90, 110, 130)).traces[1:]
    odd = traces((70,), "shape").traces[1:]
    found = only(CHECK, **retraced(0.3, compilation=Compilation((*odd, *many))))
    assert "Python value" in found.finding.title


def test_without_the_traces_the_calls_still_tell():
    """A callback in production counts traces, and does not know of what."""
    found = only(CHECK, **{**retraced(0.3), "compilation": Compilation(missing="elsewhere")})
    assert found.finding.where == "the train step"


def test_where_each_call_is_traced_the_tracing_itself_counts():
    """No call shows what the step takes without; what was timed is the least."""
    calls = tuple(range(1, 200))
    parts = {"compute": 59 * MS, "dispatch": 1 * MS, "retraces": calls, "compilation": traces(calls)}
    found = only(CHECK, **parts, job={"loop": "custom"}, live={"trace_s": (0.5, *[20 * MS] * 199)})
    assert found.finding.cost.value == pytest.approx(20 / 60, rel=0.02)


def test_loops_whose_traces_nobody_counts_are_open():
    """An own loop that was not watched may be traced or not."""
    assert "not counted" in not_run(CHECK, job={"loop": "custom"})
