"""Which paths and URLs jobs may use: only those below the allowed roots."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from distsort.errors import OptionError, ServiceError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = ("file://", "local://")


class Roots:
    """The places that jobs may read and write below.

    Links are followed before a path is judged, and no URL with ``..``, with an encoded slash or with a chain of file
    systems (``::``) is taken, so that what is judged is what will be opened.

    Parameters
    ----------
    roots
        Folders and URLs.

    Raises
    ------
    OptionError
        A root is neither an absolute path nor a plain URL.
    """

    def __init__(self, roots: Iterable[str]) -> None:
        self.texts = tuple(roots)
        self._folders: list[Path] = []
        self._urls: list[tuple[str, str, tuple[str, ...]]] = []
        for root in self.texts:
            path = local_path(root)
            if path is None:
                try:
                    self._urls.append(_split(root))
                except ValueError as error:
                    raise OptionError(f"root {root!r}: {error}") from None
            elif path.is_absolute():
                self._folders.append(path.resolve())
            else:
                raise OptionError(f"root {root!r}: it must be an absolute path or a URL")

    def check(self, url: str, field: str) -> None:
        """Refuse a path or URL that is not below a root.

        Parameters
        ----------
        url
            What a job names; wildcards are allowed.
        field
            Where it was named.

        Raises
        ------
        OptionError
            It is a relative path, or not a plain URL.
        ServiceError
            It is outside (403).
        """
        if not self.texts:
            raise ServiceError(403, "no roots are configured, so no job is taken: set distsort.service.roots")
        path = local_path(url)
        if path is None:
            try:
                scheme, host, words = _split(url)
            except ValueError as error:
                raise OptionError(f"{field}={url!r}: {error}") from None
            inside = any(
                scheme == s and host == h and len(words) >= len(w) and words[: len(w)] == w for s, h, w in self._urls
            )
        else:
            if not path.is_absolute():
                raise OptionError(f"{field}={url!r}: the service needs an absolute path or a URL")
            if ".." in path.parts:
                raise OptionError(f"{field}={url!r}: write the path without '..'")
            inside = self.holds(_fixed(path))
        if not inside:
            raise ServiceError(403, f"{field}={url!r} is outside the allowed roots ({', '.join(self.texts)})")

    def holds(self, path: str | os.PathLike[str]) -> bool:
        """Whether a local path, its links followed, is below a root."""
        resolved = Path(path).resolve()
        return any(resolved == folder or folder in resolved.parents for folder in self._folders)


def local_path(url: str) -> Path | None:
    """Return the path of a local file, None for another file system.

    Examples
    --------
    >>> local_path("file:///data/in.csv"), local_path("s3://bucket/in.csv")
    (PosixPath('/data/in.csv'), None)
    """
    for scheme in _LOCAL:
        if url.lower().startswith(scheme):
            return Path(url[len(scheme) :])
    return None if "::" in url or _SCHEME.match(url) else Path(url)


def _split(url: str) -> tuple[str, str, tuple[str, ...]]:
    if "::" in url:
        raise ValueError("a chain of file systems is not allowed")
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("a user, a query or a fragment is not allowed")
    words = tuple(word for word in parts.path.split("/") if word)
    if any(unquote(word) in ("..", ".") or "/" in unquote(word) for word in words):
        raise ValueError("'.' and '..' are not allowed")
    return parts.scheme.lower(), parts.netloc, words


def _fixed(path: Path) -> Path:
    """Return the folder above the first wildcard."""
    words = []
    for word in path.parts:
        if any(mark in word for mark in "*?["):
            break
        words.append(word)
    return Path(*words)
