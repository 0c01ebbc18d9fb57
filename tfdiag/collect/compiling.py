"""What XLA compiles: the shapes that batches of the input have, and the time for a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tfdiag.collect import replay
from tfdiag.collect.session import Session
from tfdiag.collect.worker import Worker
from tfdiag.compat import keras, tensorflow
from tfdiag.model.compilation import BatchShape, Compilation
from tfdiag.model.measurements import Job, Live, Replay
from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["compiled_calls", "measure_compiling"]

_SHARE = 0.15
_AT_MOST_S = 4.0
_BATCHES = 300
_KEPT = 40
"""Shapes that are kept, the most frequent ones."""
_STANDS_OUT = 0.5
"""Of what compiling a new shape takes: a call that is longer by so much than others has compiled."""
_LEAST_S = 5e-3
"""What compiles faster than this is not XLA."""


def measure_compiling(session: Session, worker: Worker, job: Job, batch: Any) -> Compilation | Missing:
    """Give what was traced, and where XLA compiles the step what a new shape costs."""
    found = session.traces.found() if session.traces is not None else Missing("the job did not run")
    if isinstance(found, Missing) or not job.jit_compile or job.run_eagerly:
        return found
    if batch is None or session.request.train_step is not None:
        return replace(found, xla_compile=Missing("there is no batch of which to make other shapes"))
    if not unknown_dimensions(session.element_spec):
        return replace(found, xla_compile=Missing("all batches have one shape, which is known ahead"))
    session.say("compiling the step for another shape")
    with session.phase("compilation"):
        until = session.deadline.share(_SHARE, _AT_MOST_S)
        result: Compilation | Missing = session.guarded(
            worker, lambda: _measure(session, found, batch, until), "compiling another shape"
        )
    return replace(found, xla_compile=result) if isinstance(result, Missing) else result


def compiled_calls(live: Live, compilation: Compilation | Missing, replayed: Replay | Missing) -> Live:
    """Mark the calls of a run that are longer than others by what compiling takes."""
    if isinstance(compilation, Missing) or not isinstance(compilation.xla_compile, Quantity):
        return live
    took = np.asarray(live.duration_s)
    if len(took) < 3:
        return live
    typical = float(np.quantile(took, 0.25))
    if not isinstance(replayed, Missing) and replayed.call_s:
        # Where each call compiles, only the replay shows what a step takes without.
        typical = min(typical, float(np.median(replayed.call_s)))
    long = np.flatnonzero(took > typical + _STANDS_OUT * compilation.xla_compile.value)
    traced = {call - live.first_call_index for call in live.traced}
    calls = [int(call) for call in long if call not in traced]
    return replace(
        live,
        compiled=tuple(call + live.first_call_index for call in calls),
        compile_s=tuple(float(took[call]) - typical for call in calls),
    )


def unknown_dimensions(spec: Any) -> bool:
    """Say whether batches may differ in shape."""
    flat = tensorflow.tensorflow().nest.flatten(spec)
    return any(None in (getattr(part, "shape", None) or ()) for part in flat if hasattr(part, "shape"))


def _measure(session: Session, found: Compilation, batch: Any, until: float) -> Compilation:
    clock = session.request.clock
    shapes = _shapes(session, clock() + 0.4 * (until - clock()))
    return replace(
        found,
        shapes=_counted(shapes),
        different=len({tuple(each) for each in shapes}),
        looked=len(shapes),
        xla_compile=_probe(session, batch, shapes, until),
    )


def _shapes(session: Session, until: float) -> list[list[tuple[int, ...]]]:
    """Give the shapes of batches, one list for each batch, as long as the time lasts."""
    request = session.request
    x: Any = request.source.fresh().get("x") if not request.source.one_shot else None
    if not hasattr(x, "element_spec"):
        return []
    found = []
    flat = tensorflow.tensorflow().nest.flatten
    for part in x:
        found.append([tuple(int(n) for n in tensor.shape) for tensor in flat(part)])
        if len(found) >= _BATCHES or request.clock() >= until or session.stopped_hard:
            break
    return found


def _counted(shapes: list[list[tuple[int, ...]]]) -> tuple[BatchShape, ...]:
    texts = [" ".join(str(shape) for shape in each) for each in shapes]
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    last = texts[-1] if len(texts) < _BATCHES and texts and counts[texts[-1]] == 1 else ""
    ranked = sorted(counts, key=lambda text: -counts[text])[:_KEPT]
    return tuple(BatchShape(text, counts[text], text == last) for text in ranked)


def _probe(session: Session, batch: Any, shapes: list[list[tuple[int, ...]]], until: float) -> Maybe:
    """Time the step on a batch of a shape that it has not seen, at its first and its second time."""
    request = session.request
    tf = tensorflow.tensorflow()
    flat = tf.nest.flatten(batch)
    if any(not isinstance(part, tf.Tensor) for part in flat):
        return Missing("batches that are not dense tensors are not cut to another shape")
    cut = _another_shape(flat, shapes, tf.nest.flatten(session.element_spec))
    if cut is None:
        return Missing("no other shape could be made of the batch")
    step = keras.make_train_function(request.model)

    def first_and_second(parts: list[Any]) -> tuple[float, float]:
        other = tf.nest.pack_sequence_as(batch, parts)
        iterator = iter(replay.resident(request.model, other, session.element_spec))
        return _timed(step, iterator, request.clock), _timed(step, iterator, request.clock)

    # The step as it is first: whatever else happens once is behind us then.
    _, typical = first_and_second(flat)
    if request.clock() >= until:
        return Missing("the budget left no time to compile another shape")
    first, second = first_and_second(cut)
    took = first - max(second, typical)
    if took < _LEAST_S:
        return Missing("a batch of another shape took no longer at its first time")
    return Quantity(took, "s", source="a batch of a new shape, its first time less its second", count=1)


def _timed(step: Callable[[Any], Any], iterator: Any, clock: Callable[[], float]) -> float:
    begin = clock()
    step(iterator)
    return clock() - begin


def _another_shape(
    parts: list[Any], shapes: list[list[tuple[int, ...]]], specs: list[Any]
) -> list[Any] | None:
    """Cut the parts of a batch along the dimension in which batches differ, to a length not seen."""
    axis = _axis(shapes, specs)
    if axis is None:
        return None
    part, dimension = axis
    length = int(parts[part].shape[dimension])
    seen = {each[part][dimension] for each in shapes}
    other = next((size for size in range(length - 1, 0, -1) if size not in seen), None)
    if other is None:
        return None

    def cut(tensor: Any, spec: Any) -> Any:
        known = getattr(spec, "shape", ())
        if len(tensor.shape) > dimension and known[dimension] is None and tensor.shape[dimension] == length:
            return tensor[tuple([slice(None)] * dimension + [slice(0, other)])]
        return tensor

    return [cut(tensor, spec) for tensor, spec in zip(parts, specs, strict=True)]


def _axis(shapes: list[list[tuple[int, ...]]], specs: list[Any]) -> tuple[int, int] | None:
    """Give the part and the dimension in which batches differ most, the first unknown one where none do."""
    best, most = None, 1
    for part, spec in enumerate(specs):
        for dimension, size in enumerate(getattr(spec, "shape", None) or ()):
            if size is not None:
                continue
            best = best or (part, dimension)
            lengths = len({each[part][dimension] for each in shapes})
            if lengths > most:
                best, most = (part, dimension), lengths
    return best
