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

# Offsets are copied from a multiple of so many rows on: what the kernel loads begins at a multiple of 16 bytes. It ends
# at one, too, up to so many bytes beyond the last.
ALIGNED, BEYOND = 8, 64


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
    """A run on another GPU of which one stretch after the other is copied here, as offsets where they take less.

    Where everything comes from and goes to is known beforehand: each stretch is a few calls then, which take the host
    less time than the stretch takes the link. Offsets are made of the rows that a part wants if runs are alike; where
    keys are skewed a stretch can want others, and comes as keys.

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
        size, rows, turn = run.dtype.itemsize, last - first, np.arange(len(first)) % rooms
        source = there = run.data.ptr + first * size
        nbytes = rows * size
        narrow = np.zeros(len(first), bool)
        known: Offsets | None = run.data.mem.offsets
        if known is not None:
            width = known.values.dtype.itemsize
            row = _row(run) + first
            low, high = _covered(known, row, row + rows)
            narrow = _crossing(rows, high - low, size, width) < nbytes
            low -= low % ALIGNED
            source = np.where(narrow, known.values.data.ptr + (low - known.start) * width, there)
            nbytes = np.where(narrow, (high - low) * width, nbytes)
        largest = [int(nbytes[turn == room].max(initial=0)) for room in range(rooms)]
        self._rooms = [cupy.empty(n + BEYOND, np.uint8) for n in largest]
        here = np.array([room.data.ptr for room in self._rooms])[turn]
        self.keys = np.where(narrow, there, here)
        self._copies = _listed(source, here, nbytes)
        self.narrow = np.zeros((NARROW_FIELDS, len(first)), np.int64)
        if known is not None and narrow.any():
            self._ends = ends = cupy.empty_like(known.ends)
            copy_async(known.ends.data.ptr, ends.data.ptr, ends.nbytes, cupy.cuda.get_current_stream())
            blocks = ends.data.ptr - known.start // policy.NARROW_ROWS * 2 * size
            for at, value in enumerate((here - low * width, blocks, row, low, high, width, known.down)):
                self.narrow[at] = np.where(narrow, value, 0)

    def begin(self, stretch: int, stream: Any) -> None:
        """Begin to copy a stretch."""
        source, target, nbytes = self._copies[stretch]
        copy_async(source, target, nbytes, stream)


def crossing(run: Any) -> int:
    """Return how many bytes of a mapped array cross when it is copied by `Incoming`, for the most part."""
    known: Offsets | None = run.data.mem.offsets
    if known is None:
        return int(run.nbytes)
    row = _row(run)
    low, high = _covered(known, row, row + run.size)
    return int(min(run.nbytes, _crossing(run.size, high - low, run.dtype.itemsize, known.values.dtype.itemsize)))


def _row(run: Any) -> int:
    """Return which row of its run a slice begins with."""
    return int((run.data.ptr - run.data.mem.ptr) // run.dtype.itemsize)


def _covered(known: Offsets, row: Any, end: Any) -> tuple[Any, Any]:
    """Return the part of rows ``[row, end)`` that has offsets."""
    low = np.clip(row, known.start, known.stop)
    return low, np.maximum(low, np.minimum(end, known.stop))


def _crossing(rows: Any, covered: Any, size: int, width: int) -> Any:
    """Return the bytes that offsets take on the link; keys without are read one by one, and take twice their size."""
    return covered * width + 2 * (rows - covered) * size


def _listed(*columns: IntArray) -> list[tuple[int, ...]]:
    """Return the rows of a table as plain integers, which calls take faster than NumPy's."""
    return list(zip(*(column.tolist() for column in columns), strict=True))
