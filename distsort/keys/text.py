"""Strings and bytes as fields: eight bytes to a word, read where they lie.

The bytes of UTF-8 order as the code points do, and zero bytes after the end put a prefix first:

    "ab"   61 62 00 00 00 00 00 00
    "abc"  61 62 63 00 00 00 00 00

Only a string that holds NUL characters itself could be mistaken for a shorter one, so the length follows as a last
field when there is a NUL anywhere. Word w of all rows is one gather through a view of the byte buffer that has a
(misaligned) integer at every byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distsort.keys.codes import BLOCK, Chain, Field, IntArray, Plain, UIntArray

WORD_BYTES = 8
# Bytes of each string that are compared at once at first, and bytes of all strings that are gathered for it at most.
_STRETCH = 64
_GATHERED = 1 << 20
# _KEEP[k] keeps the first k bytes of a big-endian word.
_KEEP = np.array([((1 << 64) - 1) ^ ((1 << (64 - 8 * k)) - 1) for k in range(9)], np.uint64)


class Text:
    """Byte strings in one buffer.

    Parameters
    ----------
    data
        uint8, the bytes of all strings.
    starts
        Where each string begins in `data`, shape (n,).
    lengths
        Bytes of each string, shape (n,), or one number for all, which then begin at equal distances. Null rows must
        have length 0.
    """

    def __init__(
        self, data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray | int, padded: bool = False
    ) -> None:
        if len(data) < WORD_BYTES:
            data = np.concatenate([data, np.zeros(WORD_BYTES, np.uint8)])
        self._starts = starts
        self._lengths = lengths
        self._last = len(data) - WORD_BYTES
        self._windows: npt.NDArray[Any] = np.ndarray((self._last + 1,), "V8", data.data, 0, (1,))
        self._data = data
        self.padded = padded
        self.longest = lengths if isinstance(lengths, int) else int(lengths.max(initial=0))
        self.shortest = lengths if isinstance(lengths, int) else int(lengths.min(initial=self.longest))

    def __len__(self) -> int:
        return len(self._starts)

    def fields(self, descending: bool) -> Sequence[Field | Chain]:
        """Return the strings as fields."""
        fields: list[Field | Chain] = [TextWords(self, 0, descending)] if self.longest else []
        if not self.padded and not isinstance(self._lengths, int) and self._has_nul():
            size = self._lengths if not descending else self.longest - self._lengths
            fields.append(Plain(size.astype(np.uint64), self.longest.bit_length()))
        return fields

    def word(self, w: int, rows: IntArray | None) -> npt.NDArray[np.uint64]:
        """Return bytes ``[8w, 8w + 8)`` of some strings, or of all, as integers; zeros after the end."""
        if rows is None and isinstance(self._lengths, int) and self._lengths:
            return self._at_equal_distances(WORD_BYTES * w, self._lengths)
        count = len(self) if rows is None else len(rows)
        out = np.empty(count, np.uint64)
        for i in range(0, count, BLOCK):
            part: Any = slice(i, i + BLOCK) if rows is None else rows[i : i + BLOCK]
            out[i : i + BLOCK] = self._word(w, part)
        return out

    def _word(self, w: int, part: Any) -> npt.NDArray[np.uint64]:
        begin = WORD_BYTES * w
        where = self._starts[part] + begin
        late = np.maximum(where - self._last, 0)
        found: npt.NDArray[np.uint64] = self._windows[where - late].view(">u8").astype(np.uint64)
        if late.any():
            # Too close to the end of the buffer to read eight bytes: read earlier ones and push them out.
            gone = np.minimum(late, WORD_BYTES)
            found <<= (8 * np.minimum(gone, 7)).astype(np.uint64)
            found[gone == WORD_BYTES] = 0
        if self.shortest < begin + WORD_BYTES:
            lengths = self._lengths if isinstance(self._lengths, int) else self._lengths[part]
            found &= _KEEP[np.clip(lengths - begin, 0, WORD_BYTES)]
        return found

    def _at_equal_distances(self, begin: int, size: int) -> npt.NDArray[np.uint64]:
        """Read the bytes from `begin` on of strings of one size, as every so many-th word of the buffer."""
        count = len(self)
        found = np.empty(count, np.uint64)
        if not count:
            return found
        place = int(self._starts[0]) + begin
        step = int(self._starts[1] - self._starts[0]) if count > 1 else size
        # Of the last strings eight bytes may reach beyond the buffer.
        inside = min(count, max(0, (self._last - place) // step + 1))
        if inside:
            found[:inside] = np.ndarray((inside,), ">u8", self._data.data, place, (step,))
        for row in range(inside, count):
            rest = self._data[place + row * step : place + row * step + WORD_BYTES].tobytes()
            found[row] = int.from_bytes(rest.ljust(WORD_BYTES, b"\0"), "big")
        if size < begin + WORD_BYTES:
            found &= _KEEP[size - begin]
        return found

    def agree_to(self, w: int, rows: IntArray | None, groups: UIntArray | None) -> int:
        """Return a word, `w` or later, before which every row agrees with the row before it in its group.

        Long stretches are compared at once, and longer ones while they agree.
        """
        stretch = _STRETCH
        while WORD_BYTES * w < self.longest:
            if self._agree(WORD_BYTES * w, stretch, rows, groups):
                w += stretch // WORD_BYTES
                stretch = min(4 * stretch, _GATHERED)
            elif stretch == _STRETCH:
                break
            else:
                stretch //= 4
        return w

    def _agree(self, begin: int, size: int, rows: IntArray | None, groups: UIntArray | None) -> bool:
        count = len(self) if rows is None else len(rows)
        step = max(1, _GATHERED // size)
        windows: npt.NDArray[Any] = np.ndarray(
            (max(0, len(self._data) - size + 1),), f"V{size}", self._data.data, 0, (1,)
        )
        for i in range(0, count - 1, step):
            stop = min(i + step, count - 1)
            pair = (
                np.arange(i, stop) if groups is None else i + np.flatnonzero(groups[i:stop] == groups[i + 1 : stop + 1])
            )
            first, second = (pair, pair + 1) if rows is None else (rows[pair], rows[pair + 1])
            reach = np.stack([self._reach(first), self._reach(second)])
            open_ = (reach > begin).any(axis=0)
            if (reach[:, open_] < begin + size).any():
                return False
            left, right = windows[self._starts[first[open_]] + begin], windows[self._starts[second[open_]] + begin]
            if not np.array_equal(left.view(np.uint8), right.view(np.uint8)):
                return False
        return True

    def _reach(self, rows: IntArray) -> IntArray:
        """Return the lengths of some rows."""
        return np.full(len(rows), self._lengths) if isinstance(self._lengths, int) else self._lengths[rows]

    def _has_nul(self) -> bool:
        return bool(len(self._data)) and int(self._data.min()) == 0


@dataclass(frozen=True)
class TextWord:
    """Eight bytes of each string, or what is left of the longest."""

    text: Text
    w: int
    descending: bool

    @property
    def bits(self) -> int:
        """See `Field`."""
        return 8 * min(WORD_BYTES, self.text.longest - WORD_BYTES * self.w)

    def read(self, rows: IntArray | None) -> UIntArray:
        """See `Field`."""
        word = self.text.word(self.w, rows)
        if self.descending:
            np.invert(word, out=word)
        if self.bits < 64:
            word >>= np.uint64(64 - self.bits)
        return word


class TextWords(Chain):
    """The words of strings from word `w` on."""

    def __init__(self, text: Text, w: int, descending: bool) -> None:
        self._text = text
        self._w = w
        self._descending = descending
        self.bits = 8 * text.longest - 64 * w

    def step(self, rows: IntArray | None, groups: UIntArray | None) -> tuple[Field, UIntArray, Chain | None] | None:
        """See `Chain`."""
        w = self._w
        while WORD_BYTES * w < self._text.longest:
            word = TextWord(self._text, w, self._descending)
            values = word.read(rows)
            differs = values[1:] != values[:-1]
            if groups is not None:
                differs &= groups[1:] == groups[:-1]
            if differs.any():
                after = TextWords(self._text, w + 1, self._descending)
                return word, values, after if after.bits > 0 else None
            w = self._text.agree_to(w + 1, rows, groups)
        return None


def from_array(values: npt.NDArray[Any]) -> Text:
    """Read a NumPy array of fixed-width bytes or code points (dtype S or U), where NULs at the end do not count."""
    if values.dtype.kind == "U":
        values = values.astype(values.dtype.newbyteorder(">"), copy=False)
    width = values.dtype.itemsize
    if not width:
        return Text(np.zeros(0, np.uint8), np.zeros(len(values), np.int64), 0, padded=True)
    step = values.strides[0]
    if len(values) < 2 or step <= width:
        values, step = np.ascontiguousarray(values), width
    # A field of records is read where it lies: from its first byte in the first of them to its last in the last.
    reach = (len(values) - 1) * step + width if len(values) else 0
    data = np.lib.stride_tricks.as_strided(values[:1].view(np.uint8), (reach,), (1,), writeable=False)
    return Text(data, np.arange(0, len(values) * step, step, dtype=np.int64), width, padded=True)


def from_arrow(array: Any, null: npt.NDArray[np.bool_] | None) -> Text:
    """Read an Arrow array of type large_binary or large_string.

    Parameters
    ----------
    array
        One chunk; slices are honoured.
    null
        True for null rows, or None.
    """
    n = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    if not n or offsets_buffer is None:
        return Text(np.zeros(0, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64))
    offsets: npt.NDArray[np.int64] = np.frombuffer(offsets_buffer, np.int64, count=n + 1, offset=8 * array.offset)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(data_buffer, np.uint8)[first:last] if data_buffer is not None else np.zeros(0, np.uint8)
    starts = offsets[:-1] if not first else offsets[:-1] - first
    lengths: IntArray = np.diff(offsets).astype(np.int32 if last - first < 1 << 31 else np.int64)
    if null is not None:
        lengths[null] = 0
    return Text(data, starts, lengths)
