// The radix sort ladder of the textbook, one rung at a time. (Programming Massively Parallel Processors, 4th ed.,
// ch. 13 "Sorting", 13.3 to 13.6; the grid-wide scan: ch. 11, 11.7 and Merrill & Garland, "Single-pass Parallel
// Prefix Scan with Decoupled Look-back", 2016.) For keys that must be sorted fast see radix_onesweep.cu.
//
// A radix sort looks at one digit of the keys at a time, lowest first, and moves every key stably into its digit's
// bucket. All rungs share that outline, the host loop over digits, and three launches per digit:
//
//      radix_1bit          bits of all keys --> exclusive scan over all n bits --> every key to its destination
//
//          key i with bit 0 goes to   i - ones_before(i)
//          key i with bit 1 goes to   n - ones_total + ones_before(i)
//
//          keys   5 4 7 2 ...         One pass over memory for one bit, a scan as long as the input, and a warp's 32
//          bits   1 0 1 0 ...         neighbours write to two places that drift apart: uncoalesced.
//          before 0 1 1 2 ...
//
//      radix_local_sort    block-local sort of r bits --> exclusive scan over the bucket table --> buckets to their place
//
//          block 0        block 1                   table, row-major: one row per bucket, one column per block
//          [0 0 1 1 1 3]  [0 1 1 2 2 3]                         block 0   1   ...
//           |___|             |                      bucket 0  [   s00  s01  ... |
//             bucket 0 of block 0 ends up first,     bucket 1      s10  s11  ... |
//             then bucket 0 of block 1, ...          ...                         ]
//                                                    Its exclusive scan is where each block's bucket starts.
//
//          A digit of r bits costs one trip through memory instead of r. The block sorts in shared memory by r
//          one-bit steps, so that each bucket leaves as one run of neighbours: coalesced. The scan shrinks from n
//          entries to 2^r per block. More bits per digit mean fewer trips, but a larger table and shorter runs.
//
//      radix_scatter       the same, but every thread writes the key it loaded, from where it stands
//
//          Same launches, same destinations, only the thread that writes a key differs: what coalescing alone gains.
//
//      coarsening          each thread takes 1 to 16 keys, so a block sorts 256 to 4096
//
//          Longer runs per bucket and fewer columns in the table; it pays as soon as the blocks would have queued up
//          for the GPU anyway.
//
// THREADS, the block size, is a multiple of 32 and at least 2^r, so that each bucket has a thread. n + 1 < 2^32.
#include "scan.cuh"

/// Exclusive scan of one value per thread; `total` is the block's sum. `warp_sum` has a word of shared memory per warp
/// and may be used again at once.
template <u32 WARPS>
DEVICE u32 block_exclusive_scan(u32 value, u32* warp_sum, u32& total) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 inclusive = warp_inclusive_scan(value);
    if (lane == WARP - 1) warp_sum[warp] = inclusive;
    block_sync();
    u32 before = 0;
    total = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) before = total;
        total += warp_sum[w];
    }
    block_sync();
    return before + inclusive - value;
}

// --- the grid-wide exclusive scan, in one launch ----------------------------------------------------------------
//
// A tile's status word says how much is known of it:  tag << 32 | sum  with tag = 2 * epoch (the tile's own sum) or
// 2 * epoch + 1 (the sum of everything up to and including it). Older epochs read as "nothing yet", so the words are
// cleared once, not once per launch. Flag and value share one word, so no fence is needed.

/// The sum of all tiles before `tile`, by one warp: 32 predecessors at a time, nearest first, until one knows all.
DEVICE u32 look_back(const u64* status, u32 tile, u32 epoch) {
    const u32 lane = threadIdx.x % WARP;
    u32 before = 0;
    for (i64 newest = i64(tile) - 1; newest >= 0; newest -= WARP) {
        const i64 at = newest - lane;
        u64 word = u64(2 * epoch + 1) << 32;  // before tile 0: everything is known, and it is nothing
        do {
            if (at >= 0) word = ld_relaxed(status + at);
        } while (warp_any(u32(word >> 32) < 2 * epoch));
        const u32 knows_all = warp_ballot(u32(word >> 32) == 2 * epoch + 1);
        const u32 up_to_nearest = knows_all ^ (knows_all - 1);  // lanes up to the lowest set one; all lanes if none
        before += reduce_add(up_to_nearest >> lane & 1 ? u32(word) : 0);
        if (knows_all) break;
    }
    return before;
}

