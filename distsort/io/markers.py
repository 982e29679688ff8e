"""What tells the output of a run from a folder of anybody: its markers, and the names that its manifest tells.

out/part-00000.parquet ...    the manifest lists them
out/_manifest.json            what was sorted, by what, and what each part holds
out/_SUCCESS                  the output is whole; Spark leaves it too, without a manifest
out/_metadata                 the footers of all parts, where that was asked for

in the folder                       may be overwritten
----------------------------------  ------------------------------------------------
nothing                             yes
a manifest of ours                  yes, if all else is a part or a marker
_SUCCESS and no manifest of ours    yes: nobody knows what belongs to it
neither                             no
"""

from __future__ import annotations

import json
import re

from distsort.errors import OutputError
from distsort.io.parquet_sink import METADATA
from distsort.io.storage import Store

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
# Parts that the manifest does not list are left by an older output, or by Spark: part-00000-UUID.snappy.parquet.
_PART = re.compile(r"part-\d{5}")


def refuse_strangers(store: Store, path: str) -> None:
    """Refuse to overwrite a folder that holds what no run wrote.

    Parameters
    ----------
    store, path
        The place of the output; a file may be there, or nothing.

    Raises
    ------
    OutputError
        Such an entry is there; the message names it.
    """
    if store.kind(path) != "directory":
        return
    names = store.names(path)
    parts = _parts_of_manifest(store, path) if MANIFEST in names else None
    if parts is None:
        strangers = [] if SUCCESS in names else names
    else:
        ours = {MANIFEST, SUCCESS, METADATA, *parts}
        strangers = [name for name in names if name not in ours and not _PART.match(name)]
    if strangers:
        raise OutputError(
            f"{store.url(path)}: no run of distsort wrote {strangers[0]} in it, which overwriting would delete: "
            "remove it yourself, or choose another place"
        )


def _parts_of_manifest(store: Store, folder: str) -> list[str] | None:
    """Return the names of the parts, or None where the manifest is of another make."""
    try:
        return [str(part["file"]) for part in json.loads(store.read(f"{folder}/{MANIFEST}"))["parts"]]
    except (ValueError, KeyError, TypeError):
        return None
