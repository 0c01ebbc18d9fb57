"""What is kept from stderr, and what is not."""

from __future__ import annotations

import os

import pytest

from tfdiag.compat import stderr


def test_only_named_lines_are_dropped(capfd: pytest.CaptureFixture[str]):
    """Whatever else is written meanwhile is shown afterwards, in its order."""
    with stderr.without((b" op_kernel.cc:",)):
        os.write(2, b"one\nW0000 op_kernel.cc:1 failed\ntwo\n")
    os.write(2, b"three\n")
    assert capfd.readouterr().err == "one\ntwo\nthree\n"


def test_an_exception_passes_and_stderr_is_back(capfd: pytest.CaptureFixture[str]):
    """Nothing is swallowed."""

    def probe() -> None:
        with stderr.without(stderr.PROBING):
            os.write(2, b"before\n")
            raise KeyError

    with pytest.raises(KeyError):
        probe()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "before\nafter\n"


def test_one_inside_another(capfd: pytest.CaptureFixture[str]):
    """The inner one gives what it keeps to the outer one."""
    with stderr.without((b"outer",)):
        with stderr.without((b"inner",)):
            os.write(2, b"an inner line\nan outer line\na line\n")
        os.write(2, b"an inner line\n")
    assert capfd.readouterr().err == "a line\nan inner line\n"
