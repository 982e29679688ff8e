// Drivers of the single-pass radix sort: what distsort/backends/cupy_radix.py does, with small tiles.
#include "radix_finish.cu"
#include "radix_onesweep.cu"
#include "radix_small.cu"

#include <vector>

namespace {

constexpr u32 THREADS = 256, ITEMS = 4, TILE = THREADS * ITEMS, REPAIR_THREADS = 128;

u32 aligned(u64 n) { return u32((n + 15) / 16 * 16); }

/// Carves no more than a launch gives, so the sizes here hold kernels/policy.py to the kernel's carving as well.
u32 pass_shared(u32 word, u32 payload, u32 count) {
    return aligned(u64(TILE) * word) + (payload ? aligned(u64(TILE) * payload) : 16) + THREADS / WARP * RADIX * 4 + RADIX * count +
           aligned(THREADS / WARP * 4) + 16;
}

template <class Src, class Key, class Val, class Count, u32 MODE, bool SQUEEZE>
void sort(Job job) {
    constexpr bool PACKED = MODE != KEYS && sizeof(Val) == 1;
    constexpr bool UNIFY = MODE == ARGSORT || MODE == ARGSORT_BY;
    using Word = typename Choose<PACKED, u64, Key>::Type;
    const u64 n = job.n;
    const u32 tiles = u32((n + TILE - 1) / TILE), grid = 3;
    Control control = {};
    constexpr bool WATCH = MODE == KEYS && sizeof(Src) > 1;
    std::vector<u64> bins(sizeof(Key) * RADIX), specials((n * sizeof(Src) / 2048 / WARP + 2) * (WARP / 2 + 2));
    std::vector<Count> status(u64(WINDOW + tiles) * RADIX);
    std::vector<Word> words[2] = {std::vector<Word>(n), std::vector<Word>(n)};
    std::vector<Val> payload[2] = {std::vector<Val>(n), std::vector<Val>(n)};
    job.control = &control;
    job.bins = bins.data();
    job.specials = reinterpret_cast<u32*>(specials.data());
    job.status = status.data();
    for (int b = 0; b < 2; ++b) {
        job.words[b] = words[b].data();
        job.payload[b] = payload[b].data();
    }
    const u32 columns = 8, counting = sizeof(Key) * RADIX * columns * 4 + THREADS / WARP * 8 + aligned(sizeof(Key) * 4 + 4);
    emu::launch(radix_histogram<THREADS, columns, Src, Key, UNIFY, SQUEEZE, WATCH>, grid, THREADS, counting, job);
    const u32 shared = pass_shared(sizeof(Word), sizeof(Val) > 1 ? sizeof(Val) : 0, sizeof(Count));
    for (u32 pass = 0; pass < sizeof(Key); ++pass) {
        auto kernel = pass ? radix_pass<THREADS, ITEMS, 1, Src, Key, Val, Count, MODE, false, SQUEEZE>
                           : radix_pass<THREADS, ITEMS, 1, Src, Key, Val, Count, MODE, true, SQUEEZE>;
        emu::launch(kernel, tiles, THREADS, shared, job, pass);
    }
    if constexpr (WATCH) {
        if (!job.codec.infinity) control.seen = 0;  // integers: the launcher counts without WATCH
        emu::launch(radix_find_specials<REPAIR_THREADS, Src>, 1, REPAIR_THREADS, 0, job);
        emu::launch(radix_find_stretches<Src>, 1, 2 * WARP, 0, job);
        emu::launch(radix_repair<REPAIR_THREADS, Src>, grid, REPAIR_THREADS, 0, job);
    }
}

/// Sorts by the digits from `shift` up and finishes; returns whether the finish gave up.
template <class Src, class Key, u32 MODE>
bool finish(Job job, u32 shift) {
    constexpr bool PACKED = MODE == ARGSORT;
    const u64 n = job.n;
    const u32 tiles = u32((n + TILE - 1) / TILE);
    Control control = {};
    std::vector<u64> bins(sizeof(Src) * RADIX), words[2] = {std::vector<u64>(n), std::vector<u64>(n)};
    std::vector<u32> status(u64(WINDOW + tiles) * RADIX);
    job.control = &control, job.bins = bins.data(), job.status = status.data();
    for (int b = 0; b < 2; ++b) job.words[b] = words[b].data();
    const u32 columns = 8, counting = sizeof(Src) * RADIX * columns * 4 + THREADS / WARP * 8 + aligned(sizeof(Src) * 4 + 4);
    emu::launch(radix_histogram<THREADS, columns, Src, Src, PACKED, false, false>, 2, THREADS, counting, job);
    u32 top = 0;
    while (top < control.active && control.digit[control.active - 1 - top] >= shift / 8) ++top;
    if (!top) top = 1;
    job.skip = control.active - top, job.finish = 1;
    for (u32 j = 0; PACKED && j < top; ++j) {
        job.squeeze.mask[j] = u64(255) << 8 * j;
        job.squeeze.shift[j] = 8 * (control.digit[job.skip + j] - j);
    }
    const u32 shared = pass_shared(8, 0, 4);
    for (u32 pass = 0; pass < top; ++pass) {
        auto kernel = pass ? radix_pass<THREADS, ITEMS, 1, Src, Key, None, u32, MODE, false, PACKED>
                           : radix_pass<THREADS, ITEMS, 1, Src, Key, None, u32, MODE, true, PACKED>;
        emu::launch(kernel, tiles, THREADS, shared, job, pass);
    }
    emu::launch(radix_finish<64, 4, Src, MODE>, u32((n + 255) / 256), 64, 0, job, PACKED ? 32 : shift);
    return control.failed != 0;
}

template <class Src, class Val, u32 MODE>
void small(Job job) {
    constexpr u32 threads = 512, tile = threads * 2, most = 4;
    static std::vector<u64> rows(2 * most * ROW), flags(most);  // launches share them
    static u32 launch = 0;
    const u64 n = job.n;
    std::vector<u64> words[2] = {std::vector<u64>(n), std::vector<u64>(n)};
    std::vector<u32> payload[2] = {std::vector<u32>(n), std::vector<u32>(n)};
    for (int b = 0; b < 2; ++b) job.words[b] = words[b].data(), job.payload[b] = payload[b].data();
    emu::launch(radix_small<threads, 2, Src, Val, MODE>, u32((n + tile - 1) / tile), threads, 0, job, rows.data(), flags.data(),
                ++launch);
}

Job job_of(const void* keys, const void* values, void* out_keys, void* out_values, i64 n, i64 index_bytes, const u64* numbers) {
    Job job = {};
    job.n = u64(n), job.keys = keys, job.values = values;
    job.out_keys = out_keys, job.out_values = out_values, job.index_bytes = u32(index_bytes);
    job.codec = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    for (int j = 0; j < 4; ++j) job.squeeze.mask[j] = numbers[5 + j], job.squeeze.shift[j] = u32(numbers[9 + j]);
    job.squeeze.constant = numbers[13];
    return job;
}

}  // namespace

