"""The callback that measures the caller's own training, without changing or prolonging it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfdiag.analyse.analysis import analyse
from tfdiag.checks.registry import check_ids, run_checks
from tfdiag.collect.environment import read_environment
from tfdiag.collect.instrument import Instrument
from tfdiag.collect.job import describe
from tfdiag.collect.pipeline import describe_pipeline
from tfdiag.collect.recorder import Recorder
from tfdiag.compat import keras
from tfdiag.errors import TfdiagError, UsageError
from tfdiag.model.measurements import Measurements, Overhead
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.monitor.log import ReportLog
from tfdiag.render.report import Report
from tfdiag.report.build import build

__all__ = ["DiagnosticsCallback"]

_logger = logging.getLogger("tfdiag")
_UNTRIED = "not tried: nothing runs beside the caller's training; tfdiag.diagnose tries"
_NO_REPLAY = "the callback only watches: nothing is replayed beside the caller's training"
_NO_TELEMETRY = "the callback does not watch the GPUs"


class DiagnosticsCallback(keras.callback_base()):  # type: ignore[misc]  # Keras is untyped
    """Watches `fit` and says where the time of its steps goes.

    `report()` can be asked for at any time. With `every`, a report is logged after so many steps, and one
    at the end of training in any case: one line of JSON through `logging`, and with `log_dir` the whole
    report is appended to a JSON Lines file. `on_report` is called with each of them.
    """

    async_safe = True
    """It reads no values of batches, so Keras need not fetch them for it."""

    def __init__(
        self,
        *,
        log_dir: str | os.PathLike[str] | None = None,
        every: int | None = None,
        on_report: Callable[[Report], None] | None = None,
        ignore: Iterable[str] = (),
    ) -> None:
        super().__init__()
        if every is not None and every <= 0:
            raise UsageError(f"every counts steps between reports and must be positive, got {every}")
        self._ignore = check_ids(ignore)
        self._every = every
        self._on_report = on_report
        self._log = ReportLog(log_dir)
        self._recorder: Recorder | None = None
        self._given: Recorder | None = None
        self._instrument: Instrument | None = None
        self._params: Mapping[str, Any] = {}
        self._next_report = every or 0
        # tf_keras asks these of its callbacks.
        self._supports_tf_logs = True
        self._chief_worker_only = False

    @classmethod
    def recording(cls, recorder: Recorder) -> DiagnosticsCallback:
        """Give a callback that fills somebody else's recorder, and reports nothing by itself."""
        callback = cls()
        callback._given = recorder
        return callback

    def report(self) -> Report:
        """Say what the steps so far show."""
        recorder = self._recorder
        if recorder is None:
            raise TfdiagError(
                "nothing was measured yet: pass the callback to model.fit(callbacks=[…]) and ask for the "
                "report during or after training"
            )
        measurements = Measurements(
            environment=read_environment(self.model),
            job=describe(
                self.model,
                None,
                {"validation_freq": self._instrument.validation_freq if self._instrument else 1},
                epochs=int(self._params.get("epochs") or 1),
                steps_per_epoch=self._steps_per_epoch(),
            ),
            live=recorder.live(),
            replay=Missing(_NO_REPLAY),
            input_alone=Missing(_NO_REPLAY),
            pipeline=describe_pipeline(None, recorder),
            overhead=Overhead(
                total_s=recorder.looks_s, phases_s={"looks": recorder.looks_s},
                per_step_s=recorder.overhead(),
            ),
            gpu=Missing(_NO_TELEMETRY),
        )  # fmt: skip
        analysis = analyse(measurements)
        outcome = run_checks(analysis, self._ignore)
        return Report.from_data(build(analysis, outcome, ignored=self._ignore, untried=_UNTRIED))

    def close(self) -> None:
        """Take everything off the model; harmless when nothing is on."""
        if self._instrument is not None:
            self._instrument.detach()

    def take_down(self) -> None:
        """End the iterators of a `fit` that is over, instead of leaving them to garbage collection."""
        if self._instrument is not None:
            self._instrument.take_down()

    # --- what Keras calls ---------------------------------------------------------------------------

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Learn how long an epoch is."""
        super().set_params(params)
        self._params = params or {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Hang the recorder into the loop."""
        self._recorder = self._given or Recorder(
            time.perf_counter,
            steps_per_call=keras.steps_per_execution(self.model),
            on_look=self._look if self._every is not None else None,
        )
        self._next_report = self._every or 0
        self.close()  # what an earlier fit left that died
        self._instrument = Instrument(self._recorder, self)
        self._instrument.attach(self.model)
        self._recorder.event("train_begin")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Note it."""
        if self._recorder is not None:
            self._recorder.event("epoch_begin")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Note it, and read what the epoch's iterator still knows."""
        if self._recorder is None or self._instrument is None:
            return
        self._recorder.event("epoch_end")
        self._instrument.epoch_ends()
        loss = (logs or {}).get("loss")
        if isinstance(loss, float) and loss != loss:  # noqa: PLR0124  # NaN is the number that differs
            self._recorder.nan_loss = True

    def on_test_begin(self, logs: Any = None) -> None:
        """Time the validation inside training."""
        if self._recorder is not None and self._instrument is not None and self._instrument.attached:
            self._recorder.test_begins()
            self._instrument.attach_test()

    def on_test_end(self, logs: Any = None) -> None:
        """Note how long it took."""
        if self._recorder is not None and self._instrument is not None and self._instrument.attached:
            self._instrument.detach_test()
            self._recorder.test_ends()

    def on_train_end(self, logs: Any = None) -> None:
        """Take everything off, and report."""
        if self._recorder is None:
            return
        self._recorder.event("train_end")
        self.close()
        if self._given is None:
            self._publish()

    def _implements_train_batch_hooks(self) -> bool:
        return False

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    # --- inside -------------------------------------------------------------------------------------

    def _steps_per_epoch(self) -> Quantity | Missing:
        steps = self._params.get("steps")
        if steps:
            return Quantity(float(steps), "steps", source="fit")
        return Missing("fit does not know how long an epoch is")

    def _look(self, recorder: Recorder) -> None:
        steps = (recorder.dropped + len(recorder.calls)) * recorder.steps_per_call
        if self._every is not None and steps >= self._next_report:
            self._next_report = steps + self._every
            self._publish()

    def _publish(self) -> None:
        """Report; whatever goes wrong with it, the caller's training goes on."""
        try:
            report = self.report()
            self._log.write(report)
            if self._on_report is not None:
                self._on_report(report)
        except Exception:  # observing must not end the training that it observes
            _logger.exception("tfdiag could not report on this training")
