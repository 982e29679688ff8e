"""Output that appears whole or not at all.

    out/                    what readers see: the old output, or nothing
    .out.distsort-ID/       staging: a hidden sibling on the same disk, filled part by part
    .out.distsort-ID.old/   the old output, while the new one takes its place

          write parts          rename out -> .old        rename staging -> out        remove .old
    ------------------------+-------------------------+---------------------------+---------------->
     failure: drop staging    failure: nothing moved     failure: .old -> out back    out is the new one

Every step before the second rename can be undone by renames only; the data of the old output is never touched before
the new one stands. A running job holds a lock (flock) on both hidden folders, which the kernel drops when the process
dies, however it dies: a folder that is not locked was left by a killed job, and the next job that writes to the same
place removes it, or puts it back when the output itself is missing. On object stores a rename is a copy of each file
and ``_SUCCESS`` is written last, so readers that wait for it see whole outputs only. They know no locks: there a lease
beside the staging folder says who is at work, and what a killed job left is undone by it (see `distsort.io.lease`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from distsort.errors import OptionError, OutputError
from distsort.io.lease import SUFFIX, Lease, undo
from distsort.io.markers import MANIFEST, SUCCESS, refuse_strangers
from distsort.io.storage import Store, resolve, same_place


def part_name(number: int, parts: int, suffix: str) -> str:
    """Return the name of a part; names sorted as text are in data order.

    Examples
    --------
    >>> part_name(7, 12, ".parquet")
    'part-00007.parquet'
    """
    return f"part-{number:0{max(5, len(str(max(parts - 1, 0))))}d}{suffix}"


@contextmanager
def whole_file(store: Store, path: str) -> Iterator[IO[bytes]]:
    """Open a file that gets its name only when it is complete; two attempts at one part never mix."""
    attempt = f"{path}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        with store.open(attempt, "wb") as file:
            yield file
        store.rename(attempt, path)
    except BaseException:
        store.remove(attempt)
        raise


class Stage:
    """An output in the making.

    Parameters
    ----------
    store
        Its file system.
    target
        Where the output will be.
    folder
        The staging folder; made here.
    overwrite
        Whether an existing output is to be replaced.
    lease
        On an object store the claim on the staging folder, which ends with the stage.
    """

    def __init__(self, store: Store, target: str, folder: str, overwrite: bool, lease: Lease | None = None) -> None:
        self.store = store
        self.target = target
        self.folder = folder
        self.overwrite = overwrite
        self._lease = lease
        self._locks: list[int] = []
        try:
            store.makedirs(folder)
            self._lock(folder)
        except BaseException:
            self.abort()
            raise

    def path(self, name: str) -> str:
        """Return the staged path of `name`."""
        return f"{self.folder}/{name}"

    def publish(self, names: list[str], manifest: dict[str, Any]) -> None:
        """Put the staged files `names` in the place of the output, with a manifest and the success marker.

        Parameters
        ----------
        names
            The files that make the output; anything else in the staging folder (an attempt of a lost worker) goes.
        manifest
            What `_manifest.json` will say.

        Raises
        ------
        OutputError
            A file is missing, an output appeared meanwhile, or the file system refused; the old output stands.
        """
        with explained(self.store.url(self.target)):
            staged = set(self.store.names(self.folder))
            missing = [name for name in names if name not in staged]
            if missing:
                raise OutputError(f"{self.store.url(self.folder)}: {missing[0]} was not written")
            for name in staged.difference(names):
                self.store.remove(self.path(name))
            text = json.dumps(manifest, indent=1, ensure_ascii=False, default=str)
            self.store.write(self.path(MANIFEST), text.encode() + b"\n")
            if self.store.local:
                self.store.write(self.path(SUCCESS), b"")
            self._swap()
        self._unlock()

    def abort(self) -> None:
        """Drop what was staged."""
        try:
            self.store.remove(self.folder)
        finally:
            self._unlock()

    def _swap(self) -> None:
        old = f"{self.folder}.old"
        moved_old = moved_new = False
        try:
            if self.store.kind(self.target) is not None:
                if self.overwrite:
                    refuse_strangers(self.store, self.target)
                elif not is_vacant(self.store, self.target):
                    raise OutputError(f"{self.store.url(self.target)}: an output appeared there meanwhile")
                if not self._lock(self.target):
                    raise OutputError(f"{self.store.url(self.target)}: another job is replacing it now")
                moved_old = True
                self.store.rename(self.target, old)
            if self._lease is not None:
                self._lease.enter("swapping")
            moved_new = True
            self.store.rename(self.folder, self.target)
            if not self.store.local:
                self.store.write(f"{self.target}/{SUCCESS}", b"")
        except BaseException:
            # A local rename is atomic: only if the staging folder is gone is the target ours to remove.
            if moved_new and (not self.store.local or self.store.kind(self.folder) is None):
                self.store.remove(self.target)
            if moved_old and self.store.kind(old) is not None:
                self.store.rename(old, self.target)
            raise
        if moved_old:
            # The new output stands: what cannot be removed now, the next job to this place removes.
            with suppress(OSError):
                self.store.remove(old)

    def _lock(self, path: str) -> bool:
        if not self.store.local:
            return True
        try:
            self._locks.append(_try_lock(path))
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
        return True

    def _unlock(self) -> None:
        while self._locks:
            os.close(self._locks.pop())
        if self._lease is not None:
            # What cannot be removed now, the next job to this place removes.
            with suppress(OSError):
                self._lease.release()


def _try_lock(path: str) -> int:
    """Lock a file or folder for as long as the handle is open; BlockingIOError where another job holds it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(handle)
        raise
    return handle


