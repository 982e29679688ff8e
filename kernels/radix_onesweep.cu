// The production radix sort: one read and one write of the data for each digit of 8 bits.
//
// A least-significant-digit radix sort makes one stable pass per digit. The classic form (radix_ladder.cu) needs three
// launches a pass: count, scan, scatter; and reads the keys twice. Here all digits are counted up front, and a pass
// finds out where its tile's keys go while it runs, by looking back at the tiles before it.
//
//      keys --> radix_histogram: 256 bins for each digit ---+-- last block: scans bins, leaves out constant digits
//        |                                                  v                              (the plan, on the device)
//        +----> radix_pass 0 ----> radix_pass 1 ----> ... radix_pass k-1 ----> radix_repair, floats only
//               encodes on load                           decodes on store     does nothing unless -0.0 met +0.0 or
//               makes indices                             drops keys           NaNs of different bits were seen
//
// One tile of a pass (THREADS x ITEMS keys in registers, striped over each warp's own stretch of the tile):
//
//      ticket       tile number from an atomic counter, so that a tile waits only for tiles already running
//      count        red_add(counters[warp][digit]): no return value, equal digits of a warp merge in hardware
//      publish      status[tile][digit] = PARTIAL | count                     one word holds flag and value
//      scan         over 256 digits, then down each digit's column of warps: counters[warp][digit] = first position
//      rank         for each key, in order: 8 ballots find the lanes of the same digit;
//                   position = counter + lanes below; the highest such lane moves the counter on
//      scatter      shared[position] = key: the tile is sorted by this digit now
//      look back    thread d adds status[tile-1][d], [tile-2][d], ... until one is INCLUSIVE, then publishes its own
//      write        neighbours in shared memory go to neighbours in global memory
//
//      status rows   tile 0      1        2        3        4
//        digit d    |INCL 70|INCL 92|PART 11|PART 30| me: 30 + 11 + 92, publish INCL
//                                                   <---- look back, WINDOW rows a step
//
// Why it is laid out so: shared-memory traffic bounds 4-byte keys and memory bandwidth the wider ones, so nothing is
// kept twice. Counting first costs one cheap atomic a key and frees the registers that ranks would take; the digit is
// extracted again (one byte permute) rather than kept. Ranks come from ballots alone: the order in which the lanes of
// one atomic are served is not documented. A warp's lanes keep input order and the counters go in key order, so
// every pass is stable.
//
// Pads: the last tile is filled with words of all ones. They rank behind every real key of the tile (stable, highest
// digit, last positions), so the first `n - tile start` positions are exactly the real keys.
//
// (Onesweep: Adinets and Merrill, 2022. Decoupled look-back: Merrill and Garland, 2016.)
#pragma once

#include "radix_histogram.cuh"
#include "radix_repair.cuh"

/// Where this tile's keys of one digit start in the output: the sum of the rows before it. `row` is the tile's own.
template <class Count>
DEVICE Count look_back(const Count* row, Count inclusive) {
    using S = Status<Count>;
    Count before = 0;
    for (bool done = false; !done;) {
        Count word[WINDOW];
#pragma unroll
        for (u32 k = 0; k < WINDOW; ++k) word[k] = ld_relaxed(row - (k + 1) * RADIX);
        bool on = true;  // no gap so far in this window
        u32 used = 0;
#pragma unroll
        for (u32 k = 0; k < WINDOW; ++k) {
            const Count flag = word[k] & ~S::VALUE;
            on = on && !done && (flag == S::PARTIAL || flag == inclusive);
            before += on ? word[k] & S::VALUE : Count(0);
            used += on;
            done = done || (on && flag == inclusive);
        }
        row -= used * RADIX;
    }
    return before;
}

template <u32 THREADS, u32 ITEMS, u32 BLOCKS, class Src, class Key, class Val, class Count, u32 MODE, bool FIRST,
          bool SQUEEZE>
