"""Disks that fill up while runs are exchanged."""

from __future__ import annotations

import resource
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import distsort
from distsort.errors import OutputError
from tests.cluster import kit


def frame_of(number: int, rows: int) -> pd.DataFrame:
    """Make one partition: random keys, and consecutive ids over all partitions."""
    keys = np.random.default_rng(number).integers(0, 2**62, rows)
    return pd.DataFrame({"k": keys, "id": np.arange(rows) + number * rows})


def lazily(partitions: int, rows: int) -> dd.DataFrame:
    return dd.from_map(frame_of, range(partitions), rows=rows, meta=frame_of(0, 0), enforce_metadata=False)


def limit_files(size: int) -> None:
    """Let this process write no file longer than so many bytes: what it writes beyond fails, as on a full disk."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_disk_that_fills_up_during_the_exchange_is_an_error_that_names_the_folder(tmp_path):
    def shrink() -> None:
        from distsort.exchange import holder

        holder.STORE_SHARE = 0

    with kit.cluster(2, config={"distsort.temporary-directory": str(tmp_path)}) as client:
        client.run(shrink)
        client.run(limit_files, 1 << 20)
        ordered = distsort.sort_values(lazily(8, 200_000), "k", exchange="pull")
        with pytest.raises(OutputError, match=rf"{tmp_path}/.*: cannot be written .*File too large"):
            client.compute(ordered.map_partitions(len)).result(kit.PATIENCE)
        assert client.submit(sum, [1, 2]).result(kit.PATIENCE) == 3
        del ordered
        kit.until(lambda: not [path for path in Path(tmp_path).rglob("*") if path.is_file()])
        client.run(limit_files, resource.RLIM_INFINITY)
        ordered = distsort.sort_values(lazily(8, 1000), "k", exchange="pull")
        assert client.compute(ordered).result(kit.PATIENCE)["k"].is_monotonic_increasing
        del ordered
        kit.assert_clean(client)
    kit.until(lambda: not list(tmp_path.iterdir()))
