"""What a job did: phases, rows, bytes, seconds and balance, for people and for programs.

Units are raw: bytes, rows and seconds. A phase lasts from the start of its first task to the end of its last, so phases
overlap and their seconds do not add up to the job's; ``busy`` is the sum over its tasks. Dask joins reading and sorting
into one task, so the time of "sort" contains that of "read".

| field                  | unit    | what                                                             |
|------------------------|---------|------------------------------------------------------------------|
| rows, nbytes           | rows, B | of the input in memory                                           |
| stored_in, stored_out  | B       | of the files                                                     |
| seconds                | s       | of the whole job                                                 |
| phases[].start, .stop  | s       | since the start of the job                                       |
| phases[].busy          | s       | summed over tasks                                                |
| parts[].rows, .nbytes  | rows, B | of each output file                                              |
| balance                | 1       | rows of the largest part / mean; 1 + 1/mean at most              |
| dropped                | rows    | left out because their keys were those of the row above          |
| planned_memory         | B       | most that one process may hold by the plan, beside its base      |
| peak_memory            | B       | most that any process below has held                             |
| spilled                | B       | written to run files by all processes                            |
| workers[].base         | B       | held by that process when the job began                          |
| workers[].peak         | B       | most that it has held since it started, by its own VmHWM         |
| workers[].limit        | B       | of its memory; null where it has none                            |
| workers[].spilled      | B       | that it wrote to run files during the job                        |
| workers[].pulled       | B       | that it read from the runs of others during the job              |
| checksum               | hex     | order-independent sum over whole rows, the same for in and out   |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Phase:
    """One phase of a job.

    Attributes
    ----------
    name
        "read", "sort", "cuts", "exchange", "merge", "write" or "publish".
    start, stop
        Seconds since the job began.
    tasks
        How many there were.
    busy
        Seconds summed over tasks.
    rows, nbytes
        What went through it, where known.
    """

    name: str
    start: float
    stop: float
    tasks: int
    busy: float
    rows: int | None = None
    nbytes: int | None = None

    @property
    def seconds(self) -> float:
        """From the start of the first task to the end of the last."""
        return self.stop - self.start


@dataclass(frozen=True)
class Part:
    """One output file."""

    name: str
    rows: int
    nbytes: int


@dataclass(frozen=True)
class Worker:
    """What one process of a job held: see the table of this module."""

    name: str
    base: int
    peak: int
    limit: int | None = None
    spilled: int = 0
    pulled: int = 0


@dataclass(frozen=True)
class Report:
    """What a job did; see the table of this module for the units."""

    output: str
    order: str
    rows: int
    nbytes: int
    stored_in: int
    files_in: int
    seconds: float
    phases: tuple[Phase, ...]
    parts: tuple[Part, ...]
    checksum: str
    scheduler: str
    plan: str = ""
    notes: tuple[str, ...] = ()
    dropped: int = 0
    workers: tuple[Worker, ...] = ()
    planned_memory: int | None = None

    @property
    def peak_memory(self) -> int:
        """Bytes that the fullest process held at its peak; 0 where none could be asked."""
        return max((worker.peak for worker in self.workers), default=0)

    @property
    def spilled(self) -> int:
        """Bytes that all processes wrote to run files."""
        return sum(worker.spilled for worker in self.workers)

    @property
    def stored_out(self) -> int:
        """Bytes of all output files."""
        return sum(part.nbytes for part in self.parts)

    @property
    def balance(self) -> float:
        """Rows of the largest part divided by the mean; 1.0 for no rows."""
        rows = [part.rows for part in self.parts]
        return max(rows) * len(rows) / sum(rows) if any(rows) else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain = asdict(self)
        plain["phases"] = [{**asdict(phase), "seconds": phase.seconds} for phase in self.phases]
        plain["parts"] = [asdict(part) for part in self.parts]
        plain["notes"] = list(self.notes)
        plain["workers"] = [asdict(worker) for worker in self.workers]
        names = ("stored_out", "balance", "peak_memory", "spilled")
        return {**plain, **{name: getattr(self, name) for name in names}}

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.to_dict(), indent=1, default=str)

    def summary(self, width: int | None = None) -> str:
        """Return a summary to read, without colours.

        Parameters
        ----------
        width
            Columns of the terminal; 100 if None.
        """
        from rich.console import Console

        console = Console(width=width or 100, color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from html import escape

        return f"<pre>{escape(self.summary())}</pre>"

    def __rich__(self) -> Any:
        """Return what rich prints."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        head = Text.assemble(
            ("sorted ", "bold"),
            (f"{self.rows:,} rows", "bold cyan"),
            f" by {self.order} in ",
            (f"{seconds_text(self.seconds)}", "bold cyan"),
            f" on {self.scheduler}" if self.scheduler else "",
        )
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
        table.add_column("phase")
        for name in ("seconds", "busy", "tasks", "rows", "bytes", "rows/s"):
            table.add_column(name, justify="right")
        for phase in self.phases:
            rows = phase.rows
            table.add_row(
                phase.name,
                seconds_text(phase.seconds),
                seconds_text(phase.busy),
                f"{phase.tasks:,}",
                "" if rows is None else f"{rows:,}",
                "" if phase.nbytes is None else bytes_text(phase.nbytes),
                f"{rows / phase.seconds:,.0f}" if rows and phase.seconds > 0 else "",
            )
        lines = [
            f"input    {_count(self.files_in, 'file')}, {bytes_text(self.stored_in)} stored, "
            f"{bytes_text(self.nbytes)} in memory",
            f"output   {self.output}",
            f"         {_count(len(self.parts), 'part')}, {bytes_text(self.stored_out)} stored, {self._part_rows()}",
            f"checked  order, row count and checksum {self.checksum}",
            *([f"dropped  {self.dropped:,} rows with the keys of the row above them"] if self.dropped else []),
            *self._memory_lines(),
            *(f"note     {note}" for note in self.notes),
        ]
        return Group(head, Text(), table, Text(), *(Text(line) for line in lines))

    def _memory_lines(self) -> list[str]:
        if not self.workers:
            return []
        fullest = max(self.workers, key=lambda worker: worker.peak)
        among = "" if len(self.workers) == 1 else f" in the fullest of {len(self.workers)} processes"
        said = "" if self.planned_memory is None else f", {bytes_text(fullest.base + self.planned_memory)} by the plan"
        spills = f"; {bytes_text(self.spilled)} spilled" if self.spilled else ""
        return [f"memory   {bytes_text(fullest.peak)} at the peak{among}{said}{spills}"]

    def _part_rows(self) -> str:
        if not any(part.rows for part in self.parts):
            return "no rows"
        low, high = min(p.rows for p in self.parts), max(p.rows for p in self.parts)
        each = f"{low:,} rows each" if low == high else f"{low:,} to {high:,} rows each"
        return f"{each} (largest / mean {self.balance:.4f})"


def bytes_text(size: float) -> str:
    """Return a size for people.

    Examples
    --------
    >>> bytes_text(512), bytes_text(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def seconds_text(seconds: float) -> str:
    """Return a time for people.

    Examples
    --------
    >>> seconds_text(0.0123), seconds_text(3.21), seconds_text(754)
    ('12 ms', '3.2 s', '12 min 34 s')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
