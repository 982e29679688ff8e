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
        bytes_ = np.frombuffer(chunk, np.uint8)
        marks = np.flatnonzero(bytes_ == ord('"'))
        if len(marks) and not _regular(bytes_, marks, quotes, before, after, delimiter):
            return None
        if place + len(chunk) >= wanted:
            ends = np.flatnonzero(bytes_ == ord("\n"))
            outside = (quotes + np.searchsorted(marks, ends)) % 2 == 0
            for end in ends[outside].tolist():
                if place + end + 1 >= wanted:
                    cuts.append(place + end + 1)
                    wanted = cuts[-1] + target
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
    opening = (quotes + np.arange(len(marks))) % 2 == 0
    padded = np.concatenate([[before], data, [after]])
    left, right = padded[marks], padded[marks + 2]
    ends = [ord(delimiter), ord("\n"), ord("\r"), ord('"')]
    return bool(np.isin(left[opening], ends).all() and np.isin(right[~opening], ends).all())
