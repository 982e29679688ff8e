"""The plan of a file sort, made from what a scan knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dask.system import CPU_COUNT

from distsort import config
from distsort.clusters import temporary_directory
from distsort.estimate import Estimate, estimate, total
from distsort.files.budget import LIBRARIES, Budget, make_budget, row_bytes
from distsort.files.source import Location, key_name, open_source, order_of_files
from distsort.files.where import memory_size, parts_of, piece_size, workers_for
from distsort.io.filters import Filters
from distsort.io.records import Layout
from distsort.plan import Plan, as_html, as_text, check_parts, make_plan
from distsort.report import bytes_text, seconds_text


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
    processes, cores
        How many processes sort there, and on how many cores together.
    peak
        Bytes that each process needs at its peak; beside what it holds before, on threads and no budget.
    traffic
        Bytes that cross between processes at most.
    estimates
        How long each phase will take.
    budget
        How it fits the memory that was given; None where none was.
    folder
        Where runs spill.
    notes
        What a scan has to say.
    """

    plan: Plan
    files: int
    stored: int
    pieces: int
    largest: int
    place: str
    processes: int
    cores: int
    peak: int
    traffic: int
    estimates: tuple[Estimate, ...]
    budget: Budget | None
    folder: str
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """How long the sort will take (s), without what it takes to start a cluster; None where rates are unknown."""
        return total(self.estimates, self.cores) if self.estimates else None

    def facts(self) -> dict[str, str]:
        """Return what there is to say, by name."""
        size = bytes_text(self.plan.nbytes or 0)
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        told = {
            "input": f"{files}, {bytes_text(self.stored)} stored, about {size} in memory, in "
            f"{self.pieces:,} {'piece' if self.pieces == 1 else 'pieces'} of at most {bytes_text(self.largest)}",
            "place": self.place,
        }
        if self.budget is None:
            told.update(self.plan.facts())
            told["exchange"] = self.plan.exchange_text
            if self.plan.need() is None:
                each = "the process" if self.processes == 1 else f"each of {self.processes} processes"
                told["memory"] = f"about {bytes_text(self.peak)} in {each}, beside what it holds at the start"
        else:
            for line in self.budget.explain().splitlines():
                name, text = line.split(maxsplit=1)
                told[name] = text
            told["folder"] = self.folder
        told["traffic"] = f"at most {bytes_text(self.traffic)} between processes" if self.traffic else "none"
        if self.estimates:
            cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
            told["time"] = f"about {seconds_text(total(self.estimates, self.cores))} on {cores}, once it has started"
        return told

    def explain(self) -> str:
        """Return the plan as text, and what its times rest on."""
        because = () if self.budget else self.plan.reasons
        phases = [
            f"{each.phase:<8} {seconds_text(each.seconds(self.cores)):>7}  where a core does {each.rate}"
            for each in self.estimates
        ]
        return as_text(self.plan.title, self.facts(), phase=phases, because=because, note=self.notes)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        because = () if self.budget else self.plan.reasons
        return as_html(self.plan.title, self.facts(), self.estimates, self.cores, because=because, note=self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; a phase has its seconds on all cores."""
        phases = [{**asdict(each), "seconds": each.seconds(self.cores)} for each in self.estimates]
        budget = None if self.budget is None else {**asdict(self.budget), "runs": self.budget.runs}
        more = {"tasks": self.plan.tasks, "seconds": self.seconds, "estimates": phases, "budget": budget}
        return {**asdict(self), **more}

    def __str__(self) -> str:
        return self.explain()


def plan_files(
    src: Location | Iterable[Location],
    by: str | Sequence[str] | None = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    npartitions: int | None = None,
    columns: Sequence[str] | None = None,
    filters: Filters | None = None,
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
    config.check()
    order = order_of_files(src, by, ascending, na_position, format)
    if npartitions is not None:
        npartitions = check_parts(npartitions, 1)
    limit = None if memory is None else memory_size(memory)
    source = open_source(
        src,
        keys=[key_name(key.name) for key in order.keys],
        columns=columns,
        format=format,
        delimiter=delimiter,
        layout=layout,
        part_size=piece_size(None, limit),
        filters=filters,
    )
    parts = parts_of(source, npartitions, piece_size(None, None) if limit is None else None)
    budget = None if limit is None else make_budget(source, parts, limit)
    threads = budget is not None or source.nbytes <= config.get_bytes("files.in-process")
    sorter = backend or config.get("backend") or "numpy"
    plan = make_plan(
        what="rows",
        order=order,
        blocks=len(source.pieces),
        parts=parts,
        rows=source.rows,
        nbytes=source.nbytes,
        backend=sorter,
        exchange=exchange or config.get("exchange"),
        on_cluster=not threads,
        threshold=int(config.get("pull.threshold")),
        slices=int(config.get("graph.slices")),
        samples=int(config.get("cuts.samples")),
        probes=int(config.get("cuts.probes")),
    )
    workers = None if threads else workers_for(source)
    processes = 1 if workers is None else workers.count
    if workers is not None:
        plan = plan.fit(workers, kept=False)
    traffic = 0 if threads or plan.exchange == "none" else source.nbytes
    alone = budget is None and plan.exchange == "none"
    estimates = estimate(
        rows=source.rows if source.rows is not None else int(source.nbytes / row_bytes(source)),
        nbytes=source.nbytes,
        runs=plan.runs if budget is None else budget.runs,
        parts=plan.parts,
        # Of the rows that a process sorts, those of its own parts stay.
        crossing=traffic - traffic // processes,
        spilled=0 if budget is None else source.nbytes,
        source=source.format,
        target="parquet" if source.format == "csv" else source.format,
    )
    need = plan.need()
    shared = (plan.peak(processes) or 0) + LIBRARIES if need is None else need.peak
    return FilePlan(
        plan,
        source.files,
        source.stored,
        len(source.pieces),
        max(source.sizes),
        "this process" if threads else "a cluster of this machine, unless another one is named",
        processes,
        CPU_COUNT if budget is None else budget.threads,
        shared if budget is None else budget.peak,
        traffic,
        tuple(e for e in estimates if sorter == "numpy" and not (alone and e.phase == "merge")),
        budget,
        temporary_directory() or "of the system",
        source.notes,
    )
