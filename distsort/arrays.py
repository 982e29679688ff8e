"""Sorting Dask arrays: 1-D over any chunking by an exchange, n-D along an axis line by line."""

from __future__ import annotations

import math
from dataclasses import replace
from operator import methodcaller
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from distsort import blocks, config, graph
from distsort.backends import get_backend
from distsort.cuts import part_ranks
from distsort.errors import InputError, KeyTypeError, OptionError
from distsort.local import Spec
from distsort.order import array_order
from distsort.plan import Plan, make_plan


def sort(
    x: Any,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    npartitions: int | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Any:
    """Sort a Dask array: exact, lazy, with NumPy's meaning and chunks of equal size.

    Parameters
    ----------
    x
        dask.array.Array of NumPy or cupy chunks, any chunking; unknown chunk sizes are allowed in 1-D.
    axis
        The axis to sort along; None flattens first. A 1-D array is sorted over all its chunks. In more dimensions each
        line is sorted whole: where the axis is not one chunk, Dask rechunks it and the plan says so.
    descending
        Largest first. NaN and NaT are last in both directions; ties keep input order.
    stable
        Accepted for the array API's sake; the result is stable in any case.
    npartitions
        Chunks of a 1-D result; as many as `x` has when None. Chunk j of P holds ranks ``j * N // P`` and on.
    backend
        "numpy", "cupy" or None for what the chunks are made of.
    exchange
        "graph", "pull" or None to choose (see `plan_sort`).

    Returns
    -------
    dask.array.Array
        The shape and dtype of `x`; original bits, NaN payloads and signs of zero included.

    Raises
    ------
    numpy.exceptions.AxisError
        `axis` is out of range, or `x` has no dimension.
    InputError, OptionError, KeyTypeError
        `x` is no Dask array, an option is not valid, or the dtype has no order.
    SortMemoryError
        A chunk is too large for the workers of the connected cluster; the message says what would do.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> x = da.from_array(np.array([3.0, np.nan, 1.0, 2.0]), chunks=2)
    >>> sort(x, descending=True).compute().tolist()
    [3.0, 2.0, 1.0, nan]
    """
    return _sorted(x, "values", axis, descending, npartitions, backend, exchange)


def argsort(
    x: Any,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    stable: bool = True,
    npartitions: int | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Any:
    """Return the positions that sort a Dask array stably.

    Parameters are those of `sort`.

    Returns
    -------
    dask.array.Array of int64
        For 1-D input positions in the whole of `x`; along an axis, positions in each line.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> argsort(da.from_array(np.array([1, 0, 1, 0, 1]), chunks=2)).compute().tolist()
    [1, 3, 0, 2, 4]
    """
    return _sorted(x, "index", axis, descending, npartitions, backend, exchange)


def plan_sort(
    x: Any,
    /,
    *,
    axis: int | None = -1,
    descending: bool = False,
    npartitions: int | None = None,
    backend: str | None = None,
    exchange: str | None = None,
) -> Plan:
    """Return the plan of `sort` with the same arguments, computing nothing.

    Examples
    --------
    >>> import dask.array as da
    >>> print(plan_sort(da.ones(10, chunks=5), exchange="graph"))  # doctest: +ELLIPSIS
    sort values by values asc nulls last
      rows      10 (80 B)
      runs      2 sorted where they lie on the numpy backend
      parts     2 of equal size: 5 rows
    ...
    """
    x, at = _checked(x, "values", axis)
    spec = _spec("values", descending, backend)
    if _many_lines(x, at):
        return _line_plan(x, at, spec)
    return graph.fitted(_plan(_flat(x), spec, npartitions, exchange))


def merge_flat(x: Any, descending: bool, npartitions: int | None, backend: str | None, exchange: str | None) -> Any:
    """Merge the chunks of a 1-D array, each of which is in order already."""
    x, _ = _checked(x, "values", 0)
    spec = replace(_spec("values", descending, backend), presorted=True)
    return _sort_flat(x, spec, npartitions, exchange)


def checked_spec(x: Any, descending: bool) -> Spec:
    """Return what sorting a 1-D array means, after checking that it is one."""
    if x.ndim != 1:
        raise InputError(f"the array has {x.ndim} dimensions: only 1-D arrays are in one order")
    return _spec("values", descending, None)


def _sorted(
    x: Any,
    what: Any,
    axis: int | None,
    descending: bool,
    npartitions: int | None,
    backend: str | None,
    exchange: str | None,
) -> Any:
    x, at = _checked(x, what, axis)
    spec = _spec(what, descending, backend)
    if _many_lines(x, at):
        if npartitions is not None:
            raise OptionError("npartitions= is for 1-D arrays: along an axis every line stays in one chunk")
        return _sort_lines(x, at, spec)
    if x.ndim == 1:
        return _sort_flat(x, spec, npartitions, exchange)
    return _reshaped(_sort_flat(_flat(x), spec, npartitions, exchange), x.shape)


def _checked(x: Any, what: str, axis: int | None) -> tuple[Any, int]:
    if not isinstance(x, da.Array):
        name = "sort" if what == "values" else "argsort"
        raise InputError(
            f"{name}() takes a dask.array.Array, not {type(x).__qualname__}: wrap it with dask.array.from_array, "
            "or use sort_values() for dataframes"
        )
    if x.dtype.kind == "V":
        raise KeyTypeError(f"the array has dtype {x.dtype}, which has no order: sort one of its fields")
    if axis is not None and not hasattr(axis, "__index__"):
        raise OptionError(f"axis={axis!r}: it must be a whole number, or None to flatten first")
    if axis is None or (x.ndim == 0 and what == "index"):
        return _flat(x), 0
    if not -x.ndim <= axis < x.ndim:
        raise np.exceptions.AxisError(axis, x.ndim)
    return x, axis % x.ndim


def _flat(x: Any) -> Any:
    """Return the elements of an array in one row."""
    return x if x.ndim == 1 else _reshaped(x, -1)


def _reshaped(x: Any, shape: Any) -> Any:
    """Return an array in another shape; Dask's own does not know what to do with empty chunks."""
    if any(0 in sizes for sizes in x.chunks):
        x = x.rechunk(tuple(tuple(n for n in sizes if n != 0) or (0,) for sizes in x.chunks))
    return _as_declared(x.reshape(shape))


def _as_declared(x: Any) -> Any:
    """Return an array in the byte order that it declares; what Dask moves on a cluster comes in that of the machine."""
    return x if x.dtype.isnative else x.map_blocks(methodcaller("astype", x.dtype, copy=False), meta=x._meta)


def _many_lines(x: Any, axis: int) -> bool:
    return any(n != 1 for i, n in enumerate(x.shape) if i != axis)


def _spec(what: Any, descending: bool, backend: str | None) -> Spec:
    if not isinstance(descending, (bool, np.bool_)):
        raise OptionError(f"descending={descending!r}: it must be True or False")
    chosen = config.get("backend") if backend is None else backend
    if chosen not in (None, "numpy", "cupy"):
        raise OptionError(f"backend={chosen!r}: it must be 'numpy', 'cupy' or None for what the chunks are made of")
    return Spec(array_order(bool(descending)), what, None, chosen)


def _plan(x: Any, spec: Spec, npartitions: int | None, exchange: str | None) -> Plan:
    known = not math.isnan(x.shape[0])
    return make_plan(
        what=spec.what,
        order=spec.order,
        blocks=x.numblocks[0],
        parts=npartitions,
        rows=int(x.shape[0]) if known else None,
        nbytes=int(x.nbytes) if known else None,
        backend=_device(x, spec),
        exchange=exchange if exchange is not None else config.get("exchange"),
        on_cluster=graph.on_cluster(),
        threshold=int(config.get("pull.threshold")),
        slices=int(config.get("graph.slices")),
        samples=int(config.get("cuts.samples")),
        probes=int(config.get("cuts.probes")),
        settings=graph.settings(),
    )


def _device(x: Any, spec: Spec) -> str:
    return spec.backend or ("cupy" if blocks.on_device(x._meta) else "numpy")


def _sort_flat(x: Any, spec: Spec, npartitions: int | None, exchange: str | None) -> Any:
    plan = _plan(x, spec, npartitions, exchange)
    graph.fitted(plan)
    token = tokenize(x.name, spec, plan)
    name = f"sort-part-{token}"
    layer: graph.Graph = {}
    if plan.exchange == "none":
        layer[name, 0] = graph.sorted_task((name, 0), (x.name, 0), spec)
    else:
        layer = graph.runs_layer(f"sort-run-{token}", [(x.name, i) for i in range(plan.blocks)], spec, plan)
        layer.update(graph.parts_layer(name, token, list(layer), spec, plan))
    if plan.rows is None:
        chunks: tuple[float, ...] = (math.nan,) * plan.parts
    else:
        chunks = tuple(int(n) for n in np.diff(part_ranks(plan.rows, plan.parts)))
    whole = HighLevelGraph.from_collections(name, layer, dependencies=[x])
    return da.Array(whole, name, (chunks,), **_result_type(x, spec))


def _result_type(x: Any, spec: Spec) -> dict[str, Any]:
    return {"meta": x._meta if spec.what == "values" else np.empty_like(x._meta, dtype=np.intp)}


def _sort_lines(x: Any, axis: int, spec: Spec) -> Any:
    if any(math.isnan(n) for n in x.chunks[axis]):
        raise InputError(
            f"axis {axis} has unknown chunk sizes, so its lines cannot be put together: "
            "call x.compute_chunk_sizes() first"
        )
    if x.numblocks[axis] != 1:
        x = _as_declared(x.rechunk({i: -1 if i == axis else "auto" for i in range(x.ndim)}))
    name = f"sort-part-{tokenize(x.name, axis, spec)}"
    result = x.map_blocks(_lines, axis, spec, name=name, **_result_type(x, spec))
    return result


def _lines(block: Any, axis: int, spec: Spec) -> Any:
    backend = get_backend(spec.backend, block)
    verb = backend.sort_lines if spec.what == "values" else backend.argsort_lines
    turned = block.swapaxes(axis, -1)
    flat = turned.reshape(-1, turned.shape[-1]) if block.size else turned.reshape(0, turned.shape[-1])
    return verb(flat, spec.descending).reshape(turned.shape).swapaxes(axis, -1)


def _line_plan(x: Any, axis: int, spec: Spec) -> Plan:
    pieces = x.numblocks[axis]
    lines = int(np.prod([n for i, n in enumerate(x.numblocks) if i != axis]))
    reason = (
        f"axis {axis} is one chunk, so every line is sorted where it lies"
        if pieces == 1
        else f"axis {axis} is cut into {pieces} chunks, so Dask rechunks the array first: every row crosses once"
    )
    known = not any(math.isnan(n) for n in x.shape)
    return Plan(
        what="lines",
        order=f"values along axis {axis} {'desc' if spec.descending else 'asc'} nulls last",
        blocks=lines,
        runs=lines,
        parts=lines,
        rows=int(x.size) if known else None,
        nbytes=int(x.nbytes) if known else None,
        backend=_device(x, spec),
        exchange="none" if pieces == 1 else "graph",
        rounds=0,
        reasons=(reason,),
    )
