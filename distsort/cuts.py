"""Where sorted runs are cut so that every output part gets exactly its ranks. Pure: NumPy in, NumPy out.

A boundary of rank k splits the sorted whole into its k smallest rows and the rest. Its *cut* says how many of
those k rows each run holds, its co-ranks. With two runs this is the textbook co-rank (i + j = k; Hwu, Kirk, El Hajj,
*Programming Massively Parallel Processors*, chapter "Merge"); with R runs it is multisequence selection (Varman et al.,
"Merging multiple lists on hierarchical-memory multiprocessors", 1991), searched here with a higher radix: many probes
a round instead of one.

All boundaries are searched at once. Every (run, boundary) pair has a bracket ``[low, high]`` that holds its co-rank::

    run 0   . . . . . [ . p . . p . . p . ] . . . .        p = probe, a position whose key is read
    run 1   . . [ . p . . p . ] . . . . . . . . . .
    run 2   . . . . . . . . [ p . p ] . . . . . . .
             all left of     |         |   all right
             the boundary   low      high  of it

A round sorts the probes of one boundary by (key, run, position), which is the total order of the rows. Between two
probes of one run lie a known number of rows, so every probe gets a lower and an upper bound on its rank among the
bracketed rows:

* rows surely before it: in each run, all up to and including the last smaller probe;
* rows surely not before it: in each run, all from the first probe that is not smaller on.

A probe whose upper bound is below the wanted rank is left of the boundary, one whose lower bound is not below it is
right of it, and the brackets shrink to the probes between. With s probes a bracket the width falls by about s a
round. The last round reads whole brackets and one row more on each side, so its answer is exact, and it is also a
check: where the rows that were read do not ascend, or the answer leaves its bracket, `CutError` is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distsort.errors import DistsortError

IntArray = npt.NDArray[np.int64]


class CutError(DistsortError, RuntimeError):
    """The cuts contradict the runs: a run is not sorted in the order that was asked for."""


@dataclass(frozen=True)
class Brackets:
    """Bounds on the co-ranks of all boundaries.

    Attributes
    ----------
    low, high
        int64, shape (R, B): ``low[r, b] <= co-rank of run r at boundary b <= high[r, b]``.
    ranks
        int64, shape (B,): the rank of each boundary.
    """

    low: IntArray
    high: IntArray
    ranks: IntArray

    @property
    def exact(self) -> bool:
        """Whether every bracket has closed on one co-rank."""
        return bool((self.low == self.high).all())


@dataclass(frozen=True)
class Probes:
    """Positions to read, run by run, then boundary by boundary, then ascending.

    Attributes
    ----------
    run, boundary, position
        int64, shape (M,).
    offsets
        int64, shape (R + 1,): the probes of run r are ``[offsets[r], offsets[r + 1])``.
    """

    run: IntArray
    boundary: IntArray
    position: IntArray
    offsets: IntArray

    def positions_of(self, run: int) -> IntArray:
        """Return the positions to read in one run."""
        return self.position[self.offsets[run] : self.offsets[run + 1]]


def part_ranks(rows: int, parts: int) -> IntArray:
    """Return the ranks at which P parts of N rows begin and end: ``j * N // P``.

    Parameters
    ----------
    rows
        N, the number of rows in all.
    parts
        P, the number of parts.

    Returns
    -------
    int64, shape (P + 1,)

    Examples
    --------
    >>> part_ranks(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.array([j * rows // parts for j in range(parts + 1)], dtype=np.int64)


def open_brackets(lengths: Sequence[int], ranks: Sequence[int] | IntArray) -> Brackets:
    """Start a search: nothing is known but the textbook bounds max(0, k - others) and min(k, length)."""
    n = np.asarray(lengths, dtype=np.int64)[:, None]
    k = np.asarray(ranks, dtype=np.int64)[None, :]
    return Brackets(np.maximum(0, k - (n.sum() - n)), np.minimum(k, n), k[0])


def regular_positions(length: int, samples: int) -> IntArray:
    """Return at most `samples` evenly spaced positions of a run of that length."""
    count = min(length, samples)
    return (np.arange(count, dtype=np.int64) * length + length // 2) // max(count, 1)


def sample_brackets(
    lengths: Sequence[int],
    ranks: Sequence[int] | IntArray,
    positions: Sequence[IntArray],
    order: npt.NDArray[np.integer],
) -> Brackets:
    """Bracket every boundary by samples that were read once for all of them (round one).

    Parameters
    ----------
    lengths
        The lengths of the R runs, in rows.
    ranks
        The ranks of the B boundaries.
    positions
        For each run the ascending positions of its samples.
    order
        Integers: the stable ascending order of all samples' keys, run after run.

    Returns
    -------
    Brackets
    """
    opened = open_brackets(lengths, ranks)
    counts = [len(p) for p in positions]
    place = np.empty(sum(counts), dtype=np.int64)
    place[order] = np.arange(len(place))
    # Rows of its own run up to a sample from the sample before, and from a sample on to the next one.
    up_to = _join([np.diff(p, prepend=-1) for p in positions])
    onward = _join([np.diff(p, append=n) for p, n in zip(positions, lengths, strict=True)])
    least = np.cumsum(up_to[order]) - 1
    most = sum(lengths) - np.cumsum(onward[order][::-1])[::-1]
    left = np.searchsorted(most, opened.ranks, side="left")
    right = np.searchsorted(least, opened.ranks, side="left")
    low, high = opened.low.copy(), opened.high.copy()
    ends = np.cumsum([0, *counts])
    for r, sample in enumerate(positions):
        mine = place[ends[r] : ends[r + 1]]
        if (np.diff(mine) < 0).any():
            raise CutError(f"run {r} is not sorted in the order of this sort")
        edges = np.concatenate([[-1], sample, [lengths[r]]])
        np.maximum(low[r], edges[np.searchsorted(mine, left)] + 1, out=low[r])
        np.minimum(high[r], edges[np.searchsorted(mine, right) + 1], out=high[r])
    return Brackets(low, high, opened.ranks)


def bracket_probes(brackets: Brackets, budget: int) -> Probes:
    """Spread about `budget` probes a boundary evenly over its brackets; narrow brackets are read whole."""
    width = brackets.high - brackets.low
    step = np.maximum(1, -(-width.sum(axis=0) // budget))
    count = -(-width // step)
    first = brackets.low + np.maximum(width - (count - 1) * step - 1, 0) // 2
    return _spread(first, count, step)


def whole_probes(brackets: Brackets, lengths: Sequence[int]) -> tuple[Brackets, Probes]:
    """Widen every bracket by a row on each side and read all of it (the last round)."""
    n = np.asarray(lengths, dtype=np.int64)[:, None]
    wide = Brackets(np.maximum(brackets.low - 1, 0), np.minimum(brackets.high + 1, n), brackets.ranks)
    return wide, _spread(wide.low, wide.high - wide.low, np.ones(len(brackets.ranks), dtype=np.int64))


def narrow(brackets: Brackets, probes: Probes, order: npt.NDArray[np.integer]) -> Brackets:
    """Shrink the brackets by what the sorted probes tell.

    Parameters
    ----------
    brackets
        What is known so far.
    probes
        M positions that were read, each inside its bracket.
    order
        Integers, shape (M,): the stable ascending order of the probes' keys.

    Returns
    -------
    Brackets

    Raises
    ------
    CutError
        The probes of one run do not ascend: it is not sorted.
    """
    if not len(probes.position):
        return brackets
    run, boundary, position = probes.run, probes.boundary, probes.position
    same = (run[1:] == run[:-1]) & (boundary[1:] == boundary[:-1])
    before = brackets.low[run, boundary] - 1
    before[1:][same] = position[:-1][same]
    after = brackets.high[run, boundary]
    after[:-1][same] = position[1:][same]

    # One boundary after the other, each in the total order (the stable order keeps run and position on ties).
    line = np.asarray(order)[np.argsort(boundary[order], kind="stable")]
    place = np.empty_like(line)
    place[line] = np.arange(len(line))
    falls = np.flatnonzero(same & (place[1:] < place[:-1]))
    if len(falls):
        raise CutError(f"run {run[falls[0]]} is not sorted in the order of this sort")
    group = boundary[line]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    sizes = np.diff(np.r_[starts, len(group)])

    def within(steps: IntArray) -> IntArray:
        total = np.cumsum(steps)
        return total - np.repeat(total[starts] - steps[starts], sizes)

    low_sum, high_sum = brackets.low.sum(axis=0), brackets.high.sum(axis=0)
    wanted = (brackets.ranks - low_sum)[group]
    least = within((position - before)[line]) - 1
    not_before = (after - position)[line]
    ended = within(not_before)
    most = (high_sum - low_sum)[group] - (np.repeat(ended[starts + sizes - 1], sizes) - ended + not_before)

    low, high = brackets.low.copy(), brackets.high.copy()
    left, right = line[most < wanted], line[least >= wanted]
    np.maximum.at(low, (run[left], boundary[left]), position[left] + 1)
    np.minimum.at(high, (run[right], boundary[right]), position[right])
    return Brackets(low, high, brackets.ranks)


def close(brackets: Brackets, wide: Brackets, probes: Probes, order: npt.NDArray[np.integer]) -> IntArray:
    """Solve the last round exactly and check it against the brackets.

    Returns
    -------
    int64, shape (R, B)
        The co-ranks; each column sums to its rank.

    Raises
    ------
    CutError
        The largest row on the left side of a boundary is not below the smallest on its right side.
    """
    final = narrow(wide, probes, order)
    cut = final.low
    wrong = (cut < brackets.low) | (cut > brackets.high) | (cut != final.high)
    if wrong.any():
        raise CutError(f"run {int(np.argwhere(wrong)[0][0])} is not sorted in the order of this sort")
    if (cut.sum(axis=0) != brackets.ranks).any():
        raise CutError("the co-ranks of a boundary do not sum to its rank")
    return cut


def with_ends(cut: IntArray, lengths: Sequence[int]) -> IntArray:
    """Add the outer boundaries: int64, shape (R, B + 2), from all zeros to the lengths of the runs."""
    n = np.asarray(lengths, dtype=np.int64)[:, None]
    return np.concatenate([np.zeros_like(n), cut, n], axis=1)


def solve(
    lengths: Sequence[int],
    ranks: Sequence[int] | IntArray,
    ask: Callable[[Probes], npt.NDArray[np.integer]],
    *,
    budget: int,
    enough: int | None = None,
) -> IntArray:
    """Find the cuts of all boundaries, asking for the order of probed keys round by round.

    Parameters
    ----------
    lengths
        The lengths of the R runs, in rows.
    ranks
        The ranks of the B boundaries, each in [0, N].
    ask
        Given M probes, returns the stable order of their keys, integers of shape (M,).
    budget
        Probes a boundary and round.
    enough
        Rows left in the brackets of a boundary at which they are read whole. The budget by default.

    Returns
    -------
    int64, shape (R, B)

    Examples
    --------
    >>> runs = [np.array([1, 7, 8, 9, 10]), np.array([7, 10, 10, 12])]
    >>> def ask(probes):
    ...     keys = [runs[r][p] for r, p in zip(probes.run, probes.position)]
    ...     return np.argsort(keys, kind="stable")
    >>> solve([5, 4], [0, 3, 6, 9], ask, budget=2).tolist()
    [[0, 2, 5, 5], [0, 1, 1, 4]]
    """
    brackets = open_brackets(lengths, ranks)
    enough = budget if enough is None else enough
    while len(lengths) > 1 and (brackets.high - brackets.low).sum(axis=0).max(initial=0) > enough:
        probes = bracket_probes(brackets, budget)
        brackets = narrow(brackets, probes, ask(probes))
    wide, probes = whole_probes(brackets, lengths)
    return close(brackets, wide, probes, ask(probes))


def _spread(first: IntArray, count: IntArray, step: IntArray) -> Probes:
    """List ``first + i * step`` for i < count over all (run, boundary) pairs, run by run."""
    runs, bounds = count.shape
    flat = count.ravel()
    total = int(flat.sum())
    offset = np.concatenate([[0], np.cumsum(flat)])
    i = np.arange(total, dtype=np.int64) - np.repeat(offset[:-1], flat)
    boundary = np.repeat(np.tile(np.arange(bounds, dtype=np.int64), runs), flat)
    position = np.repeat(first.ravel(), flat) + i * step[boundary]
    return Probes(
        np.repeat(np.repeat(np.arange(runs, dtype=np.int64), bounds), flat),
        boundary,
        position,
        offset[np.arange(runs + 1) * bounds].astype(np.int64),
    )


def _join(pieces: list[IntArray]) -> IntArray:
    return np.concatenate([*pieces, np.empty(0, dtype=np.int64)]).astype(np.int64)
