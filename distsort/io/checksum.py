"""An order-independent checksum of whole rows of Arrow tables.

Every value becomes a 64-bit hash of its bits, the hashes of a row are combined column by column, and the rows are
summed modulo 2**64: the sum does not depend on the order of the rows, and it changes when a value is lost, doubled,
altered or moved to another row or column. Sums of pieces add up to the sum of the whole. How a column is laid out
(dictionary or plain, 32- or 64-bit offsets, chunks) does not matter; what the values are does.

The mixing steps are the multiply and xor-shift of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", 2014), two rounds of it. Values of a fixed width of more than eight bytes are first summed, each of
their words times an odd number of its own (multilinear hashing: Lemire and Kaser, "Strongly universal string hashing is
fast", 2014). It finds mistakes, not forgeries.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Words = npt.NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHIFT = np.uint64(32)
_NULL = np.uint64(0x94D049BB133111EB)
# Rows hashed at a time: temporaries of 64 KiB stay in the cache, and come from the heap and not from the kernel.
_BLOCK = 1 << 13
# ... and of values of a fixed width, whose words are laid side by side.
_ROWS = 1 << 10
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
    for batch in table.to_batches(max_chunksize=_BLOCK):
        total += int(row_hashes(batch).sum(dtype=np.uint64))
    return total % 2**64


def row_hashes(batch: pa.RecordBatch) -> Words:
    """Return one hash per row of a batch, shape (rows,)."""
    rows = np.full(batch.num_rows, _MIX, np.uint64)
    for column in batch.columns:
        rows += _hash(column)
        _mix(rows)
    return rows


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
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_dictionary(kind):
        return _hash(array.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _hash(pc.run_end_decode(array))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _hash(array.cast(pa.large_binary()))
    hashed = _hash_values(array)
    if array.null_count:
        hashed[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
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
    hashed = np.empty(len(array), np.uint64)
    factors = _factors(-(-width // 8))
    # The words of each value, the last of them the last eight bytes; a copy makes them aligned.
    words = np.empty((_ROWS, len(factors)), np.uint64)
    high = np.empty_like(words)
    for start in range(0, len(array), _ROWS):
        part = hashed[start : start + _ROWS]
        if len(part) < len(words):
            words, high = words[: len(part)], high[: len(part)]
        words[:, :-1] = np.ndarray((len(part), len(factors) - 1), np.uint64, data.data, start * width, (width, 8))
        words[:, -1] = np.ndarray((len(part),), np.uint64, data.data, start * width + width - 8, (width,))
        # A product does not carry the high bits of a word down.
        np.right_shift(words, _SHIFT, out=high)
        np.bitwise_xor(words, high, out=words)
        np.matmul(words, factors, out=part)
    hashed += _MIX
    return _mix(hashed)


@functools.cache
def _factors(count: int) -> Words:
    """Return an odd random number for each word of a value."""
    return _mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)


def _hash_bytes(array: pa.Array, offsets: npt.NDArray[np.int64]) -> Words:
    """Hash byte strings: one 8-byte word after the other, and the length.

    Word w of all strings that have one is taken at a time. Strings of many words would make that many rounds for few
    strings: their words are laid end to end instead.
    """
    lengths = np.diff(offsets)
    hashed: Words = lengths.astype(np.uint64) * _ODD
    buffer = array.buffers()[2]
    if buffer is None or offsets[-1] == offsets[0]:
        return _mix(hashed)
    # Eight spare bytes, so that the word of the last bytes may be read whole.
    text = np.zeros(int(offsets[-1] - offsets[0]) + 8, np.uint8)
    text[:-8] = np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]]
    windows = np.ndarray((len(text) - 7,), np.dtype("<u8"), text.data, strides=(1,))
    starts = offsets[:-1] - offsets[0]
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
    mixed = values + (place.astype(np.uint64) + np.uint64(1)) * _NULL
    _mix(mixed)
    sums = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(mixed, out=sums[1:])
    hashed = sums[ends[1:]] - sums[ends[:-1]]
    hashed += counts.astype(np.uint64) * _ODD
    return _mix(hashed)
