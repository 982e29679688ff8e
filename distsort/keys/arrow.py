"""Arrow arrays as fields, read from their buffers without a copy where one chunk holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from distsort.errors import KeyTypeError
from distsort.keys import text as keys_text
from distsort.keys.codes import Chain, Codes, Field, Plain
from distsort.keys.numbers import NanRule, float_fields, integer_fields, limb_fields, null_field
from distsort.keys.objects import called
from distsort.order import Key

_ASCENDING = Key()


def arrow_fields(array: Any, key: Key, lone: bool) -> Sequence[Field | Chain]:
    """Encode a pyarrow Array or ChunkedArray.

    Parameters
    ----------
    array
        Of any type that has an order.
    key
        Direction and place of nulls.
    lone
        Whether this is the only key: then NaN stands between numbers and nulls, else it is the largest number.
        (So pandas sorts columns of Arrow floats.)

    Raises
    ------
    KeyTypeError
        Lists, structs, maps and the like.
    """
    array = _one_chunk(_decoded(array))
    kind = array.type
    n = len(array)
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kinds.is_dictionary(kind):
        return _dictionary_fields(array, null, key)
    if kinds.is_null(kind) or array.null_count == n:
        return [Plain(np.zeros(n, np.uint8), 0)]
    if kinds.is_large_binary(kind) or kinds.is_large_string(kind):
        head = [] if null is None else [null_field(null, key)]
        return [*head, *keys_text.from_arrow(array, null).fields(key.descending)]
    if kinds.is_floating(kind):
        rule: NanRule = "by nulls" if lone else "largest"
        return float_fields(_buffer(array, f"f{kind.bit_width // 8}"), null, key, rule)
    if kinds.is_decimal128(kind) or kinds.is_decimal256(kind):
        width = kind.bit_width // 64
        limbs = np.frombuffer(array.buffers()[1], np.uint64, width * n, 8 * width * array.offset)
        return limb_fields(limbs.reshape(n, width), null, key)
    sign = "u" if kinds.is_unsigned_integer(kind) else "i"
    return integer_fields(_buffer(array, f"{sign}{kind.bit_width // 8}"), null, key)


def _decoded(array: Any) -> Any:
    """Cast to a type that `arrow_fields` reads from buffers, chunk by chunk."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(array, pa.ChunkedArray):
            return _decoded(pa.chunked_array([c.storage for c in array.chunks], kind.storage_type))
        return _decoded(array.storage)
    if kinds.is_run_end_encoded(kind):
        if isinstance(array, pa.ChunkedArray):
            return _decoded(pa.chunked_array([pc.run_end_decode(c) for c in array.chunks], kind.value_type))
        return _decoded(pc.run_end_decode(array))
    if kinds.is_string(kind) or kinds.is_string_view(kind):
        return array.cast(pa.large_string())
    if kinds.is_binary(kind) or kinds.is_binary_view(kind) or kinds.is_fixed_size_binary(kind):
        return array.cast(pa.large_binary())
    if kinds.is_boolean(kind):
        return array.cast(pa.uint8())
    return array


def _one_chunk(array: Any) -> Any:
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    if kinds.is_dictionary(array.type):
        array = array.unify_dictionaries()
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)


def _buffer(array: Any, dtype: str) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    return np.frombuffer(array.buffers()[1], kind, len(array), kind.itemsize * array.offset)


def _dictionary_fields(array: Any, null: npt.NDArray[np.bool_] | None, key: Key) -> Sequence[Field | Chain]:
    """Rank the dictionary's values, then look the ranks up: entries may repeat and may be null."""
    entries = array.dictionary
    if not len(entries) or array.null_count == len(array):
        return [Plain(np.zeros(len(array), np.uint8), 0)]
    indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if entries.null_count:
        absent = entries.is_null().to_numpy(zero_copy_only=False).take(indices)
        null = absent if null is None else null | absent
    words = Codes(len(entries), arrow_fields(entries, _ASCENDING, lone=False)).words
    order = np.lexsort(words[::-1])
    steps = np.zeros(len(order), np.int64)
    for word in words:
        ordered = word.take(order)
        steps[1:] |= ordered[1:] != ordered[:-1]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(steps)
    return integer_fields(ranks.take(indices), null, key)


def check_orderable(kind: Any, key: Key) -> None:
    """Refuse Arrow types that have no order, by the key's name."""
    inner = kind
    while True:
        if isinstance(inner, pa.BaseExtensionType):
            inner = inner.storage_type
        elif kinds.is_dictionary(inner) or kinds.is_run_end_encoded(inner):
            inner = inner.value_type
        else:
            break
    if kinds.is_nested(inner) or kinds.is_interval(inner):
        raise KeyTypeError(
            f"{called(key)} has the Arrow type {kind}, which has no order: sort by another column or by parts of it"
        )
