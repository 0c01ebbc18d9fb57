"""The arithmetic of a train step, and what the machine can do of it at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tfdiag.model.quantity import Maybe, Missing, Quantity

__all__ = ["Compute", "LayerWork", "Peak"]


@dataclass(frozen=True, slots=True)
class LayerWork:
    """The matrix products and convolutions of one layer, forward and backward."""

    layer: str
    """Empty outside of layers."""
    flops: float
    """Per step."""
    dtype: str
    """What it computes in."""
    kind: str = ""
    """The layer's class."""
    kernel: tuple[int, ...] = ()
    """Shape of the layer's kernel; empty for a layer without one."""


@dataclass(frozen=True, slots=True)
class Peak:
    """What the machine reached in a short benchmark of its own."""

    device: str
    kind: Literal["matrix product", "convolution"]
    dtype: str
    rate: Quantity
    """FLOP/s."""
    size: str
    """Of the largest operands, in a few words."""
    aligned: bool = True
    """False where the sizes are not multiples of 8."""


@dataclass(frozen=True, slots=True)
class Compute:
    """What a step computes."""

    flops: Maybe
    """Floating-point operations of a step: matrix products and convolutions, forward and backward."""
    by_dtype: dict[str, float]
    """The same by the type that is computed in."""
    layers: tuple[LayerWork, ...] = ()
    """Most work first."""
    uncounted: tuple[str, ...] = ()
    """What of the step could not be counted, so that `flops` is the least that it does."""
    peaks: tuple[Peak, ...] = ()
    peaks_missing: str = ""
    """Why the machine's peak is not known, empty where it is."""
    device: str = ""
    """Where the step computes: `/CPU:0`, `/GPU:0`."""
    capability: Maybe = Missing("there is no NVIDIA GPU")
    """Compute capability of the GPU: 8.0 for an A100."""
    tensor_float_32: bool | None = None
    """Whether float32 products may run in the reduced precision of Tensor Cores; None where nobody knows."""
    cpu_features: tuple[str, ...] = ()
    """What the processor has for low precision."""
    cpu_features_missing: str = ""
    """Why that is not known, empty where it is."""