__global__ void __launch_bounds__(THREADS, BLOCKS) radix_pass(const __grid_constant__ Job job, u32 pass) {
    constexpr bool SEPARATE = sizeof(Val) > 1;          // a payload array beside the keys
    constexpr bool PACKED = MODE != KEYS && !SEPARATE;  // payload in the low bits of the word
    constexpr bool UNIFY = MODE == ARGSORT || MODE == ARGSORT_BY;
    using Word = typename Choose<PACKED, u64, Key>::Type;
    constexpr u32 LOW = PACKED ? 64 - 8 * sizeof(Key) : 0;  // bits below the key
    constexpr u32 TILE = THREADS * ITEMS, WARPS = THREADS / WARP;
    static_assert(THREADS >= RADIX && TILE < (1u << 30));

    const u32 active = job.control->active - job.skip;
    if (pass >= active) return;                        // the same for every thread of the grid
    const u32 after = active - 1 - pass + job.finish;  // what still reads a buffer of this sort
    const bool last = after == 0;
    const u32 to = after % 2, from = to ^ 1;

    const u32 t = threadIdx.x, lane = t % WARP, warp = t / WARP;
    Carve smem;
    Word* words = smem.take<Word>(TILE);
    Val* values = smem.take<Val>(SEPARATE ? TILE : 1);
    u32* counters = smem.take<u32>(WARPS * RADIX);
    Count* offsets = smem.take<Count>(RADIX);
    u32* sums = smem.take<u32>(WARPS);
    u32* shared = smem.take<u32>(2);  // the tile; the byte to sort by, read again by each step (see there)

    u32* const mine = counters + warp * RADIX;
    for (u32 d = lane; d < RADIX; d += WARP) mine[d] = 0;
    if (t == 0) {
        shared[0] = atomic_add(&job.control->ticket[pass], 1u);
        shared[1] = LOW / 8 + (SQUEEZE ? pass : job.control->digit[job.skip + pass]);  // squeezed: all digits vary
    }
    block_sync();
    const u32 tile = shared[0];
    const u64 start = u64(tile) * TILE;
    const u32 valid = u32(min(u64(TILE), job.n - start));

    // load: lane-consecutive within each warp's stretch
    const u32 own = warp * WARP * ITEMS + lane;
    auto given = [&](u64 at) -> u64 {  // the position or value that came with the input
        return sizeof(Val) == 8 ? static_cast<const u64*>(job.values)[at] : static_cast<const u32*>(job.values)[at];
    };
    auto load = [&](u64 at) -> Word {
        if constexpr (!FIRST) {
            return static_cast<const Word*>(job.words[from])[at];
        } else {
            const u64 payload = MODE == ARGSORT_BY || (MODE == PAIRS && PACKED) ? given(at) : at;
            const u64 source = MODE == ARGSORT_BY ? payload : at;
            const Key key = key_of<Key, UNIFY, SQUEEZE>(static_cast<const Src*>(job.keys)[source], job);
            if constexpr (PACKED)
                return u64(key) << LOW | payload;
            else
                return key;
        }
    };
    Word word[ITEMS];
    if (valid == TILE) {
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) word[i] = load(start + own + i * WARP);
    } else {
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i)
            word[i] = own + i * WARP < valid ? load(start + own + i * WARP) : Word(~Word(0));
    }

    // count. Each step extracts the digits anew, by a selector that the compiler cannot know to be the same: it would
    // rather keep ITEMS digits in registers, which are not there
    const ByteOf<Word, PACKED> digit(shared[1]);
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i) red_add(mine + digit(word[i]), 1u);
    block_sync();

    // publish, and turn the counts into first positions: digits in order, within a digit warps in order
    using S = Status<Count>;
    Count* const row = static_cast<Count*>(job.status) + (u64(tile) + WINDOW) * RADIX + t;
    u32 count = 0, local = 0;
    if (t < RADIX) {
        for (u32 w = 0; w < WARPS; ++w) count += counters[w * RADIX + t];
        if (tile) st_relaxed(row, S::PARTIAL | count);
        local = group_exclusive_scan(count, sums, RADIX, 1);
        u32 next = local;
        for (u32 w = 0; w < WARPS; ++w) {
            const u32 c = counters[w * RADIX + t];
            counters[w * RADIX + t] = next;
            next += c;
        }
    }
    block_sync();

    // rank and scatter; separate payloads are fetched half a buffer ahead of their use
    constexpr u32 BUFFER = SEPARATE ? 16 : 1;
    Val value[BUFFER];
    auto fetch = [&](u32 i) {
        const u64 at = start + own + i * WARP;
        if constexpr (FIRST && MODE == ARGSORT)
            value[i % BUFFER] = Val(at);
        else if (own + i * WARP < valid)
            value[i % BUFFER] = FIRST ? Val(given(at)) : static_cast<const Val*>(job.payload[from])[at];
    };
    if constexpr (SEPARATE) {
#pragma unroll
        for (u32 i = 0; i < BUFFER / 2; ++i) fetch(i);
    }
    const ByteOf<Word, PACKED> digit_again(shared[1]);
    const u32 below = (1u << lane) - 1, all = warp_ballot(true);
