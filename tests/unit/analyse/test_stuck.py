"""Where a batch is held up, from what stages have given."""

from __future__ import annotations

from tfdiag.analyse.stuck import stuck_stage
from tfdiag.model.pipeline import Pipeline, Stage
from tfdiag.model.quantity import Missing


def chain(*stages: tuple[str, int]) -> Pipeline:
    """Give a running chain, source first, of names with the elements that each has given."""
    made = tuple(
        Stage(index, name, inputs=(index - 1,) if index else (), elements=elements)
        for index, (name, elements) in enumerate(stages)
    )
    return Pipeline(stages=made, output=len(made) - 1)


def test_a_function_that_has_taken_and_not_given():
    """The map has one element more from its source than it has passed on."""
    assert stuck_stage(chain(("Range", 65), ("Map", 64), ("BatchV2", 2), ("Prefetch", 2))) == "map"


def test_a_source_that_gives_nothing():
    """Where every function has given what it took, the source is what all wait for."""
    assert stuck_stage(chain(("Generator", 70), ("Map", 70), ("BatchV2", 2))) == "from_generator"


def test_a_shuffle_that_is_being_filled_holds_nothing():
    """What waits in a buffer is not stuck in it."""
    assert stuck_stage(chain(("TFRecord", 500), ("ShuffleDatasetV3", 0), ("Map", 0))) == "TFRecordDataset"


def test_of_several_sources_the_one_behind():
    """A zip waits for whichever gave less."""
    stages = (
        Stage(0, "Range", elements=9),
        Stage(1, "Generator", elements=8),
        Stage(2, "Zip", inputs=(0, 1), elements=8),
    )
    assert stuck_stage(Pipeline(stages=stages, output=2)) == "from_generator"


def test_nothing_is_said_where_nothing_is_known():
    """No model, no name."""
    assert stuck_stage(Missing("no pipeline")) == ""
    assert stuck_stage(Pipeline()) == ""
