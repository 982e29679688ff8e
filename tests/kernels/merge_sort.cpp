// Drivers of the merge sort: block sort and passes, as the GPU's host code runs them.
#include "merge_sort.cu"

#include <vector>

namespace {

template <class K, bool INDEX, u32 ITEMS, u32 T>
void sort(const K* keys, K* out, u32* order, u64 n) {
    using E = typename Element<K, INDEX>::E;
    constexpr u32 TILE = ITEMS * T;
    const u32 tiles = u32((n + TILE - 1) / TILE), shared = Padded<E>::size(TILE) * sizeof(E);
    std::vector<E> a(n), b(n);
    std::vector<u64> cuts(tiles);
    emu::launch(merge_sort_tiles<K, INDEX, ITEMS, T>, tiles, T, shared, keys, a.data(), tiles == 1 ? order : nullptr, n);
    for (u64 run = TILE; run < n; run *= 2) {
        emu::launch(merge_sort_cuts<E>, (tiles + 63) / 64, 64, 0, a.data(), cuts.data(), n, run, TILE);
        emu::launch(merge_sort_pass<K, INDEX, ITEMS, T>, tiles, T, shared, a.data(), b.data(), 2 * run >= n ? order : nullptr,
                    cuts.data(), n, run);
        a.swap(b);
    }
    if constexpr (!INDEX) std::copy(a.begin(), a.end(), out);
}

}  // namespace

DRIVER sort_u32(const u32* keys, u32* out, i64 n) {
    return emu::guard([&] { sort<u32, false, 4, 64>(keys, out, nullptr, n); });
}
DRIVER sort_u64(const u64* keys, u64* out, i64 n) {
    return emu::guard([&] { sort<u64, false, 8, 32>(keys, out, nullptr, n); });
}
DRIVER sort_u128(const U128* keys, U128* out, i64 n) {
    return emu::guard([&] { sort<U128, false, 4, 64>(keys, out, nullptr, n); });
}
DRIVER argsort_u32(const u32* keys, u32* order, i64 n) {
    return emu::guard([&] { sort<u32, true, 4, 128>(keys, nullptr, order, n); });
}
DRIVER argsort_u64(const u64* keys, u32* order, i64 n) {
    return emu::guard([&] { sort<u64, true, 4, 64>(keys, nullptr, order, n); });
}
DRIVER argsort_u128(const U128* keys, u32* order, i64 n) {
    return emu::guard([&] { sort<U128, true, 4, 64>(keys, nullptr, order, n); });
}
