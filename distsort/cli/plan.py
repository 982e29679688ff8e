"""The commands that come before a sort: plan, generate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from distsort.cli import trouble
from distsort.cli.options import (
    common_options,
    gnu_size,
    input_arguments,
    input_options,
    parse_condition,
    place_options,
)
from distsort.errors import OptionError, OutputError

_BATCH = 1 << 18


@click.command(name="plan")
@click.argument("inputs", nargs=-1, required=True, metavar="IN...")
@input_options
@place_options
@common_options
def plan(
    inputs: tuple[str, ...],
    npartitions: int | None,
    columns: str | None,
    conditions: tuple[str, ...],
    backend: str | None,
    exchange: str | None,
    memory: str | None,
    conf: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **reading: Any,
) -> None:
    """Say what a sort would do, reading no rows.

    Runs, parts, memory, traffic and the exchange, from the sizes of the files.
    """
    with trouble(verbose):
        import json

        import dask

        from distsort import config
        from distsort.files.plan import plan_files

        with dask.config.set(config.parse_settings(conf)):
            made = plan_files(
                inputs,
                **input_arguments(**reading),
                npartitions=npartitions,
                columns=None if columns is None else columns.split(","),
                filters=[parse_condition(text) for text in conditions] or None,
                backend=backend,
                exchange=exchange,
                memory=gnu_size(memory),
            )
    click.echo(json.dumps(made.to_dict(), indent=1) if as_json else made.explain())


@click.command(name="generate")
@click.argument("kind", type=click.Choice(["records", "text", "parquet"]))
@click.argument("output", metavar="OUT")
@click.option("-n", "--rows", type=click.IntRange(min=0), required=True, help="How many rows.")
@click.option("--first", type=click.IntRange(min=0), default=0, help="Number of the first row.")
@click.option("--seed", type=int, default=0, help="Of the random keys.")
@click.option("--distinct", type=click.IntRange(min=1), help="So many different keys. [default: all random]")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def generate(kind: str, output: str, rows: int, first: int, seed: int, distinct: int | None, verbose: bool) -> None:
    """Write one file of rows to sort.

    records: 100 bytes each, a key of 10, then the row's number. text: lines of 16 hexadecimal digits. parquet: k and
    row, both int64.
    """
    with trouble(verbose):
        path = Path(output)
        if path.exists():
            # In other words than those of an output folder, whose hints speak of --overwrite and a manifest.
            raise OutputError(
                f"{output}: exists, and generate replaces nothing: remove it first, or choose another name"
            )
        if not path.parent.is_dir():
            raise OptionError(f"{output}: there is no folder {path.parent}")
        try:
            _generate(kind, path, rows, first, seed, distinct)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise OutputError(f"{output}: {error.strerror or error}; nothing is left of it") from error
            raise


def _generate(kind: str, path: Path, rows: int, first: int, seed: int, distinct: int | None) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from distsort.io import records

    if kind == "records":
        with path.open("wb") as file:
            records.generate(file, rows, first, seed, distinct)
        return

    def batches() -> Any:
        for start in range(0, rows, _BATCH):
            rng = np.random.default_rng([seed, first + start])
            yield start, rng.integers(0, distinct or 2**62, min(_BATCH, rows - start))

    if kind == "text":
        with path.open("wb") as file:
            for _, keys in batches():
                file.writelines(b"%016x\n" % key for key in keys.tolist())
        return
    schema = pa.schema([("k", pa.int64()), ("row", pa.int64())])
    with pq.ParquetWriter(path, schema) as writer:
        for start, keys in batches():
            writer.write_table(pa.table({"k": keys, "row": np.arange(len(keys)) + first + start}, schema=schema))
