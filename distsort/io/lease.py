"""Who works on an output of an object store, which knows no locks: a small object beside the staging folder.

    .out.distsort-ID/         staging, filled part by part
    .out.distsort-ID.old/     the old output, while the new one takes its place
    .out.distsort-ID.lease    {"owner": host and boot, "pid": ..., "began": ..., "phase": "staging" | "swapping"}

    written first ----- written again every half minute ----- phase: swapping ----- removed last
          makedirs, parts                     old -> .old, file by file     staging -> out, _SUCCESS, .old goes

A job is dead when its process is gone, if it ran on this host since this boot; elsewhere, when its lease was not
written for `SILENCE`. Both times are those of the store, that of the lease in question and that of the reader's own
lease, which it has just written: no clock of a host is asked. Where a store tells no times, nothing is removed.

What a dead job left is undone by its phase. Folders move file by file there, so that a file of the old output is in
the output, in ``.old`` or in both, never in neither:

    staging     all that is in .old goes back to the output; staging goes
    swapping    with _SUCCESS the new output is whole: .old goes. Without, its files go, then as above; the phase is set
                back first, since the _SUCCESS that comes back with the old output must not be taken for the new one's

A job that only fell silent finds its staged files gone when it publishes, and ends with an error.
"""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from distsort.io.storage import Store

BEAT = 30.0
"""Seconds between two writings of a lease."""

SILENCE = timedelta(minutes=5)
"""A lease that was not written for so long is that of a dead job."""

SUFFIX = ".lease"
_PROC = Path("/proc")


class Lease:
    """The claim of this process on a staging folder; written, and kept alive, until it is released.

    Parameters
    ----------
    store
        The object store.
    folder
        The staging folder.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.path = folder + SUFFIX
        self.says = {"owner": _this_host(), "pid": os.getpid(), "began": _began(os.getpid()), "phase": "staging"}
        self._over = threading.Event()
        self._writing = threading.Lock()
        self._write()
        threading.Thread(target=self._beat, name="distsort-lease", daemon=True).start()

    def enter(self, phase: str) -> None:
        """Say that the next phase begins."""
        self.says = {**self.says, "phase": phase}
        self._write()

    def release(self) -> None:
        """End the claim."""
        with self._writing:
            self._over.set()
            self.store.remove(self.path)

    def outlives(self, other: str) -> bool:
        """Whether the job of another lease, found beside this one, is dead."""
        try:
            says = json.loads(self.store.read(other))
            if says["owner"] and says["owner"] == self.says["owner"]:
                return bool(_began(says["pid"]) != says["began"])
            silent = self.store.fs.modified(self.path) - self.store.fs.modified(other)
        except (OSError, ValueError, KeyError, NotImplementedError):
            return False
        return bool(silent > SILENCE)

    def _write(self) -> None:
        with self._writing:
            if not self._over.is_set():
                self.store.write(self.path, json.dumps(self.says).encode())

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(OSError):
                self._write()


def undo(store: Store, folder: str, target: str, success: str) -> None:
    """Remove what a dead job left, and put the old output back unless the new one is whole."""
    path, old = folder + SUFFIX, f"{folder}.old"
    says: dict[str, Any] = json.loads(store.read(path))
    if says["phase"] == "swapping":
        if store.kind(f"{target}/{success}") is not None:
            store.remove(old)
        else:
            store.remove(target)
            store.write(path, json.dumps({**says, "phase": "staging"}).encode())
    if store.kind(old) is not None:
        store.rename(old, target)
    store.remove(folder)
    store.remove(path)


def _this_host() -> str:
    """Name this host since its boot, and its process numbers; empty where the system does not tell."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """Say when a process began, in the system's ticks; None if there is none: numbers are used again."""
    try:
        state, *fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else fields[18]