#define JOB_ARGS const void *keys, const void *values, void *out_keys, void *out_values, i64 n, i64 index_bytes, const u64 *numbers
#define JOB job_of(keys, values, out_keys, out_values, n, index_bytes, numbers)
#define SORT_DRIVER(name, ...) \
    DRIVER name(JOB_ARGS) { return emu::guard([&] { sort<__VA_ARGS__>(JOB); }); }
#define SMALL_DRIVER(name, ...) \
    DRIVER name(JOB_ARGS) { return emu::guard([&] { small<__VA_ARGS__>(JOB); }); }
#define FINISH_DRIVER(name, ...) \
    DRIVER name(JOB_ARGS, i64 shift, i64* failed) { return emu::guard([&] { *failed = finish<__VA_ARGS__>(JOB, u32(shift)); }); }

SORT_DRIVER(sort_1, u8, u8, None, u32, KEYS, false)
SORT_DRIVER(sort_2, u16, u16, None, u32, KEYS, false)
SORT_DRIVER(sort_4, u32, u32, None, u32, KEYS, false)
SORT_DRIVER(sort_4_wide, u32, u32, None, u64, KEYS, false)
SORT_DRIVER(sort_8, u64, u64, None, u32, KEYS, false)
SORT_DRIVER(sort_8_squeezed, u64, u32, None, u32, KEYS, true)
SORT_DRIVER(argsort_1, u8, u8, None, u32, ARGSORT, false)
SORT_DRIVER(argsort_2_wide, u16, u16, None, u64, ARGSORT, false)
SORT_DRIVER(argsort_4, u32, u32, None, u32, ARGSORT, false)
SORT_DRIVER(argsort_8, u64, u64, u32, u32, ARGSORT, false)
SORT_DRIVER(argsort_8_squeezed, u64, u32, None, u32, ARGSORT, true)
SORT_DRIVER(argsort_8_wide, u64, u64, u64, u64, ARGSORT, false)
SORT_DRIVER(argsort_by_4, u32, u32, None, u32, ARGSORT_BY, false)
SORT_DRIVER(argsort_by_8, u64, u64, u32, u32, ARGSORT_BY, false)
SORT_DRIVER(pairs_4_4, u32, u32, None, u32, PAIRS, false)
SORT_DRIVER(pairs_8_4, u64, u64, u32, u32, PAIRS, false)
SORT_DRIVER(pairs_8_8, u64, u64, u64, u32, PAIRS, false)
SORT_DRIVER(pairs_4_8, u32, u32, u64, u32, PAIRS, false)
SMALL_DRIVER(small_1, u8, None, KEYS)
SMALL_DRIVER(small_2, u16, None, KEYS)
SMALL_DRIVER(small_4, u32, None, KEYS)
SMALL_DRIVER(small_8, u64, None, KEYS)
SMALL_DRIVER(small_argsort_1, u8, None, ARGSORT)
SMALL_DRIVER(small_argsort_4, u32, None, ARGSORT)
SMALL_DRIVER(small_argsort_8, u64, u32, ARGSORT)
FINISH_DRIVER(finish_keys, u64, u64, KEYS)
FINISH_DRIVER(finish_argsort, u64, u32, ARGSORT)
