// Drivers of the sorting networks: by a thread, by groups of lanes, by a block.
#include "merge_sort.cu"

namespace {

template <class K, u32 ITEMS>
__global__ void sort_each_thread(const K* in, K* out) {
    K item[ITEMS];
    for (u32 x = 0; x < ITEMS; ++x) item[x] = in[threadIdx.x * ITEMS + x];
    sort_registers(item);
    for (u32 x = 0; x < ITEMS; ++x) out[threadIdx.x * ITEMS + x] = item[x];
}

template <class E, u32 ITEMS>
__global__ void sort_lane_groups(const E* in, E* out, u32 lanes) {
    E item[ITEMS];
    for (u32 x = 0; x < ITEMS; ++x) item[x] = in[threadIdx.x * ITEMS + x];
    warp_bitonic_sort(item, lanes);
    for (u32 x = 0; x < ITEMS; ++x) out[threadIdx.x * ITEMS + x] = item[x];
}

}  // namespace

DRIVER thread_sort(const u32* in, u32* out, i64 items) {
    return emu::guard([&] {
        if (items == 4) emu::launch(sort_each_thread<u32, 4>, 1, 32, 0, in, out);
        if (items == 7) emu::launch(sort_each_thread<u32, 7>, 1, 32, 0, in, out);
        if (items == 8) emu::launch(sort_each_thread<u32, 8>, 1, 32, 0, in, out);
        if (items == 16) emu::launch(sort_each_thread<u32, 16>, 1, 32, 0, in, out);
    });
}
DRIVER lanes_u32(const u32* in, u32* out, i64 lanes, i64 items) {
    return emu::guard([&] {
        if (items == 8)
            emu::launch(sort_lane_groups<u32, 8>, 1, 64, 0, in, out, u32(lanes));
        else
            emu::launch(sort_lane_groups<u32, 2>, 1, 64, 0, in, out, u32(lanes));
    });
}
DRIVER lanes_u128(const U128* in, U128* out, i64 lanes) {
    return emu::guard([&] { emu::launch(sort_lane_groups<U128, 4>, 1, 64, 0, in, out, u32(lanes)); });
}
DRIVER network_u32(const u32* in, u32* out, i64 n, i64 threads, i64 network) {
    return emu::guard([&] { emu::launch(sort_by_network<u32>, 1, u32(threads), n * 4, in, out, u32(n), Network(network)); });
}
DRIVER network_u64(const u64* in, u64* out, i64 n, i64 threads, i64 network) {
    return emu::guard([&] { emu::launch(sort_by_network<u64>, 1, u32(threads), n * 8, in, out, u32(n), Network(network)); });
}
