"""What each thread of a pipeline must do for a batch, and what a change of it gives."""

from __future__ import annotations

import pytest

from tests.synthetic import MS, Part, sampled
from tfdiag.analyse.pipeline import PipelineModel, pipeline_model
from tfdiag.analyse.prediction import feed, step_time, with_cache, with_parallel, with_prefetch
from tfdiag.model.pipeline import Function, streams


def model(*parts: Part, **fields: object) -> PipelineModel:
    """Give the model of a sampled chain in which nothing works ahead."""
    made = pipeline_model(sampled(*parts, **{"prefetch_injected": False, **fields}))
    assert isinstance(made, PipelineModel)
    return made


SOURCE = Part("TFRecord", "TFRecordDataset(…)", 0.1 * MS, 0.5)
MAP = Part("Map", "map(decode)", 1 * MS, 0.8, {"function": Function("decode")})
BATCH = Part("Batch", "batch(10)", 0.5 * MS, 1.0, {"size": 10})


def test_costs_are_differences_of_prefixes():
    """A stage costs a batch what the pipeline up to it costs, less what lies below."""
    stages = model(SOURCE, MAP, BATCH).stages
    assert [stage.per_batch_s for stage in stages] == pytest.approx([1 * MS, 10 * MS, 0.5 * MS])
    assert [stage.cpu_per_batch_s for stage in stages] == pytest.approx([0.5 * MS, 8 * MS, 0.5 * MS])
    assert stages[1].waiting == pytest.approx(0.2)
    assert [stage.per_batch for stage in stages] == [10, 10, 1]


def test_without_anything_ahead_the_step_does_it_all():
    """Input and step alternate, and the step's time is their sum."""
    fed = feed(model(SOURCE, MAP, BATCH))
    assert fed.in_step.seconds == pytest.approx(11.5 * MS)
    pace = step_time(fed, rest_s=5 * MS, step_cpu_s=5 * MS, cores=8)
    assert (pace.limit, pace.seconds) == ("turns", pytest.approx(16.5 * MS))


def test_a_prefetch_lets_them_overlap():
    """The longer of the two is what a step takes."""
    fed = feed(with_prefetch(model(SOURCE, MAP, BATCH)))
    assert fed.in_step.seconds == 0
    pace = step_time(fed, rest_s=5 * MS, step_cpu_s=5 * MS, cores=8)
    assert (pace.limit, pace.seconds) == ("input", pytest.approx(11.5 * MS))
    assert pace.waits_for == "map(decode)"
    slow = step_time(fed, rest_s=50 * MS, step_cpu_s=5 * MS, cores=8)
    assert (slow.limit, slow.seconds) == ("the step", pytest.approx(50 * MS))


def test_a_parallel_map_moves_the_bottleneck():
    """With the map on many threads the batch is what the step's own thread still does."""
    slow = with_prefetch(model(SOURCE, MAP, BATCH))
    fast = with_parallel(slow, slow.stages[1], 20)
    fed = feed(fast)
    assert fed.limit.seconds == pytest.approx(1 * MS)
    assert fed.limit.what == "TFRecordDataset(…)"


def test_a_lock_is_not_shared():
    """A function that holds the interpreter's lock is no faster on more threads."""
    python = Part("Map", "map(f)", 1 * MS, 1.0, {"function": Function("f", python=True)}, parallel=1.0)
    made = model(SOURCE, python, BATCH)
    assert made.stages[1].locked == pytest.approx(1.0)
    fed = feed(with_parallel(made, made.stages[1], 8))
    assert fed.alone_s == pytest.approx(10 * MS)


def test_cores_bound_what_threads_can_do():
    """More threads than cores don't compute more."""
    made = with_prefetch(model(SOURCE, MAP, BATCH))
    fed = feed(with_parallel(made, made.stages[1], 100))
    assert step_time(fed, rest_s=1 * MS, step_cpu_s=1 * MS, cores=2).seconds == pytest.approx(
        (9 + 1) / 2 * MS
    )


