"""What holds for every test: warnings are errors, and nothing is left behind."""

from __future__ import annotations

import gc
import signal
import tempfile
from collections.abc import Iterator

import pytest

from tests.own_machine import OwnMachine, can_be_told
from tests.traces_left import (
    difference,
    frameworks_loaded,
    python_threads,
    surroundings,
    threads_left,
)

ALLOWED_WARNINGS = (
    # `fit` has shuffle=True as its default and says so for every input that shuffles by itself.
    "ignore:`shuffle=True` was passed, but will be ignored:UserWarning",
    # `fit` says so at the end of every input whose length it did not know.
    "ignore:Your input ran out of data; interrupting training:UserWarning",
    # Keras 3.15 reads variables in a way that NumPy 2 deprecates.
    (
        "ignore:__array__ implementation doesn't accept a copy keyword"
        ":DeprecationWarning:keras.src.backend.tensorflow.core"
    ),
)
"""What a user of Keras sees too, and can do nothing about."""

SET_BY_IMPORTS = (" tf.", " TensorFlow", " keras", " tf_keras", "warnings.filters", "environ ")
"""What importing TensorFlow and Keras changes in a process."""

RUN_FITS = ("integration", "collect", "compat", "monitor")
"""Folders of tests that run jobs of their own."""
MEASURES = (*RUN_FITS, "simgpu", "trials")
"""Folders of tests that measure, in other processes as well."""

pytest_plugins = ["pytester"]


def pytest_configure(config: pytest.Config) -> None:
    """Make warnings errors, but for those that a user can do nothing about; void what had no machine."""
    if "error" not in config.getini("filterwarnings"):
        config.addinivalue_line("filterwarnings", "error")
    for line in ALLOWED_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
    if can_be_told():
        config.pluginmanager.register(OwnMachine(lambda item: item.path.parent.name in MEASURES))


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Temporary files go to a folder of this run, where those of other processes don't show."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("temporary"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_is_heard() -> Iterator[None]:
    """Ctrl-C raises, also where a shell started the tests in its background and has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def _old_objects_rest(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the collector from the many objects that libraries and collected tests are made of.

    To go through all of them takes up to a second, in the middle of a step that is measured.
    """
    if request.path.parent.name not in RUN_FITS:
        yield
        return
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()


@pytest.fixture(autouse=True)
def _no_garbage(request: pytest.FixtureRequest, _old_objects_rest: None) -> None:
    """Let what earlier fits left in circles come to its end now.

    Python may collect it at any time, and taking down a tf.data iterator can wait for its tuning thread to
    wake up: for as long as the iterator is old. That time is not the next test's.
    """
    if request.path.parent.name in RUN_FITS:
        gc.collect()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """No test leaves a thread, a hook, a handler, a changed setting or a file behind."""
    threads, before, loaded = python_threads(), surroundings(), frameworks_loaded()
    yield
    left = threads_left(threads)  # first, for a thread may still put things back
    lines = difference(before, surroundings())
    if frameworks_loaded() != loaded:
        # The test was the first to import TensorFlow or Keras, which set these themselves.
        lines = [line for line in lines if not any(name in line for name in SET_BY_IMPORTS)]
    lines += left
    assert not lines, "the test left traces:\n  " + "\n  ".join(lines)
