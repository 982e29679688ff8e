"""Arrow IPC files, and .npy files of one dimension, in and out.

The record batches of an IPC file (also called Feather version 2) are its pieces. A .npy file is one column, `value`;
its parts are .npy files again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from distsort import config
from distsort.errors import InputError
from distsort.io.source import Source, conform, join_neighbours, require_columns, travelling, written_field
from distsort.io.storage import Store
from distsort.order import Order

VALUE = "value"


@dataclass(frozen=True)
class Batches:
    """Some record batches of one file."""

    store: Store
    path: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class BatchReader:
    """Reads record batches."""

    schema: pa.Schema

    def __call__(self, piece: Batches) -> pa.Table:
        """Return the rows of some batches."""
        try:
            with piece.store.open(piece.path) as file, pa.ipc.open_file(file) as reader:
                batches = [reader.get_batch(number) for number in piece.numbers]
                table = pa.Table.from_batches(batches, reader.schema).select(self.schema.names)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{piece.store.url(piece.path)}: cannot be read ({error}); is the file whole?") from error
        return conform(table, self.schema, {})


def scan_ipc(
    files: Sequence[tuple[Store, str, str]],
    *,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    part_size: int | None = None,
) -> Source:
    """Look at the footers of Arrow IPC files; arguments as in `parquet.scan`.

    Raises
    ------
    InputError
        A file is not an Arrow file, schemas differ, or a column is missing.
    """
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    whole: pa.Schema | None = None
    pieces: list[Batches] = []
    sizes: list[int] = []
    stored = 0
    for store, path, _ in files:
        where = store.url(path)
        size = store.size(path)
        try:
            with store.open(path) as file, pa.ipc.open_file(file) as reader:
                schema, count = reader.schema, reader.num_record_batches
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{where}: is not a whole Arrow file ({error})") from error
        if whole is not None and not schema.equals(whole):
            raise InputError(f"{where}: its schema is not that of {files[0][0].url(files[0][1])}: write both alike")
        whole = schema if whole is None else whole
        each = size // max(count, 1)
        for numbers in join_neighbours(range(count), [each] * count, target, config.get("files.minimum-partitions")):
            pieces.append(Batches(store, path, tuple(numbers)))
            sizes.append(each * len(numbers))
        stored += size
    assert whole is not None
    where = files[0][0].url(files[0][1])
    require_columns(keys, whole.names, "key", where)
    require_columns(columns or (), whole.names, "column", where)
    if columns is not None:
        chosen = [*columns, *(key for key in keys if key not in columns)]
        whole = pa.schema([whole.field(name) for name in chosen], metadata=whole.metadata)
    if not pieces:
        pieces, sizes = [Batches(files[0][0], files[0][1], ())], [0]
    schema = pa.schema([travelling(field) for field in whole])
    return Source(
        "arrow",
        tuple(pieces),
        BatchReader(schema),
        schema,
        pa.schema([written_field(field, schema.field(field.name)) for field in whole], metadata=whole.metadata),
        {},
        None,
        sum(sizes),
        stored,
        len(files),
        (),
        tuple(sizes),
        IpcSink(),
    )


@dataclass(frozen=True)
class IpcSink:
    """Parts as Arrow IPC files."""

    suffix: str = ".arrow"

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Any:
        """Begin a file."""
        return _IpcWriter(pa.ipc.new_file(file, schema))

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int:
        """Return the rows of all batches."""
        with pa.ipc.open_file(file) as reader:
            return sum(reader.get_batch(number).num_rows for number in range(reader.num_record_batches))


@dataclass(frozen=True)
class _IpcWriter:
    ipc: Any

    def write(self, table: pa.Table) -> None:
        # One dictionary a file: the format knows no replacement.
        self.ipc.write_table(table.unify_dictionaries(), max_chunksize=config.get("files.row-group-rows"))

    def close(self) -> None:
        self.ipc.close()


@dataclass(frozen=True)
class Items:
    """Some items of a .npy file."""

    store: Store
    path: str
    offset: int
    count: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class ItemReader:
    """Reads items."""

    schema: pa.Schema

    def __call__(self, piece: Items) -> pa.Table:
        """Return items as a column."""
        with piece.store.open(piece.path) as file:
            file.seek(piece.offset)
            data = file.read(piece.count * piece.dtype.itemsize)
        if len(data) != piece.count * piece.dtype.itemsize:
            raise InputError(f"{piece.store.url(piece.path)}: is shorter than its header says: is the file whole?")
        values = np.frombuffer(data, piece.dtype)
        native: npt.NDArray[Any] = values.astype(values.dtype.newbyteorder("="), copy=False)
        return pa.Table.from_arrays([pa.array(native, from_pandas=False)], schema=self.schema)


def scan_npy(files: Sequence[tuple[Store, str, str]], *, part_size: int | None = None) -> Source:
    """Read the headers of .npy files.

    Raises
    ------
    InputError
        A file has no header, more than one dimension, a dtype without an Arrow type, or not that of the first.
    """
    target = config.get_bytes("files.part-size") if part_size is None else part_size
    pieces: list[Items] = []
    first: np.dtype[Any] | None = None
    rows = stored = 0
    for store, path, _ in files:
        where = store.url(path)
        try:
            with store.open(path) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                offset = file.tell()
        except (ValueError, OSError) as error:
            raise InputError(f"{where}: is not a .npy file ({error})") from error
        if len(shape) != 1:
            raise InputError(f"{where}: has {len(shape)} dimensions: save it with one, as in a.ravel()")
        if dtype.kind not in "iufbM":
            raise InputError(
                f"{where}: has the dtype {dtype}: numbers, bool and datetime64 can be sorted in .npy files"
            )
        first = dtype if first is None else first
        if dtype != first:
            raise InputError(f"{where}: has the dtype {dtype}, but the first file has {first}: save both alike")
        step = max(1, target // dtype.itemsize)
        for start in range(0, shape[0], step):
            count = min(step, shape[0] - start)
            pieces.append(Items(store, path, offset + start * dtype.itemsize, count, dtype))
        rows += shape[0]
        stored += store.size(path)
    assert first is not None
    if not pieces:
        pieces = [Items(files[0][0], files[0][1], 0, 0, first)]
    schema = pa.schema([(VALUE, pa.array(np.empty(0, first.newbyteorder("="))).type)])
    sizes = tuple(piece.count * first.itemsize for piece in pieces)
    return Source(
        "npy",
        tuple(pieces),
        ItemReader(schema),
        schema,
        schema,
        {},
        rows,
        sum(sizes),
        stored,
        len(files),
        (),
        sizes,
        NpySink(first.newbyteorder("=")),
    )


@dataclass(frozen=True)
class NpySink:
    """Parts as .npy files."""

    dtype: np.dtype[Any]
    suffix: str = ".npy"

    def open(self, file: IO[bytes], schema: pa.Schema, rows: int | None, sorted_by: Order | None) -> Any:
        """Begin a file; its header states its rows."""
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (rows,)}
        np.lib.format.write_array_header_1_0(file, header)
        return _NpyWriter(file, self.dtype)

    def count(self, file: IO[bytes], size: int, schema: pa.Schema) -> int:
        """Return the rows that the file has bytes for."""
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return (size - file.tell()) // self.dtype.itemsize


@dataclass(frozen=True)
class _NpyWriter:
    file: IO[bytes]
    dtype: np.dtype[Any]

    def write(self, table: pa.Table) -> None:
        for chunk in table.column(0).chunks:
            values = chunk.to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
            self.file.write(np.ascontiguousarray(values).view(np.uint8).data)

    def close(self) -> None:
        pass
