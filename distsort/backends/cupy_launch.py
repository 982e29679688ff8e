"""Launching the radix kernels: which instantiation, how much memory, what the struct of parameters holds."""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np

from distsort.kernels import policy
from distsort.kernels.instances import UNSIGNED, Method, radix_names
from distsort.kernels.loader import Kernel, SpillError, kernels

__all__ = ["UNSIGNED", "Method"]

FILE = "radix_onesweep.cu"
LEAST_ITEMS = 8  # below this a smaller tile is not tried
CONTROL = np.dtype(
    [
        ("ticket", "u4", 8),
        ("histogram_ticket", "u4"),
        ("seen", "u4"),
        ("active", "u4"),
        ("failed", "u4"),
        ("digit", "u4", 8),
        ("ones", "u8"),
        ("zeros", "u8"),
        ("work", "u8"),
        ("spare", "u8", 3),
        ("ties", "u4", 8),  # radix_sample_ties; the kernels' struct ends before
    ]
)
CONTROL_BYTES = 256
TIES = 128  # bytes before radix_sample_ties writes its counts
JOB = struct.Struct("@Q12P5Q4Q4IQ4I")
NO_SQUEEZE = policy.Squeeze((0, 0, 0, 0), (0, 0, 0, 0), 0)


@dataclass(frozen=True)
class Family:
    """The loaded kernels of a method on one device, with the shapes they were compiled for."""

    shape: policy.RadixShape
    histogram_shape: policy.HistogramShape
    histogram: Kernel
    first: Kernel
    later: Kernel
    repair: tuple[Kernel, ...]  # of float keys alone
    pass_shared: int
    histogram_shared: int
    status: int  # bytes of a status word


@functools.cache
def device(number: int) -> tuple[tuple[int, int], int]:
    """Return a device's compute capability and number of multiprocessors."""
    properties = cupy.cuda.runtime.getDeviceProperties(number)
    return (properties["major"], properties["minor"]), properties["multiProcessorCount"]


@functools.cache
def _family(
    number: int, method: Method, shape: policy.RadixShape, counting: policy.HistogramShape, wide: bool
) -> Family:
    while True:
        try:
            loaded = kernels(FILE, radix_names(method, shape, counting, wide))
            break
        except SpillError:  # another compiler than the policy was measured with: a smaller tile fits its registers
            if shape.items <= LEAST_ITEMS:
                raise
            shape = replace(shape, items=max(LEAST_ITEMS, shape.items - 8))
    return Family(
        shape,
        counting,
        loaded[0],
        loaded[1],
        loaded[2],
        loaded[3:],
        shape.shared(method.word, method.payload, wide),
        counting.shared(method.key),
        8 if wide else 4,
    )


def family(method: Method, n: int) -> Family:
    """Return the kernels of a method for n keys on the current device, compiled now or before."""
    return _family_for(cupy.cuda.runtime.getDevice(), method, n)


@functools.lru_cache(256)
def _family_for(number: int, method: Method, n: int) -> Family:
    capability, multiprocessors = device(number)
    shape = policy.radix_shape(capability, method.word, method.payload, n)
    counting = policy.histogram_shape(capability, method.key, n, multiprocessors)
    return _family(number, method, shape, counting, n >= policy.NARROW_LIMIT)