#pragma unroll
    for (u32 i = 0; i < ITEMS; ++i) {
        if constexpr (SEPARATE)
            if (i % (BUFFER / 2) == 0) {
#pragma unroll
                for (u32 k = i + BUFFER / 2; k < i + BUFFER; ++k)
                    if (k < ITEMS) fetch(k);
            }
        const u32 d = digit_again(word[i]);
        const u32 peers = match_byte(d, all);
        const u32 position = mine[d] + popc(peers & below);
        warp_sync();
        if (peers >> lane == 1) mine[d] = position + 1;
        warp_sync();
        words[position] = word[i];
        if constexpr (SEPARATE) values[position] = value[i % BUFFER];
    }

    // look back
    if (t < RADIX) {
        const Count inclusive = S::inclusive(pass);
        const Count before =
            tile ? look_back(row, inclusive) : Count(job.bins[job.control->digit[job.skip + pass] * RADIX + t]);
        st_relaxed(row, inclusive | (before + count));
        offsets[t] = before - local;  // modulo 2^bits; adding the position in the tile makes it whole
    }
    block_sync();

    // write
    const ByteOf<Word, PACKED> digit_last(shared[1]);
    auto write = [&](auto&& store) {
        auto move = [&](u32 p) {
            const Word w = words[p];
            store(p, w, Count(offsets[digit_last(w)] + p));
        };
#pragma unroll
        for (u32 i = 0; i < ITEMS;
             ++i)  // checked in full tiles too: without, the compiler hoists loads and runs slower
            if (i * THREADS + t < valid) move(i * THREADS + t);
    };
    if (!last) {
        Word* const out = static_cast<Word*>(job.words[to]);
        Val* const out_values = static_cast<Val*>(job.payload[to]);
        write([&](u32 p, Word w, Count at) {
            out[at] = w;
            if constexpr (SEPARATE) out_values[at] = values[p];
        });
        return;
    }
    if constexpr (MODE == ARGSORT || MODE == ARGSORT_BY) {
        auto index_of = [&](u32 p, Word w) -> u64 {
            if constexpr (SEPARATE)
                return values[p];
            else
                return u64(w) & ~(~u64(0) << LOW);
        };
        if (job.index_bytes == 8)
            write([&](u32 p, Word w, Count at) { static_cast<u64*>(job.out_values)[at] = index_of(p, w); });
        else
            write([&](u32 p, Word w, Count at) { static_cast<u32*>(job.out_values)[at] = u32(index_of(p, w)); });
    } else {
        Src* const out = static_cast<Src*>(job.out_keys);
        write([&](u32 p, Word w, Count at) {
            const Key key = Key(w >> LOW);
            Src code;
            if constexpr (SQUEEZE)
                code = unsqueeze<Src, Key>(key, job.squeeze);
            else
                code = Src(key);
            out[at] = decode(code, job.codec);
            if constexpr (MODE == PAIRS) {
                if constexpr (SEPARATE)
                    static_cast<Val*>(job.out_values)[at] = values[p];
                else
                    static_cast<u32*>(job.out_values)[at] = u32(w);
            }
        });
    }
}
