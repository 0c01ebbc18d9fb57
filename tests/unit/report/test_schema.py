"""The published JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.sample_reports import SAMPLES, full
from tfdiag.report.schema import SCHEMA_FILE, report_schema, schema_text


def validator() -> Any:
    """Give a validator for the published schema."""
    return jsonschema.Draft202012Validator(report_schema())


def test_the_published_file_is_up_to_date() -> None:
    """The file says what the dataclasses say; `python -m tfdiag.report.schema` rewrites it."""
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text()


def test_the_schema_is_one() -> None:
    """The schema itself is valid by the rules of its dialect."""
    jsonschema.Draft202012Validator.check_schema(report_schema())


@pytest.mark.parametrize("name", SAMPLES)
def test_every_report_is_valid(name: str) -> None:
    """What `to_dict` gives is what the schema promises, odd numbers and names included."""
    validator().validate(SAMPLES[name]().to_dict())


def break_verdict(data: dict[str, Any]) -> None:
    """Name a verdict that does not exist."""
    data["verdict"]["code"] = "slow"


def break_segment(data: dict[str, Any]) -> None:
    """Leave out a segment."""
    del data["step"]["segments"]["launch"]


def break_quantity(data: dict[str, Any]) -> None:
    """Give a bare number where a quantity belongs."""
    data["findings"][0]["cost"] = 0.5


def break_version(data: dict[str, Any]) -> None:
    """Claim another version."""
    data["schema_version"] = 2


def break_pair(data: dict[str, Any]) -> None:
    """Give one of two entries."""
    data["not_run"][0].pop()


def break_absence(data: dict[str, Any]) -> None:
    """Leave out what must be there."""
    del data["bounds"]


@pytest.mark.parametrize(
    "damage",
    [break_verdict, break_segment, break_quantity, break_version, break_pair, break_absence],
)
def test_a_damaged_report_is_invalid(damage: Callable[[dict[str, Any]], None]) -> None:
    """The schema is no rubber stamp: each kind of damage is noticed."""
    data = full().to_dict()
    damage(data)
    assert not validator().is_valid(data)


def test_reports_of_newer_writers_stay_valid() -> None:
    """A key that a newer minor version adds does not make a report invalid."""
    data = full().to_dict()
    data["verdict"]["later"] = 1
    validator().validate(data)
