"""The only builder of Dask tasks: from the keys of input blocks to the keys of sorted parts.

The graph exchange, R runs and P parts, with plain tasks that every scheduler runs::

    block r --> run r --+--> sample r --+
                        |               v
                        |            search <-- once for all runs; brackets of all boundaries
                        |               |
                        +--> probe r <--+      a round or two: keys at the asked positions
                        |       |
                        |       +--> cuts      R x (P + 1) co-ranks, exact
                        |              |
                        +--> slice r,j <-+     rows [cut(r, j), cut(r, j + 1)) of run r
                                |
                                +--> part j    merges the slices of all runs

Every row is moved once, inside its slice; all else that crosses between workers is a few keys.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask._task_spec import GraphNode, List, Task, TaskRef

from distsort import config, cuts
from distsort.blocks import Block
from distsort.cuts import Brackets, IntArray, Probes
from distsort.local import Run, Sample, Spec, make_run, order_of, sample
from distsort.merge import merge_runs
from distsort.plan import Plan

Key = Any
Graph = dict[Key, GraphNode]


@dataclass(frozen=True)
class Search:
    """The state of the cut search between two rounds."""

    lengths: tuple[int, ...]
    brackets: Brackets
    probes: Probes


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


def on_cluster() -> bool:
    """Whether a distributed client is connected and would run what is computed now."""
    import dask

    distributed = sys.modules.get("distributed")
    chosen = dask.config.get("scheduler", None)
    if distributed is None or (isinstance(chosen, str) and chosen not in ("dask.distributed", "distributed")):
        return False
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True


def run_task(key: Key, block: Key, spec: Spec, plan: Plan, meta: Block | None = None) -> Task:
    """Return the task that sorts one block into a run."""
    return Task(key, make_run, TaskRef(block), spec, meta)


def sorted_task(key: Key, block: Key, spec: Spec, meta: Block | None = None) -> Task:
    """Return the task that sorts a collection of one block: no exchange at all."""
    return Task(key, _sorted_block, TaskRef(block), spec, meta)


def parts_layer(name: str, token: str, runs: Sequence[Key], spec: Spec, plan: Plan) -> Graph:
    """Build the tasks from runs to parts with the graph exchange.

    Parameters
    ----------
    name
        Part j has the key ``(name, j)``.
    token
        Makes the other keys unique.
    runs
        Keys of the R run tasks, in input order.
    spec, plan
        The sort.

    Returns
    -------
    dict
    """
    cut_key = f"sort-cuts-{token}"
    graph: Graph = {}
    _add_search(graph, cut_key, token, runs, spec, plan)
    for j in range(plan.parts):
        slices = []
        for r, run in enumerate(runs):
            key = (f"sort-slice-{token}", r, j)
            graph[key] = Task(key, _slice, TaskRef(run), TaskRef(cut_key), r, j)
            slices.append(TaskRef(key))
        graph[name, j] = Task((name, j), _merge_part, List(*slices), TaskRef(cut_key), j, spec)
    return graph


def _add_search(graph: Graph, cut_key: str, token: str, runs: Sequence[Key], spec: Spec, plan: Plan) -> None:
    if len(runs) == 1:
        graph[cut_key] = Task(cut_key, _cut_one, TaskRef(runs[0]), plan.parts)
        return
    samples, budget = int(config.get("cuts.samples")), int(config.get("cuts.probes"))
    seen: list[Hashable] = []
    for r, run in enumerate(runs):
        key = (f"sort-sample-{token}", r)
        graph[key] = Task(key, sample, TaskRef(run), spec, samples)
        seen.append(key)
    state = f"sort-search-{token}-0"
    whole = plan.rounds == 0
    graph[state] = Task(state, _bracket, List(*map(TaskRef, seen)), spec, plan.parts, None if whole else budget)
    for turn in range(plan.rounds + 1):
        probes = []
        for r, run in enumerate(runs):
            key = (f"sort-probe-{token}", turn, r)
            graph[key] = Task(key, _probe, TaskRef(run), TaskRef(state), r, spec)
            probes.append(TaskRef(key))
        last = turn == plan.rounds
        after = cut_key if last else f"sort-search-{token}-{turn + 1}"
        if last:
            graph[after] = Task(after, _close, TaskRef(state), List(*probes), spec)
        else:
            next_budget = None if turn + 1 == plan.rounds else budget
            graph[after] = Task(after, _narrow, TaskRef(state), List(*probes), spec, next_budget)
        state = after


def _sorted_block(block: Block, spec: Spec, meta: Block | None) -> Block:
    return merge_runs([make_run(block, spec, meta)], spec)


def _cut_one(run: Run, parts: int) -> Cuts:
    return Cuts(cuts.part_ranks(len(run), parts)[None, :])


def _bracket(samples: Sequence[Sample], spec: Spec, parts: int, budget: int | None) -> Search:
    lengths = tuple(s.length for s in samples)
    ranks = cuts.part_ranks(sum(lengths), parts)[1:-1]
    order = order_of([s.keys for s in samples], spec)
    brackets = cuts.sample_brackets(lengths, ranks, [s.positions for s in samples], order)
    return _aim(Search(lengths, brackets, cuts.bracket_probes(brackets, 1)), budget)


def _aim(search: Search, budget: int | None) -> Search:
    """Choose the probes of the next round; no budget means the last one."""
    if budget is None:
        return replace(search, probes=cuts.whole_probes(search.brackets, search.lengths)[1])
    return replace(search, probes=cuts.bracket_probes(search.brackets, budget))


def _probe(run: Run, search: Search, r: int, spec: Spec) -> tuple[Any, ...]:
    return run.keys_at(search.probes.positions_of(r), spec)


def _narrow(search: Search, keys: Sequence[tuple[Any, ...]], spec: Spec, budget: int | None) -> Search:
    brackets = cuts.narrow(search.brackets, search.probes, order_of(keys, spec))
    return _aim(replace(search, brackets=brackets), budget)


def _close(search: Search, keys: Sequence[tuple[Any, ...]], spec: Spec) -> Cuts:
    wide, _ = cuts.whole_probes(search.brackets, search.lengths)
    table = cuts.close(search.brackets, wide, search.probes, order_of(keys, spec))
    return Cuts(cuts.with_ends(table, search.lengths))


def _slice(run: Run, cut: Cuts, r: int, j: int) -> Run:
    return run.cut(int(cut.table[r, j]), int(cut.table[r, j + 1]))


def _merge_part(slices: Sequence[Run], cut: Cuts, j: int, spec: Spec) -> Block:
    return merge_runs(slices, spec, cut.first(j), cut.starts)
