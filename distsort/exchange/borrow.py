"""Whole runs of other workers, mapped where they lie: how a part sees all runs without moving any.

part        asks ........... | maps the runs, finds its co-ranks | merges
owner       makes the run -> | lends it, makes its narrow form   |
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distsort.exchange.handles import Options, Source
from distsort.exchange.reader import Held, Reader, Trouble, by_address
from distsort.exchange.store import LostRunError
from distsort.local import Run

Answer = dict[str, Any]

LOOK_AGAIN = 5e-5
"""Seconds between two looks at what another GPU is at; it takes one or two milliseconds."""


@dataclass
class Borrowed:
    """Runs that were borrowed.

    Attributes
    ----------
    runs
        None where one of them cannot be mapped.
    complete
        To be called before they are read in bulk: waits for narrow forms that their owners are still making.
    """

    runs: list[Run] | None
    complete: Callable[[], None]


@dataclass
class _Loan:
    """What one owner has lent: which of the runs, and its answer."""

    address: str
    mine: list[int]
    answer: Answer


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
        found = holder.call(_borrow(reader, key, sources, options, share, held, loans))
        forming = []
        for loan in loans:
            lent = holder.devices.unpack(loan.address, loan.answer, True)
            if lent is None:
                continue
            found.update(zip(loan.mine, lent, strict=True))
            if holder.devices.attach(loan.address, loan.answer, lent):
                forming.append(loan)

        def complete() -> None:
            for loan in forming:
                its = [sources[i] for i in loan.mine]
                _until(partial(holder.devices.complete, loan.address, loan.answer), reader, its, options)

        runs = [found[i] for i in range(len(sources))] if len(found) == len(sources) else None
        yield Borrowed(runs, complete)


def _until(there: Callable[[], bool], reader: Reader, sources: Sequence[Source], options: Options) -> None:
    """Wait for what the GPU of the owner of some runs is at, as long as it lives."""
    end = time.monotonic() + options.timeout
    try:
        while not there():
            for source in sources:
                reader.look(source)
            if time.monotonic() > end:
                raise Trouble(sources[0], "silent", f"its narrow form was not complete in {options.timeout:g} s")
            time.sleep(LOOK_AGAIN)
    except RuntimeError as error:  # of CUDA: the owner's end may be known here before its death is
        raise Trouble(sources[0], "unreachable", str(error)) from error


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
        loans.append(_Loan(address, mine, answer))

    with reader.cancellable(key):
        await reader.all_of(ask(address, mine) for address, mine in by_address(sources))
    return found


async def _own(reader: Reader, source: Source) -> Run | None:
    await reader.holder.promises.kept([source.attempt])
    try:
        return reader.store.whole(source.attempt)
    except LostRunError:
        raise Trouble(source, "lost") from None
