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
//      co_rank_near     looks first where the co-rank would be in runs that are alike
//      co_rank_many     K runs at once, one run for each of K lanes; ties by (key, run, position); few rounds when the
//                       runs are alike (Varman et al., "Merging multiple lists on hierarchical-memory multiprocessors",
//                       1991, state the problem; the steps here are our own)
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

/// The co-rank of rank k, known to lie in [low, high].
template <u32 R, class Index, class A, class B>
HOST_DEVICE Index co_rank_within(Index k, A a, B b, Index low, Index high) {
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

template <u32 R, class Index, class A, class B>
HOST_DEVICE Index co_rank_radix(Index k, A a, Index m, B b, Index n) {
    return co_rank_within<R>(k, a, b, k > n ? k - n : Index(0), k < m ? k : m);
}

// --- searches that have a guess: where the answer would be, were the keys of all runs spread alike ------------------

/// How far from the guess to look first: 2 to 3 times the square root, as the successes of so many trials stray.
DEVICE u64 stray(u64 trials) { return u64(1) << ((67 - clz(trials)) / 2); }

/// The same as co_rank_within, looking near `guess` first.
template <class A, class B>
DEVICE u64 co_rank_near(u64 k, A a, B b, u64 low, u64 high, u64 guess) {
    if (low == high) return low;
    const u64 span = stray(min(guess - low, high - guess));
    const u64 first = guess > low + span ? guess - span : low, second = min(guess + span, high - 1);
    const bool after_first = !(b[k - 1 - first] < a[first]), after_second = !(b[k - 1 - second] < a[second]);
    return co_rank_within<2>(k, a, b,
                             after_second  ? second + 1
                             : after_first ? first + 1
                                           : low,
                             after_second  ? high
                             : after_first ? second
                                           : first);
}

/// How many of the n sorted elements of `run` come before `key`; an equal one does if `ties`.
template <class Seq, class Key>
DEVICE u64 rank_near(Seq run, u64 n, Key key, bool ties, u64 guess) {
    if (n == 0) return 0;
    const auto before = [&](u64 i) {
        const Key at = run[i];
        return at < key || (ties && !(key < at));
    };
    const u64 span = stray(min(guess, n - guess));
    const u64 first = guess > span ? guess - span : 0, second = min(guess + span, n - 1);
    const bool after_first = before(first), after_second = before(second);
    u64 low = after_second ? second + 1 : after_first ? first + 1 : 0;
    u64 high = after_second ? n : after_first ? second : first;
    while (low < high) {
        const u64 width = high - low;
        u32 passed = 0;
#pragma unroll
        for (u32 q = 1; q < 4; ++q) passed += before(low + width * q / 4);
        if (passed < 3) high = low + width * (passed + 1) / 4;
        if (passed > 0) low = low + width * passed / 4 + 1;
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

/// The co-ranks of rank k among K sorted runs. Lane r of a group of K lanes brings run r and a bracket [low, high] that
/// holds its co-rank (at first 0 and the run's length), and gets its co-rank; all lanes of the warp call together, k
/// may differ between groups.
///
/// A round takes one key of the widest bracket and ranks it exactly, each lane in its own run. If fewer than `need`
/// keys are before it, then they and it are among the first k and all brackets begin after it, else they all end at it:
///
///      run 0   low ....... p ............ high        p stands where the co-rank would be, were the keys of all runs
///      run 1   low ......... | .......... high        spread alike: then what is left falls to about its square root
///      run 2   low ..... | .............. high        a round
///                  before p   after p
///
/// A round that leaves more than three quarters is followed by one that takes p from the middle, which halves at least
/// the widest bracket whatever the keys are.
template <u32 K, class Seq>
DEVICE u64 co_rank_many(u64 k, Seq run, u64 low, u64 high) {
    const u32 lane = threadIdx.x % WARP, me = lane % K, group = lane - me;
    bool middle = false;
    for (u64 last = ~u64(0);;) {
        const u64 need = k - group_sum<K>(low), left = group_sum<K>(high - low), width = high - low;
        const bool all = need == left, done = all || need == 0;
        if (warp_all(done)) return all ? high : low;
        middle = !middle && left > last - last / 4;
        last = left;
        u64 widest = width * K + me;
#pragma unroll
        for (u32 d = 1; d < K; d *= 2) widest = max(widest, shfl_xor(widest, d));
        const u32 p = u32(widest % K);
        const u64 at = middle || done ? width / 2 : u64(double(need) / double(left) * double(width));
        const u64 guess = width == 0 ? 0 : min(at, width - 1);
        u64 key = 0;
        if (me == p && !done) key = run[low + guess];
        key = shfl(key, group + p);
        const u64 count = me == p || done ? guess : rank_near(run + low, width, key, me < p, guess);
        const u64 before = group_sum<K>(count);
        if (done) continue;
        if (before < need)
            low += count + (me == p);
        else
            high = low + count;
    }
}
