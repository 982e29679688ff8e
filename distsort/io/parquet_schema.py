"""One schema for the files of a Parquet data set: what they agree on, and the columns that hive folders add."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from distsort.errors import InputError

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def unify(schemas: Sequence[tuple[str, pa.Schema, int]]) -> pa.Schema:
    """Return one schema for files that agree but for null columns; zero-row files only fill in null types."""
    filled = [entry for entry in schemas if entry[2]] or list(schemas[:1])
    first, whole, _ = filled[0]
    for path, schema, _ in filled[1:]:
        for name in (*whole.names, *schema.names):
            for other, names in ((path, schema.names), (first, whole.names)):
                if name not in names:
                    raise InputError(f"{other}: column {name!r} is missing, but other files have it")
        for place, field in enumerate(whole):
            kind = _common(field.type, schema.field(field.name).type)
            if kind is None:
                raise InputError(
                    f"column {field.name!r} is {field.type} in {first} but {schema.field(field.name).type} in "
                    f"{path}: write both with one type"
                )
            if kind != field.type:
                whole = whole.set(place, field.with_type(kind).with_nullable(True))
    for _, schema, rows in schemas:
        for place, field in enumerate(whole):
            if not rows and pa.types.is_null(field.type) and field.name in schema.names:
                whole = whole.set(place, field.with_type(schema.field(field.name).type))
    return whole


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type that holds both without changing a value, or None."""
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    a, b = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (a, b))
    if a == b:
        return a
    for tests, large in (
        ((pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view), pa.large_string()),
        ((pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view), pa.large_binary()),
    ):
        if any(test(a) for test in tests) and any(test(b) for test in tests):
            return large
    try:
        return pa.unify_schemas([pa.schema({"c": a}), pa.schema({"c": b})]).field("c").type
    except pa.ArrowTypeError:
        return None


def folder_values(paths: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the hive values of each file; whole numbers become int where every file has one."""
    texts: list[dict[str, Any]] = []
    for path, root in paths:
        below = path[len(root) :] if path.startswith(root) else path
        words = [word.partition("=") for word in PurePosixPath(below).parts[:-1] if "=" in word]
        texts.append({unquote(name): None if text == _NULL_FOLDER else unquote(text) for name, _, text in words})
    for name in {name for values in texts for name in values}:
        present = [values[name] for values in texts if values.get(name) is not None]
        if present and all(_is_whole(text) for text in present):
            for values in texts:
                if values.get(name) is not None:
                    values[name] = int(values[name])
    return texts


def _is_whole(text: str) -> bool:
    """Whether a text is how int64 is written, so that nothing is lost by reading it as a number."""
    return text.removeprefix("-").isdigit() and text == str(int(text)) and -(2**63) <= int(text) < 2**63


def folder_types(folders: Sequence[dict[str, Any]]) -> dict[str, pa.DataType]:
    """Return the type of each hive column: int64 where all its values are whole numbers, else string."""
    kinds: dict[str, pa.DataType] = {}
    for values in folders:
        for name, value in values.items():
            if value is not None:
                kinds[name] = pa.int64() if isinstance(value, int) else pa.string()
            else:
                kinds.setdefault(name, pa.string())
    return kinds


def without_range_index(schema: pa.Schema) -> dict[bytes, bytes]:
    """Return the metadata without the row labels that pandas keeps as a range: parts have new ones."""
    metadata = dict(schema.metadata or {})
    if b"pandas" in metadata:
        pandas = json.loads(metadata[b"pandas"])
        labels = [name for name in pandas.get("index_columns", []) if name in schema.names]
        pandas["index_columns"] = labels
        pandas["columns"] = [
            column
            for column in pandas.get("columns", [])
            if (column.get("field_name") or column.get("name")) in schema.names
        ]
        metadata[b"pandas"] = json.dumps(pandas).encode()
    metadata.pop(b"ARROW:schema", None)
    return metadata
