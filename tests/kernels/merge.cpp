// Drivers of the co-rank searches, the merge ladder and the k-way merge.
#include "merge_kway.cu"
#include "merge_ladder.cu"
#include "merge_narrow.cu"

// --- co-rank, as plain host functions -------------------------------------------------------------------------------

#define VALUE extern "C" EMU_EXPORT i64

/// Writes (i_low, i, j, j_low) at each iteration of the textbook's search; returns how many there were.
VALUE co_rank_trace(i64 k, const i64* a, i64 m, const i64* b, i64 n, i64* states) {
  CoRank<i64> s = co_rank_start(k, m, n);
  i64 steps = 0;
  do {
    i64* row = states + 4 * steps++;
    row[0] = s.i_low, row[1] = s.i, row[2] = s.j, row[3] = s.j_low;
  } while (co_rank_step(s, a, m, b, n));
  return steps;
}
VALUE co_rank_by(i64 how, i64 k, const i64* a, i64 m, const i64* b, i64 n) {
  switch (how) {
    case 0:
      return co_rank(k, a, m, b, n);
    case 2:
      return co_rank_binary(k, a, m, b, n);
    case 4:
      return co_rank_radix<4>(k, a, m, b, n);
    default:
      return co_rank_radix<32>(k, a, m, b, n);
  }
}

/// A sorted sequence without memory: x[i] = i / repeat. For ranks beyond 32 bits.
struct Staircase {
  i64 repeat;
  i64 operator[](i64 i) const { return i / repeat; }
};
VALUE co_rank_staircase(i64 how, i64 k, i64 a_repeat, i64 m, i64 b_repeat, i64 n) {
  const Staircase a{a_repeat}, b{b_repeat};
  return how == 0 ? co_rank(k, a, m, b, n) : how == 2 ? co_rank_binary(k, a, m, b, n) : co_rank_radix<4>(k, a, m, b, n);
}

// --- the ladder -----------------------------------------------------------------------------------------------------

template <class T>
int ladder(u64 rung, const T* a, i64 m, const T* b, i64 n, T* c, u32 blocks, u32 threads, u32 tile) {
  return emu::guard([&] {
    if (rung == 0) emu::launch(merge_basic<T>, blocks, threads, 0, a, m, b, n, c);
    if (rung == 1)
      emu::launch(merge_tiled<T>, blocks, threads, 2 * ((tile * sizeof(T) + 15) / 16 * 16), a, m, b, n, c, tile);
    if (rung == 2)
      emu::launch(merge_circular<T>, blocks, threads, 2 * ((tile * sizeof(T) + 15) / 16 * 16), a, m, b, n, c, tile);
  });
}
DRIVER ladder_u32(u64 rung, const u32* a, i64 m, const u32* b, i64 n, u32* c, u64 blocks, u64 threads, u64 tile) {
  return ladder(rung, a, m, b, n, c, u32(blocks), u32(threads), u32(tile));
}
/// Keys in the high word, compared alone would hide a wrong order of ties: here the whole word is moved.
struct Tagged {
  u32 tag, key;
};
inline bool operator<(const Tagged& x, const Tagged& y) { return x.key < y.key; }
DRIVER ladder_tagged(u64 rung, const Tagged* a, i64 m, const Tagged* b, i64 n, Tagged* c, u64 blocks, u64 threads,
                     u64 tile) {
  return ladder(rung, a, m, b, n, c, u32(blocks), u32(threads), u32(tile));
}

// --- the k-way merge ------------------------------------------------------------------------------------------------

template <class T, class V, u32 K, u32 THREADS, u32 ITEMS, u32 CODING, u32 CARRY, bool BULK, bool NARROWED = false>
struct Case {
  using Shape = Tile<T, K, THREADS, ITEMS>;
  static i64 tile() { return Shape::SIZE; }
  static int run(const u64* table, const Codec& codec, u64 total, u64* cuts, void* keys, void* values) {
    return emu::guard([&] {
      const u32 tiles = u32((total + Shape::SIZE - 1) / Shape::SIZE), groups = CUT_THREADS / (K == 2 ? 1 : K);
      emu::launch(merge_cuts<T, K, CODING, NARROWED>, (tiles + groups) / groups, CUT_THREADS, 0, table, codec, u64(0), total,
                  u64(Shape::SIZE), tiles + 1, cuts);
      const u32 pads = (Shape::ROOM * sizeof(T) + 15) / 16 * 16, places = CARRY ? (Shape::ROOM * 2 + 15) / 16 * 16 : 0;
      emu::launch(merge_tiles<T, V, K, THREADS, ITEMS, CODING, CARRY, BULK, NARROWED>, tiles, THREADS,
                  2 * (pads + places), table, codec, total, cuts, static_cast<T*>(keys), static_cast<V*>(values));
    });
  }
};

