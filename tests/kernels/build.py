"""Compile the kernels for the host and call them.

``tests/kernels/NAME.cpp`` includes kernels and gives ``extern "C"`` drivers; together with the emulator it
becomes one shared library per flavour, kept in a cache by the hash of everything it is made from.

A driver takes arrays and 64-bit integers, runs inside ``emu::guard`` and returns 0, or 1 with a report that
becomes a `KernelReport` here.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "kernels"
COMPILER = shutil.which("g++")
CACHE = Path(tempfile.gettempdir()) / f"distsort-kernels-{os.getuid()}"

FLAGS = ["-std=c++20", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-strict-aliasing"]
FLAGS += ["-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Werror"]
KERNEL_FLAGS = {
    "plain": [],
    "asan": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "tsan": ["-fsanitize=thread"],
    "ucontext": [],
}
EMULATOR_FLAGS = {"plain": [], "asan": ["-DEMU_ASAN"], "tsan": ["-DEMU_TSAN"], "ucontext": ["-DEMU_UCONTEXT"]}
RUNTIME = {"asan": "libasan.so", "tsan": "libtsan.so"}

ORDERS = ("fifo", "reverse", "random")


class KernelReport(Exception):
    """What the emulator found wrong: divergence, deadlock, livelock, misalignment."""


class Library:
    """A compiled driver library; its drivers are called by name.

    Examples
    --------
    ``lib("run_merge", a, a.size, b, b.size, out)``: arrays go as pointers, numbers as 64-bit integers.
    """

    def __init__(self, path: Path) -> None:
        self._dll = ctypes.CDLL(str(path))
        self._dll.emu_report.restype = ctypes.c_char_p
        self.schedule()

    def schedule(self, order: str = "fifo", blocks: str = "fifo", seed: int = 0, resident: int = 1) -> None:
        """Set how later launches interleave: order of threads and of block starts, blocks resident at a time."""
        self._dll.emu_configure(ORDERS.index(order), ORDERS.index(blocks), seed, resident)

    def __call__(self, driver: str, *args: np.ndarray | int) -> None:
        """Run a driver; raise `KernelReport` when the emulator reports."""
        if self._dll[driver](*(_pass(a) for a in args)):
            raise KernelReport(self._dll.emu_report().decode())

    def value(self, function: str, *args: np.ndarray | int) -> int:
        """Call a plain function that returns a 64-bit integer."""
        call = self._dll[function]
        call.restype = ctypes.c_int64
        return int(call(*(_pass(a) for a in args)))


def _pass(a: np.ndarray | int) -> ctypes.c_void_p | ctypes.c_int64:
    if isinstance(a, np.ndarray):
        if not a.flags.c_contiguous:
            raise ValueError("a driver takes contiguous arrays only")
        return ctypes.c_void_p(a.ctypes.data)
    return ctypes.c_int64(int(a))


def sources(path: Path) -> list[Path]:
    """Return the file and all project files that it includes, each once."""
    found: list[Path] = []
    todo = [path]
    while todo:
        p = todo.pop()
        if p in found:
            continue
        found.append(p)
        for name in re.findall(r'^\s*#include "([^"]+)"', p.read_text(), re.MULTILINE):
            todo += [d / name for d in (p.parent, KERNELS, HERE) if (d / name).exists()][:1]
    return found


def _compile(path: Path, flags: list[str]) -> Path:
    """Return the object file of a source, compiled now or before."""
    digest = hashlib.sha256(repr((COMPILER, flags)).encode())
    for p in sorted(sources(path)):
        digest.update(p.name.encode() + p.read_bytes())
    return _once(path.stem, digest, ".o", [*FLAGS, *flags, f"-I{KERNELS}", f"-I{HERE}", "-c", str(path)])


def _once(stem: str, digest: hashlib._Hash, suffix: str, arguments: list[str]) -> Path:
    CACHE.mkdir(mode=0o700, exist_ok=True)
    target = CACHE / f"{stem}-{digest.hexdigest()[:20]}{suffix}"
    with (CACHE / f"{target.name}.lock").open("w") as lock:  # processes of pytest-xdist meet here
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            half = target.with_suffix(".half")
            done = subprocess.run([COMPILER, *arguments, "-o", str(half)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"g++ refused {stem}:\n{done.stderr[:6000]}")
            half.rename(target)
    return target


def library(name: str, flavour: str = "plain") -> Path:
    """Return the shared library of ``NAME.cpp``, built now or before."""
    objects = [_compile(HERE / f"{name}.cpp", KERNEL_FLAGS[flavour])]
    objects += [_compile(HERE / f"{part}.cpp", EMULATOR_FLAGS[flavour]) for part in ("emulator", "emulator_meetings")]
    digest = hashlib.sha256(repr((flavour, [p.name for p in objects])).encode())
    link = ["-shared", *KERNEL_FLAGS[flavour], *map(str, objects)]
    return _once(name, digest, ".so", link)


def environment(flavour: str, log: Path) -> dict[str, str]:
    """Return the environment for a process that loads libraries of a sanitizer flavour; reports go to `log`.PID."""
    preload = [  # libstdc++ too: the runtime looks for its exceptions when the process starts
        subprocess.run(
            [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in (RUNTIME[flavour], "libstdc++.so")
    ]
    options = f"log_path={log}:halt_on_error=1:exitcode=66"
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(preload),
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1",
        "TSAN_OPTIONS": options,
        "OPENBLAS_NUM_THREADS": "1",
        "KERNEL_FLAVOUR": flavour,
    }


def aligned(what: int | np.ndarray, dtype: str = "") -> np.ndarray:
    """Return an array, or the copy of one, at a multiple of 16 bytes."""
    if isinstance(what, np.ndarray):
        made = aligned(len(what), what.dtype.str)
        made[:] = what
        return made
    size = np.dtype(dtype).itemsize
    room = np.zeros(what * size + 16, np.uint8)
    at = -room.ctypes.data % 16
    return room[at : at + what * size].view(dtype)
