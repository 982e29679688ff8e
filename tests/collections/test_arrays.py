"""Dask arrays: NumPy's answer to the bit, balanced, lazy."""

from __future__ import annotations

import math

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distsort
from distsort import graph, needs
from distsort.errors import InputError, KeyTypeError, NotSortedError, OptionError
from tests.collections.helpers import same_bits

pytestmark = pytest.mark.usefixtures("sync")


DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f8", "M8[ns]", "m8[s]"]
DTYPES += ["c8", "c16"]


def draw(rng, dtype, n, spread):
    """Values with ties, both zeros, NaN of both signs with payloads, infinities, NaT."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, n, dtype=dtype.newbyteorder("="), endpoint=True)
        few = rng.integers(0, spread, n).astype(dtype)
        return np.where(rng.random(n) < 0.5, wide, few).astype(dtype)
    if dtype.kind in "mM":
        values = rng.integers(-spread, spread, n).astype(dtype)
        values[rng.random(n) < 0.1] = "NaT"
        return values
    if dtype.kind == "c":
        half = dtype.type(0).real.dtype
        values = np.empty(n, dtype)
        values.real, values.imag = draw(rng, half, n, 3), draw(rng, half, n, 3)
        return values
    values = rng.integers(-spread, spread, n).astype(dtype) / dtype.type(2)
    for special in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0):
        values[rng.random(n) < 0.06] = special
    bits = values.view(f"u{dtype.itemsize}")
    bits[np.isnan(values)] ^= rng.integers(0, 8, int(np.isnan(values).sum())).astype(bits.dtype)
    return values


def stable_order(values, descending):
    """NumPy's stable order; descending with ties in input order and NaN last, from its definition."""
    if not descending:
        return np.argsort(values, kind="stable")
    last = np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values) if values.dtype.kind in "fc" else None
    n = len(values)
    down = n - 1 - np.argsort(values[::-1], kind="stable")[::-1]
    return down if last is None else np.r_[down[~last[down]], np.flatnonzero(last)]


@given(
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from(
        [
            "?",
            "i1",
            "u1",
            "i2",
            "u2",
            "i4",
            "u4",
            "i8",
            "u8",
            "f2",
            "f4",
            "f8",
            ">i4",
            ">f8",
            "M8[ns]",
            "m8[s]",
            "c8",
            "c16",
        ]
    ),
    n=st.sampled_from([0, 1, 2, 5, 17, 100, 999]),
    chunk=st.integers(1, 400),
    parts=st.sampled_from([None, 1, 2, 3, 7]),
    descending=st.booleans(),
    spread=st.sampled_from([1, 3, 120]),
)
@settings(deadline=None, max_examples=250)
def test_one_right_answer(seed, dtype, n, chunk, parts, descending, spread):
    values = draw(np.random.default_rng(seed), dtype, n, spread)
    if values.dtype.kind == "c" and descending:
        values = values[~np.isnan(values)]
    x = da.from_array(values, chunks=min(chunk, max(len(values), 1)) if len(values) < 100 else max(chunk, 50))
    order = stable_order(values, descending)
    result = distsort.sort(x, descending=descending, npartitions=parts, exchange="graph")
    positions = distsort.argsort(x, descending=descending, npartitions=parts, exchange="graph")
    assert same_bits(result.compute(), values[order])
    assert positions.compute().tolist() == order.tolist()
    assert np.ptp(result.chunks[0]) <= 1
    assert len(result.chunks[0]) == (parts or x.numblocks[0])


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (np.array([-np.nan, np.nan, -np.inf, np.inf, -1, 1], "f4"), [2, 4, 5, 3, 0, 1]),
        (np.array([0.0, -0.0]), [0, 1]),
        (np.array([0.0, -0.0, 0.0, -0.0]), [0, 1, 2, 3]),
        (
            np.array([-0.0, 1.4e-45, 1.1, -0.0, 5.96e-8, -2.00001, 1e6, 722801.4, 0, -1.1], "f4"),
            [5, 9, 0, 3, 8, 1, 4, 2, 7, 6],
        ),
        (np.full(17, np.nan), list(range(17))),
        (np.full(18, -np.nan), list(range(18))),
        (np.array([np.nan, 65504, np.inf, -np.inf, -0.0, 6e-8], "f2"), [3, 4, 5, 1, 2, 0]),
        (np.array([2**63, 2**64 - 1, 0, 2**63 - 1], "u8"), [2, 3, 0, 1]),
        (np.array([1, 2, 3, 3, 2, 1]), [0, 5, 1, 4, 2, 3]),
        (np.array([1, 0, 2, 3])[::2], [0, 1]),
        (np.array([1, 0, 2, 3])[::-1], [2, 3, 1, 0]),
        (np.array([1 + 3j, 2 + 2j, 3 + 1j], ">c16"), [0, 1, 2]),
        (np.array([1 + 2j, 1 + 1j, 5j, complex(np.nan, 0), 1 - 1j]), [2, 4, 1, 0, 3]),
        (np.array(["NaT", 1, 2, 3], "M8[ns]"), [1, 2, 3, 0]),
        (np.array([3, "NaT", -5], "m8[s]"), [2, 0, 1]),
        (np.array([3, 0, 2, 9, 1, 7])[::2], [2, 1, 0]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_corners(values, order, chunk):
    x = da.from_array(values, chunks=chunk)
    assert distsort.argsort(x, exchange="graph").compute().tolist() == order
    assert same_bits(distsort.sort(x, exchange="graph").compute(), values[order])


def test_negative_nan_keeps_its_bits():
    values = np.array([-np.nan, np.nan, -np.inf, np.inf, -1, 1], "f4")
    out = distsort.sort(da.from_array(values, chunks=4)).compute()
    assert [hex(b) for b in out.view("u4")[-2:]] == ["0xffc00000", "0x7fc00000"]


def test_descending_keeps_ties_and_puts_nan_last():
    assert distsort.argsort(da.from_array(np.array([0, 1, 0]), chunks=2), descending=True).compute().tolist() == [
        1,
        0,
        2,
    ]
    out = distsort.sort(da.from_array(np.array([np.nan, 1, 2]), chunks=2), descending=True).compute()
    assert out[:2].tolist() == [2, 1]
    assert math.isnan(out[2])


def test_complex_classes():
    nan = np.nan
    values = np.array(
        [complex(nan, nan), complex(nan, 1), complex(2, nan), complex(1, 1), complex(1, nan), complex(nan, 0)]
    )
    x = da.from_array(values, chunks=2)
    order = [3, 4, 2, 5, 1, 0]
    assert distsort.argsort(x).compute().tolist() == order
    assert same_bits(distsort.sort(x).compute(), values[order])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["i4", "f8", "M8[s]", "c16"])
