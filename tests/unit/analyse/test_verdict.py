"""The one word for jobs of known make-up, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.synthetic import MS, Synthetic, analysed
from tests.synthetic_host import host
from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.breakdown import InputFacts
from tfdiag.analyse.verdict import judge
from tfdiag.model.measurements import Measurements
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import SEGMENTS, VERDICTS, HostItem, Step, Verdict
from tfdiag.stats import Estimate


def verdict(**parts: Any) -> Verdict:
    """Judge a job."""
    return analysed(**parts).verdict


def judged(measurements: Measurements | None = None, *, loop: float = 0.0, **segments: float) -> Verdict:
    """Judge a step of these segments, of 10 ms together unless they are more."""
    total = sum(segments.values())
    step = Step(
        mean_s=total,
        mean=Quantity(total, "s", total * 0.99, total * 1.01),
        median=Quantity(total, "s"),
        segments={name: Quantity(segments.get(name, 0.0), "s") for name in SEGMENTS},
        host_items=(HostItem("loop", Quantity(loop, "s")),),
        steady_steps=100,
    )
    return judge(measurements or Synthetic().measurements(), step)


JOBS: dict[str, tuple[dict[str, Any], float, str]] = {
    "input-bound": (
        {"wait": 30 * MS, "compute": 9 * MS},
        0.75,
        "The step waits for data for 75% of its 40 ms.",
    ),
    "compute-bound": ({"compute": 99 * MS}, 0.99, "The step computes for 99% of its 100 ms."),
    "launch-bound": (
        {"compute": 0.5 * MS, "dispatch": 1 * MS, "loop": 0.5 * MS},
        0.75,
        "Dispatching the step (Python, launches, the training loop) takes 75% of its 2 ms.",
    ),
    "host-bound": (
        {"callbacks": {"Log": 9 * MS}},
        0.45,
        "Python around the step (callbacks, validation, epoch ends) takes 45% of its 20 ms.",
    ),
    "compile-bound": (
        {"retraces": tuple(range(4, 200, 2)), "retrace": 78 * MS, "noise": 0.001},
        0.78,
        "Tracing and compiling take 78% of its 50 ms.",
    ),
}


@pytest.mark.parametrize("code", sorted(JOBS))
def test_each_code_has_its_job(code: str):
    """A job made for a code gets it, with its share and a sentence that has both numbers."""
    parts, share, headline = JOBS[code]
    found = verdict(**parts)
    assert found.code == code
    assert found.share == pytest.approx(share, abs=0.005)
    assert found.headline == headline
    assert found.confidence > 0.9


@pytest.mark.parametrize(
    ("segments", "code"),
    [
        ({"host_to_device": 3.0, "device_to_host": 3.0}, "transfer-bound"),
        ({"collective": 6.0}, "communication-bound"),
        ({"launch": 6.0}, "launch-bound"),
        ({"host": 6.0}, "host-bound"),
        ({"compile": 6.0}, "compile-bound"),
        ({"input_wait": 6.0}, "input-bound"),
    ],
)
def test_each_segment_has_its_code(segments: dict[str, float], code: str):
    """Six tenths of the step in a segment give the code of the segment."""
    found = judged(**segments, device_compute=4.0)
    assert found.code == code
    assert found.share == pytest.approx(0.6)
    assert found.code in VERDICTS


def test_validation_takes_the_day():
    """A job that validates most of the time is bound by the host, however small its steps."""
    found = verdict(calls_per_epoch=50, epochs=3, validation=2.0)
    assert found.code == "host-bound"
    assert found.share == pytest.approx(40 / 51)


def test_the_loop_counts_as_launch():
    """The training loop between steps is mended like dispatch, so it counts there and not as host."""
    assert judged(device_compute=6.0, host=4.0, loop=4.0).code == "launch-bound"
    assert judged(device_compute=6.0, host=4.0, loop=0.5).code == "host-bound"
    assert judged(device_compute=4.7, host=5.3, loop=2.7).code == "launch-bound"


@pytest.mark.parametrize(("wait", "code"), [(2.49, "compute-bound"), (2.57, "input-bound")])
def test_a_quarter_of_the_step_names_the_verdict(wait: float, code: str):
    """What can be mended names the verdict from a quarter of the step on, though compute is more."""
    assert judged(input_wait=wait, device_compute=10 - wait).code == code


def test_the_larger_of_two_names_the_verdict():
    """Of two parts over the threshold the larger one wins."""
    assert judged(input_wait=3.0, host=4.0, device_compute=3.0).code == "host-bound"
    assert judged(input_wait=4.0, host=3.0, device_compute=3.0).code == "input-bound"


def test_no_single_cause():
    """Where nothing reaches its threshold there is no verdict, and the sentence has the largest part."""
    parts = {"device_compute": 4.8, "input_wait": 2.0, "launch": 1.6, "host": 1.6}
    found = judged(**parts)
    assert found.code == "inconclusive"
    assert found.headline == "No single cause: nothing takes more than 48% of the step of 10 s."
    assert judged(**{**parts, "device_compute": 6.0}).code == "compute-bound"


@pytest.mark.parametrize(("unexplained", "code"), [(3.9, "input-bound"), (4.1, "inconclusive")])
def test_what_nothing_explains_may_be_too_much(unexplained: float, code: str):
    """A verdict has to explain more than what stays unexplained."""
    found = judged(input_wait=4.0, device_compute=1.0, unexplained=unexplained)
    assert found.code == code
    if code == "inconclusive":
        share = unexplained / (5 + unexplained)
        assert found.share == pytest.approx(share)
        assert f"{share:.0%}" in found.headline
        assert "can't be explained" in found.headline
        assert found.confidence <= 0.3


def test_a_third_unexplained_does_not_take_a_small_verdict():
    """Up to three tenths may stay unexplained even where the verdict's own share is less."""
    assert judged(input_wait=2.6, device_compute=4.5, unexplained=2.9).code == "input-bound"


