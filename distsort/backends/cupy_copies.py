"""Copies from memory of other GPUs, on streams of their own: the links are busy while the processors are, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy

from distsort.backends.cupy_narrow import Offsets, widen

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
        whole = 1 if self._known is not None else rooms
        self._keys = [cupy.empty(length, run.dtype) for _ in range(whole)]
        self._offsets = []
        if self._known is not None:
            self._offsets = [cupy.empty(length, self._known.values.dtype) for _ in range(rooms)]

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
        if self._known is None:
            return self._keys[room][: len(piece)]
        out = self._keys[0][: len(piece)]
        if len(piece):
            first, last = self._covered(piece)
            row = self._row(piece)
            copied = self._offsets[room][: last - first]
            whole = self._memory.size // piece.itemsize
            run = cupy.ndarray((whole,), piece.dtype, cupy.cuda.MemoryPointer(self._memory, 0))
            widen(self._known, copied, first, run, whole, (row, row + len(piece)), out)
        return out

    def _row(self, piece: Any) -> int:
        return int(piece.data.ptr - self._memory.ptr) // int(piece.itemsize)

    def _covered(self, piece: Any) -> tuple[int, int]:
        """Return the rows of a stretch for which there are offsets."""
        assert self._known is not None
        row = self._row(piece)
        first = min(max(row, self._known.start), self._known.stop)
        return first, max(first, min(row + len(piece), self._known.stop))
