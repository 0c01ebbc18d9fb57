"""Wider numbers cross the bus than the data needs.

What it measures
    The type and the numbers of each part of a batch, and from the device's timeline how long copies to the
    device keep it waiting. It fires when a narrower type would hold the same numbers (uint8 for whole numbers
    up to 255, int32 for int64, float32 for float64) and would save a share of the step.
Why it matters
    Copies take as long as they have bytes. An image read as uint8 and cast to float32 in the input has four
    times as many, and no more information.
How to fix it
    Leave the data as it was read and cast it on the device, at the beginning of the model or of `train_step`.
    float64 mostly comes from NumPy: cast it once, before training.
When to ignore it
    When other batches hold numbers that the narrower type can't.
References
    https://www.tensorflow.org/guide/data_performance
"""

from __future__ import annotations

from collections.abc import Iterator

from tfdiag.analyse.analysis import Analysis
from tfdiag.checks import facts
from tfdiag.checks.registry import Check, Result, Undecided, severity_of
from tfdiag.model.measurements import BatchTensor
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.report import Evidence, Finding
from tfdiag.remedies import less_transfer

__all__ = ["CHECK"]

_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4}
_INT32 = 2**31
_BYTE = 255


def run(analysis: Analysis) -> Iterator[Result]:
    """Fire for the parts of a batch that narrower numbers would carry."""
    traced = facts.device(analysis)
    if traced is None or traced.device.copy("host_to_device") is None:
        return
    exposed = facts.segment(analysis, "host_to_device")
    if not analysis.crosses(analysis.share(exposed), facts.COST_SHARE):
        return
    tensors = analysis.measurements.job.tensors
    total = sum(tensor.bytes for tensor in tensors)
    if not total:
        raise Undecided("the parts of a batch are not known")
    for tensor in tensors:
        narrow, width = _narrower(tensor)
        saved = tensor.bytes * (1 - width / _WIDTHS.get(tensor.dtype, width)) if narrow else 0.0
        seconds = exposed * saved / total
        cost = analysis.share(seconds)
        if not narrow or not analysis.crosses(cost, facts.COST_SHARE):
            continue
        yield Result(
            Finding(
                check=CHECK.id,
                title=f"{tensor.dtype} crosses the bus where {narrow} would do",
                severity=severity_of(cost),
                cost=facts.share(cost, source="the share of the copies that a narrower type would save"),
                evidence=(
                    Evidence(
                        "copies that a narrower type would save, per step",
                        Quantity(seconds, "s", origin="estimated", source="device trace, by bytes"),
                        Quantity(facts.COST_SHARE * facts.mean(analysis), "s", origin="given"),
                        "above",
                    ),
                    Evidence("bytes of this part", Quantity(float(tensor.bytes), "B", source="one batch")),
                    *(
                        Evidence(name, value)
                        for name, value in (("least number", tensor.low), ("greatest number", tensor.high))
                        if isinstance(value, Quantity)
                    ),
                ),
                where=f"{tensor.name} of the batch",
            ),
            (less_transfer.suggest_narrower(analysis, CHECK.id, tensor.dtype, narrow, seconds),),
        )


def _narrower(tensor: BatchTensor) -> tuple[str, int]:
    """Give the narrower type that would hold the numbers of a part, and its width; none is empty."""
    if isinstance(tensor.low, Missing) or isinstance(tensor.high, Missing):
        return "", 0
    low, high = tensor.low.value, tensor.high.value
    if tensor.dtype in _WIDTHS and tensor.whole and low >= 0 and 1 < high <= _BYTE:
        return "uint8", 1
    if tensor.dtype == "int64" and low >= -_INT32 and high < _INT32:
        return "int32", 4
    if tensor.dtype == "float64":
        return "float32", 4
    return "", 0


CHECK = Check("wide-dtype-transfer", "Wider numbers cross the bus than needed", "transfer", __doc__, run)
