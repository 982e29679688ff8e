"""Where files are: one small interface over fsspec.

Readers, writers and the commit see local disks, object stores and memory alike.
A `Store` is a file system and the handful of operations that the package uses. Each operation is one method, which
makes it also the one place where a test can make the n-th file operation fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from distsort.errors import InputError

# Readers of data folders skip names that start so: markers, manifests, staging folders.
HIDDEN = ("_", ".")


@dataclass(frozen=True)
class Store:
    """A file system and what is asked of it; paths are the file system's own, without a protocol."""

    fs: Any

    @property
    def local(self) -> bool:
        """Whether renaming a folder is one atomic step."""
        return isinstance(self.fs, LocalFileSystem)

    def url(self, path: str) -> str:
        """Return `path` as a person would write it."""
        return path if self.local else str(self.fs.unstrip_protocol(path))

    def kind(self, path: str) -> str | None:
        """Return "file", "directory" or None where nothing is."""
        if self.leads_nowhere(path):
            return "file"
        try:
            return str(self.fs.info(path)["type"])
        except FileNotFoundError:
            return None

    def leads_nowhere(self, path: str) -> bool:
        """Whether a link is there whose target is not."""
        return self.local and os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114

    def size(self, path: str) -> int:
        """Return the length of a file in bytes."""
        return int(self.fs.size(path))

    def names(self, path: str) -> list[str]:
        """Return the names in one folder, sorted; nothing where the folder is not."""
        try:
            found = self.fs.ls(path, detail=False, refresh=True)
        except FileNotFoundError:
            return []
        own = path.strip("/")
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in found if name.strip("/") != own)

    def files(self, path: str) -> list[str]:
        """Return every file below a folder, sorted as text, hidden names and what lies below them left out."""
        root = path.rstrip("/")
        found = []
        for name in self.fs.find(root):
            below = name[len(root) :].lstrip("/") if name.startswith(root) else name.lstrip("/")
            if not any(word.startswith(HIDDEN) for word in below.split("/")):
                found.append(name)
        return sorted(found)

    def open(self, path: str, mode: str = "rb", compression: str | None = None) -> IO[bytes]:
        """Open a file for reading or writing bytes."""
        file: IO[bytes] = self.fs.open(path, mode, compression=compression)
        return file

    def write(self, path: str, data: bytes) -> None:
        """Write one small file."""
        with self.open(path, "wb") as file:
            file.write(data)

    def read(self, path: str) -> bytes:
        """Read one small file."""
        with self.open(path) as file:
            return file.read()

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """Read the bytes of a file between two positions; may be called from several threads."""
        return bytes(self.fs.cat_file(path, start=start, end=stop))

    def makedirs(self, path: str) -> None:
        """Make a folder and those above it."""
        self.fs.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Move a file or a whole folder to a place where nothing is; atomic on a local disk.

        Raises
        ------
        OSError
            Something that is not an empty folder stands at `new`.
        """
        if self.local:
            Path(old).rename(new)
        elif self.kind(old) == "file":
            self.fs.mv(old, new)
        else:
            for path in sorted(self.fs.find(old)):
                self.fs.mv(path, new + path[len(old) :])
            if self.kind(old) is not None:
                self.fs.rm(old, recursive=True)

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it; nothing there is no error.

        A task that a stopped job left running may still add a file while the folder is emptied, and one failing
        operation must not leave half a folder behind: so a removal is tried three times.
        """
        for attempt in range(3):
            try:
                kind = self.kind(path)
                if kind is not None:
                    self.fs.rm(path, recursive=kind == "directory")
                return
            except FileNotFoundError:
                continue
            except OSError:
                if attempt == 2:
                    raise


def resolve(url: str | os.PathLike[str]) -> tuple[Store, str]:
    """Return the store of a path or URL and the path in it; a local path is made absolute, links kept.

    Examples
    --------
    >>> store, path = resolve("memory://bucket/in")
    >>> store.local, path
    (False, '/bucket/in')
    """
    text = os.fspath(url)
    if "://" not in text:
        text = "file://" + os.path.abspath(Path(text).expanduser())  # noqa: PTH100
    try:
        fs, path = fsspec.core.url_to_fs(text)
    except (ValueError, ImportError) as error:
        raise InputError(f"{os.fspath(url)}: {error}") from error
    return Store(fs), path.rstrip("/") or "/"


def expand(urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[tuple[Store, str, str]]:
    """Return (store, file, root) for every file that paths, folders, globs or a list of them name.

    The files of one folder come sorted as text; the entries of a list keep their order. `root` is the folder that
    was asked for, from which hive folders are read; for a file it is its own folder.

    Raises
    ------
    InputError
        Nothing is there, or a folder holds no file.
    """
    several: Sequence[str | os.PathLike[str]]
    several = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    if not several:
        raise InputError("no input: name at least one file or folder")
    found: list[tuple[Store, str, str]] = []
    for url in several:
        store, path = resolve(url)
        kind = store.kind(path)
        if store.leads_nowhere(path):
            raise InputError(f"{url}: the link leads to nothing: there is no {os.path.realpath(path)}")
        if kind == "file":
            found.append((store, path, path.rsplit("/", 1)[0]))
        elif kind == "directory":
            files = store.files(path)
            if not files:
                raise InputError(f"{url}: the folder holds no file to sort")
            found += [(store, file, path) for file in files]
        elif any(mark in path for mark in "*?["):
            # The folder above the first wildcard is the root.
            fixed = path[: min(path.find(mark) for mark in "*?[" if mark in path)].rsplit("/", 1)[0]
            files = sorted(file for file in store.fs.glob(path) if store.kind(file) == "file")
            if not files:
                raise InputError(f"{url}: no file matches")
            found += [(store, file, fixed) for file in files]
        elif kind is not None:
            raise InputError(f"{url}: it is neither a file nor a folder: write what it gives to a file, and sort that")
        else:
            raise InputError(f"{url}: there is no such file or folder")
    return found


def same_place(store: Store, path: str, other: Store, other_path: str) -> str | None:
    """Return "equal", "inside" (the first lies in the second), "around" or None."""
    if type(store.fs) is not type(other.fs):
        return None
    a, b = (
        [word for word in (os.path.realpath(p) if s.local else p).split("/") if word]
        for s, p in ((store, path), (other, other_path))
    )
    if a == b:
        return "equal"
    if a[: len(b)] == b:
        return "inside"
    if b[: len(a)] == a:
        return "around"
    return None
