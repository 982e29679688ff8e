"""Inputs with exact partitions and oracles that are not ours."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd


def split(frame: pd.DataFrame | pd.Series, *cuts: int) -> Any:
    """A dask collection with partitions cut at those rows (empty ones allowed) and unknown divisions."""
    edges = [0, *cuts, len(frame)]
    return dd.from_map(_rows, list(range(len(edges) - 1)), frame=frame, edges=edges, meta=frame.iloc[:0])


def _rows(i: int, frame: Any, edges: list[int]) -> Any:
    return frame.iloc[edges[i] : edges[i + 1]]


def partitions(collection: Any) -> list[Any]:
    """Compute partition by partition, so that nothing is put together on the way."""
    return list(dask.compute(*collection.to_delayed()))


def whole(collection: Any) -> Any:
    return pd.concat(partitions(collection))


def sizes(collection: Any) -> list[int]:
    return [len(p) for p in partitions(collection)]


def stable(frame: Any, by: Any, **options: Any) -> Any:
    """The oracle: pandas' stable sort."""
    return frame.sort_values(by, kind="stable", **options)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays agree to the bit, NaN payloads and signs of zero included."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
