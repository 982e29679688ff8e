"""What a worker of a cluster needs at its peak when runs that do not fit its memory go to disk. Pure.

    limit  ---------------------------------------------------------  a nanny ends the worker at 95 %
             | work: sorting one run, or merging one part, a thread |
             | cuts, and answers to other workers                   |
    60 % ----| - - - - - - - - - - - - - - - - - - - - - - - - - - -|
             | runs: at most 20 % of the limit, and only what       |
             | leaves the process below 60 % when they come         |
             | base: Python and the libraries                       |

Runs give way: they spill. Base and work do not. So a sort fits wherever base and work do, and a plan refuses it only
where they cannot. Rows that a user's own tasks make and use are not counted, and neither is the memory of GPUs. The
numbers were measured on Linux with records and with frames of numbers, on workers of 272 MiB to 1 GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distsort.errors import SortMemoryError
from distsort.report import bytes_text

BASE = 200 << 20
"""Bytes of a worker that sorts, without the rows: Python, the libraries, and what they keep once they work."""

EXCHANGE = 80 << 20
"""Bytes of what is not in proportion to a part: a search for cuts, chunks of run files, answers to other workers."""

SEARCH_SHARE = 1 / 8
"""Share of the limit that one round of the search for cuts may take. The fewer keys a round reads, the more rounds."""

SEARCH_KEYS = 1 << 18
"""Keys that one round may read where plain tasks search, which know no limit: of numbers 20 MiB, of texts 64."""

NARROWS = 0.6
"""What a round must leave at most of what was left before it, to be worth its tasks."""

RUN_PROBES = 4
"""Keys that a round reads of each run for each boundary at least, so that it narrows what is left."""

PROBE_BYTES = 256
"""What one of them takes where all meet, those of texts and records; numbers take a third."""

STORE_SHARE = 0.2
"""Share of the limit that runs may take. Merges stay below the point where Dask would spill what it holds: that costs
copies when there is least room for them, and with twice the share workers were ended."""

CEILING = 0.6
"""Share of the limit above which a worker's process spills runs; a tenth below where Dask would begin to spill."""

PAUSE, TERMINATE = 0.8, 0.95
"""Shares of the limit above which a worker starts no task, and at which its nanny ends it."""

MESSAGE_SHARE = 1 / 64
"""Share of the limit that one answer to another worker may take."""

SORT_COPIES = 3.0
"""Of a block, while it is sorted: itself, its sorted rows, key codes with the order and what the sort works in."""

MERGE_COPIES = 6.0
"""Of a part, while it is merged: its slices put together, codes and order, the merged rows, the part before it that
waits to be fetched or written, and slices that others ask for meanwhile."""

LEAST_COPIES = 3.0
"""Of the largest block or part: with less, no worker has been seen to end."""

SHARES, COMFORT, SMALLEST = 24, 8, 1 << 20
"""A block that suits a worker is a 24th of its limit at most, fits 8 times between its base and where it would pause,
and is never smaller than this many bytes."""


def identity(client: Any) -> Any:
    """Return what the scheduler of a client says of itself and of all its workers.

    Not `Client.scheduler_info`: before that returns, an update in the background may put an answer without workers in
    the place of its own. A client on the event loop of its program cannot wait: what it knows has no workers.
    """
    if client.asynchronous:
        return client.scheduler_info()
    return client.sync(client.scheduler.identity, n_workers=-1)


@dataclass(frozen=True)
class Workers:
    """The workers of a cluster.

    Attributes
    ----------
    count
        How many there are.
    threads
        Of one worker, at most.
    limit
        The least memory limit of one, in bytes; None where none has one.
    """

    count: int
    threads: int = 1
    limit: int | None = None

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> Workers | None:
        """Read what a scheduler says of itself; None where it has no workers yet."""
        known = list(identity.get("workers", {}).values())
        if not known:
            return None
        limits = [worker["memory_limit"] for worker in known if worker["memory_limit"]]
        threads = max(worker["nthreads"] for worker in known)
        return cls(max(identity.get("n_workers", 0), len(known)), threads, min(limits, default=None))


