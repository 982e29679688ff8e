"""What every GPU benchmark needs: a timer, keys of a chosen entropy, and CUB."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from distsort.errors import OptionError

DTYPES = {"u32": "u4", "u64": "u8", "i32": "i4", "i64": "i8", "f32": "f4", "f64": "f8"}
PRIME_BYTES = 1 << 30


def need_gpu() -> Any:
    """Return cupy.

    Raises
    ------
    OptionError
        There is no cupy, or it finds no GPU.
    """
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise OptionError("bench kernels needs cupy, which is not installed: pip install 'distsort[cuda13]'") from error
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise OptionError(f"bench kernels needs a GPU, and CUDA finds none on this machine ({error})") from error
    return cupy


class Timer:
    """Times device work; holds the two buffers whose copy goes before each run."""

    def __init__(self, repeats: int) -> None:
        self.cupy = need_gpu()
        self.repeats = repeats
        self._from, self._to = self.cupy.empty(PRIME_BYTES, np.uint8), self.cupy.empty(PRIME_BYTES, np.uint8)

    def __call__(self, work: Callable[[], Any], repeats: int = 0) -> float:
        """Return the median milliseconds of `work` on the GPU."""
        times = []
        for run in range(-2, repeats or self.repeats):
            self.cupy.copyto(self._to, self._from)
            start, stop = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            start.record()
            result = work()
            stop.record()
            stop.synchronize()
            del result
            if run >= 0:
                times.append(self.cupy.cuda.get_elapsed_time(start, stop))
        return statistics.median(times)


def draw(n: int, dtype: str, words: int = 1, bits: int = 64, seed: int = 1) -> Any:
    """Return keys on the GPU: the AND of `words` random words each (0: all equal), of which `bits` low bits are kept.

    The AND of k words sets a bit with probability 2^-k: Thearling and Smith's way to lower entropy, 1992.
    """
    import cupy

    size = np.dtype(DTYPES[dtype]).itemsize
    unsigned = np.dtype(f"u{size}")
    random = cupy.random.RandomState(seed)
    keys = cupy.full(n, 0 if words == 0 else np.iinfo(unsigned).max, unsigned)
    for _ in range(words):
        keys &= random.randint(0, 1 << 32, n * size // 4, np.uint32).view(unsigned)
    if bits < 8 * size:
        keys &= unsigned.type((1 << bits) - 1)
    return keys.view(DTYPES[dtype])


class Cub:
    """The CUB program: asked in lines, answers in JSON."""

    def __init__(self, path: str | None) -> None:
        self.program: Path | None = None
        self._compiler: subprocess.Popen[str] | None = None
        if path is None:
            return
        source = Path(path)
        if not source.exists():
            raise OptionError(
                f"--cub {path}: there is no such file; give tests/bench/cub_peer.cu or the program made of it"
            )
        if source.suffix != ".cu":
            self.program = source.resolve()
            return
        nvcc = shutil.which("nvcc")
        if nvcc is None:
            raise OptionError("--cub with a .cu file needs nvcc, which is not on the PATH: give the compiled program")
        # Waited for when it is first asked: the compiler takes a minute, which other measurements need not wait for.
        self.program = Path(tempfile.mkdtemp()) / "cub_peer"
        command = [nvcc, "-O3", "-std=c++17", "-arch=native", str(source), "-o", str(self.program)]
        self._compiler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def compiled(self) -> Path | None:
        """Return the program once it is there; None without CUB.

        Raises
        ------
        OptionError
            The compiler refused it.
        """
        if self._compiler is not None:
            said = self._compiler.communicate()[1]
            if self._compiler.returncode:
                raise OptionError(f"nvcc refused the CUB program:\n{said[-2000:]}")
            self._compiler = None
        return self.program

    def __call__(self, what: str, dtype: str, n: int, words: int = 1, bits: int = 64, repeats: int = 7) -> float | None:
        """Return the milliseconds of one question (see cub_peer.cu); None without CUB or for a dtype it has not."""
        if self.program is None or dtype not in ("u32", "f32", "u64"):
            return None
        question = f"{what} {dtype} {n} {words} {bits} {repeats}\n"
        done = subprocess.run([str(self.compiled())], input=question, capture_output=True, text=True, check=False)
        if done.returncode or not done.stdout:
            raise OptionError(f"{self.program} failed on {question!r}: {done.stderr.strip()}")
        return float(json.loads(done.stdout)["ms"])
