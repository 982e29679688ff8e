// Merge sort: tiles sorted by a block each, then passes that merge two runs into one. And, for comparison, whole inputs
// sorted by a textbook network. (Programming Massively Parallel Processors, 4th ed., 13.7 and 13.8.)
//
//      block sort        |tile|tile|tile|tile|tile|tile|tile|til|        merge_sort_tiles (block_sort.cuh)
//      pass 1            | run     | run     | run     | run    |        4 merges: parallel over merges
//      pass 2            | run               | run              |        2 merges
//      pass 3            | the whole                            |        1 merge: parallel inside it
//
// What is parallel changes from pass to pass: early there are many small merges, late one large one. Both fall out of
// one rule: every block makes one tile of the output, whichever merge that tile belongs to, and finds by co-rank which
// stretches of the two runs it is made of. The cuts come from a launch of their own (merge_sort_cuts: a thread for each
// tile, a binary search in memory), because inside a block 255 threads would wait for one to search.
//
//      run A   . . . |a a a a a| . .        cut(tile) .. cut(tile + 1) of A
//      run B   . |b b b| . . . . . .        the rest of the tile's ranks come from B
//                  \     /
//      shared   a a a a a b b b             loaded by neighbours, merged serially in stretches of ITEMS by co-rank,
//      output   one tile                    and stored by neighbours
//
// log2(n / tile) + 1 trips through memory whatever the width of the key: radix sort takes one for each byte, so merge
// sort is for keys wider than that pays for, and for inputs so small that launches decide. Each comparison is one of
// whole keys; 128-bit keys are two words. Stable when it carries positions (they are part of the element); sorts of
// keys alone need no stability, for equal codes are equal.
#include "block_sort.cuh"

/// Sorts each tile of THREADS * ITEMS keys. `order`, when this is all that is needed (one tile), takes the positions.
template <class K, bool INDEX, u32 ITEMS, u32 THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    merge_sort_tiles(const K* keys, typename Element<K, INDEX>::E* out, u32* order, u64 n) {
    using E = typename Element<K, INDEX>::E;
    Carve smem;
    const Padded<E> tile{smem.take<E>(Padded<E>::size(THREADS * ITEMS))};
    const u64 start = u64(blockIdx.x) * (THREADS * ITEMS);
    const u32 valid = u32(min(u64(THREADS * ITEMS), n - start));
    E item[ITEMS];
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) {
        const u32 i = x * THREADS + threadIdx.x;
        item[x] = i < valid ? Element<K, INDEX>::make(keys[start + i], u32(start + i)) : Highest<E>::value();
    }
    block_sort(item, tile);
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) tile[threadIdx.x * ITEMS + x] = item[x];
    block_sync();
    for (u32 i = threadIdx.x; i < valid; i += THREADS) {
        if constexpr (INDEX) {
            if (order) {
                order[start + i] = Element<K, INDEX>::index(tile[i]);
                continue;
            }
        }
        out[start + i] = tile[i];
    }
}

/// The two runs that the output rank `at` is made from: a = [first, first + m), b behind it with n elements.
struct RunPair {
    u64 first, m, n;
    HOST_DEVICE RunPair(u64 at, u64 run, u64 all) {
        first = at / (2 * run) * (2 * run);
        m = min(run, all - first);
        n = min(run, all - first - m);
    }
};

/// cuts[t]: how many elements of its run a the ranks of its pair before tile t take. One thread for each tile.
template <class E>
__global__ void merge_sort_cuts(const E* in, u64* cuts, u64 n, u64 run, u32 tile) {
    const u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (t * tile >= n) return;
    const RunPair pair(t * tile, run, n);
    const E* a = in + pair.first;
    cuts[t] = co_rank_binary(t * tile - pair.first, a, pair.m, a + pair.m, pair.n);
}

/// Merges runs of `run` elements (a multiple of the tile) in pairs. `order`, in the last pass, takes the positions.
template <class K, bool INDEX, u32 ITEMS, u32 THREADS>
__global__ void __launch_bounds__(THREADS, 1)
    merge_sort_pass(const typename Element<K, INDEX>::E* in, typename Element<K, INDEX>::E* out, u32* order,
                    const u64* cuts, u64 n, u64 run) {
    using E = typename Element<K, INDEX>::E;
    constexpr u32 TILE = THREADS * ITEMS;
    Carve smem;
    const Padded<E> tile{smem.take<E>(Padded<E>::size(TILE))};
    const u64 start = u64(blockIdx.x) * TILE, end = min(start + TILE, n);
    const RunPair pair(start, run, n);
    // Ranks k0 .. k1 of the pair come from a[i0 .. i1) and b[k0 - i0 .. k1 - i1). The next tile may belong to the next
    // pair; this one then ends with the pair.
    const u64 k0 = start - pair.first, k1 = end - pair.first;
    const u64 i0 = cuts[blockIdx.x], i1 = k1 == pair.m + pair.n ? pair.m : cuts[blockIdx.x + 1];
    const u32 from_a = u32(i1 - i0), valid = u32(end - start);
    const E* a = in + pair.first + i0;
    const E* b = in + pair.first + pair.m + (k0 - i0);
    for (u32 i = threadIdx.x; i < valid; i += THREADS) tile[i] = i < from_a ? a[i] : b[i - from_a];
    block_sync();
    E item[ITEMS];
    merge_from_rank(item, threadIdx.x * ITEMS, Stretch<E>{tile, 0}, from_a, Stretch<E>{tile, from_a}, valid - from_a);
    block_sync();
#pragma unroll
    for (u32 x = 0; x < ITEMS; ++x) tile[threadIdx.x * ITEMS + x] = item[x];
    block_sync();
    for (u32 i = threadIdx.x; i < valid; i += THREADS) {
        if constexpr (INDEX) {
            if (order) {
                order[start + i] = Element<K, INDEX>::index(tile[i]);
                continue;
            }
        }
        out[start + i] = tile[i];
    }
}

enum Network { BITONIC, ODD_EVEN_MERGE, ODD_EVEN_TRANSPOSITION };

/// Sorts n keys by one network in the shared memory of one block: sizeof(K) * n bytes, dynamic.
template <class K>
__global__ void sort_by_network(const K* in, K* out, u32 n, Network network) {
    DYN_SHARED(K, tile);
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) tile[i] = in[i];
    block_sync();
    switch (network) {
        case BITONIC:
            bitonic_sort_shared(tile, n);
            break;
        case ODD_EVEN_MERGE:
            odd_even_merge_sort_shared(tile, n);
            break;
        case ODD_EVEN_TRANSPOSITION:
            odd_even_transposition_sort_shared(tile, n);
            break;
    }
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[i];
}
