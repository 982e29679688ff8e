"""The radix sort's host side: memory, launches, and the choice of a method from the plan.

    values --> radix_histogram --> [plan read back, large n only] --> radix_pass x k --> radix_repair | radix_finish
                                          |
                                          +-- plain      one pass per digit that varies
                                          +-- squeezed   the varying bits side by side, in a 4-byte word where they fit
                                          +-- finished   64-bit keys: top bits, then runs of equal top bits

Small sorts never wait for the device: constant digits are skipped by the plan that the histogram leaves there. The
methods sort the same keys to the same bits; only their speed differs.

Memory beyond the input, in bytes a key (plus some 2 % of tables): keys of w bytes 2w, the result included; positions
of keys up to 4 bytes 16; positions of 8-byte keys 24.
"""

from __future__ import annotations

import functools
import struct
import threading
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np

from distsort.errors import SortMemoryError
from distsort.kernels import policy
from distsort.kernels.loader import Kernel, kernels

FILE = "radix_finish.cu"  # includes radix_onesweep.cu
UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}
CONTROL = np.dtype(
    [
        ("ticket", "u4", 8),
        ("histogram_ticket", "u4"),
        ("repair_ticket", "u4"),
        ("seen", "u4"),
        ("active", "u4"),
        ("digit", "u4", 8),
        ("ones", "u8"),
        ("zeros", "u8"),
        ("work", "u8"),
        ("failed", "u4"),
        ("spare", "u4", 5),
    ]
)
CONTROL_BYTES = 256
JOB = struct.Struct("@Q12P5Q4Q4IQ4I")
_NO_SQUEEZE = policy.Squeeze((0, 0, 0, 0), (0, 0, 0, 0), 0)


@dataclass(frozen=True)
class Method:
    """One family of template instantiations: what is sorted, and in words of what shape."""

    mode: str  # KEYS, ARGSORT, ARGSORT_BY, PAIRS
    source: int  # bytes of a value in the input
    key: int  # bytes of its key
    payload: int = 0  # bytes of a payload in an array of its own
    squeeze: bool = False
    watch: bool = False  # float keys alone: the histogram looks for zeros and NaNs whose bits differ

    @property
    def word(self) -> int:
        """Bytes of a word in flight."""
        return self.key if self.mode == "KEYS" or self.payload else 8

    @property
    def unify(self) -> bool:
        """Whether floats of equal value get equal bits before they are encoded."""
        return self.mode in ("ARGSORT", "ARGSORT_BY")


@dataclass(frozen=True)
class Family:
    """The loaded kernels of a method on one device, with the shapes they were compiled for."""

    shape: policy.RadixShape
    histogram_shape: policy.HistogramShape
    histogram: Kernel
    first: Kernel
    later: Kernel
    repair: Kernel | None
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
    source, key = UNSIGNED[method.source], UNSIGNED[method.key]
    payload = UNSIGNED[method.payload] if method.payload else "None"
    flags = ", ".join(str(flag).lower() for flag in (method.unify, method.squeeze, method.watch))
    tail = f"{method.mode}, %s, {str(method.squeeze).lower()}>"
    head = f"radix_pass<{shape.threads}, {shape.items}, {shape.blocks}, {source}, {key}, {payload}, "
    head += f"{'u64' if wide else 'u32'}, "
    names = [
        f"radix_histogram<{counting.threads}, {counting.columns}, {source}, {key}, {flags}>",
        head + tail % "true",
        head + tail % "false",
    ]
    if method.watch:
        names.append("radix_repair<{}, {}, {}>".format(*policy.REPAIR_SHAPE, source))
    loaded = kernels(FILE, tuple(names))
    return Family(
        shape,
        counting,
        loaded[0],
        loaded[1],
        loaded[2],
        loaded[3] if len(loaded) > 3 else None,
        shape.shared(method.word, method.payload, wide),
        counting.shared(method.key),
        8 if wide else 4,
    )


