"""The pytest fixture `simgpu`. Another folder of tests gets it by importing the name in its conftest."""

from __future__ import annotations

import os

import pytest

from .build import Built, NoCompilerError, build
from .harness import Simgpu


def built_or_skipped() -> Built:
    """The libraries, or a skip on a machine without a compiler."""
    try:
        return build()
    except NoCompilerError as error:
        # Where results count, a test that did not run must not look like one that passed.
        if os.environ.get("CI"):
            pytest.fail(f"the simulated GPU could not be built: {error}")
        pytest.skip(f"no simulated GPU: {error}")


@pytest.fixture(scope="session")
def simgpu(tmp_path_factory: pytest.TempPathFactory) -> Simgpu:
    """The simulated GPU, built on first use."""
    return Simgpu(built_or_skipped(), tmp_path_factory.mktemp("simgpu"))
