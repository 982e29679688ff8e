"""Which types the columns of a CSV file have: pyarrow infers them, and integers that are too long for it stay integers.

pyarrow     null, bool, int64, dates, times ... double, string
here        double whose texts are all integers --> uint64, or decimals of 38 digits
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from distsort.errors import InputError

MANY_DIGITS = pa.decimal128(38, 0)
"""Holds integers beyond 64 bits."""

_NUMBERS = {pa.int64(), pa.uint64(), MANY_DIGITS, pa.float64()}


class Parse(Protocol):
    """Parses some records: with the given types, the wanted columns, texts that mean null as nulls if so asked."""

    def __call__(self, kinds: dict[str, pa.DataType], wanted: Sequence[str], null_texts: bool = False) -> pa.Table:
        """Return the columns."""


def infer(parse: Parse, names: Sequence[str], where: str) -> pa.Schema:
    """Infer the types of some records.

    Parameters
    ----------
    parse
        Of the records.
    names
        Of all columns.
    where
        The file, for messages.

    Raises
    ------
    InputError
        A column holds integers of more than 38 digits, which no number type keeps.
    """
    schema = parse({}, names).schema
    floats = [field.name for field in schema if field.type == pa.float64()]
    texts = _texts(parse, floats)
    for name in floats:
        if pc.all(pc.match_substring_regex(texts[name], r"^[+-]?\d+$")).as_py():
            digits = pc.max(pc.utf8_length(pc.utf8_ltrim(texts[name], "+-0"))).as_py()
            if digits > MANY_DIGITS.precision:
                raise InputError(
                    f"{where}: column {name!r} holds integers of {digits} digits, but numbers may have"
                    f" {MANY_DIGITS.precision}: write a letter before them, and they are sorted as text"
                )
            kind = pa.uint64() if _fit(texts[name], pa.uint64()) else MANY_DIGITS
            schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    return schema


def wider_type(known: pa.DataType, seen: pa.DataType, parse: Parse, name: str) -> pa.DataType:
    """Return the type of a column that is known as one, where records are seen that are of another."""
    if (known, seen) == (pa.uint64(), pa.int64()) and pc.any(pc.starts_with(_texts(parse, [name])[name], "-")).as_py():
        return MANY_DIGITS
    return common_type(known, seen)


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Return the narrowest type that inference knows for values of both.

    Examples
    --------
    >>> import pyarrow as pa
    >>> common_type(pa.int64(), pa.float64()), common_type(pa.date32(), pa.int64())
    (DataType(double), DataType(string))
    >>> common_type(pa.int64(), pa.uint64())
    DataType(uint64)
    """
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    pair = {a, b}
    if pair <= _NUMBERS:
        # Integers that are above zero in one place are so in all others, until one is seen that is not.
        return next(kind for kind in (pa.float64(), MANY_DIGITS, pa.uint64()) if kind in pair)
    if pair <= {pa.date32(), pa.timestamp("s"), pa.timestamp("ns")}:
        return pa.timestamp("ns") if pa.timestamp("ns") in pair else pa.timestamp("s")
    if pair == {pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")}:
        return pa.timestamp("ns", "UTC")
    return pa.binary() if pa.binary() in pair else pa.string()


def _texts(parse: Parse, names: Sequence[str]) -> pa.Table:
    return parse(dict.fromkeys(names, pa.string()), names, null_texts=True)


def _fit(texts: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        texts.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
