"""What steps take longer because something long ran right before them, and left the caches cold.

Seen by comparing steps of one run: those right behind a long gap with those that lie far from one. Where
every gap is long there is nothing to compare with, and nothing is said.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tfdiag import stats

__all__ = ["aftermath"]

Floats = npt.NDArray[np.float64]

_LONG = 3.0
"""Times the usual gap …"""
_LONG_BESIDE_STEP = 0.3
"""… and at least so much of a step: what is shorter evicts little."""
_LEAST = 5
"""Long gaps, and calls of each kind that is compared."""
_MOST = 0.5
"""Of all gaps: where more are long, none is far from one."""


def aftermath(busy: Floats, before: Floats, usable: npt.NDArray[np.bool_]) -> float:
    """Give by how much calls are longer behind long gaps, spread over all usable calls.

    `busy` is a call without its wait for input, `before` the gap in front of it; a call that is not usable
    (traced, the first of an epoch) is looked at neither as one that is cold nor as one that is warm, but
    those behind it are.
    """
    if np.count_nonzero(usable) < 2 * _LEAST:
        return 0.0
    bar = max(_LONG * float(np.median(before[usable])), _LONG_BESIDE_STEP * float(np.median(busy[usable])))
    long = before > bar
    count = int(np.count_nonzero(long))
    if count < _LEAST or count > _MOST * np.count_nonzero(usable):
        return 0.0
    at = np.arange(len(busy))
    since = at - np.maximum.accumulate(np.where(long, at, -len(busy)))
    reach = math.ceil(np.count_nonzero(usable) / count / 2)
    far = busy[usable & (since >= reach)]
    if len(far) < _LEAST:
        return 0.0
    warm = stats.median(far)
    longer = 0.0
    for distance in range(reach):
        cold = busy[usable & (since == distance)]
        if distance == 0 and not len(cold):
            continue
        if len(cold) < _LEAST or stats.median(cold).low <= warm.high:
            break  # from here on they are as quick as any
        longer += len(cold) * (float(np.median(cold)) - warm.value)
    return longer / float(np.count_nonzero(usable))
