// Sorting networks: fixed sequences of compare-exchanges, the same for every input.
//
// A comparator (i, j), i < j, puts the smaller of two keys at i. No branch depends on a key, and the comparators of
// one step touch disjoint keys, so a step is one instruction of a whole warp. (Programming Massively Parallel
// Processors, 4th ed., ch. 13 "Sorting", 13.8; Batcher, "Sorting networks and their applications", 1968.)
//
//      bitonic, 8 keys            odd-even merge, 8 keys     odd-even transposition, 4 keys
//
//      0 --o--o--o--o--o--o--     0 --o--o-----o--------     0 --o-----o-----
//      1 --o--|o-o--|o-|o-o--     1 --o--|o-o--|o-----o-     1 --o--o--o--o--
//      2 --o--|o-o--||o||-o--     2 --o--o|-o--||o--o-o-     2 --o--o--o--o--
//      3 --o--o--o--|||o|-o--     3 --o---o----|||o-|o--     3 --o-----o-----
//      ...  mirrored halves,      ...  lower half against        neighbours, even pairs
//           then butterflies           upper half, then          and odd pairs in turn
//                                      odd against next even
//
//      network         steps                comparators, n = 256    stable
//      bitonic         log n (log n+1) / 2  4608                    no
//      odd-even merge  log n (log n+1) / 2  3839                    no
//      transposition   n                    32640                   yes
//
// All need O(n log^2 n) work or more, so they lose to merge and radix sort on long inputs; on up to a few hundred keys,
// held in registers, nothing is faster. A network that is not stable sorts stably when the position is part of the
// key: equal keys then do not exist.
//
// Every comparator points upward here (the bitonic merge starts with a mirrored step instead of sorting half of its
// runs downward), so n need not be a power of two: a pair whose upper end is beyond n is left out, as if endless keys
// of the highest value stood there.
#pragma once

#include "prims.cuh"

// --- elements: anything with <, the highest value, and a shuffle ------------------------------------------------

/// A 128-bit key, most significant word first: complex128, or two words of a row's key.
struct __align__(16) U128 {
    u64 hi, lo;
};
HOST_DEVICE bool operator<(const U128& a, const U128& b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }

/// A key and the position it came from, ordered by both: no two are equal, so every sort of them is stable.
template <class K>
struct Indexed {
    K key;
    u32 index;
};
template <class K>
HOST_DEVICE bool operator<(const Indexed<K>& a, const Indexed<K>& b) {
    return a.key < b.key || (!(b.key < a.key) && a.index < b.index);
}

/// What a sort of keys K moves: the key, in at least a register, or the key and its position, in one word if they fit.
template <class K, bool INDEX, bool WIDE = (sizeof(K) > 4)>
struct Element;
template <class K>
struct Element<K, false, false> {
    using E = u32;
    HOST_DEVICE static E make(K key, u32) { return key; }
};
template <class K>
struct Element<K, false, true> {
    using E = K;
    HOST_DEVICE static E make(K key, u32) { return key; }
};
template <class K>
struct Element<K, true, false> {
    using E = u64;
    HOST_DEVICE static E make(K key, u32 index) { return u64(key) << 32 | index; }
    HOST_DEVICE static u32 index(E e) { return u32(e); }
};
template <class K>
struct Element<K, true, true> {
    using E = Indexed<K>;
    HOST_DEVICE static E make(K key, u32 index) { return {key, index}; }
    HOST_DEVICE static u32 index(E e) { return e.index; }
};

template <class K>
struct Highest {
    HOST_DEVICE static K value() { return K(~K(0)); }
};
template <>
struct Highest<U128> {
    HOST_DEVICE static U128 value() { return {~u64(0), ~u64(0)}; }
};
template <class K>
struct Highest<Indexed<K>> {
    HOST_DEVICE static Indexed<K> value() { return {Highest<K>::value(), ~u32(0)}; }
};

DEVICE u32 swap_lanes(u32 v, u32 mask) { return shfl_xor(v, mask); }
DEVICE u64 swap_lanes(u64 v, u32 mask) { return shfl_xor(v, mask); }
DEVICE U128 swap_lanes(U128 v, u32 mask) { return {shfl_xor(v.hi, mask), shfl_xor(v.lo, mask)}; }
template <class K>
DEVICE Indexed<K> swap_lanes(Indexed<K> v, u32 mask) {
    return {swap_lanes(v.key, mask), shfl_xor(v.index, mask)};
}

template <class E>
DEVICE void compare_exchange(E& a, E& b) {
    const bool swap = b < a;
    const E low = swap ? b : a;
    b = swap ? a : b;
    a = low;
}

// --- the comparators of one step, as questions about one pair ---------------------------------------------------

