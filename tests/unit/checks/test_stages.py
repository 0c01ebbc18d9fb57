"""What kind of stage it is, from the graph or from the runtime's names."""

from __future__ import annotations

import pytest

from tests.synthetic import MS, Part, chain, sampled, stage
from tfdiag.analyse.pipeline import PipelineModel, StageTime, pipeline_model
from tfdiag.checks import stages
from tfdiag.model.pipeline import Function, Pipeline
from tfdiag.model.quantity import Quantity


def model(of: Pipeline) -> PipelineModel:
    """Give the model of a pipeline."""
    made = pipeline_model(of)
    assert isinstance(made, PipelineModel)
    return made


def one(op: str, label: str = "map(f)", function: Function | None = None) -> StageTime:
    """Give a stage that the graph knows."""
    of = sampled(Part("Range", "range(…)"), Part(op, label, 1 * MS, 1.0, {"function": function}))
    return model(of).stages[1]


@pytest.mark.parametrize(("op", "is_map"), [("Map", True), ("ParallelMap", True), ("Batch", False)])
def test_the_graph_tells_maps(op: str, is_map: bool):
    """Parallel or not, a map is one."""
    assert stages.is_map(one(op)) is is_map


@pytest.mark.parametrize(
    ("name", "is_map"), [("Map", True), ("ParallelMapV2", True), ("MapAndBatchV2", True), ("FlatMap", False)]
)
def test_the_runtime_tells_maps(name: str, is_map: bool):
    """Fused ones too."""
    assert stages.is_map(model(chain(("Range", 0.0), (name, 1 * MS))).stages[1]) is is_map


@pytest.mark.parametrize(
    ("op", "label", "datasets", "is_generator"),
    [
        ("Generator", "from_generator", (), True),
        ("FlatMap", "from_generator", (), True),
        ("FlatMap", "flat_map(f)", ("GeneratorDataset",), True),
        ("FlatMap", "flat_map(f)", ("TFRecordDatasetV2",), False),
    ],
)
def test_a_generator_has_several_looks(op: str, label: str, datasets: tuple[str, ...], is_generator: bool):
    """`from_generator` is a flat map over a generator, in the graph."""
    assert stages.is_generator(one(op, label, Function("f", datasets=datasets))) is is_generator


@pytest.mark.parametrize(("elements", "calls"), [(100, 1), (3200, 32)])
def test_calls_of_a_fused_map_are_the_elements_that_go_in(elements: int, calls: float):
    """A stage that gives batches calls its function for each element of them."""
    of = Pipeline(
        (stage(1, "Range", 0.0, elements=elements), stage(2, "MapAndBatchV2", 1 * MS, threads=2)), 2
    )
    assert stages.calls(model(of).stages[1]) == calls


def test_overhead_is_known_where_a_call_was_timed():
    """Ten calls of 1 ms, of 40 ms for a batch; and no more than all of it."""
    parts = (
        Part("Map", "map(f)", 4 * MS, 1.0, {"function": Function("f")}),
        Part("Batch", "batch(10)", 0.0, 1.0, {"size": 10}),
    )
    known = model(sampled(*parts, call_overhead_s=Quantity(1 * MS, "s")))
    assert stages.overhead_part(known, known.stages[0]) == pytest.approx(0.25)
    unknown = model(sampled(*parts))
    assert stages.overhead_part(unknown, unknown.stages[0]) is None
    more = model(sampled(*parts, call_overhead_s=Quantity(9 * MS, "s")))
    assert stages.overhead_part(more, more.stages[0]) == 1.0
