// The production merge: K sorted runs to one, stable, in one pass over memory (K = 2, 4, 8).
//
//   merge_cuts   for each output tile, how much of it comes from each run: the co-ranks of its first rank, by
//                (key, run, position), so that no tile is ever too full however many keys are equal
//   merge_tiles  one block for each tile:
//
//       run 0 ---piece---+                                                    log2 K rounds in shared memory
//       run 1 ---piece---+--> x: [ p0 | p1 | p2 | p3 ]  16 bytes at a time
//       run 2 ---piece---+         \   /    \   /
//       run 3 ---piece---+    y: [  p01   |  p23  ]     each thread co-ranks the first of its ITEMS outputs in its pair
//                                   \      /            and merges them one by one: two heads in registers, one new
//                              x: [    p0123    ]       key read from shared memory for each key written
//                                       |
//                                  output tile          16 bytes at a time
//
// A round goes from one buffer to the other, so it needs one barrier and no registers for the tile. ITEMS is odd:
// neighbouring threads then write to different banks. In a round with several pairs each pair starts at a thread of
// its own, hence a tile has SPARE * ITEMS fewer keys than the block has room for.
//
// What limits it is shared memory: for 32 keys a round costs one scattered read a key, the search (about
// 2 log2(tile) / ITEMS reads a key) and one write; two rounds more for K = 8 cost much less than two passes over
// memory.
//
// A piece that crossed as offsets (narrow.cuh) is loaded to y, and becomes keys in x before the first round writes to y.
//
// Keys move as they are; only their codes (keys.cuh) are compared. Values and gather indices do not take part: each
// key carries the 16-bit place in x that it came from, and at the end a value is read from its run directly, by
// neighbouring threads from few places, or the index is made from the place.
#include "co_rank.cuh"
#include "keys.cuh"
#include "narrow.cuh"

/// How keys become codes: unsigned ascending keys are their own; other integers differ by bits to flip (Codec::flip);
/// floats and dates need all of keys.cuh.
enum Coding : u32 { PLAIN, FLIPPED, CODED };

/// The codes of keys that lie at `data`, or are made where they are read.
template <class T, u32 CODING, class Data = const T*>
struct Codes {
    Data data;
    Codec codec;
    HOST_DEVICE T of(T key) const {
        if constexpr (CODING == PLAIN) return key;
        if constexpr (CODING == FLIPPED) return T(key ^ T(codec.flip));
        return encode(unify(key, codec), codec);
    }
    template <class Index>
    HOST_DEVICE T operator[](Index i) const {
        return of(data[i]);
    }
    template <class Index>
    HOST_DEVICE Codes operator+(Index i) const {
        return {data + i, codec};
    }
};

/// The runs, a table of u64 in device memory: K addresses of keys, K lengths, K places of the runs in their
/// concatenation, K addresses of values. Runs may lie anywhere; absent ones have length 0. For runs of which some were
/// copied as offsets also what NarrowKeys has of each: addresses of offsets and ends, rows, low and high, widths (0: not
/// narrow), and whether it descends.
template <class T, u32 K>
struct Runs {
    const u64* table;
    DEVICE NarrowKeys<T> narrow(u32 r) const {
        return {keys(r),
                table[4 * K + r],
                reinterpret_cast<const T*>(table[5 * K + r]),
                table[6 * K + r],
                table[7 * K + r],
                table[8 * K + r],
                u32(table[9 * K + r]),
                table[10 * K + r] != 0};
    }
    DEVICE const T* keys(u32 r) const { return reinterpret_cast<const T*>(table[r]); }
    DEVICE u64 length(u32 r) const { return table[K + r]; }
    DEVICE u64 start(u32 r) const { return table[2 * K + r]; }
    template <class V>
    DEVICE const V* values(u32 r) const {
        return reinterpret_cast<const V*>(table[3 * K + r]);
    }
    template <u32 CODING, bool NARROWED>
    DEVICE auto codes(u32 r, const Codec& codec) const {
        if constexpr (NARROWED)
            return Codes<T, CODING, NarrowKeys<T>>{narrow(r), codec};
        else
            return Codes<T, CODING>{keys(r), codec};
    }
};

constexpr u32 CUT_THREADS = 256;

