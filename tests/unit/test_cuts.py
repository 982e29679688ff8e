"""The exact cuts, held to a full stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distsort import cuts


def ask_for(runs):
    def ask(probes):
        keys = np.array([runs[r][p] for r, p in zip(probes.run, probes.position, strict=True)])
        return np.argsort(keys, kind="stable")

    return ask


def oracle(runs, ranks):
    """Co-ranks from a stable sort of everything: ties go by run, then position."""
    whole = np.concatenate(runs)
    run_of = np.repeat(np.arange(len(runs)), [len(r) for r in runs])
    in_order = run_of[np.argsort(whole, kind="stable")]
    return np.array([[int((in_order[:k] == r).sum()) for k in ranks] for r in range(len(runs))])


def draw_runs(rng, n_runs, longest, values):
    lengths = rng.integers(0, longest + 1, n_runs)
    if values == "zipf":
        return [np.sort(np.minimum(rng.zipf(1.3, n), 1000)) for n in lengths]
    return [np.sort(rng.integers(0, values, n)) for n in lengths]


@given(
    seed=st.integers(0, 2**32),
    n_runs=st.integers(1, 9),
    longest=st.sampled_from([0, 1, 2, 5, 40, 300]),
    values=st.sampled_from([1, 2, 7, 1000, 10**9, "zipf"]),
    parts=st.integers(1, 12),
    budget=st.sampled_from([1, 2, 3, 16, 256]),
)
@settings(deadline=None, max_examples=200)
def test_cuts_equal_a_full_stable_sort(seed, n_runs, longest, values, parts, budget):
    runs = draw_runs(np.random.default_rng(seed), n_runs, longest, values)
    lengths = [len(r) for r in runs]
    ranks = cuts.part_ranks(sum(lengths), parts)[1:-1]
    found = cuts.solve(lengths, ranks, ask_for(runs), budget=budget, enough=8)
    assert found.tolist() == oracle(runs, ranks).reshape(found.shape).tolist()


@given(seed=st.integers(0, 2**32), samples=st.integers(1, 40), values=st.sampled_from([1, 3, 10**6]))
@settings(deadline=None, max_examples=60)
def test_sample_round_brackets_hold_the_cut(seed, samples, values):
    runs = draw_runs(np.random.default_rng(seed), 5, 200, values)
    lengths = [len(r) for r in runs]
    ranks = cuts.part_ranks(sum(lengths), 7)
    positions = [cuts.regular_positions(n, samples) for n in lengths]
    keys = np.concatenate([run[p] for run, p in zip(runs, positions, strict=True)])
    after = cuts.sample_brackets(lengths, ranks, positions, np.argsort(keys, kind="stable"))
    truth = oracle(runs, ranks)
    assert (after.low <= truth).all()
    assert (truth <= after.high).all()
    if samples >= max(lengths):
        assert after.exact


def test_brackets_shrink_by_the_number_of_probes():
    rng = np.random.default_rng(0)
    runs = [np.sort(rng.integers(0, 2**60, 100_000)) for _ in range(8)]
    brackets = cuts.open_brackets([100_000] * 8, [400_000])
    for limit in (800_000 * 2 / 128, 800_000 * 4 / 128**2):
        probes = cuts.bracket_probes(brackets, 8 * 128)
        assert len(probes.position) <= 8 * 128 + 8
        brackets = cuts.narrow(brackets, probes, ask_for(runs)(probes))
        assert (brackets.high - brackets.low).sum() <= limit


def test_part_ranks_differ_by_at_most_one():
    assert np.ptp(np.diff(cuts.part_ranks(1_000_003, 17))) == 1
    assert cuts.part_ranks(3, 8).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3]


def test_ranks_beyond_32_bits_stay_exact():
    assert cuts.part_ranks(3 * 2**60, 3).tolist() == [0, 2**60, 2**61, 3 * 2**60]


def test_unsorted_run_is_found():
    runs = [np.array([1, 2, 3, 4]), np.array([9, 8, 1, 0])]
    with pytest.raises(cuts.CutError, match="run 1 is not sorted"):
        cuts.solve([4, 4], [4], ask_for(runs), budget=16)


def test_with_ends():
    assert cuts.with_ends(np.array([[1], [2]]), [4, 5]).tolist() == [[0, 1, 4], [0, 2, 5]]


def test_ranks_say_where_parts_begin_before_any_run_is_cut():
    from distsort.search import Ranks

    ranks = Ranks((5, 0, 8, 4), 6)
    assert [ranks.first(part) for part in range(7)] == cuts.part_ranks(17, 6).tolist()
    assert ranks.starts == [0, 5, 5, 13]
    assert ranks.share(0, 0.25) == (0.0, 1.25 / 6)
    assert ranks.share(5, 0.25) == (4.75 / 6, 1.0)
    assert Ranks((3,), 1).share(0, 0.5) == (0.0, 1.0)
