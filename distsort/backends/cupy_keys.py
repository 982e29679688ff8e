"""Key columns as the GPU takes them: bits in device memory, each with the numbers that tell a kernel how to encode.

    cupy array       its own bits; the kernels encode while they load (kernels/keys.cuh)
    cudf column      its bits, NaN and NA as one null; a word for nulls in front where values leave it no room;
                     what is no number (strings, decimals, categoricals) as the codes of its sorted categories
    host column      `distsort.keys` encodes on the host; the words go up

Nothing here moves rows, and nothing is copied that lies on the device in one piece already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from distsort import blocks
from distsort.errors import InputError, KeyTypeError
from distsort.kernels import policy
from distsort.keys import encode
from distsort.order import Key, Order


@dataclass(frozen=True)
class Coded:
    """One word of the keys: values on the device and their code.

    Attributes
    ----------
    values
        Contiguous cupy array, shape (n,), of 1, 2, 4 or 8 bytes.
    codec
        Makes equal values (all NaNs, both zeros) equal codes.
    """

    values: Any
    codec: policy.Codec


def device_columns(columns: Sequence[Any], order: Order) -> list[Coded]:
    """Return the words of the keys, the most significant first.

    Parameters
    ----------
    columns
        One per key of `order`, all on the device or all on the host.
    order
        Directions and places of nulls.

    Raises
    ------
    KeyTypeError
        A key has no order.
    InputError
        Columns on both sides, or not as many as keys.
    """
    if len(columns) != len(order):
        raise InputError(f"{len(columns)} key columns were given for the {len(order)} keys of '{order}'")
    here = [blocks.on_device(column) for column in columns]
    if not any(here):
        return [_word(word) for word in encode(columns, order).words]
    if not all(here):
        raise InputError(f"the keys '{order}' lie partly in GPU memory: bring all of them to one side")
    words: list[Coded] = []
    for column, key in zip(columns, order.keys, strict=True):
        if isinstance(column, cupy.ndarray):
            words += _array_words(column, key)
        else:
            words += _cudf_words(column, key)
    return words


def _word(values: Any) -> Coded:
    """Unsigned words that need no code."""
    return Coded(cupy.asarray(values), policy.codec("u", values.dtype.itemsize))


def _array_words(values: Any, key: Key) -> list[Coded]:
    if values.ndim != 1:
        raise KeyTypeError(f"the key has {values.ndim} dimensions: a key has one value per row")
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "c":
        return _complex_words(values, key)
    if kind not in "buif":
        raise KeyTypeError(f"the key has the dtype {values.dtype}, which has no order on a GPU")
    return [
        Coded(cupy.ascontiguousarray(values), policy.codec(kind, size, key.descending, key.nulls_first, unified=True))
    ]


def _complex_words(values: Any, key: Key) -> list[Coded]:
    """By real part, then imaginary part; NumPy's four classes of NaN in front (`distsort.keys.numbers`)."""
    real, imag = cupy.ascontiguousarray(values.real), cupy.ascontiguousarray(values.imag)
    parts = _array_words(real, key) + _array_words(imag, key)
    if not bool(cupy.isnan(values).any()):
        return parts
    group = cupy.isnan(real).view(np.uint8) * np.uint8(2) + cupy.isnan(imag).view(np.uint8)
    if key.nulls_first:
        group = (group + np.uint8(3)) % np.uint8(4)
    return [_word(group), *parts]


def _cudf_words(column: Any, key: Key) -> list[Coded]:
    """Words of a cudf Series or Index."""
    dtype = column.dtype
    if getattr(dtype, "kind", "O") not in "buifmM" or not isinstance(dtype, np.dtype):
        category = column if str(dtype) == "category" else column.astype("category")
        codes = category.cat.codes if hasattr(category, "cat") else category.codes
        return _with_nulls(codes.astype("int32"), column, key)
    if dtype.kind == "f":
        return _array_words(cupy.asarray((column.fillna(np.nan) if _has_nulls(column) else column).values), key)
    if dtype.kind in "bmM":
        return _with_nulls(column.astype("uint8" if dtype.kind == "b" else "int64"), column, key)
    return _with_nulls(column, column, key)


def _has_nulls(column: Any) -> bool:
    """Whether a cudf Series or Index has nulls; a series knows."""
    known = getattr(column, "has_nulls", None)
    return bool(column.isnull().any()) if known is None else bool(known)


def _with_nulls(numbers: Any, column: Any, key: Key) -> list[Coded]:
    """Words of numbers that stand for the values of a column, and of which those of nulls mean nothing."""
    if not _has_nulls(column):
        return _array_words(cupy.asarray(numbers.values), key)
    null = column.isnull()
    missing = cupy.asarray(null.values if hasattr(null, "values") else null)
    values = cupy.where(missing, 0, cupy.asarray(numbers.fillna(0).values))
    group = missing if not key.nulls_first else ~missing
    return [_word(group.view(np.uint8)), *_array_words(values, key)]
