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
    (1, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 2)),
    (2, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 3), (1 << 22, 256, 40, 3), (1 << 30, 256, 48, 2)),
    (4, 0): ((0, 256, 16, 3), (1 << 20, 256, 32, 3), (1 << 22, 256, 48, 3)),
    (8, 0): ((0, 256, 16, 3), (1 << 22, 384, 24, 2)),
    (1, 8): ((0, 256, 32, 2),),
    (2, 8): ((0, 256, 32, 2),),
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
    (1, 8): ((0, 256, 12, 2),),
    (2, 8): ((0, 256, 12, 2),),
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


REPAIR_THREADS = 512  # of radix_repair
FIND_THREADS = 1024  # of radix_find_specials, one block
REPAIR_BLOCKS = 4  # per multiprocessor at most; their warps take pieces in turn
PIECE_BYTES = 2048  # radix_job.cuh: Pieces

FINISH_SHAPE = (256, 8)  # threads, items of radix_finish


def read_plan_from(size: int) -> int:
    """Return from how many keys of `size` bytes on the launcher reads the plan back (128 bytes, some 20 us).

    It then launches only the passes that run, on fewer and narrower digits where it can. Smaller sorts never wait.
    """
    return {4: 1 << 25, 8: 1 << 23}.get(size, 1 << 62)


# Sorting by the top bits first must save this many passes of eight; a sample of so many keys decides.
FINISH_SAVES = 2
SAMPLE = 1 << 16
# Mean number of further keys in a key's run up to which the finish is cheap.
FINISH_NEIGHBOURS = 1.0


# One launch with all blocks resident (radix_small.cu) up to this many keys.
SMALL_LIMIT = 1 << 18
SMALL_THREADS = 1024
SMALL_BLOCKS = 64  # at most: the limit over the tile


def small_items(n: int) -> int:
    """Return the keys of a thread of radix_small: few while few blocks do, since every block reads all blocks' rows."""
    return 1 if n <= 1 << 15 else 2 if n <= 1 << 17 else 4


def allowed_ties(n: int) -> int:
    """Return how many neighbours of the sorted sample may agree: what runs of the allowed length would show."""
    return max(4, int(SAMPLE * SAMPLE / (2 * n) * FINISH_NEIGHBOURS))


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


def unify_codec(plain: Codec, itemsize: int) -> Codec:
    """Return the code for positions of the floats that `plain` sorts alone, nulls last."""
    ones = (1 << 8 * itemsize) - 1
    ascending = plain.flip == 1 << (8 * itemsize - 1)
    return Codec(plain.negative, plain.flip, 1, plain.infinity, ones if ascending else ones >> 1)


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


@dataclass(frozen=True)
class RowShape:
    """How rows of one length are sorted (row_sort.cu).

    Attributes
    ----------
    lanes
        Lanes of a warp to each row; 0: a block to each row.
    threads, items
        Threads of a block, elements of a thread.
    most_threads
        What the kernel is compiled for.
    shared
        Bytes of dynamic shared memory.
    """

    lanes: int
    threads: int
    items: int
    most_threads: int
    shared: int


