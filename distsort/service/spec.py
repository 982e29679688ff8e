"""What a job is to sort, as clients write it; every mistake is named before the job is queued."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distsort.errors import OptionError
from distsort.io.records import Layout
from distsort.io.source import check_columns
from distsort.order import make_order

MOST_PARTS = 1_000_000
LONGEST_RECORD = 1 << 30


@dataclass(frozen=True)
class Spec:
    """What to sort: the arguments of `distsort.sort_files`, and whether Dask's performance report is wanted."""

    src: tuple[str, ...]
    dst: str
    by: tuple[str, ...] | None = None
    ascending: bool | tuple[bool, ...] = True
    na_position: str | tuple[str, ...] = "last"
    overwrite: bool = False
    npartitions: int | None = None
    columns: tuple[str, ...] | None = None
    format: str | None = None
    delimiter: str | None = None
    layout: Mapping[str, int] | None = None
    presorted: bool = False
    backend: str | None = None
    exchange: str | None = None
    performance_report: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Spec:
        """Read what a client sent.

        Raises
        ------
        OptionError
            Names the field, what was wrong and what it may be.
        """
        for name in values:
            if name not in _FIELDS:
                near = difflib.get_close_matches(name, _FIELDS, n=2)
                hint = f"did you mean {' or '.join(near)}?" if near else f"the fields are {', '.join(_FIELDS)}"
                raise OptionError(f"{name!r} is not a field of a job: {hint}")
        for name in ("src", "dst"):
            if name not in values:
                raise OptionError(f"{name!r} is missing: a job needs src and dst, and by for columns")
        spec = cls(**{name: _FIELDS[name](name, value) for name, value in values.items()})
        # The sort would say the same, but only when the job's turn comes.
        make_order(list(spec.by or ("values",)), spec.ascending, spec.na_position)
        check_columns(spec.columns)
        return spec

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `sort_files`."""
        given = dataclasses.asdict(self)
        del given["performance_report"]
        given["layout"] = None if self.layout is None else Layout(**self.layout)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


# Reading what clients send: one function for each type of field, which returns the value or names the field.


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise OptionError(f"{name}={value!r}: it must be a text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{name}={value!r}: it is not valid Unicode") from None
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not values:
        raise OptionError(f"{name}={value!r}: it must be a text or a list of texts")
    return tuple(_text(name, entry) for entry in values)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{name}={value!r}: it must be true or false")
    return value


def _flags(name: str, value: Any) -> bool | tuple[bool, ...]:
    return tuple(_flag(name, entry) for entry in value) if isinstance(value, list | tuple) else _flag(name, value)


def _places(name: str, value: Any) -> str | tuple[str, ...]:
    return tuple(_text(name, entry) for entry in value) if isinstance(value, list | tuple) else _text(name, value)


def _parts(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_PARTS:
        raise OptionError(f"{name}={value!r}: it must be a whole number from 1 to {MOST_PARTS:,}")
    return value


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value not in allowed:
            raise OptionError(f"{name}={value!r}: it must be one of {', '.join(allowed)}")
        return str(value)

    return read


def _delimiter(name: str, value: Any) -> str:
    if len(_text(name, value)) != 1:
        raise OptionError(f"{name}={value!r}: it must be one character")
    return str(value)


def _layout(name: str, value: Any) -> dict[str, int]:
    sizes = {"length": 1, "key_offset": 0, "key_length": 1}
    if not isinstance(value, Mapping) or not value or set(value) - set(sizes):
        raise OptionError(f"{name}={value!r}: it must have some of {', '.join(sizes)}, in bytes")
    for key, size in value.items():
        if not isinstance(size, int) or isinstance(size, bool) or not sizes[key] <= size <= LONGEST_RECORD:
            raise OptionError(
                f"{name}.{key}={size!r}: it must be a whole number from {sizes[key]} to {LONGEST_RECORD:,}"
            )
    return dict(value)


_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "src": _texts,
    "dst": _text,
    "by": _texts,
    "ascending": _flags,
    "na_position": _places,
    "overwrite": _flag,
    "npartitions": _parts,
    "columns": _texts,
    "format": _one_of("parquet", "csv", "arrow", "npy", "records", "text"),
    "delimiter": _delimiter,
    "layout": _layout,
    "presorted": _flag,
    "backend": _one_of("numpy", "cupy"),
    "exchange": _one_of("graph", "pull"),
    "performance_report": _flag,
}
