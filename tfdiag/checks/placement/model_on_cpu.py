"""The step or weights of it are on the CPU although TensorFlow sees a GPU.

What it measures
    On which devices the step's variables and ops are, from the parts into which TensorFlow cut the step's
    graph. It fires when most ops run on the CPU (the cost is then what they compute there), or when
    weights are there and cross the bus in every step (the cost is then that of these copies, from a
    trace).
Why it matters
    Variables stay on the device on which they were made. A model that was built under
    `tf.device("/CPU:0")` keeps its weights there, whatever device the training is started on.
How to fix it
    Build and train the model without `tf.device("/CPU:0")`, or inside `tf.device("/GPU:0")`.
When to ignore it
    When the model is faster on the CPU (see `better-on-cpu`), or its weights don't fit on the GPU.
References
    https://www.tensorflow.org/guide/gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.analyse.step_devices import OtherDevice, other_device
from tfdiag.checks import facts, placed
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.placement import Placement
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import placed_ops

__all__ = ["CHECK"]


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire when most of the step, or of its weights, is on the CPU beside a GPU."""
    devices = placed.accelerators(analysis)
    if not devices:
        return
    found = placed.placement(analysis)
    if placed.main_device(found).startswith("/CPU"):
        yield from _step(analysis, found)
    else:
        yield from _weights(analysis, found)


def _step(analysis: Analysis, found: Placement) -> Iterator[Result]:
    assert not isinstance(analysis.step, Missing)
    compute = analysis.step.segments["device_compute"]
    if isinstance(compute, Missing):
        raise Undecided(
            f"the step runs on the CPU, and what it computes there is not known: {compute.reason}"
        )
    cost = min(1.0, analysis.share(compute.value))
    other = other_device(analysis)
    if isinstance(other, OtherDevice) and other.ratio.value >= 1:
        return  # it is where it is faster
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    ops = sum(each.ops for each in found.devices)
    there = sum(each.ops for each in found.devices if each.device.startswith("/CPU"))
    yield Result(
        Finding(
            check=CHECK.id,
            title="The step runs on the CPU although TensorFlow sees an accelerator",
            severity=severity_of(cost),
            cost=facts.share(cost, source="time in which the step's ops run on the CPU"),
            evidence=(
                Evidence("time of the step's ops on the CPU", compute, placed.limit(analysis), "above"),
                Evidence(
                    "part of the step's ops on the CPU",
                    Quantity(there / ops, "share", source="partitioned graph of the step", count=ops),
                ),
            ),
            where="the model",
        ),
        (placed_ops.model_on_accelerator(CHECK.id, Missing("the step was not tried on the accelerator")),),
    )


def _weights(analysis: Analysis, found: Placement) -> Iterator[Result]:
    there = [each for each in found.variables if each.device.startswith("/CPU")]
    if not there:
        return
    held = sum(each.bytes for each in there)
    seconds = placed.copy_seconds(found, ("variable",), "weights are on the CPU")
    seconds /= placed.per_call(analysis)
    cost = min(1.0, analysis.share(seconds))  # traced calls are slower than others
    if not analysis.crosses(cost, facts.COST_SHARE):
        return
    copies = [copy for copy in found.copies if copy.purpose == "variable"]
    yield Result(
        Finding(
            check=CHECK.id,
            title="The weights are on the CPU and cross the bus in every step",
            severity=severity_of(cost),
            cost=facts.share(cost, source="copies of variables while no kernel runs"),
            evidence=(
                Evidence(
                    "time of the weights' copies",
                    Quantity(seconds, "s", origin="estimated", source="trace of replayed calls, by bytes"),
                    placed.limit(analysis),
                    "above",
                ),
                Evidence(
                    "variables on the CPU", Quantity(float(held), "B", source="devices of the variables")
                ),
                *placed.bytes_evidence("copied for variables in a step", copies),
            ),
            where=there[0].largest,
        ),
        (placed_ops.model_on_accelerator(CHECK.id, placed_ops.gain(analysis, seconds)),),
    )


CHECK = Check("model-on-cpu", "The model is on the CPU beside a GPU", "placement", __doc__, run)