/// values[i] becomes the sum of values[0 .. i), modulo 2^32. A block takes a tile of THREADS * ROWS values, and the
/// grid is ceil(n / tile). `status` has a word per tile and `ticket` one word, both zero before the first launch;
/// `epoch` counts launches of this grid from 1.
template <u32 THREADS, u32 ROWS>
__global__ void __launch_bounds__(THREADS) exclusive_scan(u32* values, u32 n, u64* status, u32* ticket, u32 epoch) {
    constexpr u32 WARPS = THREADS / WARP, TILE = THREADS * ROWS;
    SHARED(u32, warp_sum, WARPS);
    SHARED1(u32, my_tile);
    SHARED1(u32, before_tile);
    // Tiles are handed out in the order in which blocks start, so a tile only ever waits for blocks that run.
    if (threadIdx.x == 0) my_tile = atomic_add(ticket, 1u) - (epoch - 1) * gridDim.x;
    block_sync();
    const u32 tile = my_tile, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const u32 first = tile * TILE + warp * (WARP * ROWS) + lane;  // a warp owns ROWS rows of 32

    u32 row[ROWS];
    u32 sum = 0;  // of this warp's rows so far
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) row[r] = first + r * WARP < n ? values[first + r * WARP] : 0;
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r) {
        const u32 inclusive = warp_inclusive_scan(row[r]);
        row[r] = sum + inclusive - row[r];
        sum += shfl(inclusive, WARP - 1);
    }
    u32 total;
    const u32 before_warp = shfl(block_exclusive_scan<WARPS>(lane == 0 ? sum : 0, warp_sum, total), 0);
    if (warp == 0) {
        if (lane == 0) st_relaxed(status + tile, u64(2 * epoch) << 32 | total);
        const u32 before = look_back(status, tile, epoch);
        if (lane == 0) {
            st_relaxed(status + tile, u64(2 * epoch + 1) << 32 | (before + total));
            before_tile = before;
        }
    }
    block_sync();
    const u32 offset = before_tile + before_warp;
#pragma unroll
    for (u32 r = 0; r < ROWS; ++r)
        if (first + r * WARP < n) values[first + r * WARP] = offset + row[r];
}

// --- radix_1bit: bits, scan, scatter ----------------------------------------------------------------------------

/// Launch 1: bits[i] = bit `position` of key i; bits[n] = 0, so that the scan leaves the number of ones there.
template <class K, u32 THREADS>
__global__ void __launch_bounds__(THREADS) radix_bits(const K* keys, u32* bits, u32 n, u32 position) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n) bits[i] = u32(keys[i] >> position) & 1;
    if (i == n) bits[n] = 0;
}

/// Launch 3: every key to its destination.
template <class K, u32 THREADS>
__global__ void __launch_bounds__(THREADS)
    radix_bit_scatter(const K* keys, const u32* ones_before, K* out, u32 n, u32 position) {
    const u32 i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const K key = keys[i];
    const bool bit = key >> position & 1;
    out[bit ? n - ones_before[n] + ones_before[i] : i - ones_before[i]] = key;
}

// --- radix_local_sort and radix_scatter: block sort, table scan, placement --------------------------------------

/// One stable one-bit step of a block's tile in shared memory. A warp owns `rows` rows of 32 neighbours; the ones
/// before a key are those of earlier warps, of earlier rows, and of lower lanes (one ballot is a scan of 32 bits).
template <u32 WARPS, class K>
DEVICE void local_bit_step(const K* from, K* to, const u16* slot_from, u16* slot_to, u32 rows, u32 position,
                           u32* warp_ones) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, tile = rows * WARPS * WARP;
    const u32 first = warp * rows * WARP + lane;
    u32 ones = 0;
    for (u32 r = 0; r < rows; ++r) ones += popc(warp_ballot(from[first + r * WARP] >> position & 1));
    if (lane == 0) warp_ones[warp] = ones;
    block_sync();
    u32 before = 0, total = 0;
#pragma unroll
    for (u32 w = 0; w < WARPS; ++w) {
        if (w == warp) before = total;
        total += warp_ones[w];
    }
    for (u32 r = 0; r < rows; ++r) {
        const u32 i = first + r * WARP;
        const K key = from[i];
        const bool bit = key >> position & 1;
        const u32 ones_in_row = warp_ballot(bit);
        const u32 ones_before = before + popc(ones_in_row & ((1u << lane) - 1));
        const u32 destination = bit ? tile - total + ones_before : i - ones_before;
        to[destination] = key;
        if (slot_to) slot_to[destination] = slot_from[i];
        before += popc(ones_in_row);
    }
    block_sync();
}

