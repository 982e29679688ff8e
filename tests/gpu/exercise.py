"""A small, checked run of every kernel: what compute-sanitizer watches.

``compute-sanitizer --tool memcheck python -m tests.gpu.exercise``. Arrays come from plain allocations, so that an
access beyond one of them is seen; inputs are made on the host, so that little but our kernels is watched. The methods
that production takes for large inputs only are made to run on small ones. At the end every kernel of the sources must
have run. ``--small``: a third of the keys and fewer kinds of them, for racecheck, which follows every access.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SMALL = "--small" in sys.argv[1:]
KEYS = 9011 if SMALL else 30011  # one tile and more of every kernel, several of most
MERGED = 6007 if SMALL else 20011


def main() -> None:
    import cupy
    from distsort.kernels import loader

    cupy.cuda.set_allocator(None)
    rng = np.random.default_rng(1)
    for kernels in (ladder, rows, radix, merges):
        start = time.perf_counter()
        kernels(cupy, rng)
        cupy.cuda.Device().synchronize()
        print(f"{kernels.__name__}: right, {time.perf_counter() - start:.1f} s", flush=True)
    launched = {re.split("[<(]", name)[0] for module in loader.cache_info() for name in module["kernels"]}
    written = kernels_of(Path(loader.FOLDER))
    missing = sorted(written - launched)
    if missing:
        raise SystemExit(f"these kernels were not run: {', '.join(missing)}")
    print(f"{len(written)} kernels ran, in {sum(len(m['kernels']) for m in loader.cache_info())} instantiations")


def kernels_of(folder: Path) -> set[str]:
    """Return the names of all kernels in a folder's sources."""
    text = re.sub(r"//[^\n]*", "", "".join(path.read_text() for path in folder.glob("*.cu*")))
    bounds = r"__launch_bounds__\((?:[^()]|\([^()]*\))*\)"
    return set(re.findall(r"__global__\s+void\s+(\w+)\s*\(", re.sub(bounds, "", text)))


