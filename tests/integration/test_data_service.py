"""The code that is suggested for tf.data service, run on one machine."""

from __future__ import annotations

import socket
from typing import Any

import tensorflow as tf

from tfdiag.remedies import data_service


def free_port() -> int:
    """Give a port that nobody uses."""
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return int(taken.getsockname()[1])


def run(text: str, scope: dict[str, Any], **names: object) -> dict[str, Any]:
    """Run a part of the code with its names filled in."""
    exec(text.format(**names), scope)  # noqa: S102  # it is the code of the suggestion that is tested
    return scope


def test_the_code_feeds_a_job_from_two_workers() -> None:
    """All elements arrive, each once, from a dispatcher and two workers on this machine."""
    port = free_port()
    address = f"localhost:{port}"
    dispatcher = run(data_service.DISPATCHER, {"tf": tf}, dispatcher_port=port)["dispatcher"]
    workers = []
    try:
        for _ in range(2):
            own = free_port()
            scope = run(
                data_service.WORKER,
                {"tf": tf},
                dispatcher=address,
                worker=f"localhost:{own}",
                worker_port=own,
            )
            workers.append(scope["worker"])
        given = tf.data.Dataset.range(200).map(lambda x: x * 2).batch(10)
        dataset = run(data_service.TRAINING, {"tf": tf, "dataset": given}, dispatcher=address)["dataset"]
        arrived = sorted(int(x) for batch in dataset for x in batch)
        del dataset
    finally:
        for worker in workers:
            worker._stop()
        dispatcher._stop()
    assert arrived == [2 * x for x in range(200)]


def test_the_suggestion_is_made_of_these_parts() -> None:
    """What a report shows is the code that runs here, but for the names."""
    lines = [line[2:] for line in data_service.code(3).splitlines()]
    text = "\n".join(lines)
    names = {
        "dispatcher": "dispatcher-host:5050", "dispatcher_port": 5050,
        "worker": "worker-host:5051", "worker_port": 5051,
    }  # fmt: skip
    for part in (data_service.DISPATCHER, data_service.WORKER, data_service.TRAINING):
        assert part.format(**names) in text
    compile(text, "suggestion", "exec")
