"""The merge's host side: runs, tables and launches.

    2..8 runs  --> merge_cuts --> merge_tiles                              one pass over memory
    more       --> in eights, neighbours together; the results again       a pass for each factor of eight

A run is an array in device memory, wherever it lies: slices of one array, arrays of their own, or memory of another
GPU that is mapped here. Absent runs of a launch (3 of 4, say) have length 0.

Of runs that lie on another GPU, much is copied before it is merged, stretch by stretch of the result, since a copy
engine fills the link better than the loads of a kernel do::

    copy    | 0 | 1 | 2 | 3 | ...          the next stretches cross while one is merged
    cuts        |0| |1| |2| |3| ...        of their tiles, few threads, before what the GPU is at
    merge         | 0 | 1 | 2 | 3 | ...    co-ranks tell what each stretch needs of each run

Memory beyond the inputs and the result: a table of 8 bytes a run for each tile of some thousands of keys; with more
than eight runs once more the result; three stretches of 128 MiB for runs on another GPU, more where they are skewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from distsort.backends.cupy_copies import NARROW_FIELDS, Incoming, copy_stream, crossing, once
from distsort.backends.cupy_ipc import is_mapped
from distsort.backends.cupy_keys import Coded, device_columns
from distsort.backends.cupy_launch import UNSIGNED, device
from distsort.backends.cupy_radix import cascade
from distsort.kernels import policy
from distsort.kernels.loader import kernels
from distsort.order import Order

FILE = "merge_kway.cu"
MOST_RUNS = 8

# Bytes that one stretch has to cross the link, on the average; so many stretches may be under way; rows of one at most.
STRETCH, ROOMS, STRETCH_ROWS = 1 << 27, 3, 1 << 31
RUN_FIELDS = 4  # numbers that struct Runs of merge_kway.cu has of whole keys; those of offsets follow
_CODEC = np.dtype((np.void, 40))  # struct Codec of keys.cuh


@dataclass(frozen=True)
class Run:
    """One sorted run: keys, and where it starts in the concatenation of all runs; values that go with the keys.

    Attributes
    ----------
    keys
        Contiguous cupy array, shape (n,).
    start
        Position of its first key.
    values
        Contiguous cupy array, shape (n,), of 4 or 8 bytes an element; None without.
    """

    keys: Any
    start: int
    values: Any = None


def merge(runs: Sequence[Any], descending: bool = False) -> Any:
    """Return the stable merge of sorted arrays, ties in the order of the runs.

    Parameters
    ----------
    runs
        Contiguous cupy arrays of one dtype (bool, integers, floats, dates), each sorted by NumPy's rules: NaN and NaT
        last in both directions.
    descending
        The order of the runs and of the result.

    Returns
    -------
    array
        cupy array of the runs' dtype, bit for bit their elements. A single run is returned as it is.
    """
    codec = policy.codec(runs[0].dtype.kind, runs[0].dtype.itemsize, descending, unified=True)
    far = [run for run in runs if is_mapped(run)]
    if 1 < len(runs) <= MOST_RUNS and sum(run.nbytes for run in far) >= 2 * STRETCH:
        return _merge_streamed(runs, codec, -(-sum(map(crossing, far)) // STRETCH))
    return _merge(_numbered(runs), codec, "NOTHING", True, None)[0]


def merge_pairs(runs: Sequence[Any], values: Sequence[Any], descending: bool = False) -> tuple[Any, Any]:
    """Return the stable merge of sorted keys, and their values in the same order.

    Parameters
    ----------
    runs
        As for `merge`.
    values
        For each run its values: contiguous, of 4 or 8 bytes an element, one dtype.
    """
    codec = policy.codec(runs[0].dtype.kind, runs[0].dtype.itemsize, descending, unified=True)
    return _merge(_numbered(runs, values), codec, "VALUES", True, values[0].dtype)


def merge_index(runs: Sequence[Any], descending: bool = False, dtype: npt.DTypeLike = np.int64) -> Any:
    """Return the gather index of the stable merge: positions in the concatenation of the runs.

    Parameters
    ----------
    runs
        As for `merge`.
    dtype
        uint32 or int64.
    """
    codec = policy.codec(runs[0].dtype.kind, runs[0].dtype.itemsize, descending, unified=True)
    return _merge(_numbered(runs), codec, "INDEX", False, np.dtype(dtype))[1]


def merge_order(words: Sequence[Coded], bounds: npt.NDArray[np.int64]) -> Any:
    """Return the stable order of rows that lie in sorted slices, by keys of one or several words.

    Keys of one word are merged. Those of several are sorted word by word: a merge would compare all words of a row at
    every step.

    Parameters
    ----------
    words
        The words of the keys, the most significant first, shape (n,) each.
    bounds
        Slice i is rows [bounds[i], bounds[i+1]).

    Returns
    -------
    index
        cupy int64, shape (n,).
    """
    if len(words) != 1:
        return cascade(words, int(bounds[-1]))
    slices = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    runs = [Run(words[0].values[a:b], a) for a, b in slices]
    return _merge(runs, words[0].codec, "INDEX", False, np.dtype(np.int64))[1]


def co_ranks(keys: Sequence[Any], order: Order, start: int, stop: int) -> npt.NDArray[np.int64] | None:
    """Return how many rows of each run are before two ranks of the stable merge, ties in the order of the runs.

    Parameters
    ----------
    keys
        For each run its key column on the device, in order; memory of other processes that is mapped here, too.
    order
        One key.
    start, stop
        The ranks, ``0 <= start <= stop <= N``.

    Returns
    -------
    int64, shape (R, 2)
        None for more than eight runs, and for keys that are not one word each, of one dtype.
    """
    words = [device_columns((key,), order) for key in keys] if len(keys) <= MOST_RUNS else []
    if not words or any(len(w) != 1 or w[0].values.dtype != words[0][0].values.dtype for w in words):
        return None
    runs, codec = [Run(word.values, 0) for (word,) in words], words[0][0].codec
    _, k, cuts_kernel, _ = _kernels(len(runs), runs[0].keys.dtype, codec, "NOTHING", None)
    ahead = _ahead()
    ahead.wait_event(cupy.cuda.get_current_stream().record())  # where keys may still be put in one piece
    with ahead:
        table = cupy.asarray(_table(runs, k))
        found = _cuts(cuts_kernel, table, _coded(codec), start, stop, stop - start, 2, k).get()
    return found.astype(np.int64)[:, : len(runs)].T


@once
def _ahead() -> Any:
    """Return the stream, and context, of what takes few threads and is waited for: before what else the GPU is at."""
    return cupy.cuda.Stream(non_blocking=True, priority=-1)


def _numbered(runs: Sequence[Any], values: Sequence[Any] | None = None) -> list[Run]:
    starts = np.cumsum([0, *map(len, runs)]).tolist()
    return [Run(run, starts[i], None if values is None else values[i]) for i, run in enumerate(runs)]


def _merge(
    runs: list[Run], codec: policy.Codec, carry: str, want_keys: bool, value_dtype: np.dtype[Any] | None
) -> tuple[Any, Any]:
    """Return keys (None when not wanted in the last round) and what is carried, merging eight runs at a time."""
    while len(runs) > MOST_RUNS:
        merged = []
        for first in range(0, len(runs), MOST_RUNS):
            group = runs[first : first + MOST_RUNS]
            keys, values = _launch(group, codec, carry, True, value_dtype)
            merged.append(Run(keys, group[0].start, values))
        runs = merged
        if carry == "INDEX":
            carry = "VALUES"  # from now on the indices that were made travel with the keys
    return _launch(runs, codec, carry, want_keys, value_dtype)


def _launch(
    runs: list[Run],
    codec: policy.Codec,
    carry: str,
    want_keys: bool,
    value_dtype: np.dtype[Any] | None,
) -> tuple[Any, Any]:
    """Merge up to eight runs in one pass."""
    total = sum(len(run.keys) for run in runs)
    dtype = runs[0].keys.dtype
    if len(runs) == 1 and carry != "INDEX":
        return runs[0].keys, runs[0].values
    out = cupy.empty(total, dtype) if want_keys else None
    carried = None if value_dtype is None else cupy.empty(total, value_dtype)
    if total == 0:
        return out, carried
    shape, k, cuts_kernel, tiles_kernel = _kernels(len(runs), dtype, codec, carry, value_dtype)
    tile = shape.tile(dtype.itemsize, k)
    table, coded = cupy.asarray(_table(runs, k)), _coded(codec)
    tiles = -(-total // tile)
    cuts = _cuts(cuts_kernel, table, coded, 0, total, tile, tiles + 1, k)
    pointers = tuple(np.uint64(0 if array is None else array.data.ptr) for array in (out, carried))
    tiles_kernel(
        tiles,
        shape.threads,
        (table, coded, np.uint64(total), cuts, *pointers),
        shape.shared(dtype.itemsize, k, carry != "NOTHING"),
    )
    return out, carried


def _kernels(
    runs: int,
    dtype: np.dtype[Any],
    codec: policy.Codec,
    carry: str,
    value_dtype: np.dtype[Any] | None,
    narrowed: bool = False,
) -> tuple[policy.MergeShape, int, Any, Any]:
    """Return shape, ways and the two kernels of a merge of up to eight runs."""
    k = next(k for k in (2, 4, 8) if k >= runs)
    capability, _ = device(cupy.cuda.runtime.getDevice())
    shape = policy.merge_shape(capability, dtype.itemsize, k, carry != "NOTHING")
    return shape, k, *kernels(FILE, kernel_names(shape, k, dtype, codec, carry, value_dtype, narrowed))


def _coded(codec: policy.Codec) -> Any:
    fields = (codec.negative, codec.flip, codec.lift, codec.infinity, codec.nan)
    return np.frombuffer(np.array(fields, np.uint64).tobytes(), _CODEC)


def _cuts(kernel: Any, table: Any, coded: Any, start: int, total: int, tile: int, count: int, k: int) -> Any:
    """Find the co-ranks of all runs at every `tile` rows of the result from `start` on: uint64, shape (count, k)."""
    cuts = cupy.empty((count, k), np.uint64)
    _cut_tiles(kernel, table, coded, start, total, tile, count, k, cuts)
    return cuts


def _cut_tiles(
    kernel: Any, table: Any, coded: Any, start: int, total: int, tile: int, count: int, k: int, cuts: Any
) -> None:
    """Do the same in memory that is there."""
    per_block = policy.MERGE_CUT_THREADS // (1 if k == 2 else k)
    arguments = (table, coded, *map(np.uint64, (start, total, tile)), np.uint32(count), cuts)
    kernel(-(-count // per_block), policy.MERGE_CUT_THREADS, arguments)


def _merge_streamed(runs: Sequence[Any], codec: policy.Codec, stretches: int) -> Any:
    """Merge runs of which some lie on another GPU, stretch by stretch, each copied while the one before is merged."""
    dtype, total = runs[0].dtype, sum(map(len, runs))
    size, coded, out = dtype.itemsize, _coded(codec), cupy.empty(total, dtype)
    shape, k, cuts_kernel, tiles_kernel = _kernels(len(runs), dtype, codec, "NOTHING", None)
    stretch = min(-(-total // (256 * stretches)) * 256, STRETCH_ROWS)  # whole lines: kernels write 16 bytes at a time
    stretches = -(-total // stretch)
    table = cupy.asarray(_table(_numbered(runs), k))
    cuts = _cuts(cuts_kernel, table, coded, 0, total, stretch, stretches + 1, k).get().astype(np.int64)
    far: list[Incoming] = []
    tables = np.zeros((stretches, RUN_FIELDS + NARROW_FIELDS, k), np.int64)
    for r, run in enumerate(runs):
        first, last = cuts[:-1, r], cuts[1:, r]
        tables[:, 0, r], tables[:, 1, r] = run.data.ptr + first * size, last - first
        if is_mapped(run):
            far.append(Incoming(run, first, last, ROOMS))
            tables[:, 0, r], tables[:, RUN_FIELDS:, r] = far[-1].keys, far[-1].narrow.T
    if tables[:, RUN_FIELDS:].any():
        _, _, cuts_kernel, tiles_kernel = _kernels(len(runs), dtype, codec, "NOTHING", None, narrowed=True)
    there, tile = cupy.asarray(tables), shape.tile(size, k)
    tile_cuts = [cupy.empty((-(-stretch // tile) + 1, k), np.uint64) for _ in range(ROOMS)]
    here, copying, ahead = cupy.cuda.get_current_stream(), copy_stream(), _ahead()
    free = [here.record() for _ in range(ROOMS)]
    for i in range(stretches):
        copying.wait_event(free[i % ROOMS])
        for incoming in far:
            incoming.begin(i, copying)
        ahead.wait_event(copying.record())
        rows, target = min(stretch, total - i * stretch), np.uint64(out.data.ptr + i * stretch * size)
        its_table, its_cuts = np.uint64(there.data.ptr + i * tables[0].nbytes), tile_cuts[i % ROOMS]
        tiles = -(-rows // tile)
        with ahead:
            _cut_tiles(cuts_kernel, its_table, coded, 0, rows, tile, tiles + 1, k, its_cuts)
        here.wait_event(ahead.record())
        arguments = (its_table, coded, np.uint64(rows), its_cuts, target, np.uint64(0))
        tiles_kernel(tiles, shape.threads, arguments, shape.shared(size, k, False))
        free[i % ROOMS] = here.record()
    return out


def _table(runs: list[Run], k: int) -> npt.NDArray[np.uint64]:
    """Return what struct Runs of merge_kway.cu reads of whole keys: addresses, lengths, starts, addresses of values."""
    table = np.zeros((RUN_FIELDS, k), np.uint64)
    for r, run in enumerate(runs):
        values = 0 if run.values is None else run.values.data.ptr
        table[:, r] = (run.keys.data.ptr, len(run.keys), run.start, values)
    return table


def kernel_names(
    shape: policy.MergeShape,
    k: int,
    dtype: np.dtype[Any],
    codec: policy.Codec,
    carry: str,
    value_dtype: np.dtype[Any] | None,
    narrowed: bool = False,
) -> tuple[str, str]:
    """Return the instantiations of merge_cuts and merge_tiles for a merge; `narrowed`: some runs come as offsets."""
    key = UNSIGNED[dtype.itemsize]
    value = "u32" if value_dtype is None else UNSIGNED[value_dtype.itemsize]
    plain = codec == policy.codec("u", 8)
    coding = "PLAIN" if plain else "FLIPPED" if not (codec.negative or codec.lift or codec.infinity) else "CODED"
    bulk, tail = str(shape.bulk).lower(), ", true" if narrowed else ""
    return (
        f"merge_cuts<{key}, {k}, {coding}{tail}>",
        f"merge_tiles<{key}, {value}, {k}, {shape.threads}, {shape.items}, {coding}, {carry}, {bulk}{tail}>",
    )
