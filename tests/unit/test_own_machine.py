"""What was measured while others had the machine is void, whatever it came to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.own_machine import MOST, OwnMachine, Reading

SUITE = """
    import pytest

    made = []

    @pytest.fixture(scope="module")
    def prepared():
        made.append(1)
        return len(made)

    def test_first(prepared):
        assert prepared == {wanted}

    def test_second(prepared):
        assert prepared == {wanted}
"""


def machine(*others: float) -> Callable[[], Reading]:
    """Give readings of a machine of which others have these shares, one after the other, then none."""
    shares = itertools.chain(others, itertools.repeat(0.0))
    at, busy = itertools.count(), itertools.accumulate(shares, lambda sum_, share: sum_ + share, initial=0.0)
    cores = 1.0

    def read() -> Reading:
        return Reading(float(next(at)), cores * next(busy), 0.0)

    return read


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine of these tests has one core."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_test_without_the_machine_is_run_again(pytester: pytest.Pytester, wanted: int) -> None:
    """Passed or failed, it is void, and so is what its module prepared."""
    pytester.makepyfile(SUITE.replace("{wanted}", str(wanted)))
    # Between the two readings of the first test, then of the wait for a quiet machine.
    plugin = OwnMachine(read=machine(2 * MOST), sleep=lambda _: None, spin=lambda _: None)
    done = pytester.inline_run("-p", "no:cacheprovider", plugins=[plugin])
    assert done.countoutcomes() == ([2, 0, 0] if wanted == 2 else [0, 0, 2])
    assert [line.split("::")[1] for line in plugin.void] == ["test_first: others had 30% of the cores"]


@pytest.mark.usefixtures("one_core")
def test_a_test_with_the_machine_is_run_once(pytester: pytest.Pytester) -> None:
    """What fails on a quiet machine has failed."""
    pytester.makepyfile("def test_wrong():\n    assert False")
    plugin = OwnMachine(read=machine(MOST / 2), sleep=lambda _: None, spin=lambda _: None)
    done = pytester.inline_run("-p", "no:cacheprovider", plugins=[plugin])
    assert done.countoutcomes() == [0, 0, 1]
    assert plugin.void == []


@pytest.mark.usefixtures("one_core")
def test_a_machine_that_stays_away_is_not_waited_for_without_end(pytester: pytest.Pytester) -> None:
    """The last outcome counts then."""
    pytester.makepyfile("def test_wrong():\n    assert False")
    slept: list[float] = []
    plugin = OwnMachine(read=machine(*[1.0] * 10_000), sleep=slept.append, spin=slept.append)
    done = pytester.inline_run("-p", "no:cacheprovider", plugins=[plugin])
    assert done.countoutcomes() == [0, 0, 1]
    assert 1190 <= sum(slept) < 1210
    assert len(plugin.void) == 1
