"""The merges on the host: the ladder's rungs and the k-way merge, against a stable argsort of the concatenation."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.build import aligned

NARROW_ROWS = 2048  # of narrow.cuh
RUNGS = ["merge_basic", "merge_tiled", "merge_circular"]


class Case(NamedTuple):
    """One instantiation of merge_tiles, as numbered in merge.cpp."""

    dtype: str
    value: str
    runs: int
    coded: bool
    carry: str
    narrow: bool = False


CASES = [
    Case("u4", "u4", 2, False, "nothing"),
    Case("f4", "u4", 2, True, "nothing"),
    Case("i8", "u4", 8, True, "nothing"),
    Case("u8", "u4", 4, False, "nothing"),
    Case("i1", "u4", 8, True, "nothing"),
    Case("f2", "u4", 2, True, "index"),
    Case("f8", "u4", 2, True, "index"),
    Case("u4", "i8", 8, False, "index"),
    Case("i4", "u8", 4, True, "values"),
    Case("u8", "u4", 8, False, "values"),
    Case("u4", "u4", 2, False, "nothing", narrow=True),
    Case("i4", "u4", 4, True, "nothing", narrow=True),
    Case("u8", "u4", 2, True, "nothing", narrow=True),
    Case("i8", "u4", 8, True, "nothing", narrow=True),
    Case("u4", "u4", 2, False, "nothing", narrow=True),  # whose tiles touch several blocks of rows
]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("shape", [(1, 64, 16), (3, 64, 64), (2, 96, 7)], ids=str)
def test_a_rung_merges_stably(kernels, schedules, sizes, rung, shape):
    lib = kernels("merge")
    blocks, threads, tile = shape

    @settings(deadline=None)
    @given(
        m=sizes(tile, 5), n=sizes(tile, 5), top=st.sampled_from([1, 3, 2**32]), seed=st.integers(0, 10**6), s=schedules
    )
    def check(m, n, top, seed, s):
        rng = np.random.default_rng(seed)
        a, b = (np.sort(rng.integers(0, top, x, dtype=np.uint64)) << np.uint64(32) for x in (m, n))
        a += np.arange(m, dtype=np.uint64)  # the tag tells where an element came from
        b += np.arange(m, m + n, dtype=np.uint64)
        c = np.full(m + n, 2**64 - 1, np.uint64)
        lib.schedule(**s)
        lib("ladder_tagged", RUNGS.index(rung), a, m, b, n, c, blocks, threads, tile)
        both = np.concatenate([a, b])
        np.testing.assert_array_equal(c, both[np.argsort(both >> np.uint64(32), kind="stable")])

    check()


def random_keys(rng: np.random.Generator, n: int, dtype: str) -> np.ndarray:
    """Return keys with ties, padding-like values, and for floats every kind of NaN and zero."""
    bits = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), n, dtype=f"u{dtype[1]}", endpoint=False)
    keys = bits.view(dtype)
    if dtype[0] == "f":
        special = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0], dtype)
    else:
        info = np.iinfo(dtype)
        special = np.array([info.min, info.max, info.max - 1, 0, 1], dtype)
    chosen = rng.choice(special, n)
    return np.where(rng.random(n) < rng.choice([0.0, 0.5, 1.0]), chosen, keys)


def stable_order(keys: np.ndarray, descending: bool) -> np.ndarray:
    """Return the stable order, NaN last in both directions."""
    if not descending:
        return np.argsort(keys, kind="stable")
    _, codes = np.unique(keys, return_inverse=True)  # all NaNs are one here
    nan = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(keys.size, bool)
    return np.argsort(np.where(nan, 1, -codes), kind="stable")


def narrow_form(rng: np.random.Generator, run: np.ndarray, descending: bool) -> tuple[list[int], list[np.ndarray]]:
    """Return what the table says of a run of which some offsets were copied, and the memory that it speaks of.

    The run is a slice of a longer one, in blocks of which some fit their offsets, and some may not.
    """
    before, behind = rng.integers(1, 2 * NARROW_ROWS, 2) if len(run) else (0, 0)
    whole = np.concatenate([run[:1].repeat(before), run, run[-1:].repeat(behind)])
    unsigned = whole.view(f"u{whole.itemsize}")
    width = 2 if whole.itemsize == 4 else int(rng.choice([2, 4]))
    starts = np.arange(0, len(whole), NARROW_ROWS)
    first, last = unsigned[starts], unsigned[np.minimum(starts + NARROW_ROWS, len(whole)) - 1]
    distance = unsigned - first.repeat(NARROW_ROWS)[: len(whole)]
    offsets = aligned((-distance if descending else distance).astype(f"u{width}"))
    ends = np.stack([first, last], 1).ravel()
    low, high = np.sort(rng.integers(0, len(whole) + 1, 2)) if rng.random() < 0.5 else (0, len(whole))
    low -= low % 8
    offsets[:low], offsets[high:] = 0xABCD, 0xABCD  # what was not copied is never read
    outside = (starts >= high) | (starts + NARROW_ROWS <= low)
    ends[outside.repeat(2)] = 77
    told = [whole[before:].ctypes.data, offsets.ctypes.data, ends.ctypes.data, before, low, high, width, descending]
    return [int(x) for x in told], [whole, offsets, ends]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.dtype}-{c.runs}-{c.carry}{'-narrow' if c.narrow else ''}")
def test_runs_merge_stably(kernels, schedules, flavour, case):
    lib = kernels("merge")
    number = CASES.index(case)
    tile = lib.value("merge_tile_of", number)
    policy = importlib.import_module("distsort.kernels.policy")

    @settings(deadline=None)
    @given(data=st.data(), seed=st.integers(0, 10**6), descending=st.booleans() if case.coded else st.just(False))
    def check(data, seed, descending):
        rng = np.random.default_rng(seed)
        total = data.draw(st.sampled_from([0, 1, tile - 1, tile, tile + 1, 2 * tile]) | st.integers(0, 3 * tile))
        if flavour == "tsan":
            total = min(total, 2 * tile)
        if total == 0:
            return  # the host launches nothing
        ends = (
            np.sort(rng.integers(0, total + 1, case.runs - 1)) if rng.random() < 0.8 else np.full(case.runs - 1, total)
        )
        lengths = np.diff([0, *ends, total])
        keys = random_keys(rng, total, case.dtype)
        if case.narrow and rng.random() < 0.7:
            keys = rng.integers(0, rng.choice([5, 60_000, 10**6]), total).astype(case.dtype)
        runs, starts = [], np.cumsum(lengths) - lengths
        for start, n in zip(starts, lengths, strict=True):
            run = keys[start : start + n]
            keys[start : start + n] = run[stable_order(run, descending)]
            whole = np.empty(n + 40 // keys.itemsize, keys.dtype)  # a run may start anywhere in 16 bytes
            lead = int(rng.integers(0, 16 // keys.itemsize))
            runs.append(whole[lead : lead + n].copy() if rng.random() < 0.5 else whole[lead : lead + n])
            runs[-1][:] = keys[start : start + n]
        values = [rng.integers(0, 2**31, n).astype(case.value) for n in lengths]
        addresses = [[a.ctypes.data for a in arrays] for arrays in (runs, values)]
        table = np.array([addresses[0], lengths, starts, addresses[1], *([0] * case.runs for _ in range(7))], np.uint64)
        memory_of = []
        for r in range(case.runs if case.narrow else 0):
            if rng.random() < 0.7:
                told, memory = narrow_form(rng, runs[r], descending)
                table[[0, *range(4, 11)], r] = told
                memory_of.append(memory)
        c = policy.codec(keys.dtype.kind, keys.itemsize, descending, unified=True)
        codec = np.array([c.negative, c.flip, c.lift, c.infinity, c.nan], np.uint64)
        cuts = np.full((-(-total // tile) + 1, case.runs), 2**40, np.uint64)
        memory = np.full(total * keys.itemsize + 64, 0xCD, np.uint8)
        lead = -memory.ctypes.data % 16
        out = memory[lead : lead + total * keys.itemsize].view(keys.dtype)
        carried = np.full(total, 77, case.value)
        lib.schedule(**data.draw(schedules))
        lib("run_merge", number, table, codec, total, cuts, out, carried)
        order = stable_order(keys, descending)
        np.testing.assert_array_equal(out.view(f"u{keys.itemsize}"), keys[order].view(f"u{keys.itemsize}"))
        assert (memory[lead + total * keys.itemsize :] == 0xCD).all()
        if case.carry == "index":
            np.testing.assert_array_equal(carried, order)
        if case.carry == "values":
            np.testing.assert_array_equal(carried, np.concatenate(values)[order])

    check()
