"""Reports made by hand, for tests of everything that reads, writes or shows one."""

from __future__ import annotations

import math
from dataclasses import replace

from tfdiag.model.measurements import (
    BoundaryEvent,
    CallbackTime,
    Device,
    Environment,
    HostSample,
    InputAlone,
    Job,
    Live,
    Measurements,
    Overhead,
    Replay,
    ValidationRun,
)
from tfdiag.model.pipeline import Pipeline, Stage, StageParameter
from tfdiag.model.quantity import Missing, Origin, Quantity
from tfdiag.model.report import (
    SEGMENTS,
    Bounds,
    Evidence,
    Finding,
    HostItem,
    Step,
    Suggestion,
    Verdict,
)
from tfdiag.render.report import Report

__all__ = ["NASTY", "SAMPLES", "empty", "full", "nasty", "tried"]

NO_DEVICE = "device timelines are not read yet"
NASTY = (
    'a\nb\r\n| <script>alert("1")</script> **x** `y` [l](http://h) \x1b[31mred\x00 \u202egnp &amp; # \ud800'
)


def seconds(value: float, spread: float = 0.03, origin: Origin = "measured", source: str = "") -> Quantity:
    """Give a time with an interval of so much to both sides."""
    low, high = value * (1 - spread), value * (1 + spread)
    return Quantity(value, "s", low, high, origin, source, 100)


def speed(value: float, low: float, high: float, origin: Origin = "estimated") -> Quantity:
    """Give a speed-up."""
    return Quantity(value, "x", low, high, origin)


def segments(**known: Quantity) -> dict[str, Quantity | Missing]:
    """Give all segments; those that are not named were not measured."""
    return {name: known.get(name, Missing(NO_DEVICE)) for name in SEGMENTS}


def full() -> Report:
    """Give an input-bound job in which nearly everything was measured."""
    step = Step(
        mean_s=0.0483,
        mean=seconds(0.0483, 0.01),
        median=seconds(0.047, 0.01),
        segments=segments(
            input_wait=seconds(0.0321, 0.02),
            device_compute=seconds(0.0121, 0.04),
            launch=Quantity(0.00041, "s", origin="estimated"),
            host=seconds(0.0029, 0.1),
            compile=Quantity(0.0, "s"),
            unexplained=Quantity(0.00079, "s"),
        ),
        host_items=(
            HostItem("loop", seconds(0.00031)),
            HostItem("callback ModelCheckpoint.on_train_batch_end", seconds(0.0019)),
            HostItem("validation", seconds(0.00069), "a pass of 1.38 s after every 2,000 steps"),
            HostItem("callback History", Quantity(0.0, "s")),
        ),
        warmup_steps=12,
        steady_steps=100,
        outliers=2,
        first_step=Quantity(3.21, "s"),
        compile_once=Quantity(2.94, "s"),
        first_batch=Quantity(0.41, "s"),
    )
    bounds = Bounds(
        replay=seconds(0.0125, 0.02, source="replay"),
        input_alone=seconds(0.0318, 0.03),
        ideal_overlap=seconds(0.0318, 0.03, "estimated"),
        best_speedup=speed(3.86, 3.7, 4.02),
    )
    findings = (
        Finding(
            check="sequential-map",
            title="A map that the runtime leaves serial is the slowest stage of the input",
            severity="critical",
            cost=Quantity(0.664, "share", 0.65, 0.679),
            evidence=(
                Evidence("time in the stage per batch", seconds(0.0311), seconds(0.0048), "above"),
                Evidence("parallelism", Quantity(1, "", origin="given"), Quantity(2, ""), "below"),
                Evidence("idle cores", Quantity(6.4, "cores", 6.1, 6.7), Quantity(1, "cores"), "above"),
                Evidence("bytes per second", Quantity(3.1e8, "B/s")),
                Evidence("time in the stage on one core", Missing("the stage's own CPU time is not told")),
            ),
            where="map(decode)",
            detail="Its function has a random op, so tf.data keeps it serial.",
        ),
        Finding(
            check="slow-callback",
            title="A callback takes a share of every step",
            severity="warning",
            cost=Quantity(0.039, "share", 0.035, 0.044),
            evidence=(
                Evidence("time per step", seconds(0.0019), Quantity(0.02, "share"), "above"),
                Evidence("calls", Quantity(100, "")),
            ),
            where="ModelCheckpoint.on_train_batch_end",
        ),
        Finding("compute-bound", "What comes next", "info", Quantity(0.25, "share"), ()),
    )
    suggestions = (
        Suggestion(
            id="sequential-map/parallel-map",
            check="sequential-map",
            text="Let the map run on all cores",
            code=(
                "-dataset = dataset.map(decode)\n"
                "+dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)\n"
                " dataset = dataset.batch(32)\n"
            ),
            predicted=speed(2.9, 2.4, 3.3),
            risk="With deterministic=False elements come in another order.",
        ),
        Suggestion(
            id="slow-callback/less-often",
            check="slow-callback",
            text="Save a checkpoint once per epoch instead of every batch",
            code='-ModelCheckpoint(path, save_freq=1)\n+ModelCheckpoint(path, save_freq="epoch")',
            predicted=speed(1.04, 1.03, 1.05),
            reason="what a callback does to the disk can't be tried on a copy",
        ),
    )
    return Report(
        verdict=Verdict("input-bound", "Steps wait for input 66 % of the time.", 0.664, 0.98),
        step=step,
        bounds=bounds,
        findings=findings,
        suggestions=suggestions,
        rejected=(),
        measurements=measurements(),
        ignored=("epoch-overhead",),
        not_run=(("idle-gpu", NO_DEVICE), ("cpu-quota", "no container quota is set")),
        warnings=("The loss was NaN in the measured steps.",),
    )