def test_compute_is_not_claimed_of_unsteady_steps():
    """A replay that comes out as long as an unsteady step says nothing of its wait."""
    parts = {name: Quantity(0.0, "s") for name in SEGMENTS}
    parts["device_compute"] = Quantity(8.0, "s", 3.0, 13.0, "estimated")
    parts["host"] = Quantity(2.0, "s")

    def of(low: float, high: float, **segments: Quantity) -> Verdict:
        mean = Quantity(10.0, "s", low, high)
        step = Step(
            mean_s=10.0, mean=mean, median=mean, segments={**parts, **segments}, host_items=(), steady_steps=7
        )
        return judge(Synthetic().measurements(), step)

    assert of(9.0, 11.0).code == "compute-bound"
    wild = of(1.0, 19.0)
    assert wild.code == "inconclusive"
    assert wild.headline == (
        "The step seems to compute for 80% of its 10 s, but its steps were too unsteady to tell: their mean "
        "lies between 1 s and 19 s."
    )
    assert wild.confidence <= 0.3
    waits = of(9.0, 11.0, input_wait=Quantity(0.0, "s", 0.0, 7.0))
    assert waits.code == "inconclusive"
    assert "the wait for data may take up to 70% of it" in waits.headline
    assert of(9.0, 11.0, input_wait=Quantity(0.0, "s", 0.0, 3.0)).code == "compute-bound"


def test_a_host_that_takes_cores_away_is_said():
    """What makes times of a virtual machine long is among what would have to change to say more."""
    job = {"wait": 30 * MS, "compute": 9 * MS, "cores": 4}
    said = "the host of this virtual machine took away 1.2 of its 4 cores meanwhile"
    assert said in verdict(**job, **host(stolen=1.2)).missing
    assert said not in verdict(**job, **host(stolen=0.1)).missing


