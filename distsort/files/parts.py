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

import pandas as pd
import pyarrow as pa

from distsort.blocks import Block
from distsort.errors import ValidationError
from distsort.files.seen import Seen, Tally, first_fault, table_of
from distsort.io.commit import explain, part_name
from distsort.io.sink import Sink, before, keys_with_nan, write_part
from distsort.io.source import Source, require_columns, to_frame, to_table
from distsort.io.storage import Store
from distsort.order import Order

_TALLY = "_read-{:06d}.json"


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
