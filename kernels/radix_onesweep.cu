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

#include "keys.cuh"
#include "scan.cuh"

constexpr u32 RADIX = 256;
constexpr u32 WINDOW = 4;  // status rows read at once; so many unused rows stand in front of row 0

/// What a sort carries besides keys.
enum Mode : u32 {
    KEYS,        // nothing: the output is the sorted values
    ARGSORT,     // the positions, made in the first pass; the output is the positions
    ARGSORT_BY,  // given positions: rows already sorted by a less significant key; the output is the positions
    PAIRS,       // given values; the output is both
};

/// No separate payload: there is none, or positions or values of 4 bytes travel inside the 8-byte word.
struct None {
    None() = default;
    DEVICE explicit None(u64) {}
};

template <bool YES, class A, class B> struct Choose { using Type = A; };
template <class A, class B> struct Choose<false, A, B> { using Type = B; };

/// Takes one byte out of a word, in one instruction (two for whole 8-byte keys). UPPER: it is one of the upper four.
template <class Word, bool UPPER>
struct ByteOf {
    u32 selector;
    DEVICE explicit ByteOf(u32 byte) : selector(sizeof(Word) == 8 && !UPPER ? byte : 0x4440u | (byte & 3u)) {}
    DEVICE u32 operator()(Word w) const {
        if constexpr (sizeof(Word) < 8)
            return byte_perm(u32(w), 0u, selector);
        else if constexpr (UPPER)
            return byte_perm(u32(w >> 32), 0u, selector);
        else
            return byte_perm(u32(w), u32(w >> 32), selector) & 255u;
    }
};

/// Counters and the plan, in device memory, zero before the histogram.
struct Control {
    u32 ticket[8];         // next tile of each pass
    u32 histogram_ticket;  // blocks that have added their bins
    u32 repair_ticket;
    u32 seen;              // special floats (keys.cuh)
    u32 active;            // passes to run
    u32 digit[8];          // digit of each pass
    u64 ones, zeros;       // bits that are 1, that are 0, in some code: varying bits are ones & zeros
    u64 work;              // steps of long walks in the finish
    u32 failed, spare[5];  // the finish met too much work and gave up: the output is not sorted
};

/// The bits of the code that take part, moved together: up to four stretches.
struct Squeeze {
    u64 mask[4];   // where a stretch stands in the squeezed code
    u32 shift[4];  // how far it was moved down
    u64 constant;  // the bits left out
};

static_assert(sizeof(Control) == 128, "distsort/backends/cupy_radix.py: CONTROL");

/// One sort. Buffers 0 and 1 take turns so that the last pass writes 0; the input is only read.
struct Job {
    u64 n;
    const void* keys;    // Src[n]
    const void* values;  // PAIRS: values, ARGSORT_BY: positions (4 bytes when n < 2^32, else 8)
    void* words[2];      // Word[n]
    void* payload[2];    // Val[n]
    void* out_keys;      // Src[n]
    void* out_values;    // values or positions
    Control* control;
    u64* bins;           // [digits][RADIX], zero before the histogram; then where each digit value starts
    u64* specials;       // [2 x tiles of the repair], zero before it
    void* status;        // Count[WINDOW + tiles][RADIX], zero before the first pass
    Codec codec;
    Squeeze squeeze;
    u32 index_bytes;     // width of positions written: 4 or 8
    u32 skip;            // varying digits left out, the lowest: radix_finish puts their order right,
    u32 finish;          // 1: the finish comes after the last pass, so the passes end in buffer 1
};

static_assert(sizeof(Job) == 216, "distsort/backends/cupy_radix.py: JOB");

template <class Src, class Key>
DEVICE Key squeeze(Src code, const Squeeze& s) {
    u64 key = 0;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) key |= (u64(code) >> s.shift[j]) & s.mask[j];
    return Key(key);
}

template <class Src, class Key>
DEVICE Src unsqueeze(Key key, const Squeeze& s) {
    u64 code = s.constant;
#pragma unroll
    for (u32 j = 0; j < 4; ++j) code |= (u64(key) & s.mask[j]) << s.shift[j];
    return Src(code);
}

/// The key of a value: unified when positions break ties, encoded, squeezed.
template <class Key, bool UNIFY, bool SQUEEZE, class Src>
DEVICE Key key_of(Src value, const Job& job) {
    if constexpr (UNIFY) value = unify(value, job.codec);
    const Src code = encode(value, job.codec);
    if constexpr (SQUEEZE)
        return squeeze<Src, Key>(code, job.squeeze);
    else
        return Key(code);
}

// --- all digits counted, and the plan ---------------------------------------------------------------------------

