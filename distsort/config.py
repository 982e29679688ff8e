"""Configuration: the ``distsort:`` section of dask.config, with defaults from distsort.yaml.

A key is named by its path below ``distsort``: ``get("pull.threshold")``. Values are read when they are used,
never at import, so ``dask.config.set({"distsort.pull.threshold": 8})`` holds for the calls inside it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from distsort.errors import OptionError

_HERE = Path(__file__).parent


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

    Examples
    --------
    >>> import dask
    >>> with dask.config.set({"distsort.pull.threshold": 8}):
    ...     get("pull.threshold")
    8
    """
    return dask.config.get(f"distsort.{path}")


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
        return int(parse_bytes(value))
    except (ValueError, TypeError, AttributeError):
        raise OptionError(f"distsort.{path}={value!r} is not a size: write one like '64 MiB'") from None


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
        return float(parse_timedelta(value))
    except (ValueError, TypeError, AttributeError, KeyError):
        raise OptionError(f"distsort.{path}={value!r} is not a time: write one like '30 s'") from None


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
    default: Any = DEFAULTS["distsort"]
    for word in path.split("."):
        default = default[word]
    if default is None or value is None or isinstance(value, type(default)):
        return
    if isinstance(default, str) and isinstance(value, int):
        return
    raise OptionError(f"--conf {setting!r}: {value!r} is not of the kind of the default, {default!r}")


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}"
