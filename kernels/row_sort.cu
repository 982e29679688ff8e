// Many short rows at once: sort and argsort along the last axis of a two-dimensional array.
//
//      row length n          who sorts a row                      where
//      1 .. 256              1 to 32 lanes of a warp, 8 keys each  registers and shuffles: sort_rows_by_lanes
//      257 .. threads x 16   one block                            registers, then merges in shared memory: sort_rows_by_block
//
// The same block kernel sorts one short array: a single row, a single launch. Either way a key is read once and
// written once; a general sort would run over the rows log n times, or sort (row, key) pairs of the whole array.
//
//      in   row 0 | row 1 | ...       striped loads: neighbouring lanes read neighbouring columns; a network does not
//             |       |               care in which order it gets its input
//      lanes [8 codes each]           network
//             |       |
//      shared  row 0 | row 1          from blocked to striped
//             |       |
//      out  row 0 | row 1 | ...       striped stores
//
// Stability. Networks are not stable, so argsort sorts (code, column): no two elements are equal. A sort of keys alone
// needs no columns: keys of equal codes have equal bits. The exception are floats, where -0.0 == +0.0 and all NaNs are
// equal but differ in bits. Their codes sort them in some order inside two known ranges; rows that hold both zeros, or
// NaNs of different bits, have these ranges filled again in input order (`repair_row`).
//
// (The 1 in the launch bounds: registers before occupancy. Left alone, the compiler spills a word to fit a third block.)
#include "block_sort.cuh"
#include "keys.cuh"

/// The threads that sort one row: `size` neighbouring lanes of a warp.
struct LaneTeam {
    u32 size;
    DEVICE u32 rank() const { return threadIdx.x % size; }
    DEVICE void sync() const { warp_sync(); }
    /// The next free place after those that lower ranks take; `next` moves past all that were taken.
    DEVICE u32 take(bool wanted, u32& next) const {
        const u32 mine = warp_ballot(wanted) >> (threadIdx.x % WARP - rank()) & FULL_WARP >> (WARP - size);
        const u32 place = next + popc(mine & ((1u << rank()) - 1));
        next += popc(mine);
        return place;
    }
};

/// The threads that sort one row: a block. `sums` is a word of shared memory for each warp.
struct BlockTeam {
    u32 size;
    u32* sums;
    DEVICE u32 rank() const { return threadIdx.x; }
    DEVICE void sync() const { block_sync(); }
    DEVICE u32 take(bool wanted, u32& next) const {
        const u32 mine = warp_ballot(wanted), warp = threadIdx.x / WARP;
        block_sync();
        if (threadIdx.x % WARP == 0) sums[warp] = popc(mine);
        block_sync();
        u32 place = next + popc(mine & ((1u << threadIdx.x % WARP) - 1));
        for (u32 w = 0; w < size / WARP; ++w) {
            if (w < warp) place += sums[w];
            next += sums[w];
        }
        return place;
    }
};

