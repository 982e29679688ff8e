"""The cluster benchmark at a tiny size: every method runs, and what is reported can be drawn. Nothing is timed."""

from __future__ import annotations

import json
import warnings

import pytest
from click.testing import CliRunner

from distsort.bench import cluster
from distsort.bench.cluster_command import cluster as command
from distsort.bench.cluster_command import size
from distsort.errors import OptionError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize(("text", "rows"), [("20e6", 20_000_000), ("2**20", 1 << 20), ("1M", 1_000_000), ("7", 7)])
def test_sizes(text, rows):
    assert size(None, None, text) == rows


def test_side_by_side(tmp_path):
    pytest.importorskip("matplotlib")
    options = ["--rows", "2k", "--workers", "2", "--partitions", "4", "--payload", "1", "--repeats", "1"]
    methods = [o for m in ("pull", "graph", "tasks") for o in ("--method", m)]
    files = ["--json", str(tmp_path / "b.json"), "--plot", str(tmp_path / "b.png")]
    result = CliRunner().invoke(command, [*options, *methods, "--skew", "heavy", *files])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert [r["method"] for r in rows] == ["pull", "graph", "tasks"]
    assert rows[0]["balance"] == rows[1]["balance"] == 1.0
    # A persisted frame is taken as it is: no task that only renames its partitions goes before the runs.
    assert set(rows[0]["phases"]) == {"run", "tick", "cuts", "part"}
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_arrays_have_no_peer():
    with pytest.raises(OptionError, match="no sort for arrays"):
        cluster.sorter("tasks", cluster.Case(10))


@pytest.mark.parametrize("parts", [1, 3])
def test_every_repeat_sorts_everything(parts):
    """A future of the last result that is still held would leave its part in memory, and the next run without it."""
    with cluster.cluster(1, False, None) as client:
        measured = cluster.measure(client, cluster.Case(1000, parts, parts), "pull", repeats=3, warm_ups=1)
        assert "part" in measured.phases
        keys = [record["key"] for record in client.get_task_stream() if "sort-part" in str(record["key"])]
        assert len(keys) == 4 * parts
    assert measured.balance == 1.0


def test_scaling():
    options = ["--rows", "1k", "--workers", "1", "--repeats", "1", "--scaling"]
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 0, result.output
    assert "weak, argsort, zipf" in result.output
