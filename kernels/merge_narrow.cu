// Sorted integers for the road: neighbours differ by less than they are long.
//
//      keys      1000 1003 1003 1010 ... | 9000 9001 ... | 12000 ... 99000     NARROW_ROWS keys a block
//      offsets      0    3    3   10 ... |    0    1 ... |     0 ...     ?     from the block's first key, 2 or 4 bytes each
//      ends      1000              1900  | 9000    9500  | 12000     99000     first and last key of each block
//
//   narrow   the owner writes offsets and ends: one trip through its own memory
//   widen    the reader, to whom both were copied, makes keys of them again. Where the ends of a block are too far apart
//            for an offset, it reads the keys where they lie, over the link.
//
// So the link carries a half or a quarter of the bytes where keys are dense, and the rest only where they are not, without
// a flag that could be wrong. The idea is the frame of reference of databases (Goldstein, Ramakrishnan and Shaft,
// "Compressing relations and indexes", 1998), with a sorted run's first key as the reference.
//
// A thread has NARROW_ITEMS neighbouring rows, so that it loads and stores 16 bytes at a time. Ends are copied, not read
// over the link: a load that waits behind the copies there would take longer than the rest of the block.
#include "prims.cuh"

constexpr u32 NARROW_ROWS = 2048, NARROW_THREADS = 256, NARROW_ITEMS = NARROW_ROWS / NARROW_THREADS;

template <class T>
struct alignas(16) Items {
    T v[NARROW_ITEMS];
};

/// How far `key` is behind `first` in a run that ascends, or descends if DOWN; exact for signed and unsigned integers,
/// since a run's keys never come back.
template <bool DOWN, class T>
HOST_DEVICE T behind(T key, T first) {
    return DOWN ? T(first - key) : T(key - first);
}

/// offsets[i - start] for rows i of [start, stop) of a run, and two ends a block; start is the first row of a block. One
/// block of threads for each block of rows. Keys and offsets are 16-byte aligned.
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
        for (u32 k = 0; k < NARROW_ITEMS; ++k) to.v[k] = U(behind<DOWN>(from.v[k], first));
        *reinterpret_cast<Items<U>*>(offsets + (block - start) + i) = to;
        return;
    }
    for (u32 k = i; k < rows; ++k) offsets[block - start + k] = U(behind<DOWN>(keys[block + k], first));
}

/// out[i - from] = keys[i] for rows i of [from, to) of a run, of which `offsets` has those of [start, stop), and `ends`
/// those of the blocks from row `base` on. from and start are multiples of NARROW_ITEMS, base is one of NARROW_ROWS. One
/// block of threads for each block of rows that [from, to) touches.
template <class T, class U, bool DOWN>
__global__ void __launch_bounds__(NARROW_THREADS)
    widen(const T* keys, const U* offsets, u64 start, u64 stop, const T* ends, u64 base, u64 from, u64 to, T* out) {
    const u64 block = (from / NARROW_ROWS + blockIdx.x) * NARROW_ROWS, i = block + threadIdx.x * NARROW_ITEMS;
    const bool known = block >= base && block < stop;
    const u64 b = known ? (block - base) / NARROW_ROWS : 0;
    const T first = known ? ends[2 * b] : T(0), last = known ? ends[2 * b + 1] : T(0);
    const bool fits = known && behind<DOWN>(last, first) <= T(U(~U(0)));
    if (fits && i >= max(start, from) && i + NARROW_ITEMS <= min(stop, to)) {
        const Items<U> these = *reinterpret_cast<const Items<U>*>(offsets + (i - start));
        Items<T> made;
#pragma unroll
        for (u32 k = 0; k < NARROW_ITEMS; ++k) made.v[k] = DOWN ? T(first - these.v[k]) : T(first + these.v[k]);
        *reinterpret_cast<Items<T>*>(out + (i - from)) = made;
        return;
    }
    for (u64 row = max(i, from); row < min(i + NARROW_ITEMS, to); ++row) {
        const bool here = fits && row >= start && row < stop;
        const T offset = here ? T(offsets[row - start]) : T(0);
        out[row - from] = !here ? keys[row] : DOWN ? T(first - offset) : T(first + offset);
    }
}
