// The primitives that every kernel is written in: one vocabulary, two machines.
//
//      kernels/*.cu  --->  prims.cuh  --+-- __CUDACC__ : CUDA, the only place with inline PTX
//                                       +-- otherwise  : prims_host.h in tests/kernels, each CUDA thread a fiber
//
// The same kernel text runs on a GPU and, under g++, on a machine without one, where blocks, barriers, ballots,
// shuffles, shared memory and atomics are acted out with every order permuted, and a misuse is reported with
// its source line. For that to work a kernel keeps to these rules:
//
//   - no inline assembly, no <<<>>>, no bare __shared__, no CUDA runtime calls, no standard headers;
//   - shared memory through SHARED, SHARED1, SHARED2, or DYN_SHARED / Carve; unwritten shared memory is never read;
//   - blocks are one-dimensional and a whole number of warps; no thread returns before the last barrier;
//   - every lane named in a mask calls the same collective on the same source line;
//   - a loop that waits for another block spins on ld_relaxed or ld_acquire only, and waits only for tiles whose
//     number came from an earlier atomic ticket (never for a blockIdx);
//   - data handed to another block goes by st_release / ld_acquire, by an acq_rel atomic, or shares one word with
//     its flag; a bare fence orders nothing here;
//   - shuffles and ballots order no memory: shared memory passed inside a warp needs warp_sync;
//   - shift counts stay below the width; global buffers given to load16 / store16 are 16-byte aligned.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

constexpr u32 WARP = 32;
constexpr u32 FULL_WARP = 0xffffffffu;

#ifdef __CUDACC__  // also defined by NVRTC ------------------------------------------------------- device

#define DEVICE __device__ __forceinline__
#define HOST_DEVICE __host__ __device__ __forceinline__

// n elements, one, n x m, or the launch's dynamic shared memory; all 16-byte (dynamic: 128-byte) aligned.
#define SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define SHARED1(T, name) __shared__ __align__(16) T name
#define SHARED2(T, name, n, m) __shared__ __align__(16) T name[n][m]
#define DYN_SHARED(T, name)                                       \
    extern __shared__ __align__(128) unsigned char dyn_shared_[]; \
    T* name = reinterpret_cast<T*>(dyn_shared_)

/// Cuts the dynamic shared memory into arrays: `Carve smem; u32* a = smem.take<u32>(n);`, by every thread alike.
/// Each array starts at a multiple of 16 bytes. The host twin fences the arrays off from each other.
struct Carve {
    u32 used = 0;
    template <class T>
    DEVICE T* take(u32 n) {
        DYN_SHARED(unsigned char, base);
        T* piece = reinterpret_cast<T*>(base + used);
        used += (n * u32(sizeof(T)) + 15u) & ~15u;
        return piece;
    }
};

// --- barriers: order shared and global memory between the threads that meet
DEVICE void block_sync() { __syncthreads(); }
DEVICE bool block_sync_or(bool p) { return __syncthreads_or(p); }
DEVICE u32 block_sync_count(bool p) { return u32(__syncthreads_count(p)); }
/// Barrier `id` (1..15) of `count` threads (a multiple of 32): for a part of the block.
DEVICE void named_sync(u32 id, u32 count) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory"); }
DEVICE void warp_sync(u32 mask = FULL_WARP) { __syncwarp(mask); }

// --- warp collectives: exchange registers, order no memory
DEVICE u32 warp_ballot(bool p, u32 mask = FULL_WARP) { return __ballot_sync(mask, p); }
DEVICE bool warp_any(bool p, u32 mask = FULL_WARP) { return __any_sync(mask, p); }
DEVICE bool warp_all(bool p, u32 mask = FULL_WARP) { return __all_sync(mask, p); }
template <class T>
DEVICE T shfl(T v, u32 lane, u32 mask = FULL_WARP) {
    return T(__shfl_sync(mask, v, int(lane)));
}
template <class T>
DEVICE T shfl_up(T v, u32 d, u32 mask = FULL_WARP) {
    return T(__shfl_up_sync(mask, v, d));
}
template <class T>
DEVICE T shfl_down(T v, u32 d, u32 mask = FULL_WARP) {
    return T(__shfl_down_sync(mask, v, d));
}
template <class T>
DEVICE T shfl_xor(T v, u32 x, u32 mask = FULL_WARP) {
    return T(__shfl_xor_sync(mask, v, int(x)));
}
template <class T>
DEVICE u32 match_any(T v, u32 mask = FULL_WARP) {
    return __match_any_sync(mask, v);
}
DEVICE u32 reduce_add(u32 v, u32 mask = FULL_WARP) { return __reduce_add_sync(mask, v); }
DEVICE u32 reduce_or(u32 v, u32 mask = FULL_WARP) { return __reduce_or_sync(mask, v); }
DEVICE u32 reduce_and(u32 v, u32 mask = FULL_WARP) { return __reduce_and_sync(mask, v); }

