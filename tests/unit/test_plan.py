"""The plan: its choices, its numbers, its words."""

from __future__ import annotations

import dataclasses

import dask
import pytest

from distsort.errors import OptionError
from distsort.order import array_order, make_order
from distsort.plan import joined, make_plan


def plan(blocks, parts, **options):
    return make_plan(what="values", order=array_order(), blocks=blocks, parts=parts, **options)


@pytest.mark.parametrize(
    ("blocks", "parts", "cluster", "asked", "chosen", "why"),
    [
        (1, 1, True, None, "none", "nothing is exchanged"),
        (1, 1, False, "pull", "none", "nothing is exchanged"),
        (8, 8, False, None, "graph", "no distributed client is connected"),
        (7, 9, True, None, "graph", r"7 x 9 slices are few \(below 64\)"),
        (8, 8, True, None, "pull", "parts pull from run stores in 25 tasks"),
        (2, 2, True, "pull", "pull", "exchange='pull' was asked for"),
        (99, 99, True, "graph", "graph", "exchange='graph' was asked for"),
    ],
)
def test_choice_of_exchange(blocks, parts, cluster, asked, chosen, why):
    made = plan(blocks, parts, on_cluster=cluster, exchange=asked)
    assert made.exchange == chosen
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(made.explain())


def test_blocks_are_joined_to_runs_in_one_process_only():
    made = plan(500, 500)
    assert (made.blocks, made.runs, made.parts) == (500, 16, 500)
    assert "16 sorted where they lie on the numpy backend, made of 500 blocks" in made.explain()
    groups = [list(group) for group in joined(500, 16)]
    assert [i for g in groups for i in g] == list(range(500))
    assert {len(g) for g in groups} == {31, 32}
    assert plan(64, 64).runs == 64
    assert plan(10_000, 10).runs == 409
    assert plan(2, 10_000).runs == 2
    assert "joined" not in plan(2, 10_000).explain()
    assert plan(500, 500, on_cluster=True).runs == 500
    assert plan(500, 500, on_cluster=True, exchange="graph").runs == 500


def test_numbers():
    made = plan(4, 2, rows=1001, nbytes=8008)
    assert made.rounds == 0
    assert made.tasks == 4 * 3 + 2 + 4 * 2 + 2
    assert made.traffic == 8008
    assert made.peak() == 2 * 8008 + 3 * 8008 // 2
    assert made.peak(2) < made.peak()
    assert "500 or 501 rows" in made.explain()
    assert plan(300, 300, on_cluster=True).tasks == 901
    assert plan(1, 1, nbytes=8).traffic == 0


def test_more_rows_take_more_rounds():
    assert [plan(4, 4, rows=n).rounds for n in (10, 1 << 20, 1 << 30)] == [0, 1, 2]
    assert plan(4, 4).rounds == 1
    assert [plan(4, parts, rows=300_000).rounds for parts in (4, 400, 4000)] == [0, 1, 2]


@pytest.mark.parametrize("probes", [1, 3, 4096, 1 << 20])
@pytest.mark.parametrize("samples", [1, 256])
@pytest.mark.parametrize(("blocks", "parts"), [(2, 2), (4096, 1), (3000, 3000), (2, 100_000)])
def test_rounds_end_whatever_is_asked(blocks, parts, samples, probes):
    """Few keys of many runs narrow nothing: then more rounds would not help."""
    options = {"exchange": "graph", "on_cluster": True, "samples": samples, "probes": probes}
    for rows in (None, 10, 1 << 20, 1 << 40):
        assert plan(blocks, parts, rows=rows, **options).rounds < 64


def test_a_plan_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(1, 1).runs = 2


@pytest.mark.parametrize("parts", [0, -1, 2.5, True, "4"])
def test_parts_must_be_a_positive_whole_number(parts):
    with pytest.raises(OptionError, match="npartitions="):
        plan(4, parts)


def test_order_in_words():
    order = make_order(["a", "b"], [True, False], ["first", "last"])
    assert str(order) == "a asc nulls first, b desc nulls last"


def test_rows_on_the_gpus_of_a_cluster_are_always_pulled():
    made = plan(2, 2, backend="cupy", on_cluster=True)
    assert made.exchange == "pull"
    assert made.tasks == 2 + 1 + 2
    assert plan(2, 2, backend="cupy").exchange == "graph"
    assert plan(2, 2, backend="cupy", on_cluster=True, exchange="graph").exchange == "graph"


def test_time_is_estimated_where_sizes_are_known():
    made = plan(4, 4, rows=12_000_000, nbytes=12_000_000 * 8)
    with dask.config.set({"distsort.rates.rows": 12_000_000, "distsort.rates.memory": "96 MB"}):
        assert [(each.phase, each.busy) for each in made.estimates()] == [("sort", 2), ("merge", 2)]
        assert "  time      about " in made.explain()
        pulled = plan(4, 4, rows=12_000_000, nbytes=96_000_000, on_cluster=True, exchange="pull")
        assert [each.phase for each in pulled.estimates()] == ["sort", "exchange", "merge"]
        alone = plan(1, 1, rows=12_000_000, nbytes=96_000_000)
        assert [each.phase for each in alone.estimates()] == ["sort"]
    for unknown in (plan(4, 4), plan(4, 4, rows=5, nbytes=40, backend="cupy")):
        assert unknown.estimates() == ()
        assert "  time " not in unknown.explain()


def test_memory_counts_whole_runs():
    made = plan(3, 3, rows=300, nbytes=2400)
    # Of three runs and three parts one of two workers holds two each.
    assert made.peak(2) == 2400 * 2 / 3 + 2400 * 2 / 3 + 2400
    assert made.peak(3) == made.peak(9) == 800 + 800 + 2400


def test_notebooks_show_the_plan_escaped():
    order = make_order(["<b>k</b>"], True, "last")
    made = make_plan(what="rows", order=order, blocks=2, parts=2, rows=1000, nbytes=8000)
    text = made._repr_html_()
    assert "<b>k</b>" not in text
    assert "Sort rows by &lt;b&gt;k&lt;/b&gt; asc nulls last" in text
    for words in ("1,000 (7.8 KiB)", "no distributed client is connected", "Estimated phases", "<dt>exchange</dt>"):
        assert words in text
    assert "<script" not in text
    assert "http" not in text
    assert "Estimated phases" not in plan(4, 4)._repr_html_()
