"""A PyDataset, asked for batches directly: what `__getitem__` costs, alone and from several threads."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tfdiag.compat import tensorflow
from tfdiag.model.pipeline import PyInput

__all__ = ["measure_py_input"]

_LEAST = 3
_ENOUGH_S = 1.0
_ENOUGH_CALLS = 50
_TOGETHER_BYTES = 64 * 2**20
"""Of the caller's data, at most, that threads make at once."""
_PICKLE_BYTES = 64 * 2**20


def measure_py_input(
    dataset: Any,
    *,
    cores: int,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> PyInput:
    """Ask for some batches one after the other, then from as many threads as there are cores."""
    length = _length(dataset)
    size = tensorflow.nested_bytes(dataset[0])  # opens files, imports, fills caches of its own
    processor = time.process_time()
    single: list[float] = []
    begin = clock()
    while not _over(single, clock() - begin, until, clock, should_stop):
        before = clock()
        dataset[_place(len(single) + 1, length)]
        single.append(clock() - before)
    spent = time.process_time() - processor
    return PyInput(
        workers=int(getattr(dataset, "workers", 1) or 0),
        use_multiprocessing=bool(getattr(dataset, "use_multiprocessing", False)),
        max_queue_size=int(getattr(dataset, "max_queue_size", 10) or 0),
        item_s=tuple(single),
        cpu_s=spent,
        threads_item_s=()
        if max(2, cores) * size > _TOGETHER_BYTES
        else _together(dataset, length, cores, len(single), until, clock, should_stop),
        length=length,
        picklable=_why_not_pickled(dataset),
    )


def _over(
    done: list[float], seconds: float, until: float, clock: Callable[[], float], stop: Callable[[], bool]
) -> bool:
    if stop() or (done and clock() >= until):
        return True
    return len(done) >= _LEAST and (seconds >= _ENOUGH_S or len(done) >= _ENOUGH_CALLS)


def _together(
    dataset: Any,
    length: int | None,
    cores: int,
    offset: int,
    until: float,
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
) -> tuple[float, ...]:
    """Give the time for each batch when all threads ask at once; empty where it can't be asked so."""
    times: list[float] = []
    begin = clock()
    # Leaving the block joins the threads, whatever happened in it.
    with ThreadPoolExecutor(max_workers=max(2, cores), thread_name_prefix="tfdiag-py-input") as pool:
        while not should_stop() and clock() < until:
            asked = [_place(offset + len(times) * cores + i, length) for i in range(max(2, cores))]
            before = clock()
            try:
                for _ in pool.map(dataset.__getitem__, asked):
                    pass
            except Exception:  # noqa: BLE001  # it need not be made for threads: then nobody knows
                return ()
            times.append((clock() - before) / len(asked))
            if len(times) >= _LEAST and clock() - begin >= _ENOUGH_S / 2:
                break
    return tuple(times)


def _length(dataset: Any) -> int | None:
    length = getattr(dataset, "num_batches", None)
    if length is None:
        try:
            length = len(dataset)
        except (TypeError, NotImplementedError):
            return None
    return int(length)


def _place(number: int, length: int | None) -> int:
    return number % length if length else number


class _TooLarge(Exception):
    """More bytes than are tried."""


class _Sink:
    """Counts what is written to it, up to a limit."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: Any) -> int:
        """Take some bytes."""
        count = memoryview(data).nbytes
        self.size += count
        if self.size > _PICKLE_BYTES:
            raise _TooLarge
        return count


def _why_not_pickled(dataset: Any) -> str:
    try:
        pickle.dump(dataset, _Sink(), protocol=pickle.HIGHEST_PROTOCOL)
    except _TooLarge:
        return f"it has more than {_PICKLE_BYTES // 2**20} MiB to pickle, for each process"
    except Exception as error:  # noqa: BLE001  # whatever its own __reduce__ raises
        first = (str(error).splitlines() or [""])[0]
        return f"{type(error).__name__}: {first}" if first else type(error).__name__
    return ""
