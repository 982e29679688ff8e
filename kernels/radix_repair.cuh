// Floats whose equal values have different bits: -0.0 and +0.0, NaNs of either sign and any payload.
//
// A sort of float keys alone sorts codes, which tell such values apart; the right order among them is that of the input.
// Each kind stands in one stretch of the output (keys.cuh), so it suffices to write them again, in input order:
//
//      input    3  -0  nan1  7  +0  -1  nan2  -0           zeros -0 +0 -0, NaNs nan1 nan2
//      sorted   -1 | -0 -0 +0 | 3  7 | nan2 nan1           right but for the order inside the stretches
//      repaired -1 | -0 +0 -0 | 3  7 | nan1 nan2
#pragma once

#include "radix_job.cuh"

/// The first position of the sorted output whose code is at least `code`, found by a whole warp: 32 probes a step.
template <class Src>
DEVICE u64 lower_bound(const Job& job, Src code) {
    const u32 lane = threadIdx.x % WARP;
    u64 low = 0, high = job.n;
    while (low < high) {
        const u64 step = (high - low + WARP - 1) / WARP, at = low + lane * step;
        const bool below = at < high && encode(static_cast<const Src*>(job.out_keys)[at], job.codec) < code;
        const u32 probes = popc(warp_ballot(below));
        high = probes ? min(high, low + probes * step) : low;
        low += probes ? (probes - 1) * step + 1 : 0;
    }
    return low;
}

/// Finds where zeros and NaNs start in the output, one warp for each, when their order must be repaired.
template <class Src>
__global__ void radix_find_specials(const __grid_constant__ Job job) {
    const u32 seen = job.control->seen;
    if (!mixed_zeros(seen) && !mixed_nans(seen)) return;
    const Codec& c = job.codec;
    const Src plus = encode(Src(0), c), minus = encode(Src(Src(1) << (8 * sizeof(Src) - 1)), c);
    const u32 warp = threadIdx.x / WARP;
    const u64 start = lower_bound<Src>(job, warp ? Src(Src(0) - Src(2 * c.lift)) : min(plus, minus));
    if (threadIdx.x % WARP == 0) job.control->start[warp] = start;
}

/// Sum of the words before this one of a stride-2 array, by a whole warp, 128 words a step; see look_back.
DEVICE u64 warp_look_back(const u64* words, u64 tile) {
    using S = Status<u64>;
    constexpr u32 STEPS = 4;
    const u32 lane = threadIdx.x % WARP;
    u64 sum = 0;
    for (u64 end = tile;; end -= WARP * STEPS) {
        u64 word[STEPS];
#pragma unroll
        for (u32 k = 0; k < STEPS; ++k)
            word[k] = lane + k * WARP < end ? ld_relaxed(words + 2 * (end - 1 - lane - k * WARP)) : S::PARTIAL;
#pragma unroll
        for (u32 k = 0; k < STEPS; ++k) {
            while (warp_any(!(word[k] & ~S::VALUE)))
                word[k] = lane + k * WARP < end ? ld_relaxed(words + 2 * (end - 1 - lane - k * WARP)) : S::PARTIAL;
            const u32 whole = warp_ballot((word[k] & ~S::VALUE) != S::PARTIAL), last = whole & (0u - whole);  // lowest bit
            u64 part = !whole || (1u << lane) <= last ? word[k] & S::VALUE : 0;
#pragma unroll
            for (u32 x = WARP / 2; x > 0; x /= 2) part += shfl_xor(part, x);
            sum += part;
            if (whole) return sum;
        }
    }
}

/// After a sort of float keys alone: writes the zeros and the NaNs of the input, in input order, over those of the
/// output. Each of both stands in one stretch there (keys.cuh), so only the order inside was wrong. One read of the input;
/// where a tile's share of a stretch starts, it learns by looking back: warp 0 for zeros, warp 1 for NaNs.
template <u32 THREADS, u32 ITEMS, class Src>
__global__ void __launch_bounds__(THREADS) radix_repair(const __grid_constant__ Job job) {
    constexpr u32 TILE = THREADS * ITEMS, WARPS = THREADS / WARP;
    using S = Status<u64>;
    const u32 seen = job.control->seen;
    if (!mixed_zeros(seen) && !mixed_nans(seen)) return;
    SHARED1(u32, ticket);
    SHARED(u32, count, 2 * WARPS);
    SHARED(u64, first, 2);
    const u32 t = threadIdx.x, lane = t % WARP, warp = t / WARP, below = (1u << lane) - 1;
    const Codec& c = job.codec;
    const Src* const keys = static_cast<const Src*>(job.keys);
    Src* const out = static_cast<Src*>(job.out_keys);
    const u64 tiles = (job.n + TILE - 1) / TILE;
    for (;;) {
        block_sync();
        if (t == 0) ticket = atomic_add(&job.control->repair_ticket, 1u);
        block_sync();
        const u64 tile = ticket, own = tile * TILE + warp * WARP * ITEMS + lane;
        if (tile >= tiles) return;
        Src key[ITEMS];
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) key[i] = own + i * WARP < job.n ? keys[own + i * WARP] : Src(1);  // 1 is neither
        u32 zeros = 0, nans = 0;
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) {
            zeros += popc(warp_ballot(magnitude(key[i]) == 0));
            nans += popc(warp_ballot(magnitude(key[i]) > Src(c.infinity)));
        }
        if (lane == 0) {
            count[warp] = zeros;
            count[WARPS + warp] = nans;
        }
        block_sync();
        if (warp < 2) {
            u32 sum = 0;
            for (u32 w = 0; w < WARPS; ++w) sum += count[warp * WARPS + w];
            u64* const word = job.specials + 2 * tile + warp;
            if (tile && lane == 0) st_relaxed(word, S::PARTIAL | sum);
            const u64 before = tile ? warp_look_back(job.specials + warp, tile) : job.control->start[warp];
            if (lane == 0) {
                st_relaxed(word, S::inclusive(0) | (before + sum));
                first[warp] = before;
            }
        }
        block_sync();
        if (!zeros && !nans) continue;
        u64 zero = first[0], nan = first[1];
        for (u32 w = 0; w < warp; ++w) {
            zero += count[w];
            nan += count[WARPS + w];
        }
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) {
            const bool is_zero = magnitude(key[i]) == 0, is_nan = magnitude(key[i]) > Src(c.infinity);
            const u32 all_zeros = warp_ballot(is_zero), all_nans = warp_ballot(is_nan);
            if (is_zero) out[zero + popc(all_zeros & below)] = key[i];
            if (is_nan) out[nan + popc(all_nans & below)] = key[i];
            zero += popc(all_zeros);
            nan += popc(all_nans);
        }
    }
}
