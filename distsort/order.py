"""What "sorted" means for one sort: which keys, in which direction, nulls at which end. Pure and frozen."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from distsort.errors import OptionError


@dataclass(frozen=True)
class Key:
    """One sort key.

    Attributes
    ----------
    name
        Column label or index level name. None for the values of an array or of a Series.
    descending
        Largest first. Ties keep input order in both directions.
    nulls_first
        Where None, NaN, NaT and NA stand. The direction does not move them. In floats that tell NaN from NA, as those
        of Arrow and Parquet, NaN follows rules of its own: see `sort_values`.
    """

    name: Hashable = None
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Order:
    """An ordered tuple of keys, the most significant first; ties go by input position."""

    keys: tuple[Key, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def __str__(self) -> str:
        return ", ".join(
            f"{'values' if k.name is None else k.name} {'desc' if k.descending else 'asc'}"
            f" nulls {'first' if k.nulls_first else 'last'}"
            for k in self.keys
        )


def array_order(descending: bool = False) -> Order:
    """Return the order of plain array values: NaN and NaT last in both directions (NumPy's rule)."""
    return Order((Key(None, bool(descending), False),))


def make_order(
    by: Hashable | Sequence[Hashable],
    ascending: bool | Sequence[bool] = True,
    na_position: str | Sequence[str] = "last",
) -> Order:
    """Build an order from what users of pandas write.

    Parameters
    ----------
    by
        One label or a list of labels.
    ascending
        One direction for all keys or a list of one per key.
    na_position
        "first" or "last", for all keys or a list of one per key.

    Returns
    -------
    Order

    Raises
    ------
    OptionError
        No key, a repeated key, lengths that differ, or a value that is not one of those above.

    Examples
    --------
    >>> print(make_order(["a", "b"], ascending=[True, False], na_position="first"))
    a asc nulls first, b desc nulls first
    """
    names: list[Hashable] = list(by) if isinstance(by, list) else [by]
    if not names:
        raise OptionError("by= names no column: give at least one")
    repeated = sorted({str(n) for n in names if names.count(n) > 1})
    if repeated:
        raise OptionError(f"by= names {', '.join(repeated)} more than once: name each key once")
    directions = _per_key(ascending, len(names), "ascending")
    for value in directions:
        if not (isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") or value in (0, 1)):
            raise OptionError(f"ascending={value!r}: it must be True or False, or a list of one per key")
    places = _per_key(na_position, len(names), "na_position")
    for place in places:
        if place not in ("first", "last"):
            raise OptionError(f"na_position={place!r}: it must be 'first' or 'last'")
    return Order(
        tuple(Key(name, not up, place == "first") for name, up, place in zip(names, directions, places, strict=True))
    )


def _per_key(value: object, n: int, option: str) -> list[object]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * n
    if len(value) != n:
        raise OptionError(f"{option}= has {len(value)} entries for {n} keys: give one, or one per key")
    return list(value)
