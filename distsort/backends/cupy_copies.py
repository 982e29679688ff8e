"""Copies from memory of other GPUs, on streams of their own: the links are busy while the processors are, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from distsort.backends.cupy_narrow import Offsets, Widener
from distsort.kernels import policy

IntArray = npt.NDArray[np.int64]

# Streams that share the copy of a frame of so many bytes or more: one engine may not fill the links both ways.
COPY_STREAMS, COPY_SPLIT = 2, 1 << 26


def copy_streams() -> list[Any]:
    """Return streams for `copy_async`, which wait for none of the default stream's work."""
    return [cupy.cuda.Stream(non_blocking=True) for _ in range(COPY_STREAMS)]


def copy_async(source: int, target: int, nbytes: int, streams: Sequence[Any]) -> None:
    """Begin to copy `nbytes` from one address to another, by all streams where it is much."""
    parts = len(streams) if nbytes >= COPY_SPLIT else 1
    step = max(-(-nbytes // (256 * parts)), 1) * 256
    for at, stream in zip(range(0, nbytes, step), streams, strict=False):
        size, kind = min(step, nbytes - at), cupy.cuda.runtime.memcpyDefault
        cupy.cuda.runtime.memcpyAsync(target + at, source + at, size, kind, stream.ptr)


class Incoming:
    """A run on another GPU of which one stretch after the other is copied here, as offsets where there are some.

    Where everything comes from and goes to is known beforehand: each stretch is a few calls then, which take the host
    less time than the stretch takes the link.

    Parameters
    ----------
    run
        A slice of mapped memory.
    first, last
        The rows of the slice that each stretch needs: int64, shape (stretches,).
    rooms
        Stretches that may be under way.

    Attributes
    ----------
    places
        Addresses of the first key of each stretch once it has arrived, good until the next one does.
    """

    def __init__(self, run: Any, first: IntArray, last: IntArray, rooms: int) -> None:
        memory, size = run.data.mem, run.dtype.itemsize
        known: Offsets | None = memory.offsets
        length, turn = int((last - first).max(initial=0)), np.arange(len(first)) % rooms
        self._widener: Widener | None = None
        if known is None:
            self._kept = [cupy.empty(length, run.dtype) for _ in range(rooms)]
            self._rows: list[tuple[int, ...]] = []
            self._copies = _listed(run.data.ptr + first * size, self._addresses(turn), (last - first) * size)
            self.places = self._addresses(turn)
            return
        width, aligned = known.values.dtype.itemsize, policy.NARROW_ITEMS
        self._kept = [cupy.empty(length + 2 * aligned, known.values.dtype) for _ in range(rooms)]
        keys, ends = cupy.empty(length + aligned, run.dtype), cupy.empty_like(known.ends)
        row = (run.data.ptr - memory.ptr) // size + first
        stop = row + last - first
        begin = row - row % aligned
        low = np.clip(begin, known.start, known.stop)
        low -= low % aligned
        high = np.maximum(low, np.minimum(stop, known.stop))
        copied = self._addresses(turn)
        self._copies = _listed(known.values.data.ptr + (low - known.start) * width, copied, (high - low) * width)
        self._rows = _listed(copied, np.full_like(row, keys.data.ptr), low, high, begin, stop)
        self.places = keys.data.ptr + (row - begin) * size
        self._kept += [keys, ends]
        self._widener = Widener(known, size, memory.ptr, ends.data.ptr)
        stream, kind = cupy.cuda.get_current_stream(), cupy.cuda.runtime.memcpyDefault
        cupy.cuda.runtime.memcpyAsync(ends.data.ptr, known.ends.data.ptr, ends.nbytes, kind, stream.ptr)

    def _addresses(self, turn: IntArray) -> IntArray:
        return np.array([room.data.ptr for room in self._kept])[turn]

    def begin(self, stretch: int, streams: Sequence[Any]) -> None:
        """Begin to copy a stretch."""
        source, target, nbytes = self._copies[stretch]
        copy_async(source, target, nbytes, streams)

    def arrive(self, stretch: int) -> None:
        """Let the current stream, which has waited for the copy, make keys of offsets, if that is what has come."""
        if self._widener is not None:
            offsets, out, first, stop, begin, end = self._rows[stretch]
            if end > begin:
                self._widener(offsets, out, first, stop, begin, end)


def crossing(run: Any) -> int:
    """Return how many bytes of a mapped array cross when it is copied by `Incoming`, for the most part."""
    known = run.data.mem.offsets
    return int(run.nbytes if known is None else run.size * known.values.dtype.itemsize)


def _listed(*columns: IntArray) -> list[tuple[int, ...]]:
    """Return the rows of a table as plain integers, which calls take faster than NumPy's."""
    return list(zip(*(column.tolist() for column in columns), strict=True))
