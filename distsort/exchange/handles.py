"""What the tasks of a pull exchange hand to each other, and the kinds of task that it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from dask._task_spec import Task

from distsort import config
from distsort.local import Run, Sample
from distsort.search import Cuts, Ranks

NAME = "distsort"


@dataclass(frozen=True)
class Options:
    """Settings of one sort, read where it is built and carried by its plan, so that they hold on every worker.

    Attributes
    ----------
    samples, probes
        Regular samples a run; probes a boundary and round of the cut search.
    message, in_flight
        Bytes of one packed answer; bytes one reader may be waiting for.
    timeout
        Seconds to wait for one answer.
    retries
        Strikes of one task against one run before its error is raised.
    """

    samples: int
    probes: int
    message: int
    in_flight: int
    timeout: float
    retries: int

    @classmethod
    def read(cls) -> Options:
        """Read them from the configuration."""
        return cls(
            int(config.get("cuts.samples")),
            int(config.get("cuts.probes")),
            config.get_bytes("pull.message-size"),
            config.get_bytes("pull.bytes-in-flight"),
            config.get_seconds("pull.timeout"),
            int(config.get("pull.retries")),
        )


@dataclass(frozen=True)
class Source:
    """Where one run lies.

    Attributes
    ----------
    key
        The Dask key whose life is the life of the run.
    attempt
        Names this very execution of the run task; the store knows runs by it alone. Empty without a store.
    address
        The worker that holds it.
    row_bytes
        Mean size of a row, in bytes; that of its block where the run is still being made.
    host
        Names the host whose GPU holds the rows; empty for rows in host memory.
    held
        The run itself, where there is no worker whose store could hold it (threads, processes, sync).
    """

    key: Any
    attempt: str
    address: str
    row_bytes: float
    host: str = ""
    held: Run | None = None


@dataclass(frozen=True)
class Handle:
    """What a run task returns: a few kilobytes in place of the run.

    Attributes
    ----------
    source
        Where the run lies, or will lie.
    length, nbytes
        Rows; their memory in bytes.
    sample
        None for a run that is only promised: it is still being made.
    lent
        Whether others on its host can map it.
    """

    source: Source
    length: int
    nbytes: int
    sample: Sample | None
    lent: bool = False


@dataclass(frozen=True)
class Routes:
    """What the barrier returns: the ranks of the parts, and where to pull from.

    Attributes
    ----------
    ranks
        Where parts begin.
    cuts
        None where each part finds its own, in runs that it has mapped.
    sources
        The runs.
    options, barrier
        Settings, and the Dask key of the barrier.
    """

    ranks: Ranks
    cuts: Cuts | None
    sources: tuple[Source, ...]
    options: Options
    barrier: Any


class PullTask(Task):
    """A task of the exchange: what it does, fused with others or not, has to do with the runs of its worker."""

    __slots__ = ()


class TickTask(PullTask):
    """Hands a handle on.

    It stands between run and barrier so that handles are never gathered off their owner: what the barrier gathers, and
    the memory manager then moves about, are the ticks.
    """

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        """Keep it apart from its run."""
        return True


class BarrierTask(TickTask):
    """Finds the cuts once all runs exist. The scheduler plugin knows sorts by it."""

    __slots__ = ()


K = TypeVar("K", bound=PullTask)


def task_in(spec: Any, kind: type[K]) -> K | None:
    """Return the task of a kind that a task is, or holds: Dask fuses tasks, and wraps those that it may not share.

    Parameters
    ----------
    spec
        What a Dask task does.
    kind
        A class of this module.
    """
    if isinstance(spec, kind):
        return spec
    inner: Iterable[Any] = ()
    if isinstance(spec, Task):
        inner = spec.args
    elif isinstance(spec, dict):
        inner = spec.values()
    return next((found for each in inner if (found := task_in(each, kind)) is not None), None)
