// The merges beside CUB's DeviceMerge, in one process: `nvcc -O3 -std=c++17 -arch=native -Ikernels
// tests/bench/cub_merge.cu`.
//
// Prints a line for each merge: its name, seconds (median of events), Gkeys/s, bytes moved at least / seconds, and what
// of the time went into finding the cuts. Each result is compared with CUB's, bit for bit.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <string>
#include <vector>

#include "merge_kway.cu"
#include "merge_ladder.cu"

#define CHECK(call)                                                           \
  do {                                                                        \
    cudaError_t e_ = (call);                                                  \
    if (e_ != cudaSuccess) {                                                  \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
      std::exit(1);                                                           \
    }                                                                         \
  } while (0)

static int repeats = 9;

template <class F>
double median_seconds(F&& f) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<double> times;
  for (int r = 0; r < repeats + 2; ++r) {
    CHECK(cudaEventRecord(start));
    f();
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (r >= 2) times.push_back(ms / 1e3);
  }
  CHECK(cudaGetLastError());
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <class T>
__global__ void fill(T* x, size_t n, u64 seed, u64 mask) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    u64 z = (i + seed) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    x[i] = T((z ^ (z >> 31)) & mask);
  }
}
template <class T>
__global__ void differ(const T* a, const T* b, size_t n, u64* count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    if (a[i] != b[i]) atomicAdd(count, 1ull);
}

template <class T>
T* allocate(size_t n) {
  T* p;
  CHECK(cudaMalloc(&p, n * sizeof(T)));
  return p;
}

template <class T>
struct Data {  // K sorted runs side by side, and their merge by CUB
  size_t n;
  u32 k;
  T *runs, *other, *expected;
  void* temp;
  size_t temp_bytes = 0;
  u64* table;
  u64* cuts;

  Data(size_t n, u32 k, u64 mask) : n(n), k(k) {
    runs = allocate<T>(n), other = allocate<T>(n), expected = allocate<T>(n);
    cuts = allocate<u64>(n / 256 * k / 8 + 64);
    size_t bytes = 0;
    cub::DeviceRadixSort::SortKeys(nullptr, bytes, runs, other, n / k);
    temp_bytes = bytes;
    cub::DeviceMerge::MergeKeys(nullptr, bytes, runs, n / 2, runs, n / 2, other);
    temp_bytes = std::max(bytes, temp_bytes) + 1024;
    temp = allocate<char>(temp_bytes);
    fill<<<4096, 256>>>(other, n, 99, mask);
    for (u32 r = 0; r < k; ++r) {
      bytes = temp_bytes;
      CHECK(cub::DeviceRadixSort::SortKeys(temp, bytes, other + n / k * r, runs + n / k * r, n / k));
    }
    std::vector<u64> t;
    for (u32 r = 0; r < k; ++r) t.push_back(u64(runs + n / k * r));
    for (u32 r = 0; r < k; ++r) t.push_back(n / k);
    for (u32 r = 0; r < k; ++r) t.push_back(n / k * r);
    for (u32 r = 0; r < k; ++r) t.push_back(0);
    table = allocate<u64>(t.size());
    CHECK(cudaMemcpy(table, t.data(), t.size() * 8, cudaMemcpyHostToDevice));
  }
  ~Data() {
    for (void* p : {(void*)runs, (void*)other, (void*)expected, temp, (void*)table, (void*)cuts}) CHECK(cudaFree(p));
  }
  void rounds_of_cub() {
    T *from = runs, *to = k == 8 || k == 2 ? expected : other;
    for (u32 runs_left = k; runs_left > 1; runs_left /= 2) {
      const size_t length = n / runs_left;
      for (u32 p = 0; p < runs_left; p += 2) {
        size_t bytes = temp_bytes;
        CHECK(cub::DeviceMerge::MergeKeys(temp, bytes, from + p * length, length, from + (p + 1) * length, length,
                                          to + p * length));
      }
      from = to;
      to = to == expected ? other : expected;
    }
  }
  void print(const std::string& name, double s, double cuts_s = 0) {
    u64* bad = allocate<u64>(1);
    CHECK(cudaMemset(bad, 0, 8));
    u64 count = 0;
    if (name.find("CUB") == std::string::npos) {
      differ<<<4096, 256>>>(other, expected, n, bad);
      CHECK(cudaMemcpy(&count, bad, 8, cudaMemcpyDeviceToHost));
      CHECK(cudaMemset(other, 0xA5, n * sizeof(T)));
    }
    CHECK(cudaFree(bad));
    std::printf("%-44s %8.3f ms %7.1f Gkeys/s %6.0f GB/s  cuts %6.1f us  %s\n", name.c_str(), s * 1e3, n / s / 1e9,
                2.0 * n * sizeof(T) / s / 1e9, cuts_s * 1e6, count ? "WRONG" : "ok");
  }
};

