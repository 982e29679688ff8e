// Co-rank: where a prefix of the merged output comes from.
//
//      A  = [ a0 a1 | a2 ... ]   i of A      the first k of the merge of A and B are the first i of A
//      B  = [ b0 | b1 b2 ... ]   j of B      and the first j of B; i + j = k
//                \_ cut
//      C  = [ c0 ... c(k-1) | ck ... ]       k = rank, i and j = its co-ranks
//
// On ties A goes first, so (i, j) is the one pair with A[i-1] <= B[j] and B[j-1] < A[i]. The two signs differ: with
// equal signs the merge is not stable. i lies in [max(0, k-n), min(k, m)], for B can give no more than n and A no more
// than m. Ranks are 64-bit when Index is.
//
// Along the diagonal i + j = k the test "A[i] <= B[k-1-i]" is true up to the co-rank and false from it on, which is
// what all searches here look for:
//
//      co_rank          the textbook's: both markers move, halving (Programming Massively Parallel Processors, ch. 12;
//                       Siebert and Traeff, "Efficient MPI implementation of a parallel, stable merge algorithm", 2012)
//      co_rank_binary   one comparison a step; log2 steps of two dependent loads
//      co_rank_radix    R-1 independent probes a step, log_R steps: fewer waits where each load costs a trip to memory
//      co_rank_many     K runs at once, one run for each of K lanes; ties by (key, run, position)
//
// A sequence is anything with [i] that gives something with <: a pointer, or keys.cuh's codes, or a circular buffer.
#pragma once

#include "prims.cuh"

template <class Index>
struct CoRank {
    Index i, j, i_low, j_low;
};

template <class Index>
HOST_DEVICE CoRank<Index> co_rank_start(Index k, Index m, Index n) {
    const Index i = k < m ? k : m;
    return {i, k - i, k > n ? k - n : 0, k > m ? k - m : 0};
}

/// One step of the search; false when (i, j) are the co-ranks. The markers move by half of what is left, rounded up,
/// so each step moves.
template <class Index, class A, class B>
HOST_DEVICE bool co_rank_step(CoRank<Index>& s, A a, Index m, B b, Index n) {
    if (s.i > 0 && s.j < n && b[s.j] < a[s.i - 1]) {  // i is too large
        const Index delta = (s.i - s.i_low + 1) / 2;
        s.j_low = s.j;
        s.i -= delta;
        s.j += delta;
        return true;
    }
    if (s.j > 0 && s.i < m && !(b[s.j - 1] < a[s.i])) {  // j is too large
        const Index delta = (s.j - s.j_low + 1) / 2;
        s.i_low = s.i;
        s.i += delta;
        s.j -= delta;
        return true;
    }
    return false;
}

/// How many of the first k come from a[0..m); the rest, k minus that, come from b[0..n).
template <class Index, class A, class B>
HOST_DEVICE Index co_rank(Index k, A a, Index m, B b, Index n) {
    CoRank<Index> s = co_rank_start(k, m, n);
    while (co_rank_step(s, a, m, b, n)) {
    }
    return s.i;
}

template <class Index, class A, class B>
HOST_DEVICE Index co_rank_binary(Index k, A a, Index m, B b, Index n) {
    Index low = k > n ? k - n : 0, high = k < m ? k : m;
    while (low < high) {
        const Index mid = (low + high) / 2;
        if (b[k - 1 - mid] < a[mid])
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

template <u32 R, class Index, class A, class B>
HOST_DEVICE Index co_rank_radix(Index k, A a, Index m, B b, Index n) {
    Index low = k > n ? k - n : 0, high = k < m ? k : m;
    while (low < high) {
        const Index width = high - low;
        u32 before = 0;  // probes that are before the co-rank: they are the first ones
#pragma unroll
        for (u32 q = 1; q < R; ++q) {
            const Index probe = low + width * q / R;
            before += !(b[k - 1 - probe] < a[probe]);
        }
        if (before + 1 < R) high = low + width * (before + 1) / R;
        if (before > 0) low = low + width * before / R + 1;
    }
    return low;
}

/// The sum over the K lanes of a group, K a power of two.
template <u32 K>
DEVICE u64 group_sum(u64 v) {
#pragma unroll
    for (u32 d = 1; d < K; d *= 2) v += shfl_xor(v, d);
    return v;
}

/// The co-ranks of rank k among K sorted runs. Lane r of a group of K lanes brings run r and gets its co-rank; all
/// lanes of the warp call together (k may differ between groups).
///
/// Each run keeps a bracket [low, high] of its co-rank. In a round each run probes two elements around the place
/// where its co-rank would be if all brackets were filled alike. A probe's rank, over all runs, is at least the
/// elements known to be before it and at most those not known to be after it:
///
///      run s   low ......... p ........... q ........ high        x between p and q:
///              |  before x   |  unknown    |   after x  |         p+1-low <= (elements of s before x) <= q-low
///
/// A probe whose rank is surely below k moves `low` past itself, one surely at or above k moves `high` down to itself.
/// The smallest first probe, or the largest, always does one of both, whatever the data. On runs that are alike the
/// brackets shrink four- to eightfold; a round that shrinks them by less than a quarter is followed by one with
/// the probes near the middles, which is what bounds the number of rounds.
template <u32 K, class Seq>
DEVICE u64 co_rank_many(u64 k, Seq run, u64 length) {
    const u32 lane = threadIdx.x % WARP, me = lane % K, group = lane - me;
    u64 low = 0, high = length;
    u64 left = group_sum<K>(high), last = ~u64(0);
    bool middle = false;
    while (warp_any(left > 0)) {
        const u64 need = k - group_sum<K>(low), width = high - low;
        const double fill = middle || left == 0 ? 0.5 : double(need) / double(left);
        const u64 at = u64(fill * double(width)), span = width / 16;
        u64 place[2], key[2] = {0, 0};  // the probes, counted from low, in order
        place[0] = at > span ? at - span : 0;
        place[1] = at + span;
        if (width > 0) {
#pragma unroll
            for (u32 p = 0; p < 2; ++p) {
                place[p] = min(place[p], width - 1);
                key[p] = u64(run[low + place[p]]);
            }
        }
        u64 least[2] = {place[0], place[1]}, most[2] = {place[0], place[1]};
#pragma unroll
        for (u32 s = 0; s < K; ++s) {
            const u64 other_width = shfl(width, group + s);
            const u64 key0 = shfl(key[0], group + s), key1 = shfl(key[1], group + s);
            const u64 place0 = shfl(place[0], group + s), place1 = shfl(place[1], group + s);
            if (s == me || other_width == 0) continue;
#pragma unroll
            for (u32 p = 0; p < 2; ++p) {
                const bool after0 = key0 < key[p] || (key0 == key[p] && s < me);  // is my probe after its probe?
                const bool after1 = key1 < key[p] || (key1 == key[p] && s < me);
                least[p] += after1 ? place1 + 1 : after0 ? place0 + 1 : 0;
                most[p] += after1 ? other_width : after0 ? place1 : place0;
            }
        }
        if (width > 0) {
            const u64 start = low;
#pragma unroll
            for (u32 p = 0; p < 2; ++p)
                if (most[p] < need) low = start + place[p] + 1;
#pragma unroll
            for (u32 p = 2; p-- > 0;)
                if (least[p] >= need) high = start + place[p];
        }
        last = left;
        left = group_sum<K>(high - low);
        middle = !middle && left > last - last / 4;
    }
    return low;
}
