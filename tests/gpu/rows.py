"""The rows of evidence that one GPU can show, each beside its peer, in the order of their weight."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.gpu.ledger import Ledger

ONE_GPU = (
    "keys_u32",
    "keys_f32",
    "keys_u64",
    "keys_u64_24bit",
    "argsort_u32",
    "argsort_u64",
    "pairs_u32",
    "merge2_u32",
    "merge2_u64",
    "merge8_u64",
    "rows_f32",
    "small_u32",
)
NEEDS = 15
"""Seconds that a row may take; a few is usual, with the compilation of its kernels."""
REPEATS = 9


class Rows:
    """What is measured, one method for each kind of row."""

    def __init__(self, cub: str | None) -> None:
        import cupy

        from distsort.bench.measure import Cub, Timer

        self.cupy, self.cub, self.timed = cupy, Cub(cub), Timer(repeats=REPEATS)

    def beside(self, n: int, ours_ms: float, peer: str, peer_ms: float | None, unit: str = "Gkeys/s") -> dict[str, Any]:
        """Return the fields of a row."""

        def value(ms: float) -> float:
            return round(n / ms / 1e6 if unit == "Gkeys/s" else ms * 1e3, 3)

        made = {"n": n, "ours": value(ours_ms), "unit": unit, "peer": peer}
        if peer_ms is not None:
            made |= {"peer_value": value(peer_ms), "ratio": round(peer_ms / ours_ms, 3)}
        self.cupy.get_default_memory_pool().free_all_blocks()
        return made

    def keys(self, dtype: str, n: int, bits: int = 64, unit: str = "Gkeys/s") -> dict[str, Any]:
        """Sort keys alone."""
        from distsort.kernels import policy

        from distsort.backends import cupy_radix
        from distsort.bench.measure import draw

        keys = draw(n, dtype, bits=bits)
        codec = policy.codec(keys.dtype.kind, keys.dtype.itemsize)
        ours = self.timed(partial(cupy_radix.sort_keys, keys, codec))
        del keys
        peer = self.cub("sort_keys", dtype, n, bits=bits, repeats=REPEATS)
        return self.beside(n, ours, "CUB SortKeys", peer, unit)

    def argsort(self, dtype: str, n: int) -> dict[str, Any]:
        """Sort positions."""
        from distsort.kernels import policy

        from distsort.backends import cupy_radix
        from distsort.bench.measure import draw

        keys = draw(n, dtype)
        codec = policy.codec("u", keys.dtype.itemsize, unified=True)
        ours = self.timed(lambda: cupy_radix.argsort_keys(keys, codec))
        return self.beside(n, ours, "cupy.argsort", self.timed(lambda: self.cupy.argsort(keys)))

    def pairs(self, n: int) -> dict[str, Any]:
        """Sort keys and carry values."""
        from distsort.kernels import policy

        from distsort.backends import cupy_radix
        from distsort.bench.measure import draw

        pairs = draw(n, "u32"), draw(n, "u32", seed=2)
        ours = self.timed(partial(cupy_radix.sort_pairs, *pairs, policy.codec("u", 4)))
        del pairs
        return self.beside(n, ours, "CUB SortPairs", self.cub("sort_pairs", "u32", n, repeats=REPEATS))

    def merge(self, dtype: str, runs: int, n: int) -> dict[str, Any]:
        """Merge sorted runs."""
        from distsort.backends import cupy_merge
        from distsort.bench.measure import draw

        sorted_runs = [self.cupy.sort(draw(n // runs, dtype, seed=seed)) for seed in range(runs)]
        ours = self.timed(partial(cupy_merge.merge, sorted_runs, False))
        del sorted_runs
        if runs == 2:
            return self.beside(n, ours, "CUB DeviceMerge (unstable)", self.cub("merge", dtype, n, repeats=REPEATS))
        peer = self.cub("merge8", dtype, n, repeats=REPEATS)
        return self.beside(n, ours, "three rounds of CUB DeviceMerge", peer)

    def lines(self, rows: int, length: int) -> dict[str, Any]:
        """Sort many short rows."""
        from distsort.backends import cupy_rows

        table = self.cupy.random.RandomState(1).standard_normal((rows, length), dtype=self.cupy.float32)
        ours = self.timed(lambda: cupy_rows.sort_rows(table))
        peer = self.timed(lambda: self.cupy.sort(table, axis=1))
        return self.beside(table.size, ours, "cupy.sort(axis=1)", peer)


def measure(ledger: Ledger, cub: str | None) -> None:
    """Measure all rows; those that need no CUB first, while its program is compiled."""
    if not any(ledger.wants(row) for row in ONE_GPU):
        return
    rows = Rows(cub)
    n, small = 1 << 28, 1 << 16
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "argsort_u32": partial(rows.argsort, "u32", n),
        "argsort_u64": partial(rows.argsort, "u64", n),
        "rows_f32": partial(rows.lines, 1 << 20, 256),
        "keys_u32": partial(rows.keys, "u32", n),
        "keys_f32": partial(rows.keys, "f32", n),
        "keys_u64": partial(rows.keys, "u64", n),
        "keys_u64_24bit": partial(rows.keys, "u64", n, 24),
        "merge2_u32": partial(rows.merge, "u32", 2, 2 * n),
        "merge2_u64": partial(rows.merge, "u64", 2, 2 * n),
        "merge8_u64": partial(rows.merge, "u64", 8, n),
        "pairs_u32": partial(rows.pairs, n),
        "small_u32": partial(rows.keys, "u32", small, 64, "us"),
    }
    for row, make in work.items():
        ledger.measure(row, NEEDS, make)