/// cuts[c * K + r] = elements of run r among the first min(start + c * tile, total), for c in [0, count). Each block
/// finds its first cut and the next block's, and between them the others. NARROWED: of some runs offsets were copied.
template <class T, u32 K, u32 CODING, bool NARROWED = false>
__global__ void __launch_bounds__(CUT_THREADS, NARROWED ? 1 : 0)
    merge_cuts(const u64* table, Codec codec, u64 start, u64 total, u64 tile, u32 count, u64* cuts) {
    constexpr u32 LANES = K == 2 ? 1 : K, CUTS = CUT_THREADS / LANES;
    SHARED2(u64, bracket, 2, K);
    const Runs<T, K> runs{table};
    const u64 first = u64(blockIdx.x) * CUTS, c = first + threadIdx.x / LANES;
    const u64 k = min(start + c * tile, total), k_first = min(start + first * tile, total),
              k_next = min(start + (first + CUTS) * tile, total);
    if constexpr (K == 2) {
        const auto a = runs.template codes<CODING, NARROWED>(0, codec),
                   b = runs.template codes<CODING, NARROWED>(1, codec);
        if (threadIdx.x == 0) bracket[0][0] = co_rank_radix<16>(k_first, a, runs.length(0), b, runs.length(1));
        if (threadIdx.x == WARP) bracket[1][0] = co_rank_radix<16>(k_next, a, runs.length(0), b, runs.length(1));
        block_sync();
        if (c >= count) return;
        const u64 i = bracket[0][0], i_next = bracket[1][0], low = max(i, k - min(k, k_next - i_next)),
                  high = min(i_next, k - (k_first - i));
        const double fill = k_next > k_first ? double(k - k_first) / double(k_next - k_first) : 0.0;
        const u64 cut = co_rank_near(k, a, b, low, high, max(low, min(high, i + u64(fill * double(i_next - i)))));
        cuts[2 * c] = cut;
        cuts[2 * c + 1] = k - cut;
    } else {
        const u32 r = threadIdx.x % K, group = threadIdx.x / K;
        const auto run = runs.template codes<CODING, NARROWED>(r, codec);
        if (threadIdx.x < WARP) {
            const u64 cut = co_rank_many<K>(group == 0 ? k_first : k_next, run, u64(0), runs.length(r));
            if (group < 2) bracket[group][r] = cut;
        }
        block_sync();
        const u64 cut =
            co_rank_many<K>(k, run, bracket[0][r], bracket[1][r]);  // the whole warp, beyond the last cut too
        if (c < count) cuts[c * K + r] = cut;
    }
}

enum Carry : u32 { NOTHING, VALUES, INDEX };

/// Where the offsets of a piece are copied from, 16 bytes at a time, and how far behind the place of its first 16 bytes.
/// They touch no more 16 bytes than its keys do.
struct Stage {
    u64 source;
    u32 bytes, skip;
};
template <class T>
DEVICE Stage stage_of(const NarrowKeys<T>& run, u64 row, u32 length) {
    const u64 low = max(row, run.low), high = min(row + length, run.high), rows = 16 / run.width;
    if (low >= high) return {0, 0, 0};
    const u64 first = low / rows, last = (high - 1) / rows;
    return {run.offsets + first * 16, u32(last - first + 1) * 16, u32(first - row / rows) * 16};
}

/// Makes the keys of a piece at `keys` from offsets that were copied to `staged`, both 16-byte aligned: its first key has the
/// place in 16 bytes that it has in its run. Keys whose offsets are not here, or do not fit, are read where they lie.
/// first, fits: of each block of rows that the piece touches.
template <u32 THREADS, class T>
DEVICE void widen_piece(const NarrowKeys<T>& piece, u32 length, const T* first, const bool* fits, const T* staged,
                        T* keys) {
    constexpr u32 CHUNK = 16 / sizeof(T);
    const u32 lead = u32(piece.row % CHUNK), end = lead + length;
    const u64 base = piece.row - lead;
    const u32 low = u32(min(piece.low - min(piece.low, base), u64(end)));
    const u32 high = u32(min(piece.high - min(piece.high, base), u64(end)));
    const u32 in_block = u32(base % NARROW_ROWS), in_stage = u32(base % (16 / piece.width));
    const u8* offsets = reinterpret_cast<const u8*>(staged) + in_stage * piece.width;
    for (u32 e = threadIdx.x * CHUNK; e < end; e += THREADS * CHUNK) {
        const u32 b = (in_block + e) / NARROW_ROWS;
        if (e >= low && e + CHUNK <= high && fits[b]) {
            store16(keys + e, piece.widen(first[b], offsets + e * piece.width));
        } else {
            for (u32 k = max(e, lead); k < min(e + CHUNK, end); ++k) keys[k] = piece[k - lead];
        }
    }
}

