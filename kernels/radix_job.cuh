// What the radix kernels and their launcher share: the parameters of one sort, its counters and plan, words and digits.
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

template <bool YES, class A, class B>
struct Choose {
    using Type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
    using Type = B;
};

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
    u32 seen;              // special floats (keys.cuh)
    u32 active;            // passes to run
    u32 failed;            // the finish met too much work and gave up: the output is not sorted
    u32 digit[8];          // digit of each pass
    u64 ones, zeros;       // bits that are 1, that are 0, in some code: varying bits are ones & zeros
    u64 work;              // steps of long walks in the finish
    u64 spare[3];
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
    u64* bins;      // [digits][RADIX], zero before the histogram; then where each digit value starts
    u32* specials;  // zeros and NaNs of each piece (Pieces), zero at first; behind them u64[groups + 1][2]
    void* status;   // Count[WINDOW + tiles][RADIX], zero before the first pass
    Codec codec;
    Squeeze squeeze;
    u32 index_bytes;  // width of positions written: 4 or 8
    u32 skip;         // varying digits left out, the lowest: radix_finish puts their order right,
    u32 finish;       // 1: the finish comes after the last pass, so the passes end in buffer 1
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

/// Flag and count in one word: a count seen is a count that was meant. The flag of a finished row alternates between
/// two values by pass, so rows need no clearing between passes: what the last pass left reads as "not there yet".
template <class Count>
struct Status {
    static constexpr u32 SHIFT = 8 * sizeof(Count) - 2;
    static constexpr Count VALUE = (Count(1) << SHIFT) - 1;
    static constexpr Count PARTIAL = Count(1) << SHIFT;
    DEVICE static Count inclusive(u32 pass) { return Count(2 + pass % 2) << SHIFT; }
};

/// How the histogram and the repair of floats divide the input: pieces of 2 KB that start at a 16-byte boundary, number 1
/// to `whole`, with what is left before and after them as pieces 0 and whole + 1.
template <class Src>
struct Pieces {
    static constexpr u32 VECTORS = 4, SIZE = VECTORS * WARP * Vec16<Src>::N, GROUP = WARP;
    u64 n, head, whole;
    DEVICE Pieces(const Src* keys, u64 n) : n(n) {
        const u64 odd = (16 - (u64(keys) & 15)) / sizeof(Src) % Vec16<Src>::N;
        head = min(odd, n);
        whole = (n - head) / SIZE;
    }
    DEVICE u64 count() const { return whole + 2; }
    DEVICE u64 groups() const { return (count() + GROUP - 1) / GROUP; }
    DEVICE u64 start(u64 piece) const { return piece == 0 ? 0 : piece > whole + 1 ? n : head + (piece - 1) * SIZE; }
};
