// Drivers of the row sorts.
#include "row_sort.cu"

namespace {

constexpr u32 T = 64;  // of the lanes kernel

template <class W, bool INDEX>
void by_lanes(const W* in, W* out, i64* columns, u64 rows, u32 n, u32 lanes, const Codec& codec) {
    const u64 threads = rows * lanes;
    emu::launch(sort_rows_by_lanes<W, INDEX, 8, T>, u32((threads + T - 1) / T), T, 0, in, out, columns, rows, n, lanes, codec);
}
template <class W, bool INDEX>
void by_block(const W* in, W* out, i64* columns, u64 rows, u32 n, u32 threads, const Codec& codec) {
    using E = typename Element<W, INDEX>::E;
    const u32 shared = Padded<E>::size(threads * 4) * sizeof(E);
    emu::launch(sort_rows_by_block<W, INDEX, 4, 256>, u32(rows), threads, shared, in, out, columns, n, codec);
}
template <class W>
int rows_of(const void* in, void* out, i64* columns, i64 rows, i64 n, i64 lanes, i64 threads, const Codec* codec) {
    const W* from = static_cast<const W*>(in);
    W* to = static_cast<W*>(out);
    return emu::guard([&] {
        if (lanes)
            columns ? by_lanes<W, true>(from, to, columns, rows, n, lanes, *codec) : by_lanes<W, false>(from, to, columns, rows, n, lanes, *codec);
        else
            columns ? by_block<W, true>(from, to, columns, rows, n, threads, *codec)
                    : by_block<W, false>(from, to, columns, rows, n, threads, *codec);
    });
}

}  // namespace

// lanes = 0: a block to a row. columns = null: the sorted values.
DRIVER sort_rows(i64 bytes, const void* in, void* out, i64* columns, i64 rows, i64 n, i64 lanes, i64 threads, const Codec* codec) {
    switch (bytes) {
        case 1: return rows_of<u8>(in, out, columns, rows, n, lanes, threads, codec);
        case 2: return rows_of<u16>(in, out, columns, rows, n, lanes, threads, codec);
        case 4: return rows_of<u32>(in, out, columns, rows, n, lanes, threads, codec);
        default: return rows_of<u64>(in, out, columns, rows, n, lanes, threads, codec);
    }
}
