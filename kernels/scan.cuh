// Scans and searches that several kernels share.
//
// A block-wide exclusive scan in two steps: shuffles inside each warp, then every thread adds the sums of the warps
// before its own. (Programming Massively Parallel Processors, 4th ed., ch. 11: Kogge-Stone scan, hierarchical scan.)
//
//      thread value   3 1 4 1 | 5 9 2 6 | ...
//      in its warp    0 3 4 8 | 0 5 14 16        shuffles, log2(32) steps, no barrier
//      warp sums          9   |    22            one word per warp in shared memory, one barrier
//      result         0 3 4 8 | 9 14 23 25
#pragma once

#include "prims.cuh"

/// Sum of v over the lanes up to and including this one.
template <class T>
DEVICE T warp_inclusive_scan(T v) {
    const u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 d = 1; d < WARP; d *= 2) {
        const T below = shfl_up(v, d);
        if (lane >= d) v += below;
    }
    return v;
}

/// Sum of v over the threads before this one in a group of `threads` that starts at a multiple of it; `sums` holds one
/// word for each warp of the block. Barrier `id` is used once: reuse of `sums` needs another barrier in between.
template <class T>
DEVICE T group_exclusive_scan(T v, T* sums, u32 threads, u32 id) {
    const u32 warp = threadIdx.x / WARP, first = threadIdx.x / threads * threads / WARP;
    const T inclusive = warp_inclusive_scan(v);
    if (threadIdx.x % WARP == WARP - 1) sums[warp] = inclusive;
    named_sync(id, threads);
    T before = 0;
    for (u32 w = 0; w < threads / WARP; ++w)
        if (first + w < warp) before += sums[first + w];
    return before + inclusive - v;
}
