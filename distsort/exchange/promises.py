"""Runs that a worker will have: handed out before they are made, and made one after the other.

    run task    hands over a block ...... returns the handle
    thread          | sorts it, puts the run into the store |
    who reads                 waits ......................... | reads

What follows a sort gets ready while the sort goes on. What goes wrong with a run is raised where it is waited for.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from distsort.exchange.store import RunStore
from distsort.local import Run, Spec

T = TypeVar("T")


class Promises:
    """The promised runs of one worker, by attempt id.

    Parameters
    ----------
    store
        Takes the runs.
    room
        Asked for the bytes of blocks that may wait for their turn; one may, however large it is.

    Attributes
    ----------
    made
        When the last run was, in seconds of `time.time`.
    """

    def __init__(self, store: RunStore, room: Callable[[], float]) -> None:
        self._store = store
        self._room = room
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="distsort-make")
        self._open: dict[str, Future[None]] = {}
        self._waiting: list[int] = []
        self._turn = threading.Condition()
        self._closed = False
        self._maker = 0
        self.made = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def give(self, attempt: str, nbytes: int, spec: Spec, make: Callable[[], Run]) -> None:
        """Promise a run of about `nbytes`, once there is room for its block to wait."""
        promised: Future[None] = Future()

        def work() -> None:
            self._maker = threading.get_ident()
            with self._turn:
                self._waiting.remove(nbytes)
                self._turn.notify_all()
            if not promised.set_running_or_notify_cancel():
                return
            try:
                self._store.put(attempt, make(), spec)
            except BaseException as error:
                if self._store.was_freed(attempt):
                    self._open.pop(attempt, None)
                promised.set_exception(error)
            else:
                self._open.pop(attempt, None)
                self.made = time.time()
                promised.set_result(None)

        with self._turn:
            self._turn.wait_for(self._has_room(nbytes))
            self._waiting.append(nbytes)
            self._open[attempt] = promised  # here, so that they stand in the order in which they are made
            self._thread.submit(work)

    def _has_room(self, nbytes: int) -> Callable[[], bool]:
        return lambda: self._closed or not self._waiting or sum(self._waiting) + nbytes <= self._room()

    async def kept(self, attempts: Sequence[str]) -> None:
        """Wait until runs are in the store; raises what went wrong with one."""
        for attempt in attempts:
            promised = self._open.get(attempt)
            if promised is not None:
                waiting = asyncio.wrap_future(promised)
                await asyncio.wait([waiting])  # which, unlike the wait for one, leaves the promise be when cancelled
                waiting.result()

    async def follow(
        self, attempts: Sequence[str], work: Callable[[], T], otherwise: Callable[[Callable[[], None]], object]
    ) -> T:
        """Have work done when runs are made, by the thread that has made the last of them, before its next run.

        Parameters
        ----------
        attempts
            The runs. Work is done also where one could not be made.
        work
            Its result is returned.
        otherwise
            Has another thread work if all are made.
        """
        given: Future[T] = Future()

        def do() -> None:
            if given.set_running_or_notify_cancel():
                try:
                    given.set_result(work())
                except BaseException as error:
                    given.set_exception(error)

        def begin(last: Future[None]) -> None:
            if last.cancelled():
                given.cancel()
            elif threading.get_ident() == self._maker:
                do()
            else:
                try:
                    otherwise(do)
                except Exception as error:
                    given.set_exception(error)

        ours = set(attempts)
        promised = [promise for attempt, promise in self._open.copy().items() if attempt in ours]
        if promised:
            promised[-1].add_done_callback(begin)
        else:
            otherwise(do)
        return await asyncio.wrap_future(given)

    def forget(self, attempts: Sequence[str]) -> None:
        """Let go of runs that nobody will ask for."""
        for attempt in attempts:
            self._open.pop(attempt, None)

    def close(self) -> None:
        """Make no more runs, and let go of who waits for them: the worker is closing."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        for promised in list(self._open.values()):
            promised.cancel()
        with self._turn:
            self._closed = True
            self._turn.notify_all()