template <class T, u32 K, u32 THREADS, u32 ITEMS, u32 CODING, bool BULK>
void ours(Data<T>& d) {
  using Shape = Tile<T, K, THREADS, ITEMS>;
  const auto kernel = merge_tiles<T, u32, K, THREADS, ITEMS, CODING, NOTHING, BULK>;
  const u32 shared = 2 * ((Shape::ROOM * sizeof(T) + 15) / 16 * 16);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  const u32 tiles = u32((d.n + Shape::SIZE - 1) / Shape::SIZE), groups = CUT_THREADS / (K == 2 ? 1 : K);
  const Codec codec{};
  const auto cuts = [&] {
    merge_cuts<T, K, CODING>
        <<<(tiles + groups) / groups, CUT_THREADS>>>(d.table, codec, 0, d.n, Shape::SIZE, tiles + 1, d.cuts);
  };
  const double all = median_seconds([&] {
    cuts();
    kernel<<<tiles, THREADS, shared>>>(d.table, codec, d.n, d.cuts, d.other, nullptr);
  });
  int blocks;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, THREADS, shared));
  char name[100];
  std::snprintf(name, sizeof name, "%u-way u%zu %ux%u%s%s, %d blocks", K, sizeof(T) * 8, THREADS, ITEMS,
                CODING == PLAIN     ? ""
                : CODING == FLIPPED ? " flipped"
                                    : " coded",
                BULK ? " bulk" : "", blocks);
  d.print(name, all, median_seconds(cuts));
}

template <class T>
void ladder(Data<T>& d, u32 tile) {
  const size_t half = d.n / 2;
  d.print("merge_basic",
          median_seconds([&] { merge_basic<T><<<132 * 128, 128>>>(d.runs, half, d.runs + half, half, d.other); }));
  const u32 shared = 2 * tile * sizeof(T);
  CHECK(cudaFuncSetAttribute(merge_tiled<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  CHECK(cudaFuncSetAttribute(merge_circular<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  d.print("merge_tiled", median_seconds([&] {
            merge_tiled<T><<<132 * 16, 128, shared>>>(d.runs, half, d.runs + half, half, d.other, tile);
          }));
  d.print("merge_circular", median_seconds([&] {
            merge_circular<T><<<132 * 16, 128, shared>>>(d.runs, half, d.runs + half, half, d.other, tile);
          }));
}

// cub_merge [log2 of n = 28] [part = all | u32 | u64 | k8]; -DSHAPES: also the shapes that policy.py does not use
int main(int argc, char** argv) {
  const size_t n = size_t(1) << (argc > 1 ? std::atoi(argv[1]) : 28);
  const std::string part = argc > 2 ? argv[2] : "all";
  if (part == "all" || part == "u32") {
    Data<u32> d(2 * n, 2, ~0ull);
    d.print("CUB DeviceMerge u32", median_seconds([&] { d.rounds_of_cub(); }));
    ours<u32, 2, 256, 27, PLAIN, true>(d);
    ours<u32, 2, 256, 27, FLIPPED, true>(d);
    ours<u32, 2, 256, 27, CODED, true>(d);
#ifdef SHAPES
    ours<u32, 2, 256, 23, PLAIN, true>(d);
    ours<u32, 2, 256, 31, PLAIN, true>(d);
    ours<u32, 2, 256, 27, PLAIN, false>(d);
    ours<u32, 2, 128, 31, PLAIN, true>(d);
#endif
    if (part == "all") ladder(d, 2048);
  }
  if (part == "all" || part == "u64") {
    Data<u64> d(2 * n, 2, ~0ull);
    d.print("CUB DeviceMerge u64", median_seconds([&] { d.rounds_of_cub(); }));
    ours<u64, 2, 128, 27, PLAIN, true>(d);
    ours<u64, 2, 128, 27, FLIPPED, true>(d);
    ours<u64, 2, 128, 27, CODED, true>(d);
#ifdef SHAPES
    ours<u64, 2, 256, 13, PLAIN, true>(d);
    ours<u64, 2, 192, 19, PLAIN, true>(d);
    ours<u64, 2, 128, 31, PLAIN, true>(d);
    ours<u64, 2, 128, 27, PLAIN, false>(d);
#endif
  }
  for (u64 mask : {~0ull, 0xffull}) {
    if (part != "all" && part != "k8") break;
    Data<u64> d(n, 8, mask);
    if (mask != ~0ull) std::printf("256 different values:\n");
    d.print("CUB DeviceMerge, 3 rounds, u64", median_seconds([&] { d.rounds_of_cub(); }));
    ours<u64, 8, 256, 27, PLAIN, true>(d);
    ours<u64, 8, 256, 27, FLIPPED, true>(d);
    ours<u64, 8, 256, 27, CODED, true>(d);
#ifdef SHAPES
    ours<u64, 8, 256, 23, PLAIN, true>(d);
    ours<u64, 8, 256, 25, PLAIN, true>(d);
    ours<u64, 8, 384, 17, PLAIN, true>(d);
    ours<u64, 8, 320, 21, PLAIN, true>(d);
    ours<u64, 8, 192, 23, PLAIN, true>(d);
#endif
  }
  return 0;
}
