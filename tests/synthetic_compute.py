"""Computations of known make-up, for the jobs of `tests.synthetic`: what they cost is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfdiag.model.compute import Compute, LayerWork, Peak
from tfdiag.model.quantity import Missing, Quantity
from tfdiag.model.scaling import Scaling, SizeTimes

__all__ = ["peak", "scaled", "work"]

GIGA = 1e9


def scaled(
    fixed: float,
    per_row: float,
    *,
    rows: int = 32,
    at: tuple[int, ...] | None = None,
    off: Mapping[int, float] | None = None,
    wobble: float = 0.0,
    rounds: int = 9,
    **fields: Any,
) -> Scaling:
    """Give a step with a fixed cost and a cost per row, at half to four times its rows.

    `off` multiplies what single sizes take. `wobble` makes every other round slower, all sizes alike.
    """
    sizes = at or (rows // 2, rows, 2 * rows, 4 * rows)
    times = {size: (fixed + per_row * size) * (off or {}).get(size, 1.0) for size in sizes}
    slower = [1.0 + wobble * (number % 2) for number in range(rounds)]
    return Scaling(
        rows,
        tuple(
            SizeTimes(size, tuple(times[size] * factor for factor in slower), 10 * rounds) for size in sizes
        ),
        **fields,
    )


def peak(dtype: str, giga: float, *, device: str = "/CPU:0", aligned: bool = True, kind: Any = None) -> Peak:
    """Give what a machine reached."""
    rate = Quantity(giga * GIGA, "FLOP/s")
    size = "1024 x 1024" if aligned else "1025 x 1025"
    return Peak(device, kind or "matrix product", dtype, rate, size, aligned)


def work(
    by_dtype: Mapping[str, float],
    *peaks: Peak,
    layers: tuple[LayerWork, ...] = (),
    capability: float | None = None,
    **fields: Any,
) -> Compute:
    """Give a step's operations by type, in units of 10^9."""
    counted = {dtype: giga * GIGA for dtype, giga in by_dtype.items()}
    known: dict[str, Any] = {
        "flops": Quantity(sum(counted.values()), "FLOP", source="matrix products"),
        "by_dtype": counted,
        "layers": layers,
        "peaks": peaks,
        "device": "/CPU:0" if capability is None else "/GPU:0",
        "capability": Missing("there is no GPU") if capability is None else Quantity(capability, ""),
    }
    return Compute(**{**known, **fields})
