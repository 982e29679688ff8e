"""Columns of Python objects: find the type that all values share, and fall back to comparing them in Python.

Comparing objects costs a microsecond and more each time, so a column of one known type is converted first: text and
bytes to Arrow, numbers, dates and times to NumPy, decimals to scaled integers. A conversion is used only when it is
exact. Everything else that Python can order (tuples, fractions, integers of any size, a mix of int and float) is
sorted once in Python and replaced by its ranks.
"""

from __future__ import annotations

import datetime
import decimal
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort.errors import KeyTypeError
from distsort.order import Key

Objects = npt.NDArray[np.object_]
Mask = npt.NDArray[np.bool_]

# These define "<" for no value or only for some (a set is smaller than its supersets), or not element by element.
_WITHOUT_ORDER = (list, dict, set, frozenset, complex, np.complexfloating, np.ndarray, pd.Series, pd.DataFrame)
# Integers up to here are exact as float64.
_EXACT_IN_FLOAT = 1 << 53
_DECIMAL_DIGITS = 38
_SCALE_SAMPLE = 1000


def normalise(values: Objects, key: Key) -> tuple[Any, Mask | None]:
    """Turn objects into an array that has an order of its own.

    Parameters
    ----------
    values
        Python objects, shape (n,); None, NaN, NaT and NA are nulls.
    key
        Its name stands in errors.

    Returns
    -------
    array
        NumPy (not of objects) or Arrow, of length n, in the order of the objects.
    null
        True for nulls, or None.

    Raises
    ------
    KeyTypeError
        The objects have no order.
    """
    try:
        null: Mask | None = pd.isna(values)
    except decimal.InvalidOperation as error:  # a signalling NaN
        refuse(key, {decimal.Decimal}, error)
    if null is None or not null.any():
        null = None
    valid = values if null is None else values[~null]
    if not len(valid):
        return np.zeros(len(values), np.uint8), null
    made = _convert(valid, values, null)
    if made is None:
        made = _ranks(valid, key)
    if isinstance(made, np.ndarray) and len(made) != len(values):
        whole = np.zeros(len(values), made.dtype)
        whole[~null if null is not None else slice(None)] = made
        made = whole
    return made, null


def _convert(valid: Objects, values: Objects, null: Mask | None) -> Any:
    """Return the values as an array of their common type, of all rows (Arrow) or the valid ones (NumPy), or None."""
    kind = pd.api.types.infer_dtype(valid, skipna=False)
    if kind == "string":
        return _text(values, null)
    if kind == "bytes":
        return pa.array(values, pa.large_binary(), mask=null)
    types = set(map(type, valid))
    if kind == "date":
        return pa.array(values, pa.date32(), mask=null) if types == {datetime.date} else None
    if kind == "decimal":
        return _decimals(valid, values, null)
    if kind == "datetime" and types <= {datetime.datetime, pd.Timestamp}:
        return _ticks(pd.DatetimeIndex, valid)
    if kind == "timedelta" and types <= {datetime.timedelta, pd.Timedelta}:
        return _ticks(pd.TimedeltaIndex, valid)
    return _numbers(valid, types)


def _text(values: Objects, null: Mask | None) -> Any:
    try:
        return pa.array(values, pa.large_string(), mask=null)
    except UnicodeEncodeError:
        # Lone surrogates: no UTF-8, but their three-byte form keeps the order of code points all the same.
        encoded = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else None for v in values]
        return pa.array(encoded, pa.large_binary(), mask=null)


def _decimals(valid: Objects, values: Objects, null: Mask | None) -> Any:
    """Scale decimals to integers of 128 or 256 bits; None when they do not fit or are infinite."""
    try:
        places = max(-int(v.as_tuple().exponent) for v in valid[:_SCALE_SAMPLE])
    except (AttributeError, ValueError):
        return None
    guesses = [pa.decimal128(_DECIMAL_DIGITS, places)] if 0 <= places <= _DECIMAL_DIGITS else []
    for kind in [*guesses, None]:
        try:
            return pa.array(values, kind, mask=null)
        except (pa.ArrowInvalid, pa.ArrowTypeError, decimal.DecimalException, OverflowError):
            continue
    return None


def _ticks(make: Any, valid: Objects) -> Any:
    try:
        index = make(valid)
    except (ValueError, TypeError, OverflowError):
        return None
    return index.asi8 if len(index) == len(valid) and index.dtype.kind in "mM" else None


def _numbers(valid: Objects, types: set[type]) -> Any:
    whole = tuple(t for t in types if issubclass(t, (int, np.integer, np.bool_)))
    real = tuple(t for t in types if issubclass(t, (float, np.floating)) and not issubclass(t, np.longdouble))
    if len(whole) + len(real) != len(types):
        return None
    if not real:
        for kind in (np.int64, np.uint64):
            try:
                return valid.astype(kind)
            except OverflowError:
                continue
        return None
    if whole and any(isinstance(v, whole) and abs(int(v)) > _EXACT_IN_FLOAT for v in valid):
        return None
    return valid.astype(np.float64)


def _ranks(valid: Objects, key: Key) -> npt.NDArray[np.int64]:
    """Sort in Python and return dense ranks."""
    types = set(map(type, valid))
    if any(issubclass(t, _WITHOUT_ORDER) for t in types):
        refuse(key, types)
    try:
        order = valid.argsort(kind="stable")
        ordered = valid[order]
        steps = np.less(ordered[:-1], ordered[1:], dtype=object).astype(np.int64)
    except Exception as error:
        refuse(key, types, error)
    ranks = np.empty(len(valid), np.int64)
    ranks[order] = np.concatenate([[0], np.cumsum(steps)])
    return ranks


def refuse(key: Key, types: set[type], error: Exception | None = None) -> NoReturn:
    """Raise the error for values that have no order."""
    names = sorted({t.__name__ for t in types})
    shown = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    if len(names) > 1:
        fault, cure = f"mixes values of types {shown}, which have no common order", "convert them to one type"
    else:
        fault, cure = f"holds values of type {shown}, which have no order", "sort by another column or by parts of it"
    raise KeyTypeError(f"{called(key)} {fault}: {cure} first, for example with .astype(str) or key=") from error


def called(key: Key) -> str:
    """Return what to call a key in an error."""
    return "the sort key" if key.name is None else f"column {key.name!r}"
