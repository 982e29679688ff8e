"""Device memory that crosses between processes: CUDA IPC on one host, pinned host memory elsewhere.

A block is taken apart into a small header and flat frames of bytes on the device, and put together again from such
frames on the other side. How the frames travel is the business of `distsort.exchange.transport`; this module knows
CUDA. An allocation is exported as a whole, its base and an offset, since pools cut many arrays from one allocation::

    exporter    base [......|###frame###|........]      handle of the base, offset, size
    importer         mapped once, kept   ^-- read in place, or copied over NVLink to a frame of its own

Opening a mapping takes 1 to 200 ms, so it is kept until its peer is gone or the allocation is another one; and never
closed while somebody reads it, which would be the end of this process's GPU context. Memory of CUDA's own pools
(`cudaMallocAsync`, "rmm_async") cannot be exported; then `export` returns None.
"""

from __future__ import annotations

import ctypes
import functools
import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from distsort import blocks
from distsort.backends.cupy_copies import copy_async, copy_stream, once
from distsort.blocks import Block
from distsort.columns import Columns
from distsort.device_memory import device_work

Frame = Any
CUDARuntimeError = cupy.cuda.runtime.CUDARuntimeError

# Of CUpointer_attribute: a number that is unique to one allocation for the life of a process; whether it has a handle.
_BUFFER_ID = 7
_IS_LEGACY_CUDA_IPC_CAPABLE = 10
# Of CUresult: what an event says that is still to come.
_NOT_READY = 600


@dataclass(frozen=True)
class Exported:
    """A frame that another process of this host may map.

    Attributes
    ----------
    handle
        64 bytes from cudaIpcGetMemHandle, of the whole allocation.
    base, buffer
        Address and number of the allocation in the exporting process; they name the mapping.
    offset, nbytes
        Where in the allocation the frame lies, in bytes.
    """

    handle: bytes
    base: int
    buffer: int
    offset: int
    nbytes: int


@functools.cache
def host_id() -> str:
    """Name this host, so that two processes can tell whether they share it."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else ""


def dump(block: Block) -> tuple[bytes, list[Frame]]:
    """Take a cupy array, bare columns of them, or a cudf frame, series or index apart.

    Returns
    -------
    header, frames
        Frames are cupy uint8 arrays that view the block's memory.
    """
    if blocks.library(block) == "cupy":
        flat = cupy.ascontiguousarray(block)
        return pickle.dumps((None, flat.dtype, flat.shape)), [flat.reshape(-1).view(np.uint8)]
    if isinstance(block, Columns):
        flat = [cupy.ascontiguousarray(array) for array in block.arrays]
        return pickle.dumps((block.frame, [f.dtype for f in flat], None)), [f.view(np.uint8) for f in flat]
    from distributed.protocol.cuda import cuda_dumps

    header, frames = cuda_dumps(block)
    # cudf may keep a frame in host memory: it travels with the header.
    here = [None if hasattr(f, "__cuda_array_interface__") else bytes(f) for f in frames]
    on_device = [f for f, kept in zip(frames, here, strict=True) if kept is None]
    return pickle.dumps([header, here]), [cupy.asarray(f).reshape(-1).view(np.uint8) for f in on_device]


def load(header: bytes, frames: Sequence[Frame]) -> Block:
    """Put a block together from the header of `dump` and frames in the memory of this process."""
    known = pickle.loads(header)
    if isinstance(known, tuple):
        frame, dtype, shape = known
        if frame is not None:
            arrays = (f.view(one) for f, one in zip(frames, dtype, strict=True))
            return Columns(tuple(arrays), frame)
        return frames[0].view(dtype).reshape(shape)
    from cudf.core.buffer import as_buffer
    from distributed.protocol.cuda import cuda_loads

    header, here = known
    device = iter(frames)
    return cuda_loads(header, [as_buffer(next(device)) if kept is None else memoryview(kept) for kept in here])


@once
def packing_stream() -> Any:
    """Return the stream, and context, of work that waits for none of the default stream's: one for all threads."""
    return cupy.cuda.Stream(non_blocking=True)


@once
def _progress() -> Any:
    return cupy.cuda.Event(disable_timing=True, interprocess=True)


