"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def sync() -> Iterator[None]:
    """Run Dask in this thread, so that counters in the input count."""
    import dask

    with dask.config.set(scheduler="sync"):
        yield
