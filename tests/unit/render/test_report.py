"""`tfdiag.Report`: keep, load, log."""

from __future__ import annotations

import dataclasses
import json
import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sample_reports import SAMPLES, empty, full, nasty, tried
from tfdiag.errors import ReportError, UsageError
from tfdiag.model.quantity import Quantity
from tfdiag.model.report import ReportData, Step
from tfdiag.render.report import Report, load


@pytest.mark.parametrize("name", SAMPLES)
def test_save_and_load(name: str, tmp_path: Path) -> None:
    """A saved report comes back equal and shows the same."""
    report = SAMPLES[name]()
    report.save(tmp_path / "report.json")
    back = load(tmp_path / "report.json")
    assert back == report
    assert str(back) == str(report)


def test_what_begins_anew_with_each_epoch_is_beside_the_mean() -> None:
    """A first batch that is late in every epoch is said where it takes longer than a step."""
    step = full().step
    assert isinstance(step, Step)
    for late, said in ((20 * step.mean_s, True), (0.5 * step.mean_s, False)):
        changed = dataclasses.replace(step, epoch_restart=Quantity(late, "s"))
        data = dataclasses.replace(full(), step=changed)
        assert ("the first of each epoch waits" in " ".join(str(data).split())) is said


def test_save_picks_the_form_by_the_name(tmp_path: Path) -> None:
    """Each suffix gives its form, whatever its case, for paths and strings."""
    report = full()
    report.save(str(tmp_path / "a.HTML"))
    report.save(tmp_path / "a.md")
    report.save(tmp_path / "a.json")
    assert (tmp_path / "a.HTML").read_text(encoding="utf-8") == report.to_html()
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == report.to_markdown()
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == report.to_json()


@pytest.mark.parametrize("name", ["report", "report.pdf", ".json"])
def test_an_unknown_suffix_is_refused(name: str, tmp_path: Path) -> None:
    """A name that ends on no known form is refused with those that are, and nothing is written."""
    with pytest.raises(UsageError, match=r"end the name on \.json, \.html, \.md"):
        full().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_json_is_strict() -> None:
    """Any parser can read the JSON, nan and surrogates included."""

    def refuse(token: str) -> None:
        raise AssertionError(token)

    text = nasty().to_json()
    assert text.isascii()
    assert json.loads(text, parse_constant=refuse) == nasty().to_dict()
    assert json.loads(nasty().to_json(indent=2)) == nasty().to_dict()


def test_load_names_file_and_place(tmp_path: Path) -> None:
    """An error in a file says in which file and where."""
    path = tmp_path / "report.json"
    data = full().to_dict()
    data["verdict"]["share"] = "much"
    path.write_text(json.dumps(data))
    with pytest.raises(ReportError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: verdict.share: expected a number, got 'much'"
    path.write_text('{"schema_version": 9}')
    with pytest.raises(ReportError, match=r"report\.json: the report has schema_version 9"):
        load(path)


def test_from_dict_refuses_what_is_not_a_report() -> None:
    """A dict from elsewhere is refused in words."""
    with pytest.raises(ReportError, match="not a report of tfdiag"):
        Report.from_dict({"verdict": {}})


def test_from_data_keeps_every_field() -> None:
    """A report built from bare data has all of it."""
    report = full()
    names = [field.name for field in dataclasses.fields(ReportData)]
    data = ReportData(**{name: getattr(report, name) for name in names})
    assert Report.from_data(data) == report


def test_log_is_one_line_of_json(caplog: pytest.LogCaptureFixture) -> None:
    """The default logger gets one line with the findings and without the raw series."""
    with caplog.at_level(logging.INFO, "tfdiag"):
        tried().log()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("tfdiag", logging.INFO)
    line = json.loads(record.getMessage())
    assert line["verdict"]["code"] == "input-bound"
    assert line["step"]["mean_s"] == 0.0483
    assert line["step"]["segments"]["input_wait"] == pytest.approx(0.0321 / 0.0483)
    assert line["findings"][0]["check"] == "sequential-map"
    assert line["suggestions"][0]["measured"] == 2.71
    assert line["rejected"][0]["status"] == "refuted"
    assert line["versions"]["keras"] == "3.15.0"
    assert len(record.getMessage()) < 3000


def test_log_tells_missing_from_zero(caplog: pytest.LogCaptureFixture) -> None:
    """In the log what is missing is null, and a measured zero is zero."""
    logger = logging.getLogger("elsewhere")
    with caplog.at_level(logging.DEBUG, "elsewhere"):
        full().log(logger, logging.DEBUG)
        empty().log(logger, logging.DEBUG)
    first, second = (json.loads(record.getMessage()) for record in caplog.records)
    assert first["step"]["segments"]["collective"] is None
    assert first["step"]["segments"]["compile"] == 0
    assert second["step"] is None
    assert {record.name for record in caplog.records} == {"elsewhere"}


def test_log_stays_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """No name can start a second line or forge an entry."""
    with caplog.at_level(logging.INFO, "tfdiag"):
        nasty().log()
    message = caplog.records[0].getMessage()
    assert message.isascii()
    assert message.isprintable()
    assert json.loads(message)["verdict"]["share"] is None


def test_repr_is_short() -> None:
    """At a prompt a report takes one line, not its series."""
    assert repr(full()) == "<tfdiag.Report 'input-bound', step 48.3 ms, findings: 3>"


def test_report_is_frozen_and_travels() -> None:
    """A report can't be changed by accident, and can be sent to another process."""
    report = full()
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.warnings = ()  # type: ignore[misc]
    # Not `==`: a copied nan is another object, and no nan equals another.
    assert pickle.loads(pickle.dumps(report)).to_json() == report.to_json()  # our own


def test_reports_need_no_tensorflow(tmp_path: Path) -> None:
    """Loading and showing a report imports neither TensorFlow nor anything else that is heavy."""
    full().save(tmp_path / "report.json")
    script = (
        "import sys\n"
        "from tfdiag.render.report import load\n"
        "report = load(sys.argv[1])\n"
        "str(report), report.to_html(), report.to_markdown(), report.metrics()\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'psutil', 'pynvml', 'rich'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
