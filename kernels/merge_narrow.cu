// Sorted integers for the road: neighbours differ by less than they are long.
//
//      keys      1000 1003 1003 1010 ... | 9000 9001 ... | 12000 ... 99000     NARROW_ROWS keys a block
//      offsets      0    3    3   10 ... |    0    1 ... |     0 ...     ?     from the block's first key, 2 or 4 bytes each
//
//   narrow   the owner writes offsets: one trip through its own memory
//   widen    the reader, to whom the offsets were copied, makes keys of them again. First and last key of each block it
//            reads where they lie, over the link. If they are too far apart for an offset, it reads the whole block there.
//
// So the link carries a half or a quarter of the bytes where keys are dense, and the rest only where they are not, without
// a flag that could be wrong. The idea is the frame of reference of databases (Goldstein, Ramakrishnan and Shaft,
// "Compressing relations and indexes", 1998), with a sorted run's first key as the reference.
#include "prims.cuh"

constexpr u32 NARROW_ROWS = 2048, NARROW_THREADS = 256;

/// How far `key` is behind `first` in a run that ascends, or descends if DOWN; exact for signed and unsigned integers,
/// since a run's keys never come back.
template <bool DOWN, class T>
HOST_DEVICE T behind(T key, T first) {
    return DOWN ? T(first - key) : T(key - first);
}

/// offsets[i - start] for rows i of [start, stop) of a run; start is the first row of a block. One block of threads for
/// each block of rows.
template <class T, class U, bool DOWN>
__global__ void __launch_bounds__(NARROW_THREADS) narrow(const T* keys, u64 start, u64 stop, U* offsets) {
    const u64 block = start + u64(blockIdx.x) * NARROW_ROWS;
    const u32 rows = u32(min(u64(NARROW_ROWS), stop - block));
    const T first = keys[block];
#pragma unroll
    for (u32 k = 0; k < NARROW_ROWS / NARROW_THREADS; ++k) {
        const u32 i = threadIdx.x + k * NARROW_THREADS;
        if (i < rows) offsets[block - start + i] = U(behind<DOWN>(keys[block + i], first));
    }
}

/// out[i - from] = keys[i] for rows i of [from, to) of a run of n keys, of which `offsets` has those of [start, stop).
/// One block of threads for each block of rows that [from, to) touches.
template <class T, class U, bool DOWN>
__global__ void __launch_bounds__(NARROW_THREADS)
    widen(const T* keys, u64 n, const U* offsets, u64 start, u64 stop, u64 from, u64 to, T* out) {
    const u64 block = (from / NARROW_ROWS + blockIdx.x) * NARROW_ROWS, end = min(block + NARROW_ROWS, n);
    const T first = keys[block];
    const bool fits = behind<DOWN>(keys[end - 1], first) <= T(U(~U(0)));
#pragma unroll
    for (u32 k = 0; k < NARROW_ROWS / NARROW_THREADS; ++k) {
        const u64 i = block + threadIdx.x + k * NARROW_THREADS;
        if (i < max(from, block) || i >= min(to, end)) continue;
        const bool here = fits && i >= start && i < stop;
        const T offset = here ? T(offsets[i - start]) : T(0);
        out[i - from] = !here ? keys[i] : DOWN ? T(first - offset) : T(first + offset);
    }
}
