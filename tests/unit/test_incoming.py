"""Stretches of a run on another GPU, with memory of the host in its place: what is copied, and what it becomes."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cupy")

from distsort.kernels import policy

from distsort.backends import cupy_copies
from distsort.backends.cupy_narrow import Offsets


class Array:
    """As much of a cupy array as `Incoming` looks at, over NumPy's memory."""

    def __init__(self, values, memory=None):
        self.values, self.dtype, self.nbytes, self.size = values, values.dtype, values.nbytes, values.size
        self.data = SimpleNamespace(ptr=values.ctypes.data, mem=memory)


def at(address, count, dtype):
    """Return a view of memory by its address."""
    size = np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * (count * size)).from_address(address), dtype)


def keys_of(incoming, stretch, count, dtype):
    """What the merge reads of a stretch that has arrived, in NumPy (tests/kernels/test_narrow.py has the kernel)."""
    address, size = int(incoming.keys[stretch]), np.dtype(dtype).itemsize
    offsets, ends, row, low, high, width, down = incoming.narrow[:, stretch].tolist()
    if not width:
        return at(address, count, dtype).tolist()
    assert low % cupy_copies.ALIGNED == offsets % 16 == 0
    assert not down
    made = []
    for r in range(row, row + count):
        if low <= r < high:
            (first,) = at(ends + 2 * (r // policy.NARROW_ROWS) * size, 1, dtype).tolist()
            made.append(first + int(at(offsets + r * width, 1, f"u{width}")[0]))
        else:
            made.append(int(at(address + (r - row) * size, 1, dtype)[0]))
    return made


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(policy, "NARROW_ROWS", 64)
    runtime = SimpleNamespace(
        memcpyAsync=lambda to, source, size, kind, stream: ctypes.memmove(to, source, size), memcpyDefault=4
    )
    cuda = SimpleNamespace(runtime=runtime, get_current_stream=lambda: SimpleNamespace(ptr=0))
    fake = SimpleNamespace(
        cuda=cuda,
        empty=lambda n, dtype: Array(np.zeros(n, dtype)),
        empty_like=lambda a: Array(np.zeros_like(a.values)),
    )
    monkeypatch.setattr(cupy_copies, "cupy", fake)


@pytest.mark.parametrize("known", [None, (0, 1000), (192, 700), (128, 1000)])
@pytest.mark.parametrize(("begin", "end"), [(0, 1000), (37, 905), (250, 260)])
@pytest.mark.parametrize("stretches", [1, 2, 7, 11])
def test_every_stretch_arrives(host, known, begin, end, stretches):
    keys = np.sort(np.random.default_rng(stretches).integers(0, 1 << 14, 1000).astype("u4"))
    memory = SimpleNamespace(ptr=keys.ctypes.data, offsets=None)
    if known is not None:
        start, stop = known
        blocks = [keys[b : min(b + 64, stop)] for b in range(start, stop, 64)]
        offsets = np.concatenate([b - b[0] for b in blocks]).astype("u2")
        ends = np.array([(b[0], b[-1]) for b in blocks], "u4").ravel()
        memory.offsets = Offsets(Array(offsets), Array(ends), start, stop, False)
    run = Array(keys[begin:end], memory)
    there = range(keys.ctypes.data, keys.ctypes.data + keys.nbytes)
    edges = np.sort(np.random.default_rng(end).integers(0, end - begin, stretches + 1))
    incoming = cupy_copies.Incoming(run, edges[:-1], edges[1:], 3)
    stream = SimpleNamespace(ptr=0)
    ahead = 0
    for i in range(stretches):
        while ahead < min(i + 3, stretches):  # as many are under way as there are rooms
            incoming.begin(ahead, stream)
            ahead += 1
        first, last = begin + int(edges[i]), begin + int(edges[i + 1])
        assert keys_of(incoming, i, last - first, "u4") == keys[first:last].tolist()
        # Either way little is left to be read over the link: keys are here, or most have offsets.
        narrow = incoming.narrow[5, i] > 0
        assert (int(incoming.keys[i]) in there) == narrow
        covered = len(range(max(first, known[0]), min(last, known[1]))) if known is not None else 0
        assert narrow == (3 * covered > 2 * (last - first))
    assert any(incoming.narrow[5]) == incoming.narrow.any()


def test_offsets_cross_in_the_place_of_keys(host):
    keys = np.arange(100, dtype="u8")
    memory = SimpleNamespace(ptr=keys.ctypes.data, offsets=None)
    run = Array(keys[10:60], memory)
    assert cupy_copies.crossing(run) == 400
    memory.offsets = Offsets(Array(keys.astype("u2")), Array(keys[[0, 99]]), 0, 100, False)
    assert cupy_copies.crossing(run) == 100
    memory.offsets = Offsets(Array(keys[:50].astype("u2")), Array(keys[[0, 49]]), 0, 50, False)
    assert cupy_copies.crossing(run) == 240  # ten keys are read one by one
    memory.offsets = Offsets(Array(keys[64:].astype("u2")), Array(keys[[64, 99]]), 64, 100, False)
    assert cupy_copies.crossing(run) == 400
