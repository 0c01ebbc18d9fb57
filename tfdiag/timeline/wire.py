"""Protobuf's wire format, many messages at a time.

A trace has millions of small messages of one form. Python's protobuf makes an object of each and of each of
its fields, which takes several times the file in memory and most of the time; and it is in TensorFlow's
package, whose import takes seconds. The form is simple and has not changed since 2019, so it is read with
numpy: the same field of all messages at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from tfdiag.timeline.columns import Column

__all__ = ["PADDING", "Buffer", "CutError", "Field", "fields"]

PADDING = 40
"""Bytes behind the data that may be read, so that a word can be read anywhere."""

Field: TypeAlias = tuple[int, int, int]
"""Number of the field, and its value; or begin and end of what it holds."""

_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_STOPS = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_CHUNK = 1 << 14
_SMALL = 1 << 16
_SEARCH = 1 << 12


class CutError(ValueError):
    """The bytes end, or stop making sense, in the middle of a message."""


class Buffer:
    """Bytes, with words that begin at any of them."""

    def __init__(self, data: Column) -> None:
        """Take over an array of bytes whose last `PADDING` are not part of the data."""
        self.bytes = data
        self.size = len(data) - PADDING
        self.raw = memoryview(data)  # type: ignore[arg-type]  # numpy's arrays are buffers since Python 3.12
        # A word at each byte, in the same memory.
        self._words: Column = np.ndarray((len(data) - 7,), "<u8", buffer=data, strides=(1,))

    def words(self, at: Column) -> Column:
        """Give the eight bytes that begin at each position, as a number."""
        result: Column = self._words[at]
        return result

    def varints(self, at: Column) -> tuple[Column, Column]:
        """Give the numbers written at each position, and where each ends."""
        word = self.words(at)
        stop = ~word & _STOPS
        stop &= ~stop + np.uint64(1)
        below = stop - np.uint64(1)
        length = (((below & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
        value = word & below
        value &= _SEVENS
        value = (value & np.uint64(0x007F007F007F007F)) | (
            (value & np.uint64(0x7F007F007F007F00)) >> np.uint64(1)
        )
        value = (value & np.uint64(0x00003FFF00003FFF)) | (
            (value & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2)
        )
        value = (value & np.uint64(0x000000000FFFFFFF)) | (
            (value & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4)
        )
        end = at + length
        if not stop.all():
            # Nine or ten bytes: far from the zero of the clock, or negative.
            rest = np.flatnonzero(stop == 0)
            ninth = self.bytes[at[rest] + 8]
            tenth = np.where(ninth >= 128, self.bytes[at[rest] + 9], 0)
            value[rest] |= (ninth & 127).astype(np.uint64) << np.uint64(56)
            value[rest] |= tenth.astype(np.uint64) << np.uint64(63)
            end[rest] = at[rest] + 9 + (ninth >= 128)
        return value.view(np.int64), end

    def text(self, begin: int, end: int) -> str:
        """Give a piece as text."""
        return bytes(self.raw[begin:end]).decode("utf-8", "replace")

    def starts(self, begin: int, end: int, tag: int) -> tuple[Column, int]:
        """Find the messages that follow each other from `begin` on, all with this one-byte tag.

        Gives where each one's tag is, and where the row of messages ends.
        """
        if end - begin < _SMALL:
            found, at = self._walk(begin, end, tag, end)
            return np.array(found, np.int64), at
        return self._walk_together(begin, end, tag)

    def _walk(
        self, begin: int, end: int, tag: int, until: int, known: set[int] | None = None
    ) -> tuple[list[int], int]:
        raw = self.raw
        found = []
        at = begin
        while at < until and raw[at] == tag and (known is None or at not in known):
            found.append(at)
            size = raw[at + 1]
            at += 2
            if size >= 128:
                size, at = _varint(raw, at - 1)
            at += size
        if at > end:
            raise CutError(f"a message at byte {found[-1]} is longer than what holds it")
        return found, at

    def _walk_together(self, begin: int, end: int, tag: int) -> tuple[Column, int]:
        """Walk from many places at once; where a guessed place was wrong, walk there again by itself.

        Each message tells only where the next one begins, so one walk would be a loop over all of them. A
        guess proves itself when the walk before it ends exactly there.
        """
        edges = np.arange(begin, end, _CHUNK)
        limits = np.append(edges[1:], end)
        # An event begins with its name's number, and its time follows; nothing inside of an event does.
        looks_like = re.compile(
            re.escape(bytes([tag])) + rb"[\x80-\xff]{0,3}[\x00-\x7f]\x08[\x80-\xff]{0,4}[\x00-\x7f][\x10\x28]"
        )
        guesses = np.full(len(edges), -1)
        guesses[0] = begin
        for index in range(1, len(edges)):
            edge = int(edges[index])
            if match := looks_like.search(self.raw, edge, min(end, edge + _SEARCH)):
                guesses[index] = match.start()
        table, counts, exits = self._walks(guesses, limits, end, tag)
        pieces: list[Column] = []
        at = begin
        for index, limit in enumerate(limits.tolist()):
            if at >= limit:
                continue
            if guesses[index] != at:
                own = table[: counts[index], index] if guesses[index] >= 0 else np.empty(0, np.int64)
                found, at = self._walk(at, end, tag, limit, set(own.tolist()))
                pieces.append(np.array(found, np.int64))
                if at >= limit:
                    continue
                joined = np.searchsorted(own, at)
                if joined == len(own) or own[joined] != at:
                    break  # the row of messages ends here
                pieces.append(own[joined:])
            else:
                pieces.append(table[: counts[index], index])
            at = int(exits[index])
            if at < limit:
                break
        if at > end:
            raise CutError("the last message is longer than what holds it")
        return np.concatenate(pieces), at

    def _walks(self, guesses: Column, limits: Column, end: int, tag: int) -> tuple[Column, Column, Column]:
        data = self.bytes
        at = guesses.copy()
        counts = np.zeros(len(at), np.int64)
        rows = []
        active = np.flatnonzero((at >= 0) & (at < limits))
        while len(active):
            here = at[active]
            right = data[here] == tag
            if not right.all():
                active, here = active[right], here[right]
                if not len(active):
                    break
            row = np.zeros(len(at), np.int64)
            row[active] = here
            rows.append(row)
            counts[active] += 1
            size = data[here + 1].astype(np.int64)
            after = here + 2
            long = np.flatnonzero(size >= 128)
            if len(long):
                size[long], after[long] = self.varints(here[long] + 1)
            # A wrong guess may lead anywhere; it must not lead back, nor out.
            at[active] = np.where((size >= 0) & (size <= end), after + size, end + 1)
            active = active[at[active] < limits[active]]
        table = np.array(rows) if rows else np.empty((0, len(at)), np.int64)
        return table, counts, at


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    """Read one number; gives it and where it ends."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise CutError(f"no number at byte {at}")


def fields(raw: memoryview, at: int, end: int) -> Iterator[Field]:
    """Go through the fields of one message; 64-bit and 32-bit fields come as begin and end."""
    while at < end:
        key, at = _varint(raw, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield key >> 3, value, at
            continue
        if kind == 2:
            size, at = _varint(raw, at)
        elif kind == 1:
            size = 8
        elif kind == 5:
            size = 4
        else:
            raise CutError(f"no field at byte {at}")
        if size > end - at:
            raise CutError(f"a field at byte {at} is longer than what holds it")
        yield key >> 3, at, at + size
        at += size
    if at > end:
        raise CutError(f"a message ends behind byte {end}")