def family(method: Method, n: int) -> Family:
    """Return the kernels of a method for n keys on the current device, compiled now or before."""
    number = cupy.cuda.runtime.getDevice()
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
        self.words: tuple[Any, Any] = (None, None)
        self.payload: tuple[Any, Any] = (None, None)
        self.index_bytes = 8
        self.use(method)

    def use(self, method: Method, squeeze: policy.Squeeze = _NO_SQUEEZE, constant: int = 0) -> None:
        """Take a method; its workspace starts at zero, so what was counted before is forgotten."""
        self.method = method
        self.family = family(method, self.n)
        self.squeeze, self.constant = squeeze, constant
        self.skip = self.finish = 0
        self.tiles = -(-self.n // self.family.shape.tile)
        self._bins = CONTROL_BYTES
        self._specials = self._bins + 8 * policy.RADIX * 8
        repaired = policy.REPAIR_SHAPE[0] * policy.REPAIR_SHAPE[1]
        self._status = self._specials + (16 * -(-self.n // repaired) if method.watch else 0)
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
            _pointer(self.keys),
            _pointer(self.values),
            _pointer(self.words[0]),
            _pointer(self.words[1]),
            _pointer(self.payload[0]),
            _pointer(self.payload[1]),
            _pointer(self.out_keys),
            _pointer(self.out_values),
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
        return _struct_arg(packed)

    def count(self) -> None:
        """Launch the histogram, which leaves the plan behind."""
        f = self.family
        f.histogram(f.histogram_shape.blocks, f.histogram_shape.threads, (self.job(),), f.histogram_shared)

    def passes(self, active: int) -> None:
        """Launch `active` passes; those beyond what the plan on the device says do nothing."""
        f, job = self.family, self.job()
        for p in range(active):
            (f.later if p else f.first)(self.tiles, f.shape.threads, (job, np.uint32(p)), f.pass_shared)

    def repair(self) -> None:
        """Launch the repair of equal floats whose bits differ; it looks at what the histogram saw."""
        f = self.family
        if f.repair is not None:
            _, multiprocessors = device(cupy.cuda.runtime.getDevice())
            threads, items = policy.REPAIR_SHAPE
            blocks = min(policy.REPAIR_BLOCKS * multiprocessors, -(-self.n // (threads * items)))
            f.repair(blocks, threads, (self.job(),))

    def control(self) -> Any:
        """Read the plan: waits for the device."""
        return self.workspace[:CONTROL_BYTES].get()[: CONTROL.itemsize].view(CONTROL)[0]


_JOB_DTYPE = np.dtype((np.void, JOB.size))


def _struct_arg(packed: bytes) -> Any:
    """Return a struct as cupy takes it for a kernel parameter passed by value."""
    return np.frombuffer(packed, dtype=_JOB_DTYPE)


def _pointer(a: Any) -> int:
    return 0 if a is None else int(a.data.ptr)


def _guarded(call: Any) -> Any:
    """Report a full device as an error of this package: what, how much, what to do."""

    @functools.wraps(call)
    def inner(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except cupy.cuda.memory.OutOfMemoryError as error:
            values = args[0]
            raise SortMemoryError(
                f"sorting {values.size:,} values of {values.dtype} does not fit the GPU's memory ({error}): the input"
                " is unchanged; use smaller chunks"
            ) from error

    return inner


@_guarded
def sort_keys(values: Any, codec: policy.Codec) -> Any:
    """Sort a contiguous cupy array of one dimension by its codes; return a new array.

    Parameters
    ----------
    values
        1, 2, 4 or 8 bytes each, shape (n,); not modified.
    codec
        `distsort.kernels.policy.codec` without `unified`.
    """
    n, size = values.size, values.dtype.itemsize
    if n < 2:
        return values.copy()
    if n <= policy.SMALL_LIMIT:
        if codec.infinity:
            return values.take(_small(values, policy.unify_codec(codec, size), 8))
        return _small(values, codec, 0)
    out = cupy.empty_like(values)
    plain = Method("KEYS", size, size, watch=codec.infinity > 0)
    sorter = Sorter(plain, n, values, codec)
    sorter.out_keys = out
    sorter.count()
    active = size
    if n >= policy.READ_PLAN_FROM and size > 2:
        control = sorter.control()
        active = int(control["active"])
        active = _choose(sorter, control, active)
    sorter.words = (out, cupy.empty(n, f"u{sorter.method.word}") if active > 1 or sorter.finish else None)
    sorter.passes(active)
    if sorter.finish and not _finished(sorter, int(control["digit"][sorter.skip]) * 8):
        sorter.use(plain)
        sorter.count()
        sorter.passes(size)
    sorter.repair()
    return out


@_guarded
def argsort_keys(values: Any, codec: policy.Codec, before: Any = None, index_bytes: int = 8) -> Any:
    """Return the stable order of a contiguous cupy array of one dimension.

    Parameters
    ----------
    values
        1, 2, 4 or 8 bytes each, shape (n,); not modified.
    codec
        `distsort.kernels.policy.codec` with `unified`.
    before
        Positions, shape (n,), in which rows already are sorted by less significant keys: uint32 for n < 2^32, else
        uint64. None: input order.
    index_bytes
        8 for int64 positions, 4 for uint32.
    """
    n, size = values.size, values.dtype.itemsize
    if n < 2:
        return cupy.arange(n, dtype=np.int64 if index_bytes == 8 else np.uint32)
    if n <= policy.SMALL_LIMIT and before is None:
        return _small(values, codec, index_bytes)
    mode = "ARGSORT" if before is None else "ARGSORT_BY"
    long = n > 1 << 32
    plain = Method(mode, size, size, 0 if size <= 2 or (size == 4 and not long) else 8 if long else 4)
    sorter = Sorter(plain, n, values, codec, before)
    sorter.index_bytes = index_bytes
    sorter.count()
    active = size
    if n >= policy.READ_PLAN_FROM and size > 2 and not long:
        control = sorter.control()
        active = _choose(sorter, control, int(control["active"]))
    _room_for_positions(sorter, active)
    sorter.passes(active)
    if sorter.finish and not _finished(sorter, 32):
        sorter.use(plain)
        _room_for_positions(sorter, size)
        sorter.count()
        sorter.passes(size)
    return sorter.out_values


def _room_for_positions(sorter: Sorter, active: int) -> None:
    """Allocate the buffers of a sort of positions; the result takes the place of a buffer that is free by then."""
    n, method = sorter.n, sorter.method
    sorter.words = sorter.payload = (None, None)
    sorter.out_values = None
    more = active > 1 or sorter.finish
    dtype = np.dtype(np.int64 if sorter.index_bytes == 8 else np.uint32)
    if method.payload < sorter.index_bytes or method.word == 8:
        room = cupy.empty(n, np.uint64)  # words of 8 bytes, then positions
        sorter.words = (room, cupy.empty(n, f"u{method.word}") if more else None)
        sorter.payload = (
            tuple(cupy.empty(n, f"u{method.payload}") if more else None for _ in "ab")
            if method.payload
            else (None, None)
        )
        sorter.out_values = room.view(dtype)[:n]
    else:
        sorter.words = tuple(cupy.empty(n, f"u{method.word}") if more else None for _ in "ab")
        sorter.out_values = cupy.empty(n, dtype)
        sorter.payload = (sorter.out_values, cupy.empty(n, f"u{method.payload}") if more else None)


@_guarded
def sort_pairs(keys: Any, values: Any, codec: policy.Codec) -> tuple[Any, Any]:
    """Sort keys and carry values of 4 or 8 bytes along; return both in new arrays, ties in input order.

    Parameters
    ----------
    keys
        Contiguous, 1, 2, 4 or 8 bytes each, shape (n,). Floats: no two zeros or NaNs of different bits.
    values
        Contiguous, 4 or 8 bytes each, shape (n,).
    codec
        `distsort.kernels.policy.codec` of the keys.
    """
    n, size, width = keys.size, keys.dtype.itemsize, values.dtype.itemsize
    out_keys, out_values = cupy.empty_like(keys), cupy.empty_like(values)
    if n < 2:
        out_keys[...], out_values[...] = keys, values
        return out_keys, out_values
    packed = width == 4 and size <= 4
    sorter = Sorter(Method("PAIRS", size, size, 0 if packed else width), n, keys, codec, values)
    sorter.out_keys, sorter.out_values = out_keys, out_values
    if packed:
        sorter.words = (cupy.empty(n, np.uint64), cupy.empty(n, np.uint64))
    else:
        sorter.words = (out_keys, cupy.empty(n, f"u{size}"))
        sorter.payload = (out_values, cupy.empty(n, f"u{width}"))
    sorter.count()
    sorter.passes(size)
    return out_keys, out_values


def _choose(sorter: Sorter, control: Any, active: int) -> int:
    """Take the method that the plan speaks for; return its number of passes."""
    method = sorter.method
    varying = int(control["ones"] & control["zeros"])
    constant = int(control["ones"]) & ~varying
    digits = [int(d) for d in control["digit"][:active]]
    if not varying:
        return active
    squeezed = replace(method, key=4, payload=0, squeeze=True)
    bits = varying.bit_count()
    by_byte = policy.stretches(sum(255 << 8 * d for d in digits))
    by_bit = policy.stretches(varying)
    # whole bytes: the counts hold for the squeezed key as they are
    if method.source == 8 and active <= 4 and by_byte:
        sorter.adopt(squeezed, by_byte, constant & ~sum(255 << 8 * d for d in digits))
        return active
    if by_bit and -(-bits // 8) < active:
        narrow = method.source == 4 or bits <= 32
        sorter.use(squeezed if narrow else replace(method, squeeze=True), by_bit, constant)
        sorter.count()
        return -(-bits // 8)
    if method.source == 8 and method.mode != "ARGSORT_BY":
        return _choose_finish(sorter, digits, active)
    return active


def _choose_finish(sorter: Sorter, digits: list[int], active: int) -> int:
    """Sort by the top digits only where a sample says that few keys agree in them; return the number of passes."""
    method = sorter.method
    most = active - policy.FINISH_SAVES if method.mode == "KEYS" else 4
    if most < 1 or active <= most:
        return active
    ties = _sample_ties(sorter)
    allowed = policy.allowed_ties(sorter.n)
    for top in range(1, most + 1):
        if ties[digits[active - top]] > allowed:
            continue
        if method.mode == "KEYS":
            sorter.skip, sorter.finish = active - top, 1
            return top
        squeeze = policy.stretches(sum(255 << 8 * d for d in digits[active - 4 :]))
        if squeeze is None:
            return active
        sorter.adopt(replace(method, key=4, payload=0, squeeze=True), squeeze, 0)
        sorter.skip, sorter.finish = active - 4, 1
        return 4
    return active


def _sample_ties(sorter: Sorter) -> list[int]:
    source = UNSIGNED[sorter.method.source]
    name = f"radix_sample<{source}, {str(sorter.method.unify).lower()}>"
    take, compare = kernels(FILE, (name, "radix_sample_ties"))
    sample = cupy.empty(policy.SAMPLE, np.uint64)
    blocks = policy.SAMPLE // 256
    take(blocks, 256, (sorter.job(), sample, np.uint32(policy.SAMPLE)))
    ordered = sort_keys(sample, policy.codec("u", 8))
    ties = cupy.zeros(8, np.uint32)
    compare(blocks, 256, (ordered, np.uint32(policy.SAMPLE), ties))
    return [int(t) for t in ties.get()]


def _finished(sorter: Sorter, shift: int) -> bool:
    """Launch the finish; return whether it was within its bounds. Waits for the device."""
    threads, items = policy.FINISH_SHAPE
    mode = "KEYS" if sorter.method.mode == "KEYS" else "ARGSORT"
    (finish,) = kernels(FILE, (f"radix_finish<{threads}, {items}, {UNSIGNED[sorter.method.source]}, {mode}>",))
    finish(-(-sorter.n // (threads * items)), threads, (sorter.job(), np.uint32(shift)))
    return not sorter.control()["failed"]


class _Meetings(threading.local):
    """What small sorts share between launches, one for each device and stream that a thread uses."""

    def __init__(self) -> None:
        self.areas: dict[tuple[int, int], tuple[Any, int]] = {}


_meetings = _Meetings()
_MEETING_BYTES = 256
_ROW = policy.RADIX + 4


def _meeting() -> tuple[Any, int]:
    """Return memory for the barrier, the rows and the buffers of a small sort; zero when it is new."""
    stream = cupy.cuda.get_current_stream()
    key = (cupy.cuda.runtime.getDevice(), stream.ptr)
    area = _meetings.areas.get(key)
    if area is None:
        rows = 2 * policy.SMALL_BLOCKS * _ROW * 8
        memory = cupy.zeros(_MEETING_BYTES + rows + 2 * policy.SMALL_LIMIT * (8 + 4), np.uint8)
        area = _meetings.areas[key] = (memory, int(memory.data.ptr))
    return area


@functools.cache
def _small_kernel(number: int, source: int, index: bool, items: int) -> Kernel:
    payload = "u32" if index and source == 8 else "None"
    mode = "ARGSORT" if index else "KEYS"
    name = f"radix_small<{policy.SMALL_THREADS}, {items}, {UNSIGNED[source]}, {payload}, {mode}>"
    return kernels("radix_small.cu", (name,))[0]


def _small(values: Any, codec: policy.Codec, index_bytes: int) -> Any:
    """Sort in one launch: the values, or with index_bytes of 4 or 8 their positions."""
    n, size = values.size, values.dtype.itemsize
    items = policy.small_items(n)
    kernel = _small_kernel(cupy.cuda.runtime.getDevice(), size, index_bytes > 0, items)
    out = cupy.empty(n, (np.int64 if index_bytes == 8 else np.uint32) if index_bytes else values.dtype)
    _, base = _meeting()
    rows = base + _MEETING_BYTES
    words = rows + 2 * policy.SMALL_BLOCKS * _ROW * 8
    payload = words + 16 * policy.SMALL_LIMIT
    to = out.data.ptr
    packed = JOB.pack(
        n,
        values.data.ptr,
        0,
        words,
        words + 8 * policy.SMALL_LIMIT,
        payload,
        payload + 4 * policy.SMALL_LIMIT,
        *((0, to) if index_bytes else (to, 0)),
        *_NO_TABLES,
        codec.negative,
        codec.flip,
        codec.lift,
        codec.infinity,
        codec.nan,
        *_NO_SQUEEZE_NUMBERS,
        index_bytes,
        0,
        0,
        0,
    )
    blocks = -(-n // (policy.SMALL_THREADS * items))
    kernel(blocks, policy.SMALL_THREADS, (_struct_arg(packed), base, rows), together=True)
    return out


_NO_TABLES = (0, 0, 0, 0)
_NO_SQUEEZE_NUMBERS = (0,) * 9
