"""An order-independent checksum of whole rows of Arrow tables.

Every value becomes a 64-bit hash of its bits, the hashes of a row are combined column by column, and the rows are
summed modulo 2**64: the sum does not depend on the order of the rows, and it changes when a value is lost, doubled,
altered or moved to another row or column. Sums of pieces add up to the sum of the whole. How a column is laid out
(dictionary or plain, 32- or 64-bit offsets, chunks) does not matter; what the values are does.

The mixing steps are the multiply and xor-shift of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", 2014), two rounds of it. Values of a fixed width of more than eight bytes are first summed, each of
their 32-bit words times a 64-bit number of its own (multilinear hashing: Lemire and Kaser, "Strongly universal string
hashing is fast", 2014). It finds mistakes, not forgeries.

How many rows are hashed at a time weighs two costs. Threads take turns at the interpreter between two calls of NumPy,
and a turn costs some ten microseconds: a call should have more work than that. But in a worker of Dask, which sets
MALLOC_TRIM_THRESHOLD_, arrays of 128 KiB or more are memory fresh from the kernel each time, which costs more still.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
NULL = np.uint64(0x94D049BB133111EB)
# Rows hashed at a time, and bytes of long values that are laid out as words: where memory is kept, ...
_KEPT = (1 << 15, 1 << 21)
# ... and where it comes fresh from the kernel unless it is little.
_FRESH = (1 << 13, 1 << 16)
# Bytes from which a string is long.
_LONG = 512


def table_checksum(table: pa.Table) -> int:
    """Return the checksum of the rows of a table.

    Parameters
    ----------
    table
        Any number of rows and columns; every Arrow type that Parquet can hold.

    Returns
    -------
    int
        In [0, 2**64); 0 for no rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = pa.table({"k": [3, 1, None], "s": ["c", "a", ""]})
    >>> table_checksum(rows) == table_checksum(rows.take([2, 0, 1]))
    True
    >>> table_checksum(rows) == table_checksum(pa.table({"k": [1, 3, None], "s": ["c", "a", ""]}))
    False
    """
    total = 0
    for batch in table.to_batches(max_chunksize=_at_a_time()[0]):
        total += int(row_hashes(batch).sum(dtype=np.uint64))
    return total % 2**64


def strings_checksum(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> int:
    """Return the checksum of a table of one column of strings, which lie in order in a buffer.

    Parameters
    ----------
    data
        Bytes of all strings, and perhaps others between them.
    starts, lengths
        Where each string begins, ascending, and how many bytes it has, shape (n,).
    """
    total, step = 0, _at_a_time()[0]
    for first in range(0, len(starts), step):
        rows = _hash_strings(data, starts[first : first + step], lengths[first : first + step])
        rows += _MIX
        total += int(_mix(rows).sum(dtype=np.uint64))
    return total % 2**64


def row_hashes(batch: pa.RecordBatch) -> Words:
    """Return one hash per row of a batch, shape (rows,)."""
    rows = np.full(batch.num_rows, _MIX, np.uint64)
    for column in batch.columns:
        rows += _hash(column)
        _mix(rows)
    return rows


@functools.cache
def _at_a_time() -> tuple[int, int]:
    return _FRESH if "MALLOC_TRIM_THRESHOLD_" in os.environ else _KEPT


def _mix(words: Words) -> Words:
    """Scatter the bits of every word over the whole word, in place."""
    words *= _ODD
    words ^= words >> _SHIFT
    words *= _MIX
    words ^= words >> _SHIFT
    return words


def _hash(array: pa.Array) -> Words:
    """Return one hash per value; a null has one hash whatever lies under it."""
    if isinstance(array, pa.ExtensionArray):
        return _hash(array.storage)
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), NULL, np.uint64)
    if pa.types.is_dictionary(kind):
        return _hash(array.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _hash(pc.run_end_decode(array))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _hash(array.cast(pa.large_binary()))
    hashed = _hash_values(array)
    if array.null_count:
        hashed[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return hashed


def _hash_values(array: pa.Array) -> Words:
    kind = array.type
    if pa.types.is_boolean(kind):
        return _mix(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64))
    if pa.types.is_struct(kind):
        hashed = np.full(len(array), _MIX, np.uint64)
        for child in array.flatten():
            hashed += _hash(child)
            _mix(hashed)
        return hashed
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        # values skips a slice's offset; flatten would skip nulls.
        values = _hash(array.values.slice(array.offset * width, len(array) * width))
        return _fold(values, np.arange(len(array) + 1, dtype=np.int64) * width)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = _offsets(array, np.int64 if pa.types.is_large_list(kind) else np.int32)
        entries = _entries(array) if pa.types.is_map(kind) else array.values
        values = _hash(entries.slice(int(offsets[0]), int(offsets[-1] - offsets[0])))
        return _fold(values, offsets - offsets[0])
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_bytes(array, _offsets(array, np.int64))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(array, _offsets(array, np.int32))
    return _hash_fixed(array)


def _entries(array: pa.Array) -> pa.Array:
    """Return keys and items of a map as a struct, offsets untouched."""
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])


def _offsets(array: pa.Array, dtype: Any) -> npt.NDArray[np.int64]:
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _hash_fixed(array: pa.Array) -> Words:
    """Hash values of a fixed width by their bits, in 8-byte words."""
    width = array.type.bit_width // 8
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None or width == 0:
        return np.full(len(array), _MIX, np.uint64)
    data = np.frombuffer(buffer, np.uint8)[array.offset * width : (array.offset + len(array)) * width]
    if width in (1, 2, 4, 8):
        return _mix(data.view(f"u{width}").astype(np.uint64))
    if width < 8:
        padded = np.zeros((len(array), 8), np.uint8)
        padded[:, :width] = data.reshape(len(array), width)
        return _mix(padded.view(np.uint64)[:, 0])
    if width % 4 or data.ctypes.data % 4:
        padded = np.zeros((len(array), -(-width // 4) * 4), np.uint8)
        padded[:, :width] = data.reshape(len(array), width)
        data = padded.reshape(-1)
    hashed = np.empty(len(array), np.uint64)
    factors = _factors(-(-width // 4))
    values = data.view(np.uint32).reshape(len(array), len(factors))
    # Small words, long products: no bit of a value is shifted out where it would not count.
    step = max(1, _at_a_time()[1] // (8 * len(factors)))
    words = np.empty((min(step, len(values)), len(factors)), np.uint64)
    for start in range(0, len(values), step):
        part = values[start : start + step]
        words = words[: len(part)]
        words[:] = part
        np.matmul(words, factors, out=hashed[start : start + step])
    hashed += _MIX
    return _mix(hashed)


@functools.cache
def _factors(count: int) -> Words:
    """Return a random number for each word of a value."""
    return _mix(np.arange(1, count + 1, dtype=np.uint64))


def _hash_bytes(array: pa.Array, offsets: npt.NDArray[np.int64]) -> Words:
    buffer = array.buffers()[2]
    data = np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return _hash_strings(data, offsets[:-1], np.diff(offsets))


def _hash_strings(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """Hash byte strings: one 8-byte word after the other, and the length.

    Word w of all strings that have one is taken at a time. Strings of many words would make that many rounds for few
    strings: their words are laid end to end instead.
    """
    hashed: Words = lengths.astype(np.uint64) * _ODD
    if not lengths.any():
        return _mix(hashed)
    # Eight spare bytes, so that the word of the last bytes may be read whole.
    first, last = int(starts[0]), int(starts[-1] + lengths[-1])
    text = np.zeros(last - first + 8, np.uint8)
    text[:-8] = data[first:last]
    windows = np.ndarray((len(text) - 7,), np.dtype("<u8"), text.data, strides=(1,))
    starts = starts - first
    if (lengths > _LONG).any():
        long = np.flatnonzero(lengths > _LONG)
        hashed[long] += _hash_long(windows, starts[long], lengths[long])
        rows: npt.NDArray[np.int64] | None = np.flatnonzero(lengths <= _LONG)
        starts, lengths = starts[rows], lengths[rows]
        ours = hashed[rows]
    else:
        rows, ours = None, hashed
    _hash_short(ours, windows, starts, lengths)
    if rows is not None:
        hashed[rows] = ours
    return _mix(hashed)


def _hash_short(hashed: Words, windows: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
    """Mix the words of short strings into their hashes, in place."""
    rows: npt.NDArray[np.int64] | None = None
    for first in range(0, int(lengths.max(initial=0)), 8):
        left = lengths - first
        if left.min() <= 0:
            kept = np.flatnonzero(left > 0)
            rows = kept if rows is None else rows[kept]
            starts, lengths, left = starts[kept], lengths[kept], left[kept]
        words = windows[starts + first].astype(np.uint64)
        if left.min() < 8:
            spare = (8 - np.minimum(left, 8)).astype(np.uint64)
            words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (spare * np.uint64(8))
        if rows is None:
            hashed += words
            _mix(hashed)
        else:
            words += hashed[rows]
            hashed[rows] = _mix(words)


def _hash_long(windows: Words, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> Words:
    """Hash long strings with their words laid end to end."""
    counts = (lengths + 7) >> 3
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    inside = (np.arange(ends[-1]) - np.repeat(ends[:-1], counts)) * 8
    words = windows[np.repeat(starts, counts) + inside].astype(np.uint64)
    rest = np.minimum(np.repeat(lengths, counts) - inside, 8).astype(np.uint64)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> ((np.uint64(8) - rest) * np.uint64(8))
    return _fold(words, ends)


def _fold(values: Words, ends: npt.NDArray[np.int64]) -> Words:
    """Combine consecutive hashes into one per list; the place of each in its list and the list's length count.

    Parameters
    ----------
    values
        Shape (m,): the hashes of all lists, one list after the other.
    ends
        Shape (n + 1,): list i holds values[ends[i]:ends[i + 1]].
    """
    counts = np.diff(ends)
    place = np.arange(len(values), dtype=np.int64) - np.repeat(ends[:-1], counts)
    mixed = values + (place.astype(np.uint64) + np.uint64(1)) * NULL
    _mix(mixed)
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(mixed, out=sums[1:])
    hashed = sums[ends[1:]] - sums[ends[:-1]]
    hashed += counts.astype(np.uint64) * _ODD
    return _mix(hashed)
