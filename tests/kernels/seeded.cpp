// Kernels with one mistake each (and their correct form, BUG 0), to prove that the harness sees it.
#include "prims.cuh"

constexpr u32 T = 64;

template <int BUG>
__global__ void reverse_tile(const u32* in, u32* out, u32 n) {
  SHARED(u32, tile, T);
  u32 base = blockIdx.x * T, t = threadIdx.x;
  if constexpr (BUG == 2) {  // one past the tile
    if (t == 0) tile[opaque(T)] = 0;
  }
  if constexpr (BUG != 3) {  // 3: read what nobody wrote
    if (base + t < n) tile[t] = in[base + t];
  }
  if constexpr (BUG != 1) block_sync();  // 1: no barrier after the load
  if constexpr (BUG == 4) {              // one past the output
    if (base + t <= n) out[base + t] = 1;
  } else {
    if (base + t < n) out[base + t] = tile[min(T, n - base) - 1 - t];
  }
}

// Inclusive scan by doubling, over several rounds of the same tile.
template <int BUG>
__global__ void scan_rounds(const u32* in, u32* out, u32 rounds) {
  SHARED(u32, s, T);
  SHARED1(u32, first);
  u32 t = threadIdx.x;
  if (t == 0) first = in[0];
  if constexpr (BUG != 2) block_sync();  // 2: thread 0's word read without a barrier
  u32 sum = first;
  for (u32 r = 0; r < rounds; ++r) {
    s[t] = in[r * T + t];
    block_sync();
    for (u32 d = 1; d < T; d *= 2) {
      u32 left = t >= d ? s[t - d] : 0;
      if constexpr (BUG != 1) block_sync();  // 1: half of the barriers of the doubling scan
      s[t] += left;
      block_sync();
    }
    out[r * T + T - 1 - t] = s[T - 1 - t] + sum;
    sum += s[T - 1];
    if constexpr (BUG != 3) block_sync();  // 3: the next round overwrites what is still read
  }
}

template <int BUG>
__global__ void warp_swap(const u32* in, u32* out) {
  SHARED(u32, s, T);
  u32 t = threadIdx.x;
  s[t] = in[t];
  if constexpr (BUG == 0) warp_sync();
  if constexpr (BUG == 1) (void)shfl(t, 0);  // a shuffle orders no memory
  out[t] = s[t ^ 1];
}

template <int BUG>
__global__ void divergent(u32* out) {
  u32 t = threadIdx.x;
  if constexpr (BUG == 0) out[t] = warp_ballot(t & 1);
  if constexpr (BUG == 1) {
    if (t < 40)
      block_sync();
    else
      block_sync();
  }
  if constexpr (BUG == 2) {
    if (t & 1) out[t] = warp_ballot(true);
  }
  if constexpr (BUG == 3) {
    if (t == 5) return;
    block_sync();
  }
  if constexpr (BUG == 4) {
    if (t < 32) named_sync(1, 64);
  }
  if constexpr (BUG == 5) {
    if (t & 1)
      out[t] = warp_ballot(true);
    else
      out[t] = shfl(t, 0);
  }
}

// Half of each of two warps at a barrier that counts warps.
__global__ void half_warps(u32* out) {
  if (threadIdx.x % WARP < 16) named_sync(1, 32);
  out[threadIdx.x] = 0;
}

// Two blocks: each lane waits for its own word of the other block, then takes what its neighbour got.
template <int BUG>
__global__ void wait_and_swap(u32* words, u32* out) {
  SHARED(u32, s, WARP);
  const u32 t = threadIdx.x, other = 1 - blockIdx.x;
  st_relaxed(words + blockIdx.x * WARP + t, t + 1);
  u32 got = 0;
  if constexpr (BUG == 2) {  // the lanes of a warp do not leave such a loop together
    while (!got) got = ld_relaxed(words + other * WARP + t);
    s[t] = got;
    out[blockIdx.x * WARP + t] = s[t ^ 1];
    return;
  }
  do {
    if (!got) got = ld_relaxed(words + other * WARP + t);
  } while (warp_any(!got));
  s[t] = got;
  if constexpr (BUG == 0) warp_sync();  // 1: the vote, too, orders no memory
  out[blockIdx.x * WARP + t] = s[t ^ 1];
}