def packing_event() -> bytes | None:
    """Return the handle of the event by which other processes see how far `packing_stream` is; None without such."""
    try:
        return bytes(cupy.cuda.runtime.ipcGetEventHandle(_progress().ptr))
    except CUDARuntimeError:
        return None


def record_packing() -> None:
    """Let that event be where the packing stream is now. Who waits for an earlier place waits for this one, too."""
    _progress().record(packing_stream())


def wait_for_packing(made_of: Sequence[Block]) -> None:
    """Wait until what was put together of such blocks is complete; cudf works on the default stream only."""
    if any(blocks.library(block) == "cudf" for block in made_of):
        cupy.cuda.Stream.null.synchronize()
    cupy.cuda.get_current_stream().synchronize()


def exportable() -> bool:
    """Whether what a sort allocates in this process can be mapped by others."""
    with device_work(True):
        return export([cupy.empty(1, np.uint8)]) is not None


def export(frames: Sequence[Frame]) -> list[Exported] | None:
    """Make frames, which are complete, known to other processes; None where their memory cannot be exported."""
    try:
        return [_export(frame) for frame in frames]
    except (CUDARuntimeError, OSError):
        return None


def _export(frame: Frame) -> Exported:
    if frame.nbytes == 0:
        return Exported(b"", 0, 0, 0, 0)
    base, buffer = _allocation(frame.data.ptr)
    return Exported(_handle(base, buffer), base, buffer, frame.data.ptr - base, frame.nbytes)


@functools.lru_cache(maxsize=1024)
def _handle(base: int, buffer: int) -> bytes:
    return bytes(cupy.cuda.runtime.ipcGetMemHandle(base))


def _allocation(pointer: int) -> tuple[int, int]:
    """Return base address and number of the allocation around a pointer."""
    driver = _driver()
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(pointer))
    if status:
        raise OSError(f"the driver does not know the allocation of a frame (CUresult {status})")
    # Asked first: a refused handle would leave an error behind that another library takes for its own.
    if not _attribute(_IS_LEGACY_CUDA_IPC_CAPABLE, pointer):
        raise OSError("this memory cannot be exported")
    return base.value, _attribute(_BUFFER_ID, pointer)


def _attribute(number: int, pointer: int) -> int:
    value = ctypes.c_uint64()
    status = _driver().cuPointerGetAttribute(ctypes.byref(value), number, ctypes.c_uint64(pointer))
    if status:
        raise OSError(f"the driver refused attribute {number} of a pointer (CUresult {status})")
    return value.value


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class Mapped(cupy.cuda.UnownedMemory):
    """Memory of another process, mapped here: whoever reads it reads over NVLink.

    Attributes
    ----------
    offsets
        The narrow form of the run that it is, where its owner has made one (`distsort.backends.cupy_narrow.Offsets`).
    """

    offsets: Any = None


def is_mapped(array: Any) -> bool:
    """Whether an array lies in memory of another process."""
    return isinstance(array.data.mem, Mapped)


