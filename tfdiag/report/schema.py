"""The JSON Schema of a saved report, generated from the dataclasses.

`python -m tfdiag.report.schema` rewrites the published file; a test proves that it is up to date.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tfdiag.model.codec import NON_FINITE, is_required, key_of, members_of
from tfdiag.model.report import SCHEMA_VERSION, SEGMENTS, VERDICTS, ReportData

__all__ = ["SCHEMA_FILE", "report_schema", "schema_text"]

SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

_SCALARS: dict[Any, dict[str, Any]] = {
    float: {"$ref": "#/$defs/number"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
}


def report_schema() -> dict[str, Any]:
    """Build the schema: one definition a dataclass, open to keys that newer writers add."""
    definitions: dict[str, Any] = {
        "number": {
            "description": "A number, or the name of one that JSON has no word for.",
            "anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}],
        }
    }
    _define(ReportData, definitions)
    # What the types leave open and the words of a report close.
    definitions["Verdict"]["properties"]["code"] = {"enum": list(VERDICTS)}
    definitions["Step"]["properties"]["segments"] |= {"required": list(SEGMENTS)}
    report = definitions.pop("ReportData")
    report["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    report["required"].append("schema_version")
    report["description"] = "A report of tfdiag: why training steps are slow, and what to change."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tfdiag report",
        **report,
        "$defs": dict(sorted(definitions.items())),
    }


def schema_text() -> str:
    """Give the text of the published file."""
    return json.dumps(report_schema(), indent=2) + "\n"


def _define(cls: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # holds the place while the fields are walked
        hints = get_type_hints(cls)
        definitions[cls.__name__] = {
            "description": cls.__doc__,
            "type": "object",
            "properties": {key_of(cls, f.name): _schema_of(hints[f.name], definitions) for f in fields(cls)},
            "required": [key_of(cls, f.name) for f in fields(cls) if is_required(f)],
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    if is_dataclass(hint):
        return _define(hint, definitions)
    if members := members_of(hint):
        return {"anyOf": [_schema_of(member, definitions) for member in members]}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(args)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(args[1], definitions)}
    if origin is tuple:
        return _array(args, definitions)
    raise TypeError(f"no schema for a field of type {hint!r}")


def _array(args: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if args[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(args[0], definitions)}
    items = [_schema_of(arg, definitions) for arg in args]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8")
