"""Which rows to read: filters as pyarrow, pandas and Dask take them, and what row-group statistics say about them.

Filters are a list of (column, operator, value), all of which must hold, or a list of such lists, one of which must. A
row group is skipped when its statistics, or the hive folder it lies in, show that no row in it can pass; the rows of
all others are looked at one by one. A comparison with a null never holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distsort.errors import InputError, OptionError
from distsort.io.source import Source, require_columns

Condition = tuple[str, str, Any]
Filters = Sequence[Condition] | Sequence[Sequence[Condition]]
Ends = tuple[Any, Any]

# Whether a value between two ends can pass. A NaN, which statistics leave out, passes none of these.
_POSSIBLE: dict[str, Callable[[Any, Any, Any], bool]] = {
    "=": lambda low, high, value: low <= value <= high,
    "==": lambda low, high, value: low <= value <= high,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
    "in": lambda low, high, value: any(low <= one <= high for one in value),
}
OPERATORS = (*_POSSIBLE, "!=", "not in")


@dataclass(frozen=True)
class Where:
    """Filters with values of the types of their columns.

    Attributes
    ----------
    any_of
        One of these must hold; each is conditions that all must.
    """

    any_of: tuple[tuple[Condition, ...], ...]

    @property
    def columns(self) -> list[str]:
        """The columns that are looked at, each once."""
        return list(dict.fromkeys(name for conditions in self.any_of for name, _, _ in conditions))

    def possible(self, ends: Mapping[str, Ends | None]) -> bool:
        """Say whether a row can pass whose columns lie between these ends.

        Parameters
        ----------
        ends
            Least and greatest value by column, None for a column that is all null; a column of which nothing is known
            is not there.
        """
        return any(all(_possible(condition, ends) for condition in conditions) for conditions in self.any_of)

    def expression(self) -> Any:
        """Return what pyarrow filters by."""
        return pq.filters_to_expression([list(conditions) for conditions in self.any_of])


def make_where(filters: Filters, schema: pa.Schema, where: str) -> Where:
    """Check filters against the columns of an input.

    Raises
    ------
    InputError
        There is no such column.
    OptionError
        An operator does not exist, or a value is not of the type of its column.
    """
    listed: list[Any] = list(filters)
    if listed and isinstance(listed[0], tuple) and len(listed[0]) == 3 and isinstance(listed[0][0], str):
        listed = [listed]
    any_of = []
    for conditions in listed:
        checked = []
        for condition in conditions:
            if len(condition) != 3 or condition[1] not in OPERATORS:
                shown = ", ".join(OPERATORS)
                raise OptionError(f"filters: {condition!r} is no (column, operator, value) with one of {shown}")
            name, operator, value = condition
            require_columns([name], schema.names, "filter column", where)
            kind = schema.field(name).type
            if operator in ("in", "not in"):
                checked.append((name, operator, [_typed(one, kind, condition) for one in value]))
            else:
                checked.append((name, operator, _typed(value, kind, condition)))
        any_of.append(tuple(checked))
    if not any_of or not all(any_of):
        raise OptionError("filters: there is no condition in it: leave it out to read all rows")
    return Where(tuple(any_of))


def _typed(value: Any, kind: pa.DataType, condition: Any) -> Any:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    try:
        if isinstance(value, str) and not text:
            return pc.cast(pa.scalar(value), kind).as_py()
        pc.equal(pa.scalar(value), pa.scalar(None, kind))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise OptionError(f"filters: {condition!r}: the column is {kind}, and the value is not ({error})") from error
    return value


def _possible(condition: Condition, ends: Mapping[str, Ends | None]) -> bool:
    name, operator, value = condition
    if name not in ends or operator not in _POSSIBLE:
        return True
    found = ends[name]
    if found is None:
        return False
    try:
        return _POSSIBLE[operator](*found, value)
    except TypeError:
        # A time zone, or a type that Python orders in no way: the rows will tell.
        return True


@dataclass(frozen=True)
class Filtered:
    """Reads the rows that pass, and of them the columns of `schema`."""

    reader: Callable[[Any], pa.Table]
    where: Where
    schema: pa.Schema

    def __call__(self, piece: Any) -> pa.Table:
        """Return the rows of a piece that pass."""
        table = self.reader(piece)
        try:
            return table.filter(self.where.expression()).select(self.schema.names)
        except pa.ArrowException as error:
            raise InputError(f"filters on {', '.join(self.where.columns)}: {error}") from error


def filtered(source: Source, where: Where, keep: Sequence[str]) -> Source:
    """Return a source of the rows that pass, with the columns `keep` only; how many rows is not known."""
    schema, written = (
        pa.schema([whole.field(name) for name in whole.names if name in keep], metadata=whole.metadata)
        for whole in (source.schema, source.written)
    )
    return replace(source, reader=Filtered(source.reader, where, schema), schema=schema, written=written, rows=None)
