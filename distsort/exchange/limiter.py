"""Back-pressure: how many bytes one reader may have asked for and not yet received."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class BytesInFlight:
    """A limit on bytes, first come first served. Lives on one event loop.

    A request above the whole limit is let in alone, so that it can never wait for ever.

    Parameters
    ----------
    limit
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, nbytes: int) -> AsyncIterator[None]:
        """Wait until `nbytes` fit, hold them inside the block, give them back at its end, however it ends."""
        await self._acquire(nbytes)
        try:
            yield
        finally:
            self._release(nbytes)

    async def _acquire(self, nbytes: int) -> None:
        if not self._waiting and self._fits(nbytes):
            self.used += nbytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (nbytes, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in and cancelled in the same step
                self._release(nbytes)
            else:
                with suppress(ValueError):  # an admission may have passed over it already
                    self._waiting.remove(entry)
                self._admit()
            raise

    def _fits(self, nbytes: int) -> bool:
        return self.used == 0 or self.used + nbytes <= self.limit

    def _release(self, nbytes: int) -> None:
        self.used -= nbytes
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self.used += nbytes
                turn.set_result(None)
