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
from typing import Any

from dask._task_spec import GraphNode, List, Task, TaskRef

from distsort import config
from distsort.blocks import Block, concat
from distsort.exchange import pull
from distsort.exchange.handles import BarrierTask, Options, PullTask, TickTask
from distsort.local import Run, Sample, Spec, make_run, sample
from distsort.merge import merge_runs
from distsort.needs import Workers, identity, probes_of
from distsort.plan import Plan, joined
from distsort.search import Cuts, Search, between_parts, bracket, close, cut_one, narrow

Key = Any
Graph = dict[Key, GraphNode]


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


def fitted(plan: Plan) -> Plan:
    """Return the plan for the workers of the connected cluster, if there is one and its runs may spill.

    Raises
    ------
    SortMemoryError
        The workers are too small.
    """
    if not plan.spills or not on_cluster():
        return plan
    from distributed import default_client

    found = Workers.of(identity(default_client()))
    return plan if found is None else plan.fit(found)


def settings() -> Options:
    """Return what the pull exchange is configured with, for the plan: it is to hold on every worker."""
    return Options.read()


def run_task(key: Key, blocks: Sequence[Key], spec: Spec, plan: Plan, meta: Block | None = None) -> Task:
    """Return the task that sorts neighbouring blocks into a run, or into the handle of one that stays put."""
    given = TaskRef(blocks[0]) if len(blocks) == 1 else Task(None, concat, List(*map(TaskRef, blocks)))
    if plan.exchange == "pull":
        return PullTask(key, pull.make, given, spec, meta, plan.settings)
    return Task(key, make_run, given, spec, meta)


def runs_layer(name: str, blocks: Sequence[Key], spec: Spec, plan: Plan, meta: Block | None = None) -> Graph:
    """Build the tasks of all runs; run r has the key ``(name, r)``."""
    # Counted here, not in the plan: Dask may have joined partitions of files since the plan was made.
    groups = joined(len(blocks), plan.runs)
    return {
        (name, r): run_task((name, r), [blocks[i] for i in group], spec, plan, meta) for r, group in enumerate(groups)
    }


def sorted_task(key: Key, block: Key, spec: Spec, meta: Block | None = None) -> Task:
    """Return the task that sorts a collection of one block: no exchange at all."""
    return Task(key, _sorted_block, TaskRef(block), spec, meta)


def parts_layer(name: str, token: str, runs: Sequence[Key], spec: Spec, plan: Plan) -> Graph:
    """Build the tasks from runs to parts.

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
    if plan.exchange == "pull":
        return _pull_layer(name, token, runs, spec, plan)
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


def _pull_layer(name: str, token: str, runs: Sequence[Key], spec: Spec, plan: Plan) -> Graph:
    """Build ticks, barrier and parts; what they do is in `distsort.exchange.pull`."""
    cut_key = f"sort-cuts-{token}"
    graph: Graph = {}
    # On GPUs the cuts are over before the memory manager could move a handle, and a hop is a tenth of the whole sort.
    spread = plan.backend == "cupy"
    for r, run in enumerate(() if spread else runs):
        key = (f"sort-tick-{token}", r)
        graph[key] = TickTask(key, pull.tick, TaskRef(run))
    ticks = List(*map(TaskRef, list(graph) or runs))
    graph[cut_key] = BarrierTask(cut_key, pull.find_cuts, ticks, spec, plan.parts, plan.settings, spread=spread)
    for j in range(plan.parts):
        graph[name, j] = PullTask((name, j), pull.make_part, TaskRef(cut_key), j, spec, _data_producer=True)
    return graph


def _add_search(graph: Graph, cut_key: str, token: str, runs: Sequence[Key], spec: Spec, plan: Plan) -> None:
    if len(runs) == 1:
        graph[cut_key] = Task(cut_key, _cut_one, TaskRef(runs[0]), plan.parts)
        return
    samples = int(config.get("cuts.samples"))
    budget = min(int(config.get("cuts.probes")), probes_of(len(runs), plan.parts))
    seen: list[Hashable] = []
    for r, run in enumerate(runs):
        key = (f"sort-sample-{token}", r)
        graph[key] = Task(key, sample, TaskRef(run), spec, samples)
        seen.append(key)
    state = f"sort-search-{token}-0"
    whole = plan.rounds == 0
    graph[state] = Task(state, _search, List(*map(TaskRef, seen)), spec, plan.parts, None if whole else budget)
    for turn in range(plan.rounds + 1):
        probes: list[TaskRef] = []
        for r, run in enumerate(runs):
            probe_key = (f"sort-probe-{token}", turn, r)
            graph[probe_key] = Task(probe_key, _probe, TaskRef(run), TaskRef(state), r, spec)
            probes.append(TaskRef(probe_key))
        last = turn == plan.rounds
        after = cut_key if last else f"sort-search-{token}-{turn + 1}"
        if last:
            graph[after] = Task(after, close, TaskRef(state), List(*probes), spec)
        else:
            next_budget = None if turn + 1 == plan.rounds else budget
            graph[after] = Task(after, narrow, TaskRef(state), List(*probes), spec, next_budget)
        state = after


def _sorted_block(block: Block, spec: Spec, meta: Block | None) -> Block:
    return merge_runs([make_run(block, spec, meta)], spec)


def _cut_one(run: Run, parts: int) -> Cuts:
    return cut_one(len(run), parts)


def _search(samples: list[Sample], spec: Spec, parts: int, budget: int | None) -> Search:
    return bracket(samples, spec, between_parts(samples, parts), budget)


def _probe(run: Run, search: Search, r: int, spec: Spec) -> tuple[Any, ...]:
    return run.keys_at(search.probes.positions_of(r), spec)


def _slice(run: Run, cut: Cuts, r: int, j: int) -> Run:
    return run.cut(int(cut.table[r, j]), int(cut.table[r, j + 1]))


def _merge_part(slices: list[Run], cut: Cuts, j: int, spec: Spec) -> Block:
    return merge_runs(slices, spec, cut.first(j), cut.starts, [int(n) for n in cut.table[:, -1]])
