"""Narrow forms of runs that were lent: begun when their lease is known, complete when a reader asks, attached there.

owner     lend .... begin .......... finish -> frames
reader    maps the runs ............ attach <- frames
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from distsort.backends import cupy_ipc
from distsort.backends.cupy_narrow import Offsets, narrow
from distsort.columns import Columns
from distsort.device_memory import device_work
from distsort.kernels import policy
from distsort.local import Run

EVEN_STEPS, EVEN_LIMIT = 64, 2
"""Of so many steps through a run, how much longer than their mean the longest may be where it is evenly spread."""

Told = list[tuple[int, int, int, int, bool]]
"""Of each narrow form: which of the runs has it, first row, last row, bytes of an offset, whether it descends."""


class NarrowForms:
    """The narrow forms of some runs of one lease, while they are made.

    Parameters
    ----------
    runs, down
        The runs, and whether each descends.

    Attributes
    ----------
    wanted
        Whether the lease lasts; if not, nothing is begun.
    """

    def __init__(self, runs: Sequence[Run], down: Sequence[bool]) -> None:
        self._keys = [(_bare(run), descends) for run, descends in zip(runs, down, strict=True)]
        self._made: Future[tuple[list[Offsets | None], Any]] = Future()
        self.wanted = True

    @property
    def possible(self) -> bool:
        """Whether there may be any, as far as can be told without looking at keys."""
        return any(_large_integers(keys) for keys, _ in self._keys)

    def begin(self, share: tuple[float, float]) -> None:
        """Begin to make them, where they cross faster than the runs.

        Parameters
        ----------
        share
            Of each run, about what the reader will need.
        """
        if not self.wanted:
            self._made.set_result(([], None))
            return
        try:
            with cupy_ipc.packing_stream() as stream, device_work(True, wait=False):
                made = [narrow(keys, down, share) if _even(keys) else None for keys, down in self._keys]
                self._made.set_result((made, stream.record()))
        except MemoryError:  # the runs do without
            self._made.set_result(([], None))
        except BaseException as error:
            self._made.set_exception(error)

    def finish(self) -> tuple[Told, list[Any]]:
        """Wait until they are complete; return what is to be told of them, and two frames of bytes for each."""
        made, complete = self._made.result()
        if complete is not None:
            complete.synchronize()
        known = [(at, offsets) for at, offsets in enumerate(made) if offsets is not None]
        frames = [frame.view(np.uint8) for _, offsets in known for frame in (offsets.values, offsets.ends)]
        return [(at, o.start, o.stop, o.values.itemsize, o.down) for at, o in known], frames


def attach(runs: Sequence[Run], told: Told, frames: Sequence[Any]) -> None:
    """Give mapped runs their narrow forms, of which `frames` are mapped, too."""
    pairs = iter(frames)
    for at, start, stop, width, down in told:
        keys, values, ends = _bare(runs[at]), next(pairs).view(f"u{width}"), next(pairs)
        keys.data.mem.offsets = Offsets(values, ends.view(keys.dtype), start, stop, down)


def _bare(run: Run) -> Any:
    """Return the array that a run is, if it is nothing but its keys."""
    rows = run.rows
    if isinstance(rows, Columns):
        rows = rows.arrays[0] if len(rows.arrays) == 1 else None
    return rows if run.keys is None and getattr(rows, "ndim", 0) == 1 else None


def _large_integers(keys: Any) -> bool:
    return keys is not None and keys.dtype.kind in "iu" and keys.nbytes >= policy.NARROW_LEAST


def _even(keys: Any) -> bool:
    """Whether sorted integers are about equally far apart all along: offsets that fit on the average then fit."""
    if not _large_integers(keys):
        return False
    seen = keys[:: len(keys) // EVEN_STEPS].get().tolist()
    steps = [abs(b - a) for a, b in itertools.pairwise(seen)]
    return max(steps) * len(steps) <= EVEN_LIMIT * sum(steps)
