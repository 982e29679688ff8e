// Drivers of the radix ladder: the host loop over digits, as the GPU's host code runs it.
#include "radix_ladder.cu"

#include <utility>
#include <vector>

namespace {

constexpr u32 ROWS = 2;  // of the scan: several tiles at small n

template <u32 T>
struct Scan {
    u32 grid;
    std::vector<u64> status;
    u32 ticket = 0, epoch = 0;
    explicit Scan(u32 n) : grid((n + T * ROWS - 1) / (T * ROWS)), status(grid) {}
    void operator()(u32* values, u32 n) {
        emu::launch(exclusive_scan<T, ROWS>, grid, T, 0, values, n, status.data(), &ticket, ++epoch);
    }
};

template <u32 T, class K>
void sort_1bit(const K* in, K* out, u32 n) {
    std::vector<K> a(in, in + n), b(n);
    std::vector<u32> bits(n + 1);
    Scan<T> scan(n + 1);
    for (u32 position = 0; position < 8 * sizeof(K); ++position) {
        emu::launch(radix_bits<K, T>, n / T + 1, T, 0, a.data(), bits.data(), n, position);
        scan(bits.data(), n + 1);
        emu::launch(radix_bit_scatter<K, T>, n / T + 1, T, 0, a.data(), bits.data(), b.data(), n, position);
        a.swap(b);
    }
    std::copy(a.begin(), a.end(), out);
}

template <u32 T, class K>
void block_sort_and_scan(const K* in, K* sorted, u16* slots, std::vector<u32>& table, Scan<T>& scan, u32 n, u32 position, u32 r,
                         u32 coarsening) {
    const u32 tile = T * coarsening, grid = (n + tile - 1) / tile;
    const u32 shared = tile * 2 * (u32(sizeof(K)) + (slots ? 2 : 0));
    emu::launch(radix_block_sort<K, T>, grid, T, shared, in, sorted, slots, table.data(), n, position, r, coarsening);
    scan(table.data(), u32(table.size()));
}

template <u32 T, class K>
void sort_rbit(const K* in, K* out, u32 n, u32 r, u32 coarsening, bool scatter) {
    const u32 tile = T * coarsening, grid = (n + tile - 1) / tile;
    std::vector<K> a(in, in + n), b(n);
    std::vector<u16> slots(scatter ? n : 0);
    std::vector<u32> table((grid << r) + 1);
    Scan<T> scan(u32(table.size()));
    u16* const slot_of = scatter ? slots.data() : nullptr;
    for (u32 position = 0; position < 8 * sizeof(K); position += r) {
        block_sort_and_scan<T>(a.data(), b.data(), slot_of, table, scan, n, position, r, coarsening);
        if (scatter) {
            emu::launch(radix_place<K, T>, grid, T, 0, a.data(), slot_of, b.data(), table.data(), n, position, r, coarsening);
            a.swap(b);
        } else {
            emu::launch(radix_place<K, T>, grid, T, 0, b.data(), nullptr, a.data(), table.data(), n, position, r, coarsening);
        }
    }
    std::copy(a.begin(), a.end(), out);
}

template <class K>
void sort_by_name(const K* in, K* out, u32 n, u32 threads, u32 r, u32 coarsening, bool scatter) {
    if (threads == 256)
        r == 0 ? sort_1bit<256>(in, out, n) : sort_rbit<256>(in, out, n, r, coarsening, scatter);
    else
        r == 0 ? sort_1bit<64>(in, out, n) : sort_rbit<64>(in, out, n, r, coarsening, scatter);
}

}  // namespace

// r = 0: the one-bit sort.
DRIVER ladder_u32(const u32* in, u32* out, i64 n, i64 threads, i64 r, i64 coarsening, i64 scatter) {
    return emu::guard([&] { sort_by_name(in, out, u32(n), u32(threads), u32(r), u32(coarsening), scatter != 0); });
}
DRIVER ladder_u64(const u64* in, u64* out, i64 n, i64 threads, i64 r, i64 coarsening, i64 scatter) {
    return emu::guard([&] { sort_by_name(in, out, u32(n), u32(threads), u32(r), u32(coarsening), scatter != 0); });
}
DRIVER scan(u32* values, i64 n, i64 launches) {
    return emu::guard([&] {
        Scan<64> scan{u32(n)};
        for (i64 k = 0; k < launches; ++k) scan(values, u32(n));
    });
}
// One pass of the 1-bit sort: the scanned bits and the keys after it.
DRIVER one_bit(const u32* in, u32* before, u32* out, i64 n, i64 position) {
    return emu::guard([&] {
        emu::launch(radix_bits<u32, 64>, u32(n) / 64 + 1, 64, 0, in, before, u32(n), u32(position));
        Scan<64>{u32(n) + 1}(before, u32(n) + 1);
        emu::launch(radix_bit_scatter<u32, 64>, u32(n) / 64 + 1, 64, 0, in, before, out, u32(n), u32(position));
    });
}
// Launch 1 of the r-bit sort: the sorted tiles and the bucket table, not yet scanned and then scanned.
DRIVER bucket_table(const u32* in, u32* sorted, u32* table, u32* scanned, i64 n, i64 position, i64 r) {
    return emu::guard([&] {
        const u32 grid = (u32(n) + 63) / 64, entries = (grid << r) + 1;
        emu::launch(radix_block_sort<u32, 64>, grid, 64, 2 * 64 * 4, in, sorted, nullptr, table, u32(n), u32(position), u32(r), 1u);
        std::copy(table, table + entries, scanned);
        Scan<64>{entries}(scanned, entries);
    });
}
