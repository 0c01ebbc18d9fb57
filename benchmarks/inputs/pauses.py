"""Storage that answers late: files in a folder named for it make each read wait, without processor time.

A small C library, put before the C library's own `pread`, does it: readers in TensorFlow then wait
as they do for a remote disk, and by a time that is known.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_PREFIX = "pause-us-"

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ssize_t (*reader)(int, void *, size_t, off64_t);

static ssize_t late(const char *name, int fd, void *into, size_t count, off64_t at) {
  reader real = (reader)dlsym(RTLD_NEXT, name);
  ssize_t got = real(fd, into, count, at);
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length > 0 && got > 0) {
    path[length] = 0;
    char *pause = strstr(path, "/pause-us-");
    if (pause) usleep(atoi(pause + 10));
  }
  return got;
}

ssize_t pread(int fd, void *into, size_t count, off_t at) { return late("pread", fd, into, count, at); }
ssize_t pread64(int fd, void *into, size_t count, off64_t at) { return late("pread64", fd, into, count, at); }
"""


def available() -> bool:
    """Tell whether this process has slow storage."""
    return _PREFIX in os.environ.get("LD_PRELOAD", "")


def preload() -> None:
    """Start this process again with slow storage, where there is a C compiler."""
    compiler = shutil.which("cc")
    if available() or compiler is None or not sys.platform.startswith("linux"):
        return
    folder = Path(tempfile.mkdtemp(prefix="tfdiag-storage-"))
    source, library = folder / "late.c", folder / f"{_PREFIX}library.so"
    source.write_text(_SOURCE)
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=False
    )
    if built.returncode == 0:
        os.environ["LD_PRELOAD"] = str(library)
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this process, from its start


def slow_folder(parent: Path, seconds: float) -> Path:
    """Make a folder each read from whose files waits for a time."""
    made = parent / f"{_PREFIX}{round(seconds * 1e6)}"
    made.mkdir(parents=True, exist_ok=True)
    return made
