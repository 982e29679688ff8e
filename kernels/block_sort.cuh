// A sort of one tile by one block: networks in registers, then merges in shared memory.
//
//      thread    holds ITEMS elements in registers
//      warp      sorts its 32 * ITEMS elements by the bitonic network (networks.cuh)         no barrier, no memory
//      block     merges: runs of 1 warp --> 2 warps --> 4 warps --> ... --> the tile         log2(warps) rounds
//
//      one round:   run A  [1 4 4 7 | 8 9 ]   run B  [2 3 5 | 6 6 8]       every thread makes ITEMS outputs: it asks
//                            \  \__________________ /  /                   co_rank where they start, then merges
//                   merged [1 2 3 4 | 4 5 6 6 | 7 8 8 9]                   serially from there
//                           thread 0  thread 1  thread 2
//
// Early rounds have many independent merges, late rounds one large one; by co-rank every thread has the same work in
// all of them. (Programming Massively Parallel Processors, 4th ed., 13.7 "Parallel merge sort" and ch. 12 "Merge".)
#pragma once

#include "co_rank.cuh"
#include "networks.cuh"

/// Shared memory with one element left free after every 32: threads that walk through neighbouring stretches of
/// ITEMS elements (a power of two) would otherwise meet in the same banks.
template <class E>
struct Padded {
    E* base;
    DEVICE E& operator[](u32 i) const { return base[i + i / WARP]; }
    HOST_DEVICE static constexpr u32 size(u32 n) { return n + n / WARP; }
};

/// A stretch of a padded array, as an array of its own.
template <class E>
struct Stretch {
    Padded<E> tile;
    u32 first;
    DEVICE E& operator[](u32 i) const { return tile[first + i]; }
};

/// item = outputs [k, k + N) of the stable merge of a[0 .. m) and b[0 .. n); past the end the highest value.
template <u32 N, class E, class A>
DEVICE void merge_from_rank(E (&item)[N], u32 k, A a, u32 m, A b, u32 n) {
    k = min(k, m + n);
    u32 i = co_rank_binary(k, a, m, b, n), j = k - i;
    E from_a = i < m ? a[i] : Highest<E>::value(), from_b = j < n ? b[j] : Highest<E>::value();
#pragma unroll
    for (u32 x = 0; x < N; ++x) {
        const bool take_b = j < n && (i >= m || from_b < from_a);
        item[x] = take_b ? from_b : from_a;
        if (take_b)
            from_b = ++j < n ? b[j] : Highest<E>::value();
        else
            from_a = ++i < m ? a[i] : Highest<E>::value();
    }
}

/// Sorts N elements of each thread of the block, a power of two of warps. Element e ends up in register e % N of
/// thread e / N. Not stable, unless positions are part of the elements. `tile` holds N * blockDim elements; a barrier
/// must pass between the caller's own use of it and this.
template <u32 N, class E>
DEVICE void block_sort(E (&item)[N], Padded<E> tile) {
    const u32 first = threadIdx.x * N;
    warp_bitonic_sort(item, WARP);
    for (u32 run = WARP * N; run < blockDim.x * N; run *= 2) {
#pragma unroll
        for (u32 x = 0; x < N; ++x) tile[first + x] = item[x];
        block_sync();
        const u32 a = first & ~(2 * run - 1);
        merge_from_rank(item, first - a, Stretch<E>{tile, a}, run, Stretch<E>{tile, a + run}, run);
        block_sync();
    }
}
