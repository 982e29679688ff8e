"""The k-way merge on a GPU, against NumPy's stable argsort: sizes at tile edges, ties, every kind of key, many runs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from distsort.kernels import policy

pytestmark = pytest.mark.gpu

DTYPES = ["u1", "i2", "u4", "i4", "f4", "u8", "i8", "f8", "f2", "?"]
RUNS = [2, 3, 4, 5, 8, 9, 20]


def order_of(keys: np.ndarray, descending: bool) -> np.ndarray:
    """Return the stable order, NaN last in both directions."""
    if not descending:
        return np.argsort(keys, kind="stable")
    _, codes = np.unique(keys, return_inverse=True)
    missing = np.isnan(keys) if keys.dtype.kind == "f" else np.zeros(keys.size, bool)
    return np.argsort(np.where(missing, 1, -codes), kind="stable")


def draw_keys(rng: np.random.Generator, n: int, dtype: str, entropy: float) -> np.ndarray:
    if dtype == "?":
        return rng.random(n) < 0.5
    bits = rng.integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8)
    keys = bits.view(dtype).copy()
    few = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, 1.0] if dtype[0] == "f" else [0, 1, 2, 127], dtype)
    return np.where(rng.random(n) < entropy, keys, rng.choice(few, n)).astype(dtype)


def draw_runs(rng: np.random.Generator, total: int, k: int, dtype: str, descending: bool, entropy: float) -> list[Any]:
    ends = np.sort(rng.integers(0, total + 1, k - 1))
    runs = np.split(draw_keys(rng, total, dtype, entropy), ends)
    return [run[order_of(run, descending)] for run in runs]


def sizes(dtype: str, k: int) -> list[int]:
    from distsort.backends.cupy_launch import device

    capability, _ = device(0)
    size = np.dtype(dtype).itemsize
    tile = policy.merge_shape(capability, size, k, False).tile(size, k)
    return [1, 2, 33, tile - 1, tile, tile + 1, 3 * tile, 10**6 + 3]


@pytest.mark.parametrize("k", RUNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_merges(cupy, dtype, k):
    from distsort.backends import cupy_merge

    rng = np.random.default_rng(k)
    for descending in (False, True):
        for total in sizes(dtype, next(p for p in (2, 4, 8, 64) if p >= k) if k <= 8 else 8):
            runs = draw_runs(rng, total, k, dtype, descending, rng.choice([0.0, 0.5, 1.0]))
            whole = np.concatenate(runs)
            order = order_of(whole, descending)
            on_device = [cupy.asarray(run) for run in runs]
            raw = f"u{whole.itemsize}"
            merged = cupy_merge.merge(on_device, descending)
            np.testing.assert_array_equal(merged.get().view(raw), whole[order].view(raw))
            for index in ("u4", "i8"):
                got = cupy_merge.merge_index(on_device, descending, index)
                assert got.dtype == index
                np.testing.assert_array_equal(got.get(), order)
            values = [cupy.asarray(rng.integers(0, 2**31, run.size)) for run in runs]
            keys, carried = cupy_merge.merge_pairs(on_device, values, descending)
            np.testing.assert_array_equal(keys.get().view(raw), whole[order].view(raw))
            np.testing.assert_array_equal(carried.get(), np.concatenate([v.get() for v in values])[order])


def test_runs_may_start_at_any_element(cupy):
    from distsort.backends import cupy_merge

    rng = np.random.default_rng(3)
    memory = cupy.asarray(rng.integers(0, 100, 200_000, dtype=np.uint32))
    for lead in range(8):
        cuts = [lead, 50_001 + lead, 50_002 + 2 * lead, 120_003 + 3 * lead, 199_999 - lead]
        runs = [memory[a:b] for a, b in itertools.pairwise(cuts)]
        for run in runs:
            run.sort()
        whole = cupy.concatenate(runs).get()
        np.testing.assert_array_equal(cupy_merge.merge_index(runs).get(), np.argsort(whole, kind="stable"))
        np.testing.assert_array_equal(cupy_merge.merge(runs).get(), np.sort(whole))


def test_runs_that_do_not_interleave(cupy):
    """Each run below, above, or inside the next: the searches have no guess to go by."""
    from distsort.backends import cupy_merge

    n = 300_000
    for starts in ([0, n, 2 * n, 3 * n], [3 * n, 2 * n, n, 0], [0, 0, 0, 0]):
        runs = [cupy.arange(s, s + n, dtype=np.int64) for s in starts]
        runs.append(cupy.full(n, 5, np.int64))
        whole = cupy.concatenate(runs).get()
        np.testing.assert_array_equal(cupy_merge.merge_index(runs).get(), np.argsort(whole, kind="stable"))


@pytest.mark.slow
def test_more_than_2_to_the_32_elements(cupy):
    """Five runs of bytes, 2^32 + 2^20 in all: each value fills the places that its count gives it."""
    from distsort.backends import cupy_merge

    total = (1 << 32) + (1 << 20)
    lengths = [1 << 31, 1 << 30, (1 << 30) - 12345, 12345, 1 << 20]
    runs = []
    counts = np.zeros(256, np.int64)
    for seed, n in enumerate(lengths):
        # a sorted run of n bytes: value v fills [n v / 256, n (v + 1) / 256) shifted a little by the seed
        edges = np.linspace(0, n, 257).astype(np.int64)
        edges[1:-1] = np.clip(edges[1:-1] + seed, 0, n)
        run = cupy.empty(n, np.uint8)
        for v in range(256):
            run[int(edges[v]) : int(edges[v + 1])] = v
        counts += np.diff(edges)
        runs.append(run)
    merged = cupy_merge.merge(runs)
    assert merged.size == total
    ends = np.cumsum(counts)
    for v in range(256):
        a, b = int(ends[v] - counts[v]), int(ends[v])
        assert bool((merged[a:b] == v).all()), v


@pytest.mark.parametrize("dtype", ["u4", "i8", "f8"])
@pytest.mark.parametrize("far", [[0], [1], [0, 1], [2], [1, 4]])
def test_runs_of_another_gpu_are_copied_while_others_are_merged(cupy, monkeypatch, dtype, far):
    """Here mapped memory is memory of this GPU; stretches are short, and rooms are used again and again."""
    from distsort.backends import cupy_ipc, cupy_merge

    monkeypatch.setattr(cupy_merge, "STRETCH", 1 << 16)
    monkeypatch.setattr(cupy_merge, "STRETCH_ROWS", 1 << 16)
    rng = np.random.default_rng(len(far))
    for descending in (False, True):
        runs = draw_runs(rng, 600_011, max(far) + 1 if max(far) else 2, dtype, descending, 0.5)
        here = [cupy.asarray(run) for run in runs]
        for r in far:
            memory = cupy_ipc.Mapped(here[r].data.ptr, max(here[r].nbytes, 1), here[r], 0)
            here[r] = cupy.ndarray(here[r].shape, here[r].dtype, cupy.cuda.MemoryPointer(memory, 0))
            assert cupy_ipc.is_mapped(here[r])
            assert cupy_ipc.is_mapped(here[r][5:])
        whole = np.concatenate(runs)
        found = cupy_merge.merge(here, descending).get()
        assert found.tobytes() == whole[order_of(whole, descending)].tobytes()


@pytest.mark.parametrize(("dtype", "top", "width"), [("u4", 1 << 21, 2), ("i8", 1 << 20, 2), ("i8", 1 << 37, 4)])
@pytest.mark.parametrize("share", [(0.0, 1.0), (0.2, 0.7)])
def test_dense_runs_of_another_gpu_come_as_offsets(cupy, monkeypatch, dtype, top, width, share):
    """And what does not fit an offset, or is not of the share, as it is."""
    from distsort.kernels import policy

    from distsort.backends import cupy_ipc, cupy_merge, cupy_narrow

    monkeypatch.setattr(cupy_merge, "STRETCH", 1 << 17)
    rng = np.random.default_rng(width)
    for descending in (False, True):
        keys = rng.integers(-(top // 2) if dtype[0] == "i" else 0, top, 1_500_007).astype(dtype)
        keys[::50_000] = top + rng.integers(0, policy.NARROW_ROWS << 8 * width - 9, 31)  # one block is wide
        runs = [run[order_of(run, descending)] for run in np.split(keys, [700_001, 1_200_003])]
        here = [cupy.asarray(run) for run in runs]
        for r in (0, 2):
            keep = here[r]
            memory = cupy_ipc.Mapped(keep.data.ptr, keep.nbytes, keep, 0)
            memory.offsets = cupy_narrow.offsets_for(keep, descending, share, width)
            cupy_narrow.narrow(keep, memory.offsets)
            assert len(memory.offsets.values) >= int((share[1] - share[0]) * len(keep))
            here[r] = cupy.ndarray(keep.shape, keep.dtype, cupy.cuda.MemoryPointer(memory, 0))
        whole = np.concatenate(runs)
        found = cupy_merge.merge(here, descending).get()
        assert found.tobytes() == whole[order_of(whole, descending)].tobytes()
        cut = [run[len(run) // 7 : -(len(run) // 5)] for run in here]  # slices know which rows of the run they are
        whole = np.concatenate([run[len(run) // 7 : -(len(run) // 5)] for run in runs])
        found = cupy_merge.merge(cut, descending).get()
        assert found.tobytes() == whole[order_of(whole, descending)].tobytes()


def test_only_large_dense_runs_of_integers_become_offsets(cupy):
    from distsort.kernels import policy

    from distsort.backends.cupy_narrow import width_of

    n = policy.NARROW_LEAST // 4
    dense, whole = cupy.arange(n, dtype=np.uint32), (0.0, 1.0)
    assert width_of(dense, whole) == 2
    assert width_of(dense, (0.0, 0.5)) is None
    assert width_of(cupy.arange(n + 1, dtype=np.uint32)[1:], whole) is None  # not at a multiple of 16 bytes
    assert width_of(dense.view(np.float32), whole) is None
    assert width_of(dense * np.uint32(63), whole) is None
    assert width_of(dense[::-1].copy(), whole) == 2
    # A step through 2**20 rows may be 2**24 wide: half of its blocks could be too wide for their offsets.
    gap = dense.copy()
    gap[n // 2 :] += np.uint32(1 << 23)
    assert width_of(gap, whole) == 2
    gap[n // 2 :] += np.uint32(1 << 23)
    assert width_of(gap, whole) is None
    for bits, width in ((3, 2), (4, 4), (19, 4), (20, None), (30, None)):
        assert width_of(cupy.arange(n, dtype=np.int64) << bits, whole) == width, bits


def test_an_answer_does_not_wait_for_a_merge(cupy):
    """Slices are packed while the default stream is busy; what cudf put together is waited for."""
    from distsort.exchange.device import DeviceTransport
    from distsort.exchange.transport import pack
    from distsort.local import Run

    spin = cupy.RawKernel(
        'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }', "spin"
    )
    spin((1,), (1,), (1,))
    runs = [Run(cupy.arange(i, i + 100)) for i in range(3)]
    cupy.cuda.Stream.null.synchronize()
    transport = DeviceTransport(over_ucx=False)
    with transport.packing():
        pack(runs, 2400, transport, transport.host, "reader")
    spin((1,), (1,), (1_000_000_000,))
    busy = cupy.cuda.Stream.null.record()
    with transport.packing():
        answer = pack(runs, 2400, transport, transport.host, "reader")
    assert not busy.done
    busy.synchronize()
    (frames,) = (frames for _, frames in list(transport.leases.values())[-1:])
    assert frames[0].view(np.int64).tolist() == [*range(100), *range(1, 101), *range(2, 102)]
    assert answer["packed"]
    transport.close()