template <class T, u32 K, u32 THREADS, u32 ITEMS>
struct Tile {
    static constexpr u32 CHUNK = 16 / sizeof(T);                      // keys of one 16-byte access
    static constexpr u32 SPARE = K == 2 ? 0 : CHUNK < 4 ? 4 : CHUNK;  // threads
    static constexpr u32 SIZE = (THREADS - SPARE) * ITEMS;            // keys of output
    static constexpr u32 ROOM = THREADS * ITEMS + 2 * K * CHUNK;      // keys of a buffer
    static constexpr u32 BLOCKS = SIZE / NARROW_ROWS + 2;             // of rows that a piece may touch
    static_assert(ITEMS % 2 == 1 && ROOM < 65536 && SIZE % CHUNK == 0);
};

/// One round: pairs of pieces of `from` to pieces of `to`; begin and length describe the pieces, before and after.
template <u32 PIECES, u32 ITEMS, bool FIRST, bool CARRY, class T, u32 CODING>
DEVICE void merge_round(Codes<T, CODING> from, const u16* from_place, T* to, u16* to_place, u32 (&begin)[PIECES],
                        u32 (&length)[PIECES]) {
    // the pair of this thread, and how many threads are before that pair's first
    u32 a = 0, b = 0, m = 0, n = 0, before = 0, next = 0;
#pragma unroll
    for (u32 p = 0; p < PIECES / 2; ++p) {
        const u32 first = next;
        next += (length[2 * p] + length[2 * p + 1] + ITEMS - 1) / ITEMS;
        if (threadIdx.x >= first && threadIdx.x < next) {
            before = first;
            a = begin[2 * p], m = length[2 * p];
            b = begin[2 * p + 1], n = length[2 * p + 1];
        }
        begin[p] = first * ITEMS;
        length[p] = length[2 * p] + length[2 * p + 1];
    }
    if (threadIdx.x < next) {
        const u32 k = (threadIdx.x - before) * ITEMS, here = min(ITEMS, m + n - k);
        const u32 a_end = a + m, b_end = b + n;
        const u32 i = co_rank_binary(k, from + a, m, from + b, n);
        a += i;
        b += k - i;
        // two keys ahead of each run, so that no step waits for the read it starts; past a piece's end: read, never used
        T key_a = from.data[a], key_b = from.data[b], next_a = from.data[a + 1], next_b = from.data[b + 1];
        [[maybe_unused]] T code_a = from.of(key_a), code_b = from.of(key_b);  // of plain keys: not used
        T* out = to + threadIdx.x * ITEMS;
        u16* out_place = to_place + threadIdx.x * ITEMS;
#pragma unroll 4
        for (u32 s = 0; s < here; ++s) {
            const bool b_first = CODING == PLAIN ? key_b < key_a : code_b < code_a;
            const bool take_a = b >= b_end || (a < a_end && !b_first);
            const u32 taken = take_a ? a : b;
            const T ahead = from.data[taken + 2];
            out[s] = take_a ? key_a : key_b;
            if constexpr (CARRY) out_place[s] = FIRST ? u16(taken) : from_place[taken];
            if (take_a) {
                a = taken + 1, key_a = next_a, next_a = ahead;
                if constexpr (CODING != PLAIN) code_a = from.of(key_a);
            } else {
                b = taken + 1, key_b = next_b, next_b = ahead;
                if constexpr (CODING != PLAIN) code_b = from.of(key_b);
            }
        }
    }
}

