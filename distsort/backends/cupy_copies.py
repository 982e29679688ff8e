"""Copies from memory of other GPUs, on streams of their own: the links are busy while the processors are, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import cupy

from distsort.blocks import Block
from distsort.columns import Columns

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


class Copies:
    """Arrays that are copied here on streams of their own, while others compute.

    Parameters
    ----------
    stack
        Keeps them until they are complete: their memory must not be given to anything else before.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._streams = _ahead_streams()
        self._kept: list[Any] = []
        self._done: list[Any] = []
        stack.callback(self._complete)

    def begin(self, array: Any) -> Any:
        """Begin to copy a contiguous array; the copy's memory is of the current stream."""
        copy = cupy.empty(array.shape, array.dtype)
        self._kept.append(copy)
        free = cupy.cuda.get_current_stream().record()
        for stream in self._streams:
            stream.wait_event(free)
        copy_async(array.data.ptr, copy.data.ptr, array.nbytes, self._streams)
        return copy

    def begin_block(self, block: Block) -> Block:
        """Begin to copy an array, or each of bare columns."""
        return block.map(self.begin) if isinstance(block, Columns) else self.begin(block)

    def begun(self) -> None:
        """Note that all has begun."""
        self._done = [stream.record() for stream in self._streams]

    def await_all(self) -> None:
        """Let the current stream wait for all that has begun."""
        for event in self._done:
            cupy.cuda.get_current_stream().wait_event(event)

    def _complete(self) -> None:
        for stream in self._streams:
            stream.synchronize()
        self._kept.clear()


@functools.cache
def _ahead_streams() -> list[Any]:
    return copy_streams()
