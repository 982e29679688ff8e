"""The cut search step by step, for whoever fetches the probed keys: plain tasks or a barrier that asks run stores.

`bracket` starts from the samples of all runs, `narrow` takes one round of keys, `close` the last. Between two steps
the caller reads, in every run, the keys at ``search.probes``. The arithmetic is in `distsort.cuts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from distsort import cuts
from distsort.blocks import Column
from distsort.cuts import Brackets, IntArray, Probes
from distsort.local import Sample, Spec, order_of


@dataclass(frozen=True)
class Search:
    """The state of the cut search between two rounds."""

    lengths: tuple[int, ...]
    brackets: Brackets
    probes: Probes

    @property
    def width(self) -> int:
        """Rows left in the brackets of the widest boundary."""
        return int((self.brackets.high - self.brackets.low).sum(axis=0).max(initial=0))


@dataclass(frozen=True)
class Ranks:
    """Parts whose co-ranks nobody has looked for yet.

    Attributes
    ----------
    lengths
        Rows of each run.
    parts
        How many parts there will be.
    """

    lengths: tuple[int, ...]
    parts: int

    @property
    def starts(self) -> list[int]:
        """Where each run begins in the input, in rows."""
        return [sum(self.lengths[:r]) for r in range(len(self.lengths))]

    def first(self, part: int) -> int:
        """Return the rank of the first row of a part, or, of the part behind the last, the number of rows."""
        return int(cuts.part_ranks(sum(self.lengths), self.parts)[part])

    def share(self, part: int, margin: float) -> tuple[float, float]:
        """Return where a part lies in all ranks, from 0 to 1, with a margin on either side as a share of the part."""
        return max(0.0, (part - margin) / self.parts), min(1.0, (part + 1 + margin) / self.parts)


@dataclass(frozen=True)
class Cuts:
    """Where every run is cut.

    Attributes
    ----------
    table
        int64, shape (R, P + 1): part j takes rows ``[table[r, j], table[r, j + 1])`` of run r.
    """

    table: IntArray

    @property
    def starts(self) -> list[int]:
        """Where each run begins in the input, in rows."""
        lengths = self.table[:, -1]
        return [int(n) for n in lengths.cumsum() - lengths]

    def first(self, part: int) -> int:
        """Return the rank of the first row of a part."""
        return int(self.table[:, part].sum())


def cut_one(length: int, parts: int) -> Cuts:
    """Cut a single run: its ranks are its positions."""
    return Cuts(cuts.part_ranks(length, parts)[None, :])


def between_parts(samples: Sequence[Sample], parts: int) -> IntArray:
    """Return the ranks of the boundaries between so many parts."""
    return cuts.part_ranks(sum(s.length for s in samples), parts)[1:-1]


def bracket(samples: Sequence[Sample], spec: Spec, ranks: IntArray, budget: int | None) -> Search:
    """Start from the samples of all runs; the probes of the first round are spread over `budget` a boundary.

    No budget means that the next round is the last one and reads the brackets whole.
    """
    lengths = tuple(s.length for s in samples)
    order = order_of([s.keys for s in samples], spec)
    brackets = cuts.sample_brackets(lengths, ranks, [s.positions for s in samples], order)
    return aim(Search(lengths, brackets, cuts.bracket_probes(brackets, 1)), budget)


def aim(search: Search, budget: int | None) -> Search:
    """Choose the probes of the next round; no budget means the last one."""
    if budget is None:
        return replace(search, probes=cuts.whole_probes(search.brackets, search.lengths)[1])
    return replace(search, probes=cuts.bracket_probes(search.brackets, budget))


def narrow(search: Search, keys: Sequence[tuple[Column, ...]], spec: Spec, budget: int | None) -> Search:
    """Take the keys at ``search.probes``, run after run, and aim the next round."""
    brackets = cuts.narrow(search.brackets, search.probes, order_of(keys, spec))
    return aim(replace(search, brackets=brackets), budget)


def close(search: Search, keys: Sequence[tuple[Column, ...]], spec: Spec) -> Cuts:
    """Take the keys of the last round; exact, and checked (see `distsort.cuts.close`)."""
    wide, _ = cuts.whole_probes(search.brackets, search.lengths)
    table = cuts.close(search.brackets, wide, search.probes, order_of(keys, spec))
    return Cuts(cuts.with_ends(table, search.lengths))
