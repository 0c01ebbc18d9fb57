"""unaligned-shapes: sizes that Tensor Cores can't use well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.synthetic_compute import GIGA, peak, work
from tests.unit.checks.running import not_run, only, results
from tfdiag.checks.compute.unaligned_shapes import CHECK, unaligned
from tfdiag.model.compute import Compute, LayerWork
from tfdiag.model.quantity import Missing


def layer(name: str, kernel: tuple[int, ...], giga: float = 0.5, kind: str = "Dense") -> LayerWork:
    """Give a layer with so many GFLOP in float16."""
    return LayerWork(name, giga * GIGA, "float16", kind, kernel)


def mixed(*layers: LayerWork, slow: float = 20, **facts: Any) -> Compute:
    """Give a step in float16 on a GPU that does 40 GFLOP/s in it, and `slow` with unaligned sizes."""
    total = sum(one.flops for one in layers) / GIGA
    peaks = (peak("float16", 40), peak("float16", slow, aligned=False))
    return work({"float16": total}, *peaks, layers=layers, **{"capability": 7.0, **facts})


def step(compute: Compute | Missing, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms that computes all the time."""
    return {"accelerator": True, "compute": 100 * MS, "dispatch": 0.0, "work": compute, **parts}


@pytest.mark.parametrize(
    ("one", "off"),
    [
        (layer("a", (512, 511)), True),
        (layer("a", (510, 512)), True),
        (layer("a", (512, 512)), False),
        (layer("a", (3, 3, 3, 64), kind="Conv2D"), False),
        (layer("a", (3, 3, 60, 64), kind="Conv2D"), True),
        (layer("a", (3, 3, 60, 1), kind="DepthwiseConv2D"), False),
        (layer("a", (512, 12, 64), kind="EinsumDense"), False),
        (layer("a", ()), False),
    ],
)
def test_which_kernels_fill_the_blocks(one: LayerWork, off: bool):
    """The two dimensions of the matrix count, but the channels of an image are given."""
    assert bool(unaligned(mixed(one), "float16")) is off


@pytest.mark.parametrize(("slow", "fires"), [(33.5, False), (33.0, True)])
def test_fires_where_such_sizes_are_a_fifth_slower(slow: float, fires: bool):
    """What decides is what the GPU showed: newer libraries pad by themselves."""
    assert bool(results(CHECK, **step(mixed(layer("a", (511, 511), 4), slow=slow)))) is fires


@pytest.mark.parametrize(("giga", "fires"), [(0.19, False), (0.21, True)])
def test_fires_from_a_twentieth_of_the_step_on(giga: float, fires: bool):
    """A last layer of ten classes has next to nothing to do."""
    layers = (layer("large", (512, 512), 2), layer("last", (512, 10), giga))
    assert bool(results(CHECK, **step(mixed(*layers)))) is fires


def test_names_the_layers():
    """Most work first, with what to write instead."""
    layers = (layer("wide", (512, 1001), 1), layer("fits", (512, 512), 1), layer("odd", (30, 64), 0.5))
    found = only(CHECK, **step(mixed(*layers)))
    assert found.finding.where == "wide (512, 1001), odd (30, 64)"
    (rounded,) = found.suggestions
    assert "+ Dense(1008, …)" in rounded.code
    assert rounded.changes == ()


@pytest.mark.parametrize(
    "parts",
    [
        step(mixed(layer("a", (511, 511))), accelerator=False),
        step(mixed(layer("a", (511, 511)), capability=6.0)),
        step(mixed(layer("a", (511, 511))), wait=400 * MS),
    ],
    ids=["no GPU", "no Tensor Cores", "mostly waiting"],
)
def test_silent_where_it_does_not_matter(parts: dict[str, Any]):
    """Sizes matter to Tensor Cores only."""
    assert results(CHECK, **parts) == []


def test_undecided_where_nothing_was_counted_or_measured():
    """Neither is called well aligned."""
    assert "eager" in not_run(CHECK, **step(Missing("an eager step has no graph")))
    unknown = work({"float16": 1}, layers=(layer("a", (511, 511)),), capability=7.0, peaks_missing="no time")
    assert "no time" in not_run(CHECK, **step(unknown))