// Each block adds its value to its predecessor's published sum.
template <int BUG>
__global__ void look_back(const u32* in, u64* out, u32* ticket, u64* values, u32* flags) {
  SHARED1(u32, tile);
  if (threadIdx.x == 0) tile = BUG == 1 ? blockIdx.x : atomic_add(ticket, 1u);  // 1: order of blockIdx
  block_sync();
  if (threadIdx.x == 0) {
    u64 before = 0;
    if (tile > 0) {
      if constexpr (BUG == 2) {  // the value is read after a flag that orders nothing
        while (ld_relaxed(&flags[tile - 1]) == 0) {
        }
      } else {
        while (ld_acquire(&flags[tile - 1]) == 0) {
        }
      }
      before = values[tile - 1];
    }
    values[tile] = before + in[tile];
    out[tile] = before + in[tile];
    st_release(&flags[tile], 1u);
  }
}

__global__ void misaligned(const u32* in, u32* out) {
  if (threadIdx.x == 0) store16(out, load16(in + 1));
}
__global__ void carve_too_much(u32* out) {
  Carve smem;
  u32* a = smem.take<u32>(16);
  u32* b = smem.take<u32>(17);
  a[threadIdx.x % 16] = b[0];
  out[threadIdx.x] = 0;
}
__global__ void carve_neighbour(u32* out, u32 past) {
  Carve smem;
  u32* a = smem.take<u32>(16);
  u32* b = smem.take<u32>(16);
  if (threadIdx.x == 0) a[16 + past] = b[0] = 0;  // into its neighbour on a GPU
  out[threadIdx.x] = 0;
}

#define PICK(kernel, ...)               \
  emu::guard([&] {                      \
    emu::launch(bug == 0   ? kernel<0>  \
                : bug == 1 ? kernel<1>  \
                : bug == 2 ? kernel<2>  \
                : bug == 3 ? kernel<3>  \
                : bug == 4 ? kernel<4>  \
                           : kernel<5>, \
                __VA_ARGS__);           \
  })

DRIVER run_reverse(u64 bug, const u32* in, u32* out, u64 n) {
  return PICK(reverse_tile, u32(n + T - 1) / T, T, 0, in, out, u32(n));
}
DRIVER run_scan(u64 bug, const u32* in, u32* out, u64 rounds) {
  return PICK(scan_rounds, 1, T, 0, in, out, u32(rounds));
}
DRIVER run_swap(u64 bug, const u32* in, u32* out) { return PICK(warp_swap, 1, T, 0, in, out); }
DRIVER run_divergent(u64 bug, u32* out) { return PICK(divergent, 1, T, 0, out); }
DRIVER run_look_back(u64 bug, const u32* in, u64* out, u32* ticket, u64* values, u32* flags, u64 blocks) {
  return PICK(look_back, u32(blocks), 32, 0, in, out, ticket, values, flags);
}
DRIVER run_half_warps(u32* out) {
  return emu::guard([&] { emu::launch(half_warps, 1, 64, 0, out); });
}
DRIVER run_wait_and_swap(u64 bug, u32* words, u32* out) {
  return emu::guard([&] {
    emu::launch(bug == 0 ? wait_and_swap<0> : bug == 1 ? wait_and_swap<1> : wait_and_swap<2>, 2, 32, 0, words, out);
  });
}
DRIVER run_misaligned(const u32* in, u32* out) {
  return emu::guard([&] { emu::launch(misaligned, 1, 32, 0, in, out); });
}
DRIVER run_carve_too_much(u32* out) {
  return emu::guard([&] { emu::launch(carve_too_much, 1, 32, 128, out); });
}
DRIVER run_carve_neighbour(u32* out, u64 past) {
  return emu::guard([&] { emu::launch(carve_neighbour, 1, 32, 128, out, u32(past)); });
}
