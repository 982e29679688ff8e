"""The errors that distsort raises; each names the column, file or option, what was wrong and what to do."""

from __future__ import annotations


class DistsortError(Exception):
    """Base of every error that distsort raises on purpose."""


class KeyTypeError(DistsortError, TypeError):
    """A key has values that have no order (mixed types, lists, structs); the message names the column."""


class OptionError(DistsortError, ValueError):
    """An option or a combination of options is not valid; the message names it."""


class InputError(DistsortError, ValueError):
    """The input cannot be sorted as asked (a missing column, an unreadable file, schemas that disagree)."""


class NotSortedError(DistsortError, ValueError):
    """An input that was said to be sorted is not; the message says where."""


class ValidationError(DistsortError, AssertionError):
    """A result failed its own check (order, row count or checksum); nothing of it was published."""


class OutputError(DistsortError, OSError):
    """The output cannot be written: it exists, is the input itself, or the disk refused it."""


class SortMemoryError(DistsortError, MemoryError):
    """The sort does not fit the memory it was given; the message says how much would."""

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Make it anew: what sends errors from workers to clients does not copy kinds of MemoryError otherwise."""
        return type(self), self.args


class ExchangeError(DistsortError, RuntimeError):
    """A run could not be read from the worker that holds it, time and again; the message names both."""


class ServiceError(DistsortError, RuntimeError):
    """The job service refused a request, or could not be asked; ``status`` is the HTTP status, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
