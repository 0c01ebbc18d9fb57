"""Runs code in a process of its own, for what must be set before TensorFlow starts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

TIMEOUT_S = 180.0
"""A child that takes longer hangs."""


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code with this process' import path."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def succeeds(code: str, **environment: str) -> str:
    """Run code that must end well, and give what it printed."""
    result = run_python(code, **environment)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout
