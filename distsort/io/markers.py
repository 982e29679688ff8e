"""What tells the output of a run from a folder of anybody: its markers, and the names that its manifest tells.

out/part-00000.parquet ...    the manifest lists them
out/_manifest.json            what was sorted, by what, and what each part holds
out/_SUCCESS                  the output is whole; Spark leaves it too, without a manifest
out/_metadata                 the footers of all parts, where that was asked for

at the place                        may be overwritten
----------------------------------  ------------------------------------------------
nothing, or an empty folder         yes
a manifest of ours                  yes, if all else is a part or a marker
_SUCCESS and no manifest of ours    yes, if all else has a name that Spark gives
neither                             no
a file                              no: outputs are folders
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
# Parts and marks, the checksums of both, and the folders of a partitioned table: year=2024.
_OF_SPARK = re.compile(r"part-|_|\.(part-|_).*\.crc$|[^=.]+=")


def refuse_strangers(store: Store, path: str) -> None:
    """Refuse to overwrite what no run wrote: a file, or a folder that holds such a thing.

    Parameters
    ----------
    store, path
        The place of the output; nothing may be there.

    Raises
    ------
    OutputError
        Such a thing is there; the message names it.
    """
    kind = store.kind(path)
    if kind is None:
        return
    if kind != "directory":
        raise OutputError(
            f"{store.url(path)}: a file is there, which no run of distsort wrote: remove it yourself, "
            "or choose another place"
        )
    names = store.names(path)
    parts = _parts_of_manifest(store, path) if MANIFEST in names else None
    if parts is None:
        strangers = [name for name in names if not _OF_SPARK.match(name)] if SUCCESS in names else names
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
