"""A folder for what spills, gone in the end however the job ends.

The folder is locked (flock) while its job runs; the kernel drops the lock with the process. So the next job that spills
to the same place can tell what a killed one left there, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distsort.errors import OutputError

_NAME = re.compile(r"distsort-spill-[0-9a-f]{8}")


@contextmanager
def scratch_folder(above: str | None = None) -> Iterator[Path]:
    """Make a folder that is removed at the end of the block.

    Parameters
    ----------
    above
        The folder to make it in; the system's for temporary files if None.

    Raises
    ------
    OutputError
        It cannot be made there.
    """
    place = Path(tempfile.gettempdir() if above is None else above)
    folder = place / f"distsort-spill-{uuid.uuid4().hex[:8]}"
    try:
        clean(place)
        folder.mkdir(mode=0o700)
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(
            f"{place}: no temporary folder can be made there ({error.strerror}): name another one with -T, or set "
            "distsort.temporary-directory"
        ) from error
    try:
        _lock(handle)
        yield folder
    finally:
        _remove(folder)
        os.close(handle)


def clean(place: Path) -> list[str]:
    """Remove what killed jobs left in a folder, and return the names."""
    cleaned = []
    for path in sorted(place.iterdir()):
        if not _NAME.fullmatch(path.name):
            continue
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        if _lock(handle):
            _remove(path)
            cleaned.append(path.name)
        os.close(handle)
    return cleaned


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Held by a running job, or a disk that knows no locks.
        return False
    return True


def _remove(folder: Path) -> None:
    """Remove a folder into which a process that is just ending may still write."""
    for pause in (0.0, 0.05, 0.2, 0.5):
        time.sleep(pause)
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