/// The first of n ascending slots that is not below `code`.
template <class E, class Slots>
DEVICE u32 first_not_below(Slots slot, u32 n, E code) {
    u32 low = 0, high = n;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (slot[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/// Writes the codes of a float row's zeros and NaNs again, in input order, over the sorted codes in `slot`. All of the
/// team's threads call it with the same n; `valid` is n, or 0 for a row past the end.
template <class W, class E, class Slots, class Team>
DEVICE void repair_row(const W* row, u32 n, u32 valid, Slots slot, const Codec& codec, Team team) {
    const W sign = W(~magnitude(W(~W(0)))), zero = encode(W(0), codec), minus_zero = encode(sign, codec);
    u32 next_zero = first_not_below(slot, valid, E(min(zero, minus_zero)));
    u32 next_nan = first_not_below(slot, valid, E(W(0 - 2 * W(codec.lift))));  // `lift` codes for each sign, at the top
    team.sync();  // everyone has searched before anyone writes
    for (u32 first = 0; first < n; first += team.size) {
        const u32 column = first + team.rank();
        const W w = column < valid ? row[column] : W(1);  // 1 is neither
        const bool is_zero = magnitude(w) == 0, is_nan = magnitude(w) > W(codec.infinity);
        const u32 zero_place = team.take(is_zero, next_zero), nan_place = team.take(is_nan, next_nan);
        if (is_zero || is_nan) slot[is_zero ? zero_place : nan_place] = encode(w, codec);
    }
    team.sync();
}

/// Loads one thread's share of a row; `seen` collects the special floats among it.
template <bool INDEX, u32 ITEMS, class W, class E>
DEVICE void load_row(E (&item)[ITEMS], const W* row, u32 valid, u32 rank, u32 stride, const Codec& codec, u32& seen) {
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) {
        const u32 column = x * stride + rank;
        item[x] = Highest<E>::value();  // behind every real element
        if (column < valid) {
            const W w = row[column];
            if (!INDEX && codec.infinity) seen |= special_float(w, codec);
            item[x] = Element<W, INDEX>::make(encode(INDEX ? unify(w, codec) : w, codec), column);
        }
    }
}

template <bool INDEX, class W, class Slots>
DEVICE void store_row(Slots slot, W* out, i64* columns, u64 start, u32 valid, u32 rank, u32 stride,
                      const Codec& codec) {
    for (u32 column = rank; column < valid; column += stride) {
        if constexpr (INDEX)
            columns[start + column] = Element<W, INDEX>::index(slot[column]);
        else
            out[start + column] = decode(W(slot[column]), codec);
    }
}

/// Rows of up to lanes * ITEMS elements, WARP / lanes rows to a warp; `lanes` is a power of two. INDEX: writes the
/// stable order to `columns`; else the sorted values to `out`, which may be `in`. Arrays of shape (rows, n).
template <class W, bool INDEX, u32 ITEMS, u32 THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    sort_rows_by_lanes(const W* in, W* out, i64* columns, u64 rows, u32 n, u32 lanes, Codec codec) {
    using E = typename Element<W, INDEX>::E;
    SHARED(E, slots, Padded<E>::size(THREADS * ITEMS));
    const LaneTeam team{lanes};
    const u64 row = (u64(blockIdx.x) * THREADS + threadIdx.x) / lanes;
    const u32 valid = row < rows ? n : 0;
    const u64 start = row < rows ? row * n : 0;
    const Stretch<E> slot{{slots}, threadIdx.x / lanes * lanes * ITEMS};

    E item[ITEMS];
    u32 seen = 0;
    load_row<INDEX>(item, in + start, valid, team.rank(), lanes, codec, seen);
    warp_bitonic_sort(item, lanes);
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) slot[team.rank() * ITEMS + x] = item[x];
    warp_sync();
    if constexpr (!INDEX) {
        seen = codec.infinity ? reduce_or(seen) : 0;
        if (mixed_zeros(seen) || mixed_nans(seen)) repair_row<W, E>(in + start, n, valid, slot, codec, team);
    }
    store_row<INDEX>(slot, out, columns, start, valid, team.rank(), lanes, codec);
}

/// Rows of up to blockDim * ITEMS elements, a block to a row; blockDim is a power of two of warps, up to MAX_THREADS.
/// Dynamic shared memory: Padded<E>::size(blockDim * ITEMS) elements. `columns`, `out`, `in` as above.
template <class W, bool INDEX, u32 ITEMS, u32 MAX_THREADS>
__global__ void __launch_bounds__(MAX_THREADS, 1)
    sort_rows_by_block(const W* in, W* out, i64* columns, u32 n, Codec codec) {
    using E = typename Element<W, INDEX>::E;
    SHARED(u32, sums, MAX_THREADS / WARP);
    SHARED1(u32, seen_by_block);
    Carve smem;
    const Padded<E> slot{smem.take<E>(Padded<E>::size(blockDim.x * ITEMS))};
    const u64 start = u64(blockIdx.x) * n;
    if (threadIdx.x == 0) seen_by_block = 0;
    block_sync();

    E item[ITEMS];
    u32 seen = 0;
    load_row<INDEX>(item, in + start, n, threadIdx.x, blockDim.x, codec, seen);
    if (seen) atomic_or(&seen_by_block, seen);
    block_sort(item, slot);
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) slot[threadIdx.x * ITEMS + x] = item[x];
    block_sync();
    if constexpr (!INDEX) {
        seen = seen_by_block;
        if (mixed_zeros(seen) || mixed_nans(seen))
            repair_row<W, E>(in + start, n, n, slot, codec, BlockTeam{blockDim.x, sums});
    }
    store_row<INDEX>(slot, out, columns, start, n, threadIdx.x, blockDim.x, codec);
}
