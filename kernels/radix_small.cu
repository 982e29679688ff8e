// The radix sort of a small array: one launch, all blocks resident, keys in registers and the L2 cache.
//
// Below some hundred thousand keys a sort is nothing but latency: six launches, and in each pass a chain of tiles. Here
// every block owns one tile for the whole sort, and a pass is two meetings of all blocks:
//
//      block 0   count --> publish row 0 --\               /--> rank --> scatter --\            /--> next pass
//      block 1   count --> publish row 1 ---+--> all read -+--> rank --> scatter ---+- flags ----+
//      block 2   count --> publish row 2 --/     all rows  \--> rank --> scatter --/            \--> ...
//
//      rows, one per block:  [tag | count of digit 0] [tag | count of digit 1] ... 256 words
//      column d summed: all rows give where digit d starts, the rows above its own where the block's part does
//
// Words and flags carry a tag that no other pass or launch uses, so reading one waits for it, and nothing is ever
// cleared. Rows take turns between two tables: a block can be one pass ahead of another that still reads, never two.
// With the first rows the blocks exchange which bits vary, so constant digits are skipped and the last pass is known:
// it writes decoded keys, or positions.
//
// A meeting is one store and one load through the L2 cache, some 1.5 us; two of them a pass are what the sort costs.
// The waits need all blocks to run at once: a cooperative launch guarantees it. The lanes of a warp leave a wait one by
// one; warp_sync brings them together again before they come to the next barrier.
#pragma once

#include "radix_job.cuh"

constexpr u32 ROW = RADIX + 4;  // counts of one block, and which bits are one and zero among its keys, in four halves

DEVICE u32 payload_of(u32 v) { return v; }
DEVICE u32 payload_of(None) { return 0; }

