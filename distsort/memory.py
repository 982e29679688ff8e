"""How much memory this process holds, and has held at most.

Linux tells both of an address space in /proc. `getrusage` does not do there: its peak outlives vfork and exec, so a
child begins with the peak of its parent. Elsewhere it is all there is.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident_bytes() -> int:
    """Return the memory that this process holds now; its peak where the system tells no more."""
    return _read("VmRSS")


def peak_bytes() -> int:
    """Return the most memory that this process has held since it started."""
    return _read("VmHWM")


def give_back() -> None:
    """Give memory back to the system that this process has freed: Arrow and the C library keep it for what may come.

    A Dask worker above its pause threshold starts no task, and what it only keeps counts too.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _read(field: str) -> int:
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
