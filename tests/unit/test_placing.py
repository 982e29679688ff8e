"""Parts are dealt out evenly, near the runs of their places."""

from __future__ import annotations

import itertools

import pytest

from distsort.exchange.placing import deal, place_of


def test_as_drawn():
    assert deal(range(8), 8, ["A", "B", "A", "C"], ["A", "B", "C", "D"]) == list("AABBDDCC")


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 12, 50])
@pytest.mark.parametrize("runs", [1, 2, 5, 12])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_evenly_and_at_home_where_homes_are_even(parts, runs, workers):
    names = [f"tcp://w{i}" for i in range(workers)]
    homes = [names[r % workers] for r in range(runs)]
    dealt = deal(range(parts), parts, homes, names)
    most = -(-parts // workers)
    assert len(dealt) == parts
    assert max(map(dealt.count, names)) <= most
    wanted = [homes[j * runs // parts] for j in range(parts)]
    if max(map(wanted.count, names)) <= most:
        assert dealt == wanted
    else:  # as many at home as have room there
        assert sum(a == b for a, b in zip(dealt, wanted, strict=True)) == sum(min(wanted.count(n), most) for n in names)


def test_some_parts_of_many_and_homes_that_are_not_known_or_gone():
    assert deal([10, 11], 12, ["A", "B", "C"], ["A", "B", "C"]) == ["C", "A"]
    assert deal([0, 5], 6, [None, "gone"], ["A", "B"]) == ["A", "B"]
    assert deal([], 6, ["A"], ["A", "B"]) == []


@pytest.mark.parametrize(
    ("key", "place"),
    [(("p", 3), 3), (("p", 3, 0), 3), (("p", 0, 3), 3), (("p", 99), 7), ("text-1", 0), (("p", "x"), 0)],
)
def test_the_place_of_a_key(key, place):
    assert place_of(key, 8) == place


def test_two_dimensions_are_in_order_too():
    keys = [("p", i, j) for i, j in itertools.product(range(6), [0])]
    assert [place_of(key, 6) for key in keys] == list(range(6))