/// Replicated bins: COLUMNS copies of each in neighbouring banks, a lane's column is lane % COLUMNS. Grid-stride, 16
/// bytes a load. The last block to finish scans the bins and writes the plan.
/// WATCH: note the special floats among keys that are sorted alone.
template <u32 THREADS, u32 COLUMNS, class Src, class Key, bool UNIFY, bool SQUEEZE, bool WATCH>
__global__ void __launch_bounds__(THREADS) radix_histogram(const __grid_constant__ Job job) {
    constexpr u32 DIGITS = sizeof(Key), BINS = DIGITS * RADIX, GROUPS = THREADS / RADIX, IN_FLIGHT = 4;
    constexpr u32 N = Vec16<Src>::N;
    static_assert(THREADS % RADIX == 0);
    const u32 t = threadIdx.x, lane = t % WARP;
    Carve smem;
    u32* counters = smem.take<u32>(BINS * COLUMNS);
    u64* sums = smem.take<u64>(THREADS / WARP);
    u32* flags = smem.take<u32>(DIGITS + 1);
    for (u32 i = t; i < BINS * COLUMNS; i += THREADS) counters[i] = 0;
    block_sync();

    u32 seen = 0;
    u32* const column = counters + lane % COLUMNS;
    auto count = [&](Src value) {
        if constexpr (WATCH) seen |= special_float(value, job.codec);
        const Key key = key_of<Key, UNIFY, SQUEEZE>(value, job);
#pragma unroll
        for (u32 d = 0; d < DIGITS; ++d) red_add(column + (d * RADIX + (u32(key >> (8 * d)) & 255u)) * COLUMNS, 1u);
    };
    const Src* keys = static_cast<const Src*>(job.keys);
    const u64 odd = (16 - (u64(keys) & 15)) / sizeof(Src) % N;  // values before the first 16-byte boundary
    const u64 head = min(odd, job.n), vectors = (job.n - head) / N, tail = head + vectors * N;
    const u64 me = u64(blockIdx.x) * THREADS + t, stride = u64(gridDim.x) * THREADS;
    u64 v = me;
    for (; v + (IN_FLIGHT - 1) * stride < vectors; v += IN_FLIGHT * stride) {
        Vec16<Src> loaded[IN_FLIGHT];
#pragma unroll
        for (u32 k = 0; k < IN_FLIGHT; ++k) loaded[k] = load16(keys + head + (v + k * stride) * N);
#pragma unroll
        for (u32 k = 0; k < IN_FLIGHT; ++k)
#pragma unroll
            for (u32 i = 0; i < N; ++i) count(loaded[k].v[i]);
    }
    for (; v < vectors; v += stride) {
        const Vec16<Src> loaded = load16(keys + head + v * N);
#pragma unroll
        for (u32 i = 0; i < N; ++i) count(loaded.v[i]);
    }
    if (me < head) count(keys[me]);
    if (me < job.n - tail) count(keys[tail + me]);

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

// --- one pass -----------------------------------------------------------------------------------------------------

/// Flag and count in one word: a count seen is a count that was meant. The flag of a finished row alternates between
/// two values by pass, so rows need no clearing between passes: what the last pass left reads as "not there yet".
template <class Count>
struct Status {
    static constexpr u32 SHIFT = 8 * sizeof(Count) - 2;
    static constexpr Count VALUE = (Count(1) << SHIFT) - 1;
    static constexpr Count PARTIAL = Count(1) << SHIFT;
    DEVICE static Count inclusive(u32 pass) { return Count(2 + pass % 2) << SHIFT; }
};

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
    constexpr bool SEPARATE = sizeof(Val) > 1;                   // a payload array beside the keys
    constexpr bool PACKED = MODE != KEYS && !SEPARATE;           // payload in the low bits of the word
    constexpr bool UNIFY = MODE == ARGSORT || MODE == ARGSORT_BY;
    using Word = typename Choose<PACKED, u64, Key>::Type;
    constexpr u32 LOW = PACKED ? 64 - 8 * sizeof(Key) : 0;       // bits below the key
    constexpr u32 TILE = THREADS * ITEMS, WARPS = THREADS / WARP;
    static_assert(THREADS >= RADIX && TILE < (1u << 30));

    const u32 active = job.control->active - job.skip;
    if (pass >= active) return;  // the same for every thread of the grid
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
        for (u32 i = 0; i < ITEMS; ++i) word[i] = own + i * WARP < valid ? load(start + own + i * WARP) : Word(~Word(0));
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
        const Count before = tile ? look_back(row, inclusive) : Count(job.bins[job.control->digit[job.skip + pass] * RADIX + t]);
        st_relaxed(row, inclusive | (before + count));
        offsets[t] = before - local;  // modulo 2^bits; adding the position in the tile makes it whole
    }
    block_sync();

    // write
    const ByteOf<Word, PACKED> digit_last(shared[1]);
    auto write = [&](auto&& store) {
#pragma unroll
        for (u32 i = 0; i < ITEMS; ++i) {
            const u32 p = i * THREADS + t;
            if (p < valid) {
                const Word w = words[p];
                store(p, w, Count(offsets[digit_last(w)] + p));
            }
        }
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

// --- floats whose equal values have different bits ------------------------------------------------------------------

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

/// Sum of the words before this one of a stride-2 array, by a whole warp, 32 words a step; see look_back.
DEVICE u64 warp_look_back(const u64* words, u64 tile) {
    using S = Status<u64>;
    const u32 lane = threadIdx.x % WARP;
    u64 sum = 0;
    for (u64 end = tile;; end -= WARP) {
        const bool on = lane < end;
        u64 word = on ? ld_acquire(words + 2 * (end - 1 - lane)) : S::PARTIAL;
        while (warp_any(!(word & ~S::VALUE))) word = on ? ld_acquire(words + 2 * (end - 1 - lane)) : S::PARTIAL;
        const u32 whole = warp_ballot((word & ~S::VALUE) != S::PARTIAL), last = whole & (0u - whole);  // its lowest bit
        u64 part = !whole || (1u << lane) <= last ? word & S::VALUE : 0;
#pragma unroll
        for (u32 x = WARP / 2; x > 0; x /= 2) part += shfl_xor(part, x);
        sum += part;
        if (whole) return sum;
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
            u64 before;
            if (tile == 0) {
                const Src plus = encode(Src(0), c), minus = encode(Src(Src(1) << (8 * sizeof(Src) - 1)), c);
                before = lower_bound<Src>(job, warp ? Src(Src(0) - Src(2 * c.lift)) : min(plus, minus));
            } else {
                if (lane == 0) st_relaxed(word, S::PARTIAL | sum);
                before = warp_look_back(job.specials + warp, tile);
            }
            // released and acquired along the chain: tile 0 has searched the output before anyone writes to it
            if (lane == 0) {
                st_release(word, S::inclusive(0) | (before + sum));
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
