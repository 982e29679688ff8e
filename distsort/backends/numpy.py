"""The reference backend: NumPy on the host.

Key columns become the words of `Codes`. The first word is sorted, or merged where slices are sorted already (how, tells
`numpy_words`). Rows that tie in it are refined by the next word, and only they:

    position    0   1   2   3   4   5            tied: 1 2 3 and 4 5; the groups' numbers go in front
    word 0      a   b   b   b   c   c            of word 1, so that one sort refines all groups at once
    group           0   0   0   1   1
    word 1          q   p   q   z   x    ->      order of the positions: 2 1 3 | 5 4

Values that are their own key are sorted without an index: what order cannot tell apart, NaNs and the two zeros, is put
back in input order afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distsort.backends import numpy_lines
from distsort.backends.numpy_words import argsort_word, merge_word, merges_by_timsort
from distsort.gather import take_array
from distsort.keys import Codes, encode
from distsort.keys.codes import Plain, UIntArray, lay_word
from distsort.order import Order, array_order

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]


class NumpyBackend:
    """See `distsort.backends.base.Backend`."""

    name = "numpy"

    def argsort(self, columns: Sequence[Any], order: Order) -> Index:
        """See `Backend`."""
        codes = encode(columns, order)
        return _refined(argsort_word(codes.head, codes.bits), codes)

    def merge_order(
        self, columns: Sequence[Any], bounds: Sequence[int] | npt.NDArray[np.integer[Any]], order: Order
    ) -> Index:
        """See `Backend`."""
        codes = encode(columns, order)
        return _refined(merge_word(codes.head, codes.bits, np.asarray(bounds, np.intp)), codes)

    def sort(self, values: Array, descending: bool) -> Array:
        """See `Backend`."""
        if not _sorts_alone(values):
            return values.take(self.argsort((values,), array_order(descending)))
        return _sorted(values, descending, None)

    def merge(self, runs: Sequence[Array], descending: bool) -> Array:
        """See `Backend`."""
        whole = np.ma.concatenate(runs) if isinstance(runs[0], np.ma.MaskedArray) else np.concatenate(runs)
        if _sorts_alone(whole):
            done = _sorted(whole, descending, "stable" if merges_by_timsort(len(runs)) else None)
        else:
            bounds = np.cumsum([0, *map(len, runs)])
            done = whole.take(self.merge_order((whole,), bounds, array_order(descending)))
        return done.astype(runs[0].dtype, copy=False)

    def sort_lines(self, values: Array, descending: bool) -> Array:
        """See `Backend.sort_lines`."""
        return numpy_lines.sort_lines(values, descending, self.argsort)

    def argsort_lines(self, values: Array, descending: bool) -> Index:
        """See `Backend.argsort_lines`."""
        return numpy_lines.argsort_lines(values, descending, self.argsort)


def _sorts_alone(values: Array) -> bool:
    """Whether equal values have equal bits, or nearly so, and NumPy sorts them right.

    NumPy's vectorised sort of float16 puts -65504 before -inf on some processors (seen with 2.4.6).
    """
    plain = not isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "iubfmM"
    return plain and values.dtype != np.float16


def _sorted(values: Array, descending: bool, kind: Literal["stable"] | None) -> Array:
    """Return a sorted copy, by NumPy's fast sort or (where `values` are few runs) by its stable one."""
    native = values.astype(values.dtype.newbyteorder("="))
    if descending:
        # Descending runs, read backwards, ascend.
        native = native[::-1].copy()
    if native.dtype.itemsize <= 2:
        # A radix sort.
        kind = "stable"
    if native.dtype.kind == "f":
        nan = np.isnan(native)
        numbers = native[~nan] if nan.any() else native
        numbers.sort(kind=kind)
        last = values[np.isnan(values)] if nan.any() else values[:0]
    elif native.dtype.kind in "mM":
        native.view(np.int64).sort(kind=kind)
        # NaT is the smallest integer.
        first = int(np.isnat(native).sum())
        numbers, last = native[first:], native[:first]
    else:
        native.sort(kind=kind)
        numbers, last = native, native[:0]
    if descending:
        numbers = numbers[::-1]
    if native.dtype.kind == "f":
        _restore_zeros(numbers, values, descending)
    done = np.concatenate([numbers, last]) if len(last) else np.ascontiguousarray(numbers)
    return done.astype(values.dtype, copy=False)


def _restore_zeros(ordered: Array, values: Array, descending: bool) -> None:
    """Give the zeros their signs in input order; `ordered` has no NaN.

    NumPy's vectorised sort may turn one zero into the other, since its minimum and maximum do.
    """
    ascending = ordered[::-1] if descending else ordered
    below, upto = int(np.searchsorted(ascending, 0)), int(np.searchsorted(ascending, 0, "right"))
    if below < upto:
        zeros = values[values == 0]
        ascending[below:upto] = zeros[::-1] if descending else zeros


def _refined(order: Index, codes: Codes) -> Index:
    """Sort the rows that tie in the first word by the words after it."""
    tail = codes.tail
    if not tail:
        return order
    at, group = _tied(take_array(codes.head, order))
    while len(at) and tail:
        rows = order[at]
        lead = Plain(group.astype(np.uint64), int(group[-1]).bit_length())
        word, bits, tail = lay_word(tail, len(rows), rows, lead)
        inner = argsort_word(word, bits)
        order[at] = rows.take(inner)
        still, group = _tied(word.take(inner))
        at = at.take(still)
    return order


def _tied(ordered: UIntArray) -> tuple[Index, Index]:
    """Return the positions whose word has an equal neighbour, and the number of the group that each belongs to."""
    same = ordered[1:] == ordered[:-1]
    tied = np.zeros(len(ordered), bool)
    tied[1:] = same
    tied[:-1] |= same
    at = np.flatnonzero(tied)
    opens = np.ones(len(at), bool)
    opens[1:] = ~same[at[1:] - 1]
    return at, np.cumsum(opens) - 1
