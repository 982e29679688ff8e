"""Exact, stable, perfectly balanced sorting of Dask arrays, dataframes and files.

Importing this package is cheap: neither dask nor a GPU library is imported before a function is used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name lives; the module is imported when the name is first asked for.
_HOMES = {
    "sort": "distsort.arrays",
    "argsort": "distsort.arrays",
    "sort_values": "distsort.dataframes",
    "merge_sorted": "distsort.check",
    "is_sorted": "distsort.check",
    "validate": "distsort.check",
    "sort_files": "distsort.files",
    "plan_sort": "distsort.arrays",
    "plan_sort_values": "distsort.dataframes",
    "SortClient": "distsort.service.client",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'distsort' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
