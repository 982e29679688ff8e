// A small CUDA machine on the host: what prims.cuh's host twin stands on, and how test drivers launch kernels.
// Each CUDA thread is a fiber with its own stack, all in one OS thread, so a schedule is a pure function of the
// settings and a failure replays. How it works: emulator.cpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <source_location>
#include <string>

#define EMU_EXPORT __attribute__((visibility("default")))
#define DRIVER extern "C" EMU_EXPORT int  // DRIVER run_x(const u32* in, u64 n) { return emu::guard([&] { ... }); }

namespace emu {

using Loc = std::source_location;

struct Dim {
  unsigned x = 1, y = 1, z = 1;
  Dim(unsigned x = 1) : x(x) {}
};
struct Coordinates {
  Dim thread, block, block_dim, grid_dim;
};
extern Coordinates* here;  // of the thread that runs now

enum Op { SYNC, BALLOT, SHFL, SHFL_UP, SHFL_DOWN, SHFL_XOR, MATCH, ADD, OR, AND };
using Bits = unsigned long long;

Bits collective(Op op, unsigned mask, Bits value, unsigned argument, Loc loc);
unsigned block_barrier(bool p, Loc loc);  // how many threads of the block gave p
void named_barrier(unsigned id, unsigned count, Loc loc);
void touch(Loc loc);  // before a store or atomic that others may wait for
void poll(Loc loc);   // before a load in a waiting loop: lets the others run
void check_aligned(const void* p, size_t n, Loc loc);
// Bulk copies happen when they are waited for; until then their target holds 0xCD.
void bulk_init(const void* bar);
void bulk_expect(const void* bar, unsigned bytes, Loc loc);
void bulk_load(void* shared, const void* global, unsigned bytes, const void* bar, Loc loc);
void bulk_wait(const void* bar, unsigned phase, Loc loc);
void bulk_store(void* global, const void* shared, unsigned bytes, Loc loc);
void bulk_store_wait();
void* dynamic_shared();
void* carve(unsigned offset, unsigned bytes, Loc loc);
void* static_shared(const void* site, size_t bytes, size_t align);

template <class Site>
inline const char site_of = 0;  // one address for each declaration and template instance

template <class T, class Site>
T* shared(Site) {
  return static_cast<T*>(static_shared(&site_of<Site>, sizeof(T), alignof(T) < 16 ? 16 : alignof(T)));
}

template <class T>
Bits to_bits(T v) {
  static_assert(sizeof(T) <= 8);
  Bits b = 0;
  std::memcpy(&b, &v, sizeof(T));
  return b;
}
template <class T>
T from_bits(Bits b) {
  T v;
  std::memcpy(&v, &b, sizeof(T));
  return v;
}

void run(unsigned grid, unsigned block, size_t dynamic_bytes, void (*body)(void*), void* closure);

/// Runs kernel<<<grid, block, dynamic_bytes>>>(args...) to its end. Throws std::string on a report; see guard.
template <class... P, class... A>
void launch(void (*kernel)(P...), unsigned grid, unsigned block, size_t dynamic_bytes, A&&... args) {
  auto call = [&] { kernel(static_cast<P>(args)...); };
  run(grid, block, dynamic_bytes, [](void* c) { (*static_cast<decltype(call)*>(c))(); }, &call);
}

int failed(const std::string& report);

/// The body of an extern "C" driver: 0, or 1 with the report kept for emu_report().
template <class F>
int guard(F&& body) {
  try {
    body();
    return 0;
  } catch (const std::string& report) {
    return failed(report);
  }
}

}  // namespace emu
