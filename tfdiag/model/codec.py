"""Dataclasses to plain JSON and back, without loss, driven by their type hints.

The JSON is strict: a float that JSON has no word for is written as `"nan"`, `"inf"` or `"-inf"`.
`Missing` becomes `{"missing": reason}`. A reader ignores keys that it doesn't know (a newer writer
added them) and gives absent ones their default: a new field needs no new schema version.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from tfdiag.errors import ReportError
from tfdiag.model.quantity import Missing

__all__ = ["NON_FINITE", "decode", "encode", "is_required", "key_of", "members_of"]

T = TypeVar("T")
Encoder: TypeAlias = Callable[[Any], Any]
Decoder: TypeAlias = Callable[[Any, str], Any]

# The very object `math.nan`: tuples compare by identity first, so a report equals its copy.
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any) -> dict[str, Any]:
    """Give a dataclass as dicts, lists, strings, numbers and None."""
    cls: Any = type(value)
    encoded: dict[str, Any] = _encoder(cls)(value)
    return encoded


def decode(cls: type[T], data: object) -> T:
    """Build a dataclass from what `encode` gave; `ReportError` names the place that doesn't fit."""
    hint: Any = cls
    decoded: T = _decoder(hint)(data, "")
    return decoded


def key_of(cls: type, name: str) -> str:
    """Give the JSON key of a field: its name, except that a `Missing` is told by its key."""
    return "missing" if cls is Missing and name == "reason" else name


def is_required(field: Field[Any]) -> bool:
    """Tell whether a field has no default, so that its key must be there."""
    return field.default is MISSING and field.default_factory is MISSING


