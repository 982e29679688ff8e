"""The commands about files: sort, check."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from distsort.cli import Trouble, trouble
from distsort.errors import OptionError
from distsort.order import Key

if TYPE_CHECKING:
    from distsort.report import Report

_DIRECTIONS = {"asc": False, "desc": True}
_PLACES = {"first": True, "last": False}


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


def _key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option(
            "-k",
            "--key",
            "keys",
            multiple=True,
            required=True,
            metavar="COLUMN[:asc|desc][:first|last]",
            help="Sort by this column; repeat for more keys. A colon in a name needs no care unless the name ends "
            "like an option: then write \\:.",
        ),
        click.option("-r", "--reverse", is_flag=True, help="Descending, for keys that do not say asc."),
        click.option("--format", "format_", type=click.Choice(["parquet", "csv"]), help="Of the input; else by name."),
        click.option("--delimiter", metavar="CHAR", help="Between CSV fields. [default: a tab for .tsv, else a comma]"),
    ):
        command = decorate(command)
    return command


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Set a configuration value; repeatable."),
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
        click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
        click.option("-v", "--verbose", is_flag=True, help="Show tracebacks."),
    ):
        command = decorate(command)
    return command


@click.command(name="sort")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder or URL of the output.")
@_key_options
@click.option("--overwrite", is_flag=True, help="Replace an existing output, once the new one is whole.")
@click.option("--npartitions", type=click.IntRange(min=1), help="Number of parts. [default: as the input is cut]")
@click.option("--columns", metavar="A,B,...", help="Keep only these columns, in this order.")
@click.option("--backend", type=click.Choice(["numpy", "cupy"]), help="Who sorts. [default: looks at the blocks]")
@click.option("--exchange", type=click.Choice(["graph", "pull"]), help="How rows move. [default: the plan decides]")
@click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler. [default: threads, or a cluster of this machine]")
@click.option("--scheduler-file", metavar="FILE", help="Where a Dask scheduler has written its address.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Start a cluster of N processes here.")
@click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="Start a cluster with N GPUs; they sort.")
@click.option("-S", "--memory", metavar="SIZE", help="Sort within this much memory, in this process, spilling to -T.")
@click.option("-T", "--temporary-directory", metavar="DIR", help="Where runs spill.")
@click.option("--show", type=click.IntRange(min=0), default=0, metavar="N", help="Print the first N rows.")
@click.option("--report", "report_file", metavar="FILE.json", help="Write the report there.")
@click.option("--performance-report", metavar="FILE.html", help="Write Dask's performance report of the cluster there.")
@_common_options
def sort(
    inputs: tuple[str, ...],
    output: str,
    keys: tuple[str, ...],
    reverse: bool,
    format_: str | None,
    delimiter: str | None,
    overwrite: bool,
    npartitions: int | None,
    columns: str | None,
    backend: str | None,
    exchange: str | None,
    scheduler: str | None,
    scheduler_file: str | None,
    workers: int | None,
    gpus: int | None,
    memory: str | None,
    temporary_directory: str | None,
    show: int,
    report_file: str | None,
    performance_report: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Sort Parquet or CSV files into a folder of Parquet parts.

    IN is a file, a folder, a glob or a URL. Ties keep the order of the input; parts differ by one row at most. The
    output appears whole or not at all.

    \b
    distsort sort flights.csv -o sorted/ -k arr_delay:desc -k carrier
    distsort sort 's3://bucket/in/*.parquet' -o s3://bucket/out -k id --scheduler tcp://host:8786
    """  # noqa: D301 (click takes the backspace as a mark)
    with trouble(verbose):
        import dask

        from distsort import config
        from distsort.clusters import attached, observed
        from distsort.files import sort_files
        from distsort.progress import on_terminal

        settings = config.parse_settings(conf)
        if temporary_directory is not None:
            settings["distsort.temporary-directory"] = temporary_directory
        order = [parse_key(key, reverse) for key in keys]
        with (
            dask.config.set(settings),
            attached(scheduler, scheduler_file, workers, gpus) as client,
            observed(client, output, performance_report),
        ):
            report = sort_files(
                inputs,
                output,
                [str(key.name) for key in order],
                ascending=[not key.descending for key in order],
                na_position=["first" if key.nulls_first else "last" for key in order],
                overwrite=overwrite,
                npartitions=npartitions,
                columns=None if columns is None else columns.split(","),
                format=format_,
                delimiter=_delimiter(delimiter),
                backend=backend or ("cupy" if gpus else None),
                exchange=exchange,
                memory=memory,
                client=client,
                show_progress=not quiet and on_terminal(),
            )
        if report_file is not None:
            from pathlib import Path

            Path(report_file).write_text(report.to_json() + "\n", encoding="utf-8")
        if as_json:
            click.echo(report.to_json())
        elif not quiet:
            _print(report)
        if show and not as_json:
            _show(report, [str(key.name) for key in order], show)


