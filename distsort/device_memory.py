"""Where the arrays of a sort on a GPU come from, and when they are complete.

cudf makes cupy allocate through RMM, and RMM, unless it was given a pool, asks the driver for each array: some
milliseconds for a few GiB, and a wait for the whole device when it is freed, as much as the sort itself takes. So what
a sort allocates comes from cupy's own pool then, as it would without cudf; where RMM has a pool, that is used.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

POOL_SHARE = 0.25
"""Share of the device that cupy's pool may keep unused beside an RMM that has none of it."""

lent = False
"""Whether other processes may have memory of this one mapped; then `empty_pool` is for who knows when they let go."""


@contextmanager
def device_work(here: bool, wait: bool = True) -> Iterator[None]:
    """Make arrays on the device: from a pool, and complete when the context ends, so that others may read them.

    Parameters
    ----------
    here
        Whether there is any such work; if not, nothing happens.
    wait
        False for who tells by an event of its own when they are complete.
    """
    if not here:
        yield
        return
    import cupy

    beside_rmm = _rmm_without_pool()
    pool = cupy.get_default_memory_pool()
    with cupy.cuda.using_allocator(pool.malloc) if beside_rmm else nullcontext():
        yield
        if wait:
            cupy.cuda.get_current_stream().synchronize()
    if wait and beside_rmm and not lent and pool.free_bytes() > POOL_SHARE * device_memory():
        pool.free_all_blocks()


def empty_pool() -> None:
    """Give back what cupy's pool keeps beside an RMM that has none of it."""
    if _rmm_without_pool():
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


def _rmm_without_pool() -> bool:
    """Whether cupy allocates through an RMM that asks the driver for each array."""
    rmm: Any = sys.modules.get("rmm")
    if rmm is None:
        return False
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    if cupy.cuda.get_allocator() != rmm_cupy_allocator:
        return False
    return type(rmm.mr.get_current_device_resource()) is rmm.mr.CudaMemoryResource


@functools.cache
def device_memory() -> int:
    """Return the size of this process's GPU, in bytes."""
    import cupy

    return int(cupy.cuda.runtime.memGetInfo()[1])
