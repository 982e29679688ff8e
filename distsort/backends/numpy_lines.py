"""Sorting many lines at once on the host: the rows of a 2-D array, each in its own order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distsort.order import Key, Order

Array = npt.NDArray[Any]
Argsort = Callable[[Sequence[Any], Order], npt.NDArray[np.integer[Any]]]

# Kinds whose ascending order NumPy's own stable sort gives to the bit.
_NUMPY_SORTS = frozenset("biufmM")


def sort_lines(values: Array, descending: bool, argsort: Argsort) -> Array:
    """Sort each row of a 2-D array, shape (lines, n); bits as the stable order gives them."""
    if not descending and values.dtype.kind in _NUMPY_SORTS:
        return np.sort(values, axis=-1, kind="stable")
    return np.take_along_axis(values, argsort_lines(values, descending, argsort), axis=-1)


def argsort_lines(values: Array, descending: bool, argsort: Argsort) -> npt.NDArray[np.intp]:
    """Return the stable order of each row of a 2-D array, shape (lines, n), positions within the row.

    The number of the row goes in front as one more key, so that one sort of all values orders every row by the same
    rules as any other sort.
    """
    lines, n = values.shape
    if not descending and values.dtype.kind in _NUMPY_SORTS:
        return np.argsort(values, axis=-1, kind="stable")
    line = np.repeat(np.arange(lines, dtype=np.int64), n)
    order = argsort((line, values.ravel()), Order((Key(), Key(descending=descending))))
    return (order.reshape(lines, n) - np.arange(0, lines * n, max(n, 1))[:lines, None]).astype(np.intp)
