"""Fixtures of the kernel tests: compiled libraries, schedules and sizes to draw.

Tests name no number of examples, so that the profile below can lower it in the sanitizer runs.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

FLAVOUR = os.environ.get("KERNEL_FLAVOUR", "plain")
if FLAVOUR != "plain":
    hypothesis.settings.register_profile(
        FLAVOUR,
        max_examples={"asan": 12, "tsan": 4, "ucontext": 12}[FLAVOUR],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile(FLAVOUR)


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """Return the module build.py beside this file."""
    spec = importlib.util.spec_from_file_location("kernel_build", Path(__file__).with_name("build.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_build"] = module
    spec.loader.exec_module(module)
    if module.COMPILER is None:
        pytest.skip("g++ is not installed")
    return module


@pytest.fixture(scope="session")
def flavour() -> str:
    """Return the flavour of this test run: plain, asan, tsan."""
    return FLAVOUR


@pytest.fixture(scope="session")
def kernels(build: ModuleType) -> Callable[[str], Any]:
    """Return a function: the name of a driver file to its library, in this run's flavour."""
    return functools.cache(lambda name: build.Library(build.library(name, FLAVOUR)))


@pytest.fixture(scope="session")
def schedules() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of keyword arguments for `Library.schedule`."""
    order = st.sampled_from(["fifo", "reverse", "random"])
    return st.fixed_dictionaries(
        {"order": order, "blocks": order, "seed": st.integers(0, 10**6), "resident": st.integers(1, 3)}
    )


@pytest.fixture(scope="session")
def sizes() -> Callable[[int, int], st.SearchStrategy[int]]:
    """Return a function (tile, tiles) -> strategy of lengths up to tiles x tile, its edges drawn often."""

    def draw(tile: int, tiles: int = 3) -> st.SearchStrategy[int]:
        if FLAVOUR == "tsan":
            tiles = min(tiles, 2)
        top = tile * tiles
        edges = {e + d for e in (0, 1, 32, *range(tile, top + 1, tile)) for d in (-1, 0, 1)}
        return st.sampled_from(sorted(e for e in edges if 0 <= e <= top)) | st.integers(0, top)

    return draw