def test_lines_of_a_matrix(axis, descending, dtype):
    rng = np.random.default_rng(0)
    values = draw(rng, dtype, 7 * 6, 5).reshape(7, 6)
    if dtype == "c16" and descending:
        values = np.where(np.isnan(values), 1, values)
    x = da.from_array(values, chunks=(3, 2))
    order = np.apply_along_axis(lambda v: stable_order(v, descending), axis, values)
    result = distsort.sort(x, axis=axis, descending=descending)
    assert same_bits(result.compute(), np.take_along_axis(values, order, axis))
    assert distsort.argsort(x, axis=axis, descending=descending).compute().tolist() == order.tolist()


def test_three_dimensions_and_axis_none():
    values = np.random.default_rng(1).integers(0, 9, (3, 4, 5))
    x = da.from_array(values, chunks=2)
    for axis in (0, 1, 2, -2):
        assert (distsort.sort(x, axis=axis).compute() == np.sort(values, axis=axis)).all()
    assert (distsort.sort(x, axis=None).compute() == np.sort(values, axis=None)).all()


def test_a_column_is_sorted_over_its_chunks():
    values = np.array([[4.5], [-1.0], [np.nan], [2.0], [np.inf], [np.nan], [0.0]])
    result = distsort.sort(da.from_array(values, chunks=2), axis=0)
    assert result.numblocks[0] > 1
    assert np.array_equal(result.compute(), np.sort(values, axis=0), equal_nan=True)


def test_empty_and_zero_dimensions():
    assert distsort.sort(da.empty((2, 0), chunks=1), axis=-1).compute().shape == (2, 0)
    assert distsort.sort(da.empty((0,), chunks=1)).compute().shape == (0,)
    zero = da.from_array(np.array(3))
    assert distsort.argsort(zero).compute().tolist() == [0]
    with pytest.raises(np.exceptions.AxisError):
        distsort.sort(zero)
    with pytest.raises(np.exceptions.AxisError):
        distsort.sort(da.ones(3), axis=1)
    for act in (distsort.sort, distsort.argsort, distsort.plan_sort):
        for axis in ("x", 1.0):
            with pytest.raises(OptionError, match=f"^axis={axis!r}: it must be a whole number, or None"):
                act(da.ones(3), axis=axis)