def measurements() -> Measurements:
    """Give measurements in which every kind of part occurs."""
    starts = tuple(0.1 + 0.0483 * i for i in range(112))
    live = Live(
        start_s=starts,
        duration_s=tuple(0.045 + 1e-5 * (i % 7) for i in range(112)),
        wait_s=(math.nan, *(0.0321 for _ in range(111))),
        traced=(0,),
        callbacks=(CallbackTime("ModelCheckpoint", "on_train_batch_end", 0, 112, 112, 0.21),),
        events=(BoundaryEvent("epoch_begin", 0.05, 0), BoundaryEvent("epoch_end", 5.5, 112)),
        validations=(ValidationRun(5.5, 6.88, 40, 1.31, True, Quantity(0.033, "s")),),
    )
    stages = (
        Stage(1, "FromTensor", elements=3584),
        Stage(
            2,
            "Map",
            "map(decode)",
            (1,),
            3584,
            111.5,
            bytes_produced=1.1e9,
            parallelism=Quantity(1, ""),
            parameters=(StageParameter("parallelism", 1.0, False),),
        ),
    )
    return Measurements(
        environment=environment(),
        job=Job(
            loop="keras",
            model="cnn (Sequential)",
            input="tf.data.Dataset",
            parameters=Quantity(1_234_567, ""),
            batch_size=Quantity(32, ""),
            batch_bytes=Quantity(4_816_896, "B"),
            epochs=2,
            jit_compile=True,
            dtype_policy="float32",
            callbacks=("ModelCheckpoint",),
            batches_used=112,
            notes=("The input was iterated 3 times.",),
        ),
        live=live,
        replay=Replay((0.0125, 0.0124, 0.0126), 0.08, 0.013, (0.0004,)),
        input_alone=InputAlone((0.0318, 0.0319), 0.06, 0.41),
        pipeline=Pipeline(stages, 2, ("from_tensor_slices", "map(decode)"), ("Mul",)),
        overhead=Overhead(
            14.2,
            {"warm-up": 3.4, "live": 6.9, "replay": 1.2, "input alone": 2.5},
            Quantity(1.2e-5, "s"),
            Quantity(60.0, "s", origin="given"),
        ),
        host=(HostSample(0.1, 1.0, 2.0, 10**9, Quantity(4096, "B"), threads=40),),
    )


