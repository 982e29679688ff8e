"""What every backend can do. A few verbs; everything else about rows is in `distsort.blocks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from distsort.order import Order

Array = Any
Column = Any
Index = Any


class Backend(Protocol):
    """Stable sorting and merging of rows that are in one memory.

    All backends give the same order, bit for bit: the one that `distsort.keys` defines, ties in input order.

    Attributes
    ----------
    name
        What users write as ``backend=``.
    """

    name: str

    def argsort(self, columns: Sequence[Column], order: Order) -> Index:
        """Return the stable order of rows.

        Parameters
        ----------
        columns
            The key columns, all of length n, one per key.
        order
            Directions and places of nulls.

        Returns
        -------
        index
            Integers, shape (n,): ``index[i]`` is the input position of row i of the result.

        Raises
        ------
        KeyTypeError
            A key has no order; the message names it.
        """
        ...

    def merge_order(
        self, columns: Sequence[Column], bounds: Sequence[int] | npt.NDArray[np.integer[Any]], order: Order
    ) -> Index:
        """Return the stable order of rows that lie in sorted slices.

        Parameters
        ----------
        columns
            The key columns of all slices, one slice after the other.
        bounds
            Ascending, from 0 to n, shape (slices + 1,): slice i is rows ``[bounds[i], bounds[i + 1])`` and is sorted.
        order
            Directions and places of nulls.

        Returns
        -------
        index
            As of `argsort`; on ties the earlier slice goes first.
        """
        ...

    def sort(self, values: Array, descending: bool) -> Array:
        """Return the sorted copy of an array of one dimension whose rows are their own key.

        NumPy's rules: NaN and NaT last in both directions, -0.0 equal to +0.0. The result has the bits that
        ``values[argsort]`` has: payloads of NaN and signs of zero stay in input order.
        """
        ...

    def merge(self, runs: Sequence[Array], descending: bool) -> Array:
        """Merge arrays that `sort` made into the array that `sort` makes of their concatenation."""
        ...

    def sort_lines(self, values: Array, descending: bool) -> Array:
        """Return a 2-D array, shape (lines, n), with each row sorted as `sort` does."""
        ...

    def argsort_lines(self, values: Array, descending: bool) -> Index:
        """Return the stable order of each row of a 2-D array: integers, shape (lines, n)."""
        ...