/// words[0], words[1] and, when Val is not None, payload[0], payload[1] are the buffers between passes; the input, out_keys
/// and out_values are as of radix_pass. rows: u64[2][blocks][ROW], flags: u64[blocks], both zero once. `launch` differs
/// from that of every earlier launch on this memory (of the last 2^28). At most THREADS blocks.
template <u32 THREADS, u32 ITEMS, class Src, class Val, u32 MODE>
__global__ void __launch_bounds__(THREADS, 1)
    radix_small(const __grid_constant__ Job job, u64* rows, u64* flags, u32 launch) {
    constexpr bool SEPARATE = sizeof(Val) > 1, PACKED = MODE == ARGSORT && !SEPARATE;
    constexpr u32 WARPS = THREADS / WARP, DIGITS = sizeof(Src), LOW = PACKED ? 64 - 8 * sizeof(Src) : 0, IN_FLIGHT = 8;
    constexpr u32 GROUPS = THREADS / RADIX;  // of threads that share the columns
    using Word = typename Choose<PACKED, u64, Src>::Type;
    static_assert(THREADS % RADIX == 0);
    SHARED(u32, counters, WARPS * RADIX);
    SHARED(u32, totals, GROUPS * RADIX);
    SHARED(u32, befores, GROUPS * RADIX);
    SHARED(u32, columns, GROUPS * RADIX);
    SHARED(u32, sums, WARPS);
    SHARED(u32, halves, 4);
    const u32 t = threadIdx.x, lane = t % WARP, warp = t / WARP, blocks = gridDim.x, block = blockIdx.x;
    const u32 group = t / RADIX, d_of_t = t % RADIX;
    const u32 n = u32(job.n), own = block * THREADS * ITEMS + warp * WARP * ITEMS + lane;
    const u32 below = (1u << lane) - 1, full = warp_ballot(true);
    u32* const mine = counters + warp * RADIX;

    Word word[ITEMS];
    Val value[SEPARATE ? ITEMS : 1];
    u64 ones = 0, zeros = 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i) {
        const u32 at = own + i * WARP;
        word[i] = Word(~Word(0));
        if constexpr (SEPARATE) value[i] = Val(at);
        if (at < n) {
            const Src key = key_of<Src, MODE == ARGSORT, false>(static_cast<const Src*>(job.keys)[at], job);
            ones |= key;
            zeros |= Src(~key);
            if constexpr (PACKED)
                word[i] = u64(key) << LOW | at;
            else
                word[i] = key;
        }
    }
    if (t < 4) halves[t] = 0;
    block_sync();
    const u32 half[4] = {reduce_or(u32(ones)), reduce_or(u32(ones >> 32)), reduce_or(u32(zeros)),
                         reduce_or(u32(zeros >> 32))};
    if (lane == 0)
        for (u32 h = 0; h < 4; ++h) atomic_or(halves + h, half[h]);

    u64 varying = ~u64(0) >> (64 - 8 * DIGITS);  // until all blocks have told
    u32 pass = 0;                                // those that moved keys; buffer pass % 2 is written
    u32 table = 0;                               // the one to publish in
    auto store = [&](u32 at, Word w, u32 payload, bool last) {
        if (!last) {
            static_cast<Word*>(job.words[pass % 2])[at] = w;
            if constexpr (SEPARATE) static_cast<Val*>(job.payload[pass % 2])[at] = Val(payload);
        } else if constexpr (MODE == KEYS) {
            static_cast<Src*>(job.out_keys)[at] = decode(w, job.codec);
        } else {
            const u32 position = SEPARATE ? payload : u32(u64(w) & ~(~u64(0) << LOW));
            if (job.index_bytes == 8)
                static_cast<u64*>(job.out_values)[at] = position;
            else
                static_cast<u32*>(job.out_values)[at] = position;
        }
    };
    for (u32 d = 0; d < DIGITS; ++d) {
        if (!(varying >> (8 * d) & 255)) continue;
        const ByteOf<Word, PACKED> digit(LOW / 8 + d);
        for (u32 c = lane; c < RADIX; c += WARP) mine[c] = 0;
        warp_sync();
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i)
            if (own + i * WARP < n) red_add(mine + digit(word[i]), 1u);
        block_sync();

        // publish this block's row, read all rows; each group of 256 threads takes its share of warps and of rows
        const u64 tag = u64(launch * 16 + 8 + d) << 32;
        u64* const all = rows + table * blocks * ROW;
        table ^= 1;
        auto gather = [&](u32 column, u32 from, u32 step, auto&& take) {
            for (u32 first = from; first < blocks; first += IN_FLIGHT * step) {
                u64 got[IN_FLIGHT];
#pragma unroll
                for (u32 k = 0; k < IN_FLIGHT; ++k)
                    got[k] = first + k * step < blocks ? ld_relaxed(all + (first + k * step) * ROW + column) : tag;
#pragma unroll
                for (u32 k = 0; k < IN_FLIGHT; ++k) {
                    while ((got[k] ^ tag) >> 32) got[k] = ld_relaxed(all + (first + k * step) * ROW + column);
                    take(first + k * step, u32(got[k]));
                }
            }
        };
        u32 count = 0;
        for (u32 w = group * WARPS / GROUPS; w < (group + 1) * WARPS / GROUPS; ++w) {  // exclusive, down the column
            const u32 c = counters[w * RADIX + d_of_t];
            counters[w * RADIX + d_of_t] = count;
            count += c;
        }
        columns[t] = count;
        block_sync();
        if (group == 0) {
            for (u32 g = 1; g < GROUPS; ++g) count += columns[g * RADIX + d_of_t];
            st_relaxed(all + block * ROW + t, tag | count);
            if (d == 0 && t < 4) st_relaxed(all + block * ROW + RADIX + t, tag | halves[t]);
        }
        u32 total = 0, before = 0;
        gather(d_of_t, group, GROUPS, [&](u32 b, u32 c) {
            total += c;
            before += b < block ? c : 0;
        });
        totals[t] = total;
        befores[t] = before;
        if (d == 0 && t < 4) gather(RADIX + t, 0, 1, [&](u32, u32 h) { halves[t] |= h; });
        warp_sync();
        block_sync();
        if (group == 0)
            for (u32 g = 1; g < GROUPS; ++g) {
                total += totals[g * RADIX + t];
                before += befores[g * RADIX + t];
            }
        // by all threads, though 256 need it: racecheck seems to take a barrier of part of a block for one of all
        const u32 lower = group_exclusive_scan(group == 0 ? total : 0, sums, THREADS, 1);
        if (group == 0) {
            u32 next = before + lower;
            for (u32 g = 0; g < GROUPS; ++g) {
                const u32 c = columns[g * RADIX + t];
                columns[g * RADIX + t] = next;
                next += c;
            }
        }
        block_sync();
        varying = (u64(halves[1]) << 32 | halves[0]) & (u64(halves[3]) << 32 | halves[2]);
        if (!(varying >> (8 * d) & 255)) continue;
        const bool last = d == DIGITS - 1 || !(varying >> (8 * d + 8));

        const u32* const start = columns + warp * GROUPS / WARPS * RADIX;
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) {
            const u32 b = digit(word[i]), peers = match_byte(b, full), rank = mine[b] + popc(peers & below);
            warp_sync();
            if (peers >> lane == 1) mine[b] = rank + 1;
            warp_sync();
            if (own + i * WARP < n) store(start[b] + rank, word[i], payload_of(value[SEPARATE ? i : 0]), last);
        }
        if (last) break;
        block_sync();
        if (t == 0) st_release(flags + block, tag);
        if (t < blocks)
            while (ld_acquire(flags + t) != tag) {
            }
        warp_sync();
        block_sync();
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) {
            const u32 at = own + i * WARP;
            if (at < n) {
                word[i] = static_cast<const Word*>(job.words[pass % 2])[at];
                if constexpr (SEPARATE) value[i] = static_cast<const Val*>(job.payload[pass % 2])[at];
            }
        }
        ++pass;
    }
    if (!varying)  // all keys are equal: nothing was stored
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i)
            if (own + i * WARP < n) store(own + i * WARP, word[i], own + i * WARP, true);
}
