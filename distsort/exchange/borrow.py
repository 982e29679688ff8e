"""Whole runs of other workers, mapped where they lie: how a part sees all runs without moving any."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from distsort.exchange.handles import Options, Source
from distsort.exchange.reader import Held, Reader, Trouble, by_address
from distsort.exchange.store import LostRunError
from distsort.local import Run


@contextlib.contextmanager
def borrow(
    reader: Reader, sources: Sequence[Source], options: Options, share: tuple[float, float]
) -> Iterator[list[Run] | None]:
    """Have whole runs here without moving them, once they are made; called from the thread of a part task.

    Yields None where one cannot be mapped. They are good until the context ends.

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
    with reader.until_read(held, options):
        yield reader.service.call(_borrow(reader, reader.worker.get_current_task(), sources, options, share, held))


async def _borrow(
    reader: Reader, key: Any, sources: Sequence[Source], options: Options, share: tuple[float, float], held: Held
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
            lent = await service.in_thread(devices.unpack, address, answer, True)
            found.update(zip(mine, lent, strict=True) if lent is not None else ())

    with reader.cancellable(key):
        await reader.all_of(ask(address, mine) for address, mine in by_address(sources))
    return [found[i] for i in range(len(sources))] if len(found) == len(sources) else None


async def _own(reader: Reader, source: Source) -> Run | None:
    await reader.service.promises.kept([source.attempt])
    try:
        return reader.store.whole(source.attempt)
    except LostRunError:
        raise Trouble(source, "lost") from None
