"""The two tasks at the ends of a file sort, and what they must agree on.

A read task counts and hashes its rows and leaves that tally, a few bytes, in the staging folder; a write task checks
and hashes the rows of its part before it writes them. Tallies make the input read only once: nothing has to go over the
rows again to know what they were.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from distsort import blocks, keys
from distsort.blocks import Block
from distsort.errors import ValidationError
from distsort.io.checksum import table_checksum
from distsort.io.commit import explain, part_name
from distsort.io.raw import Raw
from distsort.io.sink import Sink, before, keys_with_nan, write_part
from distsort.io.source import Source, require_columns, to_frame, to_table
from distsort.io.storage import Store
from distsort.order import Order

_TALLY = "_read-{:06d}.json"


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


@dataclass(frozen=True)
class Read:
    """What a read task says of its piece: its tally, and when it began and ended (time.time())."""

    tally: Tally
    start: float
    stop: float


@dataclass(frozen=True)
class Written:
    """What a write task says of its part.

    Attributes
    ----------
    name
        Of the file.
    tally
        Of the rows in it.
    stored
        Bytes of the file.
    ends
        Keys of its first and last row.
    dropped
        Of the rows that were left out as duplicates.
    """

    name: str
    tally: Tally
    stored: int
    ends: pd.DataFrame
    dropped: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class ReadPiece:
    """Reads piece `number` of a source to a frame and leaves its tally."""

    source_reader: Any
    written: pa.Schema
    store: Store
    folder: str
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, number: int, piece: Any) -> pd.DataFrame:
        """Return the rows of the piece."""
        start = time.time()
        table = self.source_reader(piece)
        seen = table.select(self.written.names)
        tally = Tally.of(seen)
        path = f"{self.folder}/{_TALLY.format(number)}"
        try:
            self.store.write(path, json.dumps([asdict(tally), start, time.time()]).encode())
        except OSError as error:
            raise explain(self.store.url(self.folder), error) from error
        return to_frame(table)

    def __dask_tokenize__(self) -> str:
        return self.token


@dataclass(frozen=True)
class WritePart:
    """Checks and writes one part.

    Attributes
    ----------
    order
        What the parts are sorted by.
    ranked
        The keys that are ordered by category, which no format can say of a file.
    written
        The columns to write.
    sink
        The format.
    store, folder, parts
        Where, and how many parts there will be.
    unique
        Leave out rows whose keys are those of the row above them.
    """

    order: Order
    ranked: frozenset[str]
    written: pa.Schema
    sink: Sink
    store: Store
    folder: str
    parts: int
    unique: bool

    def __call__(self, frame: pd.DataFrame, number: int, above: pd.DataFrame | None = None) -> Written:
        """Write part `number`, which is one frame; `above` has the keys of the row before it."""
        floats = [f for f in self.written if pa.types.is_floating(f.type) and f.name in self.order_names]
        nan = keys_with_nan(to_table(frame, pa.schema(floats)), self.order)
        return self.stream([frame], len(frame), number, nan, above)

    def stream(
        self, frames: Iterable[Block], rows: int, number: int, nan: set[str], above: pd.DataFrame | None = None
    ) -> Written:
        """Write part `number`, whose rows come frame after frame.

        Parameters
        ----------
        frames
            The rows, in order: pandas frames, or rows of bytes.
        rows
            How many there are in all.
        number
            Of the part.
        nan
            Keys in which a NaN may stand.
        above
            Keys of the row before the part, where there is one and duplicates are left out.

        Raises
        ------
        ValidationError
            The rows are not in order.
        OutputError
            The file system refused.
        """
        name = part_name(number, self.parts, self.sink.suffix)
        seen = Seen(self.order, name, above if self.unique else None)
        claimed = before(self.order, nan | self.ranked)
        look = seen.look_unique if self.unique else seen.look
        tables = (look(frame, table_of(frame, self.written)) for frame in frames)
        path = f"{self.folder}/{name}"
        try:
            known = None if self.unique else rows
            stored = write_part(self.store, path, self.sink, self.written, tables, known, claimed)
        except OSError as error:
            raise explain(self.store.url(self.folder), error) from error
        return Written(name, seen.tally, stored, seen.ends, seen.dropped)

    @property
    def order_names(self) -> set[str]:
        """The names of the keys."""
        return {str(key.name) for key in self.order.keys}


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


def make_tasks(
    source: Source,
    order: Order,
    columns: Sequence[str] | None,
    store: Store,
    folder: str,
    parts: int,
    unique: bool = False,
) -> tuple[ReadPiece, WritePart]:
    """Return the two ends of a sort."""
    written = source.written
    if columns is not None:
        require_columns(columns, written.names, "column", source.format)
        written = pa.schema([written.field(name) for name in columns], metadata=written.metadata)
    return (
        ReadPiece(source.reader, written, store, folder),
        WritePart(order, frozenset(source.categories), written, source.sink, store, folder, parts, unique),
    )


def read_tallies(store: Store, folder: str, pieces: int) -> list[Read]:
    """Return what the read tasks counted.

    Raises
    ------
    ValidationError
        A piece has no tally: it was not read.
    """
    tallies = []
    for number in range(pieces):
        try:
            text = store.read(f"{folder}/{_TALLY.format(number)}")
        except FileNotFoundError:
            raise ValidationError(f"piece {number} of the input was not read; nothing was published") from None
        tally, start, stop = json.loads(text)
        tallies.append(Read(Tally(**tally), start, stop))
    return tallies


def check_whole(read: Sequence[Read], written: Sequence[Written], order: Order) -> Tally:
    """Check that the parts, one after the other, are the input in order.

    Returns
    -------
    Tally
        Of all rows.

    Raises
    ------
    ValidationError
        Rows were lost, doubled or altered, or parts are out of order.
    """
    source = sum((piece.tally for piece in read), Tally())
    result = sum((part.tally + part.dropped for part in written), Tally())
    if source.rows != result.rows:
        raise ValidationError(
            f"{source.rows:,} rows were read, but {result.rows:,} are in the parts; nothing was published"
        )
    if source.checksum != result.checksum:
        raise ValidationError(
            f"the {source.rows:,} rows of the parts are not those that were read (checksum "
            f"{result.checksum:016x}, not {source.checksum:016x}); nothing was published"
        )
    filled = [part for part in written if part.tally.rows]
    if filled:
        fault = first_fault(pd.concat([part.ends for part in filled], ignore_index=True), order)
        if fault is not None:
            name = filled[fault // 2].name
            raise ValidationError(f"{name} does not follow the part before it; nothing was published")
    return source


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