@click.command(name="check")
@click.argument("inputs", nargs=-1, required=True, metavar="PATH...")
@_key_options
@_common_options
def check(
    inputs: tuple[str, ...],
    keys: tuple[str, ...],
    reverse: bool,
    format_: str | None,
    delimiter: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
) -> None:
    """Say whether files are sorted, file after file.

    Exit status 0: sorted. 1: not sorted; the first row out of order is named. 2: trouble.
    """
    with trouble(verbose):
        import dask

        from distsort import config
        from distsort.files import check_files

        order = [parse_key(key, reverse) for key in keys]
        with dask.config.set(config.parse_settings(conf)):
            found = check_files(
                inputs[0] if len(inputs) == 1 else inputs,
                [str(key.name) for key in order],
                ascending=[not key.descending for key in order],
                na_position=["first" if key.nulls_first else "last" for key in order],
                format=format_,
                delimiter=_delimiter(delimiter),
            )
    if as_json:
        import json

        click.echo(json.dumps({"sorted": bool(found), "rows": found.rows, "fault": found.fault}))
    elif found and not quiet:
        click.echo(f"sorted: {found.rows:,} rows")
    elif not found:
        click.echo(f"not sorted: {found.fault}", err=True)
    if not found:
        # click's own way out keeps the status when standalone mode is off.
        click.get_current_context().exit(1)


def _delimiter(text: str | None) -> str | None:
    return "\t" if text in ("\\t", "tab") else text


def _print(report: Report) -> None:
    from rich.console import Console

    console = Console(file=sys.stdout, soft_wrap=True, highlight=False)
    if not console.is_terminal:
        console.width = 110
    console.print(report)


def _show(report: Report, keys: list[str], count: int) -> None:
    """Print the first rows of an output: the keys, then as many other columns as fit."""
    import shutil

    from distsort.files import first_rows

    rows = first_rows(report.output, count)
    width = shutil.get_terminal_size((110, 24)).columns
    lines = [""] * (rows.num_rows + 1)
    present = [name for name in keys if name in rows.column_names]
    names = [*present, *(name for name in rows.column_names if name not in present)]
    for place, name in enumerate(names):
        values = rows[name].to_pylist()
        cells = [_cell(name), *map(_cell, values)]
        wide = max(map(len, cells))
        numbers = all(isinstance(value, (int, float, type(None))) for value in values)
        if place and len(lines[0]) + wide + 2 > width:
            lines.append(f"... and {len(names) - place} more columns")
            break
        padded = [cell.rjust(wide) if numbers else cell.ljust(wide) for cell in cells]
        lines = [f"{line}{cell}  " for line, cell in zip(lines, padded, strict=True)]
    click.echo("\n" + "\n".join(line.rstrip() for line in lines))


def _cell(value: Any) -> str:
    text = "null" if value is None else str(value).replace("\n", " ")
    return text if len(text) <= 40 else text[:37] + "..."


__all__ = ["Trouble", "check", "parse_key", "sort"]
