// The host twin of kernels/prims.cuh, which includes it where there is no CUDA compiler: the same names, acted out by
// the emulator. What each of them promises stands there.
#pragma once

#include <type_traits>

#include "emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define threadIdx (emu::here->thread)
#define blockIdx (emu::here->block)
#define blockDim (emu::here->block_dim)
#define gridDim (emu::here->grid_dim)

#define DEVICE inline
#define HOST_DEVICE inline
#define SHARED(T, name, n) T(&name)[n] = *emu::shared<T[n]>([] {})
#define SHARED1(T, name) T& name = *emu::shared<T>([] {})
#define SHARED2(T, name, n, m) T(&name)[n][m] = *emu::shared<T[n][m]>([] {})
#define DYN_SHARED(T, name) T* name = static_cast<T*>(emu::dynamic_shared())

struct Carve {
  u32 used = 0;
  template <class T>
  T* take(u32 n, emu::Loc loc = emu::Loc::current()) {
    T* piece = static_cast<T*>(emu::carve(used, n * u32(sizeof(T)), loc));
    used += (n * u32(sizeof(T)) + 15u) & ~15u;
    return piece;
  }
};

// CUDA's min and max take two different integer types.
template <class A, class B>
constexpr auto min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return T(a) < T(b) ? T(b) : T(a);
}

#define WHERE emu::Loc loc = emu::Loc::current()
#define WARP_ARGS u32 mask = FULL_WARP, WHERE

inline void block_sync(WHERE) { emu::block_barrier(false, loc); }
inline bool block_sync_or(bool p, WHERE) { return emu::block_barrier(p, loc) != 0; }
inline u32 block_sync_count(bool p, WHERE) { return emu::block_barrier(p, loc); }
inline void named_sync(u32 id, u32 count, WHERE) { emu::named_barrier(id, count, loc); }
inline void warp_sync(WARP_ARGS) { emu::collective(emu::SYNC, mask, 0, 0, loc); }

inline u32 warp_ballot(bool p, WARP_ARGS) { return u32(emu::collective(emu::BALLOT, mask, p, 0, loc)); }
inline bool warp_any(bool p, WARP_ARGS) { return emu::collective(emu::BALLOT, mask, p, 0, loc) != 0; }
inline bool warp_all(bool p, WARP_ARGS) { return emu::collective(emu::BALLOT, mask, p, 0, loc) == mask; }
template <class T>
T shfl(T v, u32 lane, WARP_ARGS) {
  return emu::from_bits<T>(emu::collective(emu::SHFL, mask, emu::to_bits(v), lane & 31, loc));
}
template <class T>
T shfl_up(T v, u32 d, WARP_ARGS) {
  return emu::from_bits<T>(emu::collective(emu::SHFL_UP, mask, emu::to_bits(v), d, loc));
}
template <class T>
T shfl_down(T v, u32 d, WARP_ARGS) {
  return emu::from_bits<T>(emu::collective(emu::SHFL_DOWN, mask, emu::to_bits(v), d, loc));
}
template <class T>
T shfl_xor(T v, u32 x, WARP_ARGS) {
  return emu::from_bits<T>(emu::collective(emu::SHFL_XOR, mask, emu::to_bits(v), x, loc));
}
template <class T>
u32 match_any(T v, WARP_ARGS) {
  return u32(emu::collective(emu::MATCH, mask, emu::to_bits(v), 0, loc));
}
inline u32 reduce_add(u32 v, WARP_ARGS) { return u32(emu::collective(emu::ADD, mask, v, 0, loc)); }
inline u32 reduce_or(u32 v, WARP_ARGS) { return u32(emu::collective(emu::OR, mask, v, 0, loc)); }
inline u32 reduce_and(u32 v, WARP_ARGS) { return u32(emu::collective(emu::AND, mask, v, 0, loc)); }

