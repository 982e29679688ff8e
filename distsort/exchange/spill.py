"""A run on disk, read slice by slice.

Rows and keys are written as two series of pickled chunks, each a run of its own, with tables of where each begins::

    rows     0 ........ 8191 | 8192 ....... 16383 | 16384 .. n
    keys     0 .......................... 81919 | 81920 ... n
    file     [chunk 0       ][chunk 1            ][chunk 2   ][keys 0                ][keys 1 ]

A slice reads the chunks that it overlaps and no others, and the search for cuts reads keys and no rows. Keys that are
most of a row are not written twice: then they are read from the rows. Any block that pickles can be spilled, whatever
its columns.
"""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from distsort import blocks
from distsort.blocks import Column
from distsort.cuts import IntArray
from distsort.local import Run, Spec

CHUNK = 1 << 17
"""Bytes of rows in one chunk; a slice reads at most two chunks more than it needs."""


KEYS_SHARE = 0.5
"""Keys that are a larger share of a run's bytes are read from its rows."""


@dataclass(frozen=True)
class _Chunks:
    """Chunks of one file: number i holds rows ``[starts[i], starts[i + 1])`` in bytes ``[at[i], at[i + 1])``."""

    starts: IntArray
    at: list[int]

    @classmethod
    def write(cls, file: BinaryIO, run: Run) -> _Chunks:
        """Write a run."""
        rows = max(1, CHUNK * len(run) // max(run.nbytes, 1))
        starts = np.append(np.arange(0, max(len(run), 1), rows), len(run))
        at = [file.tell()]
        for start, stop in itertools.pairwise(starts.tolist()):
            pickle.dump(run.cut(start, stop), file, protocol=5)
            at.append(file.tell())
        return cls(starts, at)

    def read(self, path: Path, first: int, last: int) -> list[Run]:
        """Read chunks ``[first, last)``."""
        with path.open("rb") as file:
            file.seek(self.at[first])
            view = memoryview(file.read(self.at[last] - self.at[first]))
        at = [a - self.at[first] for a in self.at[first : last + 1]]
        return [pickle.loads(view[a:b]) for a, b in itertools.pairwise(at)]


class RunFile:
    """A run that was written to a file.

    Parameters
    ----------
    run
        Host rows.
    path
        Where to write; the file must not exist. It is removed by `close`.
    spec
        The sort, which tells the keys.
    """

    def __init__(self, run: Run, path: Path, spec: Spec) -> None:
        self.path = path
        self.length = len(run)
        columns = run.keys if run.keys is not None else blocks.key_columns(run.rows, spec.order)
        first, *others = (c.reset_index(drop=True) if blocks.is_series(c) else c for c in columns)
        keys = Run(first, tuple(others))
        try:
            with path.open("xb") as file:
                self._rows = self._keys = _Chunks.write(file, run)
                if keys.nbytes <= KEYS_SHARE * run.nbytes:
                    self._keys = _Chunks.write(file, keys)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def __len__(self) -> int:
        return self.length

    @property
    def nbytes(self) -> int:
        """Size of the file, in bytes."""
        return self._keys.at[-1]

    def cut(self, start: int, stop: int) -> Run:
        """Read rows ``[start, stop)``."""
        starts = self._rows.starts
        first = min(int(np.searchsorted(starts, start, side="right")) - 1, len(starts) - 2)
        last = max(first + 1, int(np.searchsorted(starts, stop, side="left")))
        pieces = [
            chunk.cut(max(start - base, 0), min(stop - base, len(chunk)))
            for base, chunk in zip(starts[first:last].tolist(), self._rows.read(self.path, first, last), strict=True)
        ]
        # A view of a chunk would keep all of that.
        whole = join(pieces) if len(pieces) > 1 else _copy(pieces[0])
        return Run(blocks.in_one_piece(whole.rows), whole.keys)

    def keys_at(self, positions: IntArray, spec: Spec) -> tuple[Column, ...]:
        """Read the keys at some positions, in any order: brackets of a search overlap."""
        asked, back = np.unique(positions, return_inverse=True)
        found = self._keys_at(asked, spec)
        return tuple(blocks.take(column, back) for column in found) if len(positions) else found

    def _keys_at(self, positions: IntArray, spec: Spec) -> tuple[Column, ...]:
        """Read the keys at ascending positions."""
        starts = self._keys.starts
        chunk_of = np.searchsorted(starts, positions, side="right") - 1
        found = []
        for i in np.unique(chunk_of) if len(positions) else [0]:
            (chunk,) = self._keys.read(self.path, int(i), int(i) + 1)
            if self._keys is not self._rows:
                chunk = Run(chunk.rows, (chunk.rows, *(chunk.keys or ())))
            found.append(chunk.keys_at(positions[chunk_of == i] - starts[i], spec))
        return tuple(blocks.concat_columns(column) for column in zip(*found, strict=True))

    def close(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


def _copy(run: Run) -> Run:
    return Run(run.rows.copy(), None if run.keys is None else tuple(column.copy() for column in run.keys))


def join(pieces: list[Run]) -> Run:
    """Put slices of one run, or runs of one kind, one under the other."""
    if len(pieces) == 1:
        return pieces[0]
    keys = None
    if pieces[0].keys is not None:
        keys = tuple(blocks.concat_columns(column) for column in zip(*(p.keys or () for p in pieces), strict=True))
    return Run(blocks.concat([p.rows for p in pieces]), keys)
