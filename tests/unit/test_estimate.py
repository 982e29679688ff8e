from __future__ import annotations

import dask
import pytest

from distsort.errors import OptionError
from distsort.estimate import Estimate, Rates, drawing, estimate, in_words, total

RATES = Rates(10e6, 1e9, 1e8, 5e8, {"csv": 1e8}, {"parquet": 2e8})
SIZES = {"rows": 10_000_000, "nbytes": 1_000_000_000, "runs": 4, "parts": 8, "rates": RATES}


def busy(found):
    return {each.phase: each.busy for each in found}


def test_every_phase_is_its_size_by_its_rate():
    found = estimate(**SIZES, crossing=5e8, spilled=1e9, source="csv", target="parquet")
    assert busy(found) == {"read": 10, "sort": 2, "spill": 2, "exchange": 5, "merge": 2, "write": 5}
    assert [each.phase for each in found] == ["read", "sort", "spill", "exchange", "merge", "write"]
    assert [each.tasks for each in found] == [4, 4, 4, 8, 8, 8]
    assert busy(estimate(**SIZES, source="npy", target=None)) == {"sort": 2, "merge": 2}
    assert found[0].rate == "95.4 MiB/s of csv"


def test_cores_work_in_rounds():
    phase = Estimate("sort", 6.0, 3, "")
    assert [phase.seconds(cores) for cores in (1, 2, 3, 8)] == [6, 4, 2, 2]
    assert total([phase, phase], 2) == 8
    assert in_words([phase], 1) == "about 6.0 s on 1 core: sort 6.0 s"


def test_rates_are_those_of_the_configuration():
    with dask.config.set({"distsort.rates.rows": 5, "distsort.rates.read.csv": "1 kB"}):
        rates = Rates.configured()
    assert (rates.rows, rates.read["csv"]) == (5, 1000)
    assert set(Rates.configured().write) < set(Rates.configured().read)
    with dask.config.set({"distsort.rates.disk": "fast"}), pytest.raises(OptionError, match=r"rates\.disk='fast'"):
        Rates.configured()


def test_drawn_one_after_the_other():
    text = drawing([Estimate("sort", 3.0, 1, "a < b"), Estimate("merge", 1.0, 1, "c")], 1)
    assert "left:0.000%;width:75.000%" in text
    assert "left:75.000%;width:25.000%" in text
    assert "a &lt; b" in text
