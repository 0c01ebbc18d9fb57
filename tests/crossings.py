"""Calls on devices whose costs are given, so that an analysis has to give them back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfdiag.model.devices import DeviceRun, SizeTimes, StepOnDevices
from tfdiag.model.quantity import Quantity

__all__ = ["NOISE", "device_run", "step_on_devices"]

NOISE = 0.01
_ROUNDS = 15


def device_run(
    device: str,
    *,
    fixed: float = 0.0,
    row: float = 0.0,
    sizes: tuple[int, ...] = (8,),
    seconds: Callable[[int], float] | None = None,
    there: float = 0.0,
    back: float = 0.0,
    noise: float = NOISE,
    seed: int | None = None,
) -> DeviceRun:
    """Give calls that take `fixed` and `row` for each row, or what `seconds` says of a size."""
    rng = np.random.default_rng(len(device) + ord(device[1]) if seed is None else seed)
    cost = seconds or (lambda rows: fixed + row * rows)

    def series(value: float) -> tuple[float, ...]:
        return tuple(value * (1 + noise * rng.standard_normal(_ROUNDS))) if value else ()

    return DeviceRun(
        device=device,
        kind=device[1:4],
        first_call_s=Quantity(0.1, "s"),
        sizes=tuple(
            SizeTimes(rows, series(cost(rows)), series(cost(rows)), series(there), series(back))
            for rows in sizes
        ),
        calls=100,
        ran_on=(device,),
    )


def step_on_devices(
    cpu_s: float, gpu_s: float, *, rows: int = 32, cpu_row: float = 0.5, noise: float = NOISE
) -> StepOnDevices:
    """Give a step of a job: seconds on both devices at its own batch, of the CPU's this part by rows."""
    sizes = (rows // 8, rows // 2, rows, rows * 2, rows * 8)
    host = device_run(
        "/CPU:0", fixed=cpu_s * (1 - cpu_row), row=cpu_s * cpu_row / rows, sizes=sizes, noise=noise
    )
    return StepOnDevices(
        rows, (host, device_run("/GPU:0", fixed=gpu_s, sizes=sizes, there=gpu_s / 50, noise=noise))
    )
