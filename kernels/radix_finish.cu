// The finish of a sort by the top bits: for 64-bit keys that are nearly told apart by their upper half.
//
// Eight passes over full 64-bit keys move 128 bytes a key. But 2^28 random keys differ in their top 32 bits already, but
// for one pair in sixteen keys or so. So: four passes over the top digits, then one launch that puts right the short
// runs of keys whose top bits are equal:
//
//      sorted by top digits   | 17.. | 23.9 23.4 23.4' | 31.. | 40.7 40.2 | ...
//                                      \   run of 3   /
//      each key of a run asks          how many of my run go before me?   left: key <= mine, right: key < mine
//      and goes to                     start of the run + that many       (stable)
//      finished               | 17.. | 23.4 23.4' 23.9 | 31.. | 40.2 40.7 | ...
//
// A sort of positions keeps 32 top bits and a position in one 8-byte word, so its passes move half of what key and
// position apart would; the few keys in runs fetch their full keys from the input.
//
// It is tried only when a sorted sample says that runs are short (radix_sample, radix_sample_ties; the limits stand in
// kernels/policy.py), and its work is bounded: a walk of MAX_RUN steps, or more than `n` steps in long walks together,
// sets `failed`, and the launcher starts over with all digits from the untouched input.
#pragma once

#include "radix_job.cuh"

constexpr u32 SHORT_WALK = 64;  // steps that are not counted
constexpr u32 MAX_RUN = 2048;

/// Reads buffer 1, sorted by the bits from `shift` up; writes the output. MODE: KEYS (words are codes) or ARGSORT (words
/// are top bits and position).
template <u32 THREADS, u32 ITEMS, class Src, u32 MODE>
__global__ void __launch_bounds__(THREADS, 5) radix_finish(const __grid_constant__ Job job, u32 shift) {
    constexpr u32 TILE = THREADS * ITEMS;
    SHARED(u64, tile, TILE);
    SHARED(u16, member, TILE);  // places of keys in runs: few, so they are gathered to keep warps full
    SHARED1(u32, members);
    SHARED1(u32, stop);
    const u32 t = threadIdx.x;
    const u64 start = u64(blockIdx.x) * TILE;
    const u32 valid = u32(min(u64(TILE), job.n - start));
    const u64* const words = static_cast<const u64*>(job.words[1]);
    if (t == 0) {
        stop = ld_relaxed(&job.control->failed);
        members = 0;
    }
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i)
        if (t + i * THREADS < valid) tile[t + i * THREADS] = words[start + t + i * THREADS];
    block_sync();
    if (stop) return;

    auto word_at = [&](u64 at) { return at - start < valid ? tile[at - start] : words[at]; };
    auto full_key = [&](u64 word) -> u64 {
        if constexpr (MODE == KEYS)
            return word;
        else
            return encode(unify(static_cast<const Src*>(job.keys)[u32(word)], job.codec), job.codec);
    };
    auto write = [&](u64 to, u64 word) {
        if constexpr (MODE == KEYS)
            static_cast<Src*>(job.out_keys)[to] = decode(Src(word), job.codec);
        else if (job.index_bytes == 8)
            static_cast<u64*>(job.out_values)[to] = u32(word);
        else
            static_cast<u32*>(job.out_values)[to] = u32(word);
    };
#pragma unroll
    for (u32 k = 0; k < ITEMS; ++k) {
        const u32 i = t + k * THREADS;
        if (i >= valid) break;
        const u64 at = start + i, word = tile[i], top = word >> shift;
        const bool left = at > 0 && word_at(at - 1) >> shift == top;
        const bool right = at + 1 < job.n && word_at(at + 1) >> shift == top;
        if (left || right)
            member[atomic_add(&members, 1u)] = u16(i);
        else
            write(at, word);
    }
    block_sync();
    for (u32 m = t; m < members; m += THREADS) {
        const u64 at = start + member[m], word = tile[at - start], top = word >> shift, mine = full_key(word);
        u64 to = at, other;
        u32 steps = 0;
        for (u64 j = at; j > 0 && (other = word_at(j - 1)) >> shift == top && steps < MAX_RUN; --j, ++steps)
            to -= full_key(other) > mine;
        for (u64 j = at + 1; j < job.n && (other = word_at(j)) >> shift == top && steps < MAX_RUN; ++j, ++steps)
            to += full_key(other) < mine;
        if (steps >= SHORT_WALK && (steps == MAX_RUN || atomic_add(&job.control->work, u64(steps)) > job.n))
            atomic_exch(&job.control->failed, 1u);
        write(to, word);
    }
}

/// Codes of `samples` keys, one from each of as many equal stretches of the input, at a scrambled place in it.
template <class Src, bool UNIFY>
__global__ void radix_sample(const __grid_constant__ Job job, u64* sample, u32 samples) {
    const u32 j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= samples) return;
    const u64 stretch = job.n / samples;
    u64 hash = (u64(j) + 1) * 0x9E3779B97F4A7C15ull;
    hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ull;
    Src value = static_cast<const Src*>(job.keys)[j * stretch + (hash >> 20) % stretch];
    if constexpr (UNIFY) value = unify(value, job.codec);
    sample[j] = encode(value, job.codec);
}

/// ties[d] counts neighbours of the sorted sample that agree in all bytes from d up, d = 0..7; ties starts at zero.
__global__ void radix_sample_ties(const u64* sample, u32 samples, u32* ties) {
    const u32 j = blockIdx.x * blockDim.x + threadIdx.x;
    const u64 differ = j + 1 < samples ? sample[j] ^ sample[j + 1] : ~u64(0);
    for (u32 d = 0; d < 8; ++d) {
        const u32 tied = popc(warp_ballot(differ >> (8 * d) == 0));
        if (tied && threadIdx.x % WARP == 0) atomic_add(ties + d, tied);
    }
}
