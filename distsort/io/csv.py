"""CSV in: parsed by pyarrow, cut into pieces only where a record surely ends.

Where a record surely ends, `csv_cuts` finds out; a file that cannot be cut is read whole, and a note says so.

Types are inferred from the head of every file and are the same for all pieces. A value further down that does not fit
raises `WiderTypes`, with the types that would hold it; the caller starts again with those, so the outcome is the same
as if the types had been inferred from every value of every file. An empty field is null in every column; spellings
such as NA or NaN are null only in columns that are not text.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

from distsort import config
from distsort.errors import DistsortError, InputError
from distsort.io.csv_cuts import find_cuts, line_end, unclosed
from distsort.io.csv_types import common_type, infer, wider_type
from distsort.io.parquet_sink import ParquetSink
from distsort.io.source import Source, conform, require_columns
from distsort.io.storage import Store

# Bytes of each file that types are inferred from.
_HEAD = 1 << 20
# A parsed row takes about this many times its text: numbers and offsets of eight bytes.
_GROWTH = 1.5
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}


class WiderTypes(DistsortError):
    """A value does not fit the type inferred from the head of its file; `types` hold it."""

    def __init__(self, types: Mapping[str, pa.DataType]) -> None:
        super().__init__(types)
        self.types = dict(types)


@dataclass(frozen=True)
class Block:
    """Bytes of one file that hold whole records.

    Attributes
    ----------
    store, path, compression
        The file.
    start, stop
        Bytes to read, header not among them; everything if `stop` is None.
    header
        Names of the columns of this file.
    """

    store: Store
    path: str
    compression: str | None
    start: int
    stop: int | None
    header: tuple[str, ...]


@dataclass(frozen=True)
class Reader:
    """Reads blocks; the only thing that tasks need."""

    schema: pa.Schema
    types: pa.Schema
    delimiter: str

    def __call__(self, block: Block) -> pa.Table:
        """Return the rows of a block with the columns of the scan."""
        kinds = {field.name: field.type for field in self.types}
        wanted = [name for name in block.header if name in self.schema.names]
        data = _bytes(block)
        at = unclosed(data, self.delimiter)
        if at is not None:
            text = data[at : at + 20].decode(errors="replace")
            raise InputError(
                f"{block.store.url(block.path)}: the quote before {text!r} is never closed: close it, or double it if"
                " it belongs to the text"
            )
        try:
            table = _parse(data, block, self.delimiter, kinds, wanted)
        except pa.ArrowInvalid as error:
            wider = self._wider(data, block)
            if not wider:
                raise InputError(f"{block.store.url(block.path)}: {error}") from error
            raise WiderTypes(wider) from None
        return conform(_empty_as_null(table), self.schema, {})

    def _wider(self, data: bytes, block: Block) -> dict[str, pa.DataType]:
        parse = partial(_parse, data, block, self.delimiter)
        try:
            seen = infer(parse, block.header, block.store.url(block.path))
        except pa.ArrowInvalid:
            return {}
        wider = {}
        for field in seen:
            known = self.types.field(field.name).type
            kind = wider_type(known, field.type, parse, field.name)
            if kind != known:
                wider[field.name] = kind
        return wider


def scan(
    files: Sequence[tuple[Store, str, str]],
    *,
    columns: Sequence[str] | None = None,
    keys: Sequence[str] = (),
    delimiter: str = ",",
    part_size: int | None = None,
) -> Source:
    """Look at the head of CSV files, and through large ones for places to cut.

    Parameters
    ----------
    files
        (store, path, root) as `storage.expand` gives them. Each begins with a line of column names.
    columns, keys, part_size
        As in `parquet.scan`.
    delimiter
        Between two fields.

    Raises
    ------
    InputError
        A file is empty, files have other columns than the first, or a column is missing.
    """
    notes: list[str] = []
    blocks: list[Block] = []
    kinds: dict[str, pa.DataType] = {}
    names: tuple[str, ...] = ()
    stored = 0
    target = config.get_bytes("files.csv-block-size")
    if part_size is not None:
        target = min(target, int(part_size / _GROWTH))
    for store, path, _ in files:
        where = store.url(path)
        compression = next((c for end, c in _COMPRESSED.items() if path.lower().endswith(end)), None)
        size = store.size(path)
        head, whole = _head(store, path, compression)
        header, body = _header(head, delimiter, where)
        if names and sorted(header) != sorted(names):
            differs = sorted(set(header).symmetric_difference(names))
            raise InputError(f"{where}: column {differs[0]!r} is not in every file: give all files one header")
        names = names or header
        sample = Block(store, path, None, body, None, header)
        for field in _infer(head[body:], whole, sample, delimiter):
            known = kinds.get(field.name, pa.null())
            kinds[field.name] = common_type(known, field.type)
        made, note = _cut(store, path, compression, size, header, body, delimiter, target)
        blocks += made
        notes += [note] if note else []
        stored += size
    where = files[0][0].url(files[0][1])
    require_columns(keys, names, "key", where)
    require_columns(columns or (), names, "column", where)
    chosen = list(names) if columns is None else [*columns, *(key for key in keys if key not in columns)]
    inferred = pa.schema([(name, kinds[name]) for name in names])
    # A column without any value is written as text: readers make little of the null type.
    settled = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in kinds.items()}
    schema = pa.schema([(name, settled[name]) for name in chosen])
    reader = Reader(schema, inferred, delimiter)
    sizes = tuple(_memory(block) for block in blocks)
    return Source(
        "csv",
        tuple(blocks),
        reader,
        schema,
        schema,
        {},
        None,
        sum(sizes),
        stored,
        len(files),
        tuple(notes),
        sizes,
        ParquetSink(),
    )


def _memory(block: Block) -> int:
    """Estimate the bytes of a block once parsed."""
    stored = (block.store.size(block.path) if block.stop is None else block.stop) - block.start
    return int(_GROWTH * max(stored, 0) * (4 if block.compression else 1))


def widen(source: Source, types: Mapping[str, pa.DataType]) -> Source:
    """Return a source whose columns hold what `WiderTypes` told of."""
    reader = source.reader
    assert isinstance(reader, Reader)
    merged = {field.name: common_type(field.type, types.get(field.name, pa.null())) for field in reader.types}
    settled = {name: pa.string() if pa.types.is_null(kind) else kind for name, kind in merged.items()}
    schema = pa.schema([(name, settled[name]) for name in source.schema.names])
    named = ", ".join(f"{name!r} is {merged[name]}" for name in types)
    reader = Reader(schema, pa.schema(list(merged.items())), reader.delimiter)
    widened = replace(source, reader=reader, schema=schema, written=schema)
    return widened.with_note(f"values below the head of a file changed types, so it was read again: {named}")


def _parse(
    data: bytes,
    block: Block,
    delimiter: str,
    kinds: Mapping[str, pa.DataType],
    wanted: Sequence[str],
    null_texts: bool = False,
) -> pa.Table:
    if len(data) == 0:
        return pa.table({name: pa.nulls(0, kinds.get(name, pa.null())) for name in wanted})
    names = [f"{number}" for number in range(len(block.header))]
    back = {str(number): name for number, name in enumerate(block.header)}
    table = pa_csv.read_csv(
        pa.BufferReader(data),
        pa_csv.ReadOptions(column_names=names, use_threads=False),
        pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        pa_csv.ConvertOptions(
            column_types={number: kinds[name] for number, name in back.items() if name in kinds},
            include_columns=[number for number, name in back.items() if name in wanted],
            strings_can_be_null=null_texts,
        ),
    )
    return table.rename_columns([back[number] for number in table.column_names])


def _empty_as_null(table: pa.Table) -> pa.Table:
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            column = table.column(place)
            empty = pc.equal(pc.binary_length(column), 0)
            if pc.any(empty).as_py():
                table = table.set_column(place, field.name, pc.if_else(empty, None, column))
    return table


def _bytes(block: Block) -> bytes:
    try:
        with block.store.open(block.path, compression=block.compression) as file:
            if block.start:
                file.seek(block.start)
            return file.read() if block.stop is None else file.read(block.stop - block.start)
    except OSError as error:
        raise InputError(f"{block.store.url(block.path)}: cannot be read ({error})") from error


def _head(store: Store, path: str, compression: str | None) -> tuple[bytes, bool]:
    """Return the first bytes of a file, and whether they are all of it."""
    try:
        with store.open(path, compression=compression) as file:
            head = file.read(_HEAD)
            return head, not file.read(1)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"{store.url(path)}: cannot be read ({error})") from error


def _header(head: bytes, delimiter: str, where: str) -> tuple[tuple[str, ...], int]:
    """Return the column names and where the first record begins."""
    mark = 3 if head.startswith(b"\xef\xbb\xbf") else 0
    found, _ = line_end(head, mark)
    end = len(head) if found is None else found + 1
    try:
        text = head[mark:end].decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: its first line is not UTF-8 text ({error}): is it a CSV file?") from None
    if "\r" in text.rstrip("\r\n") and '"' not in text:
        raise InputError(f"{where}: its lines end with a carriage return only: convert them to line feeds")
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    if not names:
        raise InputError(f"{where}: the file is empty: a CSV file begins with a line of column names")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: column {twice!r} is there twice: rename one of them")
    return tuple(names), end


def _infer(head: bytes, whole: bool, block: Block, delimiter: str) -> pa.Schema:
    """Return the types of the records at the head of a file; the last one there may be torn and is left out."""
    if not whole:
        cut = head.rfind(b"\n") + 1
        while cut and head.count(b'"', 0, cut) % 2:
            cut = head.rfind(b"\n", 0, cut - 1) + 1
        head = head[:cut]
    where = block.store.url(block.path)
    try:
        return infer(partial(_parse, head, block, delimiter), block.header, where)
    except pa.ArrowInvalid as error:
        problem = error
    if not whole:
        # Irregular quotes may have torn the last record of the head: only the whole file tells.
        try:
            return infer(partial(_parse, _bytes(block), block, delimiter), block.header, where)
        except pa.ArrowInvalid as error:
            problem = error
    raise InputError(f"{where}: {problem}; is {delimiter!r} its delimiter, and are quotes closed?") from problem


def _cut(
    store: Store,
    path: str,
    compression: str | None,
    size: int,
    header: tuple[str, ...],
    body: int,
    delimiter: str,
    target: int,
) -> tuple[list[Block], str | None]:
    """Cut a file into blocks of whole records; None or why it was not cut."""
    rest = Block(store, path, compression, body, None, header)
    if compression is not None:
        return [rest], f"{store.url(path)}: is compressed, so it is read whole by one task"
    if size - body <= target:
        return [replace(rest, stop=size)], None
    places = find_cuts(partial(store.read_range, path), body, size, target, delimiter)
    if places is None:
        return [rest], f"{store.url(path)}: has quotes inside fields, so it is read whole by one task"
    edges = [body, *places, size]
    return [replace(rest, start=a, stop=b) for a, b in pairwise(edges) if b > a], None
