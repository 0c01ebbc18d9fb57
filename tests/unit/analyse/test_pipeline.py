"""The running pipeline as stages with times, and what each is called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.synthetic import MS, Part, chain, pipeline, sampled, stage
from tfdiag.analyse.pipeline import PipelineModel, filling, pipeline_model
from tfdiag.analyse.pipeline.caches import never_full
from tfdiag.model.pipeline import Function, Pipeline, Stage
from tfdiag.model.quantity import Missing


def model(of: Pipeline | Missing) -> PipelineModel:
    """Give the model of a pipeline that has one."""
    found = pipeline_model(of)
    assert isinstance(found, PipelineModel)
    return found


def labels(of: Pipeline) -> list[str]:
    """Give the labels of the stages, source first."""
    return [one.label for one in model(of).stages]


def test_a_missing_pipeline_stays_missing():
    """What was not measured has no model, for the same reason."""
    assert pipeline_model(Missing("why")) == Missing("why")


def test_stages_come_source_first_with_their_time_for_a_batch():
    """Time is spread over the batches that came out, whatever the elements of the stage itself."""
    found = model(chain(("TensorSlice", 1 * MS), ("Map", 8 * MS), ("BatchV2", 2 * MS)))
    assert [one.name for one in found.stages] == ["TensorSlice", "Map", "BatchV2"]
    assert [one.per_batch_s for one in found.stages] == pytest.approx([1 * MS, 8 * MS, 2 * MS])
    assert found.from_model


def test_the_slowest_stage_is_slow_on_its_threads():
    """Eight threads divide a stage's time, so that a stage with less of it may be the slowest."""
    found = model(chain(("TensorSlice", 1 * MS), ("ParallelMapV2", 16 * MS, 8.0), ("BatchV2", 3 * MS)))
    assert found.slowest is not None
    assert found.slowest.name == "BatchV2"
    fewer = model(chain(("TensorSlice", 1 * MS), ("ParallelMapV2", 16 * MS, 4.0), ("BatchV2", 3 * MS)))
    assert fewer.slowest is not None
    assert fewer.slowest.name == "ParallelMapV2"


def test_no_parallelism_is_one_thread():
    """A tuner that has not begun says 0 threads; a stage is never on fewer than one."""
    found = model(chain(("Range", 1 * MS), ("ParallelMapV2", 4 * MS, 0.0)))
    assert [one.parallelism for one in found.stages] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "serial"),
    [
        ("Map", True),
        ("MapDataset", True),
        ("MapV2", True),
        ("FilterDataset", True),
        ("FlatMap", True),
        ("Interleave", True),
        ("ParallelMapV2", False),
        ("BatchV2", False),
        ("Prefetch", False),
    ],
)
def test_stages_with_a_function_on_one_thread_are_serial(name: str, serial: bool):
    """Whatever version and suffix the runtime's name has."""
    assert model(chain(("Range", 0.0), (name, 1 * MS))).stages[-1].serial is serial


@pytest.mark.parametrize(
    ("threads", "tunable", "serial"), [(1.0, False, True), (1.0, True, False), (4.0, False, False)]
)
def test_a_fused_map_is_serial_on_one_fixed_thread(threads: float, tunable: bool, serial: bool):
    """MapAndBatch hides a serial map where its parallelism is one and nobody may change it."""
    stages = (stage(1, "Range", 0.0), stage(2, "MapAndBatchV2", 1 * MS, threads=threads, tunable=tunable))
    assert model(Pipeline(stages, 2)).stages[-1].serial is serial