inline u32 popc(u32 x) { return u32(__builtin_popcount(x)); }
inline u32 popc(u64 x) { return u32(__builtin_popcountll(x)); }
inline u32 clz(u32 x) { return x ? u32(__builtin_clz(x)) : 32; }
inline u32 clz(u64 x) { return x ? u32(__builtin_clzll(x)) : 64; }
inline u32 byte_perm(u32 x, u32 y, u32 selector) {
  u64 bytes = u64(y) << 32 | x;
  u32 r = 0;
  for (u32 k = 0; k < 4; ++k) {
    u32 nibble = selector >> (4 * k) & 15;
    u32 byte = u32(bytes >> (8 * (nibble & 7))) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;  // PRMT's sign-replicate mode
    r |= byte << (8 * k);
  }
  return r;
}
inline u32 not_unless(u32 bits, bool p) { return p ? bits : ~bits; }
inline u32 match_byte(u32 d, u32, WHERE) { return u32(emu::collective(emu::MATCH, FULL_WARP, d & 255, 0, loc)); }
inline u32 opaque(u32 x) { return x; }
inline u64 opaque(u64 x) { return x; }

template <class T>
T atomic_add(T* p, T v, WHERE) {
  emu::touch(loc);
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomic_or(T* p, T v, WHERE) {
  emu::touch(loc);
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomic_and(T* p, T v, WHERE) {
  emu::touch(loc);
  return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomic_exch(T* p, T v, WHERE) {
  emu::touch(loc);
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomic_cas(T* p, T expect, T v, WHERE) {
  emu::touch(loc);
  __atomic_compare_exchange_n(p, &expect, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expect;
}
template <class T>
T atomic_min(T* p, T v, WHERE) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (v < old && atomic_cas(p, old, v, loc) != old) old = __atomic_load_n(p, __ATOMIC_RELAXED);
  return old;
}
template <class T>
T atomic_max(T* p, T v, WHERE) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < v && atomic_cas(p, old, v, loc) != old) old = __atomic_load_n(p, __ATOMIC_RELAXED);
  return old;
}
template <class T>
void red_add(T* p, T v, WHERE) {
  atomic_add(p, v, loc);
}
inline u32 atomic_add_acq_rel(u32* p, u32 v, WHERE) {
  emu::touch(loc);
  return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}

template <class T>
T ld_relaxed(const T* p, WHERE) {
  emu::poll(loc);
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class T>
T ld_acquire(const T* p, WHERE) {
  emu::poll(loc);
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
template <class T>
void st_relaxed(T* p, std::type_identity_t<T> v, WHERE) {
  emu::touch(loc);
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
void st_release(T* p, std::type_identity_t<T> v, WHERE) {
  emu::touch(loc);
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

template <class T>
struct alignas(16) Vec16 {
  static constexpr u32 N = 16 / sizeof(T);
  T v[N];
};
template <class T>
Vec16<T> load16(const T* p, WHERE) {
  emu::check_aligned(p, 16, loc);
  Vec16<T> r;
  for (u32 k = 0; k < r.N; ++k) r.v[k] = p[k];
  return r;
}
template <class T>
void store16(T* p, const Vec16<T>& r, WHERE) {
  emu::check_aligned(p, 16, loc);
  for (u32 k = 0; k < r.N; ++k) p[k] = r.v[k];
}

inline void bulk_init(u64* bar) { emu::bulk_init(bar); }
inline void bulk_expect(u64* bar, u32 bytes, WHERE) { emu::bulk_expect(bar, bytes, loc); }
inline void bulk_load(void* shared, const void* global, u32 bytes, u64* bar, WHERE) {
  emu::bulk_load(shared, global, bytes, bar, loc);
}
inline void bulk_wait(u64* bar, u32 phase, WHERE) { emu::bulk_wait(bar, phase, loc); }
inline void bulk_fence() {}
inline void bulk_store(void* global, const void* shared, u32 bytes, WHERE) {
  emu::bulk_store(global, shared, bytes, loc);
}
inline void bulk_store_wait() { emu::bulk_store_wait(); }

#undef WHERE
#undef WARP_ARGS
