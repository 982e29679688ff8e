"""Launch policy: the one home of tile sizes, and of the numbers that describe a column to the kernels.

    compute capability, word and payload bytes, n  -->  a frozen record: threads, items, blocks per SM

Pure: no GPU library is imported, so every record can be tested and printed anywhere. The numbers were measured on an
H200 (kernels/README.md); other devices take the row whose shared memory and registers they have.
"""

from __future__ import annotations

from dataclasses import dataclass

RADIX = 256
WARP = 32
STATUS_WINDOW = 4  # unused status rows in front of the first tile (radix_onesweep.cu: WINDOW)
NARROW_LIMIT = 1 << 30  # 4-byte status words count below this


@dataclass(frozen=True)
class RadixShape:
    """How one pass of the single-pass radix sort is launched.

    Attributes
    ----------
    threads, items
        Threads of a block, keys of a thread; their product is the tile.
    blocks
        Blocks that must fit one multiprocessor: bounds the registers of a thread.
    """

    threads: int
    items: int
    blocks: int

    @property
    def tile(self) -> int:
        """Keys of one tile."""
        return self.threads * self.items

    def shared(self, word: int, payload: int, wide: bool) -> int:
        """Bytes of dynamic shared memory, as radix_pass carves it."""
        return (
            _aligned(self.tile * word)
            + (_aligned(self.tile * payload) or 16)
            + self.threads // WARP * RADIX * 4
            + RADIX * (8 if wide else 4)
            + _aligned(self.threads // WARP * 4)
            + 16
        )


@dataclass(frozen=True)
class HistogramShape:
    """How the digits are counted: threads, copies of each bin, blocks of the grid."""

    threads: int
    columns: int
    blocks: int

    def shared(self, digits: int) -> int:
        """Bytes of dynamic shared memory, as radix_histogram carves it."""
        return digits * RADIX * self.columns * 4 + self.threads // WARP * 8 + _aligned(digits * 4 + 4)


def _aligned(n: int) -> int:
    return -(-n // 16) * 16


# (bytes of a word in flight, bytes of a separate payload) -> rows of (smallest n, threads, items, blocks).
# Big tiles at few blocks per SM win: longer runs of one digit per tile, and fewer status rows to look back at.
_Rows = tuple[tuple[int, int, int, int], ...]
_NINE: dict[tuple[int, int], _Rows] = {
    (1, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 3), (1 << 22, 256, 40, 3)),
    (2, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 3), (1 << 22, 256, 40, 3)),
    (4, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 3), (1 << 22, 256, 40, 3)),
    (8, 0): ((0, 256, 16, 3), (1 << 22, 384, 24, 2)),
    (4, 8): ((0, 256, 16, 2), (1 << 22, 256, 32, 2)),
    (8, 4): ((0, 256, 16, 2), (1 << 22, 256, 32, 2)),
    (8, 8): ((0, 256, 16, 2), (1 << 22, 256, 24, 2)),
}
# 164 KB of shared memory an SM (8.0), and devices with less
_EIGHT: dict[tuple[int, int], _Rows] = {
    (1, 0): ((0, 256, 16, 2), (1 << 22, 256, 32, 2)),
    (2, 0): ((0, 256, 16, 2), (1 << 22, 256, 32, 2)),
    (4, 0): ((0, 256, 16, 2), (1 << 22, 256, 32, 2)),
    (8, 0): ((0, 256, 16, 2), (1 << 22, 256, 20, 2)),
    (4, 8): ((0, 256, 12, 2),),
    (8, 4): ((0, 256, 12, 2),),
    (8, 8): ((0, 256, 10, 2),),
}


def radix_shape(capability: tuple[int, int], word: int, payload: int, n: int) -> RadixShape:
    """Return the shape of a radix pass.

    Parameters
    ----------
    capability
        Compute capability of the device, for example (9, 0).
    word
        Bytes of the word in flight: the key, or key and a payload of 4 bytes packed.
    payload
        Bytes of a payload in an array of its own; 0 without.
    n
        Number of keys.
    """
    table = _NINE if capability >= (9, 0) else _EIGHT
    chosen = max(row for row in table[word, payload] if row[0] <= n)
    return RadixShape(*chosen[1:])


