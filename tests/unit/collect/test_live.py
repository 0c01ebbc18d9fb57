"""When enough of a running job was seen."""

from __future__ import annotations

import pytest

from tfdiag.collect.live import still_rising

MB = 1e6


@pytest.mark.parametrize(
    ("rss", "rising"),
    [
        ([0, 50, 100, 150, 200], True),
        ([0, 60, 62, 63, 64], False),
        ([0, 0, 0, 0, 200], False),
        ([0, 250, 500, 750, 1000], False),
        ([500, 400, 300, 200, 100], False),
        ([0, 400], False),
        ([], False),
    ],
    ids=["leak", "allocators", "one leap", "leak for sure", "freed", "too few", "none"],
)
def test_memory_that_rises_is_looked_at_for_longer(rss: list[float], rising: bool):
    """A run whose steps are known well after two seconds had seen 440 MiB of a leak, too little to say so."""
    assert still_rising([each * MB for each in rss]) is rising
