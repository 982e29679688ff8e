// Drivers of keys.cuh: codes and their inverse, over whole arrays.
#include "keys.cuh"

namespace {

Codec codec_of(const u64* numbers) { return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]}; }

template <class W>
void codes(const W* values, W* out, u64 n, const u64* numbers, bool unified) {
    const Codec c = codec_of(numbers);
    for (u64 i = 0; i < n; ++i) out[i] = encode(unified ? unify(values[i], c) : values[i], c);
}

template <class W>
void back(const W* coded, W* out, u64 n, const u64* numbers) {
    const Codec c = codec_of(numbers);
    for (u64 i = 0; i < n; ++i) out[i] = decode(coded[i], c);
}

template <class W>
void kinds(const W* values, u32* seen, u32* counts, u64 n, const u64* numbers) {
    const Codec c = codec_of(numbers);
    for (u64 i = 0; i < n; ++i) {
        seen[i] = special_float(values[i], c);
        counts[i] = count_special(values[i], c);
    }
}

}  // namespace

#define KEY_DRIVERS(bits, W)                                                                        \
    DRIVER encode_##bits(const W* values, W* out, i64 n, const u64* numbers, i64 unified) {         \
        return emu::guard([&] { codes(values, out, u64(n), numbers, unified != 0); });              \
    }                                                                                               \
    DRIVER decode_##bits(const W* coded, W* out, i64 n, const u64* numbers) {                       \
        return emu::guard([&] { back(coded, out, u64(n), numbers); });                              \
    }                                                                                               \
    DRIVER special_##bits(const W* values, u32* seen, u32* counts, i64 n, const u64* numbers) {     \
        return emu::guard([&] { kinds(values, seen, counts, u64(n), numbers); });                   \
    }

KEY_DRIVERS(8, u8)
KEY_DRIVERS(16, u16)
KEY_DRIVERS(32, u32)
KEY_DRIVERS(64, u64)
