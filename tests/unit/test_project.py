"""What holds for the project as a whole: its commands, its pages, its names."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tfdiag
from benchmarks import import_time
from tfdiag.checks.registry import all_checks

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "tfdiag").rglob("*.py"))


def texts() -> list[Path]:
    """Every file that a person wrote: what lies at the root, and in the project's folders."""
    folders = (".ci", "benchmarks", "docs", "examples", "tests", "tfdiag", "tools")
    made = (".git", "tfdiag-report.html", "tfdiag-report.json")
    at_root = [path for path in ROOT.iterdir() if path.name not in made]
    below = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(
        path
        for path in at_root + below
        if path.is_file() and path.suffix != ".pyc" and b"\0" not in path.read_bytes()[:1024]
    )


def imported(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_ci_runs_the_commands_of_the_readme():
    """Both commands that the README gives are lines of .ci/run, word for word."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```sh\n(.+?)\n```$", readme, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    lines = [line.strip() for line in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()]
    assert set(commands) <= set(lines)


def test_readme_shows_a_report():
    """The block that the tool fills is filled."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"<!-- report: begin -->\n```text\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    assert len(shown.group(1).splitlines()) > 5


def test_pages_are_fresh():
    """Every check has its page, and no page is of another version or of no check."""
    done = subprocess.run(
        [sys.executable, "tools/generate_docs.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_sorted():
    """`__all__` is sorted and free of doubles, so that a merge can't hide a name."""
    assert list(tfdiag.__all__) == sorted(set(tfdiag.__all__))


def test_public_names_exist():
    """Each public name can be had."""
    assert [name for name in tfdiag.__all__ if not hasattr(tfdiag, name)] == []


def check_files() -> set[str]:
    """The checks on disk, as topic/name."""
    folder = ROOT / "tfdiag/checks"
    return {f"{path.parent.name}/{path.stem}" for path in folder.glob("*/[!_]*.py")}


def test_every_check_on_disk_is_registered():
    """A file under checks/<topic>/ is a check, and a check is a file, named after its id."""
    registered = {f"{check.topic}/{check.id.replace('-', '_')}" for check in all_checks()}
    assert registered == check_files()


@pytest.mark.parametrize("check", sorted(check_files()))
def test_every_check_has_a_test(check: str):
    """The tests mirror the checks."""
    topic, name = check.split("/")
    assert (ROOT / f"tests/unit/checks/{topic}/test_{name}.py").is_file()


def test_what_travels_needs_the_standard_library_only():
    """`model` and `errors` import nothing else; the linter can only forbid what it can name."""
    allowed = sys.stdlib_module_names | {"tfdiag"}
    files = [*(ROOT / "tfdiag/model").glob("*.py"), ROOT / "tfdiag/errors.py"]
    strangers = {name for path in files for name in imported(path) if name.split(".")[0] not in allowed}
    assert strangers == set()


def test_no_paths_of_a_machine():
    """No file names a place that exists on one machine only."""
    place = re.compile(r"(?:^|[^A-Za-z0-9_.~/])/(?:home|root|Users|work)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if place.search(line)
    ]
    assert found == []


def test_importing_tfdiag_imports_nothing_heavy():
    """`import tfdiag` brings neither TensorFlow nor Keras nor NVML."""
    heavy = "{'keras', 'pynvml', 'tensorflow', 'tf_keras'}"
    script = f"import sys, tfdiag; print(*{heavy} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == ""


def test_importing_tfdiag_costs_less_than_importing_numpy():
    """The benchmark's own measure and limit; the least of three runs, which noise can only raise."""
    nothing, numpy, ours = (
        min(import_time.cost_ms(statement)[1] for _ in range(3)) for statement in import_time.STATEMENTS
    )
    assert (ours - nothing) / (numpy - nothing) <= import_time.LIMIT_RATIO


def test_what_a_run_could_not_know_is_no_other_story(monkeypatch: pytest.MonkeyPatch):
    """The README's report is compared by its sections: lines of the verdict differ from run to run."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    story = importlib.import_module("refresh_readme").story
    shown = "INPUT-BOUND  99 %\nThe step waits.\na model\n\nFindings\n  1  sequential-map in map\n"
    unsure = shown.replace("a model", "To say more: the host of this virtual machine took cores\na model")
    assert story(shown) == story(unsure)
    assert story(shown) != story(shown.replace("INPUT", "HOST"))
    assert story(shown) != story(shown.replace("sequential-map", "slow-callback"))
    assert story(shown) != story(shown.replace("Findings", "Where a step's time goes\n\nFindings"))