def histogram_shape(capability: tuple[int, int], digits: int, n: int, multiprocessors: int) -> HistogramShape:
    """Return the shape of the counting kernel: one column per lane while 128 KB hold them."""
    columns = 32 if digits <= 4 else 16
    if capability < (9, 0) and capability != (8, 0):
        columns //= 2
    keys_per_block = 1024 * 16
    return HistogramShape(1024, columns, max(1, min(multiprocessors, n // keys_per_block)))


@dataclass(frozen=True)
class Codec:
    """How a column's bits become codes (keys.cuh: Codec), each a non-negative integer below 2^64."""

    negative: int
    flip: int
    lift: int
    infinity: int
    nan: int


_FRACTION_BITS = {2: 10, 4: 23, 8: 52}


def codec(
    kind: str, itemsize: int, descending: bool = False, nulls_first: bool = False, unified: bool = False
) -> Codec:
    """Return the code of a column.

    Parameters
    ----------
    kind
        NumPy's letter: "u" and "b" unsigned, "i" signed, "f" float, "M" and "m" dates whose lowest value is NaT.
    itemsize
        Bytes of a value.
    descending
        Largest first; nulls do not move.
    nulls_first
        Where NaN and NaT stand. Floats: only together with `unified`.
    unified
        Whether the kernels make all NaNs one and both zeros one before they encode (sorts that carry positions).

    Examples
    --------
    >>> codec("i", 1)
    Codec(negative=0, flip=128, lift=0, infinity=0, nan=0)
    """
    bits = 8 * itemsize
    ones = (1 << bits) - 1
    sign = 1 << (bits - 1)
    reverse = ones if descending else 0
    if kind in "ub":
        return Codec(0, reverse, 0, 0, 0)
    if kind == "i":
        return Codec(0, sign ^ reverse, 0, 0, 0)
    if kind in "mM":
        # NaT is 0 ascending and all ones descending; one step around the circle takes it to the other end
        lift = (0 if nulls_first else 1) if not descending else (-1 & ones if nulls_first else 0)
        return Codec(0, sign ^ reverse, lift, 0, 0)
    if kind != "f":
        raise ValueError(f"no code for values of kind {kind!r}")
    fraction = (1 << _FRACTION_BITS[itemsize]) - 1
    infinity = ones >> 1 & ~fraction
    if not unified:
        return Codec(ones >> 1, sign ^ reverse, fraction, infinity, 0)
    # the one NaN is the one whose plain code is 0; a lift of 1 takes it to the top
    return Codec(ones >> 1, sign ^ reverse, 0 if nulls_first else 1, infinity, ones >> 1 if descending else ones)


@dataclass(frozen=True)
class Squeeze:
    """Which bits of a code take part, moved together (radix_onesweep.cu: Squeeze).

    Attributes
    ----------
    masks, shifts
        For each of four stretches, where it stands in the squeezed code and how far it was moved down.
    bits
        Bits of the squeezed code.
    """

    masks: tuple[int, ...]
    shifts: tuple[int, ...]
    bits: int


STRETCHES = 4


def stretches(varying: int) -> Squeeze | None:
    """Lay the varying bits of a code side by side; None when they lie in more stretches than a kernel moves.

    Examples
    --------
    >>> stretches(0xF00F)
    Squeeze(masks=(15, 240, 0, 0), shifts=(0, 8, 0, 0), bits=8)
    """
    masks: list[int] = []
    shifts: list[int] = []
    bits = at = 0
    while varying >> at:
        if not varying >> at & 1:
            at += 1
            continue
        length = 1
        while varying >> (at + length) & 1:
            length += 1
        masks.append(((1 << length) - 1) << bits)
        shifts.append(at - bits)
        bits += length
        at += length
    if len(masks) > STRETCHES:
        return None
    pad = [0] * (STRETCHES - len(masks))
    return Squeeze((*masks, *pad), (*shifts, *pad), bits)