/// Bitonic: the partner of i when runs of `width` / 2 become runs of `width`. The first step is mirrored.
HOST_DEVICE u32 bitonic_partner(u32 i, u32 width, u32 stride) {
    return 2 * stride == width ? i ^ (width - 1) : i ^ stride;
}

/// Odd-even merge: is (i, i + stride) a comparator when runs of `run` become runs of 2 * run?
HOST_DEVICE bool odd_even_merge_pair(u32 i, u32 run, u32 stride) {
    // All are powers of two, so masks say it without a division. The first step starts at 0, the later ones leave out
    // the lowest `stride` keys, and no comparator leaves its run.
    const u32 first = stride & (run - 1), in_run = ~(2 * run - 1);
    return i >= first && ((i - first) & stride) == 0 && (i & in_run) == ((i + stride) & in_run);
}

// --- in the registers of one thread -----------------------------------------------------------------------------

template <u32 RUN, u32 STRIDE, u32 N, class E>
DEVICE void odd_even_merge_steps(E (&item)[N]) {
    if constexpr (RUN < N) {
#pragma unroll
        for (u32 i = 0; i + STRIDE < N; ++i)
            if (odd_even_merge_pair(i, RUN, STRIDE)) compare_exchange(item[i], item[i + STRIDE]);
        if constexpr (STRIDE > 1)
            odd_even_merge_steps<RUN, STRIDE / 2>(item);
        else
            odd_even_merge_steps<2 * RUN, 2 * RUN>(item);
    }
}

/// Sorts N registers: 19 comparators for N = 8, 63 for 16 (bitonic: 24 and 80).
template <u32 N, class E>
DEVICE void sort_registers(E (&item)[N]) {
    odd_even_merge_steps<1, 1>(item);
}

// --- in the registers of a warp ---------------------------------------------------------------------------------

/// Bitonic sort of N * lanes elements; element e lies in register e % N of lane e / N of its group of `lanes` lanes.
/// `lanes` is a power of two up to 32; 32 / lanes groups sort at once. Strides below N stay inside a thread, the
/// others are shuffles: for 8 x 32 elements 15 steps of 36.
template <u32 N, class E>
DEVICE void warp_bitonic_sort(E (&item)[N], u32 lanes) {
    const u32 lane = threadIdx.x % WARP;
    sort_registers(item);
    for (u32 width = 2; width <= lanes; width *= 2) {
        const bool upper = lane & width / 2;
#pragma unroll
        for (u32 i = 0; i < N / 2; ++i) {  // mirrored: lane against lane ^ (width-1), register against N-1-register
            const E far = swap_lanes(item[N - 1 - i], width - 1), near = swap_lanes(item[i], width - 1);
            item[i] = (far < item[i]) == upper ? item[i] : far;
            item[N - 1 - i] = (near < item[N - 1 - i]) == upper ? item[N - 1 - i] : near;
        }
        for (u32 stride = width / 4; stride > 0; stride /= 2) {
            const bool high = lane & stride;
#pragma unroll
            for (u32 i = 0; i < N; ++i) {
                const E other = swap_lanes(item[i], stride);
                item[i] = (other < item[i]) == high ? item[i] : other;
            }
        }
#pragma unroll
        for (u32 stride = N / 2; stride > 0; stride /= 2) {
#pragma unroll
            for (u32 i = 0; i < N; ++i)
                if (!(i & stride)) compare_exchange(item[i], item[i + stride]);
        }
    }
}

// --- in shared memory, by a block: the textbook forms -----------------------------------------------------------

/// Each thread takes every blockDim-th comparator of a step; a barrier ends the step. `tile` holds n elements.
template <class E>
DEVICE void bitonic_sort_shared(E* tile, u32 n) {
    for (u32 width = 2; width < 2 * n; width *= 2)
        for (u32 stride = width / 2; stride > 0; stride /= 2) {
            for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
                const u32 j = bitonic_partner(i, width, stride);
                if (i < j && j < n) compare_exchange(tile[i], tile[j]);
            }
            block_sync();
        }
}

template <class E>
DEVICE void odd_even_merge_sort_shared(E* tile, u32 n) {
    for (u32 run = 1; run < n; run *= 2)
        for (u32 stride = run; stride > 0; stride /= 2) {
            for (u32 i = threadIdx.x; i + stride < n; i += blockDim.x)
                if (odd_even_merge_pair(i, run, stride)) compare_exchange(tile[i], tile[i + stride]);
            block_sync();
        }
}

template <class E>
DEVICE void odd_even_transposition_sort_shared(E* tile, u32 n) {
    for (u32 round = 0; round < n; ++round) {
        for (u32 i = round % 2 + 2 * threadIdx.x; i + 1 < n; i += 2 * blockDim.x)
            compare_exchange(tile[i], tile[i + 1]);
        block_sync();
    }
}
