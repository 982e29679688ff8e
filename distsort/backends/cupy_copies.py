"""Copies from memory of other GPUs, on a stream of their own: the links are busy while the processors are, too."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import cupy
import numpy as np
import numpy.typing as npt

from distsort.backends.cupy_narrow import Offsets
from distsort.kernels import policy

IntArray = npt.NDArray[np.int64]
T = TypeVar("T")

NARROW_FIELDS = 7
"""Numbers that struct Runs of merge_kway.cu has of the offsets of a run."""

# Offsets are copied from a multiple of so many rows on: what the kernel loads begins at a multiple of 16 bytes.
ALIGNED = 8


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Keep what a function makes; it is called once, even if threads ask at the same time."""
    lock, made = threading.Lock(), list[T]()

    @functools.wraps(make)
    def get() -> T:
        with lock:
            if not made:
                made.append(make())
            return made[0]

    return get


@once
def copy_stream() -> Any:
    """Return a stream for `copy_async`, which waits for none of the default stream's work."""
    return cupy.cuda.Stream(non_blocking=True)


def copy_async(source: int, target: int, nbytes: int, stream: Any) -> None:
    """Begin to copy `nbytes` from one address to another."""
    cupy.cuda.runtime.memcpyAsync(target, source, nbytes, cupy.cuda.runtime.memcpyDefault, stream.ptr)


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
    keys
        Addresses of the first key of each stretch: here, where it lies once it has arrived, good until the next one in
        its room does; of offsets there.
    narrow
        What else the merge is to know of the offsets of each stretch, as struct Runs of merge_kway.cu has it: int64,
        shape (NARROW_FIELDS, stretches); zeros without.
    """

    def __init__(self, run: Any, first: IntArray, last: IntArray, rooms: int) -> None:
        memory, size = run.data.mem, run.dtype.itemsize
        known: Offsets | None = memory.offsets
        length, turn = int((last - first).max(initial=0)), np.arange(len(first)) % rooms
        self.narrow = np.zeros((NARROW_FIELDS, len(first)), np.int64)
        there = run.data.ptr + first * size
        if known is None:
            self._kept = [cupy.empty(length, run.dtype) for _ in range(rooms)]
            self.keys = self._addresses(turn)
            self._copies = _listed(there, self.keys, (last - first) * size)
            return
        width = known.values.dtype.itemsize
        self.keys = there
        self._kept = [cupy.empty(length + 2 * ALIGNED, known.values.dtype) for _ in range(rooms)]
        row = (run.data.ptr - memory.ptr) // size + first
        low = np.clip(row, known.start, known.stop)
        low -= low % ALIGNED
        high = np.maximum(low, np.minimum(row + last - first, known.stop))
        rooms_of, ends = self._addresses(turn), cupy.empty_like(known.ends)
        self._copies = _listed(known.values.data.ptr + (low - known.start) * width, rooms_of, (high - low) * width)
        blocks = ends.data.ptr - known.start // policy.NARROW_ROWS * 2 * size
        for at, value in enumerate((rooms_of - low * width, blocks, row, low, high, width, known.down)):
            self.narrow[at] = value
        self._kept.append(ends)
        copy_async(known.ends.data.ptr, ends.data.ptr, ends.nbytes, cupy.cuda.get_current_stream())

    def _addresses(self, turn: IntArray) -> IntArray:
        return np.array([room.data.ptr for room in self._kept])[turn]

    def begin(self, stretch: int, stream: Any) -> None:
        """Begin to copy a stretch."""
        source, target, nbytes = self._copies[stretch]
        copy_async(source, target, nbytes, stream)


def crossing(run: Any) -> int:
    """Return how many bytes of a mapped array cross when it is copied by `Incoming`, for the most part."""
    known = run.data.mem.offsets
    return int(run.nbytes if known is None else run.size * known.values.dtype.itemsize)


def _listed(*columns: IntArray) -> list[tuple[int, ...]]:
    """Return the rows of a table as plain integers, which calls take faster than NumPy's."""
    return list(zip(*(column.tolist() for column in columns), strict=True))
