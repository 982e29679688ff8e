"""The one place where kernels are compiled and loaded.

NVRTC compiles a ``.cu`` file as C++17 with the template instantiations that a caller names. The headers are written
into the text first: cupy's disk cache goes by the text it compiles, and would miss a change inside an included file.

    kernels(file, names) --> this process's cache --> cupy's disk cache --> NVRTC, 0.2 to 0.7 s an instantiation

Every kernel is checked once: local memory in use means registers were spilled, which makes a sort several times slower
without being wrong, so it is an error here.
"""

from __future__ import annotations

import functools
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
OPTIONS = ("-std=c++17",)
STATIC_LIMIT = 48 << 10  # bytes of shared memory that a block gets without asking


class SpillError(RuntimeError):
    """A kernel was compiled with local memory: its registers do not hold the tile of this launch policy."""


class Kernel:
    """One loaded instantiation, called as ``kernel(blocks, threads, args, shared)`` on the current stream."""

    def __init__(self, function: Any, name: str, registers: int) -> None:
        self.name = name
        self.registers = registers
        self._function = function
        self._launch = function.kernel
        self._shared = STATIC_LIMIT - int(function.shared_size_bytes)

    def __call__(self, blocks: int, threads: int, args: Sequence[Any], shared: int = 0, together: bool = False) -> None:
        """Launch with `shared` bytes of dynamic shared memory; `together`: all blocks resident, or an error."""
        if shared > self._shared:
            self._function.max_dynamic_shared_size_bytes = shared
            self._shared = shared
        self._launch((blocks,), (threads,), args, shared_mem=shared, enable_cooperative_groups=together)


@dataclass
class _Module:
    kernels: dict[str, Kernel] = field(default_factory=dict)
    seconds: float = 0.0


_modules: dict[tuple[int, str, tuple[str, ...]], _Module] = {}
_lock = threading.Lock()


@functools.cache
def source(file: str) -> str:
    """Return the text of a kernel file with the project's headers written into it, each once."""
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (FOLDER / name).read_text()
        lines = [f'#line 1 "{name}"']
        for number, line in enumerate(text.splitlines(), 1):
            header = re.match(r'\s*#include "([^"]+)"', line)
            if header and (FOLDER / header[1]).exists():  # the host twin's header lies with the tests
                lines += [expand(header[1]), f'#line {number + 1} "{name}"']
            elif not re.match(r"\s*#pragma once", line):
                lines.append(line)
        return "\n".join(lines)

    return expand(file) + "\n"


def kernels(file: str, names: tuple[str, ...]) -> tuple[Kernel, ...]:
    """Return kernels of one file for the current device, compiled now or before.

    Parameters
    ----------
    file
        Name of a ``.cu`` file in this folder.
    names
        Kernels, or template instantiations, as C++ expressions.

    Raises
    ------
    SpillError
        An instantiation needs local memory.
    """
    import cupy

    key = (cupy.cuda.runtime.getDevice(), file, names)
    module = _modules.get(key)
    if module is None:
        with _lock:
            module = _modules.get(key)
            if module is None:
                module = _modules[key] = _load(cupy, file, names)
    return tuple(module.kernels.values())


def _load(cupy: Any, file: str, names: tuple[str, ...]) -> _Module:
    start = time.perf_counter()
    raw = cupy.RawModule(code=source(file), options=OPTIONS, name_expressions=names)
    module = _Module()
    for name in names:
        function = raw.get_function(name)
        if function.local_size_bytes:
            raise SpillError(
                f"{file}: {name} uses {function.local_size_bytes} bytes of local memory with {function.num_regs} "
                "registers: give this device smaller tiles in kernels/policy.py"
            )
        module.kernels[name] = Kernel(function, name, int(function.num_regs))
    module.seconds = time.perf_counter() - start
    return module


def warm_up(requests: Iterable[tuple[str, tuple[str, ...]]]) -> float:
    """Compile and load what a worker will need; return the seconds it took."""
    start = time.perf_counter()
    for file, names in requests:
        kernels(file, names)
    return time.perf_counter() - start


def cache_info() -> list[dict[str, Any]]:
    """Return what this process has loaded: device, file, kernels with their registers, seconds to load."""
    return [
        {
            "device": device,
            "file": file,
            "kernels": {name: kernel.registers for name, kernel in module.kernels.items()},
            "seconds": round(module.seconds, 3),
        }
        for (device, file, _), module in _modules.items()
    ]
