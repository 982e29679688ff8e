// CUB, timed: the peer that our kernels are measured beside.
//
//      nvcc -O3 -std=c++17 -arch=native cub_peer.cu -o cub_peer
//      printf 'sort_keys u32 268435456 1 32 9\n' | ./cub_peer
//
// Each line of the standard input asks one question, and one line of JSON answers it:
//
//      WHAT  DTYPE  N  WORDS  BITS  REPEATS
//
// WHAT is sort_keys, sort_pairs (with u32 values), merge (two sorted halves), merge8 (eight sorted runs, three rounds
// of pairwise merges). Keys are the AND of WORDS random words (0: all equal), of which the lowest BITS bits are kept.
// "ms" is the median of REPEATS runs between two events. A copy of 1 GiB is queued first, so that the GPU is busy while
// the host prepares the launches, and finds nothing of the input in its cache.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cub/device/device_merge.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <vector>

namespace {

void check(cudaError_t status, int line) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "cub_peer.cu:%d: %s\n", line, cudaGetErrorString(status));
    std::exit(1);
}
#define CHECK(call) check(call, __LINE__)

template <class T>
class Array {
  public:
    explicit Array(std::size_t n) { CHECK(cudaMalloc(&data_, std::max<std::size_t>(n, 1) * sizeof(T))); }
    ~Array() { cudaFree(data_); }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;
    operator T*() const { return data_; }

  private:
    T* data_ = nullptr;
};

__device__ std::uint64_t random_word(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

template <class W>
__global__ void fill(W* keys, std::size_t n, int words, int bits) {
    const std::size_t i = blockIdx.x * std::size_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    std::uint64_t key = words ? ~std::uint64_t(0) : 0;
    for (int w = 0; w < words; ++w) key &= random_word(i * 8 + w);
    if (bits < 64) key &= (std::uint64_t(1) << bits) - 1;
    keys[i] = W(key);
}

template <class Work>
double median_ms(int repeats, const Work& work) {
    constexpr std::size_t gib = std::size_t(1) << 30;
    static Array<char> from(gib), to(gib);
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    std::vector<float> times;
    for (int r = -2; r < repeats; ++r) {  // two warm-up runs
        CHECK(cudaMemcpyAsync(to, from, gib, cudaMemcpyDeviceToDevice));
        CHECK(cudaEventRecord(start));
        work();
        CHECK(cudaEventRecord(stop));
        CHECK(cudaEventSynchronize(stop));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        if (r >= 0) times.push_back(ms);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

template <class K, class W>
double sort_keys(std::size_t n, int words, int bits, int repeats) {
    Array<K> in(n), out(n);
    fill<<<unsigned((n + 255) / 256), 256>>>(reinterpret_cast<W*>(static_cast<K*>(in)), n, words, bits);
    std::size_t bytes = 0;
    CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, static_cast<const K*>(in), static_cast<K*>(out), n));
    Array<char> scratch(bytes);
    return median_ms(repeats, [&] {
        CHECK(cub::DeviceRadixSort::SortKeys(scratch, bytes, static_cast<const K*>(in), static_cast<K*>(out), n));
    });
}

template <class K>
double sort_pairs(std::size_t n, int words, int bits, int repeats) {
    Array<K> in(n), out(n);
    Array<std::uint32_t> values(n), moved(n);
    fill<<<unsigned((n + 255) / 256), 256>>>(static_cast<K*>(in), n, words, bits);
    fill<<<unsigned((n + 255) / 256), 256>>>(static_cast<std::uint32_t*>(values), n, 1, 32);
    const auto sort = [&](void* scratch, std::size_t& bytes) {
        CHECK(cub::DeviceRadixSort::SortPairs(scratch, bytes, static_cast<const K*>(in), static_cast<K*>(out),
                                              static_cast<const std::uint32_t*>(values), static_cast<std::uint32_t*>(moved), n));
    };
    std::size_t bytes = 0;
    sort(nullptr, bytes);
    Array<char> scratch(bytes);
    return median_ms(repeats, [&] { sort(scratch, bytes); });
}

/// `runs` sorted runs to one, by rounds of pairwise merges; runs is a power of two.
template <class K>
double merge(std::size_t n, std::size_t runs, int words, int bits, int repeats) {
    Array<K> unsorted(n), sorted(n), a(n), b(n);
    fill<<<unsigned((n + 255) / 256), 256>>>(static_cast<K*>(unsorted), n, words, bits);
    const std::size_t run = n / runs;
    std::size_t bytes = 0;
    CHECK(cub::DeviceRadixSort::SortKeys(nullptr, bytes, static_cast<const K*>(unsorted), static_cast<K*>(sorted), n));
    std::size_t merge_bytes = 0;
    CHECK(cub::DeviceMerge::MergeKeys(nullptr, merge_bytes, static_cast<const K*>(a), n, static_cast<const K*>(a), n,
                                      static_cast<K*>(b)));
    Array<char> scratch(std::max(bytes, merge_bytes));
    for (std::size_t r = 0; r < runs; ++r)
        CHECK(cub::DeviceRadixSort::SortKeys(scratch, bytes, static_cast<const K*>(unsorted) + r * run,
                                             static_cast<K*>(sorted) + r * run, r + 1 < runs ? run : n - r * run));
    return median_ms(repeats, [&] {
        const K* from = sorted;
        K* to = a;
        for (std::size_t width = run; width < run * runs; width *= 2) {
            for (std::size_t first = 0; first < run * runs; first += 2 * width) {
                const std::size_t end = first + 2 * width == run * runs ? n : first + 2 * width;
                std::size_t size = merge_bytes;
                CHECK(cub::DeviceMerge::MergeKeys(scratch, size, from + first, width, from + first + width,
                                                  end - first - width, to + first));
            }
            from = to;
            to = to == static_cast<K*>(a) ? static_cast<K*>(b) : static_cast<K*>(a);
        }
    });
}

double answer(const char* what, const char* dtype, std::size_t n, int words, int bits, int repeats) {
    const bool wide = !std::strcmp(dtype, "u64");
    if (!std::strcmp(what, "sort_keys")) {
        if (wide) return sort_keys<std::uint64_t, std::uint64_t>(n, words, bits, repeats);
        if (!std::strcmp(dtype, "f32")) return sort_keys<float, std::uint32_t>(n, words, bits, repeats);
        return sort_keys<std::uint32_t, std::uint32_t>(n, words, bits, repeats);
    }
    if (!std::strcmp(what, "sort_pairs"))
        return wide ? sort_pairs<std::uint64_t>(n, words, bits, repeats) : sort_pairs<std::uint32_t>(n, words, bits, repeats);
    const std::size_t runs = !std::strcmp(what, "merge8") ? 8 : 2;
    return wide ? merge<std::uint64_t>(n, runs, words, bits, repeats) : merge<std::uint32_t>(n, runs, words, bits, repeats);
}

}  // namespace

int main() {
    char what[32], dtype[8];
    unsigned long long n;
    int words, bits, repeats;
    while (std::scanf("%31s %7s %llu %d %d %d", what, dtype, &n, &words, &bits, &repeats) == 6) {
        const double ms = answer(what, dtype, n, words, bits, repeats);
        std::printf("{\"what\": \"%s\", \"dtype\": \"%s\", \"n\": %llu, \"words\": %d, \"bits\": %d, \"ms\": %.6f}\n", what, dtype, n,
                    words, bits, ms);
        std::fflush(stdout);
    }
}
