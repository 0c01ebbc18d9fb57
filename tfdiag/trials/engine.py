"""Tries suggestions: each on a copy of the job, by turns with the job as it is, within the budget's rest.

First the job runs against itself: what differs there is the noise of this machine, now, and nothing within
it is claimed. Then the suggestions come, those first that promise most; at last those that are several
changes at once, and what helped alone, one on top of the other. Turns are interleaved, only the steady
state counts, and a trial ends as soon as more turns would change nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfdiag.analyse.analysis import Analysis
from tfdiag.collect.causes import root_cause
from tfdiag.collect.recorder import Recorder
from tfdiag.collect.session import RESERVE_S, Session
from tfdiag.collect.worker import Abandoned
from tfdiag.compat import host
from tfdiag.model.changes import Change
from tfdiag.model.measurements import Live
from tfdiag.model.pipeline import Edit
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Step, Suggestion
from tfdiag.model.trials import Trial, Trials
from tfdiag.trials.arms import arm_with, require_possible
from tfdiag.trials.epochs import Epochs, short_epochs
from tfdiag.trials.lane import Arm, CachesTooLarge, CannotTry, Lane, LaneFailed
from tfdiag.trials.rounds import (
    PAIRS_CLAIMED,
    Gain,
    Noise,
    Pairs,
    decided,
    gain_of,
    noise_of,
    pairs_needed,
    verdict_of,
)

__all__ = ["try_suggestions"]

_LEAST_S = 4.0
"""With less than this nothing is tried."""
_TURN_STEPS = 32
_TURN_LEAST_S = 0.4
_TURN_MOST_S = 1.5
_TURN_EPOCHS = 3
_SHORT_STEPS = 8
_SHORT_S = 0.2
"""Where time is short a turn is, but for so many steps and no less than this."""
_TURNS_LEAST = 28
"""What the null trial and a first suggestion take: turns, those that don't count, and making the copy."""
_SETTLE_TURNS = 2
"""Turns' worth of time at the start of a job in which buffers fill and caches are warmed."""
_NULL_PAIRS = 4
_PAIRS_MOST = 14
_DISTURBED_MOST = 3
"""Times as many, with those that don't count."""
_NULL_SHARE = 0.25
_MOST = 5
"""Suggestions that are tried alone."""
_STACKED = 3
"""Of those that helped, together."""
_WORTH = 1.02
_CLOSING_S = 1.0
"""What it takes to end a job, which tf.data can hold up."""

_ONLY_CALLER = "only the caller can make this change"
_NO_TIME = "the budget left no time for it"


def try_suggestions(
    session: Session,
    analysis: Analysis,
    suggestions: Sequence[Suggestion],
    make_callback: Callable[[Recorder], Any],
) -> tuple[Trials, tuple[Suggestion, ...]]:
    """Try what can be tried; whatever goes wrong with a trial, the diagnosis goes on.

    Gives what came of it, and suggestions that were added: several of them together.
    """
    if not any(one.edits or one.changes for one in suggestions):
        return Trials(missing="nothing of what is suggested can be made in a copy"), ()
    if isinstance(analysis.step, Missing) or isinstance(analysis.measurements.live, Missing):
        return Trials(missing="the job as it is was not measured"), ()
    if session.stopped_hard or session.deadline.left() < _LEAST_S:
        return Trials(missing=f"{_NO_TIME}: a larger budget= lets suggestions be tried"), ()
    session.say("trying suggestions")
    conductor = _Conductor(session, analysis, make_callback)
    with session.phase("trials"):
        try:
            conductor.run(suggestions)
        except KeyboardInterrupt:
            conductor.notes.append("trials were ended by Ctrl-C; what was found until then is in this report")
        finally:
            conductor.close()
    return conductor.result(), tuple(conductor.added)


