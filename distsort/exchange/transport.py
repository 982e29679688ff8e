"""How slices cross between two workers: packed on one side, cut apart on the other.

A frame costs about 40 microseconds on each side whatever its size, and a small slice is copied in less. So an answer of
small slices is put together into one block, and only large ones travel as frames of their own, uncopied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed.protocol import to_serialize

from distsort.exchange.handles import Source
from distsort.exchange.spill import join
from distsort.local import Run

if TYPE_CHECKING:
    from distsort.exchange.device import DeviceTransport

PACK_BELOW = 1 << 18
"""Mean bytes of a slice below which the slices of one answer are put together."""


@dataclass(frozen=True)
class Slice:
    """Rows ``[start, stop)`` of the run at a source."""

    source: Source
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def nbytes(self) -> int:
        """Estimated size, in bytes."""
        return int(len(self) * self.source.row_bytes) + 1

    def split(self, nbytes: int) -> Iterator[Slice]:
        """Cut into slices of at most about so many bytes."""
        rows = max(1, int(nbytes / max(self.source.row_bytes, 1e-9)))
        for start in range(self.start, max(self.stop, self.start + 1), rows):
            yield Slice(self.source, start, min(start + rows, self.stop))


def batches(slices: Sequence[Slice], nbytes: int) -> list[list[tuple[int, Slice]]]:
    """Group slices, each with its index, into questions of about `nbytes`; larger slices are split."""
    made: list[list[tuple[int, Slice]]] = [[]]
    size = 0
    for i, whole in enumerate(slices):
        for piece in whole.split(nbytes):
            if made[-1] and size + piece.nbytes > nbytes:
                made.append([])
                size = 0
            made[-1].append((i, piece))
            size += piece.nbytes
    return made


def pack(
    runs: Sequence[Run], nbytes: float, devices: DeviceTransport | None = None, host: str = "", reader: str = ""
) -> dict[str, Any]:
    """Turn slices into the answer of one question.

    Parameters
    ----------
    runs, nbytes
        The slices, and about how large they are together.
    devices, host, reader
        For rows in GPU memory: what moves them, and the reader, which maps memory of that host.
    """
    packed = len(runs) > 1 and nbytes < PACK_BELOW * len(runs)
    if packed:
        runs = [join(list(runs))]
    if devices is not None:
        return {"packed": packed, **devices.pack(runs, host, reader)}
    return {
        "packed": packed,
        "rows": [to_serialize(r.rows) for r in runs],
        "keys": None if runs[0].keys is None else [[to_serialize(k) for k in r.keys or ()] for r in runs],
    }


def unpack(answer: dict[str, Any], lengths: Sequence[int]) -> list[Run]:
    """Turn an answer of host memory back into slices of the lengths that were asked for."""
    keys = answer["keys"] or [None] * len(answer["rows"])
    runs = [Run(rows, None if k is None else tuple(k)) for rows, k in zip(answer["rows"], keys, strict=True)]
    return cut_apart(runs, lengths) if answer["packed"] else runs


def cut_apart(runs: Sequence[Run], lengths: Sequence[int]) -> list[Run]:
    """Cut what was put together."""
    cut, start = [], 0
    for length in lengths:
        cut.append(runs[0].cut(start, start + length))
        start += length
    return cut
