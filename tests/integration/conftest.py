"""What tests of real jobs share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _no_garbage() -> None:
    """Let what earlier fits left in circles come to its end now.

    Python may collect it at any time, and taking down a tf.data iterator can wait for its tuning thread to
    wake up: for as long as the iterator is old. That time is not the diagnosis's.
    """
    gc.collect()
