"""Host side of the textbook's sorts and merges on a GPU (radix and merge ladder, merge sort, networks), by name.

    sort("radix_local_sort", keys, bits=4, coarsening=8)
    merge("merge_tiled", a, b)

They take unsigned integers and are here to be read and measured; `distsort.sort` uses the single-pass radix sort and
the k-way merge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distsort.errors import OptionError
from distsort.kernels import policy
from distsort.kernels.loader import kernels

_UNSIGNED = {4: "u32", 8: "u64", 16: "U128"}
_THREADS = policy.LADDER_THREADS
NETWORKS = ("bitonic", "odd_even_merge", "odd_even_transposition")
MERGES = ("merge_basic", "merge_tiled", "merge_circular")
NETWORK_BYTES = 48 << 10  # of shared memory: what one block gets without asking


class _Scan:
    """The grid-wide exclusive scan of one length, launched again and again over the same status words."""

    def __init__(self, n: int) -> None:
        import cupy

        self.n = n
        self._grid = -(-n // (_THREADS * policy.SCAN_ROWS))
        self._status, self._ticket = cupy.zeros(self._grid, np.uint64), cupy.zeros(1, np.uint32)
        self._epoch = 0
        (self._kernel,) = kernels("radix_ladder.cu", (f"exclusive_scan<{_THREADS}, {policy.SCAN_ROWS}>",))

    def __call__(self, values: Any) -> None:
        self._epoch += 1
        self._kernel(
            self._grid,
            _THREADS,
            (values, np.uint32(self.n), self._status, self._ticket, np.uint32(self._epoch)),
        )


def radix_1bit(keys: Any) -> Any:
    """Sort by one bit at a time: bits, exclusive scan over all of them, scatter; three launches a bit.

    Parameters
    ----------
    keys
        cupy array of uint32 or uint64, shape (n,); not modified.
    """
    import cupy

    n, key = keys.size, _UNSIGNED[keys.dtype.itemsize]
    bits_of, scatter = kernels(
        "radix_ladder.cu", (f"radix_bits<{key}, {_THREADS}>", f"radix_bit_scatter<{key}, {_THREADS}>")
    )
    bits, scan = cupy.empty(n + 1, np.uint32), _Scan(n + 1)
    grid = n // _THREADS + 1
    source, buffers = keys, [cupy.empty_like(keys), cupy.empty_like(keys)]
    for position in range(8 * keys.dtype.itemsize):
        target = buffers[position % 2]
        bits_of(grid, _THREADS, (source, bits, np.uint32(n), np.uint32(position)))
        scan(bits)
        scatter(grid, _THREADS, (source, bits, target, np.uint32(n), np.uint32(position)))
        source = target
    return source


def radix_rbit(keys: Any, bits: int = 4, coarsening: int = 1, scatter: bool = False) -> Any:
    """Sort by `bits` bits at a time: block-local sort, exclusive scan of the bucket table, placement.

    Parameters
    ----------
    keys
        cupy array of uint32 or uint64, shape (n,); not modified.
    bits
        Bits of a digit: 1, 2, 4 or 8.
    coarsening
        Keys of a thread, 1 to 16.
    scatter
        Write every key from where it was loaded, not from its place in the sorted tile.
    """
    import cupy

    if bits not in (1, 2, 4, 8) or not 1 <= coarsening <= policy.LADDER_COARSENING:
        raise OptionError(f"digits have 1, 2, 4 or 8 bits and coarsening goes to 16, not bits={bits}, {coarsening=}")
    n, key = keys.size, _UNSIGNED[keys.dtype.itemsize]
    tile = _THREADS * coarsening
    grid = -(-n // tile)
    block_sort, place = kernels(
        "radix_ladder.cu", (f"radix_block_sort<{key}, {_THREADS}>", f"radix_place<{key}, {_THREADS}>")
    )
    table = cupy.empty((grid << bits) + 1, np.uint32)
    scan = _Scan(table.size)
    slots = cupy.empty(n, np.uint16) if scatter else None
    buffers = [cupy.empty_like(keys), cupy.empty_like(keys)]
    shared = 2 * tile * (keys.dtype.itemsize + (2 if scatter else 0))
    source = keys
    for digit, position in enumerate(range(0, 8 * keys.dtype.itemsize, bits)):
        tail = (np.uint32(n), np.uint32(position), np.uint32(bits), np.uint32(coarsening))
        if scatter:  # from source to the buffer that is free
            tiles, target = source, buffers[digit % 2]
        else:  # through the sorted tiles, and back over what is no longer needed
            tiles, target = buffers
        block_sort(grid, _THREADS, (source, None if scatter else tiles, slots, table, *tail), shared)
        scan(table)
        place(grid, _THREADS, (tiles, slots, target, table, *tail))
        source = target
    return source


def merge_sort(keys: Any) -> Any:
    """Sort by merging: uint32 or uint64 of shape (n,), or 128-bit keys as uint64 of shape (n, 2), high word first."""
    return _merge_sort(keys, index=False)


def merge_argsort(keys: Any) -> Any:
    """Return the stable order of keys as `merge_sort` takes them: uint32, shape (n,), for n up to 2^32."""
    return _merge_sort(keys, index=True)


def _merge_sort(keys: Any, index: bool) -> Any:
    import cupy

    n, size = len(keys), keys.dtype.itemsize * (keys.shape[1] if keys.ndim == 2 else 1)
    key, flag = _UNSIGNED[size], str(index).lower()
    threads, items = policy.MERGE_SORT_THREADS, policy.MERGE_SORT_ITEMS
    tile, element = threads * items, policy.element_bytes(size, index)
    shape = f"<{key}, {flag}, {items}, {threads}>"
    tiles_kernel, cuts_kernel, pass_kernel = kernels(
        "merge_sort.cu",
        (f"merge_sort_tiles{shape}", f"merge_sort_cuts<Element<{key}, {flag}>::E>", f"merge_sort_pass{shape}"),
    )
    grid, shared = -(-n // tile), policy.padded_bytes(tile, element)
    order = cupy.empty(n, np.uint32) if index else None
    a = cupy.empty((n, element // 8) if element > 8 else n, f"u{min(element, 8)}")
    b = cupy.empty_like(a) if n > tile else None
    cuts = cupy.empty(grid, np.uint64)
    if n:
        tiles_kernel(grid, threads, (keys, a, order if grid == 1 else None, np.uint64(n)), shared)
    run = tile
    while run < n:
        cuts_kernel(-(-grid // threads), threads, (a, cuts, np.uint64(n), np.uint64(run), np.uint32(tile)))
        last = order if 2 * run >= n else None
        pass_kernel(grid, threads, (a, b, last, cuts, np.uint64(n), np.uint64(run)), shared)
        a, b = b, a
        run *= 2
    return order if index else a


def sort_by_network(keys: Any, network: str) -> Any:
    """Sort uint32 or uint64 keys of shape (n,) by one network in the shared memory of one block.

    Raises
    ------
    OptionError
        The keys take more than 48 KB.
    """
    import cupy

    if keys.nbytes > NETWORK_BYTES:
        raise OptionError(f"a network sorts up to {NETWORK_BYTES:,} bytes of keys in one block, not {keys.nbytes:,}")
    out = cupy.empty_like(keys)
    (kernel,) = kernels("merge_sort.cu", (f"sort_by_network<{_UNSIGNED[keys.dtype.itemsize]}>",))
    threads = min(1024, max(32, -(-keys.size // 64) * 32))  # a thread to each comparator
    if keys.size:
        kernel(1, threads, (keys, out, np.uint32(keys.size), np.int32(NETWORKS.index(network))), keys.nbytes)
    return out


RUNGS: dict[str, Callable[..., Any]] = {
    "radix_1bit": radix_1bit,
    "radix_scatter": lambda keys, **options: radix_rbit(keys, scatter=True, **options),
    "radix_local_sort": radix_rbit,
    "merge_sort": merge_sort,
    **{f"network_{name}": lambda keys, name=name: sort_by_network(keys, name) for name in NETWORKS},
}


def sort(name: str, keys: Any, **options: Any) -> Any:
    """Sort unsigned keys by the rung of that name.

    Parameters
    ----------
    name
        One of `RUNGS`.
    keys
        cupy array of uint32 or uint64, shape (n,), n + 1 < 2^32; not modified.
    options
        ``bits`` and ``coarsening`` for the r-bit radix sorts.

    Raises
    ------
    OptionError
        An unknown name, or options out of range.
    """
    if name not in RUNGS:
        raise OptionError(f"unknown sort {name!r}: choose one of {', '.join(RUNGS)}")
    return RUNGS[name](keys, **options) if keys.size else keys.copy()


def merge(name: str, a: Any, b: Any) -> Any:
    """Merge two sorted arrays stably by the rung of that name.

    Parameters
    ----------
    name
        One of `MERGES`: each thread in global memory; tiles in shared memory; tiles whose rest is kept.
    a, b
        cupy arrays of uint32 or of uint64, sorted, shapes (m,) and (n,).

    Raises
    ------
    OptionError
        An unknown name.
    """
    import cupy

    if name not in MERGES:
        raise OptionError(f"unknown merge {name!r}: choose one of {', '.join(MERGES)}")
    out = cupy.empty(a.size + b.size, a.dtype)
    if not out.size:
        return out
    (kernel,) = kernels("merge_ladder.cu", (f"{name}<{_UNSIGNED[a.dtype.itemsize]}>",))
    args = (a, np.int64(a.size), b, np.int64(b.size), out)
    if name == "merge_basic":
        kernel(-(-out.size // (_THREADS * policy.MERGE_BASIC_ITEMS)), _THREADS, args)
    else:
        tile = policy.MERGE_LADDER_TILE
        sections = min(policy.MERGE_LADDER_BLOCKS, -(-out.size // tile))
        kernel(sections, _THREADS, (*args, np.uint32(tile)), 2 * tile * a.dtype.itemsize)
    return out