def test_a_cache_spares_everything_below_it():
    """What lies below a full cache is not done again."""
    made = model(SOURCE, MAP, BATCH)
    fed = feed(with_cache(made, made.stages[1]))
    assert fed.in_step.seconds == pytest.approx(0.5 * MS, rel=0.05)


@pytest.mark.parametrize(("busy", "faster", "locked"), [(1.0, 2.0, 0.0), (1.5, 4 / 3, 0.0), (1.0, 1.0, 1.0)])
def test_cores_that_are_busy_are_no_lock(busy: float, faster: float, locked: float):
    """A function whose own operations keep one and a half of two cores busy gains a third of a thread."""
    wide = Part("Map", "map(f)", 1 * MS, busy, {"function": Function("f")}, parallel=faster)
    assert model(Part("Range", "range(…)", 0.0), wide, BATCH).stages[1].locked == pytest.approx(
        locked, abs=1e-6
    )


def test_where_all_cores_are_busy_a_lock_would_not_show():
    """Then more threads change nothing either way."""
    wide = Part("Map", "map(f)", 1 * MS, 2.0, {"function": Function("f")}, parallel=1.0)
    assert model(SOURCE, wide, BATCH).stages[1].locked is None


def test_what_was_sampled_on_all_cores_counts():
    """On some threads its time lies between; on more than were sampled only computing needs the cores."""
    part = Part("Map", "map(f)", 1 * MS, 0.4, {"function": Function("f")}, parallel=1.6)
    made = model(Part("Range", "range(…)", 0.0), part, BATCH)
    times = [feed(with_parallel(made, made.stages[1], n)).ahead[0].seconds for n in (1, 2, 4, 16)]
    assert times == pytest.approx([10 * MS, 6.25 * MS, 6.25 / 2 * MS, 6.25 * 0.4 * MS])


def test_less_work_is_less_on_all_cores_too():
    """A change of what a stage does for a batch scales what was sampled of it."""
    part = Part("Map", "map(f)", 1 * MS, 1.0, {"function": Function("f")}, parallel=2.0)
    made = model(Part("Range", "range(…)", 0.0), part, BATCH)
    half = made.changed(made.stages[1], per_batch_s=5 * MS)
    assert half.stages[1].together is not None
    assert half.stages[1].together.seconds == pytest.approx(2.5 * MS)
    free = made.changed(made.stages[1], locked=0.7, per_batch_s=5 * MS)
    assert free.stages[1].together is None


@pytest.mark.parametrize(
    ("files", "waiting", "cores", "count"),
    [
        (100, 0.3, 2, 16),
        (100, 0.29, 2, 2),
        (100, 0.0, 1, 2),
        (100, 0.0, 8, 8),
        (5, 0.9, 2, 5),
        (None, None, 4, 16),
    ],
)
def test_streams(files: int | None, waiting: float | None, cores: float, count: int):
    """What waits is read sixteen at a time, what computes on the cores."""
    assert streams(files, waiting, cores) == count


@pytest.mark.parametrize(("free", "locked"), [(64.0, 0.5), (2.0, 0.5), (1.5, 0.25), (1.1, None), (0.3, None)])
def test_cores_that_others_take_are_no_lock(free: float, locked: float | None):
    """A function that is 4/3 as fast on both cores is half locked, unless there were not two for it."""
    part = Part("Map", "map(f)", 1 * MS, 1.0, {"function": Function("f")}, parallel=4 / 3, free=free)
    assert model(Part("Range", "range(…)", 0.0), part, BATCH).stages[1].locked == (
        None if locked is None else pytest.approx(locked)
    )


def test_what_waits_needs_no_core():
    """Others may take them all, and naps still overlap, or don't."""
    part = Part("Map", "map(f)", 1 * MS, 0.1, {"function": Function("f")}, parallel=4 / 3, free=0.5)
    assert model(Part("Range", "range(…)", 0.0), part, BATCH).stages[1].locked == pytest.approx(0.5)
