"""The build: once, cached, safe with several processes, clear when it cannot be done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import build as builder
from .fixture import built_or_skipped

pytestmark = pytest.mark.usefixtures("simgpu")  # no compiler: skipped like the rest


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library that is small enough to build in no time, and an empty cache."""
    monkeypatch.setenv("TFDIAG_SIMGPU_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "src"
    (folder / "nvml").mkdir(parents=True)
    for name in ("config.cc", "activity.cc", "truth.cc", "nvml/nvml.cc"):
        (folder / name).write_text(f"int {Path(name).stem}() {{ return 1; }}\n")
    return folder


def test_a_second_build_finds_the_first(sources: Path) -> None:
    """Nothing is compiled or linked again as long as nothing has changed."""
    first = builder.build(sources)
    stamps = {p: p.stat().st_mtime_ns for p in (first.device, first.nvml / builder.NVML)}
    second = builder.build(sources)
    assert second == first
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps


def test_a_change_to_one_source_compiles_one(sources: Path) -> None:
    """A changed source makes another build, out of the object files of the others."""
    first = builder.build(sources)
    objects = builder.cache_folder() / "objects"
    before = {p.name for p in objects.iterdir()}
    (sources / "truth.cc").write_text("int truth() { return 2; }\n")
    second = builder.build(sources)
    assert second != first
    assert [name.partition("-")[0] for name in {p.name for p in objects.iterdir()} - before] == ["truth"]


def test_a_header_changes_the_key(sources: Path) -> None:
    """A header may matter to any source, so it makes another build."""
    first = builder.build(sources)
    (sources / "new.h").write_text("#pragma once\n")
    assert builder.build(sources) != first


def test_the_key_knows_the_version_of_tensorflow(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another TensorFlow is another build: some kernels use its C++ classes."""
    first = builder.build(sources)
    monkeypatch.setattr(builder, "tensorflow_version", lambda _folder: "another")
    assert builder.build(sources) != first


def test_a_broken_source_says_what_the_compiler_said(sources: Path) -> None:
    """A failed build raises with the compiler's words and leaves nothing that looks finished."""
    (sources / "truth.cc").write_text("int truth() { return nonsense; }\n")
    with pytest.raises(builder.BuildError, match="nonsense"):
        builder.build(sources)
    assert list(builder.cache_folder().glob("build-*")) == []
    (sources / "truth.cc").write_text("int truth() { return 1; }\n")
    assert builder.build(sources).device.exists()


def test_two_processes_build_once(sources: Path) -> None:
    """Two processes at once end with the same, complete build."""
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from simgpu.build import build; "
        "print(build(Path(sys.argv[2])).folder)"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1]), str(sources)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=60)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert folders == {str(builder.build(sources).folder)}
    assert len(list(builder.cache_folder().glob("build-*"))) == 1
    assert list(builder.cache_folder().glob("unfinished-*")) == []


def test_old_builds_are_thrown_away(sources: Path) -> None:
    """The cache keeps the builds used last and does not grow for ever."""
    for i in range(builder.KEPT_BUILDS + 2):
        (sources / "truth.cc").write_text(f"int truth() {{ return {i}; }}\n")
        last = builder.build(sources)
    kept = list(builder.cache_folder().glob("build-*"))
    assert len(kept) == builder.KEPT_BUILDS
    assert last.folder in kept


def test_no_compiler_is_a_skip_but_not_in_ci(
    sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a compiler the tests are skipped with the reason; where CI is set they fail."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no C\\+\\+ compiler"):
        built_or_skipped()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no C\\+\\+ compiler"):
        built_or_skipped()