@dataclass(slots=True)
class _Conductor:
    """Runs the lanes."""

    session: Session
    analysis: Analysis
    make_callback: Callable[[Recorder], Any]
    notes: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    added: list[Suggestion] = field(default_factory=list)
    """Several suggestions together, where each of them helped."""
    noise: Noise | None = None
    disturbed: int = 0
    """Pairs of turns that don't count."""
    missing: str = ""
    room_s: float = math.inf
    """What there is for all trials."""
    epochs: Epochs | None = None
    """The job's epochs, where they are so short that copies have them too."""
    originals: dict[Epochs | None, Lane] = field(default_factory=dict)
    """The job as it is, with its epochs or without an end."""
    lanes: list[Lane] = field(default_factory=list)

    def run(self, suggestions: Sequence[Suggestion]) -> None:
        """Try one after the other."""
        end = self._end
        self.room_s = end - self._clock()
        most = max(map(_promise, suggestions), default=1.0)
        self.epochs = short_epochs(self.analysis, self.session.request.fit_kwargs, self.room_s, most)
        try:
            self._original()
            self._null(self._clock() + _NULL_SHARE * (end - self._clock()))
        except (CannotTry, LaneFailed) as error:
            self.missing = str(error)
            return
        single = _ranked(suggestions)
        together = [one for one in suggestions if one.edits and one.id.endswith("/together")]
        waiting = [*single[:_MOST], *together]
        for one in single[:_MOST]:
            self._try(one, len(waiting))
            waiting.remove(one)
        self.trials.extend(_untried(one, _NO_TIME) for one in single[_MOST:])
        for one in together:
            self._try_together(one, [part for part in single if set(part.edits) <= set(one.edits)])
        self._stack(single, together)

    def result(self) -> Trials:
        """Give what there is."""
        noise: Maybe = Missing("the job was not run against itself")
        if self.noise is not None:
            noise = Quantity(
                self.noise.share, "share", source="the job against itself, by turns", count=self.noise.pairs
            )
        notes = list(self.notes)
        if self.disturbed:
            notes.append(
                f"{self.disturbed} pairs of turns don't count: the host of this virtual machine took away "
                "its cores meanwhile"
            )
        return Trials(tuple(self.trials), noise, self.missing, tuple(notes))

    def close(self) -> None:
        """Let all jobs come to their ends."""
        while self.lanes:
            self.lanes.pop().close()

    # --- one trial ----------------------------------------------------------------------------------

    def _original(self, *, endless: bool = False) -> Lane:
        """Give the job as it is."""
        epochs = None if endless else self.epochs
        if epochs not in self.originals:
            try:
                self.originals[epochs] = self._lane(self._made((), (), epochs))
            except CachesTooLarge:
                self.epochs = None
                return self._original(endless=True)
        return self.originals[epochs]

    def _against(self, one: Suggestion) -> tuple[Lane, Lane]:
        """Give the job as it is and as a suggestion changes it, both with epochs or both without an end."""
        original = self._original()
        try:
            made = self._made(one.edits, one.changes, original.arm.epochs)
        except CachesTooLarge:
            made = self._made(one.edits, one.changes, None)
            original = self._original(endless=True)
        return original, self._lane(made)

    def _null(self, until: float) -> None:
        """Run the job against itself."""
        original = self._original()
        other = self._lane(self._made((), (), original.arm.epochs))
        before, after = self._by_turns(original, other, until, lambda a, _: len(a) >= _NULL_PAIRS)
        self._drop(other)
        if len(before) < PAIRS_CLAIMED:
            raise CannotTry(_NO_TIME)
        self.noise = noise_of(before, after)

    def _try(self, one: Suggestion, waiting: int = 1) -> Gain | None:
        """Try one suggestion of those that wait, and write down what came of it."""
        begin = self._clock()
        left = self._end - begin
        turns = 2 * 3 * self._turn_s
        assert self.noise is not None
        noise = self.noise
        lane: Lane | None = None
        before: list[float] = []
        after: list[float] = []
        try:
            require_possible(self.session, one.changes)
            self._require_time(left, turns)
            self.session.say(f"trying {one.id}")
            original, lane = self._against(one)
            before, after = self._by_turns(
                original,
                lane,
                begin + max(turns, left / waiting),
                lambda a, b: decided(gain_of(a, b, noise), noise),
            )
        except (CannotTry, LaneFailed) as error:
            self.trials.append(_untried(one, str(error)))
            return None
        finally:
            if lane is not None:
                self._drop(lane)
        if len(before) < 2:
            self.trials.append(_untried(one, _NO_TIME))
            return None
        gain = gain_of(before, after, noise)
        self.trials.append(self._judged(one, gain, before, after, self._clock() - begin))
        return gain

    def _made(self, edits: Sequence[Edit], changes: Sequence[Change], epochs: Epochs | None) -> Arm:
        """Make a copy of the job; whatever the caller's classes and data do to that ends this trial only."""
        make = functools.partial(arm_with, self.session, self.analysis, edits, changes, epochs)
        try:
            made: Arm | Missing = self.session.guarded(self.session.worker, make, "making the copy")
        except Abandoned:
            raise CannotTry("making the copy took longer than what was left of the budget") from None
        except CannotTry:
            raise
        except Exception as error:
            raise CannotTry(f"making the copy failed: {root_cause(error)}") from error
        if isinstance(made, Missing):
            raise CannotTry(made.reason)
        return made

    def _require_time(self, left: float, turns: float) -> None:
        if left < turns + _CLOSING_S:
            raise CannotTry(_NO_TIME)

    def _stack(self, single: Sequence[Suggestion], together: Sequence[Suggestion]) -> None:
        """Try what helped alone one on top of the other, as long as each adds something."""
        helped = sorted((one for one in single if self._confirmed(one)), key=lambda one: -self._gain(one))
        if len(helped) < 2:
            return
        stack, best = [helped[0]], helped[0]
        for one in helped[1:_STACKED]:
            if any(_clash(one, other) for other in stack):
                continue
            joined = _joined([*stack, one])
            if any(set(joined.edits) == set(other.edits) and not joined.changes for other in together):
                continue
            self.added.append(joined)
            self._try_together(joined, [best])
            if self._confirmed(joined):
                stack, best = [*stack, one], joined

    def _confirmed(self, one: Suggestion) -> bool:
        return self._gain(one) > 0

    def _gain(self, one: Suggestion) -> float:
        """Give what a suggestion gave, 0 where it is not confirmed."""
        for trial in self.trials:
            if trial.suggestion == one.id and trial.status == "confirmed":
                return trial.measured.value if isinstance(trial.measured, Quantity) else 0.0
        return 0.0

    def _try_together(self, one: Suggestion, parts: Sequence[Suggestion]) -> None:
        """Try several changes at once; they are worth it only where they give more than the best of them."""
        ids = {part.id for part in parts}
        best = max(
            (t for t in self.trials if t.suggestion in ids and t.status == "confirmed"),
            key=lambda t: t.measured.value if isinstance(t.measured, Quantity) else 0.0,
            default=None,
        )
        gain = self._try(one)
        if gain is None or best is None or not isinstance(best.measured, Quantity):
            return
        found = self.trials[-1]
        adds = gain.value / best.measured.value
        low = gain.low / (best.measured.high or math.inf)
        high = gain.high / (best.measured.low or 1.0)
        assert self.noise is not None
        on_top = Quantity(adds, "x", low, high, source=f"all of them over {best.suggestion} alone")
        status, reason = found.status, found.reason
        if adds < 1 + self.noise.share and high > 1 + self.noise.share and status == "confirmed":
            status = "untried"
            reason = f"tried: what it adds to {best.suggestion} alone ({adds:.2f}x) is within the noise"
        elif adds < 1 + self.noise.share:
            status, reason = "refuted", f"together they give no more than {best.suggestion} alone"
        self.trials[-1] = Trial(
            found.suggestion,
            status,
            found.measured,
            reason,
            found.before_s,
            found.after_s,
            found.took_s,
            on_top,
        )

    def _judged(
        self, one: Suggestion, gain: Gain, before: list[float], after: list[float], took: float
    ) -> Trial:
        assert self.noise is not None
        promised = one.predicted.low if isinstance(one.predicted, Quantity) else None
        status = verdict_of(gain, self.noise, math.inf if promised is None else promised)
        slower = self._slower_than_its_copy(before)
        told = "turns of the job as it is and of a copy with the change"
        if slower > 1:
            told += f"; with the runtime's tuning the job took {slower:.2f} times as long as its copy"
        measured = Quantity(
            gain.value,
            "x",
            gain.low,
            gain.high * slower if math.isfinite(gain.high) else None,
            source=told,
            count=gain.pairs,
        )
        reason = ""
        if status == "untried":
            reason = _hidden(gain, self.noise, self._turn_s)
        elif status == "refuted":
            reason = f"measured {gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})"
        elif isinstance(one.predicted, Quantity):
            reason = _missed(self.analysis, one.predicted, gain, float(np.mean(after)))
        return Trial(one.id, status, measured, reason, tuple(before), tuple(after), took)

    def _slower_than_its_copy(self, before: Sequence[float]) -> float:
        """Give how much longer a step of the job was than one of its copy, where the runtime tunes the job.

        A copy without an end is not tuned, for it pauses: its stages have all cores from the first step on. A
        pipeline that the runtime gives fewer, or builds anew in each pass, is slower than that, and a change
        that spares the stage gains as much more.
        """
        pipeline, step = self.analysis.pipeline, self.analysis.step
        if isinstance(pipeline, Missing) or isinstance(step, Missing) or self.epochs is not None:
            return 1.0
        if not any(stage.tunable and stage.base != "Prefetch" for stage in pipeline.stages):
            return 1.0
        assert self.noise is not None
        slower = step.mean_s / float(np.median(before))
        return slower if slower > math.exp(self.noise.share) else 1.0

    # --- turns --------------------------------------------------------------------------------------

    def _by_turns(
        self, a: Lane, b: Lane, until: float, enough: Callable[[list[float], list[float]], bool]
    ) -> tuple[list[float], list[float]]:
        """Run two jobs A B, B A, A B … until that is enough or the time is over; give the mean steps."""
        self._settle(a)
        self._settle(b)
        pairs = Pairs()
        latest = min(self._end, 2 * until - self._clock())
        for first, second in _pairs(a, b):
            begin, away = self._clock(), host.stolen_s()
            one, two = self._turn(first), self._turn(second)
            took = max(1e-9, self._clock() - begin)
            away = (host.stolen_s() - away) / took / host.cores()
            disturbed = pairs.disturbed
            pairs.add(*((one, two) if first is a else (two, one)), away)
            if pairs.disturbed > disturbed:
                until = min(latest, until + took)
            before, after = pairs.counted()
            late = self._clock() + 2 * self._turn_s >= (until if len(before) >= PAIRS_CLAIMED else self._end)
            if enough(before, after) or late or len(before) == _PAIRS_MOST:
                break
        self.disturbed += pairs.disturbed
        return pairs.counted()

    def _settle(self, lane: Lane) -> None:
        """Let a job that is new go on until its tuning and its buffers have settled."""
        if lane.settled:
            return
        lane.turn(_SETTLE_TURNS * self._turn_s, self._hard_end)
        lane.settled = True

    def _turn(self, lane: Lane) -> float:
        """Give the mean step of one turn, with what lies between steps in the caller's own loop."""
        turn = lane.turn(self._turn_s, self._hard_end)
        beside = self._beside_s(lane.arm)
        if not turn.periods_s:
            return math.nan
        if lane.arm.epochs is not None:
            # Of the same samples, in however many steps. Taking an iterator down stalls now and then, at
            # random, for as long as the epoch took: that is no part of the typical one.
            typical = float(np.quantile(turn.periods_s, 0.5, method="lower"))
            return typical / lane.arm.epochs.steps + beside
        return float(np.mean(turn.periods_s)) / lane.arm.steps_per_call / lane.arm.samples + beside

    def _lane(self, arm: Arm) -> Lane:
        lane = Lane(self.session, arm, self.make_callback)
        self.lanes.append(lane)
        return lane

    def _drop(self, lane: Lane) -> None:
        self.lanes.remove(lane)
        lane.close()

    # --- times --------------------------------------------------------------------------------------

    @property
    def _clock(self) -> Callable[[], float]:
        return self.session.request.clock

    @property
    def _end(self) -> float:
        return self._hard_end - _CLOSING_S

    @property
    def _hard_end(self) -> float:
        return self.session.deadline.end - RESERVE_S

    @property
    def _turn_s(self) -> float:
        live, step = self.analysis.measurements.live, self.analysis.step
        assert isinstance(live, Live)
        assert isinstance(step, Step)
        call = step.median.value * live.steps_per_call
        wanted = min(_TURN_MOST_S, max(_TURN_LEAST_S, _TURN_STEPS * call))
        if self.epochs is not None:
            wanted = max(wanted, min(_TURN_MOST_S, _TURN_EPOCHS * self.epochs.seconds))
        return min(wanted, max(_SHORT_S, _SHORT_STEPS * call, self.room_s / _TURNS_LEAST))

    def _beside_s(self, arm: Arm) -> float:
        """What a step of the caller's bears that no copy does: callbacks, validation, ends of epochs.

        Larger batches are fewer, and so are the hooks around them; of epochs there are as many.
        """
        step, live = self.analysis.step, self.analysis.measurements.live
        assert isinstance(step, Step)
        assert isinstance(live, Live)
        often = live.steps_per_call / arm.steps_per_call
        own = ("loop", "epoch", "metrics") if arm.epochs is not None else ("loop",)
        items = [item for item in step.host_items if item.name not in own]
        of_calls = [item for item in items if "on_train_batch" in item.name or item.name == "fetching logs"]
        of_epochs = [item.per_step.value for item in items if item not in of_calls]
        if arm.epochs is None:
            of_epochs.append(self.analysis.between_epochs()[1])
        return sum(item.per_step.value for item in of_calls) * often / arm.samples + sum(of_epochs)