@pytest.mark.parametrize(
    "make",
    [
        lambda rng, n: rng.random(n),
        lambda rng, n: np.full(n, 7.0),
        lambda rng, n: np.where(rng.random(n) < 0.9, 5.0, rng.random(n)),
        lambda rng, n: np.minimum(rng.zipf(1.3, n), 10**6).astype(float),
        lambda rng, n: rng.zipf(2.0, n).astype(float),
        lambda rng, n: rng.choice([-np.inf, np.inf, 0.0], n),
    ],
    ids=["uniform", "constant", "ninety percent", "zipf 1.3", "zipf 2", "infinities"],
)
@pytest.mark.parametrize("parts", [1, 3, 8, 16])
def test_parts_differ_by_one_row_at_most(make, parts):
    values = make(np.random.default_rng(0), 10_007)
    x = da.from_array(values, chunks=1500)
    result = distsort.sort(x, npartitions=parts)
    chunks = [len(b) for b in dask.compute(*[result.blocks[j] for j in range(parts)])]
    assert chunks == list(result.chunks[0])
    assert np.ptp(chunks) <= 1
    assert (result.compute() == np.sort(values)).all()


def test_neighbouring_blocks_are_joined_to_runs():
    values = np.random.default_rng(0).integers(0, 9, 400)
    x = da.from_array(values, chunks=10)
    with dask.config.set({"distsort.graph.slices": 100}):
        assert distsort.plan_sort(x).runs == 16
        assert distsort.sort(x).compute().tolist() == sorted(values)
        assert distsort.argsort(x).compute().tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 4), (2, 2)])
def test_empty_chunks_beside_full_ones(shape):
    """Dask's own reshape of such arrays is an error, or names chunks that no task makes."""
    source = np.arange(np.prod(shape))[::-1].reshape(shape)
    chunks = [(0, n, 0) if i % 2 else (n, 0) for i, n in enumerate(shape)]
    lazy = da.from_array(source, chunks=tuple(chunks))
    for axis in (-1, None):
        assert same_bits(distsort.sort(lazy, axis=axis).compute(), np.sort(source, axis=axis))
        assert same_bits(distsort.argsort(lazy, axis=axis).compute(), np.argsort(source, axis=axis))


@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 1), (1, 2), (3, 1)])
def test_more_parts_than_elements_of_a_line(shape):
    """The parts without rows are empty chunks, too."""
    source = np.arange(np.prod(shape))[::-1].reshape(shape)
    axis = int(np.argmax(shape))
    found = distsort.sort(da.from_array(source), axis=axis, npartitions=5)
    assert same_bits(found.compute(), np.sort(source, axis=axis))


def test_more_parts_than_rows():
    result = distsort.sort(da.from_array(np.array([3, 1, 2]), chunks=2), npartitions=8)
    assert sum(result.chunks[0]) == 3
    assert max(result.chunks[0]) == 1
    assert result.compute().tolist() == [1, 2, 3]


@pytest.mark.parametrize("make", ["random", "sorted", "equal", "few"])
def test_cuts_of_many_parts_take_little_memory(make, monkeypatch):
    """What one round of the search reads is bounded; of more parts each reads less, and there are more rounds."""
    rng = np.random.default_rng(3)
    source = {
        "random": rng.random(300_000),
        "sorted": np.arange(300_000.0),
        "equal": np.zeros(300_000),
        "few": rng.integers(0, 5, 300_000).astype(float),
    }[make]
    read, probe = [], graph._probe

    def counted(run, search, r, spec):
        read.append(len(search.probes.position))
        return probe(run, search, r, spec)

    monkeypatch.setattr(graph, "_probe", counted)
    made = distsort.sort(da.from_array(source, chunks=60_000), npartitions=2000, exchange="graph")
    assert same_bits(made.compute(scheduler="sync"), np.sort(source))
    assert max(read) <= needs.SEARCH_KEYS


def test_unknown_chunk_sizes():
    values = np.random.default_rng(0).integers(0, 100, 1000)
    x = da.from_array(values, chunks=100)
    x = x[x > 30]
    assert math.isnan(x.shape[0])
    result = distsort.sort(x, npartitions=3)
    blocks = dask.compute(*[result.blocks[j] for j in range(3)])
    kept = values[values > 30]
    assert np.concatenate(blocks).tolist() == sorted(kept.tolist())
    assert np.ptp([len(b) for b in blocks]) <= 1
    assert distsort.argsort(x).compute().tolist() == np.argsort(kept, kind="stable").tolist()


def test_nothing_is_computed_when_built_and_each_block_is_read_once():
    reads = []

    def read(block, block_id=None):
        reads.append(block_id)
        return block

    x = da.from_array(np.arange(1000)[::-1], chunks=100).map_blocks(read, dtype=int, meta=np.empty(0, int))
    reads.clear()
    result = distsort.sort(x, exchange="graph")
    assert (repr(result) and result.chunks, distsort.plan_sort(x).tasks > 0) == (((100,) * 10,), True)
    assert reads == []
    assert (result.compute() == np.arange(1000)).all()
    assert sorted(reads) == [(i,) for i in range(10)]