@dataclass(frozen=True)
class Need:
    """What one worker holds at its peak, in bytes.

    Attributes
    ----------
    runs
        Runs kept in memory.
    spilled
        Runs on disk.
    parts
        Finished parts that stay where they were made.
    work
        What its threads work on.
    """

    runs: int
    spilled: int
    parts: int
    work: int

    @property
    def peak(self) -> int:
        """All of it, and the process itself."""
        return BASE + EXCHANGE + self.runs + self.parts + self.work

    def explain(self, workers: Workers) -> str:
        """Say it in words, for these workers."""
        limit = "" if workers.limit is None else f" of {bytes_text(workers.limit)}"
        where = "the worker" if workers.count == 1 else f"each of {workers.count:,} workers"
        disk = f", beside {bytes_text(self.spilled)} of runs on disk" if self.spilled else ""
        return f"about {bytes_text(self.peak)} at the peak in {where}{limit}{disk}"


def needs(*, nbytes: int, runs: int, parts: int, workers: Workers, kept: bool = True) -> Need:
    """Return what a worker holds when runs and parts are dealt out evenly and runs spill.

    Parameters
    ----------
    nbytes
        Bytes of all rows.
    runs, parts
        How many there are.
    workers
        Of the cluster.
    kept
        Whether finished parts stay; if not they are written as they come.

    Examples
    --------
    >>> one = needs(nbytes=12 << 30, runs=288, parts=288, workers=Workers(2, 1, 1 << 30), kept=False)
    >>> bytes_text(one.runs), bytes_text(one.spilled), bytes_text(one.peak)
    ('204.8 MiB', '5.8 GiB', '740.8 MiB')
    """
    run, part = nbytes / runs, nbytes / parts
    share = -(-runs // workers.count) * run
    work = workers.threads * max(SORT_COPIES * run, MERGE_COPIES * part)
    held, made = share, -(-parts // workers.count) * part if kept else 0.0
    if workers.limit is not None:
        held = min(share, STORE_SHARE * workers.limit, max(CEILING * workers.limit - BASE, 0.0))
        # Dask itself spills what it holds.
        made = min(made, max(CEILING * workers.limit - BASE - held, 0.0))
        searching = min(probes_of(runs, parts, workers.limit) * parts * PROBE_BYTES, nbytes)
        work = max(work, searching - EXCHANGE)
        # Near its limit a worker does less at once: it pauses, and asks for less.
        work = min(work, max(TERMINATE * workers.limit - BASE - EXCHANGE - held - made, 0.0))
    return Need(int(held), int(share - held), int(made), int(work))


def room(limit: int, threads: int = 1) -> int:
    """Return the bytes of a block or part that suits a worker: small enough to sort beside runs in memory.

    Examples
    --------
    >>> bytes_text(room(1 << 30)), bytes_text(room(320 << 20)), bytes_text(room(4 << 30, 4))
    ('42.7 MiB', '7.0 MiB', '42.7 MiB')
    """
    return max(int(min(limit / SHARES, (PAUSE * limit - BASE) / COMFORT) / threads), SMALLEST)


def probes_of(runs: int, parts: int, limit: int | None = None) -> int:
    """Return how many keys of all runs one round of the search may read, for each boundary between parts.

    Examples
    --------
    >>> probes_of(4, 64), probes_of(4, 2000), probes_of(4, 2000, limit=8 << 30)
    (4096, 131, 2097)
    """
    keys = SEARCH_KEYS if limit is None else int(SEARCH_SHARE * limit / PROBE_BYTES)
    return max(keys // parts, RUN_PROBES * runs)


def rounds_of(rows: int, runs: int, parts: int, samples: int, probes: int) -> int:
    """Return how many rounds of plain tasks narrow the cuts until the last one reads no more than a round may.

    Parameters
    ----------
    rows
        Of all runs.
    runs, parts
        What is cut, and into how many.
    samples
        Of each run.
    probes
        Keys a boundary and round, where that is not too much.

    Examples
    --------
    >>> rounds_of(1 << 20, 16, 16, samples=256, probes=4096), rounds_of(1 << 30, 16, 16, samples=256, probes=4096)
    (0, 2)
    >>> rounds_of(300_000, 2, 10, samples=256, probes=4096), rounds_of(300_000, 2, 2000, samples=256, probes=4096)
    (0, 1)

    Where so few keys are asked of so many runs that a round narrows nothing, there is none:

    >>> rounds_of(1 << 30, 4096, 1, samples=256, probes=4096), rounds_of(1 << 20, 2, 2, samples=2, probes=1)
    (0, 0)
    """
    probes = min(probes, probes_of(runs, parts))
    width, rounds = 2 * rows // samples, 0  # of a boundary in all runs: between two samples, on either side
    while width * (parts - 1) > SEARCH_KEYS and (narrower := 2 * runs * -(-width // probes)) < NARROWS * width:
        width, rounds = narrower, rounds + 1
    return rounds


def least(largest: float, threads: int = 1) -> int:
    """Return the memory limit with which a worker can sort blocks, or merge parts, of so many bytes.

    At work it must stay below the point where it is ended; with one block that waits, below that where it would pause.
    """
    at_work, at_rest = BASE + threads * LEAST_COPIES * largest, BASE + threads * largest
    return int(max(at_work / TERMINATE, at_rest / PAUSE))


def require_search(runs: int, parts: int, workers: Workers) -> None:
    """Refuse more slices than one worker can search for cuts; errors as of `require`.

    Examples
    --------
    >>> require_search(300, 300, Workers(2, 1, 320 << 20))
    >>> require_search(2000, 2000, Workers(2, 1, 320 << 20))
    Traceback (most recent call last):
    ...
    distsort.errors.SortMemoryError: 2,000 runs x 2,000 parts are too many to search for cuts on workers of 320.0 MiB:
    that takes 1.5 GiB: use larger workers, or larger and fewer partitions
    """
    needed = int((BASE + RUN_PROBES * runs * parts * PROBE_BYTES / 3) / TERMINATE)
    if workers.limit is not None and needed > workers.limit:
        raise SortMemoryError(
            f"{runs:,} runs x {parts:,} parts are too many to search for cuts on workers of "
            f"{bytes_text(workers.limit)}: that takes {bytes_text(needed)}: use larger workers, or larger and fewer "
            "partitions"
        )


def require(what: str, largest: float, workers: Workers) -> None:
    """Refuse what no worker can hold.

    Parameters
    ----------
    what
        What is so large, in words.
    largest
        Its bytes.
    workers
        Where it would be.

    Raises
    ------
    SortMemoryError
        The message says how much would do.

    Examples
    --------
    >>> require("a partition of the result", 10 << 20, Workers(2, 1, 320 << 20))
    >>> require("a partition of the result", 64 << 20, Workers(2, 1, 320 << 20))
    Traceback (most recent call last):
    ...
    distsort.errors.SortMemoryError: a partition of the result has 64.0 MiB: a worker needs a memory limit of 412.6 MiB
    to sort that beside its libraries, and has 320.0 MiB: use larger workers, or partitions of at most 34.7 MiB
    """
    needed = least(largest, workers.threads)
    if workers.limit is None or needed <= workers.limit:
        return
    threads = "" if workers.threads == 1 else f" on each of its {workers.threads} threads"
    fitting = (TERMINATE * workers.limit - BASE) / LEAST_COPIES / workers.threads
    fitting = min(fitting, (PAUSE * workers.limit - BASE) / workers.threads)
    smaller = f", or partitions of at most {bytes_text(fitting)}" if fitting >= SMALLEST else ""
    fewer = ", or fewer threads" if workers.threads > 1 else ""
    raise SortMemoryError(
        f"{what} has {bytes_text(largest)}: a worker needs a memory limit of {bytes_text(needed)} to sort that"
        f"{threads} beside its libraries, and has {bytes_text(workers.limit)}: use larger workers{smaller}{fewer}"
    )