def environment() -> Environment:
    """Give a machine with a GPU."""
    return Environment(
        tfdiag="0.1.0",
        python="3.12.3",
        platform="Linux x86_64",
        tensorflow="2.21.0",
        keras="3.15.0",
        cores=8,
        memory_bytes=33_500_000_000,
        devices=(
            Device("/CPU:0", "CPU"),
            Device("/GPU:0", "GPU", "NVIDIA A100"),
            Device("/GPU:1", "GPU", "NVIDIA A100"),
        ),
        intra_op_threads=8,
        date="2026-11-18T10:00:00+00:00",
    )


def empty() -> Report:
    """Give a run in which nearly nothing was measured."""
    reason = "the budget of 5.00 s ran out in the first step"
    cut = Missing(reason)
    return Report(
        verdict=Verdict(
            "inconclusive",
            "One step takes longer than the budget.",
            0.0,
            0.0,
            ("a budget of at least 40 s",),
        ),
        step=cut,
        bounds=Bounds(cut, cut, cut, cut),
        findings=(),
        suggestions=(),
        rejected=(),
        measurements=Measurements(
            environment=replace(environment(), devices=(Device("/CPU:0", "CPU"),), cores=1),
            job=Job("keras", "m (Model)", "generator", one_shot=True),
            live=cut,
            replay=cut,
            input_alone=Missing("a one-shot generator can't be read twice"),
            pipeline=Missing("the input is no tf.data pipeline"),
            overhead=Overhead(5.31),
        ),
        not_run=(("sequential-map", "the input is no tf.data pipeline"), ("tiny-steps", reason)),
    )


def tried() -> Report:
    """Give a report in which trials confirmed one suggestion and refuted another."""
    report = full()
    first, second = report.suggestions
    confirmed = replace(first, measured=speed(2.71, 2.6, 2.82, "measured"), status="confirmed")
    refuted = Suggestion(
        id="missing-prefetch/prefetch",
        check="missing-prefetch",
        text="Add prefetch at the end of the input",
        code="+dataset = dataset.prefetch(tf.data.AUTOTUNE)",
        predicted=speed(1.31, 1.2, 1.4),
        measured=speed(1.003, 0.992, 1.014, "measured"),
        status="refuted",
        reason="the runtime had already injected a prefetch",
    )
    return replace(report, suggestions=(confirmed, second), rejected=(refuted,))


def nasty() -> Report:
    """Give a report in which every string from outside tries to break out, and odd numbers."""
    report = full()
    assert isinstance(report.step, Step)
    extreme = Quantity(math.inf, NASTY, -math.inf, math.nan, source=NASTY)
    finding = replace(
        report.findings[0],
        check=NASTY,
        title=NASTY,
        where=NASTY * 5,
        detail=NASTY,
        evidence=(Evidence(NASTY, extreme, extreme, "above"),),
    )
    suggestion = replace(
        report.suggestions[0],
        id=NASTY,
        text=NASTY,
        code=f"-```\n+{NASTY}\n</code></pre><script>",
        predicted=Missing(NASTY),
        reason=NASTY,
        risk=NASTY,
    )
    job = replace(report.measurements.job, model=NASTY, input=NASTY, notes=(NASTY,))
    return replace(
        report,
        verdict=Verdict("inconclusive", NASTY, math.nan, math.nan, (NASTY,)),
        step=replace(
            report.step,
            segments={
                **report.step.segments,
                "launch": extreme,
                "unexplained": Quantity(-0.0003, "s"),
            },
            host_items=(
                HostItem(NASTY, seconds(0.001), NASTY),
                HostItem("深い層" * 40, seconds(1e-12)),
            ),
        ),
        findings=(finding,),
        suggestions=(suggestion,),
        rejected=(replace(suggestion, id="x/y", measured=extreme, status="refuted"),),
        measurements=replace(report.measurements, job=job, overhead=Overhead(math.inf, {NASTY: 1e300})),
        ignored=(NASTY,),
        not_run=((NASTY, NASTY),),
        warnings=(NASTY,),
    )


SAMPLES = {"full": full, "empty": empty, "tried": tried, "nasty": nasty}
