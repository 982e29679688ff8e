"""Copies from memory of other GPUs, on streams of their own: the links are busy while the processors are, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy

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
