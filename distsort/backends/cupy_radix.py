"""The radix sort on a GPU: keys, positions, pairs; and the choice of a method from the plan.

    values --> radix_histogram --> [plan read back, large n only] --> radix_pass x k --> radix_repair | radix_finish
                                          |
                                          +-- plain      one pass per digit that varies
                                          +-- squeezed   the varying bits side by side, in a 4-byte word where they fit
                                          +-- finished   64-bit keys: top bits, then runs of equal top bits

Up to some hundred thousand keys one launch does it all (`cupy_small`). Sorts of middle size never wait for the device:
constant digits are skipped by the plan that the histogram leaves there. All methods sort the same keys to the same
bits; only their speed differs.

Memory beyond the input, in bytes a key (plus some 2 % of tables): keys of w bytes 2w, the result included; positions
of keys up to 4 bytes 16; positions of 8-byte keys 24.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from distsort.backends.cupy_keys import Coded
from distsort.backends.cupy_launch import TIES, Sorter
from distsort.backends.cupy_small import sort_small
from distsort.errors import SortMemoryError
from distsort.kernels import policy
from distsort.kernels.instances import Method, finish_name, sample_names
from distsort.kernels.loader import kernels

FINISH_FILE = "radix_finish.cu"


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

    Raises
    ------
    SortMemoryError
        The device has no room for twice the input.
    """
    n, size = values.size, values.dtype.itemsize
    if n < 2:
        return values.copy()
    if n <= policy.SMALL_LIMIT:
        if codec.infinity:
            return values.take(sort_small(values, policy.unify_codec(codec, size), 8))
        return sort_small(values, codec)
    out = cupy.empty_like(values)
    plain = Method("KEYS", size, size, watch=codec.infinity > 0)
    sorter = Sorter(plain, n, values, codec)
    sorter.out_keys = out
    sorter.count()
    sorter.words = (out, cupy.empty(n, f"u{size}") if size > 1 else None)
    active = _choose(sorter)
    sorter.passes(active)
    if sorter.finish and not _finished(sorter):
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
        Positions, shape (n,), in which rows already are sorted by less significant keys: uint32 for n <= 2^32, else
        uint64. None: input order.
    index_bytes
        8 for int64 positions; 4 for uint32, n <= 2^32.

    Raises
    ------
    SortMemoryError
        The device has no room for 16 or 24 bytes a key.
    """
    n, size = values.size, values.dtype.itemsize
    if n < 2:
        return cupy.arange(n, dtype=np.int64 if index_bytes == 8 else np.uint32)
    if n <= policy.SMALL_LIMIT and before is None:
        return sort_small(values, codec, index_bytes)
    long = n > 1 << 32
    wide = 8 if long and (size > 2 or before is not None) else 0
    payload = wide if long else 4 if size == 8 else 0
    plain = Method("ARGSORT" if before is None else "ARGSORT_BY", size, size, payload)
    sorter = Sorter(plain, n, values, codec, before)
    sorter.index_bytes = index_bytes
    sorter.count()
    rooms = (cupy.empty(n, np.uint64), cupy.empty(n, np.uint64))
    active = size if long else _choose(sorter)
    _lay_out(sorter, rooms)
    sorter.passes(active)
    if sorter.finish and not _finished(sorter):
        sorter.use(plain)
        _lay_out(sorter, rooms)
        sorter.count()
        sorter.passes(size)
    return rooms[0].view(np.int64) if index_bytes == 8 else rooms[0].view(np.uint32)[:n]


def _lay_out(sorter: Sorter, rooms: tuple[Any, Any]) -> None:
    """Give a sort of positions its buffers.

    The last pass reads the second buffers only, so the positions may take the place of the first ones: of the words
    where these have 8 bytes, of the payload where that has.
    """
    n, method = sorter.n, sorter.method
    sorter.payload = (None, None)
    if method.word == 8:
        sorter.words = rooms
        if method.payload:
            sorter.payload = (cupy.empty(n, f"u{method.payload}"), cupy.empty(n, f"u{method.payload}"))
    else:
        sorter.words = (cupy.empty(n, f"u{method.word}"), cupy.empty(n, f"u{method.word}"))
        sorter.payload = rooms
    sorter.out_values = rooms[0]


def cascade(words: Sequence[Coded], n: int) -> Any:
    """Return the stable order of rows by several words, the most significant first.

    The least significant word is sorted first; each further sort is stable, so it keeps what the ones before it made of
    its ties. (Programming Massively Parallel Processors, 4th ed., ch. 13; Knuth, vol. 3, 5.2.5.)

    Returns
    -------
    index
        cupy int64, shape (n,).
    """
    long = n > 1 << 32
    order = None
    for i in range(len(words) - 1, -1, -1):
        word = words[i]
        if order is not None and long:
            order = order.view(np.uint64)
        order = argsort_keys(word.values, word.codec, order, 4 if i and not long else 8)
    return cupy.arange(n, dtype=np.int64) if order is None else order


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


def _choose(sorter: Sorter) -> int:
    """Take the method that the plan speaks for; return its number of passes."""
    method = sorter.method
    if sorter.n < policy.read_plan_from(method.source):
        return method.key
    sampled = method.source == 8 and method.mode != "ARGSORT_BY"
    if sampled:
        _sample(sorter)
    control = sorter.control(meanwhile=sorter.find)
    active, ones = int(control["active"]), int(control["ones"])
    varying = ones & int(control["zeros"])
    if not varying:
        return active
    digits: list[int] = control["digit"][:active].tolist()
    whole = sum(255 << 8 * d for d in digits)
    squeezed = replace(method, key=4, payload=0, squeeze=True)
    if method.source == 8 and active <= 4:  # whole bytes side by side: the counts hold for them as they are
        squeeze = policy.stretches(whole)
        if squeeze is not None:
            sorter.adopt(squeezed, squeeze, ones & ~whole)
            return active
    fewer = -(-varying.bit_count() // 8)
    if fewer < active:
        squeeze = policy.stretches(varying)
        if squeeze is not None:
            sorter.use(squeezed if fewer <= 4 else replace(method, squeeze=True), squeeze, ones & ~varying)
            sorter.count()
            return fewer
    return _choose_finish(sorter, digits, control["ties"].tolist()) if sampled else active


def _sample(sorter: Sorter) -> None:
    """Count how many neighbours of a sorted sample of 8-byte keys agree in their top bytes, on the device.

    Raises
    ------
    ValueError
        There are fewer keys than the sample takes: its stretches would be empty.
    """
    if sorter.n < policy.SAMPLE:
        raise ValueError(f"a sample of {policy.SAMPLE} keys cannot be drawn from {sorter.n}: sort them without one")
    take, compare = kernels(FINISH_FILE, sample_names(sorter.method.source, sorter.method.unify))
    keys = cupy.empty(policy.SAMPLE, np.uint64)
    blocks, threads = policy.SAMPLE // 256, 256
    take(blocks, threads, (sorter.job(), keys, np.uint32(policy.SAMPLE)))
    ordered = sort_small(keys, policy.codec("u", 8))
    compare(blocks, threads, (ordered, np.uint32(policy.SAMPLE), sorter.workspace.data.ptr + TIES))


def _choose_finish(sorter: Sorter, digits: list[int], ties: list[int]) -> int:
    """Sort by the top digits only where few sampled keys agree in them; return the number of passes."""
    active = len(digits)
    keys = sorter.method.mode == "KEYS"
    most = active - policy.FINISH_SAVES if keys else min(4, active - 1)
    allowed = policy.allowed_ties(sorter.n)
    top = next((k for k in range(1, most + 1) if ties[digits[active - k]] <= allowed), 0)
    if not top:
        return active
    if not keys:
        top = 4
        squeeze = policy.stretches(sum(255 << 8 * d for d in digits[active - top :]))
        if squeeze is None:
            return active
        sorter.adopt(replace(sorter.method, key=4, payload=0, squeeze=True), squeeze, 0)
    sorter.skip, sorter.finish = active - top, 1
    sorter.shift = 8 * digits[active - top] if keys else 32
    return top


def _finished(sorter: Sorter) -> bool:
    """Launch the finish; return whether it kept within its bounds. Waits for the device."""
    threads, items = policy.FINISH_SHAPE
    mode = "KEYS" if sorter.method.mode == "KEYS" else "ARGSORT"
    (finish,) = kernels(FINISH_FILE, (finish_name(sorter.method.source, mode),))
    finish(-(-sorter.n // (threads * items)), threads, (sorter.job(), np.uint32(sorter.shift)))
    return not sorter.control()["failed"]
