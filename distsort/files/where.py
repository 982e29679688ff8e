"""Where the tasks of a file job run: threads of this process, a connected cluster, or one started for the job."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from dask.utils import parse_bytes

from distsort import config
from distsort.clusters import connect, local_cluster
from distsort.errors import OptionError
from distsort.io.source import Source
from distsort.io.storage import Store
from distsort.needs import Workers, identity, room
from distsort.report import bytes_text

# Pieces that fit the memory of a process of its own, and the least bytes of one: to keep account of more pieces would
# take more memory than what is refused.
SHARES = 32
LEAST_PIECE = 1 << 20


@contextmanager
def where_to_run(source: Source, output: Store, client: Any) -> Iterator[tuple[Any, str]]:
    """Make the place where Dask computes inside the block.

    Parameters
    ----------
    source
        Its size decides, where no client does.
    output
        Where parts go.
    client
        A client, the address of a scheduler, or None.

    Yields
    ------
    client or None for threads, and what to call the place

    Raises
    ------
    OptionError
        No scheduler answers at the address, or files are in the memory of this process only.
    """
    private = any(_in_process(store) for store in (output, *_stores(source)))
    if client is None and not private:
        client = _connected()
    if client is not None and private:
        raise OptionError("memory:// files are in this process only: give no client, or name files that workers see")
    if client is not None:
        with _client(client) as connected, connected.as_current(), dask.config.set(scheduler="dask.distributed"):
            yield connected, cluster_text(connected)
    elif private or source.nbytes <= config.get_bytes("files.in-process"):
        with dask.config.set(scheduler="threads"):
            yield None, f"{os.cpu_count()} threads of this process"
    else:
        workers = max(1, min(os.cpu_count() or 1, len(source.pieces)))
        with local_cluster(workers) as connected, connected.as_current():
            yield connected, cluster_text(connected)


def check_client(client: Any) -> None:
    """Refuse what is neither a client nor the address of a scheduler.

    Raises
    ------
    OptionError
    """
    distributed = sys.modules.get("distributed")  # Who has a client has imported it.
    if client is None or isinstance(client, str) or (distributed and isinstance(client, distributed.Client)):
        return
    raise OptionError(
        f"client={client!r}: give a distributed.Client, or the address of a scheduler, as in 'tcp://host:8786'"
    )


def piece_size(client: Any, memory: int | None) -> int:
    """Return the bytes of rows that one task should hold: as configured, or less where there is little memory.

    Parameters
    ----------
    client
        As of `where_to_run`: the least memory of a thread of its workers counts.
    memory
        Bytes for a sort in this process, or None.
    """
    if memory is not None:
        return max(memory // SHARES, LEAST_PIECE)
    size: int = config.get_bytes("files.part-size")
    client = _connected() if client is None else client
    if client is None:
        return size
    with _client(client) as connected:
        workers = identity(connected)["workers"].values()
    return min([size, *(room(w["memory_limit"], w["nthreads"]) for w in workers if w["memory_limit"])])


def workers_for(source: Source) -> Workers:
    """Return the workers of the connected cluster, or of the one that would be started for a source."""
    client = _connected()
    found = None if client is None else Workers.of(identity(client))
    if found is not None:
        return found
    from distributed.system import MEMORY_LIMIT

    cores = os.cpu_count() or 1
    return Workers(max(1, min(cores, len(source.pieces))), 1, MEMORY_LIMIT // cores)


def _connected() -> Any:
    """Return the client that this process has, if it has one that works."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return client if client.status == "running" else None


@contextmanager
def _client(client: Any) -> Iterator[Any]:
    if not isinstance(client, str):
        yield client
        return
    with connect(address=client) as connected:
        yield connected


def cluster_text(client: Any) -> str:
    """Return how large a cluster is."""
    workers = identity(client)["workers"]
    memory = sum(worker["memory_limit"] or 0 for worker in workers.values())
    threads = sum(worker["nthreads"] for worker in workers.values())
    return f"{len(workers)} workers with {threads} threads and {bytes_text(memory)}"


def _stores(source: Source) -> list[Store]:
    return [unit.store for piece in source.pieces for unit in (piece if isinstance(piece, tuple) else (piece,))]


def _in_process(store: Store) -> bool:
    protocol = store.fs.protocol
    return "memory" in ([protocol] if isinstance(protocol, str) else protocol)


def parts_of(source: Source, npartitions: int | None, size: int | None = None) -> int:
    """Return the number of output files: what was asked for, else so many that each has about `size` or as configured.

    Small input makes no fewer than the configured minimum, if it comes in so many pieces.
    """
    least = min(len(source.pieces), config.get("files.minimum-partitions"))
    return npartitions or max(least, -(-source.nbytes // (size or config.get_bytes("files.part-size"))))


def memory_size(memory: str | int) -> int:
    """Read the size that a sort may use."""
    try:
        size = int(parse_bytes(memory))
    except (ValueError, TypeError, AttributeError, OverflowError):
        size = 0
    if size <= 0:
        raise OptionError(f"memory={memory!r} is not a size: write one like '2 GiB'")
    return size
