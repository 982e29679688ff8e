"""Backends sort and merge what is in one memory: `numpy` on the host, `cupy` on a GPU."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from distsort import blocks
from distsort.backends.base import Backend
from distsort.backends.numpy import NumpyBackend
from distsort.errors import OptionError

__all__ = ["Backend", "get_backend"]

_NUMPY = NumpyBackend()


def get_backend(name: str | None, block: Any) -> Backend:
    """Choose a backend.

    Parameters
    ----------
    name
        "numpy", "cupy", or None for the one that fits the block.
    block
        A block or a key column; its library decides when no name is given.

    Returns
    -------
    Backend

    Raises
    ------
    OptionError
        An unknown name; cupy asked for where it or a GPU is missing; numpy asked for blocks that lie on a GPU.

    Examples
    --------
    >>> import numpy as np
    >>> get_backend(None, np.arange(3)).name
    'numpy'
    """
    on_device = blocks.on_device(block)
    if name is None:
        name = "cupy" if on_device else "numpy"
    if name == "numpy":
        if on_device:
            raise OptionError(
                "backend='numpy' cannot sort blocks in GPU memory: leave backend= out, or bring the blocks to the host"
            )
        return _NUMPY
    if name == "cupy":
        return _cupy()
    raise OptionError(f"backend={name!r} is unknown: use 'numpy' or 'cupy', or leave it out")


@functools.cache
def _cupy() -> Backend:
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        raise OptionError(
            "backend='cupy' needs cupy, which is not installed: pip install 'distsort[cuda13]', or"
            " 'distsort[cuda12]' for CUDA 12"
        ) from error
    try:
        devices = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise OptionError(f"backend='cupy' needs a GPU, and CUDA finds none ({error}): use backend='numpy'") from error
    if not devices:
        raise OptionError("backend='cupy' needs a GPU, and CUDA finds none: use backend='numpy'")
    backend: Backend = importlib.import_module("distsort.backends.cupy").CupyBackend()
    return backend
