"""Dataclasses to JSON and back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from tests.sample_reports import SAMPLES, full, measurements
from tfdiag.errors import ReportError
from tfdiag.model.changes import Change
from tfdiag.model.codec import decode, encode
from tfdiag.model.measurements import HostSample, InputAlone, Live, Measurements
from tfdiag.model.pipeline import Pipeline
from tfdiag.model.quantity import Maybe, Missing, Quantity
from tfdiag.model.report import Bounds, Evidence, ReportData
from tfdiag.render.report import Report


def through_json(value: Any) -> Any:
    """Give what a reader gets of a value that was written as strict JSON."""
    return decode(type(value), json.loads(json.dumps(encode(value), allow_nan=False)))


@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip_loses_nothing(name: str) -> None:
    """Every sample report comes back equal, with nothing but JSON in between."""
    report = SAMPLES[name]()
    assert through_json(report) == report


def test_floats_keep_every_bit() -> None:
    """Series come back bit for bit, signed zero and subnormal numbers included."""
    series = (0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, 2.0)
    back = through_json(InputAlone(series, 0.0, 0.0)).batch_s
    assert [number.hex() for number in back] == [number.hex() for number in series]


def test_non_finite_floats_are_strings() -> None:
    """What JSON has no word for is spelled out, and comes back as it was."""
    encoded = encode(InputAlone((math.nan, 1.0, -math.inf), math.inf, 0.0))
    assert encoded["batch_s"] == ["nan", 1.0, "-inf"]
    assert encoded["cpu_s"] == "inf"
    back = decode(InputAlone, encoded)
    assert math.isnan(back.batch_s[0])
    assert back.batch_s[1:] == (1.0, -math.inf)
    assert back.cpu_s == math.inf


def test_whole_numbers_in_float_fields_become_floats() -> None:
    """An int in a float field is written and read as a float: the type does not depend on luck."""
    back = through_json(InputAlone((1, 2), 3, 4))
    assert [type(number) for number in (*back.batch_s, back.cpu_s)] == [float] * 3
    assert type(decode(InputAlone, {"batch_s": [1], "cpu_s": 1, "first_batch_s": 1}).cpu_s) is float


def test_numpy_numbers_become_plain_ones() -> None:
    """Numbers that a stage left as numpy scalars are written like any other."""
    np = pytest.importorskip("numpy")
    samples = InputAlone((np.float32(0.5),), np.float64(1.5), 2.0)
    assert json.dumps(encode(samples)["batch_s"]) == "[0.5]"
    assert json.dumps(encode(HostSample(0.0, 0.0, 0.0, np.int64(7)))["rss_bytes"]) == "7"


def test_missing_is_told_by_its_key() -> None:
    """A missing quantity is an object with its reason, not null and not zero."""
    assert encode(Evidence("x", Missing("no clock")))["quantity"] == {"missing": "no clock"}
    assert through_json(Evidence("x", Missing(""))).quantity == Missing("")


def test_a_part_with_a_field_called_missing_is_not_missing() -> None:
    """A pipeline says in `missing` what it lacks; only that key alone means that all is missing."""
    there = replace(measurements(), pipeline=Pipeline(missing="no proto"))
    gone = replace(measurements(), pipeline=Missing("no proto"))
    assert through_json(there).pipeline == Pipeline(missing="no proto")
    assert through_json(gone).pipeline == Missing("no proto")


def test_unknown_keys_are_ignored() -> None:
    """A report of a newer minor version can be read: what this version doesn't know is left out."""
    data = encode(full())
    data["later"] = 1
    data["verdict"]["later"] = [2]
    data["step"]["segments"]["collective"]["later"] = "x"
    assert decode(Report, data) == full()


def test_absent_keys_take_their_default() -> None:
    """A report of an older minor version can be read: newer fields have their default."""
    assert decode(Quantity, {"value": 1.0, "unit": "s"}) == Quantity(1.0, "s")
    data = encode(full())
    del data["measurements"]["overhead"]["phases_s"]
    assert decode(Report, data).measurements.overhead.phases_s == {}


def test_an_absent_key_without_default_is_named() -> None:
    """A key that must be there is named with its whole path."""
    data = encode(full())
    del data["findings"][1]["cost"]["unit"]
    with pytest.raises(ReportError, match=r"^findings\[1\]\.cost\.unit: is missing$"):
        decode(Report, data)


