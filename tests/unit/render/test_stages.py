"""What is said about each stage of an input: nothing that was not measured, and nothing missing as fine."""

from __future__ import annotations

from dataclasses import replace

from tests.synthetic import MS, Part, sampled, stage
from tfdiag.model.pipeline import Function, Pipeline, StageParameter
from tfdiag.model.quantity import Quantity
from tfdiag.render.stages import stage_lines

SOURCE = Part("TFRecord", "TFRecordDataset(1 file)", 0.1 * MS)
MAP = Part("Map", "map(decode)", 1 * MS, node={"function": Function("decode")})
BATCH = Part("Batch", "batch(10)", 0.5 * MS, node={"size": 10})


def said(of: Pipeline) -> dict[str, str]:
    """Give the lines by label."""
    return {name.strip(): text for name, text in stage_lines(of)}


def test_a_stage_that_was_not_measured_is_not_called_quick():
    """Where time ran out before a stage was sampled, and nothing runs to tell, its time is missing."""
    whole = sampled(SOURCE, MAP, BATCH)
    lines = said(replace(whole, samples=tuple(s for s in whole.samples if s.node == 0)))
    assert "time not measured" in lines["map(decode)"]
    assert "time not measured" in lines["batch(10)"]
    assert "time not measured" not in lines["TFRecordDataset(1 file)"]
    assert "time not measured" not in "".join(said(whole).values())


def test_threads_that_tf_data_chooses_are_an_upper_end():
    """The runtime's model does not tell how many threads a tuned stage has got to."""
    knob = (StageParameter("parallelism", 1.0, tunable=True),)
    running = tuple(
        replace(stage(at + 1, name, 1 * MS), parameters=knob, parallelism=Quantity(1.0, "threads"))
        if name == "ParallelMapV2"
        else stage(at + 1, name, 1 * MS)
        for at, name in enumerate(("TFRecord", "ParallelMapV2", "BatchV2"))
    )
    tuned = Part("ParallelMap", "map(decode)", 1 * MS, node={"function": Function("decode")})
    assert "on up to 2 threads" in said(sampled(SOURCE, tuned, BATCH, running=running))["map(decode)"]