def is_vacant(store: Store, path: str) -> bool:
    """Whether nothing, or an empty folder, is at `path`."""
    kind = store.kind(path)
    return kind is None or (kind == "directory" and not store.names(path))


def begin(
    destination: str | os.PathLike[str],
    sources: list[tuple[Store, str]],
    overwrite: bool,
) -> Stage:
    """Check that an output may be written, clean what killed jobs left, and make its staging folder.

    Parameters
    ----------
    destination
        Path or URL of the output folder.
    sources
        Store and path of everything that is read, as the user named it.
    overwrite
        Replace an existing output; only what a run wrote.

    Raises
    ------
    OptionError
        The output is the input, or one of them lies in the other.
    OutputError
        The output exists and `overwrite` is false, or holds what no run wrote; or the folder above it cannot be
        written.
    """
    store, target = resolve(destination)
    shown = store.url(target)
    for source, path in sources:
        place = same_place(store, target, source, path)
        if place == "equal":
            raise OptionError(f"{shown}: the output is the input itself: choose another folder")
        if place == "inside":
            raise OptionError(f"{shown}: the output lies inside the input {source.url(path)}: choose another")
        if place == "around":
            raise OptionError(f"{shown}: the output would replace the input {source.url(path)}: choose another")
    parent, name = target.rsplit("/", 1)
    if not name:
        raise OptionError(f"{shown}: the root of a file system cannot be an output")
    with explained(shown):
        folder = f"{parent}/{_prefix(name)}{uuid.uuid4().hex[:8]}"
        lease = None if store.local else Lease(store, folder)
        try:
            clean_leftovers(store, target, lease)
            if overwrite:
                refuse_strangers(store, target)
            elif not is_vacant(store, target):
                raise OutputError(f"{shown}: there is an output already: choose another place, or overwrite it")
            return Stage(store, target, folder, overwrite, lease)
        except BaseException:
            if lease is not None:
                with suppress(OSError):
                    lease.release()
            raise


def clean_leftovers(store: Store, target: str, lease: Lease | None = None) -> list[str]:
    """Remove what a killed job left beside `target`; put an old output back that it had moved away.

    Parameters
    ----------
    store, target
        The output.
    lease
        The claim of this job on an object store.

    Returns
    -------
    list of str
        The names that were cleaned.
    """
    parent, name = target.rsplit("/", 1)
    if lease is not None:
        leases = re.compile(rf"{re.escape(_prefix(name))}[0-9a-f]{{8}}{re.escape(SUFFIX)}")
        found = [f"{parent}/{other}" for other in store.names(parent or "/") if leases.fullmatch(other)]
        dead = [other.removesuffix(SUFFIX) for other in found if other != lease.path and lease.outlives(other)]
        for folder in dead:
            with suppress(FileNotFoundError):  # another job does the same
                undo(store, folder, target, SUCCESS)
        return [folder.rsplit("/", 1)[-1] for folder in dead]
    pattern = re.compile(rf"{re.escape(_prefix(name))}[0-9a-f]{{8}}(?P<old>\.old)?")
    cleaned = []
    for left in store.names(parent or "/"):
        match = pattern.fullmatch(left)
        if match is None:
            continue
        path = f"{parent}/{left}"
        try:
            handle = _try_lock(path)
        except OSError:
            # Held by a running job, gone by now, or on a disk without locks: not ours to judge.
            continue
        try:
            if match["old"] and store.kind(target) is None:
                store.rename(path, target)
            else:
                store.remove(path)
            cleaned.append(left)
        finally:
            os.close(handle)
    return cleaned


def _prefix(name: str) -> str:
    return f".{name}.distsort-"


_HINTS: dict[int, str] = {
    errno.ENOSPC: "the disk is full: free some space or choose another place",
    errno.EDQUOT: "your quota is used up: free some space or choose another place",
    errno.EACCES: "you may not write there: choose another place or ask for the permission",
    errno.EPERM: "you may not write there: choose another place or ask for the permission",
    errno.EROFS: "it is on a read-only file system: choose another place",
    errno.ENAMETOOLONG: "its name is too long: choose a shorter one",
    errno.ENOTDIR: "a folder above it is a file: choose another place",
    errno.EXDEV: "it is on another disk than the folder above it: choose another place",
}


@contextmanager
def explained(shown: str) -> Iterator[None]:
    """Turn an error of the file system into one that names the output and says what to do."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise explain(shown, error) from error


def explain(shown: str, error: OSError) -> OutputError:
    """Return the error of the file system as one that names the output and says what to do."""
    hint = _HINTS.get(error.errno or 0, "choose another place, or look at what the file system says")
    refused = OutputError(f"{shown}: cannot be written ({error.strerror or error}): {hint}")
    refused.errno = error.errno
    return refused