def put(data: Any, path: tuple[str | int, ...], value: object) -> None:
    """Replace the value at a path."""
    for part in path[:-1]:
        data = data[part]
    data[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("findings", 2, "cost", "value"),
            "x",
            r"findings[2].cost.value: expected a number, got 'x'",
        ),
        (("verdict",), 3, "verdict: expected an object, got 3"),
        (("verdict", "code"), None, "verdict.code: expected a string, got None"),
        (("verdict", "share"), True, "verdict.share: expected a number, got True"),
        (("verdict", "share"), "NaN", "verdict.share: expected a number, got 'NaN'"),
        (("step", "outliers"), 1.5, "step.outliers: expected an integer, got 1.5"),
        (("step", "outliers"), False, "step.outliers: expected an integer, got False"),
        (("step", "segments"), [], "step.segments: expected an object, got []"),
        (
            ("step", "segments", "host"),
            0.1,
            "step.segments['host']: expected an object, got 0.1",
        ),
        (("findings",), {}, "findings: expected an array, got {}"),
        (
            ("findings", 0, "severity"),
            "fatal",
            "findings[0].severity: expected one of 'info', 'warning', 'critical', got 'fatal'",
        ),
        (("not_run", 0), ["x"], "not_run[0]: expected an array of 2, got ['x']"),
        (("not_run", 0, 1), 7, "not_run[0][1]: expected a string, got 7"),
        (
            ("measurements", "live", "wait_s", 5),
            None,
            "measurements.live.wait_s[5]: expected a number, got None",
        ),
        (
            ("measurements", "job", "run_eagerly"),
            0,
            "measurements.job.run_eagerly: expected true or false, got 0",
        ),
        (
            ("measurements", "job", "parameters"),
            {"missing": 4},
            "measurements.job.parameters.missing: expected a string, got 4",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_path(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    """What does not fit is reported with its place, what was expected and what was there."""
    data = encode(full())
    put(data, path, value)
    with pytest.raises(ReportError) as caught:
        decode(Report, data)
    assert str(caught.value) == message


def test_the_top_level_must_be_an_object() -> None:
    """A list in place of a report is refused in words."""
    with pytest.raises(ReportError, match=r"^top level: expected an object, got \[1\]$"):
        decode(ReportData, [1])


def test_a_number_too_large_for_a_float_is_refused() -> None:
    """An integer beyond the floats is an error of the report, not an OverflowError."""
    with pytest.raises(ReportError, match=r"^value: expected a number within the range"):
        decode(Quantity, {"value": 10**400, "unit": "s"})


def test_an_unsupported_hint_is_refused_before_it_loses_data() -> None:
    """A field that the codec can't bring back is an error for its author, at the first use."""

    @dataclass
    class Odd:
        values: set[int]

    # A hint of a local class can't be looked up by name.
    Odd.__annotations__["values"] = set[int]
    with pytest.raises(TypeError, match="no plan"):
        encode(Odd({1}))


def test_a_value_of_the_wrong_type_is_not_written() -> None:
    """A stage that puts a bare number where a quantity belongs hears of it."""
    bounds = Bounds(0.1, Missing(""), Missing(""), Missing(""))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected .*Quantity.*, got 0\.1"):
        encode(bounds)


@dataclass(frozen=True)
class Mixed:
    """Hints that the report does not have yet."""

    level: Literal["low", "high"]
    maybe: Maybe | None = None
    count: int | None = None


@pytest.mark.parametrize(
    "value",
    [Mixed("low"), Mixed("high", Missing("x"), 3), Mixed("low", Quantity(1.0, "s"), 0)],
)
def test_optional_fields_come_back(value: Mixed) -> None:
    """None, missing, zero and a value stay four different things."""
    assert through_json(value) == value


def test_long_series_stay_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finite series is encoded and decoded without a Python call for every entry."""
    calls = 0

    def count(value: float) -> float:
        nonlocal calls
        calls += 1
        return value

    monkeypatch.setattr("tfdiag.model.codec._encode_float", count)
    series = tuple(map(float, range(100_000)))
    live = Live(start_s=series, duration_s=series, wait_s=series)
    assert decode(Live, encode(live)) == live
    assert calls == 0


def test_measurements_can_be_kept_alone() -> None:
    """The codec is not tied to the report: any of the travelling dataclasses can be kept."""
    assert through_json(measurements()) == measurements()
    assert isinstance(through_json(measurements()), Measurements)


@pytest.mark.parametrize("value", [True, 16, "mixed_bfloat16", None], ids=repr)
def test_a_value_of_one_of_several_plain_types_keeps_its_type(value: object) -> None:
    """True is no 1, and a number in a string stays a string."""
    back = through_json(Change("policy", value)).value
    assert back == value
    assert type(back) is type(value)


def test_a_plain_value_of_another_type_is_refused() -> None:
    """Neither side takes what JSON could not give back."""
    with pytest.raises(TypeError, match=r"got 0\.5"):
        encode(Change("policy", 0.5))  # type: ignore[arg-type]  # the point
    with pytest.raises(
        ReportError, match=r"^value: expected true or false or an integer or a string or null"
    ):
        decode(Change, {"kind": "policy", "value": []})
