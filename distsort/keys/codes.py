"""Codes: what keys become, so that everything after compares unsigned integers only.

Each key column turns into *fields*, each an unsigned integer a row, the most significant first. All fields of all keys
in a row form one long bit string, and the bit string is cut into words of at most 64 bits:

    field    [ a: 7 bits ][ b: 64 bits                              ][ c: 3 bits ]
    word 0   [ a: 7 bits ][ b: its top 57 bits           ]
    word 1                                  [ b: its low 7 bits     ][ c: 3 bits ]

Few bits make fast sorts (the row index fits beside them in one machine word), so a field is *squeezed* before it is
laid down: a numeric field arrives as its distance from the smallest value, bits that are equal in all rows are dropped,
and a wide field with few distinct values becomes their ranks. What is dropped depends on the rows at hand: codes of one
`encode` call are comparable with each other and with nothing else.

Words after the first are read only when somebody asks, and for the rows that are still tied only: most strings differ
in their first few bytes.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

# Unsigned integers of any width; signed ones.
UIntArray = npt.NDArray[Any]
IntArray = npt.NDArray[np.signedinteger[Any]]

WORD_BITS = 64
# Rows handled at a time: temporaries of 64 KiB stay in the cache, and come from the heap and not from the kernel.
BLOCK = 1 << 13
# Rows looked at before a whole column is scanned for constant bits or few distinct values.
SAMPLE = 1 << 13
# A field narrower than this is laid down as it is.
NARROW = 8
# Ranks take the place of fields of so many bits or more.
WIDE = 17
# Constant bits are dropped when that shortens the field by this much for each run of varying bits that has to be moved;
# fewer do not pay for the pass.
WORTH = 4


class Field(Protocol):
    """One unsigned integer per row.

    Attributes
    ----------
    bits
        Every value is below ``2**bits``.
    """

    @property
    def bits(self) -> int:
        """See above."""
        ...

    def read(self, rows: IntArray | None) -> UIntArray:
        """Return the values of some rows, or of all; the caller does not write to them."""
        ...


@dataclass(frozen=True)
class Plain:
    """A field that lies in memory."""

    values: UIntArray
    bits: int

    def read(self, rows: IntArray | None) -> UIntArray:
        """See `Field`."""
        return self.values if rows is None else self.values.take(rows)


@dataclass(frozen=True)
class Low:
    """The low bits of a field, whose high bits went into the word before."""

    field: Field
    bits: int

    def read(self, rows: IntArray | None) -> UIntArray:
        """See `Field`."""
        values = self.field.read(rows)
        low: UIntArray = values & values.dtype.type((1 << self.bits) - 1)
        return low


@dataclass(frozen=True)
class Varying:
    """A field without the bits that are equal in all rows: `runs` are (lowest bit, width), the lowest run first."""

    field: Field
    runs: tuple[tuple[int, int], ...]

    @property
    def bits(self) -> int:
        """See `Field`."""
        return sum(width for _, width in self.runs)

    def read(self, rows: IntArray | None) -> UIntArray:
        """See `Field`."""
        values = self.field.read(rows)
        kind = values.dtype.type
        out = np.empty(len(values), narrowest(self.bits))
        for start in range(0, len(values), BLOCK):
            part = values[start : start + BLOCK]
            gathered = np.zeros_like(part)
            at = 0
            for low, width in self.runs:
                gathered |= ((part >> kind(low)) & kind((1 << width) - 1)) << kind(at)
                at += width
            out[start : start + BLOCK] = gathered
        return out


class Chain(abc.ABC):
    """A field of many words, made one at a time: what is left of it stays unread.

    Attributes
    ----------
    bits
        At most so many in all words.
    """

    bits: int

    @abc.abstractmethod
    def step(self, rows: IntArray | None, groups: UIntArray | None) -> tuple[Field, UIntArray, Chain | None] | None:
        """Find the next word that tells rows apart.

        Parameters
        ----------
        rows
            The rows at hand, or all.
        groups
            Ascending; only rows of equal group need to be told apart. None: all rows are one group.

        Returns
        -------
        field, values, rest
            The word, its values for these rows, and what follows it; or None where no word is left that helps.
        """


class Codes:
    """The keys of n rows as unsigned words, the most significant word first.

    Rows order as their words do, lexicographically; rows with equal words are ties.

    Parameters
    ----------
    rows
        Number of rows.
    fields
        The fields, the most significant first.
    squeeze
        Whether to look for fewer bits, which pays where rows are sorted and not where each is looked at once.

    Attributes
    ----------
    head
        The first word, unsigned, shape (n,); every value is below ``2**bits``.
    bits
        Bits that the first word uses, 0 to 64; 0 when all rows are tied in it.
    tail
        The fields that the first word has no room for.
    """

    def __init__(self, rows: int, fields: Sequence[Field | Chain], squeeze: bool = True) -> None:
        self._rows = rows
        self._squeeze = squeeze
        self.head, self.bits, self.tail = lay_word(fields, rows, squeeze=squeeze)

    def __len__(self) -> int:
        return self._rows

    @property
    def words(self) -> tuple[UIntArray, ...]:
        """All words; reads those of long strings as well."""
        return tuple(word for word, _ in self.iterate())

    def iterate(self) -> Iterator[tuple[UIntArray, int]]:
        """Yield (word, bits) one after the other, so that one is in memory at a time."""
        yield self.head, self.bits
        tail = self.tail
        while tail:
            word, bits, tail = lay_word(tail, self._rows, squeeze=self._squeeze)
            if bits:
                yield word, bits

    def ascends(self) -> bool:
        """Whether no row is smaller than the row before it."""
        return self.first_descent() is None

    def first_descent(self) -> int | None:
        """Return the first position whose row is smaller than the row before it, or None."""
        found: int | None = None
        tied: IntArray | None = None
        for word, _ in self.iterate():
            if tied is None:
                before, after = word[:-1], word[1:]
            else:
                before, after = word.take(tied), word.take(tied + 1)
            falls = np.flatnonzero(after < before)
            if len(falls):
                at = int(falls[0]) if tied is None else int(tied[falls[0]])
                found = at + 1 if found is None else min(found, at + 1)
            same = np.flatnonzero(before == after)
            tied = same if tied is None else tied[same]
            if found is not None:
                tied = tied[tied + 1 < found]
            if not len(tied):
                break
        return found


def lay_word(
    fields: Sequence[Field | Chain],
    rows: int,
    at: IntArray | None = None,
    lead: Plain | None = None,
    squeeze: bool = True,
) -> tuple[UIntArray, int, tuple[Field | Chain, ...]]:
    """Lay fields side by side into one word until it is full.

    Parameters
    ----------
    fields
        The most significant first.
    rows
        How many rows the word is for.
    at
        The rows to read, shape (rows,); None means all of them.
    lead
        Ascending values already at hand for these rows, to stand in front.
    squeeze
        See `Codes`.

    Returns
    -------
    word
        Unsigned, as narrow as its bits allow, shape (rows,).
    bits
        Bits used.
    tail
        The fields that did not fit, the first of them perhaps in part.
    """
    pieces: list[tuple[UIntArray, int]] = [] if lead is None else [(lead.values, lead.bits)]
    used = 0 if lead is None else lead.bits
    waiting = list(fields)
    # Squeezing pays when the fields do not fit a word together with the row index.
    tight = squeeze and used + sum(f.bits for f in waiting) + max(rows - 1, 0).bit_length() > WORD_BITS
    while waiting and used < WORD_BITS:
        field = waiting.pop(0)
        if not field.bits:
            continue
        if isinstance(field, Chain):
            found = field.step(at, None if lead is None else lead.values)
            if found is None:
                continue
            field, values, rest = found
            if rest is not None:
                waiting.insert(0, rest)
        else:
            values = field.read(at)
        if tight or at is not None:
            field, values = _squeeze(field, values, at, last=not waiting)
        over = max(0, used + field.bits - WORD_BITS)
        if over:
            waiting.insert(0, Low(field, over))
            values = values >> values.dtype.type(over)
        if field.bits > over:
            pieces.append((values, field.bits - over))
            used += field.bits - over
    return _join(pieces, used, rows), used, tuple(waiting)


def _join(pieces: list[tuple[UIntArray, int]], used: int, rows: int) -> UIntArray:
    """Concatenate the bits of the pieces."""
    kind = narrowest(used)
    if not pieces:
        return np.zeros(rows, kind)
    if len(pieces) == 1:
        return pieces[0][0].astype(kind, copy=False)
    word = np.empty(rows, kind)
    for start in range(0, rows, BLOCK):
        stop = start + BLOCK
        part = pieces[0][0][start:stop].astype(kind)
        for values, bits in pieces[1:]:
            part <<= kind(bits)
            part |= values[start:stop].astype(kind, copy=False)
        word[start:stop] = part
    return word


def _squeeze(field: Field, values: UIntArray, at: IntArray | None, last: bool) -> tuple[Field, UIntArray]:
    """Return the same field in fewer bits, with its values, where a look at a sample says that it pays."""
    if field.bits < NARROW or not len(values):
        return field, values
    step = max(1, len(values) // SAMPLE)
    sample = values[::step]
    if field.bits - _varying(sample).bit_count() >= WORTH:
        found = _varying(values) if step > 1 else _varying(sample)
        runs = _runs(found)
        if field.bits - found.bit_count() >= WORTH * max(1, len(runs)):
            field = Varying(field, runs) if runs else Plain(np.zeros(0, np.uint8), 0)
            values = Varying(Plain(values, WORD_BITS), runs).read(None)
    if not last and at is None and field.bits >= WIDE and step > 1 and _few_distinct(sample):
        ranks = _ranks(values)
        bits = int(ranks.max()).bit_length()
        if bits + NARROW <= field.bits:
            return Plain(ranks, bits), ranks
    return field, values


def _varying(values: UIntArray) -> int:
    """Return the mask of the bits that are not equal in all values."""
    return int(np.bitwise_or.reduce(values)) & ~int(np.bitwise_and.reduce(values))


def _runs(mask: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of ones of a mask as (lowest bit, width)."""
    runs = []
    low = 0
    while mask >> low:
        if mask >> low & 1:
            width = (~(mask >> low) & ((mask >> low) + 1)).bit_length() - 1
            runs.append((low, width))
            low += width
        else:
            low += 1
    return tuple(runs)


def _few_distinct(sample: UIntArray) -> bool:
    """Whether nearly all values were seen twice: the share seen once estimates the share never seen (Good 1953)."""
    counts = np.unique_counts(sample).counts
    return len(counts) < len(sample) // 4 and int((counts == 1).sum()) * 100 <= len(sample)


def _ranks(values: UIntArray) -> UIntArray:
    """Replace values by their dense ranks."""
    found, distinct = pd.factorize(values)
    rank = np.empty(len(distinct), np.uint32)
    rank[np.argsort(distinct)] = np.arange(len(distinct), dtype=np.uint32)
    return rank.take(found)


def narrowest(bits: int) -> Any:
    """Return the narrowest unsigned type that holds so many bits."""
    if bits <= 16:
        return np.uint8 if bits <= 8 else np.uint16
    return np.uint32 if bits <= 32 else np.uint64
