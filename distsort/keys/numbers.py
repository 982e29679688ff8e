"""Numbers as fields: integers, floats, complex, and integers wider than a word.

The rules, once:

- An integer becomes its distance from the smallest one (descending: from the largest, which reverses the order and
  leaves ties alone; a negation would overflow).
- The bits of a float are those of a sign-magnitude integer. Setting the sign bit of positive numbers and inverting all
  bits of negative ones makes them ascend. -0.0 takes the code of +0.0.
- A null takes a code of its own below or above all others, where the range leaves one; else one bit goes in front.
  The direction does not move it. NaN and NaT are nulls, save where pandas tells NaN and null apart.
- Wider numbers are cut into limbs, the most significant signed, and each limb is an integer.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from distsort.keys.codes import BLOCK, Field, Plain, UIntArray, narrowest
from distsort.order import Key

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

NAT = np.iinfo(np.int64).min


def integer_fields(values: Array, null: Mask | None, key: Key, own: bool = False) -> list[Field]:
    """Encode integers or booleans.

    Parameters
    ----------
    values
        Native signed, unsigned or bool, shape (n,).
    null
        True for nulls, whose value does not count; or None.
    key
        Direction and place of nulls.
    own
        `values` may be overwritten.
    """
    n = len(values)
    if null is not None and not null.any():
        null = None
    unsigned = values.view(f"u{values.dtype.itemsize}")
    lowest, highest = _extent(values if values.dtype.kind != "b" else unsigned, null)
    span = highest - lowest
    if not n or (null is not None and null.all()):
        return [Plain(np.zeros(n, np.uint8), 0)]
    apart = null is not None and span + 1 == 1 << 64
    bits = (span + (null is not None and not apart)).bit_length()
    if null is None and not key.descending and lowest >= 0 and highest.bit_length() == bits:
        return [Plain(unsigned.astype(narrowest(bits), copy=False), bits)]
    kind = narrowest(bits)
    out = unsigned if own and unsigned.dtype == kind else np.empty(n, kind)
    pivot = unsigned.dtype.type((highest if key.descending else lowest) % (1 << 8 * unsigned.itemsize))
    shift = kind(null is not None and key.nulls_first and not apart)
    code = kind(0 if null is None or apart or key.nulls_first else span + 1)
    for start in range(0, n, BLOCK):
        part = unsigned[start : start + BLOCK]
        made = (pivot - part if key.descending else part - pivot).astype(kind, copy=False)
        if null is not None:
            made += shift
            made[null[start : start + BLOCK]] = code
        out[start : start + BLOCK] = made
    fields: list[Field] = [Plain(out, bits)]
    if null is not None and apart:
        fields.insert(0, null_field(null, key))
    return fields


def _extent(values: Array, null: Mask | None) -> tuple[int, int]:
    """Return the smallest and largest value that is not null; (0, 0) where there is none."""
    if null is None:
        return (int(values.min()), int(values.max())) if len(values) else (0, 0)
    lowest: int | None = None
    highest = 0
    for start in range(0, len(values), BLOCK):
        part = values[start : start + BLOCK][~null[start : start + BLOCK]]
        if len(part):
            low, high = int(part.min()), int(part.max())
            lowest, highest = (low, high) if lowest is None else (min(lowest, low), max(highest, high))
    return (0, 0) if lowest is None else (lowest, highest)


NanRule = Literal["null", "largest", "by nulls"]


def float_fields(values: Array, null: Mask | None, key: Key, nan: NanRule = "null") -> list[Field]:
    """Encode float16, float32, float64 or longdouble.

    Parameters
    ----------
    values
        Native floats, shape (n,).
    null
        True for nulls that are not NaN; or None.
    key
        Direction and place of nulls.
    nan
        "null": NaN is a null. "largest": NaN is the largest number. "by nulls": NaN stands between numbers and nulls.
    """
    if values.dtype.itemsize > 8:
        return _longdouble_fields(values, null, key)
    size = values.dtype.itemsize
    unsigned = np.dtype(f"u{size}").type
    signed = np.dtype(f"i{size}").type
    top = unsigned(1 << (8 * size - 1))
    minus_zero = unsigned((1 << (8 * size - 1)) - 1)
    beyond = np.array(np.inf, values.dtype).view(unsigned) | unsigned(1 << (np.finfo(values.dtype).nmant - 1)) | top
    if nan == "null" and null is None:
        # The only nulls: a NaN code at the end where nulls go spares a mask.
        nan = "by nulls"
    nan_code = beyond if nan == "largest" or key.descending == key.nulls_first else ~beyond
    out = np.empty(len(values), unsigned)
    lost = None if null is None else null.copy()
    for start in range(0, len(values), BLOCK):
        part = values[start : start + BLOCK]
        bits = part.view(unsigned)
        code = (part.view(signed) >> signed(8 * size - 1)).view(unsigned)
        code |= top
        code ^= bits
        zero = code == minus_zero
        if zero.any():
            code += zero
        is_nan = np.isnan(part)
        if is_nan.any():
            if lost is not None and nan == "null":
                lost[start : start + BLOCK] |= is_nan
            else:
                code[is_nan] = nan_code
        out[start : start + BLOCK] = code
    return integer_fields(out, lost, key, own=True)


def _longdouble_fields(values: Array, null: Mask | None, key: Key) -> list[Field]:
    """Encode the 80-bit floats of x86: 64 bits of mantissa below 16 of sign and exponent."""
    lost = np.isnan(values)
    if null is not None:
        lost |= null
    limbs = np.ascontiguousarray(values).view(np.uint64).reshape(len(values), 2)
    power = limbs[:, 1].astype(np.uint16)
    negative = (power >> np.uint16(15)).astype(bool)
    power = np.where(negative, ~power, power | np.uint16(1 << 15))
    mantissa = np.where(negative, ~limbs[:, 0], limbs[:, 0])
    zero = values == 0
    power[zero], mantissa[zero] = 1 << 15, 0
    return [*integer_fields(power, lost, key), *integer_fields(mantissa, lost, key)]


def complex_fields(values: Array, null: Mask | None, key: Key, one_null: bool) -> list[Field]:
    """Encode complex numbers: by real part, then by imaginary part.

    Parameters
    ----------
    values
        Native complex, shape (n,).
    null
        True for nulls, or None.
    key
        Direction and place of nulls.
    one_null
        pandas' rule: a NaN in either part makes a null. Else NumPy's: R + Rj, R + NaNj, NaN + Rj, NaN + NaNj are
        four classes in this order in both directions.
    """
    real, imag = np.ascontiguousarray(values.real), np.ascontiguousarray(values.imag)
    no_real, no_imag = np.isnan(real), np.isnan(imag)
    if null is not None:
        no_real |= null
        no_imag |= null
    fields: list[Field] = []
    if one_null:
        no_real |= no_imag
        no_imag = no_real
    elif no_real.any() or no_imag.any():
        group = no_real.view(np.uint8) * np.uint8(2) + no_imag.view(np.uint8)
        if key.nulls_first:
            group = (group + np.uint8(3)) % np.uint8(4)
        fields.append(Plain(group, 2))
    return [*fields, *float_fields(real, no_real, key), *float_fields(imag, no_imag, key)]


def limb_fields(limbs: npt.NDArray[np.uint64], null: Mask | None, key: Key) -> list[Field]:
    """Encode wide signed integers.

    Parameters
    ----------
    limbs
        uint64, shape (n, k), the least significant limb first, two's complement.
    null
        True for nulls, or None.
    key
        Direction and place of nulls.
    """
    fields = integer_fields(np.ascontiguousarray(limbs[:, -1]).view(np.int64), null, key)
    for k in range(limbs.shape[1] - 2, -1, -1):
        fields += integer_fields(np.ascontiguousarray(limbs[:, k]), null, key)
    return fields


def time_fields(ticks: npt.NDArray[np.int64], key: Key, null: Mask | None = None) -> list[Field]:
    """Encode the ticks of datetimes, timedeltas or periods, in any unit; the smallest int64 is NaT."""
    if len(ticks) and int(ticks.min()) == NAT:
        lost = ticks == NAT
        null = lost if null is None else null | lost
    return integer_fields(ticks, null, key)


def null_field(null: Mask, key: Key) -> Field:
    """Return the bit that sends nulls to their place."""
    bit: UIntArray = (null != key.nulls_first).view(np.uint8)
    return Plain(bit, 1)