@pytest.mark.parametrize(
    ("names", "ahead"),
    [
        (("Range", "Map", "Prefetch"), True),
        (("Range", "Map", "Prefetch", "Options", "Root"), True),
        (("Range", "Map", "Prefetch", "FiniteTake", "MaxIntraOpParallelism"), True),
        (("Range", "ParallelMapV2"), True),
        (("Range", "ParallelBatch", "Model"), True),
        (("Range", "MapAndBatchV2"), True),
        (("Range", "Prefetch", "Map"), False),
        (("Range", "ParallelMapV2", "BatchV2"), False),
        (("Range", "Map", "BatchV2", "Root"), False),
        (("Prefetch", "Shuffle", "Root"), False),
    ],
)
def test_the_end_of_the_pipeline_works_ahead_or_not(names: tuple[str, ...], ahead: bool):
    """Only what stands at the end counts, behind stages that hand batches on."""
    assert model(chain(*((name, 1 * MS) for name in names))).prefetches is ahead


@pytest.mark.parametrize(
    ("written", "injected", "ahead"),
    [
        (("range(…)", "map(f)"), False, False),
        (("range(…)", "map(f)"), True, True),
        (("range(…)", "map(f)", "prefetch(2)"), False, True),
        (("range(…)", "prefetch(2)", "map(f)"), False, False),
        ((), False, False),
    ],
)
def test_without_the_runtimes_model_the_options_tell(written: tuple[str, ...], injected: bool, ahead: bool):
    """What was written and what the runtime adds by itself say whether anything works ahead."""
    found = model(pipeline(*written, prefetch_injected=injected))
    assert found.prefetches is ahead
    assert not found.from_model
    assert found.slowest is None
    assert found.written == written


def test_stages_are_called_what_the_caller_wrote():
    """Stages that the runtime added or renamed still find their words."""
    of = chain(
        ("TensorSlice", 0.0), ("ShuffleDatasetV3", 0.0), ("ParallelMapV2", 0.0, 2.0), ("Map", 0.0),
        ("BatchV2", 0.0), ("Prefetch", 0.0), ("Root", 0.0),
        written=("from_tensor_slices(…)", "shuffle(100)", "map(decode)", "map(augment)", "batch(32)"),
    )  # fmt: skip
    assert labels(of) == [
        "from_tensor_slices(…)", "shuffle(100)", "map(decode)", "map(augment)", "batch(32)", "prefetch",
        "Root",
    ]  # fmt: skip


def test_a_fused_stage_has_the_name_of_its_map():
    """MapAndBatch is called by the map in it, and does not take the words of what follows."""
    of = chain(
        ("Range", 0.0), ("MapAndBatchV2", 0.0, 1.0), ("Prefetch", 0.0),
        written=("range(…)", "map(decode)", "batch(32)", "prefetch(2)"),
    )  # fmt: skip
    assert labels(of) == ["range(…)", "map(decode)", "prefetch(2)"]


def test_unknown_words_keep_the_runtimes_name():
    """A stage that nobody wrote keeps its name, or the word for its kind."""
    assert labels(chain(("Weird", 0.0), ("Map", 0.0))) == ["Weird", "map"]


def test_branches_are_all_seen():
    """Of two sources that are zipped both are stages, and each comes before what takes it."""
    stages = (
        stage(1, "TensorSlice", 1 * MS),
        stage(2, "Map", 3 * MS, inputs=(1,)),
        stage(3, "Range", 2 * MS, inputs=()),
        stage(4, "Zip", 0.0, inputs=(2, 3)),
    )
    found = [one.name for one in model(Pipeline(stages, 4)).stages]
    assert sorted(found) == ["Map", "Range", "TensorSlice", "Zip"]
    assert found[-1] == "Zip"
    assert found.index("TensorSlice") < found.index("Map")


def test_odd_models_do_no_harm():
    """Inputs that are not there, circles, and no batch yet are taken as they come."""
    circle = (
        stage(1, "Map", 1 * MS, inputs=(2, 9)),
        stage(2, "Prefetch", 1 * MS, inputs=(1,), elements=0),
    )
    found = model(Pipeline(circle, 2))
    assert [one.name for one in found.stages] == ["Map", "Prefetch"]
    assert found.stages[0].per_batch_s == pytest.approx(100 * MS)
    passing = (stage(1, "Root", 0.0, inputs=(2,)), stage(2, "Options", 0.0, inputs=(1,)))
    assert isinstance(pipeline_model(Pipeline(passing, 1)), PipelineModel)


