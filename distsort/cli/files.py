"""The commands that sort files and look at them: sort, merge, check."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distsort.cli import importing, trouble
from distsort.cli.options import (
    common_options,
    gnu_size,
    input_arguments,
    input_options,
    parse_condition,
    parse_key,
    place_options,
)
from distsort.errors import OptionError

if TYPE_CHECKING:
    from distsort.report import Report


def _job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in (
        common_options,
        click.option("--performance-report", metavar="FILE.html", help="Write Dask's performance report there."),
        click.option(
            "--report", "report_file", metavar="FILE", help="Write the report there: .html a page, else JSON."
        ),
        click.option("--show", type=click.IntRange(min=0), default=0, metavar="N", help="Print the first N rows."),
        click.option("-T", "--temporary-directory", metavar="DIR", help="Where runs spill. [default: the system's]"),
        click.option("--gpus", type=click.IntRange(min=1), metavar="N", help="Start a cluster with N GPUs; they sort."),
        click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Start a cluster of N processes here."),
        click.option("--scheduler-file", metavar="FILE", help="Where a Dask scheduler has written its address."),
        click.option(
            "--scheduler", metavar="ADDRESS", help="Dask scheduler. [default: threads, or a cluster of this machine]"
        ),
        place_options,
        click.option("-u", "--unique", is_flag=True, help="Of rows with equal keys keep the first only."),
        click.option("--metadata-file", is_flag=True, help="Write the footers of all Parquet parts to _metadata too."),
        click.option(
            "--overwrite", is_flag=True, help="Replace the output of an earlier run, once the new one is whole."
        ),
        input_options,
        click.option("-o", "--output", metavar="OUT", help="Folder or URL of the output.  [required]"),
        click.argument("inputs", nargs=-1, required=True, metavar="IN..."),
    ):
        command = decorate(command)
    return command


@click.command(name="sort")
@_job_options
@click.option("-m", "--merge", is_flag=True, help="Each input file is sorted already: the same as the command merge.")
@click.option("-s", "--stable", is_flag=True, help="Ties keep the order of the input. They always do.")
@click.option("-c", "--check", "only_check", is_flag=True, help="Sort nothing: the same as the command check.")
def sort(merge: bool, stable: bool, only_check: bool, **options: Any) -> None:
    """Sort files into a folder of parts.

    IN is a file, a folder, a glob or a URL. Parquet and CSV become Parquet; Arrow, .npy, records and text stay what
    they are. Ties keep the order of the input; parts differ by one row at most. The output appears whole or not at all.

    \b
    distsort sort flights.csv -o sorted/ -k arr_delay:desc -k carrier
    distsort sort words.txt -o sorted/ -S 1G -T /scratch
    distsort sort 's3://bucket/in/*.parquet' -o s3://bucket/out -k id --scheduler tcp://host:8786
    """  # noqa: D301 (click takes the backspace as a mark)
    if only_check:
        _check(options)
    else:
        _run(options, presorted=merge)


@click.command(name="merge")
@_job_options
def merge(**options: Any) -> None:
    """Merge files each of which is sorted already.

    They are checked and merged; nothing is sorted again. On ties the earlier file comes first.
    """
    _run(options, presorted=True)


def _run(options: dict[str, Any], presorted: bool) -> None:
    """Sort with the options of a command line."""
    if options["output"] is None:
        raise click.UsageError("Missing option '-o' / '--output'.", click.get_current_context())
    quiet = options["quiet"]
    with trouble(options["verbose"]):
        for option in ("--report", "--performance-report"):
            check_report(option, options["report_file" if option == "--report" else "performance_report"])
        with importing():
            import dask

            from distsort import config
            from distsort.clusters import attached, observed
            from distsort.files import sort_files
            from distsort.progress_watch import on_terminal

        settings = config.parse_settings(options["conf"])
        if options["temporary_directory"] is not None:
            settings["distsort.temporary-directory"] = options["temporary_directory"]
        arguments = input_arguments(**{name: options[name] for name in _INPUT})
        where = [options[name] for name in ("scheduler", "scheduler_file", "workers", "gpus")]
        with (
            dask.config.set(settings),
            attached(*where) as client,
            observed(client, options["performance_report"], options["output"]),
        ):
            report = sort_files(
                options["inputs"],
                options["output"],
                **arguments,
                overwrite=options["overwrite"],
                npartitions=options["npartitions"],
                columns=split_columns(options["columns"]),
                filters=[parse_condition(text) for text in options["conditions"]] or None,
                metadata_file=options["metadata_file"],
                presorted=presorted,
                unique=options["unique"],
                backend=options["backend"] or ("cupy" if options["gpus"] else None),
                exchange=options["exchange"],
                memory=gnu_size(options["memory"]),
                client=client,
                show_progress=not quiet and on_terminal(),
            )
        if options["report_file"] is not None:
            _write_report(report, Path(options["report_file"]))
        if options["as_json"]:
            click.echo(report.to_json())
        elif not quiet:
            _print(report)
        if options["show"] and not options["as_json"]:
            _show(report, arguments["by"] or [], options["show"])


_INPUT = ("keys", "reverse", "format_", "delimiter", "record_length", "key_offset", "key_length")


@click.command(name="check")
@click.argument("inputs", nargs=-1, required=True, metavar="PATH...")
@input_options
@common_options
def check(**options: Any) -> None:
    """Say whether files are sorted, file after file.

    Exit status 0: sorted. 1: not sorted; the first row out of order is named. 2: trouble.
    """
    _check(options)


def _check(options: dict[str, Any]) -> None:
    """Look at files with the options of a command line."""
    inputs = options["inputs"]
    with trouble(options["verbose"]):
        with importing():
            import dask

            from distsort import config
            from distsort.files import check_files

        with dask.config.set(config.parse_settings(options["conf"])):
            found = check_files(
                inputs[0] if len(inputs) == 1 else inputs, **input_arguments(**{name: options[name] for name in _INPUT})
            )
    checksum = None if found.checksum is None else f"{found.checksum:016x}"
    if options["as_json"]:
        import json

        facts = {"sorted": bool(found), "rows": found.rows, "duplicates": found.duplicates}
        click.echo(json.dumps({**facts, "checksum": checksum, "fault": found.fault}))
    elif found and not options["quiet"]:
        click.echo(f"sorted: {found.rows:,} rows, {found.duplicates:,} with the keys of the row above them")
        if checksum is not None:
            click.echo(f"checksum {checksum}")
    elif not found:
        click.echo(f"not sorted: {found.fault}", err=True)
    if not found:
        # click's own way out keeps the status when standalone mode is off.
        click.get_current_context().exit(1)


def split_columns(text: str | None) -> list[str] | None:
    """Read ``A,B,...``."""
    return None if text is None else text.split(",")


_REPORTS = (b"<!doctype html", b'{\n "output"')
"""How reports begin: pages, ours and Dask's, and the JSON of ours."""


