"""Where parts are made: on few workers or many the same number, near the rows that they are likely to want.

    runs    0 on A   1 on B   2 on A   3 on C
    parts   0, 1     2, 3     4, 5     6, 7        two a worker has room for, of eight on four: 4 and 5 go to D
            A  A     B  B     D  D     C  C

Rows that are in order already, or equal, come from the run that has the part's place in the order: they need not cross
then. Of others it is the same which worker merges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def place_of(key: Any, parts: int) -> int:
    """Return which part a task makes, by its Dask key: its own, or that of what it is part of, of any dimensions."""
    numbers = [i for i in key[1:] if isinstance(i, int)] if isinstance(key, tuple) else []
    return min(max(numbers, default=0), parts - 1)


def deal(places: Sequence[int], parts: int, homes: Sequence[str | None], workers: Sequence[str]) -> list[str]:
    """Return the worker of each of some parts: that of the run at its place if it has room, else one that has.

    Parameters
    ----------
    places
        Which of all parts they are, ascending.
    parts
        How many there are in all.
    homes
        The worker of each run, in the order of the runs; None where it is not known.
    workers
        The workers, at least one. None gets more than its share, rounded up.
    """
    room, load = -(-len(places) // len(workers)), dict.fromkeys(workers, 0)
    dealt: dict[int, str] = {}
    for i, place in enumerate(places):
        home = homes[place * len(homes) // parts]
        if home is not None and load.get(home, room) < room:
            dealt[i] = home
            load[home] += 1
    for i in range(len(places)):
        if i not in dealt:
            dealt[i] = emptiest = min(workers, key=load.__getitem__)
            load[emptiest] += 1
    return [dealt[i] for i in range(len(places))]