def words(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    return rng.integers(0, np.iinfo(dtype).max, n, dtype, endpoint=True)


def same(got: Any, expected: np.ndarray, what: str) -> None:
    got = got.get()
    unsigned = f"u{expected.dtype.itemsize}"
    if not np.array_equal(got.view(unsigned), expected.view(unsigned)):
        raise SystemExit(f"wrong result: {what}")


def ladder(cupy: Any, rng: np.random.Generator) -> None:
    from distsort.backends import cupy_ladder

    for dtype in ("u4", "u8"):
        keys = words(rng, 1500, dtype)
        for name in cupy_ladder.RUNGS:
            options = {"bits": 8, "coarsening": 3} if name in ("radix_scatter", "radix_local_sort") else {}
            same(cupy_ladder.sort(name, cupy.asarray(keys), **options), np.sort(keys), name)
        a, b = np.sort(keys[:700]), np.sort(keys[700:])
        for name in cupy_ladder.MERGES:
            same(cupy_ladder.merge(name, cupy.asarray(a), cupy.asarray(b)), np.sort(keys), name)
    wide = np.stack([words(rng, 5000, "u8") % 7, words(rng, 5000, "u8")], axis=1)
    order = np.lexsort((wide[:, 1], wide[:, 0]))
    same(cupy_ladder.merge_sort(cupy.asarray(wide)), wide[order], "merge_sort, 128 bits")
    same(cupy_ladder.merge_argsort(cupy.asarray(wide)), order.astype(np.uint32), "merge_argsort, 128 bits")


def floats(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Return random bits with both zeros and NaNs of many kinds: what makes the repairs run."""
    size = np.dtype(dtype).itemsize
    values = words(rng, n, f"u{size}").view(dtype)
    values[rng.random(n) < 0.1] = 0.0
    values[rng.random(n) < 0.1] = -0.0
    return values


def rows(cupy: Any, rng: np.random.Generator) -> None:

    from distsort.backends import cupy_rows

    for dtype in ("f4", "f8") if SMALL else ("f2", "f4", "f8"):
        for n in (5, 200, 1000):
            values = floats(rng, 7 * n, dtype).reshape(7, n)
            order = np.argsort(values, axis=1, kind="stable")
            given = cupy.asarray(values)
            expected = np.take_along_axis(values, order, axis=1)
            same(cupy_rows.sort_rows(given), expected, f"sort_rows {dtype} {n}")
            same(cupy_rows.argsort_rows(given), order, f"argsort_rows {dtype} {n}")


def radix(cupy: Any, rng: np.random.Generator) -> None:
    from distsort.kernels import policy

    from distsort.backends import cupy_radix

    def check(values: np.ndarray, what: str) -> None:
        kind, size = values.dtype.kind, values.dtype.itemsize
        order = np.argsort(values, kind="stable")
        plain, unified = policy.codec(kind, size), policy.codec(kind, size, unified=True)
        given = cupy.asarray(values)
        same(cupy_radix.sort_keys(given, plain), values[order], f"sort_keys {what}")
        same(cupy_radix.argsort_keys(given, unified), order, f"argsort_keys {what}")
        before = rng.permutation(values.size)
        cascaded = before[np.argsort(values[before], kind="stable")]
        got = cupy_radix.argsort_keys(given, unified, cupy.asarray(before.astype(np.uint32)))
        same(got, cascaded, f"argsort_keys by positions {what}")
        if kind == "u" and size >= 4:
            for width in ("u4", "u8"):
                carried = words(rng, values.size, width)
                out = cupy_radix.sort_pairs(given, cupy.asarray(carried), plain)
                same(out[0], values[order], f"sort_pairs {what}")
                same(out[1], carried[order], f"sort_pairs {what}, values")

    few_bits = np.uint64(0x00000F00F0000FF0)

    def inputs(n: int) -> list[np.ndarray]:
        wide = [words(rng, n, "u8"), words(rng, n, "u8") & few_bits, np.full(n, 7, np.uint64), floats(rng, n, "f8")]
        return [words(rng, n, "u4"), words(rng, n, "u4") & np.uint32(0x00F00F00), floats(rng, n, "f4"), *wide]

    narrow = [words(rng, KEYS, "u1"), words(rng, KEYS, "u2"), floats(rng, KEYS, "f2")]
    kept = policy.SMALL_LIMIT, policy.read_plan_from, policy.SAMPLE
    try:
        for values in narrow + inputs(KEYS):
            check(values, f"{values.dtype}, one launch")
        policy.SMALL_LIMIT = 0
        for values in narrow + inputs(KEYS):
            check(values, f"{values.dtype}, passes")
        if SMALL:
            policy.SAMPLE = 1 << 12
        policy.read_plan_from = lambda size: policy.SAMPLE + 1  # methods chosen from the plan, and from a sample
        for values in inputs(policy.SAMPLE + 5001):
            check(values, f"{values.dtype}, chosen")
    finally:
        policy.SMALL_LIMIT, policy.read_plan_from, policy.SAMPLE = kept


def merges(cupy: Any, rng: np.random.Generator) -> None:
    from distsort.backends import cupy_merge
    from distsort.backends.cupy_keys import device_columns
    from distsort.order import array_order

    for dtype in ("u4", "u8", "f4", "f8"):
        for k in (2, 3, 11) if SMALL else (2, 3, 8, 11):
            values = floats(rng, MERGED, dtype) if dtype[0] == "f" else words(rng, MERGED, dtype) % 1000
            bounds = np.array([0, *np.sort(rng.integers(0, values.size, k - 1)), values.size])
            runs = [run[np.argsort(run, kind="stable")] for run in np.split(values, bounds[1:-1])]
            whole = np.concatenate(runs)
            order = np.argsort(whole, kind="stable")
            given = [cupy.asarray(run) for run in runs]
            same(cupy_merge.merge(given), whole[order], f"merge {k} {dtype}")
            same(cupy_merge.merge_index(given), order, f"merge_index {k} {dtype}")
            carried = [words(rng, run.size, "u8") for run in runs]
            keys, moved = cupy_merge.merge_pairs(given, [cupy.asarray(c) for c in carried])
            same(keys, whole[order], f"merge_pairs {k} {dtype}")
            same(moved, np.concatenate(carried)[order], f"merge_pairs {k} {dtype}, values")
            columns = device_columns((cupy.asarray(whole),), array_order(False))
            got = cupy_merge.merge_order(columns, bounds.astype(np.int64))
            same(got.astype(np.int64), order, f"merge_order {k} {dtype}")
    narrowed(cupy, rng)


def narrowed(cupy: Any, rng: np.random.Generator) -> None:
    """Merge a run that lies here with one whose keys come as offsets, those of a share, in several stretches."""
    from distsort.backends import cupy_ipc, cupy_merge, cupy_narrow

    kept, cupy_merge.STRETCH = cupy_merge.STRETCH, MERGED // 2
    try:
        for dtype, top, width in (("u4", MERGED, 2), ("i8", MERGED, 2), ("i8", MERGED << 18, 4)):
            for down in (False, True):
                runs = [np.sort(rng.integers(0, top, MERGED).astype(dtype)) for _ in range(2)]
                runs[1][MERGED // 2 :] += 1 << 30  # a block that does not fit 2 bytes
                here, there = (cupy.asarray(np.ascontiguousarray(run[::-1]) if down else run) for run in runs)
                memory = cupy_ipc.Mapped(there.data.ptr, there.nbytes, there, 0)
                memory.offsets = cupy_narrow.offsets_for(there, down, (0.3, 0.9), width)
                cupy_narrow.narrow(there, memory.offsets)
                mapped = cupy.ndarray(there.shape, there.dtype, cupy.cuda.MemoryPointer(memory, 0))
                whole = np.sort(np.concatenate(runs))
                found = cupy_merge.merge([here, mapped], down)
                same(found, whole[::-1] if down else whole, f"narrow {dtype} {top} {down}")
    finally:
        cupy_merge.STRETCH = kept


if __name__ == "__main__":
    main()
