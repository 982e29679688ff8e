"""Configuration: the ``distsort:`` section of dask.config, with defaults from distsort.yaml.

A key is named by its path below ``distsort``: ``get("pull.threshold")``. Values are read when they are used,
never at import, so ``dask.config.set({"distsort.pull.threshold": 8})`` holds for the calls inside it. They are checked
then too, wherever they were set: numbers, sizes and times must be more than 0, but for those in `_FROM_ZERO`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from distsort.errors import OptionError

_HERE = Path(__file__).parent

# Where 0 has a meaning: always pull, no second try, always a cluster, no pause, kill at once, remember nothing.
_FROM_ZERO = {
    "pull.threshold",
    "pull.retries",
    "files.in-process",
    "progress.interval",
    "service.stop-timeout",
    "service.keep",
    "service.keep-for",
}
# Numbers that need not be whole.
_REAL = {"rates.rows"}
# How the defaults of sizes and times are written, which tells them from other texts.
_SIZE = re.compile(r"\d+ [KMGT]iB")
_TIME = re.compile(r"\d+ (?:ms|s|days)")
# What pyarrow writes Parquet with; null is none.
CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


def _load(name: str) -> dict[str, Any]:
    with (_HERE / name).open(encoding="utf-8") as file:
        loaded: dict[str, Any] = yaml.safe_load(file)
    return loaded


DEFAULTS: dict[str, Any] = _load("distsort.yaml")
dask.config.update_defaults(DEFAULTS)


def get(path: str) -> Any:
    """Return the value at ``distsort.<path>``.

    Parameters
    ----------
    path
        Words joined by dots, as in ``"pull.threshold"``.

    Raises
    ------
    KeyError
        There is no such key: a mistake in this package, since every key has a default.
    OptionError
        A number is out of range or none, or the codec is not known.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"distsort.pull.threshold": 8}):
    ...     get("pull.threshold")
    8
    """
    # Where the first use of this module was within a dask.config.set, its end takes the defaults back.
    value = dask.config.get(f"distsort.{path}", _default(path))
    if isinstance(_default(path), int):
        real = path in _REAL
        if isinstance(value, bool) or not isinstance(value, Real if real else Integral):
            raise OptionError(f"distsort.{path}={value!r}: it must be a {'number' if real else 'whole number'}")
        _check_range(path, value, float(value))
    elif path == "files.compression" and value is not None and str(value).lower() not in CODECS:
        raise OptionError(f"distsort.{path}={value!r}: it must be one of {', '.join(CODECS)}")
    return value


def get_bytes(path: str) -> int:
    """Return the size at `path` in bytes.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"distsort.files.part-size": "2 MiB"}):
    ...     get_bytes("files.part-size")
    2097152
    """
    value = get(path)
    try:
        size = int(parse_bytes(value))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise OptionError(f"distsort.{path}={value!r} is not a size: write one like '64 MiB'") from None
    _check_range(path, value, size)
    return size


def get_seconds(path: str) -> float:
    """Return the time at `path` in seconds.

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"distsort.progress.interval": "50 ms"}):
    ...     get_seconds("progress.interval")
    0.05
    """
    value = get(path)
    try:
        seconds = float(parse_timedelta(value))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise OptionError(f"distsort.{path}={value!r} is not a time: write one like '30 s'") from None
    _check_range(path, value, seconds)
    return seconds


def check() -> None:
    """Read every setting of a sort, so that a wrong one is refused before the work and not at its end.

    Raises
    ------
    OptionError
        The first that is wrong.
    """
    for path in keys():
        default = str(_default(path))
        if path.startswith("service."):
            continue
        if _SIZE.fullmatch(default):
            get_bytes(path)
        elif _TIME.fullmatch(default):
            get_seconds(path)
        else:
            get(path)


def keys() -> list[str]:
    """Return the path of every key that has a default, in the order of the yaml."""
    return list(_leaves(DEFAULTS["distsort"]))


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``key=value`` words into what dask.config.set takes; values are read as YAML.

    Keys of distsort may be written with or without ``distsort.``; dotted keys of other sections
    (``distributed.``, ``dataframe.``) pass through.

    Raises
    ------
    OptionError
        A word without ``=``, or a key of distsort that does not exist.

    Examples
    --------
    >>> parse_settings(("pull.threshold=8", "distributed.comm.timeouts.connect=5s"))
    {'distsort.pull.threshold': 8, 'distributed.comm.timeouts.connect': '5s'}
    """
    known = set(keys())
    ours = {"distsort", *DEFAULTS["distsort"]}
    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise OptionError(f"--conf {setting!r}: write KEY=VALUE, as in pull.threshold=128")
        path = key.removeprefix("distsort.").replace("_", "-")
        if path in known:
            key = f"distsort.{path}"
        elif "." not in key or key.split(".")[0] in ours:
            near = difflib.get_close_matches(path, known, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the keys are {', '.join(keys())}"
            raise OptionError(f"--conf {setting!r}: there is no key {path!r}; {hint}")
        parsed[key] = yaml.safe_load(text)
        if path in known:
            _check_type(setting, path, parsed[key])
    return parsed


def _check_type(setting: str, path: str, value: Any) -> None:
    """Refuse a value of another type than that of the default, where it has one."""
    default = _default(path)
    if default is None or value is None or isinstance(value, type(default)):
        return
    if isinstance(default, str) and isinstance(value, int):
        return
    raise OptionError(f"--conf {setting!r}: {value!r} is not of the kind of the default, {default!r}")


def _check_range(path: str, value: Any, number: float) -> None:
    """Refuse a value that is negative, or 0 where that has no meaning; NaN is neither."""
    if path in _FROM_ZERO:
        if not number >= 0:
            raise OptionError(f"distsort.{path}={value!r}: it must be 0 or more")
    elif not number > 0:
        raise OptionError(f"distsort.{path}={value!r}: it must be more than 0")


def _default(path: str) -> Any:
    found: Any = DEFAULTS["distsort"]
    for word in path.split("."):
        found = found[word]
    return found


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"
