"""Build the simulated GPU once and keep it.

    python -m simgpu.build        (from the folder tests; prints the folder with the two libraries)

The cache lives in the user's cache folder, or where `TFDIAG_SIMGPU_CACHE` says. Its key is everything that the result
depends on: the sources, the flags, the compiler and the version of TensorFlow. A build happens in a folder of its own
that is renamed when it is complete, under a lock: two processes at once build once, and a build that was killed leaves
nothing that looks finished. Object files are kept, too, so a change to one source costs the compilation of one.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parent / "src"
DEVICE = "libsimgpu.so"
NVML = "libnvidia-ml.so.1"
FRAMEWORK = "libtensorflow_framework.so.2"

#: The C++ ABI and alignment must be those of the wheel: some kernels use TensorFlow's C++ classes.
FLAGS = [
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    "-DEIGEN_MAX_ALIGN_BYTES=64",
]
#: Time matters where the arithmetic is; elsewhere a quick build does.
FAST = ("matmul.cc", "conv2d.cc", "conv3d.cc")
KEPT_BUILDS, KEPT_OBJECTS = 4, 200


class BuildError(Exception):
    """The libraries could not be built; the message says why."""


class NoCompilerError(BuildError):
    """There is no C++ compiler, which a machine without one may be forgiven."""


class Built(NamedTuple):
    """Where the libraries are."""

    folder: Path

    @property
    def device(self) -> Path:
        """The plug-in, for `TF_PLUGGABLE_DEVICE_LIBRARY_PATH`."""
        return self.folder / DEVICE

    @property
    def nvml(self) -> Path:
        """The folder for `LD_LIBRARY_PATH`, holding `libnvidia-ml.so.1` and nothing else."""
        return self.folder / "nvml"


def cache_folder() -> Path:
    """Where builds are kept."""
    own = os.environ.get("TFDIAG_SIMGPU_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfdiag" / "simgpu"


def compiler() -> str:
    """The C++ compiler: `CXX`, or the first of the usual names."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "c++", "clang++")):
        found = shutil.which(name)
        if found:
            return found
    raise NoCompilerError("no C++ compiler: install g++ or clang++, or name one in CXX")


def tensorflow_folder() -> Path:
    """The installed TensorFlow, found without importing it: that takes seconds."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("TensorFlow is not installed")
    return Path(spec.submodule_search_locations[0])


def tensorflow_version(folder: Path) -> str:
    """What tells one TensorFlow from another: the version, and the size of the library that is linked against."""
    versions = []
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    return f"{', '.join(versions)}, {(folder / FRAMEWORK).stat().st_size} bytes"


def jobs() -> int:
    """How many compilers may run at once: `TFDIAG_SIMGPU_JOBS`, or one for each core that this process may use."""
    return int(os.environ.get("TFDIAG_SIMGPU_JOBS") or len(os.sched_getaffinity(0)))


def _digest(*parts: str | bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:20]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _keep_newest(paths: list[Path], number: int, spare: Path) -> None:
    for path in sorted(paths, key=lambda p: p.stat().st_mtime, reverse=True)[number:]:
        if path != spare:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{Path(command[0]).name} failed on {command[-1]}:\n{done.stderr[-4000:]}")


class _Build:
    """What all steps of one build need to know."""

    def __init__(self, sources: Path) -> None:
        self.cxx = compiler()
        self.tensorflow = tensorflow_folder()
        self.sources = sorted(sources.rglob("*.cc"))
        headers = b"".join(p.read_bytes() for p in sorted(sources.rglob("*.h")))
        version = subprocess.run([self.cxx, "--version"], capture_output=True, text=True, check=True).stdout
        self.base = _digest(
            version.splitlines()[0], " ".join(FLAGS), tensorflow_version(self.tensorflow), headers
        )
        self.key = _digest(self.base, Path(__file__).read_bytes(), *(p.read_bytes() for p in self.sources))

    def object_of(self, source: Path, objects: Path) -> Path:
        """Compile one source, or find that it was compiled before."""
        # In the name of the file, not its path: the cache does not depend on where the project lies.
        target = objects / f"{source.stem}-{_digest(self.base, source.name, source.read_bytes())}.o"
        if not target.exists():
            level = "-O3" if source.name in FAST else "-O1"
            include = ["-isystem", str(self.tensorflow / "include")]
            unfinished = target.with_suffix(f".{os.getpid()}.tmp")
            _run([self.cxx, *FLAGS, level, *include, "-o", str(unfinished), "-c", str(source)])
            unfinished.rename(target)
        os.utime(target)
        return target

    def link(self, objects: dict[Path, Path], folder: Path) -> None:
        """Make the two libraries. NVML's must not need TensorFlow: monitors load it into processes without."""
        shared = {"config.cc", "activity.cc"}
        device = [str(o) for s, o in objects.items() if s.parent.name != "nvml"]
        nvml = [str(o) for s, o in objects.items() if s.parent.name == "nvml" or s.name in shared]
        against = [f"-L{self.tensorflow}", f"-l:{FRAMEWORK}"]
        _run([self.cxx, "-shared", "-o", str(folder / DEVICE), *device, *against, "-lpthread"])
        (folder / "nvml").mkdir()
        _run(
            [
                self.cxx,
                "-shared",
                f"-Wl,-soname,{NVML}",
                "-o",
                str(folder / "nvml" / NVML),
                *nvml,
                "-lpthread",
            ]
        )


def build(sources: Path = SOURCES) -> Built:
    """Return the libraries, built if they are not in the cache."""
    cache = cache_folder()
    plan = _Build(sources)
    done = cache / f"build-{plan.key}"
    if (done / DEVICE).exists():
        os.utime(done)
        return Built(done)
    objects = cache / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"):
        if (done / DEVICE).exists():  # the process that held the lock has built it
            return Built(done)
        # Largest first: it decides when the last one is finished.
        order = sorted(plan.sources, key=lambda p: p.stat().st_size, reverse=True)
        with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
            compiled = dict(zip(order, pool.map(lambda s: plan.object_of(s, objects), order), strict=True))
        with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as temporary:
            folder = Path(temporary) / "build"
            folder.mkdir()
            plan.link(compiled, folder)
            folder.rename(done)
        _keep_newest(list(cache.glob("build-*")), KEPT_BUILDS, done)
        _keep_newest(list(objects.iterdir()), KEPT_OBJECTS, done)
    return Built(done)


if __name__ == "__main__":
    print(build().folder)
