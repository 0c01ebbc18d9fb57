"""unfused-rnn: an LSTM or a GRU off the GPU's fused kernel."""

from __future__ import annotations

import pytest

from tests.synthetic import MS
from tests.unit.checks.parts import STEP, loop, recurrent
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.launch.unfused_rnn import CHECK
from tfdiag.model.layers import ModelFacts

GPU = {**STEP, "accelerator": True}
DROPOUT = "recurrent_dropout=0.2"


@pytest.mark.parametrize(("seconds", "fires"), [(5.2 * MS, True), (4.9 * MS, False)])
def test_fires_at_a_twentieth_of_the_step(seconds: float, fires: bool):
    """On a GPU; a CPU has no fused kernel."""
    model = ModelFacts(recurrent=(recurrent(seconds, DROPOUT),))
    assert bool(results(CHECK, **GPU, model=model)) is fires
    assert results(CHECK, **STEP, model=model) == []


@pytest.mark.parametrize(
    "layer",
    [
        recurrent(50 * MS),
        recurrent(50 * MS, DROPOUT, fused=True),
        recurrent(50 * MS, DROPOUT, fusable=False),
    ],
)
def test_silent_where_the_kernel_is_used_or_there_is_none(layer):
    """Default arguments, a kernel in the graph, and layers for which there is none."""
    assert results(CHECK, **GPU, model=ModelFacts(recurrent=(layer,))) == []


def test_names_the_arguments():
    """All that keep the layer off the kernel, and what to take away."""
    layer = recurrent(40 * MS, DROPOUT, "unroll=True", layer="encoder")
    found = only(CHECK, **GPU, model=ModelFacts(recurrent=(layer,), loops=(loop(1 * MS, layer="encoder"),)))
    assert (
        found.finding.title == "LSTM can't use the fused kernel because of recurrent_dropout=0.2, unroll=True"
    )
    assert found.finding.where == "encoder: recurrent_dropout=0.2, unroll=True"
    assert found.finding.cost.value == pytest.approx(0.4)
    assert value(found, "arguments off the fused kernel") == 2
    assert value(found, "time steps") == 64
    assert "-     recurrent_dropout=0.2," in found.suggestions[0].code


def test_says_what_is_missing():
    """A layer without a time is named."""
    told = not_run(
        CHECK, **GPU, model=ModelFacts(recurrent=(recurrent(None, DROPOUT),), times_missing="no trace")
    )
    assert "recurrent_dropout=0.2" in told
    assert "no trace" in told