// The list in test_merge.py is the same.
#define CASES(X)                                          \
  X(0, u32, u32, 2, 64, 5, PLAIN, NOTHING, true)          \
  X(1, u32, u32, 2, 32, 3, CODED, NOTHING, false)         \
  X(2, u64, u32, 8, 64, 3, FLIPPED, NOTHING, true)        \
  X(3, u64, u32, 4, 32, 5, PLAIN, NOTHING, false)         \
  X(4, u8, u32, 8, 96, 1, FLIPPED, NOTHING, true)         \
  X(5, u16, u32, 2, 64, 3, CODED, INDEX, false)           \
  X(6, u64, u32, 2, 64, 5, CODED, INDEX, true)            \
  X(7, u32, i64, 8, 64, 3, PLAIN, INDEX, false)           \
  X(8, u32, u64, 4, 64, 3, FLIPPED, VALUES, true)         \
  X(9, u64, u32, 8, 32, 3, PLAIN, VALUES, false)          \
  X(10, u32, u32, 2, 64, 5, PLAIN, NOTHING, true, true)   \
  X(11, u32, u32, 4, 32, 3, FLIPPED, NOTHING, false, true) \
  X(12, u64, u32, 2, 64, 5, FLIPPED, NOTHING, false, true) \
  X(13, u64, u32, 8, 64, 3, FLIPPED, NOTHING, true, true) \
  X(14, u32, u32, 2, 128, 27, PLAIN, NOTHING, true, true)

VALUE merge_tile_of(i64 which) {
#define X(N, ...) \
  if (which == N) return Case<__VA_ARGS__>::tile();
  CASES(X)
#undef X
  return -1;
}
DRIVER run_merge(u64 which, const u64* table, const u64* c, u64 total, u64* cuts, void* keys, void* values) {
  const Codec codec{c[0], c[1], c[2], c[3], c[4]};
#define X(N, ...) \
  if (which == N) return Case<__VA_ARGS__>::run(table, codec, total, cuts, keys, values);
  CASES(X)
#undef X
  return emu::failed("no such case");
}
DRIVER run_cuts(const u64* table, u64 start, u64 total, u64 tile, u64 count, u64* cuts) {
  return emu::guard([&] {
    emu::launch(merge_cuts<u64, 8, PLAIN>, u32(count + 31) / 32, CUT_THREADS, 0, table, Codec{}, start, total, tile,
                u32(count), cuts);
  });
}

// --- narrow keys ----------------------------------------------------------------------------------------------------

/// One run to offsets, of which those from `skip` on are there; then rows [from, to), from `cut` on as a slice.
template <class T>
__global__ void read_narrow(NarrowKeys<T> run, u64 cut, u64 count, T* out) {
  for (u64 i = threadIdx.x; i < count; i += 64) out[i] = i < cut ? run[i] : (run + cut)[i - cut];
}
template <class T, class U, bool DOWN>
int there_and_back(const T* keys, u64 start, u64 stop, u64 skip, u64 from, u64 to, U* offsets, T* ends, T* out) {
  return emu::guard([&] {
    if (stop > start)
      emu::launch(narrow<T, U, DOWN>, u32((stop - 1) / NARROW_ROWS - start / NARROW_ROWS + 1), NARROW_THREADS, 0, keys,
                  start, stop, offsets, ends);
    const NarrowKeys<T> run{keys + from,  u64(offsets) - start * sizeof(U), ends - start / NARROW_ROWS * 2, from,
                            start + skip, stop, u32(sizeof(U)), DOWN};
    emu::launch(read_narrow<T>, 1, 64, 0, run, (to - from) / 3, to - from, out);
  });
}
#define NARROW(NAME, T, U, DOWN)                                                                                     \
  DRIVER NAME(const T* keys, u64 start, u64 stop, u64 skip, u64 from, u64 to, U* offsets, T* ends, T* out) {         \
    return there_and_back<T, U, DOWN>(keys, start, stop, skip, from, to, offsets, ends, out);                        \
  }
NARROW(narrow_u32_u16_up, u32, u16, false)
NARROW(narrow_u32_u16_down, u32, u16, true)
NARROW(narrow_u64_u16_up, u64, u16, false)
NARROW(narrow_u64_u32_down, u64, u32, true)
