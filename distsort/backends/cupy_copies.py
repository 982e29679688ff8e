"""Copies from memory of other GPUs, on streams of their own: the links are busy while the processors are, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cupy

from distsort.backends.cupy_narrow import Offsets, widen
from distsort.kernels import policy

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

    Parameters
    ----------
    run
        A slice of mapped memory.
    length
        Rows of the longest stretch.
    rooms
        Stretches that may be under way.
    """

    def __init__(self, run: Any, length: int, rooms: int) -> None:
        self._memory = run.data.mem
        self._known: Offsets | None = self._memory.offsets
        room = length + policy.NARROW_ITEMS
        whole = rooms if self._known is None else 1
        self._keys = [cupy.empty(room, run.dtype) for _ in range(whole)]
        self._offsets: list[Any] = []
        if self._known is not None:
            self._ends = cupy.empty_like(self._known.ends)
            self._offsets = [cupy.empty(room, self._known.values.dtype) for _ in range(rooms)]
            memcpyAsync, kind = cupy.cuda.runtime.memcpyAsync, cupy.cuda.runtime.memcpyDefault
            stream = cupy.cuda.get_current_stream()
            memcpyAsync(self._ends.data.ptr, self._known.ends.data.ptr, self._ends.nbytes, kind, stream.ptr)

    def begin(self, piece: Any, room: int, streams: Sequence[Any]) -> None:
        """Begin to copy a stretch to one of the rooms."""
        if self._known is None:
            copy_async(piece.data.ptr, self._keys[room].data.ptr, piece.nbytes, streams)
            return
        first, last = self._covered(piece)
        there = self._known.values[first - self._known.start : last - self._known.start]
        copy_async(there.data.ptr, self._offsets[room].data.ptr, there.nbytes, streams)

    def arrive(self, piece: Any, room: int) -> Any:
        """Return the stretch that has come to a room; the current stream makes keys of offsets, if need be.

        It is good until the next one arrives.
        """
        if self._known is None or not len(piece):
            return self._keys[0 if self._known is not None else room][: len(piece)]
        first, last = self._covered(piece)
        row = self._row(piece)
        begin = row - row % policy.NARROW_ITEMS
        out = self._keys[0][: row + len(piece) - begin]
        copied = replace(self._known, values=self._offsets[room][: last - first], ends=self._ends)
        run = cupy.ndarray((1,), piece.dtype, cupy.cuda.MemoryPointer(self._memory, 0))
        widen(copied, first, run, begin, out)
        return out[row - begin :]

    def _row(self, piece: Any) -> int:
        return int(piece.data.ptr - self._memory.ptr) // int(piece.itemsize)

    def _covered(self, piece: Any) -> tuple[int, int]:
        """Return the rows of a stretch for which there are offsets; the first is a multiple of NARROW_ITEMS."""
        assert self._known is not None
        row = self._row(piece)
        first = min(max(row - row % policy.NARROW_ITEMS, self._known.start), self._known.stop)
        return first - first % policy.NARROW_ITEMS, max(first, min(row + len(piece), self._known.stop))
