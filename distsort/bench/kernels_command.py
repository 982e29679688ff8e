"""`distsort bench kernels`: its options, its tables, its plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from distsort.bench.kernels import PARTS, WORDS, Options, Report, run
from distsort.bench.measure import DTYPES
from distsort.errors import DistsortError, OptionError

_FIELDS = ("method", "n", "entropy", "bits", "coarsening", "ms", "gkeys_per_s")


def tables(report: Report) -> list[Table]:
    """Return a table for each part, and one for the claims."""
    found = []
    for part in dict.fromkeys(row["part"] for row in report.rows):
        rows = [row for row in report.rows if row["part"] == part]
        fields = [f for f in _FIELDS if any(f in row for row in rows)]
        table = Table(title=f"{part}, {report.dtype}, {report.gpu}", title_justify="left")
        for name in fields:
            title = {"gkeys_per_s": "Gkeys/s", "bits": "bits a digit", "coarsening": "keys a thread"}.get(name, name)
            table.add_column(title, justify="left" if name in ("method", "entropy") else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(row.get(f)) for f in fields))
        found.append(table)
    if report.claims:
        table = Table(title="What the textbook says, measured", title_justify="left")
        for title in ("claim", "ms without", "ms with", "ratio"):
            table.add_column(title, justify="left" if title == "claim" else "right")
        for claim in report.claims:
            table.add_row(claim["claim"], *(_cell(claim[f]) for f in ("slower_ms", "faster_ms", "ratio")))
        found.append(table)
    return found


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and value >= 1024 and value & (value - 1) == 0:
        return f"2^{value.bit_length() - 1}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def plots(report: Report, folder: Path) -> list[Path]:
    """Write one PNG for each part that has an axis to go along; return the files."""
    pyplot = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part, axis in (
        ("size", "n"),
        ("small", "n"),
        ("entropy", "entropy"),
        ("radix", "bits"),
        ("coarsening", "coarsening"),
    ):
        rows = [row for row in report.rows if row["part"] == part]
        if not rows:
            continue
        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        for line in dict.fromkeys(_line(row, axis) for row in rows):
            points = [(row[axis], row["gkeys_per_s"]) for row in rows if _line(row, axis) == line]
            axes.plot(*zip(*points, strict=True), marker="o", label=line)
        if axis == "n":
            axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        names = {"n": "keys", "entropy": "entropy", "bits": "bits of a digit", "coarsening": "keys of a thread"}
        axes.set(xlabel=names[axis], ylabel="Gkeys/s", title=f"{part}, {report.dtype}, {report.gpu}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        written.append(folder / f"kernels-{part}-{report.dtype}.png")
        figure.savefig(written[-1], dpi=120)
        pyplot.close(figure)
    return written


def _line(row: dict[str, Any], axis: str) -> str:
    extra = [f"{f}={row[f]}" for f in ("bits", "coarsening") if f in row and f != axis]
    return " ".join([row["method"], *extra])


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise OptionError("--plots needs matplotlib, which is not installed: pip install matplotlib") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes that a text means: ``2^20``, ``1000000``, a list of these, or ``2^16..2^30`` in steps of 4.

    Raises
    ------
    OptionError
        It means none.

    Examples
    --------
    >>> parse_sizes("2^16..2^20,1000")
    (65536, 262144, 1048576, 1000)
    """

    def number(word: str) -> int:
        base, caret, power = word.strip().partition("^")
        return int(base) ** int(power) if caret else int(base)

    sizes: list[int] = []
    try:
        for word in text.split(","):
            first, dots, last = word.partition("..")
            if not dots:
                sizes.append(number(word))
                continue
            size = number(first)
            while size <= number(last):
                sizes.append(size)
                size *= 4
    except ValueError:
        raise OptionError(f"--sizes {text!r}: give numbers like 2^20 or 1000000, or a range like 2^16..2^30") from None
    if not sizes or min(sizes) < 1:
        raise OptionError(f"--sizes {text!r} names no size above 0")
    return tuple(sizes)


@click.command("kernels")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Measure this part only; repeatable.")
@click.option(
    "--sizes", default="2^16..2^30", show_default=True, help="Numbers of keys; the largest serves all other parts."
)
@click.option("--dtype", type=click.Choice(list(DTYPES)), default="u32", show_default=True)
@click.option("--entropy", "entropies", multiple=True, type=click.Choice(list(WORDS)), help="Repeatable; default all.")
@click.option("--bits", multiple=True, type=click.IntRange(1, 8), help="Bits of a digit: 1, 2, 4, 8; repeatable.")
@click.option("--coarsening", multiple=True, type=click.IntRange(1, 16), help="Keys of a thread; repeatable.")
@click.option("--repeats", default=7, show_default=True, type=click.IntRange(1))
@click.option("--cub", type=click.Path(), help="tests/bench/cub_peer.cu, or the program compiled from it.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write all numbers here.")
@click.option("--plots", "plot_folder", type=click.Path(file_okay=False, path_type=Path), help="Write PNG plots here.")
def kernels(
    parts: tuple[str, ...],
    sizes: str,
    dtype: str,
    entropies: tuple[str, ...],
    bits: tuple[int, ...],
    coarsening: tuple[int, ...],
    repeats: int,
    cub: str | None,
    json_file: Path | None,
    plot_folder: Path | None,
) -> None:
    """Measure the sorts and merges on a GPU, from the textbook's first to production, beside cupy, torch and CUB."""
    defaults, errors = Options(), Console(stderr=True)
    try:
        options = Options(
            parts or defaults.parts,
            parse_sizes(sizes),
            dtype,
            entropies or defaults.entropies,
            bits or defaults.radix_bits,
            coarsening or defaults.coarsening,
            repeats,
            cub,
        )
        if plot_folder is not None:
            _pyplot()  # says at once what is missing
        report = run(options, lambda part: errors.print(f"measuring {part} ..."))
    except DistsortError as error:
        raise click.ClickException(str(error)) from error
    console = Console(width=None if sys.stdout.isatty() else 120)
    for table in tables(report):
        console.print(table)
    for note in report.notes:
        errors.print(note)
    if json_file is not None:
        json_file.write_text(report.to_json() + "\n")
    if plot_folder is not None:
        for path in plots(report, plot_folder):
            errors.print(f"wrote {path}")
