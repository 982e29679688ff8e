// Sorted integers for the road: neighbours differ by less than they are long.
//
//      keys      1000 1003 1003 1010 ... | 9000 9001 ... | 12000 ... 99000     NARROW_ROWS keys a block
//      offsets      0    3    3   10 ... |    0    1 ... |     0 ...     ?     from the block's first key, 2 or 4 bytes each
//      ends      1000              1900  | 9000    9500  | 12000     99000     first and last key of each block
//
//   narrow        the owner writes offsets and ends: one trip through its own memory (merge_narrow.cu)
//   NarrowKeys    the reader, to whom both were copied, makes keys of them where it reads them: one by one for cuts, and
//                 in shared memory for tiles (merge_kway.cu). Where the ends of a block are too far apart for an
//                 offset, it reads the keys where they lie, over the link.
//
// So the link carries a half or a quarter of the bytes where keys are dense, and the rest only where they are not, without
// a flag that could be wrong. The idea is the frame of reference of databases (Goldstein, Ramakrishnan and Shaft,
// "Compressing relations and indexes", 1998), with a sorted run's first key as the reference.
#pragma once

#include "prims.cuh"

constexpr u32 NARROW_ROWS = 2048;

/// How far `key` is behind `first` in a run that ascends, or descends if `down`; exact for signed and unsigned integers,
/// since a run's keys never come back.
template <class T>
HOST_DEVICE T behind(T key, T first, bool down) {
    return down ? T(first - key) : T(key - first);
}

/// Keys that were copied as offsets, in part, or not at all: then low = high.
template <class T>
struct NarrowKeys {
    const T* keys;  // where they lie, the first of them row `row` of its run
    u64 offsets;    // address that the offset of row 0 would have; a multiple of 16
    const T* ends;  // of block 0, were they all here
    u64 row;
    u64 low, high;  // rows whose offsets are here; low is a multiple of 8
    u32 width;      // bytes of an offset, 2 or 4
    bool down;

    DEVICE bool fits(T first, T last) const {
        return sizeof(T) == 4 || width == 2 ? behind(last, first, down) <= T(0xffff)
                                            : behind(last, first, down) <= T(0xffffffff);
    }
    DEVICE T key(T first, u64 offset) const { return down ? T(first - T(offset)) : T(first + T(offset)); }

    DEVICE NarrowKeys operator+(u64 i) const { return {keys + i, offsets, ends, row + i, low, high, width, down}; }

    DEVICE T operator[](u64 i) const {
        const u64 r = row + i;
        if (r < low || r >= high) return keys[i];
        // all three at once: one trip to memory
        const T first = ends[r / NARROW_ROWS * 2], last = ends[r / NARROW_ROWS * 2 + 1];
        const u64 offset = sizeof(T) == 4 || width == 2 ? u64(reinterpret_cast<const u16*>(offsets)[r])
                                                        : u64(reinterpret_cast<const u32*>(offsets)[r]);
        return fits(first, last) ? key(first, offset) : keys[i];
    }

    /// 16 bytes of keys from their offsets, which lie at `these`; first is the first key of their block.
    DEVICE Vec16<T> widen(T first, const u8* these) const {
        constexpr u32 CHUNK = 16 / sizeof(T);
        Vec16<T> made;
        if (sizeof(T) == 4) {
            const u64 four = *reinterpret_cast<const u64*>(these);
#pragma unroll
            for (u32 k = 0; k < CHUNK; ++k) made.v[k] = key(first, four >> (16 * k) & 0xffff);
        } else if (width == 2) {
            const u32 two = *reinterpret_cast<const u32*>(these);
            made.v[0] = key(first, two & 0xffff), made.v[1] = key(first, two >> 16);
        } else {
            const u64 two = *reinterpret_cast<const u64*>(these);
            made.v[0] = key(first, two & 0xffffffff), made.v[1] = key(first, two >> 32);
        }
        return made;
    }
};
