"""Checks a user can trust: is it in order, are they still the same rows; and the merge of what is sorted already."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.dataframe.dask_expr import new_collection

from distsort import arrays, blocks, dataframes
from distsort.errors import InputError, ValidationError
from distsort.hashes import row_hashes
from distsort.local import Run, Spec, check_sorted, order_of
from distsort.strings import below_conversion

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Summary:
    """What one block says of itself: enough to check a whole collection without moving rows.

    Attributes
    ----------
    rows
        Rows in the block.
    checksum
        Sum of the row hashes modulo 2**64; the order of rows does not matter.
    ends
        Key columns of the first and last row, or None for an empty block.
    fault
        The first row that stands out of order, or None.
    """

    rows: int
    checksum: int
    ends: tuple[Any, ...] | None
    fault: int | None


@dataclass(frozen=True)
class Validation:
    """The answer of `validate`: all of it held.

    Attributes
    ----------
    rows
        Rows in the result and in the source.
    checksum
        Sum of the row hashes modulo 2**64.
    partitions
        Rows of each part of the result.
    """

    rows: int
    checksum: int
    partitions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.rows:,} rows in order, the same as in the source (checksum {self.checksum:016x})"


def summarize(block: Any, spec: Spec | None, with_index: bool = True) -> Summary:
    """Check and hash one block; without a spec only count and hash it."""
    rows = len(block)
    checksum = int(row_hashes(block, with_index).sum(dtype=np.uint64))
    if spec is None or rows == 0:
        return Summary(rows, checksum, None, None)
    columns = blocks.key_columns(block, spec.order, spec.key)
    ends = Run(block, columns if spec.key else None).keys_at(np.array([0, rows - 1]), spec)
    return Summary(rows, checksum, ends, check_sorted(columns, spec, block))


def first_fault(summaries: Sequence[Summary], spec: Spec) -> str | None:
    """Say where blocks, taken one after the other, leave the order; None if they do not."""
    for part, summary in enumerate(summaries):
        if summary.fault is not None:
            return f"row {summary.fault} of partition {part}"
    filled = [(part, s.ends) for part, s in enumerate(summaries) if s.ends is not None]
    if not filled:
        return None
    order = order_of([ends for _, ends in filled], spec)
    place = np.argsort(order)
    falls = np.flatnonzero(np.diff(place) < 0)
    return f"the first row of partition {filled[(falls[0] + 1) // 2][0]}" if len(falls) else None


def is_sorted(
    x: Any,
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    key: Callable[[Any], Any] | None = None,
) -> bool:
    """Compute whether a collection is in order, partition after partition; rows stay where they are.

    Parameters
    ----------
    x
        A 1-D Dask array, a Dask dataframe or series.
    by, ascending, na_position, key
        As in `sort_values`; an array takes `ascending` only.

    Examples
    --------
    >>> import dask.array as da
    >>> is_sorted(da.arange(6, chunks=2)), is_sorted(da.arange(6, chunks=2)[::-1])
    (True, False)
    """
    spec = _spec_of(x, by, ascending, na_position, key)
    return first_fault(dask.compute(*_summaries(x, spec, with_index=False)), spec) is None


def validate(
    result: Any,
    source: Any,
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    key: Callable[[Any], Any] | None = None,
    index: bool | None = None,
) -> Validation:
    """Compute whether a result is the source in order: order, row count and a checksum of whole rows.

    Parameters
    ----------
    result
        What a sort made, or what was read back from it.
    source
        What was sorted.
    by, ascending, na_position, key
        The order. May be left out for a result of `sort_values` itself, which knows its order.
    index
        Whether index labels are part of the rows. None: unless the result was made with ``ignore_index``.

    Returns
    -------
    Validation

    Raises
    ------
    ValidationError
        The message says what differs and where.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array(np.array([3, 1, 2]), chunks=2)
    >>> validate(arrays.sort(x), x).rows
    3
    """
    made = _find_sort(result)
    known = made is not None and by is None
    spec = made.spec if known else _spec_of(result, by, ascending, na_position, key)
    with_index = (not (made is not None and made.spec.ignore_index)) if index is None else index
    ours = _summaries(result, spec, with_index)
    theirs = _summaries(source, None, with_index)
    summaries = dask.compute(*ours, *theirs)
    got, want = summaries[: len(ours)], summaries[len(ours) :]
    fault = first_fault(got, spec)
    if fault is not None:
        raise ValidationError(f"the result is not sorted by {spec.order}: {fault} stands too late")
    rows, expected = sum(s.rows for s in got), sum(s.rows for s in want)
    if rows != expected:
        raise ValidationError(f"the result has {rows:,} rows, the source {expected:,}")
    checksum = sum(s.checksum for s in got) & _MASK
    if checksum != sum(s.checksum for s in want) & _MASK:
        raise ValidationError(f"the {rows:,} rows of the result are not those of the source: their checksums differ")
    return Validation(rows, checksum, tuple(s.rows for s in got))


def merge_sorted(
    collections: Sequence[Any],
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    ignore_index: bool = False,
    npartitions: int | None = None,
    key: Callable[[Any], Any] | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Any:
    """Merge collections that are sorted already: co-ranks and merges only, nothing is sorted again.

    Parameters
    ----------
    collections
        1-D Dask arrays, or Dask dataframes or series; each in order within every partition. On ties the earlier
        collection comes first.
    by, ascending, na_position, ignore_index, npartitions, key, backend, exchange
        As in `sort_values`; arrays take ``ascending``, ``npartitions``, ``backend`` and ``exchange``.

    Returns
    -------
    Dask array, dataframe or series, lazy, with parts of equal size.

    Raises
    ------
    InputError
        Nothing to merge, or collections of different kinds.
    NotSortedError
        When computed: a partition is not in order.

    Examples
    --------
    >>> import dask.array as da
    >>> evens, odds = da.arange(0, 8, 2, chunks=2), da.arange(1, 8, 2, chunks=2)
    >>> merge_sorted([evens, odds]).compute().tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    given = list(collections)
    if not given:
        raise InputError("merge_sorted() got no collection: give at least one")
    if all(isinstance(c, da.Array) for c in given):
        for name, value in (("by", by), ("key", key)):
            if value is not None:
                raise InputError(f"{name}= is for dataframes: arrays are merged by their values")
        if any(c.ndim != 1 for c in given):
            raise InputError("merge_sorted() merges 1-D arrays: flatten them or merge line by line")
        return arrays.merge_flat(da.concatenate(given), not ascending, npartitions, backend, exchange)
    if all(isinstance(c, (dd.DataFrame, dd.Series)) for c in given):
        whole = dd.concat([c.clear_divisions() for c in given]) if len(given) > 1 else given[0]
        return dataframes.merge_rows(
            whole,
            by,
            ascending=ascending,
            na_position=na_position,
            ignore_index=ignore_index,
            npartitions=npartitions,
            key=key,
            backend=backend,
            exchange=exchange,
        )
    raise InputError(
        "merge_sorted() takes Dask arrays or Dask dataframes, all of one kind, not "
        + ", ".join(sorted({type(c).__qualname__ for c in given}))
    )


def _spec_of(x: Any, by: Any, ascending: Any, na_position: Any, key: Any) -> Spec:
    if isinstance(x, da.Array):
        return arrays.checked_spec(x, not ascending)
    return Spec(dataframes.checked_order(x, by, ascending, na_position), "rows", key)


def _summaries(x: Any, spec: Spec | None, with_index: bool) -> list[Any]:
    whole = x if isinstance(x, da.Array) else new_collection(below_conversion(x.expr))
    look = dask.delayed(summarize)
    return [look(part, spec, with_index) for part in np.ravel(whole.to_delayed())]


def _find_sort(x: Any) -> Any:
    expr = getattr(x, "expr", None)
    return expr if isinstance(expr, dataframes.Sort) else None
