"""A watchdog for every test here: a hang ends with the stacks of all threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.cluster import kit


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Killing workers makes Dask warn, close sockets late and log; that is no finding here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def pair() -> Iterator[object]:
    """Two workers that no test of the module harms."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with kit.cluster(2) as client:
            yield client