def members_of(hint: Any) -> tuple[Any, ...]:
    """Give the types of a union, or nothing for any other hint."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else ()


def _unsupported(hint: Any) -> TypeError:
    return TypeError(f"the codec has no plan for a field of type {hint!r}")


# Encoding


@cache
def _encoder(hint: Any) -> Encoder:
    scalars: dict[Any, Encoder] = {
        float: _encode_float,
        int: operator.index,  # takes numpy's integers too, and refuses to cut a float
        bool: bool,
        str: str,
    }
    if hint in scalars:
        return scalars[hint]
    if is_dataclass(hint):
        return _object_encoder(hint)
    if members := members_of(hint):
        return _union_encoder(members, hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _same
    if origin is tuple:
        return _tuple_encoder(args)
    if origin is dict and args[0] is str:
        item = _encoder(args[1])
        return lambda value: {key: item(entry) for key, entry in value.items()}
    raise _unsupported(hint)


def _same(value: Any) -> Any:
    return value


def _encode_float(value: Any) -> float | str:
    number = float(value)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def _encode_floats(values: Any) -> list[float | str]:
    numbers: list[float | str] = list(map(float, values))
    # Series are long and nearly always finite.
    return numbers if all(map(math.isfinite, values)) else list(map(_encode_float, values))


def _tuple_encoder(args: tuple[Any, ...]) -> Encoder:
    if args[-1] is not Ellipsis:
        items = [_encoder(arg) for arg in args]
        return lambda value: [item(entry) for item, entry in zip(items, value, strict=True)]
    if args[0] is float:
        return _encode_floats
    each = _encoder(args[0])
    return lambda value: [each(entry) for entry in value]


def _union_encoder(members: tuple[Any, ...], hint: Any) -> Encoder:
    present = [member for member in members if member is not NoneType]
    if len(present) == 1:
        inner = _encoder(present[0])
        return lambda value: None if value is None else inner(value)
    if _is_plain(present):
        return _plain_encoder({*members}, hint)
    if not all(is_dataclass(member) for member in present):
        raise _unsupported(hint)
    by_type: dict[Any, Encoder] = {member: _encoder(member) for member in present}
    if NoneType in members:
        by_type[NoneType] = _same

    def encode_union(value: Any) -> Any:
        if type(value) not in by_type:
            raise TypeError(f"expected {hint}, got {reprlib.repr(value)}")
        return by_type[type(value)](value)

    return encode_union


def _is_plain(members: list[Any]) -> bool:
    """Tell whether JSON itself keeps these types apart; it has one type for all numbers."""
    return set(members) <= {bool, int, str}


def _plain_encoder(members: set[Any], hint: Any) -> Encoder:
    def encode_plain(value: Any) -> Any:
        if type(value) not in members:
            raise TypeError(f"expected {hint}, got {reprlib.repr(value)}")
        return value

    return encode_plain


def _object_encoder(cls: Any) -> Encoder:
    hints = get_type_hints(cls)
    plan = [(f.name, key_of(cls, f.name), _encoder(hints[f.name])) for f in fields(cls)]
    return lambda value: {key: encoder(getattr(value, name)) for name, key, encoder in plan}


# Decoding


def _wrong(path: str, expected: str, got: object) -> ReportError:
    return ReportError(f"{path or 'top level'}: expected {expected}, got {reprlib.repr(got)}")


@cache
def _decoder(hint: Any) -> Decoder:
    scalars: dict[Any, Decoder] = {
        float: _decode_float,
        int: _exactly(int, "an integer"),
        bool: _exactly(bool, "true or false"),
        str: _exactly(str, "a string"),
    }
    if hint in scalars:
        return scalars[hint]
    if is_dataclass(hint):
        return _object_decoder(hint)
    if members := members_of(hint):
        return _union_decoder(members, hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _literal_decoder(args)
    if origin is tuple:
        return _tuple_decoder(args)
    if origin is dict and args[0] is str:
        return _dict_decoder(_decoder(args[1]))
    raise _unsupported(hint)


def _exactly(cls: type, expected: str) -> Decoder:
    def decode_scalar(data: Any, path: str) -> Any:
        # `type`, not `isinstance`: True is no integer here.
        if type(data) is not cls:
            raise _wrong(path, expected, data)
        return data

    return decode_scalar


def _decode_float(data: Any, path: str) -> float:
    if type(data) is float:
        return data
    if type(data) is int:
        try:
            return float(data)
        except OverflowError:
            raise _wrong(path, "a number within the range of a float", data) from None
    if type(data) is str and data in NON_FINITE:
        return NON_FINITE[data]
    raise _wrong(path, "a number", data)


def _literal_decoder(choices: tuple[Any, ...]) -> Decoder:
    expected = "one of " + ", ".join(map(repr, choices))

    def decode_literal(data: Any, path: str) -> Any:
        for choice in choices:
            if type(data) is type(choice) and data == choice:
                return choice
        raise _wrong(path, expected, data)

    return decode_literal


def _tuple_decoder(args: tuple[Any, ...]) -> Decoder:
    if args[-1] is not Ellipsis:
        items = [_decoder(arg) for arg in args]

        def decode_fixed(data: Any, path: str) -> tuple[Any, ...]:
            if type(data) is not list or len(data) != len(items):
                raise _wrong(path, f"an array of {len(items)}", data)
            return tuple(item(e, f"{path}[{i}]") for i, (item, e) in enumerate(zip(items, data, strict=True)))

        return decode_fixed

    each, plain = _decoder(args[0]), {args[0]}

    def decode_tuple(data: Any, path: str) -> tuple[Any, ...]:
        if type(data) is not list:
            raise _wrong(path, "an array", data)
        if args[0] is float and set(map(type, data)) <= plain:
            return tuple(data)
        return tuple(each(entry, f"{path}[{i}]") for i, entry in enumerate(data))

    return decode_tuple


def _dict_decoder(item: Decoder) -> Decoder:
    def decode_dict(data: Any, path: str) -> dict[str, Any]:
        if type(data) is not dict:
            raise _wrong(path, "an object", data)
        return {key: item(entry, f"{path}[{key!r}]") for key, entry in data.items()}

    return decode_dict


def _union_decoder(members: tuple[Any, ...], hint: Any) -> Decoder:
    others = [member for member in members if member not in (NoneType, Missing)]
    if len(others) > 1 and _is_plain(others):
        names_of = " or ".join(_PLAIN[member] for member in members)
        return lambda data, path: _plain(data, path, members, names_of)
    if len(others) != 1 or (Missing in members and not is_dataclass(others[0])):
        raise _unsupported(hint)
    other, missing = _decoder(others[0]), _decoder(Missing)
    # `Pipeline` has a field of that name too: alone, the key means that the whole is missing.
    names = {f.name for f in fields(others[0])} - {"missing"} if is_dataclass(others[0]) else set()

    def decode_union(data: Any, path: str) -> Any:
        if data is None and NoneType in members:
            return None
        if Missing in members and type(data) is dict and "missing" in data and not names & data.keys():
            return missing(data, path)
        return other(data, path)

    return decode_union


_PLAIN = {bool: "true or false", int: "an integer", str: "a string", NoneType: "null"}


def _plain(data: Any, path: str, members: tuple[Any, ...], expected: str) -> Any:
    if type(data) not in members:
        raise _wrong(path, expected, data)
    return data


def _object_decoder(cls: Any) -> Decoder:
    hints = get_type_hints(cls)
    plan = [(f.name, key_of(cls, f.name), _decoder(hints[f.name]), is_required(f)) for f in fields(cls)]

    def decode_object(data: Any, path: str) -> Any:
        if type(data) is not dict:
            raise _wrong(path, "an object", data)
        values = {}
        for name, key, decoder, required in plan:
            place = f"{path}.{key}" if path else key
            if key in data:
                values[name] = decoder(data[key], place)
            elif required:
                raise ReportError(f"{place}: is missing")
        return cls(**values)

    return decode_object
