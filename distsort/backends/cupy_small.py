"""Small sorts: one cooperative launch of radix_small.cu, in memory that is kept between launches."""

from __future__ import annotations

import functools
import threading
from typing import Any

import cupy
import numpy as np

from distsort.backends.cupy_launch import JOB, struct_argument
from distsort.kernels import policy
from distsort.kernels.instances import small_name
from distsort.kernels.loader import Kernel, kernels

FILE = "radix_small.cu"


class _Areas(threading.local):
    """Memory that small sorts share between launches, one area for each device and stream that a thread uses."""

    def __init__(self) -> None:
        self.areas: dict[tuple[int, int], _Area] = {}


class _Area:
    """Rows, flags and buffers of radix_small: zero at first, never cleared; launches on it follow one another."""

    def __init__(self) -> None:
        self.rows = policy.SMALL_BLOCKS * 2 * (policy.RADIX + 4) * 8
        self.words = self.rows + policy.SMALL_BLOCKS * 8
        self.payload = self.words + 2 * 8 * policy.SMALL_LIMIT
        self.memory = cupy.zeros(self.payload + 2 * 4 * policy.SMALL_LIMIT, np.uint8)
        self.base = int(self.memory.data.ptr)
        self.launches = 0


_local = _Areas()


@functools.cache
def _kernel(number: int, source: int, index: bool, items: int) -> Kernel:
    return kernels(FILE, (small_name(source, index, items),))[0]


def sort_small(values: Any, codec: policy.Codec, index_bytes: int = 0) -> Any:
    """Sort in one launch: the values, or with index_bytes of 4 or 8 their positions.

    Parameters
    ----------
    values
        Contiguous cupy array, shape (n,), 0 < n <= `policy.SMALL_LIMIT`, 1, 2, 4 or 8 bytes each.
    codec
        `policy.codec`, with `unified` for positions.
    index_bytes
        0: return the sorted values. 4 or 8: return positions, uint32 or int64.
    """
    n = values.size
    number = cupy.cuda.runtime.getDevice()
    key = (number, cupy.cuda.get_current_stream().ptr)
    area = _local.areas.get(key)
    if area is None:
        area = _local.areas[key] = _Area()
    area.launches = (area.launches + 1) & 0xFFFFFFF
    items = policy.small_items(n)
    kernel = _kernel(number, values.dtype.itemsize, index_bytes > 0, items)
    out = cupy.empty(n, (np.int64 if index_bytes == 8 else np.uint32) if index_bytes else values.dtype)
    words, payload = area.base + area.words, area.base + area.payload
    to = out.data.ptr
    packed = JOB.pack(
        n,
        values.data.ptr,
        0,
        words,
        words + 8 * policy.SMALL_LIMIT,
        payload,
        payload + 4 * policy.SMALL_LIMIT,
        *((0, to) if index_bytes else (to, 0)),
        *_NO_TABLES,
        codec.negative,
        codec.flip,
        codec.lift,
        codec.infinity,
        codec.nan,
        *_NO_SQUEEZE_NUMBERS,
        index_bytes,
        0,
        0,
        0,
    )
    blocks = -(-n // (policy.SMALL_THREADS * items))
    args = (struct_argument(packed), area.base, area.base + area.rows, np.uint32(area.launches))
    kernel(blocks, policy.SMALL_THREADS, args, together=True)
    return out


_NO_TABLES = (0, 0, 0, 0)
_NO_SQUEEZE_NUMBERS = (0,) * 9
