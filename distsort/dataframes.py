"""Sorting Dask dataframes and series: an expression that lowers to runs, an exchange and parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import dask.dataframe as dd
from dask._task_spec import Task
from dask.dataframe.dask_expr import new_collection
from dask.dataframe.dask_expr._expr import Blockwise, Expr, Projection, determine_column_projection
from dask.dataframe.dask_expr.io import FromGraph

from distsort import blocks, config, graph
from distsort.errors import InputError, OptionError
from distsort.local import Spec
from distsort.order import Order, make_order
from distsort.plan import Plan, check_parts, make_plan
from distsort.strings import below_conversion


def sort_values(
    df: Any,
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    ignore_index: bool = False,
    npartitions: int | None = None,
    key: Callable[[Any], Any] | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Any:
    """Sort a Dask dataframe or series: exact, stable, lazy, every partition of equal size.

    Parameters
    ----------
    df
        dask.dataframe.DataFrame or Series with pandas or cudf partitions. Read once, when the result is computed.
    by
        Column or index level, or a list of them, the most significant first. A series is sorted by its values when
        None, or by a level of its index.
    ascending
        One direction, or one per key. Ties keep input order in both directions.
    na_position
        "first" or "last", or one per key: where None, NaN, NaT and NA stand. Columns of floats that tell NaN from NA
        (Float64, Arrow's) are sorted as pandas does: NA goes there, and NaN is the largest number, save that a NaN in
        the only key, if that is Arrow's, stands between the numbers and NA.
    ignore_index
        Label the rows 0, 1, ..., N - 1, running on over all partitions.
    npartitions
        Partitions of the result; as many as `df` has when None. Partition j of P holds the rows of rank
        ``j * N // P`` to ``(j + 1) * N // P - 1``.
    key
        Applied to each key column of each partition before comparing, as in pandas; must return one value a row.
    backend
        "numpy", "cupy" (keys are sorted on the GPU), or None for what the partitions are made of.
    exchange
        "graph", "pull", or None to choose (see `plan_sort_values`).

    Returns
    -------
    dask.dataframe.DataFrame or Series
        dtypes, index, names and attrs are those of `df`.

    Raises
    ------
    InputError
        A key is no column and no index level; the message names it.
    OptionError
        An option has a value that is not valid.
    KeyTypeError
        When computed: a key has no order (mixed types, lists, structs); the message names it.
    SortMemoryError
        When computed: a partition is too large for its worker; the message says what would do.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"k": [3, 1, 2, 1], "v": list("abcd")}), npartitions=2)
    >>> sort_values(df, "k").compute()["v"].tolist()
    ['b', 'd', 'c', 'a']
    """
    order = checked_order(df, by, ascending, na_position)
    return _collection(df, order, ignore_index, npartitions, key, backend, exchange, presorted=False)


def plan_sort_values(
    df: Any,
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    npartitions: int | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Plan:
    """Return the plan of `sort_values` with the same arguments, computing nothing.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"k": [3, 1, 2, 1]}), npartitions=2)
    >>> plan_sort_values(df, "k", exchange="graph").tasks
    17
    """
    order = checked_order(df, by, ascending, na_position)
    spec, expr = Spec(order, "rows", None, _checked_backend(backend)), df.expr
    return _plan(expr, spec, check_parts(npartitions, expr.npartitions), exchange)


def merge_rows(
    df: Any,
    by: Hashable | Sequence[Hashable] = None,
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
    ignore_index: bool = False,
    npartitions: int | None = None,
    key: Callable[[Any], Any] | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Any:
    """Merge the partitions of a collection, each of which is in order already; arguments as in `sort_values`."""
    order = checked_order(df, by, ascending, na_position)
    return _collection(df, order, ignore_index, npartitions, key, backend, exchange, presorted=True)


def _collection(
    df: Any,
    order: Order,
    ignore_index: bool,
    npartitions: int | None,
    key: Callable[[Any], Any] | None,
    backend: str | None,
    exchange: str | None,
    presorted: bool,
) -> Any:
    if key is not None and not callable(key):
        raise OptionError(f"key={key!r}: it must be a function of a column, or None")
    spec = Spec(order, "rows", key, _checked_backend(backend), bool(ignore_index), presorted)
    parts = check_parts(npartitions, df.npartitions)
    expr = below_conversion(df.expr)
    _plan(expr, spec, parts, exchange)
    return new_collection(Sort(expr, spec, parts, exchange))


def checked_order(
    df: Any, by: Hashable | Sequence[Hashable], ascending: bool | Sequence[bool], na_position: str | Sequence[str]
) -> Order:
    """Return the order that a user asked for, after checking that the collection has its keys."""
    if not isinstance(df, (dd.DataFrame, dd.Series)):
        raise InputError(
            f"sort_values() takes a dask.dataframe DataFrame or Series, not {type(df).__qualname__}: "
            "wrap it with dask.dataframe.from_pandas, or use sort() for arrays"
        )
    meta = df._meta
    if blocks.is_frame(meta):
        if by is None:
            raise OptionError("by= is missing: name the column or columns to sort by")
        if not isinstance(by, list) and isinstance(by, tuple) and by not in meta.columns:
            by = list(by)
        order = make_order(by, ascending, na_position)
        for k in order.keys:
            _check_name(meta, k.name)
        return order
    order = make_order(by, ascending, na_position)
    for k in order.keys:
        if k.name is not None and k.name not in meta.index.names:
            raise InputError(f"by={k.name!r} is no level of the index of this series: it has {list(meta.index.names)}")
    return order


def _check_name(meta: Any, name: Hashable) -> None:
    in_columns = int((meta.columns == name).sum()) if not isinstance(name, tuple) else int(name in meta.columns)
    in_index = name in meta.index.names and name is not None
    if in_columns > 1:
        raise InputError(f"by={name!r} names {in_columns} columns: rename them, or drop all but one")
    if in_columns and in_index:
        raise InputError(f"by={name!r} is both a column and an index level: rename one of them")
    if not in_columns and not in_index:
        import difflib

        known = [str(c) for c in [*meta.columns, *(n for n in meta.index.names if n is not None)]]
        close = difflib.get_close_matches(str(name), known, 3)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are: {', '.join(known[:20])}"
        raise InputError(f"by={name!r} is no column and no index level: {hint}")


def _checked_backend(backend: str | None) -> str | None:
    chosen = config.get("backend") if backend is None else backend
    if chosen not in (None, "numpy", "cupy"):
        raise OptionError(f"backend={chosen!r}: it must be 'numpy', 'cupy' or None for what the input is made of")
    return chosen


def _plan(expr: Expr, spec: Spec, parts: int, exchange: str | None) -> Plan:
    device = spec.backend or ("cupy" if blocks.on_device(expr._meta) else "numpy")
    return make_plan(
        what=spec.what,
        order=spec.order,
        blocks=expr.npartitions,
        parts=parts,
        backend=device,
        exchange=exchange if exchange is not None else config.get("exchange"),
        on_cluster=graph.on_cluster(),
        threshold=int(config.get("pull.threshold")),
        slices=int(config.get("graph.slices")),
        samples=int(config.get("cuts.samples")),
        probes=int(config.get("cuts.probes")),
        settings=graph.settings(),
    )


class Sort(Expr):
    """The sorted frame. Lowers to `Runs` and `Parts`; a projection of it reaches the reader."""

    _parameters = ["frame", "spec", "parts", "exchange"]
    _defaults = {"exchange": None}
    _is_length_preserving = True

    @functools.cached_property
    def _meta(self) -> Any:
        meta = self.frame._meta
        return meta.reset_index(drop=True) if self.spec.ignore_index else meta

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.parts + 1)

    def _simplify_up(self, parent: Expr, dependents: Any) -> Expr | None:
        if not isinstance(parent, Projection) or not blocks.is_frame(self.frame._meta):
            return None
        names = [k.name for k in self.spec.order.keys if k.name in self.frame._meta.columns]
        wanted = determine_column_projection(self, parent, dependents, additional_columns=names)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        columns = [c for c in self.frame.columns if c in wanted]
        if list(self.frame.columns) == columns:
            return None
        return type(parent)(type(self)(self.frame[columns], *self.operands[1:]), parent.operand("columns"))

    def _lower(self) -> Expr:
        plan = _plan(self.frame, self.spec, self.parts, self.exchange)
        if plan.exchange == "none":
            return SortedBlock(self.frame, self.spec)
        joined = JoinedRuns if plan.runs < plan.blocks else Runs
        return Parts(joined(self.frame, self.spec, plan), self.spec, plan)


class SortedBlock(Blockwise):
    """A frame of one partition, sorted in place of an exchange."""

    _parameters = ["frame", "spec"]

    @functools.cached_property
    def _meta(self) -> Any:
        meta = self.frame._meta
        return meta.reset_index(drop=True) if self.spec.ignore_index else meta

    @functools.cached_property
    def _name(self) -> str:
        return f"sort-part-{self.deterministic_token}"

    def _divisions(self) -> tuple[None, ...]:
        return (None, None)

    def _task(self, name: Any, index: int) -> Task:
        return graph.sorted_task(name, (self.frame._name, index), self.spec, self.frame._meta)


class _RunTasks(Expr):
    """What both kinds of runs share."""

    _parameters = ["frame", "spec", "plan"]

    @functools.cached_property
    def _meta(self) -> Any:
        return self.frame._meta

    @functools.cached_property
    def _name(self) -> str:
        return f"sort-run-{self.deterministic_token}"

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (min(self.plan.runs, self.frame.npartitions) + 1)


class Runs(_RunTasks, Blockwise):
    """One run task per partition; reading and projection fuse with it."""

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.frame.npartitions + 1)

    def _task(self, name: Any, index: int) -> Task:
        return graph.run_task(name, [_input_key(self.frame, index)], self.spec, self.plan, self.frame._meta)


def _input_key(frame: Expr, index: int) -> Any:
    """Return the key of a partition; of a persisted frame that of its future: the task that renames it costs a hop."""
    if isinstance(frame, FromGraph) and not isinstance(key := frame.operand("keys")[index], str):
        return key
    return frame._name, index


class JoinedRuns(_RunTasks):
    """One run task per group of neighbouring partitions."""

    def _layer(self) -> graph.Graph:
        return graph.runs_layer(self._name, self.frame.__dask_keys__(), self.spec, self.plan, self.frame._meta)


class Parts(Expr):
    """The exchange and the merges."""

    _parameters = ["runs", "spec", "plan"]

    @functools.cached_property
    def _meta(self) -> Any:
        meta = self.runs._meta
        return meta.reset_index(drop=True) if self.spec.ignore_index else meta

    @functools.cached_property
    def _name(self) -> str:
        return f"sort-part-{self.deterministic_token}"

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (self.plan.parts + 1)

    def _layer(self) -> graph.Graph:
        runs = self.runs.__dask_keys__()
        return graph.parts_layer(self._name, self.deterministic_token, runs, self.spec, self.plan)