/// Merges one tile. Out: keys (null: not wanted) at a 16-byte aligned address, and values or indices of type V.
/// BULK moves tiles by bulk copies (sm_90 on), else by 16-byte loads and stores; keys of offsets are made on the way in.
/// Dynamic shared memory: see policy.py.
template <class T, class V, u32 K, u32 THREADS, u32 ITEMS, u32 CODING, u32 CARRY, bool BULK, bool NARROWED = false>
__global__ void __launch_bounds__(THREADS, BULK && !NARROWED ? 0 : 1)  // 1: else ptxas spills to save registers
    merge_tiles(const u64* table, Codec codec, u64 total, const u64* cuts, T* keys_out, V* values_out) {
    using Shape = Tile<T, K, THREADS, ITEMS>;
    constexpr u32 CHUNK = Shape::CHUNK;
    Carve smem;
    T *x = smem.take<T>(Shape::ROOM), *y = smem.take<T>(Shape::ROOM);
    u16 *x_place = nullptr, *y_place = nullptr;
    if constexpr (CARRY != NOTHING) x_place = smem.take<u16>(Shape::ROOM), y_place = smem.take<u16>(Shape::ROOM);
    SHARED(u32, piece_begin, K);
    SHARED(u32, piece_length, K);
    SHARED(u64, piece_source, K);  // address of the 16 bytes that hold the piece's first key
    SHARED(u64, piece_bias, K);    // from a place in x to the position in the run (or its value's address)
    constexpr u32 NARROW = NARROWED ? K : 1;
    SHARED(u64, piece_row, NARROW);  // of the piece's first key in its run
    SHARED(u32, piece_width, NARROW);
    SHARED2(T, block_first, NARROW, Shape::BLOCKS);  // of the blocks of rows that the piece touches
    SHARED2(bool, block_fits, NARROW, Shape::BLOCKS);
    SHARED1(u64, arrived);
    const Runs<T, K> runs{table};
    const u64 tile = blockIdx.x;

    // --- the first warp lays the pieces out in x, each at the place in 16 bytes that it has in memory
    if (BULK && threadIdx.x == 0) bulk_init(&arrived);
    if (threadIdx.x < WARP) {
        const u32 r = threadIdx.x % K;
        const u64 cut = cuts[tile * K + r], cut_end = cuts[(tile + 1) * K + r];
        const u32 length = u32(cut_end - cut);
        const u64 address = u64(runs.keys(r) + cut);
        u32 lead = u32(address % 16 / sizeof(T));
        NarrowKeys<T> run{};
        if constexpr (NARROWED) {
            run = runs.narrow(r);
            if (run.width) lead = u32((run.row + cut) % CHUNK);
            if (threadIdx.x < K) piece_row[r] = run.row + cut, piece_width[r] = run.width;
        }
        const u32 chunks = length == 0 ? 0 : (lead + length + CHUNK - 1) / CHUNK;
        u32 at = chunks;  // inclusive sum over the pieces
#pragma unroll
        for (u32 d = 1; d < K; d *= 2) {
            const u32 left = shfl_up(at, d);
            if (r >= d) at += left;
        }
        const u32 begin = (at - chunks) * CHUNK + lead;
        const u32 head = lead > 0, tail = (lead + length) / CHUNK;  // whole 16 bytes: [head, tail)
        if (threadIdx.x < K) {
            piece_begin[r] = begin;
            piece_length[r] = length;
            piece_source[r] = address - lead * sizeof(T);
            if constexpr (CARRY == VALUES)
                piece_bias[r] = u64(runs.template values<V>(r) + cut) - begin * u64(sizeof(V));
            if constexpr (CARRY == INDEX) piece_bias[r] = runs.start(r) + cut - begin;
        }
        if constexpr (BULK) {
            u32 bytes = tail > head ? (tail - head) * 16 : 0;
            T* target = x + (begin - lead) + head * CHUNK;
            u64 source = address - lead * sizeof(T) + head * 16;
            if (NARROWED && run.width) {
                const Stage stage = stage_of(run, run.row + cut, length);
                bytes = stage.bytes, source = stage.source, target = y + (begin - lead) + stage.skip / sizeof(T);
            }
            if (threadIdx.x >= K) bytes = 0;
            const u32 all = reduce_add(bytes);
            if (threadIdx.x == 0) bulk_expect(&arrived, all);
            warp_sync();
            if (bytes) bulk_load(target, reinterpret_cast<const void*>(source), bytes, &arrived);
        }
        if constexpr (NARROWED) {
            for (u32 i = threadIdx.x; i < (K * Shape::BLOCKS + WARP - 1) / WARP * WARP; i += WARP) {
                const u32 p = i / Shape::BLOCKS % K, b = i % Shape::BLOCKS;
                const u64 row = shfl(run.row + cut, p) / NARROW_ROWS * NARROW_ROWS + b * NARROW_ROWS;
                const NarrowKeys<T> its = runs.narrow(p);
                if (i < K * Shape::BLOCKS && row < its.high && row + NARROW_ROWS > its.low) {
                    const T first = its.ends[row / NARROW_ROWS * 2], last = its.ends[row / NARROW_ROWS * 2 + 1];
                    block_first[p][b] = first, block_fits[p][b] = its.fits(first, last);
                }
            }
        }
    }
    block_sync();
    u32 begin[K], length[K];
#pragma unroll
    for (u32 r = 0; r < K; ++r) {
        begin[r] = piece_begin[r], length[r] = piece_length[r];
        const u32 lead = begin[r] % CHUNK, head = lead > 0, tail = (lead + length[r]) / CHUNK;
        const T* source = reinterpret_cast<const T*>(piece_source[r]);
        T* target = x + (begin[r] - lead);
        if constexpr (NARROWED) {
            if (piece_width[r]) {
                if constexpr (!BULK) {
                    const Stage stage = stage_of(runs.narrow(r), piece_row[r], length[r]);
                    T* staged = y + (begin[r] - lead) + stage.skip / sizeof(T);
                    for (u32 c = threadIdx.x; c < stage.bytes / 16; c += THREADS)
                        store16(staged + c * CHUNK, load16(reinterpret_cast<const T*>(stage.source) + c * CHUNK));
                }
                continue;
            }
        }
        if constexpr (!BULK)
            for (u32 c = head + threadIdx.x; c < tail; c += THREADS)
                store16(target + c * CHUNK, load16(source + c * CHUNK));
        // single keys before the first and after the last whole 16 bytes
        const u32 e = threadIdx.x % CHUNK, end = lead + length[r];
        if (threadIdx.x < CHUNK && head && e >= lead && e < end) target[e] = source[e];
        if (threadIdx.x >= CHUNK && threadIdx.x < 2 * CHUNK && tail >= head && tail * CHUNK + e < end)
            target[tail * CHUNK + e] = source[tail * CHUNK + e];
    }
    if constexpr (BULK) bulk_wait(&arrived, 0);
    block_sync();
    if constexpr (NARROWED) {
        // --- keys of offsets, from y to x
#pragma unroll 1
        for (u32 r = 0; r < K; ++r) {
            if (piece_width[r] == 0) continue;
            const NarrowKeys<T> run = runs.narrow(r);
            const u32 place = piece_begin[r] - u32(piece_row[r] % CHUNK);
            widen_piece<THREADS>(run + (piece_row[r] - run.row), piece_length[r], block_first[r], block_fits[r],
                                 y + place, x + place);
        }
        block_sync();
    }

    // --- rounds
    const Codes<T, CODING> in_x{x, codec}, in_y{y, codec};
    constexpr bool CARRIED = CARRY != NOTHING;
    T* done = y;
    u16* done_place = y_place;
    u32 half[K / 2], half_length[K / 2];
    merge_round<K, ITEMS, true, CARRIED>(in_x, x_place, y, y_place, begin, length);
    if constexpr (K >= 4) {
        block_sync();
#pragma unroll
        for (u32 p = 0; p < K / 2; ++p) half[p] = begin[p], half_length[p] = length[p];
        merge_round<K / 2, ITEMS, false, CARRIED>(in_y, y_place, x, x_place, half, half_length);
        done = x, done_place = x_place;
    }
    if constexpr (K >= 8) {
        block_sync();
        u32 last[2] = {half[0], half[1]}, last_length[2] = {half_length[0], half_length[1]};
        merge_round<2, ITEMS, false, CARRIED>(in_x, x_place, y, y_place, last, last_length);
        done = y, done_place = y_place;
    }
    if constexpr (BULK) bulk_fence();
    block_sync();

    // --- out
    const u64 base = tile * Shape::SIZE;
    const u32 here = u32(min(total - base, u64(Shape::SIZE)));
    if (keys_out) {
        T* out = keys_out + base;
        const u32 whole = here / CHUNK;
        if constexpr (BULK) {
            if (threadIdx.x == 0 && whole) bulk_store(out, done, whole * 16);
        } else {
            for (u32 c = threadIdx.x; c < whole; c += THREADS) store16(out + c * CHUNK, load16(done + c * CHUNK));
        }
        const u32 e = whole * CHUNK + threadIdx.x;
        if (threadIdx.x < CHUNK && e < here) out[e] = done[e];
    }
    if constexpr (CARRIED) {
#pragma unroll 4
        for (u32 e = threadIdx.x; e < here; e += THREADS) {
            const u32 place = done_place[e];
            u32 r = 0;
#pragma unroll
            for (u32 p = 1; p < K; ++p) r += place >= piece_begin[p] && piece_length[p] > 0 ? p - r : 0;
            if constexpr (CARRY == VALUES)
                values_out[base + e] = *reinterpret_cast<const V*>(piece_bias[r] + place * u64(sizeof(V)));
            else
                values_out[base + e] = V(piece_bias[r] + place);
        }
    }
    if constexpr (BULK) {
        if (keys_out && threadIdx.x == 0) bulk_store_wait();
    }
}