# Caches --------------------------------------------------------------------------------------


def cached(*, reading: bool, taken: int = 300, parts: tuple[Part, ...] = ()) -> Pipeline:
    """Give a pipeline of 1000 elements with an expensive map below its cache, as it runs."""
    chain = (
        Part("TensorSlice", "from_tensor_slices(…)", 0.001 * MS, node={"cardinality": 1000}),
        Part("Map", "map(decode)", 1 * MS, node={"cardinality": 1000, "function": Function("decode")}),
        Part("Cache", "cache()", 0.001 * MS, node={"cardinality": 1000}),
        *parts,
        Part("Batch", "batch(10)", 0.0, node={"size": 10}),
    )
    below = (
        ()
        if reading
        else (
            Stage(1, "TensorSlice", elements=taken),
            Stage(2, "Map", inputs=(1,), elements=taken, processing_s=1.0),
        )
    )
    running = (
        *below,
        Stage(3, "MemoryCacheImpl", inputs=() if reading else (2,), elements=taken),
        Stage(4, "MemoryCache", inputs=(3,), elements=taken),
        Stage(5, "BatchV2", inputs=(4,), elements=taken // 10),
    )
    return sampled(*chain, running=running)


def test_a_full_cache_spares_what_lies_below_it() -> None:
    """What a sample of the map costs is no cost of a batch any more."""
    model = pipeline_model(cached(reading=True))
    assert isinstance(model, PipelineModel)
    decode = next(stage for stage in model.stages if stage.label == "map(decode)")
    assert (decode.per_batch_s, decode.cpu_per_batch_s) == (0.0, 0.0)
    assert decode.spared_s == pytest.approx(10 * MS)


def test_a_cache_that_is_being_filled_spares_nothing() -> None:
    """In the first pass everything is still done."""
    model = pipeline_model(cached(reading=False))
    assert isinstance(model, PipelineModel)
    decode = next(stage for stage in model.stages if stage.label == "map(decode)")
    assert decode.per_batch_s == pytest.approx(10 * MS)
    assert decode.spared_s == 0.0


@pytest.mark.parametrize(("batches", "name"), [(30, "cache()"), (100, "cache()"), (101, "")])
def test_the_first_pass_is_told_by_its_length(batches: int, name: str) -> None:
    """More elements than there are were seen: it is not the first pass any more."""
    assert filling(cached(reading=False), batches) == name


def test_a_full_cache_is_not_being_filled() -> None:
    """Nor is one that can never be full: it would be called the first pass for ever."""
    assert filling(cached(reading=True), 30) == ""
    cut = Part("Take", "take(500)", 0.0, node={"size": 500})
    assert filling(cached(reading=False, parts=(cut,)), 30) == ""
    assert filling(Missing("no pipeline"), 30) == ""


@pytest.mark.parametrize(
    ("parts", "never"),
    [
        ((), False),
        ((Part("Take", "take(1000)", node={"size": 1000}),), False),
        ((Part("Take", "take(999)", node={"size": 999}),), True),
        ((Part("Repeat", "repeat()", node={"size": -1}), Part("Take", "take(9)", node={"size": 9})), False),
    ],
    ids=["whole", "all taken", "cut short", "repeated before it is cut"],
)
def test_a_cache_that_is_cut_short_is_never_full(parts: tuple[Part, ...], never: bool) -> None:
    """What is taken above it, before any repeat, is less than what it would have to hold."""
    graph = cached(reading=False, parts=parts).graph
    cache = next(node.id for node in graph if node.op == "CacheDataset")
    each = {node.id: 10.0 for node in graph[:-1]}  # below the batches of ten
    assert never_full(graph, each) == (frozenset({cache}) if never else frozenset())
    assert never_full(graph, {}) == frozenset(), "where nobody knows how much is taken nothing is claimed"


def test_a_cache_that_was_put_in_is_judged_by_what_fills_it() -> None:
    """It is in no measurement; all batches of what it holds are taken, which are fewer than its elements."""
    graph = sampled(
        Part("Range", "range(800)", node={"cardinality": 800}),
        Part("Cache", "cache()", node={"cardinality": 800}),
        Part("Batch", "batch(16)", node={"size": 16}),
        Part("Take", "take(50)", node={"size": 50}),
    ).graph
    assert never_full(graph, {0: 16.0, 2: 1.0, 3: 1.0}) == frozenset()
    assert never_full(graph, {0: 17.0, 2: 1.0, 3: 1.0}) == frozenset()
    assert never_full(graph, {0: 15.0, 2: 1.0, 3: 1.0}) == {1}


def test_a_cache_over_what_has_no_end_is_never_full() -> None:
    """It only grows."""
    repeated = sampled(
        Part("TensorSlice", "from_tensor_slices(…)"), Part("Repeat", "repeat()", node={"size": -1}),
        Part("Cache", "cache()"),
    )  # fmt: skip
    assert never_full(repeated.graph, {}) == {2}


def test_stages_below_a_repeat_know_their_own_pass_only() -> None:
    """A repeat makes its source anew for each pass: what that has given is part of what the repeat has."""
    running = (
        Stage(1, "Range", elements=20, processing_s=20 * 0.1 * MS),
        Stage(2, "Map", inputs=(1,), elements=20, processing_s=20 * MS),
        Stage(3, "BatchV2", inputs=(2,), elements=2, processing_s=2 * MS),
        Stage(4, "ForeverRepeat", inputs=(3,), elements=102),
    )
    model = pipeline_model(Pipeline(stages=running, output=4))
    assert isinstance(model, PipelineModel)
    assert [stage.per_batch_s for stage in model.stages] == pytest.approx([1 * MS, 10 * MS, 1 * MS, 0.0])


def test_a_stage_without_a_sample_has_the_time_that_the_runtime_tells():
    """The budget was enough for the last stage and the source: what lies between is known from the run."""
    running = (stage(1, "Range", 0.0), stage(2, "Map", 3 * MS), stage(3, "Filter", 8 * MS))
    whole = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(f)", 3 * MS),
        Part("Filter", "filter(g)", 8 * MS),
        running=(running[0], replace(running[1], inputs=(1,)), replace(running[2], inputs=(2,))),
    )
    found = model(replace(whole, samples=tuple(s for s in whole.samples if s.node != 1)))

    assert [one.per_batch_s for one in found.stages[:3]] == pytest.approx([0.0, 3 * MS, 8 * MS])
    assert [one.sampled for one in found.stages[:3]] == [True, False, False]
    assert found.slowest is not None
    assert found.slowest.label == "filter(g)"


def test_a_fused_map_without_a_sample_has_the_time_of_its_batches():
    """One stage of the runtime does a map and its batch, and gives batches: its time is no element's."""
    whole = sampled(
        Part("Range", "range(…)"),
        Part("Map", "map(f)", 1 * MS, node={"function": Function("f")}),
        Part("Batch", "batch(32)", node={"size": 32}),
        running=(
            stage(1, "Range", 0.0, elements=3200),
            stage(2, "MapAndBatchV2", 40 * MS, threads=1, tunable=False),
        ),
    )
    found = model(replace(whole, samples=tuple(s for s in whole.samples if s.node != 1)))

    assert [one.per_batch_s for one in found.stages[:3]] == pytest.approx([0.0, 40 * MS, 0.0])
    assert found.slowest is not None
    assert found.slowest.label == "map(f)"