// --- bits
DEVICE u32 popc(u32 x) { return u32(__popc(int(x))); }
DEVICE u32 popc(u64 x) { return u32(__popcll((long long)x)); }
DEVICE u32 clz(u32 x) { return u32(__clz(int(x))); }
DEVICE u32 clz(u64 x) { return u32(__clzll((long long)x)); }
DEVICE u32 byte_perm(u32 x, u32 y, u32 selector) { return __byte_perm(x, y, selector); }
/// p ? bits : ~bits, as one predicated multiply-add: keeps the ballot ranking off the busy logic unit.
DEVICE u32 not_unless(u32 bits, bool p) {
    asm("{\n .reg .pred q;\n setp.eq.u32 q, %1, 0;\n @q mad.lo.u32 %0, %0, -1, -1;\n}" : "+r"(bits) : "r"(u32(p)));
    return bits;
}
/// The lanes of the warp that hold the same byte as this one: one ballot for each bit, complemented by the lanes
/// without it. `all` must be warp_ballot(true), made once outside the loop: the complement is then a multiply-add, all
/// * x + all, which the compiler cannot turn back into work for the logic unit, busy with the rest.
DEVICE u32 match_byte(u32 d, u32 all) {
    u32 same[8], peers;
#pragma unroll
    for (u32 b = 0; b < 8; ++b)
        asm volatile(
            "{\n .reg .pred p;\n .reg .u32 t;\n and.b32 t, %1, %3;\n setp.ne.u32 p, t, 0;\n"
            " vote.sync.ballot.b32 %0, p, 0xffffffff;\n @!p mad.lo.u32 %0, %0, %2, %2;\n}"
            : "=r"(same[b])
            : "r"(d), "r"(all), "r"(1u << b));
    asm("{\n .reg .u32 t, u;\n lop3.b32 t, %1, %2, %3, 0x80;\n lop3.b32 u, %4, %5, %6, 0x80;\n"
        " lop3.b32 t, t, %7, %8, 0x80;\n and.b32 %0, t, u;\n}"
        : "=r"(peers)
        : "r"(same[0]), "r"(same[1]), "r"(same[2]), "r"(same[3]), "r"(same[4]), "r"(same[5]), "r"(same[6]),
          "r"(same[7]));
    return peers;
}
/// The same value, but the compiler forgets what it knew of it: stops it from keeping a derived value alive.
DEVICE u32 opaque(u32 x) {
    asm volatile("" : "+r"(x));
    return x;
}
DEVICE u64 opaque(u64 x) {
    asm volatile("" : "+l"(x));
    return x;
}

// --- atomics on shared or global memory, relaxed unless named otherwise; each returns the old value
template <class T>
DEVICE T atomic_add(T* p, T v) {
    return atomicAdd(p, v);
}
template <class T>
DEVICE T atomic_min(T* p, T v) {
    return atomicMin(p, v);
}
template <class T>
DEVICE T atomic_max(T* p, T v) {
    return atomicMax(p, v);
}
template <class T>
DEVICE T atomic_or(T* p, T v) {
    return atomicOr(p, v);
}
template <class T>
DEVICE T atomic_and(T* p, T v) {
    return atomicAnd(p, v);
}
template <class T>
DEVICE T atomic_exch(T* p, T v) {
    return atomicExch(p, v);
}
template <class T>
DEVICE T atomic_cas(T* p, T expect, T v) {
    return atomicCAS(p, expect, v);
}
/// Adds and returns nothing: in shared memory equal addresses of a warp merge into one access.
template <class T>
DEVICE void red_add(T* p, T v) {
    atomicAdd(p, v);
}
DEVICE u32 atomic_add_acq_rel(u32* p, u32 v) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

// --- loads and stores between blocks
DEVICE u32 ld_relaxed(const u32* p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE u64 ld_relaxed(const u64* p) {
    u64 v;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
DEVICE u32 ld_acquire(const u32* p) {
    u32 v;
    asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
DEVICE u64 ld_acquire(const u64* p) {
    u64 v;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
DEVICE void st_relaxed(u32* p, u32 v) { asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void st_relaxed(u64* p, u64 v) { asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
DEVICE void st_release(u32* p, u32 v) { asm volatile("st.release.gpu.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void st_release(u64* p, u64 v) { asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }

/// 16 bytes of T, moved by one instruction from or to a 16-byte aligned address.
template <class T>
struct Vec16 {
    static constexpr u32 N = 16 / sizeof(T);
    union {
        uint4 bits;
        T v[N];
    };
};
template <class T>
DEVICE Vec16<T> load16(const T* p) {
    Vec16<T> r;
    r.bits = *reinterpret_cast<const uint4*>(p);
    return r;
}
template <class T>
DEVICE void store16(T* p, Vec16<T> r) {
    *reinterpret_cast<uint4*>(p) = r.bits;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// --- bulk copies between global and shared memory, from sm_90 on: addresses and sizes are multiples of 16 bytes.
// Loads report to a u64 in shared memory, `bar`: one thread calls bulk_init, all meet in block_sync; one thread calls
// bulk_expect with the bytes of all loads of the phase; whoever reads waits for the phase (0, 1, 0, ... in turn).
DEVICE u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
DEVICE void bulk_init(u64* bar) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(bar)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
DEVICE void bulk_expect(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes)
                 : "memory");
}
DEVICE void bulk_load(void* shared, const void* global, u32 bytes, u64* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(shared_address(bar))
                 : "memory");
}
DEVICE void bulk_wait(u64* bar, u32 phase) {
    asm volatile(
        "{\n .reg .pred done;\nagain:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n @!done bra "
        "again;\n}" ::"r"(shared_address(bar)),
        "r"(phase)
        : "memory");
}
/// Makes this thread's stores to shared memory visible to bulk_store; every writer calls it, then block_sync.
DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void bulk_store(void* global, const void* shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(global)),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
}
/// Waits until this thread's bulk stores have read shared memory; before it, the block must not end or overwrite it.
DEVICE void bulk_store_wait() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
#else  // declared only, so that templates that do not use them can be read
__device__ void bulk_init(u64* bar);
__device__ void bulk_expect(u64* bar, u32 bytes);
__device__ void bulk_load(void* shared, const void* global, u32 bytes, u64* bar);
__device__ void bulk_wait(u64* bar, u32 phase);
__device__ void bulk_fence();
__device__ void bulk_store(void* global, const void* shared, u32 bytes);
__device__ void bulk_store_wait();
#endif

#else
#include "prims_host.h"
#endif
