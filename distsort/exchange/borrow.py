"""Whole runs of other workers, mapped where they lie: how a part sees all runs without moving any."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from distsort.exchange.handles import Options, Source
from distsort.exchange.reader import Held, Reader, Trouble, by_address
from distsort.exchange.store import LostRunError
from distsort.local import Run


@dataclass
class Borrowed:
    """Runs that were borrowed.

    Attributes
    ----------
    runs
        None where one of them cannot be mapped.
    complete
        To be called before they are read in bulk: waits for forms of them that their owners were still making.
    """

    runs: list[Run] | None
    complete: Callable[[], None]


@contextlib.contextmanager
def borrow(
    reader: Reader, sources: Sequence[Source], options: Options, share: tuple[float, float]
) -> Iterator[Borrowed]:
    """Have whole runs here without moving them, once they are made; called from the thread of a part task.

    They are good until the context ends.

    Parameters
    ----------
    reader, sources, options
        Of the part.
    share
        About which of the ranks it will want, as shares of all.

    Raises
    ------
    Trouble
        A run could not be read.
    CancelledError
        The task is not wanted any more.
    """
    held: Held = []
    later: list[asyncio.Task[None]] = []
    service, key = reader.service, reader.worker.get_current_task()

    async def complete() -> None:
        with reader.cancellable(key):
            await asyncio.gather(*later)

    with reader.until_read(held, options):
        try:
            runs = service.call(_borrow(reader, key, sources, options, share, held, later))
            yield Borrowed(runs, lambda: None if _well(later) else service.call(complete()))
        finally:
            service.loop.call_soon_threadsafe(_give_up, later)


async def _borrow(
    reader: Reader,
    key: Any,
    sources: Sequence[Source],
    options: Options,
    share: tuple[float, float],
    held: Held,
    later: list[asyncio.Task[None]],
) -> list[Run] | None:
    service, found = reader.service, dict[int, Run]()

    async def ask(address: str, mine: list[int]) -> None:
        if address == service.address:
            for i in mine:
                run = await _own(reader, sources[i])
                if run is not None:
                    found[i] = run
            return
        devices, asked = service.devices, [sources[i] for i in mine]
        if not devices.maps(address, asked[0].host):
            return
        names = [s.attempt for s in asked]
        fields = {"attempts": names, "host": devices.host, "reader": service.address, "share": share}
        answer = await reader.ask(asked, "distsort_lend", fields, options)
        if answer["lease"]:
            devices.hold(address)
            held.append((asked[0], answer["lease"]))
            if answer["later"]:
                narrow = reader.ask(asked, "distsort_narrow", {"lease": answer["lease"]}, options)
                later.append(asyncio.ensure_future(narrow))
            lent = await service.in_thread(devices.unpack, address, answer, True)
            found.update(zip(mine, lent, strict=True) if lent is not None else ())

    with reader.cancellable(key):
        await reader.all_of(ask(address, mine) for address, mine in by_address(sources))
    return [found[i] for i in range(len(sources))] if len(found) == len(sources) else None


def _well(tasks: Sequence[asyncio.Task[None]]) -> bool:
    """Whether all have ended well, which a thread can see without a trip through the loop."""
    return all(task.done() and not task.cancelled() and task.exception() is None for task in tasks)


def _give_up(later: Sequence[asyncio.Task[None]]) -> None:
    """Let go of questions whose answers are not wanted any more; what went wrong with them does not matter."""
    for task in later:
        if not task.cancel() and not task.cancelled():
            task.exception()


async def _own(reader: Reader, source: Source) -> Run | None:
    await reader.service.promises.kept([source.attempt])
    try:
        return reader.store.whole(source.attempt)
    except LostRunError:
        raise Trouble(source, "lost") from None