def _pairs(a: Lane, b: Lane) -> Iterator[tuple[Lane, Lane]]:
    for number in range(_DISTURBED_MOST * _PAIRS_MOST):
        yield (a, b) if number % 2 == 0 else (b, a)


def _clash(one: Suggestion, other: Suggestion) -> bool:
    """Say whether two suggestions change the same thing, so that both can't be made."""
    stages = {edit.node for edit in one.edits if edit.node >= 0}
    kinds = {change.kind for change in one.changes}
    return (
        any(edit.node in stages or edit in one.edits for edit in other.edits)
        or any(change.kind in kinds for change in other.changes)
    )  # fmt: skip


def _joined(parts: Sequence[Suggestion]) -> Suggestion:
    """Make one suggestion of several."""
    return Suggestion(
        id=f"{parts[0].check}/{'-and-'.join(part.id.partition('/')[2] for part in parts)}",
        check=parts[0].check,
        text=" Together with: ".join(part.text for part in parts),
        code="\n".join(part.code for part in parts),
        predicted=Missing("what several changes give together was measured, not predicted"),
        risk=" ".join(dict.fromkeys(part.risk for part in parts if part.risk)),
        edits=tuple(edit for part in parts for edit in part.edits),
        changes=tuple(change for part in parts for change in part.changes),
    )


