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

/// One block. For each group of pieces: how many zeros and NaNs are in the groups before, from what the histogram noted.
/// It needs nothing of the sorted output, so it can run while the host still chooses a method from the plan.
template <u32 THREADS, class Src>
__global__ void __launch_bounds__(THREADS) radix_find_specials(const __grid_constant__ Job job) {
    if (!needs_repair(job.control->seen)) return;
    SHARED(u64, sums, THREADS / WARP);
    SHARED(u64, next, 2);
    const u32 t = threadIdx.x;
    if (t < 2) next[t] = 0;
    block_sync();
    const Pieces<Src> pieces(static_cast<const Src*>(job.keys), job.n);
    u64* const starts = reinterpret_cast<u64*>(job.specials + pieces.groups() * WARP);
    for (u64 first = 0; first < pieces.groups(); first += THREADS) {
        const u64 group = first + t;
        u64 both[2] = {0, 0};
        if (group < pieces.groups())
            for (u32 p = 0; p < WARP; p += 4) {
                const Vec16<u32> four = load16(job.specials + group * WARP + p);
#pragma unroll
                for (u32 k = 0; k < 4; ++k) {
                    both[0] += four.v[k] & 0xffffu;
                    both[1] += four.v[k] >> 16;
                }
            }
        for (u32 kind = 0; kind < 2; ++kind) {
            const u64 before = group_exclusive_scan(both[kind], sums, THREADS, 1);
            if (group < pieces.groups()) starts[2 * group + kind] = next[kind] + before;
            block_sync();
            if (t == THREADS - 1) next[kind] += before + both[kind];
        }
        block_sync();
    }
}

/// One block of two warps: where the zeros and the NaNs start in the sorted output, to behind the starts of the groups.
template <class Src>
__global__ void __launch_bounds__(2 * WARP) radix_find_stretches(const __grid_constant__ Job job) {
    if (!needs_repair(job.control->seen)) return;
    const u32 kind = threadIdx.x / WARP;
    const Codec& c = job.codec;
    const Pieces<Src> pieces(static_cast<const Src*>(job.keys), job.n);
    u64* const starts = reinterpret_cast<u64*>(job.specials + pieces.groups() * WARP);
    const Src plus = encode(Src(0), c), minus = encode(Src(Src(1) << (8 * sizeof(Src) - 1)), c);
    const u64 start = lower_bound<Src>(job, kind ? Src(Src(0) - Src(2 * c.lift)) : min(plus, minus));
    if (threadIdx.x % WARP == 0) starts[2 * pieces.groups() + kind] = start;
}

/// After a sort of float keys alone: writes the zeros and the NaNs of the input, in input order, over those of the
/// output. Each warp takes a piece at a time and skips those that hold none, unread.
template <u32 THREADS, class Src>
__global__ void __launch_bounds__(THREADS) radix_repair(const __grid_constant__ Job job) {
    constexpr u32 IN_FLIGHT = 8, WARPS = THREADS / WARP;
    if (!needs_repair(job.control->seen)) return;
    const u32 lane = threadIdx.x % WARP, below = (1u << lane) - 1;
    const Codec& c = job.codec;
    const Src* const keys = static_cast<const Src*>(job.keys);
    Src* const out = static_cast<Src*>(job.out_keys);
    const Pieces<Src> pieces(keys, job.n);
    const u64* const starts = reinterpret_cast<const u64*>(job.specials + pieces.groups() * WARP);
    const u64 stride = u64(gridDim.x) * WARPS;
    for (u64 piece = u64(blockIdx.x) * WARPS + threadIdx.x / WARP; piece < pieces.count(); piece += stride) {
        const u64 group = piece / WARP;
        const u32 number = u32(piece % WARP), counts = job.specials[group * WARP + lane];
        const u32 before = shfl(warp_inclusive_scan(counts) - counts, number);  // both kinds at once: at most 2^15 each
        if (!shfl(counts, number)) continue;
        const u64* const stretch = starts + 2 * pieces.groups();
        u64 zero = stretch[0] + starts[2 * group] + (before & 0xffffu);
        u64 nan = stretch[1] + starts[2 * group + 1] + (before >> 16);
        const u64 end = pieces.start(piece + 1);
        for (u64 first = pieces.start(piece); first < end; first += IN_FLIGHT * WARP) {
            Src key[IN_FLIGHT];
#pragma unroll
            for (u32 k = 0; k < IN_FLIGHT; ++k) {
                const u64 at = first + k * WARP + lane;
                key[k] = at < end ? keys[at] : Src(1);  // 1 is neither
            }
#pragma unroll
            for (u32 k = 0; k < IN_FLIGHT; ++k) {
                const bool is_zero = magnitude(key[k]) == 0, is_nan = magnitude(key[k]) > Src(c.infinity);
                const u32 zeros = warp_ballot(is_zero), nans = warp_ballot(is_nan);
                if (is_zero) out[zero + popc(zeros & below)] = key[k];
                if (is_nan) out[nan + popc(nans & below)] = key[k];
                zero += popc(zeros);
                nan += popc(nans);
            }
        }
    }
}
