"""Narrow forms of runs that are lent: begun by the owner when it lends them, attached by the reader to what it maps.

owner     lends, begins |......... makes them ........| event
reader    maps the runs, attaches | finds its co-ranks | sees the event, merges
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from distsort import blocks
from distsort.backends import cupy_ipc
from distsort.backends.cupy_narrow import Offsets, narrow, offsets_for, width_of
from distsort.columns import Columns
from distsort.local import Run


def begin(runs: Sequence[Run], down: Sequence[bool], share: tuple[float, float]) -> tuple[dict[str, Any], list[Any]]:
    """Begin to make narrow forms of runs, on the packing stream, where they cross faster than the runs.

    Parameters
    ----------
    runs, down
        The runs, and whether each descends.
    share
        Of each run, about what the reader will need.

    Returns
    -------
    answer, frames
        What is to be told: of each form which of the runs has it, its rows, bytes of an offset and whether it
        descends; and its memory, two frames for each form, for the lease to keep. Nothing where there is none.
    """
    made: list[tuple[int, Any, Offsets]] = []
    try:
        for at, (run, descends) in enumerate(zip(runs, down, strict=True)):
            keys = _bare(run)
            width = None if keys is None else width_of(keys, share)
            if width is not None:
                made.append((at, keys, offsets_for(keys, descends, share, width)))
    except MemoryError:  # the runs do without
        return {}, []
    frames = [frame.view(np.uint8) for _, _, known in made for frame in (known.values, known.ends)]
    event = cupy_ipc.packing_event() if made else None
    # Exported before they are written: it would wait for that.
    exported = cupy_ipc.export(frames) if event is not None else None
    if exported is None:
        return {}, []
    for _, keys, known in made:
        narrow(keys, known)
    cupy_ipc.record_packing()
    told = [(at, known.start, known.stop, known.values.itemsize, known.down) for at, _, known in made]
    return {"narrow": told, "narrow_frames": pickle.dumps(exported), "event": event}, frames


def attach(runs: Sequence[Run], answer: dict[str, Any], frames: Sequence[Any]) -> None:
    """Give mapped runs the narrow forms of an answer, of which `frames` are mapped, too."""
    pairs = iter(frames)
    for at, start, stop, width, down in answer["narrow"]:
        keys, values, ends = _bare(runs[at]), next(pairs).view(f"u{width}"), next(pairs)
        keys.data.mem.offsets = Offsets(values, ends.view(keys.dtype), start, stop, down)


def _bare(run: Run) -> Any:
    """Return the array that a run is, if it is nothing but its keys, in one piece."""
    rows = run.rows
    if isinstance(rows, Columns):
        rows = rows.arrays[0] if len(rows.arrays) == 1 else None
    if run.keys is not None or blocks.is_series(rows) or getattr(rows, "ndim", 0) != 1:
        return None
    return rows if rows.flags.c_contiguous else None
