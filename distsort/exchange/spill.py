"""A run on disk, read slice by slice.

The rows are written as a row of pickled chunks, each a run of its own, with a table of where each begins::

    rows     0 ........ 8191 | 8192 ....... 16383 | 16384 .. n
    file     [chunk 0       ][chunk 1            ][chunk 2   ]

A slice reads the chunks that it overlaps and no others. Any block that pickles can be spilled, whatever its columns.
"""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np

from distsort import blocks
from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.local import Run, Spec

CHUNK = 1 << 17
"""Bytes of rows in one chunk; a slice reads at most two chunks more than it needs."""


class RunFile:
    """A run that was written to a file.

    Parameters
    ----------
    run
        Host rows.
    path
        Where to write; the file must not exist. It is removed by `close`.
    """

    def __init__(self, run: Run, path: Path) -> None:
        self.path = path
        self.length = len(run)
        rows = max(1, CHUNK * len(run) // max(run.nbytes, 1))
        self._rows = np.append(np.arange(0, max(len(run), 1), rows), len(run))
        at = [0]
        try:
            with path.open("xb") as file:
                for start, stop in itertools.pairwise(self._rows.tolist()):
                    pickle.dump(run.cut(start, stop), file, protocol=5)
                    at.append(file.tell())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        self._at = at

    def __len__(self) -> int:
        return self.length

    @property
    def nbytes(self) -> int:
        """Size of the file, in bytes."""
        return self._at[-1]

    def cut(self, start: int, stop: int) -> Run:
        """Read rows ``[start, stop)``."""
        first = min(int(np.searchsorted(self._rows, start, side="right")) - 1, len(self._at) - 2)
        last = max(first + 1, int(np.searchsorted(self._rows, stop, side="left")))
        pieces = [
            chunk.cut(max(start - base, 0), min(stop - base, len(chunk)))
            for base, chunk in zip(self._rows[first:last].tolist(), self._read(first, last), strict=True)
        ]
        return join(pieces)

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Column, ...]:
        """Read the keys at some positions, in any order: brackets of a search overlap."""
        asked, back = np.unique(positions, return_inverse=True)
        found = self._keys_at(asked, spec)
        return tuple(blocks.take(column, back) for column in found) if len(positions) else found

    def _keys_at(self, positions: IntArray, spec: Spec) -> tuple[Column, ...]:
        """Read the keys at ascending positions."""
        chunk_of = np.searchsorted(self._rows, positions, side="right") - 1
        found = []
        for i in np.unique(chunk_of) if len(positions) else [0]:
            (chunk,) = self._read(int(i), int(i) + 1)
            found.append(chunk.keys_at(positions[chunk_of == i] - self._rows[i], spec))
        return tuple(blocks.concat_columns(column) for column in zip(*found, strict=True))

    def close(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    def _read(self, first: int, last: int) -> list[Run]:
        with self.path.open("rb") as file:
            file.seek(self._at[first])
            data = file.read(self._at[last] - self._at[first])
        view = memoryview(data)
        at = [a - self._at[first] for a in self._at[first : last + 1]]
        return [pickle.loads(view[a:b]) for a, b in itertools.pairwise(at)]


def join(pieces: list[Run]) -> Run:
    """Put slices of one run, or runs of one kind, one under the other."""
    if len(pieces) == 1:
        return pieces[0]
    keys = None
    if pieces[0].keys is not None:
        keys = tuple(blocks.concat_columns(column) for column in zip(*(p.keys or () for p in pieces), strict=True))
    return Run(blocks.concat([p.rows for p in pieces]), keys)
