"""`tfdiag.diagnose`: the only file that knows every stage."""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from tfdiag.analyse.analysis import analyse
from tfdiag.checks.registry import check_ids, run_checks
from tfdiag.collect.collect import collect
from tfdiag.collect.inputs import check_data, resolve_input
from tfdiag.collect.opening import opened
from tfdiag.collect.session import Request
from tfdiag.compat import keras, tensorflow
from tfdiag.errors import DatasetError, ModelError, UsageError
from tfdiag.model.report import Suggestion
from tfdiag.model.trials import Trials
from tfdiag.monitor.callback import DiagnosticsCallback
from tfdiag.render.report import Report
from tfdiag.report.build import build, with_trials
from tfdiag.trials.engine import try_suggestions

__all__ = ["diagnose"]

_OURS = ("callbacks",)


def diagnose(
    model: Any,
    dataset: Any = None,
    *,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    fit_kwargs: Mapping[str, Any] | None = None,
    train_step: Callable[[Any], Any] | None = None,
    budget: float = 60.0,
    steps: int | None = None,
    verify: bool = True,
    trace: Literal["auto"] | bool = "auto",
    ignore: Iterable[str] = (),
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Run a training job for a while and say where the time of its steps goes, why, and what to change.

    Takes what `fit` takes: a `tf.data.Dataset`, arrays (`x`, `y=`), a PyDataset or a generator as
    `dataset`, everything else in `fit_kwargs`. A loop of your own is diagnosed by its step: `train_step=`
    is called with one batch after another. Where there is a device, some steps are traced, unless `trace` is
    false. What can be changed in a copy of the job is tried there, unless `verify` is false. It returns
    within `budget` seconds. Model, optimizer, callbacks and dataset are left as they were.
    """
    begin = time.perf_counter()  # what is imported to check the arguments is the caller's time as well
    request = _checked(
        model, _one_of(dataset, x), y, batch_size, dict(fit_kwargs or {}), train_step, budget, steps
    )
    request.progress = progress
    request.trace, request.verify = bool(trace), bool(verify)
    ignored = check_ids(ignore)
    with opened(request, begin) as session:
        measurements = collect(session, DiagnosticsCallback.recording)
        analysis = analyse(measurements)
        data = build(analysis, run_checks(analysis, ignored), ignored=ignored)
        trials = Trials(missing="not tried: verify=False")
        added: tuple[Suggestion, ...] = ()
        if verify:
            trials, added = try_suggestions(
                session, analysis, data.suggestions, DiagnosticsCallback.recording
            )
    deadline = session.deadline
    overhead = replace(measurements.overhead, total_s=deadline.spent(), phases_s=dict(deadline.phases_s))
    return Report.from_data(with_trials(data, trials, overhead, added))


def _one_of(dataset: Any, x: Any) -> Any:
    if dataset is not None and x is not None:
        raise UsageError("the input is given twice, as dataset and as x=; pass it once")
    return dataset if x is None else x


def _checked(
    model: Any,
    dataset: Any,
    y: Any,
    batch_size: int | None,
    fit_kwargs: dict[str, Any],
    train_step: Callable[[Any], Any] | None,
    budget: Any,
    steps: Any,
) -> Request:
    """Refuse what can't be measured, before anything is touched."""
    tensorflow.tensorflow()
    if not isinstance(budget, (int, float)) or not 0 < budget < math.inf:
        raise UsageError(f"budget is a finite number of seconds above 0, got {budget!r}")
    if steps is not None and (not isinstance(steps, int) or steps <= 0):
        raise UsageError(f"steps is a number of steps above 0, got {steps!r}")
    if tensorflow.in_function():
        raise UsageError(
            "diagnose was called inside a tf.function; call it from Python, beside your training"
        )
    if train_step is None:
        _check_model(model)
        _check_fit_kwargs(model, fit_kwargs)
    elif not callable(train_step):
        raise UsageError(f"train_step is a function of one batch, got {type(train_step).__name__}")
    source = resolve_input(
        dataset, y=y, batch_size=batch_size, fit_kwargs=fit_kwargs, custom=train_step is not None
    )
    callbacks = fit_kwargs.pop("callbacks", None) or []
    if not isinstance(callbacks, (list, tuple)):
        callbacks = list(getattr(callbacks, "callbacks", [callbacks]))
    return Request(
        model=model,
        source=source,
        fit_kwargs=fit_kwargs,
        train_step=train_step,
        budget_s=float(budget),
        steps=steps,
        clock=time.perf_counter,
        callbacks=list(callbacks),
    )


def _check_model(model: Any) -> None:
    keras.require_model(model)
    backend = keras.backend_of(model)
    if backend != "tensorflow":
        raise ModelError(
            f"this Keras computes with {backend}; tfdiag measures TensorFlow: set KERAS_BACKEND=tensorflow "
            "before Keras is imported"
        )
    if not keras.is_compiled(model):
        raise ModelError(
            "the model is not compiled: call model.compile(...) first, or pass train_step= for a loop of "
            "your own"
        )
    frame = sys._getframe(1)  # noqa: SLF001  # the stack is the only place that knows of a running fit
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            raise ModelError(
                "diagnose was called inside a running fit of the same model; put a "
                "tfdiag.DiagnosticsCallback() into that fit instead, or diagnose before it"
            )
        frame = frame.f_back  # type: ignore[assignment]  # the loop ends at None


def _check_fit_kwargs(model: Any, fit_kwargs: Mapping[str, Any]) -> None:
    known = set(inspect.signature(model.fit).parameters)
    unknown = [name for name in fit_kwargs if name not in known]
    if unknown and "kwargs" not in known:
        raise UsageError(f"fit_kwargs: fit of this model takes no {unknown[0]!r}")
    validation = fit_kwargs.get("validation_data")
    if validation is not None:
        try:
            check_data(validation)
        except DatasetError as error:
            raise UsageError(f"fit_kwargs: validation_data: {error}") from error
    steps = fit_kwargs.get("steps_per_epoch")
    if steps is not None and steps <= 0:
        raise UsageError(f"fit_kwargs: steps_per_epoch must be above 0, got {steps}")
