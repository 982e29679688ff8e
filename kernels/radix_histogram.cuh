// All digits of all keys counted in one read, and the plan of the passes.
//
//      16 keys a thread in flight --> digits --> COLUMNS copies of 256 bins a digit, in shared memory --> 64-bit bins
//
//      bin 7 of digit 0:   lane 0 | lane 1 | ... | lane 31      one bank each: no two lanes of a warp ever wait for
//      bin 8 of digit 0:   lane 0 | lane 1 | ... | lane 31      each other, whatever the keys
//
// The last block to finish turns bins into starting positions and leaves out the digits that are the same in all keys;
// so the passes need no scan of their own, and the host need not look.
#pragma once

#include "radix_job.cuh"

/// A warp takes a piece of 2 KB at a time, 16 bytes a load. The last block to finish scans the bins and writes the plan.
/// WATCH: note the special floats among keys that are sorted alone.
template <u32 THREADS, u32 COLUMNS, class Src, class Key, bool UNIFY, bool SQUEEZE, bool WATCH>
__global__ void __launch_bounds__(THREADS) radix_histogram(const __grid_constant__ Job job) {
    constexpr u32 DIGITS = sizeof(Key), BINS = DIGITS * RADIX, GROUPS = THREADS / RADIX;
    constexpr u32 N = Vec16<Src>::N, IN_FLIGHT = sizeof(Src) <= 2 ? 2 : Pieces<Src>::VECTORS;
    static_assert(THREADS % RADIX == 0);
    const u32 t = threadIdx.x, lane = t % WARP;
    Carve smem;
    u32* counters = smem.take<u32>(BINS * COLUMNS);
    u64* sums = smem.take<u64>(THREADS / WARP);
    u32* flags = smem.take<u32>(DIGITS + 1);
    for (u32 i = t; i < BINS * COLUMNS; i += THREADS) counters[i] = 0;
    block_sync();

    // byte addresses, so that one shift and one logic operation make each
    constexpr u32 STRIDE = COLUMNS == 32 ? 7 : COLUMNS == 16 ? 6 : COLUMNS == 8 ? 5 : 4;
    static_assert(COLUMNS * 4 == 1 << STRIDE);
    unsigned char* const bytes = reinterpret_cast<unsigned char*>(counters);
    const u32 column = lane % COLUMNS * 4;
    u32 seen = 0, special = 0;
    auto count = [&](Src value) {
        if constexpr (WATCH) special += count_special(value, job.codec);
        const Key key = key_of<Key, UNIFY, SQUEEZE>(value, job);
#pragma unroll
        for (u32 d = 0; d < DIGITS; ++d) {
            const u32 half = u32(d < 4 ? u64(key) : u64(key) >> 32), at = 8 * (d % 4);
            const u32 bin = at < STRIDE ? half << (STRIDE - at) : half >> (at - STRIDE);
            red_add(reinterpret_cast<u32*>(bytes + (d << (8 + STRIDE)) + ((bin & 255u << STRIDE) | column)), 1u);
        }
    };
    auto note = [&](u64 piece) {  // how many specials a piece holds, for the repair
        if constexpr (WATCH) {
            const u32 sum = reduce_add(special);
            if (sum && lane == 0) job.specials[piece] = sum;
            special = 0;
        }
    };
    const Src* const keys = static_cast<const Src*>(job.keys);
    const Pieces<Src> pieces(keys, job.n);
    const u64 stride = u64(gridDim.x) * (THREADS / WARP);
    for (u64 row = u64(blockIdx.x) * (THREADS / WARP) + t / WARP; row < pieces.whole; row += stride) {
        const Src* part = keys + pieces.start(row + 1) + lane * N;
#pragma unroll 1
        for (u32 p = 0; p < Pieces<Src>::VECTORS; p += IN_FLIGHT, part += IN_FLIGHT * WARP * N) {
            Vec16<Src> loaded[IN_FLIGHT];
#pragma unroll
            for (u32 k = 0; k < IN_FLIGHT; ++k) loaded[k] = load16(part + k * WARP * N);
#pragma unroll
            for (u32 k = 0; k < IN_FLIGHT; ++k)
#pragma unroll
                for (u32 i = 0; i < N; ++i) count(loaded[k].v[i]);
            if constexpr (WATCH)
                if (special && !needs_repair(seen))  // of which kinds, until it is settled
#pragma unroll
                    for (u32 k = 0; k < IN_FLIGHT; ++k)
#pragma unroll
                        for (u32 i = 0; i < N; ++i) seen |= special_float(loaded[k].v[i], job.codec);
        }
        note(row + 1);
    }
    if (blockIdx.x == 0 && t / WARP < 2) {  // what is left at both ends
        const u64 piece = t < WARP ? 0 : pieces.whole + 1;
        for (u64 i = pieces.start(piece) + lane; i < pieces.start(piece + 1); i += WARP) {
            count(keys[i]);
            if constexpr (WATCH) seen |= special_float(keys[i], job.codec);
        }
        note(piece);
    }

    seen = reduce_or(seen);
    if (seen && lane == 0) atomic_or(&job.control->seen, seen);
    block_sync();
    for (u32 bin = t; bin < BINS; bin += THREADS) {
        u32 sum = 0;
        for (u32 c = 0; c < COLUMNS; ++c) sum += counters[bin * COLUMNS + (c + lane) % COLUMNS];
        if (sum) red_add(job.bins + bin, u64(sum));
    }
    block_sync();
    if (t == 0) flags[DIGITS] = atomic_add_acq_rel(&job.control->histogram_ticket, 1u) == gridDim.x - 1;
    if (t < DIGITS) flags[t] = 1;
    block_sync();
    if (!flags[DIGITS]) return;

    const u32 value = t % RADIX;
    for (u32 round = 0; round < (DIGITS + GROUPS - 1) / GROUPS; ++round) {
        const u32 d = round * GROUPS + t / RADIX;
        const bool on = d < DIGITS;
        const u64 n_value = on ? ld_relaxed(job.bins + d * RADIX + value) : 0;
        const u64 start = group_exclusive_scan(n_value, sums, RADIX, 1 + t / RADIX);
        const u32 ones = reduce_or(n_value ? value : 0u), zeros = reduce_or(n_value ? ~value & 255u : 0u);
        if (on) {
            st_relaxed(job.bins + d * RADIX + value, start);
            if (n_value == job.n) flags[d] = 0;
            if (lane == 0) {
                atomic_or(&job.control->ones, u64(ones) << (8 * d));
                atomic_or(&job.control->zeros, u64(zeros) << (8 * d));
            }
        }
        block_sync();
    }
    if (t == 0) {
        u32 active = 0;
        for (u32 d = 0; d < DIGITS; ++d)
            if (flags[d]) job.control->digit[active++] = d;
        job.control->active = max(active, 1u);  // all constant: one pass over digit 0, a stable copy
    }
}
