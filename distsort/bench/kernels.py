"""Measure the kernels on a GPU: the ladder rung by rung, and production beside cupy, torch and CUB.

    part          varies                            methods
    ladder        rung, at one size                 radix rungs, merge sort, production, peers
    size          n                                 production, peers
    entropy       1.0 / 0.5 / 0.2 / constant        production, peers
    radix         1, 2, 4, 8 bits a digit           local sort
    coarsening    1 to 16 keys a thread             local sort, scatter
    merge         rung                              merge rungs, production, peer
    small         n, up to one block                networks, block sort, production, peers

Every time is the median of `repeats` runs between two CUDA events, warm, on data that no cache holds: a copy of 1 GiB
goes first, which also keeps the GPU busy while the host prepares the launches. `claims` puts a number to each claim of
the textbook.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from distsort.bench.measure import DTYPES, Cub, Timer, draw
from distsort.errors import OptionError

PARTS = ("ladder", "size", "entropy", "radix", "coarsening", "merge", "small")
WORDS = {"1.0": 1, "0.5": 3, "0.2": 5, "constant": 0}  # random words and-ed: bits of entropy per bit .81 at 2, .54 at 3


@dataclass(frozen=True)
class Options:
    """What to measure.

    Attributes
    ----------
    parts
        Some of `PARTS`.
    sizes
        Numbers of keys for the part "size"; the others use the largest of them.
    dtype
        One of `DTYPES`. The ladder takes unsigned keys; other dtypes are measured in production and peers only.
    entropies
        Some of `WORDS`.
    radix_bits, coarsening
        What the parts "radix" and "coarsening" go through.
    repeats
        Timed runs.
    cub
        ``tests/bench/cub_peer.cu`` (compiled when nvcc is there) or the program made from it; None: no CUB.
    """

    parts: tuple[str, ...] = PARTS
    sizes: tuple[int, ...] = tuple(1 << k for k in range(16, 31, 2))
    dtype: str = "u32"
    entropies: tuple[str, ...] = tuple(WORDS)
    radix_bits: tuple[int, ...] = (1, 2, 4, 8)
    coarsening: tuple[int, ...] = (1, 2, 4, 8, 16)
    repeats: int = 7
    cub: str | None = None


@dataclass
class Report:
    """What was measured: one dict for each time, with units in the names."""

    date: str
    gpu: str
    dtype: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ms(self, part: str, method: str, **where: Any) -> float | None:
        """Return the milliseconds of one row, None when it was not measured."""
        wanted = {"part": part, "method": method, **where}
        return next((r["ms"] for r in self.rows if wanted.items() <= r.items()), None)

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.__dict__, indent=1)


class Bench:
    """One run over all parts."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.time = Timer(options.repeats)
        self.cub = Cub(options.cub)
        self.cupy = self.time.cupy
        name = self.cupy.cuda.runtime.getDeviceProperties(self.cupy.cuda.runtime.getDevice())["name"].decode()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self.report = Report(today, name, options.dtype)
        if self.cub.program is None:
            self.report.notes.append("CUB was not measured: give --cub tests/bench/cub_peer.cu")
        try:
            import torch

            self.torch = torch if torch.cuda.is_available() else None
        except ImportError:
            self.torch = None
        if self.torch is None:
            self.report.notes.append("torch.sort was not measured: torch is not installed, or has no CUDA")

    def row(self, part: str, method: str, n: int, ms: float | None, **where: Any) -> None:
        """Keep one time."""
        if ms is not None:
            row = {
                "part": part,
                "method": method,
                "n": n,
                **where,
                "ms": round(ms, 5),
                "gkeys_per_s": round(n / ms / 1e6, 3),
            }
            self.report.rows.append(row)

    def production(self, keys: Any) -> Callable[[], Any]:
        """Return the sort that `distsort.sort` runs on a GPU chunk, without the wait for its end."""
        from distsort.backends import cupy_radix, cupy_rows
        from distsort.backends.cupy import ROW_ALONE
        from distsort.kernels import policy

        if keys.size <= ROW_ALONE:
            return partial(cupy_rows.sort_rows, keys.reshape(1, -1))
        return partial(cupy_radix.sort_keys, keys, policy.codec(keys.dtype.kind, keys.dtype.itemsize))

    def beside(self, part: str, n: int, words: int = 1, **where: Any) -> None:
        """Measure production and its peers on the same kind of keys."""
        keys = draw(n, self.options.dtype, words)
        self.row(part, "distsort", n, self.time(self.production(keys)), **where)
        self.row(part, "cupy.sort", n, self.time(lambda: self.cupy.sort(keys)), **where)
        if (torch := self.torch) is not None:
            signed = torch.from_dlpack(keys.view(f"i{keys.dtype.itemsize}") if keys.dtype.kind == "u" else keys)
            self.row(part, "torch.sort", n, self.time(lambda: torch.sort(signed)), **where)
        cub = self.cub("sort_keys", self.options.dtype, n, words, repeats=self.options.repeats)
        self.row(part, "CUB SortKeys", n, cub, **where)

    def rung(self, part: str, name: str, keys: Any, **where: Any) -> None:
        """Measure one rung of the ladder; the slow ones three times only."""
        from distsort.backends import cupy_ladder

        ms = self.time(lambda: cupy_ladder.sort(name, keys, **where), 3 if keys.size > 1 << 24 else 0)
        self.row(part, name, keys.size, ms, **where)

    @property
    def climbs(self) -> bool:
        """Whether the ladder takes this dtype."""
        return self.options.dtype in ("u32", "u64")

    def ladder(self) -> None:
        """Every rung at one size, from the textbook's first to production."""
        n = max(self.options.sizes)
        if self.climbs:
            keys = draw(n, self.options.dtype)
            self.rung("ladder", "radix_1bit", keys)
            for coarsening in (1, 16):
                self.rung("ladder", "radix_scatter", keys, bits=4, coarsening=coarsening)
                self.rung("ladder", "radix_local_sort", keys, bits=4, coarsening=coarsening)
            self.rung("ladder", "merge_sort", keys)
            del keys
        self.beside("ladder", n)

    def size(self) -> None:
        """Production and peers over sizes."""
        for n in self.options.sizes:
            self.beside("size", n)

    def entropy(self) -> None:
        """Production and peers over entropies."""
        for entropy in self.options.entropies:
            self.beside("entropy", max(self.options.sizes), WORDS[entropy], entropy=entropy)

    def radix(self) -> None:
        """Bits of a digit: fewer trips through memory against a longer table and shorter runs."""
        for keys in self._unsigned():
            for coarsening in (1, max(self.options.coarsening)):
                for bits in self.options.radix_bits:
                    self.rung("radix", "radix_local_sort", keys, bits=bits, coarsening=coarsening)

    def coarsening(self) -> None:
        """Keys of a thread: longer runs and a smaller table against fewer blocks."""
        for keys in self._unsigned():
            for coarsening in self.options.coarsening:
                for name in ("radix_local_sort", "radix_scatter"):
                    self.rung("coarsening", name, keys, bits=max(self.options.radix_bits), coarsening=coarsening)

    def _unsigned(self) -> Iterator[Any]:
        if self.climbs:
            yield draw(max(self.options.sizes), self.options.dtype)

    def merge(self) -> None:
        """Measure the merge rungs, production and CUB on two sorted halves."""
        from distsort.backends import cupy_ladder, cupy_merge

        n = max(self.options.sizes)
        a, b = (self.cupy.sort(draw(n // 2, self.options.dtype, seed=seed)) for seed in (1, 2))
        if self.climbs:
            for name in cupy_ladder.MERGES:
                self.row("merge", name, n, self.time(partial(cupy_ladder.merge, name, a, b)))
        self.row("merge", "distsort", n, self.time(lambda: cupy_merge.merge([a, b])))
        cub = self.cub("merge", self.options.dtype, n, repeats=self.options.repeats)
        self.row("merge", "CUB DeviceMerge", n, cub)

    def small(self) -> None:
        """One block's worth of keys: networks against merge and radix sort."""
        from distsort.backends import cupy_ladder

        if not self.climbs:
            return
        for n in (32, 128, 512, 1024, 4096):
            keys = draw(n, self.options.dtype)
            for network in cupy_ladder.NETWORKS:
                self.rung("small", f"network_{network}", keys)
            self.rung("small", "merge_sort", keys)
            self.rung("small", "radix_local_sort", keys, bits=4, coarsening=1)
            self.beside("small", n)


def run(options: Options, progress: Callable[[str], None] = lambda part: None) -> Report:
    """Measure what the options name.

    Parameters
    ----------
    options
        Parts, sizes and the rest.
    progress
        Called with the name of each part before it is measured.

    Raises
    ------
    OptionError
        No GPU; an unknown part, dtype or entropy; CUB asked for but not to be had.
    """
    for given, known, what in (
        (options.parts, PARTS, "part"),
        ((options.dtype,), tuple(DTYPES), "dtype"),
        (options.entropies, tuple(WORDS), "entropy"),
    ):
        for name in given:
            if name not in known:
                raise OptionError(f"unknown {what} {name!r}: choose from {', '.join(known)}")
    bench = Bench(options)
    for part in options.parts:
        progress(part)
        getattr(bench, part)()
        bench.cupy.get_default_memory_pool().free_all_blocks()
    bench.report.claims = claims(bench.report)
    return bench.report


def claims(report: Report) -> list[dict[str, Any]]:
    """Return the textbook's claims, each with the times that bear on it and their ratio (above 1: it holds)."""

    def best(part: str, method: str, **where: Any) -> float | None:
        wanted = {"part": part, "method": method, **where}
        return min((r["ms"] for r in report.rows if wanted.items() <= r.items()), default=None)

    local, scatter = "radix_local_sort", "radix_scatter"
    rows = [
        (
            "tiles in shared memory beat uncoalesced merging",
            report.ms("merge", "merge_basic"),
            report.ms("merge", "merge_tiled"),
        ),
        (
            "a circular buffer beats loading the unused half of each tile again",
            report.ms("merge", "merge_tiled"),
            report.ms("merge", "merge_circular"),
        ),
        (
            "a local sort before the write beats scattering, 4 bits",
            report.ms("ladder", scatter, coarsening=16),
            report.ms("ladder", local, coarsening=16),
        ),
        (
            "4 bits a digit beat 1 bit: fewer trips through memory",
            report.ms("radix", local, bits=1, coarsening=1),
            report.ms("radix", local, bits=4, coarsening=1),
        ),
        (
            "8 bits a digit lose to 4, 1 key a thread: longer table, shorter runs",
            report.ms("radix", local, bits=8, coarsening=1),
            report.ms("radix", local, bits=4, coarsening=1),
        ),
        (
            "8 bits a digit beat 4 once a thread takes 16 keys",
            report.ms("radix", local, bits=4, coarsening=16),
            report.ms("radix", local, bits=8, coarsening=16),
        ),
        (
            "16 keys a thread beat 1",
            report.ms("coarsening", local, coarsening=1),
            report.ms("coarsening", local, coarsening=16),
        ),
        (
            "a network beats a radix sort on 512 keys",
            best("small", local, n=512),
            best("small", "network_bitonic", n=512),
        ),
        (
            "in registers it beats itself in shared memory, 512 keys",
            best("small", "network_bitonic", n=512),
            best("small", "distsort", n=512),
        ),
        (
            "transposition is for tiny inputs: the bitonic network beats it on 512 keys",
            best("small", "network_odd_even_transposition", n=512),
            best("small", "network_bitonic", n=512),
        ),
    ]
    return [
        {"claim": claim, "slower_ms": slower, "faster_ms": faster, "ratio": round(slower / faster, 3)}
        for claim, slower, faster in rows
        if slower is not None and faster is not None
    ]
