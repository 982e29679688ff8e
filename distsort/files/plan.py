"""The plan of a file sort, made from what a scan knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distsort import config
from distsort.files.source import Location, key_name, open_source, order_of_files
from distsort.files.where import memory_size, parts_of, temporary_directory
from distsort.io.records import Layout
from distsort.plan import Plan, make_plan
from distsort.report import bytes_text


@dataclass(frozen=True)
class FilePlan:
    """What a sort of files will do.

    Attributes
    ----------
    plan
        The sort itself.
    files, stored, pieces
        Input files, their bytes, and how many pieces they are read in.
    largest
        Bytes of the largest piece in memory.
    place
        Where it runs.
    budget
        How it fits `memory`, in words; None where none was given.
    notes
        What a scan has to say.
    """

    plan: Plan
    files: int
    stored: int
    pieces: int
    largest: int
    place: str
    budget: str | None
    notes: tuple[str, ...]

    def explain(self) -> str:
        """Return the plan as text."""
        lines = [
            self.plan.explain() if self.budget is None else self.plan.explain().splitlines()[0],
            f"  input     {self.files:,} files, {bytes_text(self.stored)} stored, about "
            f"{bytes_text(self.plan.nbytes or 0)} in memory, in {self.pieces:,} pieces of at most "
            f"{bytes_text(self.largest)}",
            f"  place     {self.place}",
        ]
        lines += [] if self.budget is None else [self.budget]
        return "\n".join([*lines, *(f"  note      {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "tasks": self.plan.tasks, "traffic": self.plan.traffic, "peak": self.plan.peak()}


def plan_files(
    src: Location | Iterable[Location],
    by: str | Sequence[str] | None = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    npartitions: int | None = None,
    columns: Sequence[str] | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    layout: Layout | None = None,
    backend: str | None = None,
    exchange: str | None = None,
    memory: str | int | None = None,
) -> FilePlan:
    """Return the plan of `sort_files` with the same arguments, reading no rows.

    Raises
    ------
    InputError, OptionError, SortMemoryError
        As `sort_files` does.
    """
    order = order_of_files(src, by, ascending, na_position, format)
    limit = None if memory is None else memory_size(memory)
    source = open_source(
        src,
        keys=[key_name(key.name) for key in order.keys],
        columns=columns,
        format=format,
        delimiter=delimiter,
        layout=layout,
        part_size=None if limit is None else limit // 32,
    )
    parts = parts_of(source, npartitions)
    budget = None
    threads = limit is not None or source.nbytes <= config.get_bytes("files.in-process")
    if limit is not None:
        from distsort.files.budget import make_budget

        budget = (
            f"{make_budget(source, parts, limit).explain()}\n  folder    {temporary_directory() or 'of the system'}"
        )
    plan = make_plan(
        what="rows",
        order=order,
        blocks=len(source.pieces),
        parts=parts,
        rows=source.rows,
        nbytes=source.nbytes,
        backend=backend or config.get("backend") or "numpy",
        exchange=exchange or config.get("exchange"),
        on_cluster=not threads,
        threshold=int(config.get("pull.threshold")),
        slices=int(config.get("graph.slices")),
    )
    place = "threads of one process" if threads else "a cluster of this machine, unless another one is named"
    return FilePlan(
        plan,
        source.files,
        source.stored,
        len(source.pieces),
        max(source.sizes),
        place,
        budget,
        source.notes,
    )
