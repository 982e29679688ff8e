"""The plan of one sort: how many runs and parts, which exchange and backend and why, and what it will cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask.system import CPU_COUNT

from distsort import needs
from distsort.errors import OptionError
from distsort.estimate import Estimate, drawing, estimate, in_words
from distsort.order import Order
from distsort.report import bytes_text
from distsort.report_html import definitions, fragment, heading

# From this many rows on one probe round more keeps what the last round reads to a few megabytes.
ROWS_A_ROUND = (1 << 20, 1 << 30)

# Blocks are never joined to fewer runs than this, so that the cores of a machine have work.
LEAST_RUNS = 16

# Peak memory of a sort in units of its rows: the input block, its sorted copy, key codes and an index array.
LOCAL_SORT_PEAK = 3.0
MERGE_PEAK = 3.0


@dataclass(frozen=True)
class Plan:
    """What a sort will do. Printed by `explain`; nothing is computed to make it.

    Attributes
    ----------
    what
        "values", "index", "rows" or "lines" (rows of an n-D array, each sorted in one block).
    order
        The keys, in words.
    blocks
        Input blocks.
    runs, parts
        Neighbouring blocks form R runs, each sorted where it lies; P parts come out.
    rows, nbytes
        Size of the input where it is known, in rows and bytes; else None.
    backend
        "numpy" or "cupy".
    exchange
        "graph", "pull", or "none" where one block makes one part.
    rounds
        Probe rounds of the cut search between the samples and the last, exact round.
    reasons
        Why so, one sentence each.
    settings
        What the exchange was configured with where the sort was built: its graph may be built by the scheduler.
    place, kept
        The workers for which the memory is stated, where they are known; and whether finished parts stay there, or are
        written as they come.
    """

    what: str
    order: str
    blocks: int
    runs: int
    parts: int
    rows: int | None
    nbytes: int | None
    backend: str
    exchange: str
    rounds: int
    reasons: tuple[str, ...]
    settings: Any = None
    place: needs.Workers | None = None
    kept: bool = True

    @property
    def tasks(self) -> int:
        """Dask tasks of the sort itself."""
        if self.exchange == "none":
            return self.runs
        if self.exchange == "pull":
            return self.runs * (1 if self.backend == "cupy" else 2) + 1 + self.parts
        if self.runs == 1:
            return 2 + 2 * self.parts
        return self.runs * (3 + self.rounds) + self.rounds + 2 + self.runs * self.parts + self.parts

    @property
    def traffic(self) -> int | None:
        """Bytes that cross between workers at most: every row once."""
        return None if self.nbytes is None else self.nbytes * (self.exchange != "none")

    def peak(self, workers: int = 1) -> int | None:
        """Bytes a worker needs at its peak when runs and parts are dealt out evenly: no worker has half a run."""
        if self.nbytes is None:
            return None
        held = sum(-(-count // max(workers, 1)) / count for count in (self.runs, self.parts))
        return round(self.nbytes * (held + max(LOCAL_SORT_PEAK / self.runs, MERGE_PEAK / self.parts)))

    @property
    def spills(self) -> bool:
        """Whether runs go to disk where memory ends, and what that takes is known."""
        return self.exchange == "pull" and self.backend == "numpy" and bool(self.nbytes)

    def fit(self, workers: needs.Workers, kept: bool = True) -> Plan:
        """Return the plan for these workers.

        Raises
        ------
        SortMemoryError
            A run or a part is too large for one of them, even with all others on disk; the message says what would do.
        """
        if self.spills and self.nbytes is not None:
            needs.require("a partition of the input", self.nbytes / self.runs, workers)
            needs.require("a partition of the result", self.nbytes / self.parts, workers)
            needs.require_search(self.runs, self.parts, workers)
        return replace(self, place=workers, kept=kept)

    def need(self) -> needs.Need | None:
        """Return what each worker holds at its peak; None where runs do not spill, or something is not known."""
        if not self.spills or self.nbytes is None or self.place is None:
            return None
        return needs.needs(nbytes=self.nbytes, runs=self.runs, parts=self.parts, workers=self.place, kept=self.kept)

    def estimates(self) -> tuple[Estimate, ...]:
        """Return what each phase will take; nothing where sizes are not known, or GPUs sort: their rates are not."""
        if self.rows is None or self.nbytes is None or self.backend != "numpy":
            return ()
        crossing = self.nbytes if self.exchange == "pull" else 0
        found = estimate(rows=self.rows, nbytes=self.nbytes, runs=self.runs, parts=self.parts, crossing=crossing)
        return found[:1] if self.exchange == "none" else found

    def facts(self) -> dict[str, str]:
        """Return what there is to say, by name."""
        size = "" if self.nbytes is None else f" ({bytes_text(self.nbytes)})"
        told = {
            "rows": f"unknown until it runs{size}" if self.rows is None else f"{self.rows:,}{size}",
            "runs": f"{self.runs:,} sorted where they lie on the {self.backend} backend{self._joined()}",
            "parts": f"{self.parts:,} of equal size{self._part_rows()}",
            "exchange": f"{self.exchange_text}{self._traffic()}",
        }
        if self.place is not None and (need := self.need()) is not None:
            told["memory"] = need.explain(self.place)
        elif self.nbytes is not None:
            alone, shared = bytes_text(self.peak() or 0), bytes_text(self.peak(4) or 0)
            told["memory"] = f"about {alone} in one process, {shared} a worker on 4"
        if found := self.estimates():
            told["time"] = in_words(found, CPU_COUNT)
        return told

    def explain(self) -> str:
        """Return the plan as text."""
        return as_text(self.title, self.facts(), because=self.reasons)

    @property
    def title(self) -> str:
        """What is sorted by what."""
        return f"sort {self.what} by {self.order}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_html(self.title, self.facts(), self.estimates(), CPU_COUNT, because=self.reasons)

    @property
    def exchange_text(self) -> str:
        """How rows move, in how many tasks."""
        return f"{self.exchange}: {self.tasks:,} {'task' if self.tasks == 1 else 'tasks'}"

    def _joined(self) -> str:
        return f", made of {self.blocks:,} blocks" if self.blocks != self.runs else ""

    def _part_rows(self) -> str:
        if self.rows is None:
            return " (they differ by one row at most)"
        low, high = self.rows // self.parts, -(-self.rows // self.parts)
        return f": {low:,} rows" if low == high else f": {low:,} or {high:,} rows"

    def _traffic(self) -> str:
        return f", at most {bytes_text(self.traffic)} between workers" if self.traffic else ""

    def __str__(self) -> str:
        return self.explain()


def as_text(title: str, facts: Mapping[str, str], **more: Iterable[str]) -> str:
    """Return facts as lines below a title, then each of `more` as a line of its own under its name."""
    lines = [*facts.items(), *((name, text) for name, texts in more.items() for text in texts)]
    return "\n".join([title, *(f"  {name:<9} {text}" for name, text in lines)])


def as_html(
    title: str, facts: Mapping[str, str], estimates: Sequence[Estimate], cores: int, **more: Iterable[str]
) -> str:
    """Return the same as what a notebook shows, with the estimated phases on a time line."""
    lines = [*facts.items(), *((name, text) for name, texts in more.items() for text in texts)]
    drawn = f"<h2>Estimated phases</h2>{drawing(estimates, cores)}" if estimates else ""
    return fragment(heading(title[:1].upper() + title[1:]), definitions(lines), drawn)


def make_plan(
    *,
    what: str,
    order: Order,
    blocks: int,
    parts: int | None,
    rows: int | None = None,
    nbytes: int | None = None,
    backend: str = "numpy",
    exchange: str | None = None,
    on_cluster: bool = False,
    threshold: int = 64,
    slices: int = 4096,
    samples: int = 256,
    probes: int = 4096,
    settings: Any = None,
) -> Plan:
    """Decide how a sort runs.

    Parameters
    ----------
    what, order, rows, nbytes, backend, settings
        See `Plan`.
    blocks
        Input blocks.
    parts
        Parts wanted; as many as blocks when None.
    exchange
        "graph", "pull" or None to choose.
    on_cluster
        Whether a distributed client is connected.
    threshold
        Runs times parts from which on a cluster the pull exchange is taken.
    slices
        Runs times parts that plain tasks in one process should not exceed: neighbouring blocks are joined before.
    samples, probes
        Of a run, and keys a boundary and round, in the search for cuts.

    Raises
    ------
    OptionError
        `parts` is not a positive integer, or `exchange` is not known.
    """
    made = check_parts(parts, blocks)
    chosen, reason = choose_exchange(exchange, blocks, made, on_cluster, threshold, backend)
    runs, reasons = blocks, [reason]
    if chosen == "graph" and not on_cluster and blocks * made > slices:
        runs = min(blocks, max(LEAST_RUNS, slices // made))
    if runs < blocks:
        reasons.append(
            f"{blocks:,} blocks are joined to {runs:,} runs, since {blocks:,} x {made:,} slices are too many"
        )
    known = ROWS_A_ROUND[0] if rows is None else rows
    rounds = max(sum(known >= limit for limit in ROWS_A_ROUND), needs.rounds_of(known, runs, made, samples, probes))
    return Plan(what, str(order), blocks, runs, made, rows, nbytes, backend, chosen, rounds, tuple(reasons), settings)


def joined(blocks: int, runs: int) -> list[range]:
    """Return which neighbouring blocks form each run; never more runs than blocks.

    Examples
    --------
    >>> joined(5, 2)
    [range(0, 2), range(2, 5)]
    """
    runs = min(runs, blocks)
    return [range(r * blocks // runs, (r + 1) * blocks // runs) for r in range(runs)]


def check_parts(parts: int | None, blocks: int) -> int:
    """Return the number of parts, as many as blocks when none was asked for."""
    if parts is None:
        return max(blocks, 1)
    if isinstance(parts, bool) or not hasattr(parts, "__index__") or parts < 1:
        raise OptionError(
            f"npartitions={parts!r}: it must be a whole number of at least 1, or None for as many as the input"
        )
    return int(parts)


def choose_exchange(
    asked: str | None, runs: int, parts: int, on_cluster: bool, threshold: int, backend: str = "numpy"
) -> tuple[str, str]:
    """Return the exchange to use and the reason in one sentence."""
    if asked not in (None, "graph", "pull"):
        raise OptionError(f"exchange={asked!r}: it must be 'graph', 'pull' or None to choose")
    if runs == 1 and parts == 1:
        return "none", "one block makes one part, so nothing is exchanged"
    if asked is not None:
        return asked, f"exchange={asked!r} was asked for"
    if not on_cluster:
        return "graph", "no distributed client is connected, so plain tasks do it"
    if backend == "cupy":
        return "pull", "rows on GPUs of a cluster: parts pull them from GPU to GPU"
    if runs * parts < threshold:
        return "graph", f"{runs} x {parts} slices are few (below {threshold}), so plain tasks are as fast"
    return "pull", f"{runs} x {parts} slices on a cluster: parts pull from run stores in {2 * runs + 1 + parts} tasks"