def test_slicing_merges_only_the_parts_it_needs(monkeypatch):
    from distsort import graph

    merged = []
    plain = graph.merge_runs
    monkeypatch.setattr(graph, "merge_runs", lambda *a: merged.append(1) or plain(*a))
    result = distsort.sort(da.from_array(np.arange(1000)[::-1], chunks=100), exchange="graph")
    assert result[250:260].compute().tolist() == list(range(250, 260))
    assert len(merged) == 1


def test_the_input_is_left_as_it_was():
    values = np.array([3.0, -0.0, 1.0, 0.0])
    x = da.from_array(values, chunks=4)
    distsort.sort(x).compute()
    assert values.tolist() == [3.0, -0.0, 1.0, 0.0]


def test_persisted_input_and_result():
    values = np.random.default_rng(0).integers(0, 50, 500)
    x = da.from_array(values, chunks=60).persist()
    assert (distsort.sort(x).persist().compute() == np.sort(values)).all()


def test_strings_and_objects():
    values = np.array(["b", "", "ä", "a", "z"], dtype=object)
    assert distsort.sort(da.from_array(values, chunks=2)).compute().tolist() == sorted(values.tolist())
    fixed = np.array(["b", "", "ä", "a", "zz"])
    assert distsort.sort(da.from_array(fixed, chunks=2)).compute().tolist() == sorted(fixed.tolist())


def test_masked_values_are_last_and_stay_masked():
    values = np.ma.masked_array([5, 1, 4, 2, 3, 0], mask=[0, 1, 0, 0, 1, 0])
    x = da.from_array(values, chunks=2, asarray=False)
    for descending, want in ((False, [0, 2, 4, 5, None, None]), (True, [5, 4, 2, 0, None, None])):
        assert distsort.sort(x, descending=descending).compute().tolist() == want
    assert distsort.argsort(x).compute().tolist() == [5, 3, 2, 0, 1, 4]


def test_merge_sorted():
    rng = np.random.default_rng(0)
    a, b = np.sort(rng.integers(0, 50, 300)), np.sort(rng.integers(0, 50, 211))
    merged = distsort.merge_sorted([da.from_array(a, chunks=70), da.from_array(b, chunks=50)], npartitions=4)
    assert merged.compute().tolist() == np.sort(np.concatenate([a, b]), kind="stable").tolist()
    assert np.ptp(merged.chunks[0]) <= 1
    down = distsort.merge_sorted(
        [da.from_array(a[::-1], chunks=70), da.from_array(b[::-1], chunks=50)], ascending=False
    )
    assert down.compute().tolist() == np.sort(np.concatenate([a, b]))[::-1].tolist()
    with pytest.raises(NotSortedError, match="not sorted by values asc"):
        distsort.merge_sorted([da.from_array(a, chunks=70), da.from_array(b[::-1], chunks=50)]).compute()


def test_is_sorted():
    values = np.array([1, 1, 2, 3, 5, 5])
    for chunk in (1, 2, 4, 6):
        assert distsort.is_sorted(da.from_array(values, chunks=chunk))
        assert not distsort.is_sorted(da.from_array(values[[0, 1, 3, 2, 4, 5]], chunks=chunk))
        assert distsort.is_sorted(da.from_array(values[::-1], chunks=chunk), ascending=False)
    assert not distsort.is_sorted(da.from_array(np.array([np.nan, 1.0]), chunks=1))


def test_mistakes_are_named():
    x = da.ones((4, 4), chunks=2)
    with pytest.raises(InputError, match=r"sort\(\) takes a dask.array.Array, not ndarray"):
        distsort.sort(np.ones(3))
    with pytest.raises(OptionError, match="npartitions= is for 1-D arrays"):
        distsort.sort(x, npartitions=2)
    with pytest.raises(OptionError, match="npartitions=0: it must be"):
        distsort.sort(da.ones(3), npartitions=0)
    with pytest.raises(OptionError, match="exchange='ucx'"):
        distsort.sort(da.ones(3), exchange="ucx")
    with pytest.raises(OptionError, match="backend='gpu'"):
        distsort.sort(da.ones(3), backend="gpu")
    with pytest.raises(TypeError, match="kind"):
        distsort.sort(da.ones(3), kind="quicksort")
    with pytest.raises(KeyTypeError, match="has no order"):
        distsort.sort(da.from_array(np.zeros(3, [("a", int)]), chunks=2))


def test_plan_says_why_a_matrix_is_rechunked():
    text = distsort.plan_sort(da.ones((4, 4), chunks=2), axis=0).explain()
    assert "axis 0 is cut into 2 chunks, so Dask rechunks the array first" in text
    assert "every line is sorted where it lies" in distsort.plan_sort(da.ones((4, 4), chunks=(4, 2)), axis=0).explain()
