"""Whole runs of other workers, mapped where they lie: how a part sees all runs without moving any.

part        asks ........... | maps the runs, finds its co-ranks | merges
owner       makes the run -> | lends it -> makes its narrow form |
"""

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

Answer = dict[str, Any]


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


@dataclass
class _Loan:
    """What one owner has lent: which of the runs, its answer, and the question for their narrow forms."""

    address: str
    mine: list[int]
    answer: Answer
    narrow: asyncio.Task[Answer] | None


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
    loans: list[_Loan] = []
    holder, key = reader.holder, reader.worker.get_current_task()
    with reader.until_read(held, options):
        try:
            found = holder.call(_borrow(reader, key, sources, options, share, held, loans))
            for loan in loans:
                lent = holder.devices.unpack(loan.address, loan.answer, True)
                found.update(zip(loan.mine, lent, strict=True) if lent is not None else ())
            runs = [found[i] for i in range(len(sources))] if len(found) == len(sources) else None

            async def wait() -> None:
                with reader.cancellable(key):
                    await asyncio.gather(*_asked(loans))

            def complete() -> None:
                # A thread sees without a trip through the loop that there is nothing to wait for.
                if not all(task.done() for task in _asked(loans)):
                    holder.call(wait())
                for loan in loans:
                    if loan.narrow is not None:
                        holder.devices.attach(loan.address, loan.narrow.result(), [found[i] for i in loan.mine])
                        loan.narrow = None

            yield Borrowed(runs, complete)
        finally:
            if asked := _asked(loans):
                holder.loop.call_soon_threadsafe(_give_up, asked)


async def _borrow(
    reader: Reader,
    key: Any,
    sources: Sequence[Source],
    options: Options,
    share: tuple[float, float],
    held: Held,
    loans: list[_Loan],
) -> dict[int, Run]:
    """Return the runs that lie here, by their places; note what others lend, and the leases."""
    holder = reader.holder
    found: dict[int, Run] = {}

    async def ask(address: str, mine: list[int]) -> None:
        if address == holder.address:
            for i in mine:
                run = await _own(reader, sources[i])
                if run is not None:
                    found[i] = run
            return
        devices, asked = holder.devices, [sources[i] for i in mine]
        if not devices.maps(address, asked[0].host):
            return
        names = [s.attempt for s in asked]
        fields = {"attempts": names, "host": devices.host, "reader": reader.worker.id, "share": share}
        answer = await reader.ask(asked, "distsort_lend", fields, options)
        if not answer["lease"]:
            return
        devices.hold(address)
        held.append((asked[0], answer["lease"]))
        loan = _Loan(address, mine, answer, None)
        if answer["later"]:
            fields = {"lease": answer["lease"]}
            loan.narrow = asyncio.ensure_future(reader.ask(asked, "distsort_narrow", fields, options))
        loans.append(loan)

    with reader.cancellable(key):
        await reader.all_of(ask(address, mine) for address, mine in by_address(sources))
    return found


def _asked(loans: Sequence[_Loan]) -> list[asyncio.Task[Answer]]:
    """Return the questions for narrow forms of which the answers have not been taken."""
    return [loan.narrow for loan in loans if loan.narrow is not None]


def _give_up(asked: Sequence[asyncio.Task[Answer]]) -> None:
    """Let go of questions whose answers are not wanted any more; what went wrong with them does not matter."""
    for task in asked:
        if not task.cancel() and not task.cancelled():
            task.exception()


async def _own(reader: Reader, source: Source) -> Run | None:
    await reader.holder.promises.kept([source.attempt])
    try:
        return reader.store.whole(source.attempt)
    except LostRunError:
        raise Trouble(source, "lost") from None