def check_report(option: str, path: str | None) -> None:
    """Refuse a file that could not or must not be written, before hours of work and not after them."""
    if path is None:
        return
    file = Path(path).absolute()
    if not file.parent.is_dir():
        raise OptionError(f"{option} {path}: there is no folder {Path(path).parent}")
    if file.is_dir():
        raise OptionError(f"{option} {path}: that is a folder: name a file in it, as in {Path(path) / 'report.html'}")
    if not file.is_file():  # nothing, or a device
        return
    with file.open("rb") as old:
        start = old.read(max(map(len, _REPORTS))).lower()
    if start and not start.startswith(_REPORTS):
        raise OptionError(f"{option} {path}: a file is there that is no report: remove it, or choose another name")


def _write_report(report: Report, path: Path) -> None:
    if path.suffix in (".html", ".htm"):
        from distsort.report_page import page

        path.write_text(page(report), encoding="utf-8")
    else:
        path.write_text(report.to_json() + "\n", encoding="utf-8")


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
            rest = len(names) - place
            lines.append(f"... and {rest} more column{'s' * (rest > 1)}")
            break
        padded = [cell.rjust(wide) if numbers else cell.ljust(wide) for cell in cells]
        lines = [f"{line}{cell}  " for line, cell in zip(lines, padded, strict=True)]
    click.echo("\n" + "\n".join(line.rstrip() for line in lines))


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = "null" if value is None else str(value).replace("\n", " ")
    if not text.isprintable():  # what would move the cursor of a terminal, or worse
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= 40 else text[:37] + "..."


__all__ = ["check", "merge", "parse_key", "sort", "split_columns"]
