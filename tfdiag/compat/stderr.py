"""The door to the process' stderr: what TensorFlow's C++ parts say of our own probing is kept from it.

They write past Python, to the file descriptor, whatever the log level. Names of their source files (2.13 to
2.21) tell their lines from others; one that has another name is shown, as all else is.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

__all__ = ["PROBING", "PROFILER", "without"]

PROFILER = (b" session_manager.cc:", b" profiler_session.cc:", b" save_profile.cc:")
PROBING = (b" op_kernel.cc:", b" local_rendezvous.cc:", b" cache_dataset_ops.cc:", b"\t [[{{node ")
"""What is said of a function that does not take batches, or of a cache that was not filled."""


@contextlib.contextmanager
def without(lines: tuple[bytes, ...]) -> Iterator[None]:
    """Drop the lines with one of these names; whatever else is written goes to stderr at the end."""
    try:
        real = os.dup(2)
    except OSError:  # a process without stderr
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(real, 2)
            aside.seek(0)
            for line in aside:
                if not any(name in line for name in lines):
                    os.write(real, line)
            os.close(real)
