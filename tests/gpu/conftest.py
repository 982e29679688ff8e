"""Fixtures of the GPU tests."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def cupy() -> ModuleType:
    """Return cupy; skip where it or a GPU is missing."""
    module = pytest.importorskip("cupy")
    try:
        module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")
    return module


@pytest.fixture(scope="session")
def backend(cupy: ModuleType) -> Any:
    """Return the cupy backend."""
    from distsort.backends import get_backend

    return get_backend("cupy", None)


@pytest.fixture(autouse=True)
def room(request: pytest.FixtureRequest) -> Any:
    """Give pooled device memory back after each test, so that the large ones find it."""
    yield
    if "cupy" in request.fixturenames:
        request.getfixturevalue("cupy").get_default_memory_pool().free_all_blocks()