class Sorter:
    """One sort in progress: its workspace on the device and the numbers the kernels get."""

    def __init__(self, method: Method, n: int, keys: Any, codec: policy.Codec, values: Any = None) -> None:
        self.n = n
        self.keys, self.values = keys, values
        self.codec = codec
        self.out_keys: Any = None
        self.out_values: Any = None
        self.words: Any = (None, None)
        self.payload: Any = (None, None)
        self.index_bytes = 8
        self.use(method)

    def use(self, method: Method, squeeze: policy.Squeeze = NO_SQUEEZE, constant: int = 0) -> None:
        """Take a method; its workspace starts at zero, so what was counted before is forgotten."""
        self.method = method
        self.family = family(method, self.n)
        self.squeeze, self.constant = squeeze, constant
        self.skip = self.finish = self.shift = 0
        self.found = False
        self.tiles = -(-self.n // self.family.shape.tile)
        self._bins = CONTROL_BYTES
        self._specials = self._bins + 8 * policy.RADIX * 8
        # for each group of 32 pieces 32 counts and two positions, and two more; a multiple of 16
        specials = -(-self._pieces() // policy.WARP) * (policy.WARP * 4 + 16) + 16 if method.watch else 0
        self._status = self._specials + specials
        rows = (policy.STATUS_WINDOW + self.tiles) * policy.RADIX
        self.workspace = cupy.zeros(self._status + rows * self.family.status, np.uint8)

    def adopt(self, method: Method, squeeze: policy.Squeeze, constant: int) -> None:
        """Take a method of another shape but keep the counts, which hold for it too."""
        counted = self.workspace[: self._status]
        self.use(method, squeeze, constant)
        self.workspace[: self._status] = counted

    def job(self) -> Any:
        """Return the struct Job of radix_onesweep.cu as bytes for a launch."""
        base = self.workspace.data.ptr
        c, s = self.codec, self.squeeze
        packed = JOB.pack(
            self.n,
            pointer(self.keys),
            pointer(self.values),
            pointer(self.words[0]),
            pointer(self.words[1]),
            pointer(self.payload[0]),
            pointer(self.payload[1]),
            pointer(self.out_keys),
            pointer(self.out_values),
            base,
            base + self._bins,
            base + self._specials,
            base + self._status,
            c.negative,
            c.flip,
            c.lift,
            c.infinity,
            c.nan,
            *s.masks,
            *s.shifts,
            self.constant,
            self.index_bytes,
            self.skip,
            self.finish,
            0,
        )
        return struct_argument(packed)

    def count(self) -> None:
        """Launch the histogram, which leaves the plan behind."""
        f = self.family
        f.histogram(f.histogram_shape.blocks, f.histogram_shape.threads, (self.job(),), f.histogram_shared)

    def passes(self, active: int) -> None:
        """Launch `active` passes; those beyond what the plan on the device says do nothing."""
        f, job = self.family, self.job()
        for p in range(active):
            (f.later if p else f.first)(self.tiles, f.shape.threads, (job, _PASS[p]), f.pass_shared)

    def find(self) -> None:
        """Launch the count of equal floats whose bits differ, once; it looks at what the histogram saw."""
        if self.family.repair and not self.found:
            self.found = True
            self.family.repair[0](1, policy.FIND_THREADS, (self.job(),))

    def repair(self) -> None:
        """Launch the repair of equal floats whose bits differ."""
        if self.family.repair:
            self.find()
            _, stretches, repair = self.family.repair
            job = self.job()
            stretches(1, 2 * policy.WARP, (job,))
            _, multiprocessors = device(cupy.cuda.runtime.getDevice())
            warps = -(-self._pieces() // (policy.REPAIR_THREADS // policy.WARP))
            repair(min(policy.REPAIR_BLOCKS * multiprocessors, warps), policy.REPAIR_THREADS, (job,))

    def _pieces(self) -> int:
        """Most pieces that the histogram and the repair divide the input into."""
        return self.n * self.method.source // policy.PIECE_BYTES + 2

    def control(self, meanwhile: Callable[[], None] = lambda: None) -> Any:
        """Read the plan and the sample's ties: waits for the device, which then does what `meanwhile` launches."""
        return np.frombuffer(_read(self.workspace.data, CONTROL.itemsize, meanwhile), CONTROL)[0]


def _read(memory: Any, size: int, meanwhile: Callable[[], None]) -> bytes:
    """Copy up to 256 bytes to the host by way of pinned memory, which takes half the time; waits for the device."""
    runtime = cupy.cuda.runtime
    stream = cupy.cuda.get_current_stream()
    pinned = getattr(_local, "pinned", None)
    if pinned is None:
        pinned = _local.pinned = cupy.cuda.alloc_pinned_memory(CONTROL_BYTES)
    there = cupy.cuda.Event(disable_timing=True)
    runtime.memcpyAsync(pinned.ptr, memory.ptr, size, runtime.memcpyDeviceToHost, stream.ptr)
    there.record(stream)
    meanwhile()
    there.synchronize()
    return ctypes.string_at(pinned.ptr, size)


_PASS = tuple(np.uint32(p) for p in range(8))
_local = threading.local()
_JOB_DTYPE = np.dtype((np.void, JOB.size))


def struct_argument(packed: bytes) -> Any:
    """Return a struct as cupy takes it for a kernel parameter passed by value."""
    return np.frombuffer(packed, dtype=_JOB_DTYPE)


def pointer(a: Any) -> int:
    """Return the address of a cupy array, 0 for None."""
    return 0 if a is None else int(a.data.ptr)