/// Launch 1: sorts each tile of THREADS * coarsening keys by bits [position, position + r) and fills its column of
/// the bucket table. With `slot_of` null the sorted tile is written to `sorted`; else only slot_of[i], the place of
/// key i in its sorted tile. Dynamic shared memory: two tiles of keys, and two of u16 with `slot_of`.
template <class K, u32 THREADS>
__global__ void __launch_bounds__(THREADS)
    radix_block_sort(const K* keys, K* sorted, u16* slot_of, u32* table, u32 n, u32 position, u32 r, u32 coarsening) {
    constexpr u32 WARPS = THREADS / WARP;
    SHARED(u32, warp_ones, WARPS);
    SHARED(u32, count, THREADS);
    const u32 tile = THREADS * coarsening, start = blockIdx.x * tile, buckets = 1u << r;
    const u32 valid = min(tile, n - start);
    Carve smem;
    K* from = smem.take<K>(tile);
    K* to = smem.take<K>(tile);
    u16* slot_from = slot_of ? smem.take<u16>(tile) : nullptr;
    u16* slot_to = slot_of ? smem.take<u16>(tile) : nullptr;

    for (u32 d = threadIdx.x; d < buckets; d += THREADS) count[d] = 0;
    block_sync();
    for (u32 i = threadIdx.x; i < tile; i += THREADS) {
        // The last tile is filled up with all ones; stable steps keep these behind every real key.
        const K key = i < valid ? keys[start + i] : K(~K(0));
        from[i] = key;
        if (slot_of) slot_from[i] = u16(i);
        if (i < valid) red_add(&count[u32(key >> position) & (buckets - 1)], 1u);
    }
    block_sync();
    for (u32 bit = position; bit < position + r; ++bit) {
        local_bit_step<WARPS>(from, to, slot_from, slot_to, coarsening, bit, warp_ones);
        K* const keys_done = to;
        to = from;
        from = keys_done;
        u16* const slots_done = slot_to;
        slot_to = slot_from;
        slot_from = slots_done;
    }
    for (u32 i = threadIdx.x; i < valid; i += THREADS) {
        if (slot_of)
            slot_of[start + slot_from[i]] = u16(i);
        else
            sorted[start + i] = from[i];
    }
    for (u32 d = threadIdx.x; d < buckets; d += THREADS) table[u64(d) * gridDim.x + blockIdx.x] = count[d];
    if (blockIdx.x == 0 && threadIdx.x == 0) table[u64(buckets) * gridDim.x] = 0;  // becomes n in the scan
}

/// Launch 3: out[start of the bucket's share + place in it] = key. Key i of a tile stands at slot i of the sorted
/// tile (slot_of null: neighbours write to neighbours) or at slot_of[i] (scatter). Grid as in launch 1.
template <class K, u32 THREADS>
__global__ void __launch_bounds__(THREADS) radix_place(const K* keys, const u16* slot_of, K* out, const u32* table,
                                                       u32 n, u32 position, u32 r, u32 coarsening) {
    constexpr u32 WARPS = THREADS / WARP;
    SHARED(u32, warp_sum, WARPS);
    SHARED(u32, offset, THREADS);
    const u32 tile = THREADS * coarsening, start = blockIdx.x * tile, buckets = 1u << r, d = threadIdx.x;
    const u32 valid = min(tile, n - start);
    // In the scanned table the next entry starts where this block's bucket d ends.
    u32 global_start = 0, size = 0, all;
    if (d < buckets) {
        const u32* entry = table + u64(d) * gridDim.x + blockIdx.x;
        global_start = entry[0];
        size = entry[1] - entry[0];
    }
    const u32 local_start = block_exclusive_scan<WARPS>(size, warp_sum, all);
    if (d < buckets) offset[d] = global_start - local_start;  // modulo 2^32; adding the slot brings it back
    block_sync();
    for (u32 i = threadIdx.x; i < valid; i += THREADS) {
        const K key = keys[start + i];
        const u32 slot = slot_of ? slot_of[start + i] : i;
        out[offset[u32(key >> position) & (buckets - 1)] + slot] = key;
    }
}
