"""What tests of real jobs share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _old_objects_rest() -> Iterator[None]:
    """Keep the collector from the many objects that libraries and collected tests are made of.

    To go through all of them takes up to a second, in the middle of a step that is measured.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_garbage(_old_objects_rest: None) -> None:
    """Let what earlier fits left in circles come to its end now.

    Python may collect it at any time, and taking down a tf.data iterator can wait for its tuning thread to
    wake up: for as long as the iterator is old. That time is not the diagnosis's.
    """
    gc.collect()
