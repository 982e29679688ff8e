"""The most likely mistakes behind an error, and what to do about each: at most three, the likeliest first.

An error names the column, file or option, and what was wrong with it; the hints say what people have usually done when
they see it. A case is known by a pattern of its message, or, where none fits, by its class; the first that fits is
taken. ``{close}`` in a hint becomes the names that come close, and a hint without any is left out.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from distsort import errors
from distsort.cli import mistakes, mistakes_jobs

MOST = 3
CASES = (*mistakes.CASES, *mistakes_jobs.CASES)

# Where no pattern fits, by the class of the error.
BY_CLASS: dict[type[BaseException], tuple[str, ...]] = {
    errors.NotSortedError: (
        "it is sorted by another key or direction: give -k and -r as it was sorted",
        "text was sorted by a locale: sort it with LC_ALL=C, or by 'distsort sort'",
        "it is not sorted: use 'distsort sort' without -m",
    ),
    errors.ValidationError: (
        "an input file was changed while it was sorted: sort again when nothing writes to it",
        "two jobs write to one place: give each an output of its own",
        "neither is so: this is a fault of distsort, please report it with -v",
    ),
    errors.ExchangeError: (
        "a worker ran out of memory and was killed: give it more, or start more workers",
        "the network between workers is slow or cut: --conf pull.timeout=120s",
        "a worker hangs: look at its log and at the dashboard",
    ),
    MemoryError: (
        "the input is larger than memory: add -S 2G, which spills to -T",
        "one row group or file is too large: write smaller ones",
        "other programs take the memory: look at 'free -h'",
    ),
    ConnectionError: (
        "the scheduler or a worker was closed meanwhile: look at its log",
        "a worker was killed for its memory: give it more, or start more workers",
        "the network was cut: sort again",
    ),
}


def near_files(path: str) -> list[str]:
    """Return what lies beside a file that is not there under a name like it; local paths only."""
    wanted = Path(path)
    if "://" in path or not wanted.parent.is_dir():
        return []
    beside = [entry.name for entry in wanted.parent.iterdir()]
    return [str(wanted.with_name(name)) for name in difflib.get_close_matches(wanted.name, beside, n=2, cutoff=0.5)]


def near_choice(text: str) -> list[str]:
    """Return what comes close to a value that is none of the choices, else the choices, where a message has them.

    Examples
    --------
    >>> near_choice("Invalid value for '--backend': 'numpi' is not one of 'numpy', 'cupy'.")
    ['the word is misspelt: numpy comes close']
    >>> near_choice("backend='foo': it must be 'numpy', 'cupy' or None for what the input is made of")
    ['another word was meant: the choices are numpy and cupy']
    """
    found = re.search(r"'([^']+)'(?: is not|: it must be) (one of )?(.+)", text)
    if found is None:
        return []
    # Choices stand in quotes, or alone behind "one of"; other words of a message are no choices.
    choices = re.findall(r"'(\w+)'", found[3]) or (re.findall(r"\w+", found[3]) if found[2] else [])
    near = difflib.get_close_matches(found[1], choices, n=2)
    if near:
        return [f"the word is misspelt: {' or '.join(near)} comes close"]
    listed = " and ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else ""
    return [f"another word was meant: the choices are {listed}"] if listed else []


def hints(error: BaseException, message: str | None = None) -> list[str]:
    """Return what is likely wrong and what to do; empty where nothing is known.

    Parameters
    ----------
    error
        That was raised.
    message
        What is shown of it, if not its text.

    Examples
    --------
    >>> hints(ValueError("delimiter=';;': it must be one character"))[0]
    'a tab is written as tab: --delimiter tab'
    """
    text = str(error) if message is None else message
    for case in CASES:
        found = re.search(case.pattern, text)
        if found is not None:
            near = near_files(found[1]) if case.near_files else []
            told = (hint.replace("{close}", " or ".join(near)) for hint in case.hints if near or "{close}" not in hint)
            return list(told)[:MOST]
    if near := near_choice(text):
        return near
    return next((list(told) for kind, told in BY_CLASS.items() if isinstance(error, kind)), [])
