// The merge ladder: three ways for many threads to merge two sorted arrays, each the answer to the last one's waste.
// (Programming Massively Parallel Processors, 4th ed., ch. 12 "Merge".) The rung used in production is merge_kway.cu.
//
// merge_basic: each thread owns `elements` of the output and co-ranks both of its ends in global memory.
//
//      C   [ t0 | t1 | t2 | ... ]      lanes of a warp read and write far apart: little of each
//           co_rank    co_rank         32-byte sector that moves is used
//
// merge_tiled: each block owns a section of the output; tiles of A and B go to shared memory by neighbouring lanes
// together, and searches and merges happen there.
//
//      A section  [ tile | tile | tile ]        a tile of each is loaded, together they give one
//      B section  [ tile | tile | tile ]  --->  tile of output: half of what was loaded is used,
//      C section  [ tile | tile | tile ]        the rest is loaded again
//
// merge_circular: what was not used stays, and only the free places are filled; the buffer's start moves round.
//
//      buffer  [ new new | kept kept kept | new ]     index i of the tile lies at (start + i) mod tile
//                        ^ start
#include "co_rank.cuh"

template <class T, class Index, class A, class B>
DEVICE void merge_sequential(A a, Index m, B b, Index n, T* c) {
    Index i = 0, j = 0;
    while (i < m && j < n) {
        if (b[j] < a[i])
            *c++ = b[j++];
        else
            *c++ = a[i++];
    }
    while (i < m) *c++ = a[i++];
    while (j < n) *c++ = b[j++];
}

/// Output elements for each of `parts`, the last ones fewer or none.
DEVICE i64 ceil_div(i64 n, i64 parts) { return (n + parts - 1) / parts; }

template <class T>
__global__ void merge_basic(const T* a, i64 m, const T* b, i64 n, T* c) {
    const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 elements = ceil_div(m + n, i64(gridDim.x) * blockDim.x);
    const i64 k = min(thread * elements, m + n), k_next = min(k + elements, m + n);
    const i64 i = co_rank(k, a, m, b, n), i_next = co_rank(k_next, a, m, b, n);
    merge_sequential(a + i, i_next - i, b + (k - i), (k_next - i_next) - (k - i), c + k);
}

/// A buffer of `size` places whose element 0 lies at `start`.
template <class T>
struct Circular {
    T* data;
    u32 start, size;
    DEVICE T& operator[](u32 i) const {
        const u32 at = start + i;
        return data[at < size ? at : at - size];
    }
};

/// The section of A, B and C that this block merges.
template <class T>
struct Section {
    const T *a, *b;
    T* c;
    i64 m, n;
};

template <class T>
DEVICE Section<T> block_section(const T* a, i64 m, const T* b, i64 n, T* c) {
    SHARED(i64, cut, 2);
    const i64 elements = ceil_div(m + n, gridDim.x);
    const i64 k = min(blockIdx.x * elements, m + n), k_next = min(k + elements, m + n);
    if (threadIdx.x == 0) cut[0] = co_rank(k, a, m, b, n);
    if (threadIdx.x == WARP) cut[1] = co_rank(k_next, a, m, b, n);
    block_sync();
    const i64 i = cut[0], i_next = cut[1];
    return {a + i, b + (k - i), c + k, i_next - i, (k_next - i_next) - (k - i)};
}

/// Merges one tile from shared memory: `here` elements of output, of which each thread does its part; returns how
/// many of them came from A.
template <class T, class A, class B>
DEVICE u32 merge_tile(A a, u32 m, B b, u32 n, u32 here, T* c) {
    const u32 elements = u32(ceil_div(here, blockDim.x));
    const u32 k = min(threadIdx.x * elements, here), k_next = min(k + elements, here);
    const u32 i = co_rank(k, a, m, b, n), i_next = co_rank(k_next, a, m, b, n);
    // from shared memory straight to C: a lane's elements are neighbours, so a warp's stores are `elements` apart
    merge_sequential<T, u32>(Circular<T>{a.data, (a.start + i) % a.size, a.size}, i_next - i,
                             Circular<T>{b.data, (b.start + (k - i)) % b.size, b.size}, (k_next - i_next) - (k - i),
                             c + k);
    return co_rank(here, a, m, b, n);
}

/// Dynamic shared memory: 2 * tile elements; at least two warps.
template <class T>
__global__ void merge_tiled(const T* a, i64 m, const T* b, i64 n, T* c, u32 tile) {
    Carve smem;
    T *a_tile = smem.take<T>(tile), *b_tile = smem.take<T>(tile);
    const Section<T> s = block_section(a, m, b, n, c);
    i64 a_used = 0, b_used = 0;
    while (a_used + b_used < s.m + s.n) {
        const u32 a_size = u32(min(s.m - a_used, i64(tile))), b_size = u32(min(s.n - b_used, i64(tile)));
        for (u32 x = threadIdx.x; x < a_size; x += blockDim.x) a_tile[x] = s.a[a_used + x];
        for (u32 x = threadIdx.x; x < b_size; x += blockDim.x) b_tile[x] = s.b[b_used + x];
        block_sync();
        const u32 here = u32(min(s.m + s.n - a_used - b_used, i64(tile)));
        const u32 from_a = merge_tile(Circular<T>{a_tile, 0, tile}, a_size, Circular<T>{b_tile, 0, tile}, b_size, here,
                                      s.c + a_used + b_used);
        a_used += from_a;
        b_used += here - from_a;
        block_sync();  // the next tiles overwrite these
    }
}

/// Dynamic shared memory: 2 * tile elements; at least two warps.
template <class T>
__global__ void merge_circular(const T* a, i64 m, const T* b, i64 n, T* c, u32 tile) {
    Carve smem;
    Circular<T> a_tile{smem.take<T>(tile), 0, tile}, b_tile{smem.take<T>(tile), 0, tile};
    const Section<T> s = block_section(a, m, b, n, c);
    i64 a_used = 0, b_used = 0;
    u32 a_size = 0, b_size = 0;  // what the buffers hold
    while (a_used + b_used < s.m + s.n) {
        const u32 a_fill = u32(min(s.m - a_used, i64(tile))), b_fill = u32(min(s.n - b_used, i64(tile)));
        for (u32 x = a_size + threadIdx.x; x < a_fill; x += blockDim.x) a_tile[x] = s.a[a_used + x];
        for (u32 x = b_size + threadIdx.x; x < b_fill; x += blockDim.x) b_tile[x] = s.b[b_used + x];
        block_sync();
        const u32 here = u32(min(s.m + s.n - a_used - b_used, i64(tile)));
        const u32 from_a = merge_tile(a_tile, a_fill, b_tile, b_fill, here, s.c + a_used + b_used);
        a_used += from_a;
        b_used += here - from_a;
        a_size = a_fill - from_a;
        b_size = b_fill - (here - from_a);
        a_tile.start = (a_tile.start + from_a) % tile;
        b_tile.start = (b_tile.start + (here - from_a)) % tile;
        block_sync();  // the next elements go where these were
    }
}
