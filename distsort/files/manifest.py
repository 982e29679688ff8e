"""The manifest that lies beside the parts: what was sorted, by what, and what each part holds."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import distsort
from distsort.files.parts import Written
from distsort.io.source import Source
from distsort.io.storage import Store
from distsort.order import Order


def make_manifest(
    source: Source,
    order: Order,
    written: Sequence[Written],
    checksum: int,
    named: Sequence[tuple[Store, str]],
) -> dict[str, Any]:
    """Return it, ready for JSON; `named` are the inputs as they were named."""
    parts = []
    for part in written:
        ends = part.ends.astype(object).where(part.ends.notna(), None).to_dict("records")
        parts.append(
            {
                "file": part.name,
                "rows": part.tally.rows,
                "bytes": part.stored,
                "first": ends[0] if ends else None,
                "last": ends[-1] if ends else None,
            }
        )
    return {
        "format": source.sink.suffix.lstrip("."),
        "made_by": f"distsort {distsort.__version__}, Python {platform.python_version()}",
        "sources": [store.url(path) for store, path in named],
        "order": [
            {
                "column": key.name,
                "direction": "desc" if key.descending else "asc",
                "nulls": "first" if key.nulls_first else "last",
            }
            for key in order.keys
        ],
        "rows": sum(part.tally.rows for part in written),
        "checksum": f"{checksum:016x}",
        "parts": parts,
    }