class Mappings:
    """Memory of other processes, mapped once per allocation and kept."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[int, bytes, int]] = {}
        self._replaced: dict[str, list[int]] = {}
        self._events: dict[tuple[str, bytes], int] = {}
        self._users: Counter[str] = Counter()
        self._gone: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def copy(self, peer: str, frames: Sequence[Exported]) -> list[Frame]:
        """Copy frames of a peer into memory of this process; they have arrived on return.

        Raises
        ------
        CUDARuntimeError
            The memory cannot be mapped.
        """
        stream = copy_stream()
        self.hold(peer)
        try:
            with device_work(True):  # the pool may hand out memory that the default stream still works on
                copies = [cupy.empty(f.nbytes, np.uint8) for f in frames]
            for frame, copy in zip(frames, copies, strict=True):
                if frame.nbytes:
                    copy_async(self._pointer(peer, frame) + frame.offset, copy.data.ptr, copy.nbytes, stream)
            return copies
        finally:
            try:
                stream.synchronize()
            finally:
                self.release((peer,))

    def view(self, peer: str, frames: Sequence[Exported]) -> list[Frame]:
        """Return frames of a peer as they lie in its memory; only for who has called `hold`, until `release`.

        Raises
        ------
        CUDARuntimeError
            The memory cannot be mapped.
        """
        number, views = cupy.cuda.runtime.getDevice(), []
        for frame in frames:
            if not frame.nbytes:
                views.append(cupy.empty(0, np.uint8))
                continue
            # Named as memory of this device: kernels read it as they read their own.
            pointer = self._pointer(peer, frame) + frame.offset
            memory = Mapped(pointer, frame.nbytes, self, number)
            views.append(cupy.ndarray(frame.nbytes, np.uint8, cupy.cuda.MemoryPointer(memory, 0)))
        return views

    def reached(self, peer: str, handle: bytes) -> bool:
        """Whether a peer is where it last recorded an event; only for who has called `hold`, until `release`.

        Asked, not waited for on the device: what a peer does not reach that dies would never come.

        Raises
        ------
        CUDARuntimeError
            The event cannot be opened, or asked.
        """
        with self._lock:
            event = self._events.get((peer, handle))
            if event is None:
                event = self._events[peer, handle] = int(cupy.cuda.runtime.ipcOpenEventHandle(handle))
        # Of the driver: the runtime would leave "not ready" behind, which another library takes for its own error.
        status = _driver().cuEventQuery(ctypes.c_void_p(event))
        if status not in (0, _NOT_READY):
            raise CUDARuntimeError(status)
        return status == 0

    def hold(self, peer: str) -> None:
        """Keep the mappings of a peer open until `release`, even if it is gone before."""
        with self._lock:
            self._users[peer] += 1

    def release(self, peers: Iterable[str]) -> None:
        """End one `hold` for each name; the caller's kernels must have ended."""
        with self._lock:
            for peer in peers:
                self._users[peer] -= 1
                if not self._users[peer]:
                    del self._users[peer]
                    for pointer in self._replaced.pop(peer, ()):
                        cupy.cuda.runtime.ipcCloseMemHandle(pointer)
                    if peer in self._gone:
                        self._gone.discard(peer)
                        self._close(peer)

    def _pointer(self, peer: str, frame: Exported) -> int:
        with self._lock:
            buffer, handle, pointer = self._open.get((peer, frame.base), (0, b"", 0))
            if pointer and (buffer, handle) == (frame.buffer, frame.handle):
                return pointer
            if pointer:  # another allocation stands at that address, of this peer or of one that has its name now
                del self._open[peer, frame.base]
                if self._users[peer] > 1:
                    self._replaced.setdefault(peer, []).append(pointer)
                else:
                    cupy.cuda.runtime.ipcCloseMemHandle(pointer)
            pointer = int(cupy.cuda.runtime.ipcOpenMemHandle(frame.handle))
            self._open[peer, frame.base] = (frame.buffer, frame.handle, pointer)
            return pointer

    def close(self, peer: str | None = None) -> None:
        """Unmap the memory of one peer, or of all; what is being read is unmapped when that ends."""
        with self._lock:
            for name in {k[0] for k in (*self._open, *self._events)} if peer is None else {peer}:
                if self._users[name]:
                    self._gone.add(name)
                else:
                    self._close(name)

    def _close(self, peer: str) -> None:
        for key in [k for k in self._open if k[0] == peer]:
            _, _, pointer = self._open.pop(key)
            cupy.cuda.runtime.ipcCloseMemHandle(pointer)
        for name in [k for k in self._events if k[0] == peer]:
            cupy.cuda.runtime.eventDestroy(self._events.pop(name))


def wait() -> None:
    """Wait for all work of this process on its GPU."""
    cupy.cuda.runtime.deviceSynchronize()


def to_host(frames: Sequence[Frame]) -> list[npt.NDArray[np.uint8]]:
    """Copy frames to pinned host memory."""
    pinned = [_pinned(f.nbytes) for f in frames]
    for frame, host in zip(frames, pinned, strict=True):
        if frame.nbytes:
            frame.get(out=host, blocking=False)
    cupy.cuda.get_current_stream().synchronize()
    return pinned


def to_device(frames: Sequence[Any]) -> list[Frame]:
    """Copy frames from host memory."""
    with device_work(True):
        return [cupy.asarray(np.frombuffer(f, np.uint8)) for f in frames]


def _pinned(nbytes: int) -> npt.NDArray[np.uint8]:
    memory = cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
    return np.frombuffer(memory, np.uint8, nbytes)
