"""Stable order of one word per row, with NumPy: the sorts and merges under the numpy backend.

NumPy has no fast stable argsort of 64-bit keys: a comparison sort of indices jumps through memory. Its plain sort of
integers is fast. So the key and the row index go into one integer, and sorting that integer is a stable argsort:

    key, 40 bits                              row, 24 bits
    [ 1 0 1 1 0 ... 0 1 ][ 0 0 ... 1 1 0 1 ]        equal keys differ in the row: ties keep input order

A key too wide for that is first sorted by its top bits (its *window*). Few rows share a window and come out in the
wrong order; these groups are sorted again (*repair*). Where they are many, the key is sorted digit by digit instead,
the least significant first.

On processors where NumPy's sort is slow (its AVX-512 form is, on some), another engine takes its place: rows are dealt
out to buckets by their top bits, and each bucket is sorted in the cache by two 16-bit digits of its window, the lower
first, and repaired (NumPy's stable argsort of 16-bit integers is a radix sort).

Memory that NumPy takes in one piece of 128 KiB or more may come fresh from the kernel each time (glibc does so in a
worker of Dask, which sets MALLOC_TRIM_THRESHOLD_), and its first touch costs more than the work on it. So temporaries
stay below that: blocks and buckets instead of whole columns.

A merge of few slices is left to timsort, which finds and merges them by itself; a merge of many takes longer than a
sort of all their rows.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from distsort.gather import take_array
from distsort.keys.codes import BLOCK, UIntArray

Index = npt.NDArray[np.intp]

# Below this NumPy's stable argsort wins.
SMALL = 512
# A word this wide is sorted directly by NumPy's radix sort.
DIGIT = 16
# Rows of a bucket that is sorted in the cache, ...
BUCKET = 1 << 12
# ... and how many bits tell buckets apart at most.
BUCKET_BITS = 10
# Rows looked at to choose a window.
PROBE = 1 << 15
# ... but of a short word no more than one in so many.
PROBE_SHARE = 1 << 6
# Repair gives up when more than one row in so many stands behind a larger key, ...
WRONG = 16
# ... or more than one row in so many is in a group to be sorted again.
REGROUPED = 4
# Timsort merges so many runs in less time than they take to sort.
TIMSORT_RUNS = 16
# Nanoseconds a key that tell a vectorised sort from a scalar one.
FAST_SORT_NS = 25.0


def argsort_word(word: UIntArray, bits: int) -> Index:
    """Return the stable order of one word.

    Parameters
    ----------
    word
        Unsigned, shape (n,), every value below ``2**bits``; not modified.
    bits
        0 to 64.

    Returns
    -------
    index
        intp, shape (n,).
    """
    n = len(word)
    if n < 2 or not bits:
        return np.arange(n, dtype=np.intp)
    if n <= SMALL or bits <= DIGIT:
        narrow = word.astype(np.uint16, copy=False) if bits <= DIGIT else word
        return narrow.argsort(kind="stable")
    ordered = _already_ordered(word)
    if ordered is not None:
        return ordered
    if not vectorised():
        return _by_buckets(word, bits, n)
    width = _window(word, bits, n)
    if width is None:
        return _by_digits(word, bits, n)
    shift = bits - width
    order = _packed(word, shift, bits, n)
    return _repaired(order, word, shift, bits) if shift else order


def _by_buckets(word: UIntArray, bits: int, n: int) -> Index:
    """Deal rows out by their top bits, then sort each bucket in the cache.

    Arrow's sort of a narrow range is a stable counting sort. A bucket is so small that what NumPy allocates to sort it
    comes from the heap: memory fresh from the kernel costs more than the sort.
    """
    if n <= 4 * BUCKET:
        return _bucket(word, bits)
    top = min(BUCKET_BITS, (n // BUCKET).bit_length(), bits - 1)
    rest = bits - top
    order = np.asarray(pc.array_sort_indices(pa.array(_digits(word, rest)))).view(np.intp)
    dealt = take_array(word, order)
    edges = np.arange(1, 1 << top).astype(word.dtype) << word.dtype.type(rest)
    ends = [0, *np.searchsorted(dealt, edges).tolist(), n]
    done = np.empty(n, np.intp)
    for start, end in itertools.pairwise(ends):
        part = dealt[start:end]
        if end - start > 4 * BUCKET:
            inner = argsort_word(part & part.dtype.type((1 << rest) - 1), rest)
        else:
            inner = _bucket(part, rest)
        done[start:end] = order[start:end].take(inner)
    return done


def _bucket(word: UIntArray, bits: int) -> Index:
    """Return the order of few rows, which differ in their low `bits` only."""
    if len(word) <= SMALL:
        return word.argsort(kind="stable")
    shift = max(0, bits - 2 * DIGIT)
    order = _radix(word, shift, bits)
    return _repaired(order, word, shift, bits) if shift else order


def _window(word: UIntArray, bits: int, n: int) -> int | None:
    """Choose how many top bits to sort by first: few rows may share them and differ below.

    Returns
    -------
    width
        `bits` where all of them fit; None where no window serves.
    """
    room = 64 - (n - 1).bit_length()
    if bits <= room:
        return bits
    sample = np.sort(word[:: max(1, n // PROBE, min(PROBE_SHARE, n >> 10))])
    differs = sample[1:] != sample[:-1]
    window = sample >> sample.dtype.type(bits - room)
    shared = int((differs & (window[1:] == window[:-1])).sum())
    # Pairs that share a window, by the share of the sample's pairs that do.
    return room if shared * (n / len(sample)) ** 2 * WRONG <= n else None


def _already_ordered(word: UIntArray) -> Index | None:
    """Return the order of a word that ascends, or falls strictly; None for all others, mostly after a short look."""
    n = len(word)
    for end in (min(n, 1024), n):
        before, after = word[: end - 1], word[1:end]
        ascends = not (after < before).any()
        if not ascends and not (after < before).all():
            return None
        if end == n:
            return np.arange(n, dtype=np.intp) if ascends else np.arange(n - 1, -1, -1, dtype=np.intp)
    return None


def _packed(word: UIntArray, shift: int, bits: int, n: int) -> Index:
    """Sort (window, row) pairs as integers."""
    row_bits = (n - 1).bit_length()
    kind: Any = np.uint32 if bits - shift + row_bits <= 32 else np.uint64
    pairs: UIntArray = np.empty(n, kind)
    rows: UIntArray = np.arange(BLOCK, dtype=kind)
    for start in range(0, n, BLOCK):
        part = word[start : start + BLOCK]
        window = (part >> part.dtype.type(shift)).astype(kind)
        window <<= kind(row_bits)
        window |= rows[: len(part)] + kind(start)
        pairs[start : start + BLOCK] = window
    pairs.sort()
    pairs &= kind((1 << row_bits) - 1)
    return pairs.view(np.intp) if kind is np.uint64 and np.intp().itemsize == 8 else pairs.astype(np.intp)


def _radix(word: UIntArray, shift: int, bits: int) -> Index:
    """Sort by 16-bit digits from `shift` up, the least significant first."""
    order: Index | None = None
    for low in range(shift, bits, DIGIT):
        digit = _digits(word, low)
        order = digit.argsort(kind="stable") if order is None else _then(order, digit)
    assert order is not None
    return order


def _digits(word: UIntArray, low: int) -> npt.NDArray[np.uint16]:
    """Return the sixteen bits of each row from `low` up."""
    digits = np.empty(len(word), np.uint16)
    for start in range(0, len(word), BLOCK):
        part = word[start : start + BLOCK]
        digits[start : start + BLOCK] = part >> part.dtype.type(low)
    return digits


def _then(order: Index, digit: npt.NDArray[np.uint16]) -> Index:
    """Sort rows that are in `order` by one more digit, stably."""
    return order.take(digit.take(order).argsort(kind="stable"))


def _repaired(order: Index, word: UIntArray, shift: int, bits: int) -> Index:
    """Finish a word that is sorted by its bits from `shift` up."""
    n = len(word)
    ordered = take_array(word, order)
    wrong = np.flatnonzero(ordered[1:] < ordered[:-1])
    if not len(wrong):
        return order
    if len(wrong) * WRONG <= n:
        # Between windows the rows are in order, so a search for the edges of a window finds them.
        below = ordered.dtype.type((1 << shift) - 1)
        last = np.unique(ordered.take(wrong) | below)
        first = np.searchsorted(ordered, last & ~below)
        size = np.searchsorted(ordered, last, "right") - first
        total = int(size.sum())
        if total * REGROUPED <= n:
            at = np.repeat(first - np.concatenate([[0], np.cumsum(size)[:-1]]), size) + np.arange(total)
            inner = np.lexsort((ordered.take(at), np.repeat(np.arange(len(size)), size)))
            order[at] = order[at.take(inner)]
            return order
    return _by_digits(word, bits, n)


def _by_digits(word: UIntArray, bits: int, n: int) -> Index:
    """Sort by digits as wide as an engine takes at once, the least significant first."""
    if not vectorised():
        return _radix(word, 0, bits)
    width = 64 - (n - 1).bit_length()
    order: Index | None = None
    for low in range(0, bits, width):
        digit = word >> word.dtype.type(low)
        if low + width < bits:
            digit &= digit.dtype.type((1 << width) - 1)
        if order is None:
            order = _packed(digit, 0, width, n)
        else:
            order = order.take(_packed(digit.take(order), 0, min(width, bits - low), n))
    assert order is not None
    return order


def merge_word(word: UIntArray, bits: int, bounds: Index) -> Index:
    """Return the stable order of a word that ascends within each slice.

    Parameters
    ----------
    word, bits
        As of `argsort_word`.
    bounds
        Ascending from 0 to n: where the slices begin and end.
    """
    runs = int(np.count_nonzero(np.diff(bounds)))
    if runs <= 1 or not bits:
        return np.arange(len(word), dtype=np.intp)
    if bits > DIGIT and merges_by_timsort(runs):
        return word.argsort(kind="stable")
    return argsort_word(word, bits)


def merges_by_timsort(runs: int) -> bool:
    """Whether timsort merges so many sorted runs faster than a sort of all rows takes."""
    return runs <= TIMSORT_RUNS


@functools.cache
def vectorised() -> bool:
    """Whether NumPy's sort of 64-bit integers is vectorised well here: measured, since no interface tells.

    The best of a few tries, so that a busy machine is not taken for a slow one.
    """
    keys = np.random.default_rng(0).integers(0, 1 << 63, 1 << 14, dtype=np.uint64)
    best = np.inf
    for _ in range(5):
        copy = keys.copy()
        start = time.perf_counter()
        copy.sort()
        best = min(best, time.perf_counter() - start)
    return best * 1e9 / len(keys) < FAST_SORT_NS