def padded_bytes(elements: int, size: int) -> int:
    """Return the bytes of a padded shared array (block_sort.cuh: Padded)."""
    return (elements + elements // WARP) * size


def element_bytes(word: int, index: bool) -> int:
    """Return the bytes of what a comparison sort moves: a key, or a key and its position (networks.cuh: Element)."""
    if not index:
        return max(word, 4)
    return 8 if word <= 4 else 2 * word


LANE_ITEMS, LANE_THREADS = 8, 256  # 8 elements in registers: 21 of 36 steps for a row of 256 stay inside a thread
ROW_ITEMS, ROW_ITEMS_WIDE, ROW_THREADS = 16, 8, 512  # wide: 8-byte keys with positions take 3 registers each
FEW_ROWS, FEW_ROWS_THREADS = 128, 1024  # fewer rows than multiprocessors: only latency counts, so few keys a thread


def row_shape(word: int, index: bool, n: int, rows: int = 1 << 20) -> RowShape | None:
    """Return how to sort rows of n keys of `word` bytes; None when a row does not fit one block.

    Examples
    --------
    >>> row_shape(4, False, 256)
    RowShape(lanes=32, threads=256, items=8, most_threads=256, shared=0)
    >>> row_shape(4, False, 8193) is None
    True
    """
    capacity = 1 << max(n - 1, 0).bit_length()
    if capacity <= WARP * LANE_ITEMS:
        return RowShape(max(1, capacity // LANE_ITEMS), LANE_THREADS, LANE_ITEMS, LANE_THREADS, 0)
    wide = index and word == 8
    items, most = ROW_ITEMS_WIDE if wide else ROW_ITEMS, ROW_THREADS
    if capacity > items * most:
        return None
    if rows <= FEW_ROWS:
        items, most = 4 if capacity <= 4 * FEW_ROWS_THREADS else 8, FEW_ROWS_THREADS
    return RowShape(0, capacity // items, items, most, padded_bytes(capacity, element_bytes(word, index)))


MERGE_SORT_THREADS, MERGE_SORT_ITEMS = 256, 8  # 2 Ki keys a tile: 48 KB hold them up to 16 bytes wide
LADDER_THREADS = 256  # a thread for each of 2^8 buckets, warps enough to hide a load
SCAN_ROWS = 16  # entries of a thread in the ladder's scan: as many loads in flight
LADDER_COARSENING = 16  # keys of a thread at most: two tiles of 8-byte keys take 64 KB
MERGE_BASIC_ITEMS = 16  # outputs of a thread
MERGE_LADDER_TILE = 2048  # elements of A and of B in shared memory: 32 KB of 8-byte keys
MERGE_LADDER_BLOCKS = 1056  # sections: 8 blocks to each of an H200's 132 multiprocessors


@dataclass(frozen=True)
class MergeShape:
    """How the k-way merge is launched (merge_kway.cu).

    Attributes
    ----------
    threads, items
        Threads of a block, keys of a thread; odd, so that neighbouring threads write to different banks.
    bulk
        Whether tiles are moved by bulk copies (compute capability 9.0 on) instead of 16-byte loads and stores.
    """

    threads: int
    items: int
    bulk: bool

    def tile(self, size: int, k: int) -> int:
        """Return the keys of an output tile; some threads are spared where the pairs of a round begin."""
        spare = 0 if k == 2 else max(4, 16 // size)
        return (self.threads - spare) * self.items

    def shared(self, size: int, k: int, carry: bool) -> int:
        """Return the bytes of dynamic shared memory, as merge_tiles carves it."""
        room = self.threads * self.items + 2 * k * (16 // size)
        return 2 * (_aligned(room * size) + (_aligned(room * 2) if carry else 0))


MERGE_CUT_THREADS = 256  # merge_kway.cu: CUT_THREADS
NARROW_ROWS, NARROW_THREADS = 2048, 256  # narrow.cuh, merge_narrow.cu
NARROW_LEAST = 1 << 28  # bytes of keys below which the link is as fast

# (bytes of a key, more than two runs) -> threads, items alone, items when each key carries its 16-bit place. Large
# tiles need few cuts and share a search among more items, but two at least must fit an SM, or nothing hides latency.
_MERGE: dict[tuple[int, bool], tuple[int, int, int]] = {
    (1, False): (256, 31, 31),
    (2, False): (256, 31, 23),
    (4, False): (256, 27, 23),
    (8, False): (128, 27, 27),
    (1, True): (256, 31, 31),
    (2, True): (256, 31, 23),
    (4, True): (256, 25, 23),
    (8, True): (256, 27, 21),
}


def merge_shape(capability: tuple[int, int], size: int, k: int, carry: bool) -> MergeShape:
    """Return the shape of a merge of keys of `size` bytes, k = 2, 4 or 8, with or without values or indices."""
    threads, alone, carrying = _MERGE[size, k > 2]
    items = carrying if carry else alone
    if capability < (9, 0):
        items = min(items, 9)  # two fit the 100 KB of shared memory of an SM of 8.6 and 8.9
    return MergeShape(threads, items, capability >= (9, 0))
