r"""Where a CSV file may be cut.

A line end may stand inside a quoted field, so blocks must not be cut at just any line end. Whether the n-th byte is
inside quotes depends on all quotes before it:

    k,txt\n3,"a\nb"\n1,"c,\n\nd"\n2,plain\n
              ^  inside: one quote before it         ^ outside: an even number before it

Counting quotes answers it exactly if every quote is regular: an opening one follows a delimiter, a line end or the
start of the file, a closing one precedes a delimiter, a line end, the end of the file or its own double. A large file
is looked through once, as bytes, for that; a file that has an irregular quote (``5" pipe``), or is compressed, is read
whole, and a note says so.

Chunks are looked through side by side. Which of its quotes open a field a chunk cannot know, but there are only two
ways, by whether an even or an odd number of quotes came before it. Each chunk is checked for both::

    chunks      | "a, 1, " | b", 2, "c | ", 3, 4  |
    quotes      | 2        | 2         | 1        |      regular if even, if odd: both are kept
    before      | 0        | 2         | 4        |      summed up in the end; then every line end is known, in or out
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
from dask.system import CPU_COUNT

_BLOCK, _BLOCKS = 1 << 19, 4
"""Bytes that are looked through together, in the cache; and how many such blocks a thread reads at a time."""

_THREADS = 8
"""At most; each takes some times the memory of its blocks."""

Read = Callable[[int, int], bytes]
"""Reads the bytes between two positions; called from several threads."""


def find_cuts(read: Read, start: int, stop: int, target: int, delimiter: str = ",") -> list[int] | None:
    """Find ends of records about `target` bytes apart.

    Parameters
    ----------
    read
        Of the file, which is looked through once.
    start, stop
        Where the first record begins, and where the file ends.
    target
        The least distance of two cuts.
    delimiter
        Between two fields.

    Returns
    -------
    list of int or None
        Positions after a line end that is outside quotes; None where a quote is irregular.
    """
    before = _quotes_before(read, start, stop, delimiter)
    if before is None:
        return None
    cuts: list[int] = []
    wanted = start + target
    while (end := _record_end(read, start, stop, before, wanted - 1)) is not None:
        cuts.append(end + 1)
        wanted = cuts[-1] + target
    return cuts


def unclosed(data: bytes, delimiter: str) -> int | None:
    """Return the place of a quote that opens a field and is never closed; None where there is none, or none is sure.

    Parameters
    ----------
    data
        Whole records, up to the end of a file.
    delimiter
        Between two fields.
    """
    if data.count(b'"') % 2 == 0:
        return None
    _, regular, _ = _quotes(np.frombuffer(b"\n" + data + b"\n", np.uint8), _bounds(delimiter))
    return data.rindex(b'"') if regular else None


def line_end(data: bytes, start: int, inside: bool = False) -> tuple[int | None, bool]:
    """Find the first line end outside quotes.

    Parameters
    ----------
    data, start
        Bytes, and where to begin in them.
    inside
        Whether that is inside quotes.

    Returns
    -------
    int or None, bool
        Where it is; whether the data ends inside quotes, if it is not there.
    """
    end = data.find(b"\n", start)
    while end >= 0:
        inside ^= data.count(b'"', start, end) % 2 == 1
        if not inside:
            return end, False
        start = end
        end = data.find(b"\n", end + 1)
    return None, inside ^ (data.count(b'"', start) % 2 == 1)


def _quotes_before(read: Read, start: int, stop: int, delimiter: str) -> npt.NDArray[np.int64] | None:
    """Count the quotes before each block of the file, and before its end; None where one is irregular."""
    edges = [*range(start, stop, _BLOCK * _BLOCKS), stop]
    before = [0]
    with ThreadPoolExecutor(min(CPU_COUNT, _THREADS)) as threads:
        looked = threads.map(lambda ends: _look(read, ends, (start, stop), delimiter), pairwise(edges))
        for count, *regular in chain.from_iterable(looked):
            if not regular[before[-1] % 2]:
                threads.shutdown(cancel_futures=True)
                return None
            before.append(before[-1] + count)
    return np.array(before)


def _look(read: Read, ends: tuple[int, int], whole: tuple[int, int], delimiter: str) -> list[tuple[int, bool, bool]]:
    """Say of each block between two places how many quotes it has, and whether all are regular: see `_quotes`."""
    (place, end), (start, stop) = ends, whole
    ahead, behind = place > start, end < stop
    chunk = read(place - ahead, end + behind)
    if b'"' not in chunk:
        return [(0, True, True)] * -(-(end - place) // _BLOCK)
    # A line end stands for the ends of the file.
    data = np.frombuffer(b"\n" * (not ahead) + chunk + b"\n" * (not behind), np.uint8)
    bounds = _bounds(delimiter)
    return [_quotes(data[at : at + _BLOCK + 2], bounds) for at in range(0, end - place, _BLOCK)]


def _bounds(delimiter: str) -> npt.NDArray[np.bool_]:
    """Tell of each byte whether it may stand before a quote that opens a field, and after one that closes it."""
    bounds = np.zeros(256, np.bool_)
    bounds[[ord(delimiter), ord("\n"), ord("\r"), ord('"')]] = True
    return bounds


def _quotes(data: npt.NDArray[np.uint8], bounds: npt.NDArray[np.bool_]) -> tuple[int, bool, bool]:
    """Count the quotes of a block, whose data has a byte more on either side; say if they are regular, both ways.

    Opening ones are every second one, from the first after an even number of quotes, from the second after an odd.
    """
    marks = np.flatnonzero(data[1:-1] == ord('"'))
    opens, closes = bounds.take(data.take(marks)), bounds.take(data.take(marks + 2))
    even = bool(opens[::2].all() and closes[1::2].all())
    return len(marks), even, bool(opens[1::2].all() and closes[::2].all())


def _record_end(read: Read, start: int, stop: int, before: npt.NDArray[np.int64], place: int) -> int | None:
    """Return the position of the first line end at or after `place` that is outside quotes."""
    if place >= stop:
        return None
    block = (place - start) // _BLOCK
    at, look = start + block * _BLOCK, (place - start) % _BLOCK
    inside = before[block] % 2 == 1
    while at < stop and (data := read(at, min(at + _BLOCK, stop))):
        end, inside = line_end(data, look, inside ^ (data.count(b'"', 0, look) % 2 == 1))
        if end is not None:
            return at + end
        at, look = at + len(data), 0
    return None
