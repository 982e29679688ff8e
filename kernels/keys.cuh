// Order-preserving codes: what makes integers, floats, dates and booleans one problem, the sorting of unsigned words.
//
//      value bits w --------------- code(w) ---------------> unsigned code, compared as such
//
//      signed      w ^ 1000...                                  flip the sign bit
//      float       w ^ 1000... , or ~w when negative            the sign bit also says whether the rest counts down
//      descending  ~ of that                                    a complement reverses; a negation would overflow
//      last        - lift (mod 2^bits)                          rotates what must stand last past the top
//
// The rotation is what keeps nulls at the end in both directions without a second key. The codes of f32, before and
// after it (ascending; `lift` is the number of NaNs of one sign):
//
//      |-NaN| -inf ... -0.0 | +0.0 ... +inf |+NaN|        |-inf ... -0.0 | +0.0 ... +inf |+NaN|-NaN|
//       0   ^ lift                            max          0                                     max
//
// Descending, +NaN and -NaN change places before the rotation and both still end up last. NaT, the lowest signed
// integer, is rotated by one. Every code of this form is a bijection, so a sort of keys alone decodes the codes on its
// last store and needs no copy of the bits.
//
// What a bijection cannot do is make different bits equal: -0.0 == +0.0 and all NaNs are one, with ties in input order.
// A sort that carries positions (argsort) therefore makes such bits the same first (`unify`), which no code has to
// undo; a sort of keys alone repairs the two ranges afterwards, and only when the histogram kernel has seen both
// zeros, or NaNs of more than one kind, among the keys (radix_repair in radix_onesweep.cu).
//
// The host encodes by the same rules in keys.py; one property test holds the two to each other.
#pragma once

#include "prims.cuh"

/// How one column of values becomes codes; the numbers are made by the launcher (kernels/policy.py: codec).
struct Codec {
    u64 negative;  // bits to flip when the sign bit is set: all but the sign bit for floats, none otherwise
    u64 flip;      // bits to flip always
    u64 lift;      // subtracted last, modulo the width
    u64 infinity;  // bits of +inf for floats, 0 otherwise
    u64 nan;       // the one NaN that `unify` puts for all
};

/// All bits set when the sign bit is, else none.
template <class W>
HOST_DEVICE W sign_fill(W w) {
    return W(W(0) - W(w >> (8 * sizeof(W) - 1)));
}

template <class W>
HOST_DEVICE W encode(W w, const Codec& c) {
    return W((w ^ (sign_fill(w) & W(c.negative)) ^ W(c.flip)) - W(c.lift));
}

/// The inverse of encode: the flips leave the original sign bit readable.
template <class W>
HOST_DEVICE W decode(W code, const Codec& c) {
    const W w = W(W(code + W(c.lift)) ^ W(c.flip));
    return W(w ^ (sign_fill(w) & W(c.negative)));
}

/// Bits without the sign; for floats the magnitude: 0 for both zeros, above infinity for NaN.
template <class W>
HOST_DEVICE W magnitude(W w) {
    return W(w & W(W(~W(0)) >> 1));
}

/// Gives equal values equal bits: all NaNs become one, both zeros become +0.0. Other than floats pass through.
template <class W>
HOST_DEVICE W unify(W w, const Codec& c) {
    if (c.infinity == 0) return w;
    const W m = magnitude(w);
    return m > W(c.infinity) ? W(c.nan) : m == 0 ? W(0) : w;
}

// --- what the histogram kernel notes about float keys -----------------------------------------------------------

enum Seen : u32 {
    SEEN_MINUS_ZERO = 1,
    SEEN_PLUS_ZERO = 2,
    SEEN_QUIET_NAN = 4,        // +NaN as most libraries write it
    SEEN_MINUS_QUIET_NAN = 8,  // -NaN as x86 makes it
    SEEN_OTHER_NAN = 16,
};

/// 1 for a zero, 1 << 16 for a NaN, 0 for the rest.
template <class W>
HOST_DEVICE u32 count_special(W w, const Codec& c) {
    const W m = magnitude(w);
    return (m == 0 ? 1u : 0u) + (m > W(c.infinity) ? 1u << 16 : 0u);
}

/// Which of the special floats `w` is; 0 for the common rest, found by one comparison.
template <class W>
HOST_DEVICE u32 special_float(W w, const Codec& c) {
    const W m = magnitude(w);
    const W inf = W(c.infinity);
    if (W(m - 1) < inf) return 0;
    if (m == 0) return w == 0 ? SEEN_PLUS_ZERO : SEEN_MINUS_ZERO;
    // the quiet bit is the highest bit of the fraction, just below the lowest bit of infinity
    const W lowest = W(inf & W(~W(inf - 1)));
    if (m != W(inf | W(lowest >> 1))) return SEEN_OTHER_NAN;
    return w == m ? SEEN_QUIET_NAN : SEEN_MINUS_QUIET_NAN;
}

/// Do these keys hold both zeros? Then their order must be repaired after a sort of codes.
HOST_DEVICE bool mixed_zeros(u32 seen) {
    return (seen & (SEEN_MINUS_ZERO | SEEN_PLUS_ZERO)) == (SEEN_MINUS_ZERO | SEEN_PLUS_ZERO);
}

/// Do these keys hold NaNs whose bits differ?
HOST_DEVICE bool mixed_nans(u32 seen) {
    return (seen & SEEN_OTHER_NAN) != 0 ||
           (seen & (SEEN_QUIET_NAN | SEEN_MINUS_QUIET_NAN)) == (SEEN_QUIET_NAN | SEEN_MINUS_QUIET_NAN);
}

HOST_DEVICE bool needs_repair(u32 seen) { return mixed_zeros(seen) || mixed_nans(seen); }
