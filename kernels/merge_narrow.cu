// What narrow.cuh describes, written by the owner of a run.
#include "narrow.cuh"

constexpr u32 NARROW_THREADS = 256, NARROW_ITEMS = NARROW_ROWS / NARROW_THREADS;

template <class T>
struct alignas(16) Items {
    T v[NARROW_ITEMS];
};

/// offsets[i - start] for rows i of [start, stop) of a run, and two ends a block; start is the first row of a block. One
/// block of threads for each block of rows, NARROW_ITEMS neighbouring rows for each: 16 bytes at a time. Keys and offsets are
/// 16-byte aligned.
template <class T, class U, bool DOWN>
__global__ void __launch_bounds__(NARROW_THREADS) narrow(const T* keys, u64 start, u64 stop, U* offsets, T* ends) {
    const u64 block = start + u64(blockIdx.x) * NARROW_ROWS;
    const u32 rows = u32(min(u64(NARROW_ROWS), stop - block)), i = threadIdx.x * NARROW_ITEMS;
    const T first = keys[block];
    if (threadIdx.x == 0) {
        ends[2 * blockIdx.x] = first;
        ends[2 * blockIdx.x + 1] = keys[block + rows - 1];
    }
    if (i + NARROW_ITEMS <= rows) {
        const Items<T> from = *reinterpret_cast<const Items<T>*>(keys + block + i);
        Items<U> to;
#pragma unroll
        for (u32 k = 0; k < NARROW_ITEMS; ++k) to.v[k] = U(behind(from.v[k], first, DOWN));
        *reinterpret_cast<Items<U>*>(offsets + (block - start) + i) = to;
        return;
    }
    for (u32 k = i; k < rows; ++k) offsets[block - start + k] = U(behind(keys[block + k], first, DOWN));
}