def test_without_a_step_there_is_no_verdict():
    """Too few steps are inconclusive, with the reason in the sentence and among what was missing."""
    found = verdict(calls_per_epoch=2)
    assert found.code == "inconclusive"
    assert (found.share, found.confidence) == (0, 0)
    assert "only 2 calls" in found.headline
    assert "only 2 calls" in found.missing[0]


def test_without_a_run_there_is_no_verdict():
    """A run that never came to a step is inconclusive for the run's own reason."""
    made = replace(Synthetic().measurements(), live=Missing("the first step took too long"))
    found = judge(made, Missing("the first step took too long"))
    assert found == Verdict(
        "inconclusive",
        "The job could not be judged: the first step took too long.",
        0.0,
        0.0,
        ("the first step took too long",),
    )


def test_without_waits_and_replay_nothing_is_concluded():
    """The whole call is unexplained then, and both reasons are named."""
    found = verdict(wait=20 * MS, waits=False, replay=False)
    assert found.code == "inconclusive"
    assert any(reason.startswith("input_wait: ") for reason in found.missing)
    assert any(reason.startswith("device_compute: ") for reason in found.missing)
    assert any(reason.startswith("launch: ") for reason in found.missing)
    assert "replay: there was no time for a replay" in found.missing
    assert "input alone: there was no time for the input alone" in found.missing


def test_what_was_missing_is_named():
    """A run that was cut short says so; one with everything misses nothing."""
    cut = verdict(live={"cut": "the budget ran out"}, input_alone=1 * MS)
    assert cut.missing == ("the budget ran out",)
    assert verdict(input_alone=1 * MS).missing == ()


CLEAR: dict[str, Any] = {"wait": 30 * MS, "input_alone": 31 * MS, "noise": 0.02}


@pytest.mark.parametrize(
    ("less", "factor"),
    [
        ({"waits": False}, 0.85),
        ({"replay": False}, 0.8),
        ({"calls_per_epoch": 17}, 0.5 + 0.5 * 15 / 30),
    ],
)
def test_confidence_falls_when_something_is_missing(less: dict[str, Any], factor: float):
    """An estimated wait, no replay, and few steps each lower the confidence in the same verdict."""
    whole, part = verdict(**CLEAR), verdict(**{**CLEAR, **less})
    assert part.code == whole.code == "input-bound"
    assert whole.confidence == 0.99
    assert part.confidence == pytest.approx(factor, abs=0.01)


def test_confidence_falls_most_without_waits():
    """A slow callback is seen without waits and replay, but what it is held against is not."""
    whole = verdict(callbacks={"Log": 40 * MS}, noise=0.02)
    part = verdict(callbacks={"Log": 40 * MS}, noise=0.02, waits=False, replay=False)
    assert part.code == whole.code == "host-bound"
    assert whole.confidence == 0.99
    assert part.confidence == pytest.approx(0.6 * 0.8, abs=0.01)


def test_confidence_falls_near_the_threshold():
    """A wait at the threshold is as good as a coin; well above it the verdict is sure."""
    shares = [judged(input_wait=w, device_compute=10 - w).confidence for w in (2.51, 2.7, 4.0)]
    assert shares == sorted(shares)
    assert shares[0] < 0.6
    assert shares[-1] == 0.99
    below = [judged(input_wait=w, device_compute=10 - w).confidence for w in (2.49, 2.3, 0.5)]
    assert below == sorted(below)
    assert below[0] < 0.6
    assert below[-1] == 0.99


def test_confidence_falls_with_noise():
    """A mean that is known to a third is worth less than one that is known to a hundredth."""
    step = analysed(wait=5 * MS, input_alone=5 * MS).step
    assert isinstance(step, Step)
    vague = replace(step, mean=replace(step.mean, low=step.mean_s * 0.7, high=step.mean_s * 1.3))
    made = Synthetic(wait=5 * MS, input_alone=5 * MS).measurements()
    assert judge(made, vague).code == judge(made, step).code == "input-bound"
    assert judge(made, vague).confidence < judge(made, step).confidence - 0.2