def _ranked(suggestions: Sequence[Suggestion]) -> list[Suggestion]:
    """Give what can be tried, the most promising first; the same change is tried once."""
    found: dict[tuple[Any, ...], Suggestion] = {}
    for one in sorted(suggestions, key=lambda each: -_promise(each)):
        able = one.edits or one.changes
        if able and not one.id.endswith("/together") and _promise(one) >= _WORTH:
            found.setdefault((one.edits, one.changes), one)
    return list(found.values())


def _promise(one: Suggestion) -> float:
    return one.predicted.value if isinstance(one.predicted, Quantity) else 1.0


def _untried(one: Suggestion, why: str) -> Trial:
    return Trial(one.id, "untried", Missing(why), why)


def _hidden(gain: Gain, noise: Noise, turn_s: float) -> str:
    """Say why a gain is not claimed, and how long it would take to see it where the noise hides it."""
    found = f"tried: {gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})"
    if gain.pairs < PAIRS_CLAIMED:
        return f"{found} in {gain.pairs} pairs of turns, too few to claim it: {_NO_TIME}"
    if gain.low > 1:
        return f"{found} is too small for an advice"
    text = f"{found} is within the noise of this machine"
    needed = pairs_needed(gain, noise)
    if needed > gain.pairs:
        text += f"; it would take about {needed} pairs of turns of {turn_s:.2g} s instead of {gain.pairs}"
    return text


_MISSED = 0.15
"""A prediction this far off is worth a word."""


def _missed(analysis: Analysis, predicted: Quantity, gain: Gain, after_s: float) -> str:
    """Say which assumption failed, where a prediction missed its interval and that can be told."""
    low = predicted.value if predicted.low is None else predicted.low
    high = predicted.value if predicted.high is None else predicted.high
    if low <= gain.high and gain.low <= high:
        return ""
    bare = analysis.bounds.replay
    if not isinstance(bare, Quantity):
        return ""
    if gain.value > high:
        return "more than predicted: the input or the step has more room on this machine than alone it showed"
    if after_s > (1 + _MISSED) * bare.value:
        return "less than predicted: with the change the step still waits, so its stages gain less than alone"
    return "less than predicted: the step no longer waits, but is slower with the input at work beside it"
