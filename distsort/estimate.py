"""How long a sort will take, phase by phase: what a plan knows of sizes, divided by what one core does in a second.

The rates stand in distsort.yaml, below ``rates``, with where they come from, and can be set like everything there:

    phase      seconds of one core                               rate
    read       bytes / read                                      of the format
    sort       rows / rows + bytes / memory                      comparing, and moving rows
    spill      bytes / disk                                      written once, read once; only where a sort spills
    exchange   bytes that cross / network                        only between workers
    merge      rows / rows + bytes / memory
    write      bytes / write                                     of the format

A phase of n tasks on c cores lasts as long as its cores are at work: ceil(n / c) rounds of 1 / n of its seconds. Phases
are taken one after the other. So an estimate is right in its order of magnitude and in what takes longest, no more: a
machine that is twice as fast takes half of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distsort import config
from distsort.report import bytes_text, seconds_text
from distsort.report_html import round_steps, table, tracks


@dataclass(frozen=True)
class Rates:
    """What one core does in a second.

    Attributes
    ----------
    rows
        Rows that are compared with others, when they are sorted or merged.
    memory, network, disk
        Bytes of rows that are moved in memory, between workers, to disk and back.
    read, write
        Bytes of rows in memory, by format.
    """

    rows: float
    memory: float
    network: float
    disk: float
    read: Mapping[str, float]
    write: Mapping[str, float]

    @classmethod
    def configured(cls) -> Rates:
        """Return the rates of the configuration."""
        memory, network, disk = (config.get_bytes(f"rates.{name}") for name in ("memory", "network", "disk"))
        read, write = (
            {name: config.get_bytes(f"rates.{verb}.{name}") for name in config.get(f"rates.{verb}")}
            for verb in ("read", "write")
        )
        return cls(float(config.get("rates.rows")), memory, network, disk, read, write)


@dataclass(frozen=True)
class Estimate:
    """What one phase will take.

    Attributes
    ----------
    phase
        Its name, as in a report.
    busy
        Seconds of one core.
    tasks
        Into how many tasks it falls.
    rate
        What the number rests on, in words.
    """

    phase: str
    busy: float
    tasks: int
    rate: str

    def seconds(self, cores: int) -> float:
        """Return how long it lasts on some cores (s)."""
        return self.busy * -(-self.tasks // cores) / self.tasks


def estimate(
    *,
    rows: int,
    nbytes: int,
    runs: int,
    parts: int,
    crossing: int = 0,
    spilled: int = 0,
    source: str | None = None,
    target: str | None = None,
    rates: Rates | None = None,
) -> tuple[Estimate, ...]:
    """Return what each phase of a sort will take.

    Parameters
    ----------
    rows, nbytes
        Of the input in memory.
    runs, parts
        Tasks that sort, and tasks that merge.
    crossing, spilled
        Bytes that go from worker to worker, and to disk and back.
    source, target
        Formats of files that are read and written; None for none.
    rates
        Those of the configuration if None.

    Examples
    --------
    >>> rates = Rates(10e6, 1e9, 1e8, 1e9, {"csv": 1e8}, {})
    >>> found = estimate(rows=10_000_000, nbytes=1_000_000_000, runs=4, parts=4, source="csv", rates=rates)
    >>> [(each.phase, each.busy, each.seconds(2)) for each in found]
    [('read', 10.0, 5.0), ('sort', 2.0, 1.0), ('merge', 2.0, 1.0)]
    """
    rates = rates or Rates.configured()
    runs, parts = max(runs, 1), max(parts, 1)
    compare = f"{rates.rows / 1e6:g} million rows/s and {_rate(rates.memory)}"
    order = rows / rates.rows + nbytes / rates.memory
    found = [Estimate("sort", order, runs, compare), Estimate("merge", order, parts, compare)]
    if crossing:
        found.insert(
            1, Estimate("exchange", crossing / rates.network, parts, f"{_rate(rates.network)} between workers")
        )
    if spilled:
        found.insert(1, Estimate("spill", spilled / rates.disk, runs, f"{_rate(rates.disk)} to disk and back"))
    if source is not None and source in rates.read:
        found.insert(0, Estimate("read", nbytes / rates.read[source], runs, f"{_rate(rates.read[source])} of {source}"))
    if target is not None and target in rates.write:
        rate = rates.write[target]
        found.append(Estimate("write", nbytes / rate, parts, f"{_rate(rate)} of {target}"))
    return tuple(found)


def total(estimates: Sequence[Estimate], cores: int) -> float:
    """Return how long all phases last on some cores (s)."""
    return sum(each.seconds(cores) for each in estimates)


def in_words(estimates: Sequence[Estimate], cores: int) -> str:
    """Say in one line what a sort takes.

    Examples
    --------
    >>> in_words([Estimate("sort", 3.0, 2, ""), Estimate("merge", 1.0, 2, "")], 2)
    'about 2.0 s on 2 cores: sort 1.5 s, merge 500 ms'
    """
    each = ", ".join(f"{one.phase} {seconds_text(one.seconds(cores))}" for one in estimates)
    return f"about {seconds_text(total(estimates, cores))} on {cores} {'core' if cores == 1 else 'cores'}: {each}"


def drawing(estimates: Sequence[Estimate], cores: int) -> str:
    """Return the estimates as HTML: phases on a time line, and what each rests on."""
    bars, now = [], 0.0
    for each in estimates:
        bars.append((each.phase, now, now + each.seconds(cores), seconds_text(each.seconds(cores))))
        now += each.seconds(cores)
    ticks = [(place, seconds_text(place) if place else "0") for place in round_steps(now)]
    rows = [(each.phase, seconds_text(each.seconds(cores)), seconds_text(each.busy), each.rate) for each in estimates]
    head = ("phase", "in all", "on one core", "a core does")
    return tracks("Estimated phases", bars, now, ticks=ticks) + table(head, rows)


def _rate(rate: float) -> str:
    return f"{bytes_text(rate)}/s"
