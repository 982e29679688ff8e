"""The cupy backend's sorts on a GPU against NumPy: corner cases, tile edges, entropies, and more than 2^32 keys."""

from __future__ import annotations

import numpy as np
import pytest
from distsort.kernels import policy

from distsort.order import Key, Order, array_order

pytestmark = pytest.mark.gpu

TILE_EDGES = [2303, 2304, 2305, 4095, 4096, 4097, 4607, 4609, 4863, 4865, 5759, 5761, 7295, 7297, 7679, 7681]
SIZES = [*range(34), 255, 256, 257, 1023, 1024, 1025, *TILE_EDGES, policy.SMALL_LIMIT, policy.SMALL_LIMIT + 1]
LARGE = [(1 << 20) - 1, (1 << 20) + 1, (1 << 24) - 1, (1 << 24) + 1]
DTYPES = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"]
KINDS = [
    "random",
    "entropy 0.5",
    "entropy 0.2",
    "equal",
    "sorted",
    "reversed",
    "two values",
    "outlier",
    "24 bits",
    "special",
]


def draw(kind: str, n: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return keys of one kind; floats are random bits, so NaNs of all payloads are among them."""
    rng = np.random.default_rng(seed)
    kept = np.dtype(dtype)
    if kept.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    unsigned = np.dtype(f"u{kept.itemsize}")
    top = np.iinfo(unsigned).max
    bits = rng.integers(0, top, n, unsigned, endpoint=True)
    match kind:
        case "entropy 0.5":
            bits &= rng.integers(0, top, n, unsigned, endpoint=True)
        case "entropy 0.2":
            for _ in range(4):
                bits &= rng.integers(0, top, n, unsigned, endpoint=True)
        case "equal":
            bits[:] = top
        case "sorted" | "reversed":
            bits.sort()
            bits = bits if kind == "sorted" else bits[::-1].copy()
        case "two values":
            bits = np.where(bits & np.array(1, unsigned), np.array(top, unsigned), np.array(0, unsigned))
        case "outlier":
            bits[: n // 2], bits[n // 2 + 1 :] = 7, 7
        case "24 bits" if kept.itemsize == 8:
            bits &= np.array((1 << 24) - 1 << 20, unsigned)
        case "special" if kept.kind == "f":
            values = rng.standard_normal(n).astype(kept)
            hard = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], kept)
            return np.where(rng.random(n) < 0.3, rng.choice(hard, n), values)
    return bits.view(kept)


def oracle(values: np.ndarray, descending: bool = False) -> np.ndarray:
    """Return NumPy's stable order; NaN last in both directions."""
    if values.dtype.kind == "f":
        nan = np.isnan(values)
        return np.lexsort([np.where(nan, 0, -values if descending else values), nan])
    ranked = ~values if descending else values
    return np.argsort(ranked, kind="stable")


def bits_of(values: np.ndarray) -> np.ndarray:
    """Return the bits, so that NaNs and signs of zero are compared too."""
    return values.view(f"u{values.dtype.itemsize}")


def check(cupy, backend, values, descending=False):
    """Compare sort and argsort of one array with the oracle, bit for bit, and the input with itself."""
    on_device = cupy.asarray(values)
    order = oracle(values, descending)
    np.testing.assert_array_equal(backend.argsort((on_device,), array_order(descending)).get(), order)
    np.testing.assert_array_equal(bits_of(backend.sort(on_device, descending).get()), bits_of(values[order]))
    np.testing.assert_array_equal(bits_of(on_device.get()), bits_of(values))


@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(cupy, backend, dtype):
    for n in SIZES:
        check(cupy, backend, draw("random", n, dtype, n), n % 2 == 1)


@pytest.mark.parametrize("dtype", ["u1", "f2", "u4", "f4", "u8", "f8"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds(cupy, backend, dtype, kind):
    for n in (5000, 300_000, (1 << 20) + 1):
        check(cupy, backend, draw(kind, n, dtype, n))
        check(cupy, backend, draw(kind, n, dtype, n + 1), descending=True)


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("dtype", ["i4", "f4", "i8"])
def test_large(cupy, backend, n, dtype):
    for kind in ("random", "24 bits", "special"):
        check(cupy, backend, draw(kind, n, dtype, n))


@pytest.mark.parametrize(
    ("name", "values", "order"),
    [
        ("-nan", np.array([np.nan, np.nan, -np.inf, np.inf, -1, 1], "f4"), [2, 4, 5, 3, 0, 1]),
        ("zeros", np.array([0.0, -0.0, 0.0, -0.0], "f8"), [0, 1, 2, 3]),
        (
            "denormal",
            np.array([-0.0, 1.4e-45, 1.1, -0.0, 5.96e-8, -2, 1e6, 722801.4, 0, -1.1], "f4"),
            [5, 9, 0, 3, 8, 1, 4, 2, 7, 6],
        ),
        ("half", np.array([np.nan, 65504, np.inf, -np.inf, -0.0, 6e-8], "f2"), [3, 4, 5, 1, 2, 0]),
        ("all nan", np.full(19, np.nan), list(range(19))),
        ("unsigned", np.array([2**63, 2**64 - 1, 0, 2**63 - 1], "u8"), [2, 3, 0, 1]),
        ("ties", np.array([1, 2, 3, 3, 2, 1]), [0, 5, 1, 4, 2, 3]),
        ("one row", np.array([7]), [0]),
        ("no row", np.array([], "f4"), []),
    ],
)
def test_published_faults(cupy, backend, name, values, order):
    if name == "-nan":
        values.view("u4")[0] = 0xFFC00000
    on_device = cupy.asarray(values)
    assert backend.argsort((on_device,), array_order()).get().tolist() == order
    np.testing.assert_array_equal(
        bits_of(backend.sort(on_device, False).get()), bits_of(values[order].astype(values.dtype))
    )


def test_descending_keeps_ties_and_nans(cupy, backend):
    assert backend.argsort((cupy.array([0, 1, 0]),), array_order(True)).get().tolist() == [1, 0, 2]
    np.testing.assert_array_equal(backend.sort(cupy.array([np.nan, 1, 2]), True).get(), [2, 1, np.nan])


def test_one_negative_nan_among_many(cupy, backend):
    values = np.random.default_rng(0).random(1 << 22, np.float32)
    values.view("u4")[12345] = 0xFFC00000
    check(cupy, backend, values)


def test_strided_input(cupy, backend):
    base = cupy.array([1, 0, 2, 3])
    assert backend.argsort((base[::2],), array_order()).get().tolist() == [0, 1]
    assert backend.argsort((base[::-1],), array_order()).get().tolist() == [2, 3, 1, 0]
    many = cupy.asarray(draw("random", 400_001, "i4"))
    np.testing.assert_array_equal(backend.sort(many[1::2], False).get(), np.sort(many.get()[1::2]))
    np.testing.assert_array_equal(backend.sort(many[1:], False).get(), np.sort(many.get()[1:]))  # 4 bytes off 16


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("descending", [False, True])
def test_complex_has_numpys_classes(cupy, backend, dtype, descending):
    rng = np.random.default_rng(1)
    parts = rng.choice([0.0, -0.0, 1.0, -2.0, np.nan, np.inf], (2, 3000))
    values = (parts[0] + 0j).astype(dtype)
    values.real, values.imag = parts
    nan_real, nan_imag = np.isnan(parts)
    sign = -1 if descending else 1
    order = np.lexsort(
        [np.where(nan_imag, 0, sign * parts[1]), np.where(nan_real, 0, sign * parts[0]), 2 * nan_real + nan_imag]
    )
    on_device = cupy.asarray(values)
    np.testing.assert_array_equal(backend.argsort((on_device,), array_order(descending)).get(), order)
    np.testing.assert_array_equal(backend.sort(on_device, descending).get().view("u4"), values[order].view("u4"))


@pytest.mark.parametrize("n", [3, 4097, 300_000])
def test_several_keys(cupy, backend, n):
    rng = np.random.default_rng(n)
    a, b, c = (
        rng.integers(0, 5, n).astype("i8"),
        rng.choice([1.5, -0.0, 0.0, np.nan, 7], n),
        rng.integers(0, 9, n, "u1"),
    )
    order = Order((Key("a", True), Key("b", False, True), Key("c")))
    nan = np.isnan(b)
    expected = np.lexsort([c, np.where(nan, 0, b), ~nan, -a])
    got = backend.argsort(tuple(map(cupy.asarray, (a, b, c))), order)
    np.testing.assert_array_equal(got.get(), expected)
    host = backend.argsort((a, b, c), order)
    assert isinstance(host, np.ndarray)
    np.testing.assert_array_equal(host, expected)


def test_host_columns_of_text_and_dates(cupy, backend):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "s": rng.choice(["", "a", "ab", "b", "zz" * 20, "zz" * 20 + "y"], 5000),
            "t": pd.to_datetime(rng.choice([0, 10**18, 2 * 10**18], 5000)),
        }
    )
    frame.loc[rng.random(5000) < 0.1, "t"] = pd.NaT
    got = backend.argsort((frame["s"], frame["t"]), Order((Key("s"), Key("t"))))
    expected = frame.sort_values(["s", "t"], kind="stable").index.to_numpy()
    np.testing.assert_array_equal(got, expected)
    moments = frame["t"].to_numpy()
    np.testing.assert_array_equal(backend.sort(moments, False), np.sort(moments))


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i4", "u8"])
def test_pairs(cupy, backend, dtype, width):
    from distsort.backends.cupy_radix import sort_pairs

    for n in (2, 300, 10_241, 400_000):
        keys = draw("entropy 0.5", n, dtype, n)
        values = np.random.default_rng(n).integers(0, 1 << 31, n).astype(f"u{width}")
        codec = policy.codec(keys.dtype.kind, keys.dtype.itemsize)
        got_keys, got_values = sort_pairs(cupy.asarray(keys), cupy.asarray(values), codec)
        order = oracle(keys)
        np.testing.assert_array_equal(got_keys.get(), keys[order])
        np.testing.assert_array_equal(got_values.get(), values[order])


@pytest.mark.parametrize("verb", ["sort", "argsort"])
@pytest.mark.parametrize(
    "make",
    [
        lambda cp, bits, n: bits,
        lambda cp, bits, n: bits & np.uint64(0xFFFFFFFF00000000),
        lambda cp, bits, n: bits >> np.uint64(20),
        lambda cp, bits, n: bits & np.uint64(0x00FF_0F0F_00FF_0F0F),
        lambda cp, bits, n: (bits & np.uint64(0xFF)) << np.uint64(56) | bits >> np.uint64(40),
        lambda cp, bits, n: cp.where(bits & np.uint64(63), bits, np.uint64(1 << 50)),
        lambda cp, bits, n: bits % np.uint64(1000),
        lambda cp, bits, n: (cp.arange(n, dtype=np.uint64) // np.uint64(4000)) << np.uint64(32) | bits >> np.uint64(40),
        lambda cp, bits, n: cp.full(n, 12345, np.uint64),
    ],
    ids=["full", "top half", "44 bits", "scattered", "skewed top", "heavy hitter", "small", "long runs", "constant"],
)
def test_methods_for_64_bit_keys(cupy, backend, make, verb):
    """Random and skewed keys at a size where the plan is read back: each method, and the fall back to the plain one."""
    n = (1 << 24) + 12_345
    bits = cupy.random.randint(0, 1 << 32, 2 * n, dtype=np.uint32).view(np.uint64)
    keys = make(cupy, bits, n)
    if verb == "sort":
        got = backend.sort(keys, False)
        assert bool((got == cupy.sort(keys)).all())
    else:
        order = backend.argsort((keys,), array_order())
        moved = keys[order]
        assert bool((moved[1:] >= moved[:-1]).all())
        assert bool(((moved[1:] > moved[:-1]) | (order[1:] > order[:-1])).all())
        assert int(order.sum()) == n * (n - 1) // 2


def test_lines(cupy, backend):
    rng = np.random.default_rng(2)
    for shape in ((3, 0), (0, 3), (1, 5), (1000, 7), (40, 9000), (3, 20_000)):
        values = rng.integers(0, 50, shape).astype("f4")
        on_device = cupy.asarray(values)
        np.testing.assert_array_equal(backend.sort_lines(on_device, False).get(), np.sort(values, axis=-1))
        order = np.argsort(values, axis=-1, kind="stable")
        np.testing.assert_array_equal(backend.argsort_lines(on_device, False).get(), order)


def test_memory_beyond_the_input(cupy, backend):
    """Keys take 2.1 times the input with it, or 2.1 beside it at most; positions of 4-byte keys four times."""
    n = 1 << 26
    pool = cupy.get_default_memory_pool()
    keys = cupy.random.randint(0, 1 << 32, n, dtype=np.uint32)
    for call, limit in (
        (lambda: backend.sort(keys, False), 2.1),
        (lambda: backend.argsort((keys,), array_order()), 4.2),
    ):
        call()
        pool.free_all_blocks()
        before = pool.total_bytes()
        kept = call()
        assert (pool.total_bytes() - before) / keys.nbytes <= limit
        del kept


def test_a_full_device_raises_and_keeps_the_input(cupy, backend):
    from distsort.errors import SortMemoryError

    pool = cupy.get_default_memory_pool()
    keys = cupy.random.randint(0, 1 << 32, 1 << 24, dtype=np.uint32)
    before = keys.copy()
    pool.free_all_blocks()
    old = pool.get_limit()
    pool.set_limit(size=pool.used_bytes() + keys.nbytes // 2)
    try:
        with pytest.raises(SortMemoryError, match="smaller chunks"):
            backend.sort(keys, False)
        with pytest.raises(MemoryError):
            backend.argsort((keys,), array_order())
    finally:
        pool.set_limit(size=old)
    assert bool((keys == before).all())


def random_bytes(cupy, n):
    """Return n random bytes on the device, made piece by piece."""
    out = cupy.empty(n, np.uint8)
    for start in range(0, n, 1 << 28):
        piece = out[start : start + (1 << 28)]
        piece[...] = cupy.random.randint(0, 1 << 32, -(-piece.size // 4), dtype=np.uint32).view(np.uint8)[: piece.size]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("n", [(1 << 30) + 10_241, (1 << 31) + 7, (1 << 32) + 4097])
@pytest.mark.parametrize("dtype", ["u1", "i2"])
def test_more_keys_than_32_bits_count(cupy, backend, n, dtype):
    keys = random_bytes(cupy, n * np.dtype(dtype).itemsize).view(dtype)
    got = backend.sort(keys, False)
    assert bool((got[1:] >= got[:-1]).all())
    for value in (-(1 << 15), -1, 0, 77, 255):
        if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            assert int((got == value).sum()) == int((keys == value).sum())
    assert int(got.sum(dtype=np.int64)) == int(keys.sum(dtype=np.int64))


@pytest.mark.slow
def test_positions_beyond_32_bits(cupy, backend):
    n = (1 << 32) + 4097
    keys = random_bytes(cupy, n)
    keys &= np.uint8(1)
    order = backend.argsort((keys,), array_order())
    split = n - int(keys.sum(dtype=np.int64))
    for part, key in ((order[:split], 0), (order[split:], 1)):
        assert bool((part[1:] > part[:-1]).all())  # ties in input order
        assert bool((keys[part[:: 1 << 10]] == key).all())
    assert int(order[-1]) < n
    assert int(order[split]) >= 0
