r"""Where a CSV file may be cut.

A line end may stand inside a quoted field, so blocks must not be cut at just any line end. Whether the n-th byte is
inside quotes depends on all quotes before it:

    k,txt\n3,"a\nb"\n1,"c,\n\nd"\n2,plain\n
              ^  inside: one quote before it         ^ outside: an even number before it

Counting quotes answers it exactly if every quote is regular: an opening one follows a delimiter, a line end or the
start of the file, a closing one precedes a delimiter, a line end, the end of the file or its own double. A large file
is looked through once, as bytes, for that; a file that has an irregular quote (``5" pipe``), or is compressed, is read
whole, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import numpy as np
import numpy.typing as npt

# Bytes looked through at a time.
_CHUNK = 1 << 24


def find_cuts(file: IO[bytes], start: int, target: int, delimiter: str = ",") -> list[int] | None:
    """Find ends of records about `target` bytes apart.

    Parameters
    ----------
    file
        Its bytes from `start` on are looked through once.
    start
        Where the first record begins.
    target
        The least distance of two cuts.
    delimiter
        Between two fields.

    Returns
    -------
    list of int or None
        Positions after a line end that is outside quotes; None where a quote is irregular.
    """
    cuts: list[int] = []
    wanted = start + target
    quotes = 0
    for place, chunk, before, after in _chunks(file, start):
        marks: npt.NDArray[np.intp] = np.empty(0, np.intp)
        if b'"' in chunk:
            data = np.frombuffer(chunk, np.uint8)
            marks = np.flatnonzero(data == ord('"'))
            if not _regular(data, marks, quotes, before, after, delimiter):
                return None
        end = chunk.find(b"\n", max(wanted - place - 1, 0))
        while end >= 0:
            after_end = end + 1
            if (quotes + int(np.searchsorted(marks, end))) % 2 == 0:
                cuts.append(place + after_end)
                wanted = cuts[-1] + target
                after_end = max(after_end, wanted - place - 1)
            end = chunk.find(b"\n", after_end)
        quotes += len(marks)
    return cuts


def _chunks(file: IO[bytes], start: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Yield (position, bytes, byte before them, byte after them); a line end stands for the ends of the file."""
    file.seek(start)
    place, before = start, ord("\n")
    chunk = file.read(_CHUNK)
    while chunk:
        following = file.read(_CHUNK)
        yield place, chunk, before, following[0] if following else ord("\n")
        place, before, chunk = place + len(chunk), chunk[-1], following


def _regular(
    data: npt.NDArray[np.uint8], marks: npt.NDArray[np.intp], quotes: int, before: int, after: int, delimiter: str
) -> bool:
    """Whether the quotes at `marks` open and close fields, given how many there were before."""
    ends = np.zeros(256, np.bool_)
    ends[[ord(delimiter), ord("\n"), ord("\r"), ord('"')]] = True
    opening, closing = marks[quotes % 2 :: 2], marks[1 - quotes % 2 :: 2]
    # The bytes beside the first and the last one stand in other chunks.
    if len(opening) and opening[0] == 0:
        if not ends[before]:
            return False
        opening = opening[1:]
    if len(closing) and closing[-1] == len(data) - 1:
        if not ends[after]:
            return False
        closing = closing[:-1]
    return bool(ends[data[opening - 1]].all() and ends[data[closing + 1]].all())
