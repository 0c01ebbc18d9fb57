"""host-sync-per-step: Python waits for values of each step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.synthetic import MS
from tests.unit.checks.running import not_run, only, results, value
from tfdiag.checks.host.host_sync_per_step import CHECK
from tfdiag.checks.host.slow_callback import CHECK as SLOW
from tfdiag.model.host_work import CallbackFacts, HostWork
from tfdiag.model.quantity import Missing

WATCHED = ("sync", "save", "summary")
HOOK = CallbackFacts("Mine", ("Mine",), batch_hook=True)


def reading(share: float, syncs: float = 1.0, **parts: Any) -> dict[str, Any]:
    """Give a step of 100 ms of which a callback waits for values for this share, and computes for 1 ms."""
    return {
        "callbacks": {"Mine": share * 100 * MS + 1 * MS},
        "compute": (98 - share * 100) * MS,
        "dispatch": 1 * MS,
        "did": {"Mine": {"syncs": syncs, "sync_s": share * 100 * MS}},
        "host_work": HostWork((HOOK,), WATCHED),
        **parts,
    }


@pytest.mark.parametrize(("share", "fires"), [(0.049, False), (0.052, True)])
def test_fires_at_a_twentieth_of_the_step(share: float, fires: bool):
    """Waits that cost less are not worth a finding."""
    assert bool(results(CHECK, **reading(share))) is fires


@pytest.mark.parametrize(("asked", "fires"), [(0.49, False), (0.51, True)])
def test_a_value_now_and_then_is_no_sync_of_each_step(asked: float, fires: bool):
    """Half a value a step is the least; a rare and long one is a slow callback."""
    assert bool(results(CHECK, **reading(0.3, asked))) is fires
    assert bool(results(SLOW, **reading(0.3, asked))) is not fires


def test_shows_its_numbers():
    """Who asks, how often, and for how long."""
    found = only(CHECK, **reading(0.3, 4.0))
    assert found.finding.where == "Mine.on_train_batch_end"
    assert value(found, "waiting for values per step") == pytest.approx(30 * MS)
    assert value(found, "values asked for per step") == pytest.approx(4)
    assert value(found, "of it in Mine") == pytest.approx(30 * MS)
    assert "if batch % 100:" in found.suggestions[0].code


def test_logs_that_keras_fetches_for_a_hook():
    """A hook at the end of batches makes fit wait for all logs; the hook is named, and told what to say."""
    logs = {"logs": {"syncs": 2, "sync_s": 1 * MS}}
    found = only(CHECK, compute=4 * MS, loop_did=logs, host_work=HostWork((HOOK,), WATCHED))
    assert found.finding.where == "Mine"
    assert found.finding.cost.value == pytest.approx(1 / 6)
    assert "+     async_safe = True" in found.suggestions[0].code


def test_a_step_of_ones_own():
    """What `float(loss)` takes in a loop of the caller's own."""
    own = {"job": {"loop": "custom"}, "host_work": HostWork((), WATCHED)}
    found = only(CHECK, loop_did={"step": {"syncs": 1, "sync_s": 2 * MS}}, **own)
    assert found.finding.where == "the train step"
    assert "float(loss)" in found.suggestions[0].code


def test_beside_an_accelerator_a_step_of_ones_own_is_judged_by_what_the_device_idles():
    """While the host waits the device computes, so the wait itself is no loss; without a trace it is open."""
    own = {"job": {"loop": "custom"}, "host_work": HostWork((), WATCHED), "accelerator": True}
    assert "launch" in not_run(CHECK, loop_did={"step": {"syncs": 1, "sync_s": 9 * MS}}, **own)


def test_unwatched_it_is_open_only_where_somebody_could_ask():
    """Without a hook at the end of batches nobody asks."""
    unwatched = HostWork((HOOK,), unwatched="nothing is replaced")
    assert "nothing is replaced" in not_run(CHECK, host_work=unwatched)
    assert not results(CHECK, host_work=HostWork((), unwatched="nothing is replaced"))
    gone = Missing("callbacks were not looked at")
    assert "not looked at" in not_run(CHECK, host_work=gone, job={"callbacks": ("Mine",)})
    assert not results(CHECK, host_work=gone)
