"""What is seen of rows as they go by: how many, their checksum, whether they are in order, which are there twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort import blocks, keys
from distsort.blocks import Block
from distsort.errors import ValidationError
from distsort.io.checksum import table_checksum
from distsort.io.raw import Raw
from distsort.io.source import to_frame, to_table
from distsort.order import Order


@dataclass(frozen=True)
class Tally:
    """Rows that went by.

    Attributes
    ----------
    rows
        How many.
    nbytes
        Their bytes in memory.
    checksum
        Sum of the row hashes modulo 2**64.
    """

    rows: int = 0
    nbytes: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, rows: pa.Table | Raw) -> Tally:
        """Count and hash rows."""
        checksum = rows.checksum() if isinstance(rows, Raw) else table_checksum(rows)
        return cls(rows.num_rows, rows.nbytes, checksum)

    def __add__(self, other: Tally) -> Tally:
        total = (self.checksum + other.checksum) % 2**64
        return Tally(self.rows + other.rows, self.nbytes + other.nbytes, total)


class Seen:
    """Checks the frames of one part as they go by."""

    def __init__(self, order: Order, name: str, above: pd.DataFrame | None = None) -> None:
        self.order = order
        self.name = name
        self.tally = Tally()
        self.dropped = Tally()
        self._ends: Block = pd.DataFrame()
        self._above = above if above is not None and len(above) else None

    def look(self, frame: Block, table: pa.Table | Raw) -> pa.Table | Raw:
        """Check that a frame is in order and follows the one before it; return its table."""
        fault = first_fault(frame, self.order)
        if fault is not None:
            row = self.tally.rows + fault
            raise ValidationError(f"{self.name}: row {row} is out of order by {self.order}; nothing was published")
        ends = _ends_of(frame)
        if len(self._ends) and len(ends):
            both = _joined(self._ends, ends)
            if first_fault(both, self.order) is not None:
                row = self.tally.rows
                raise ValidationError(f"{self.name}: row {row} is out of order by {self.order}; nothing was published")
            ends = _ends_of(both)
        if len(ends) or not self.tally.rows:
            self._ends = ends
        self.tally += Tally.of(table)
        return table

    @property
    def ends(self) -> pd.DataFrame:
        """Keys of the first and the last row."""
        return _keys_of(self._ends, self.order).reset_index(drop=True) if len(self._ends) else pd.DataFrame()

    def look_unique(self, frame: Block, table: pa.Table | Raw) -> pa.Table | Raw:
        """Leave out the rows whose keys are those of the row above them; then as `look`."""
        held = _keys_of(frame, self.order)
        both = held if self._above is None else pd.concat([self._above, held], ignore_index=True)
        _, ties = compare_neighbours(both, self.order)
        twice = ties if self._above is not None else np.concatenate([np.zeros(min(1, len(frame)), np.bool_), ties])
        if len(frame):
            self._above = held.iloc[-1:]
        if twice.any():
            left_out = table.filter(pa.array(twice))
            self.dropped += Tally.of(left_out)
            table = table.filter(pa.array(~twice))
            frame = table if isinstance(table, Raw) else frame[~twice]
        return self.look(frame, table)


def last_keys(frame: pd.DataFrame, above: pd.DataFrame | None, order: Order) -> pd.DataFrame | None:
    """Return the keys of the last row of a part; of those before it, `above`, where it has no rows."""
    ends = end_keys(frame, order)
    return ends.iloc[-1:] if len(ends) else above


def end_keys(frame: Block, order: Order) -> pd.DataFrame:
    """Return the keys of the first and the last row, none of a frame without rows."""
    return _keys_of(_ends_of(frame), order).reset_index(drop=True)


def _ends_of(frame: Block) -> Block:
    rows = np.array([0, len(frame) - 1] if len(frame) else [], np.intp)
    return frame.take(rows) if isinstance(frame, Raw) else frame.iloc[rows]


def _joined(above: Block, below: Block) -> Block:
    return above.join(below) if isinstance(above, Raw) else pd.concat([above, below], ignore_index=True)


def _keys_of(frame: Block, order: Order) -> pd.DataFrame:
    return to_frame(frame.key_table()) if isinstance(frame, Raw) else frame[[k.name for k in order.keys]]


def table_of(frame: Block, written: pa.Schema) -> pa.Table | Raw:
    """Return rows that have travelled as what is written: a frame as its table, rows of bytes as they are."""
    return frame if isinstance(frame, Raw) else to_table(frame, written)


def first_fault(frame: Block, order: Order) -> int | None:
    """Return the number of the first row that should stand before the row above it, or None."""
    if len(frame) < 2:
        return None
    columns = (frame.keys(),) if isinstance(frame, Raw) else blocks.key_columns(frame, order)
    return keys.encode(columns, order, squeeze=False).first_descent()


def compare_neighbours(frame: pd.DataFrame, order: Order) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Say of every row but the first whether it should stand before the row above it, and whether their keys tie.

    Compares key words; it does not sort, so it does not share the mistakes of a sort.
    """
    pairs = max(len(frame) - 1, 0)
    falls, ties = np.zeros(pairs, np.bool_), np.ones(pairs, np.bool_)
    if pairs:
        for word, _ in keys.encode(blocks.key_columns(frame, order), order, squeeze=False).iterate():
            falls |= ties & (word[1:] < word[:-1])
            ties &= word[1:] == word[:-1]
            if not ties.any():
                break
    return falls, ties