def test_confidence_is_a_probability():
    """Whatever the job, the confidence lies between 0 and 0.99."""
    for wait in (0, 1, 3, 10, 100):
        for noise in (0, 0.3):
            assert 0 <= verdict(wait=wait * MS, noise=noise).confidence <= 0.99


@pytest.mark.parametrize(("noise", "wait"), [(0.0, 2.53), (0.04, 2.58), (0.4, 2.7)])
def test_what_lies_within_the_noise_names_no_verdict(noise: float, wait: float):
    """A share that the next run would measure on the other side of the threshold is not claimed."""
    step = analysed(wait=wait * MS, input_alone=wait * MS, compute=(9.9 - wait) * MS, dispatch=0.1 * MS).step
    assert isinstance(step, Step)
    mean = replace(step.mean, low=step.mean_s * (1 - noise), high=step.mean_s * (1 + noise))
    assert judge(Synthetic().measurements(), replace(step, mean=mean)).code == "compute-bound"


# The input's own work ------------------------------------------------------------------------


def contended(**parts: Any) -> Analysis:
    """Give a job whose step is replayed in 4 ms and takes 10 beside an input that hardly lets it wait."""
    return analysed(
        **{
            "wait": 0.2 * MS,
            "compute": 9.7 * MS,
            "dispatch": 0.1 * MS,
            "replay_call": 4 * MS,
            "input_alone": 9 * MS,
            "input_cpu": 1.0,
            **parts,
        }
    )


def test_what_the_inputs_work_takes_counts_as_input():
    """The step is faster without its input though it hardly waits: the input's work holds it up."""
    found = contended()
    assert found.verdict.code == "input-bound"
    assert found.contended_s == pytest.approx(5.8 * MS, rel=0.05)
    assert found.verdict.share == pytest.approx(0.6, rel=0.05)
    assert "own work holds it up" in found.verdict.headline


@pytest.mark.parametrize("parts", [{"input_cpu": 0.1}, {"input_alone": None}, {"replay_call": 9.5 * MS}])
def test_an_input_that_does_not_work_is_not_blamed(parts: dict[str, Any]):
    """What sleeps takes no core, what is not known is not claimed, and little can be a slow second."""
    found = contended(**parts)
    assert found.contended_s == 0.0
    assert found.verdict.code != "input-bound"


def test_one_stalled_end_of_an_epoch_is_not_the_verdict():
    """What was seen once may be chance; what each of several epochs shows is not."""
    job = {"wait": 6 * MS, "compute": 0.4 * MS, "dispatch": 0.1 * MS, "between_epochs": 1.3}
    once = analysed(**job, epochs=2)
    assert isinstance(once.step, Step)
    assert once.host_item("epoch") > 6 * MS
    assert once.surely_host_item("epoch") == 0.0
    assert once.verdict.code == "input-bound"

    often = analysed(**job, epochs=5)
    assert often.surely_host_item("epoch") == pytest.approx(often.host_item("epoch"))
    assert often.verdict.code == "host-bound"


@pytest.mark.parametrize(
    ("alone", "code"), [(None, "launch-bound"), (8 * MS, "launch-bound"), (16 * MS, "input-bound")]
)
def test_what_paces_the_step_names_it(alone: float | None, code: str):
    """Dispatch goes on while the input works: where no batch comes sooner, mending dispatch gives nothing."""
    segments = {"input_wait": 5 * MS, "launch": 8 * MS, "device_compute": 4 * MS}
    step = Step(
        mean_s=17 * MS,
        mean=Quantity(17 * MS, "s", 16.8 * MS, 17.2 * MS),
        median=Quantity(17 * MS, "s"),
        segments={name: Quantity(segments.get(name, 0.0), "s") for name in SEGMENTS},
        steady_steps=100,
    )
    known = Missing("not read")
    facts = known if alone is None else InputFacts(Estimate(alone, alone, alone, 100), 0.0)
    assert judge(Synthetic().measurements(), step, alone=facts).code == code
