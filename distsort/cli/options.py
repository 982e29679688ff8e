"""Options that commands about files share, and how a key is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from distsort.errors import OptionError
from distsort.order import Key

_DIRECTIONS = {"asc": False, "desc": True}
_PLACES = {"first": True, "last": False}
FORMATS = ["parquet", "csv", "arrow", "npy", "records", "text"]


def parse_key(text: str, reverse: bool = False) -> Key:
    r"""Read ``COLUMN[:asc|desc][:first|last]``.

    A column name may hold colons; only the words above at its end are options. A backslash takes the meaning from a
    colon, for a name that ends like an option.

    Examples
    --------
    >>> parse_key("price:desc")
    Key(name='price', descending=True, nulls_first=False)
    >>> parse_key("a:b:first").name, parse_key(r"odd\:desc").name
    ('a:b', 'odd:desc')
    """
    words = [word.replace("\\:", ":") for word in re.split(r"(?<!\\):", text)]
    descending: bool | None = None
    nulls_first: bool | None = None
    while len(words) > 1 and words[-1] in (_DIRECTIONS | _PLACES):
        word = words.pop()
        if word in _DIRECTIONS and descending is None:
            descending = _DIRECTIONS[word]
        elif word in _PLACES and nulls_first is None:
            nulls_first = _PLACES[word]
        else:
            raise OptionError(f"-k {text!r}: {word!r} says again what was said: give one direction and one null place")
    name = ":".join(words)
    return Key(name, reverse if descending is None else descending, bool(nulls_first))


def parse_condition(text: str) -> tuple[str, str, str]:
    """Read ``COLUMN OP VALUE``; the value may stand in quotes.

    Examples
    --------
    >>> parse_condition("fare>=10"), parse_condition("day = '2024-01-01'")
    (('fare', '>=', '10'), ('day', '=', '2024-01-01'))
    """
    match = re.fullmatch(r"\s*(.+?)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", text, re.DOTALL)
    if match is None:
        raise OptionError(f"--where {text!r}: write a column, one of = != < <= > >=, and a value")
    value = match[3]
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return match[1], match[2], value[1:-1] if quoted else value


def gnu_size(text: str | None) -> str | int | None:
    """Read a size as GNU sort does: K, M, G, T are powers of 1024, no letter means K, % is of this machine's memory.

    Other forms ("2 GB", "1.5 GiB") are Dask's and pass through.

    Examples
    --------
    >>> gnu_size("2"), gnu_size("1M"), gnu_size("512b"), gnu_size("2 GB")
    (2048, 1048576, 512, '2 GB')
    """
    match = re.fullmatch(r"(\d+)([bKMGT%]?)", text or "")
    if match is None:
        return text
    count, unit = int(match[1]), match[2]
    if unit == "%":
        from distributed.system import MEMORY_LIMIT

        return int(MEMORY_LIMIT) * count // 100
    return count * 1024 ** ("bKMGT".index(unit) if unit else 1)


def input_arguments(
    keys: tuple[str, ...],
    reverse: bool,
    format_: str | None,
    delimiter: str | None,
    record_length: int | None,
    key_offset: int | None,
    key_length: int | None,
) -> dict[str, Any]:
    """Return the options of `input_options` as arguments of `sort_files` and `check_files`."""
    from distsort.io.records import Layout

    order = [parse_key(key, reverse) for key in keys]
    given = {"length": record_length, "key_offset": key_offset, "key_length": key_length}
    layout = {name: value for name, value in given.items() if value is not None}
    return {
        "by": [str(key.name) for key in order] or None,
        "ascending": [not key.descending for key in order] if order else not reverse,
        "na_position": ["first" if key.nulls_first else "last" for key in order] if order else "last",
        "format": format_,
        "delimiter": "\t" if delimiter in ("\\t", "tab") else delimiter,
        "layout": Layout(**layout) if layout else None,
    }


def input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says how input is read and by what it is sorted."""
    return _with(
        command,
        click.option(
            "-k",
            "--key",
            "keys",
            multiple=True,
            metavar="COLUMN[:asc|desc][:first|last]",
            help="Sort by this column; repeat for more keys. A colon in a name needs no care unless the name ends "
            "like an option: then write \\:. first and last place nulls; NaN in Parquet and Arrow floats is the "
            "largest number, but in a single key it stands between numbers and nulls. Not for records, text and .npy.",
        ),
        click.option("-r", "--reverse", is_flag=True, help="Descending, for keys that do not say asc."),
        click.option("--format", "format_", type=click.Choice(FORMATS), help="Of the input. [default: by its name]"),
        click.option("--delimiter", metavar="CHAR", help="Between CSV fields. [default: a tab for .tsv, else a comma]"),
        click.option("--record-length", type=click.IntRange(min=1), metavar="N", help="Of records. [default: 100]"),
        click.option("--key-offset", type=click.IntRange(min=0), metavar="N", help="Of their key. [default: 0]"),
        click.option("--key-length", type=click.IntRange(min=1), metavar="N", help="Of their key. [default: 10]"),
    )


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says how much of what a sort may use."""
    return _with(
        command,
        click.option("--npartitions", type=click.IntRange(min=1), help="Number of parts. [default: of 128 MiB each]"),
        click.option("--columns", metavar="A,B,...", help="Keep only these columns, in this order."),
        click.option(
            "--where",
            "conditions",
            multiple=True,
            metavar="'COLUMN OP VALUE'",
            help="Sort only the rows for which this holds, OP one of = != < <= > >=; repeat for more, all of which "
            "must hold. For Parquet; row groups that cannot hold such a row are not read.",
        ),
        click.option("--backend", type=click.Choice(["numpy", "cupy"]), help="Who sorts. [default: looks at blocks]"),
        click.option("--exchange", type=click.Choice(["graph", "pull"]), help="How rows move. [default: planned]"),
        click.option("-S", "--memory", metavar="SIZE", help="Sort in this process and so much memory, spilling to -T."),
    )


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what every command takes."""
    return _with(
        command,
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Set a configuration value; repeatable."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
        click.option("-v", "--verbose", is_flag=True, help="Show tracebacks."),
    )


def _with(command: Callable[..., Any], *decorators: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed(decorators):
        command = decorate(command)
    return command
