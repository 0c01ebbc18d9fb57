"""What the machine computes at most: short products and convolutions, as fast as they go, once a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from tfdiag.compat import tensorflow
from tfdiag.model.compute import Peak
from tfdiag.model.quantity import Missing, Quantity

__all__ = ["Wanted", "measure_peaks"]

_LONG_ENOUGH_S = 0.008
_TIMES_FETCHING = 15
"""A call of this length, and of so many times what it takes to hear of its result, is hardly dispatch any
more; larger operands would tell nothing new."""
_REPEATS = 6
_UNALIGNED = 1
"""What is added to sizes that are powers of two, so that no 8 divides them."""
_PRODUCTS = (128, 256, 512, 1024, 2048, 4096, 8192)
_BATCHES = (1, 4, 16, 64, 256)
_SIDE, _CHANNELS, _WINDOW = 32, 64, 3

Kind: TypeAlias = Literal["matrix product", "convolution"]
Wanted: TypeAlias = tuple[Kind, str, bool]
"""Kind, type, and whether sizes are multiples of 8."""

_KEPT: dict[tuple[str, Wanted], Peak] = {}
"""The machine does not change while the process lives."""


def measure_peaks(
    device: str,
    wanted: list[Wanted],
    *,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[tuple[Peak, ...], str]:
    """Give the peaks of a device, and why some are not there.

    TensorFlow runs them on the device, on the CPU with the threads, that the train step runs on.
    """
    found, missing = [], ""
    for number, one in enumerate(wanted):
        kept = _KEPT.get((device, one))
        if kept is None:
            end = clock() + max(0.0, until - clock()) / (len(wanted) - number)
            result = _measured(device, one, end, clock, should_stop)
            if isinstance(result, Missing):
                missing = missing or result.reason
                continue
            kept = _KEPT[device, one] = result
        found.append(kept)
    return tuple(found), missing


def _measured(
    device: str, wanted: Wanted, until: float, clock: Callable[[], float], should_stop: Callable[[], bool]
) -> Peak | Missing:
    tf = tensorflow.tensorflow()
    kind, dtype, aligned = wanted
    best, size, calls = 0.0, "", 0
    try:
        with tf.device(device):
            for length in _PRODUCTS if kind == "matrix product" else _BATCHES:
                run, fetch, flops, name = _operation(tf, kind, dtype, length, aligned)
                if clock() >= until or should_stop():
                    break
                run()
                fetching = _shortest(fetch, clock)
                for _ in range(_REPEATS):
                    begin = clock()
                    run()
                    took = max(clock() - begin, 1e-9)
                    calls += 1
                    if flops / took > best:
                        best, size = flops / took, name
                    if clock() >= until or should_stop():
                        break
                if took >= max(_LONG_ENOUGH_S, _TIMES_FETCHING * fetching):
                    break
    except (tf.errors.OpError, TypeError, ValueError) as error:
        if not best:
            return Missing(f"no {kind} in {dtype} on {device}: {(str(error).splitlines() or ['?'])[0]}")
    if not best:
        return Missing(f"the budget left no time to measure what {device} computes at most")
    rate = Quantity(best, "FLOP/s", source="the fastest call of a short benchmark", count=calls)
    return Peak(device, kind, dtype, rate, size, aligned)


def _shortest(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    times = []
    for _ in range(_REPEATS):
        begin = clock()
        call()
        times.append(clock() - begin)
    return min(times)


def _operation(
    tf: Any, kind: Kind, dtype: str, length: int, aligned: bool
) -> tuple[Callable[[], Any], Callable[[], Any], float, str]:
    """Give a call that computes and takes a number of its result, one that only does that, and what it is."""
    more = 0 if aligned else _UNALIGNED
    if kind == "matrix product":
        side = length + more
        matrix = tf.fill((side, side), tf.cast(0.5, dtype))

        def multiply() -> Any:
            return tf.matmul(matrix, matrix)[0, 0].numpy()

        def take() -> Any:
            return matrix[0, 0].numpy()

        return multiply, take, 2.0 * side**3, f"{side} x {side}"
    channels = _CHANNELS + more
    images = tf.fill((length, _SIDE, _SIDE, channels), tf.cast(0.5, dtype))
    kernel = tf.fill((_WINDOW, _WINDOW, channels, channels), tf.cast(0.5, dtype))

    def convolve() -> Any:
        return tf.nn.conv2d(images, kernel, 1, "SAME")[0, 0, 0, 0].numpy()

    def take_one() -> Any:
        return images[0, 0, 0, 0].numpy()

    flops = 2.0 * length * _SIDE**2 * (_WINDOW * channels) ** 2
    name = f"{length} images of {_SIDE} x {_SIDE} with {channels} channels"
    return convolve, take_one, flops, name
