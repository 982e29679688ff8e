"""Which template instantiations a radix sort launches, as text: for the loader, and for the check that none spills."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distsort.kernels import policy

UNSIGNED = {1: "u8", 2: "u16", 4: "u32", 8: "u64"}


@dataclass(frozen=True)
class Method:
    """One family of instantiations: what is sorted, and in words of what shape.

    Attributes
    ----------
    mode
        "KEYS", "ARGSORT", "ARGSORT_BY" or "PAIRS" (radix_job.cuh: Mode).
    source, key
        Bytes of a value in the input, and of its key.
    payload
        Bytes of a payload in an array of its own; 0: none, or packed beside the key in a word of 8 bytes.
    squeeze
        The varying bits are moved together on the first load.
    watch
        Float keys alone: the histogram looks for zeros and NaNs whose bits differ.
    """

    mode: str
    source: int
    key: int
    payload: int = 0
    squeeze: bool = False
    watch: bool = False

    @property
    def word(self) -> int:
        """Bytes of a word in flight."""
        return self.key if self.mode == "KEYS" or self.payload else 8

    @property
    def unify(self) -> bool:
        """Whether floats of equal value get equal bits before they are encoded."""
        return self.mode in ("ARGSORT", "ARGSORT_BY")


def radix_names(
    method: Method, shape: policy.RadixShape, counting: policy.HistogramShape, wide: bool
) -> tuple[str, ...]:
    """Return the kernels of radix_onesweep.cu for a method: histogram, first pass, later passes, repair (3)."""
    source, key = UNSIGNED[method.source], UNSIGNED[method.key]
    payload = UNSIGNED[method.payload] if method.payload else "None"
    flags = ", ".join(_literal(flag) for flag in (method.unify, method.squeeze, method.watch))
    head = f"radix_pass<{shape.threads}, {shape.items}, {shape.blocks}, {source}, {key}, {payload}, "
    head += f"{'u64' if wide else 'u32'}, {method.mode}, "
    names = (
        f"radix_histogram<{counting.threads}, {counting.columns}, {source}, {key}, {flags}>",
        f"{head}true, {_literal(method.squeeze)}>",
        f"{head}false, {_literal(method.squeeze)}>",
    )
    if not method.watch:
        return names
    return (
        *names,
        f"radix_find_specials<{policy.FIND_THREADS}, {source}>",
        f"radix_find_stretches<{source}>",
        f"radix_repair<{policy.REPAIR_THREADS}, {source}>",
    )


def small_name(source: int, index: bool, items: int) -> str:
    """Return the kernel of radix_small.cu for values of `source` bytes, or for their positions."""
    payload = "u32" if index and source == 8 else "None"
    mode = "ARGSORT" if index else "KEYS"
    return f"radix_small<{policy.SMALL_THREADS}, {items}, {UNSIGNED[source]}, {payload}, {mode}>"


def sample_names(source: int, unify: bool) -> tuple[str, str]:
    """Return the kernels of radix_finish.cu that take a sample and count its ties."""
    return f"radix_sample<{UNSIGNED[source]}, {_literal(unify)}>", "radix_sample_ties"


def finish_name(source: int, mode: str) -> str:
    """Return the kernel of radix_finish.cu for a mode, "KEYS" or "ARGSORT"."""
    threads, items = policy.FINISH_SHAPE
    return f"radix_finish<{threads}, {items}, {UNSIGNED[source]}, {mode}>"


def narrow_name(size: int, width: int, down: bool) -> str:
    """Return the kernel of merge_narrow.cu for keys and offsets of so many bytes."""
    return f"narrow<{UNSIGNED[size]}, {UNSIGNED[width]}, {_literal(down)}>"


def _literal(flag: bool) -> str:
    return "true" if flag else "false"


def methods() -> Iterator[tuple[Method, bool]]:
    """Yield every method that the launcher takes, with whether 64-bit status words may go with it."""
    for size in UNSIGNED:
        yield Method("KEYS", size, size), True
        if size > 1:
            yield Method("KEYS", size, size, watch=True), True
        for mode in ("ARGSORT", "ARGSORT_BY"):
            yield Method(mode, size, size, 4 if size == 8 else 0), True
            if size > 2 or mode == "ARGSORT_BY":
                yield Method(mode, size, size, 8), True
        for value in (4, 8):
            yield Method("PAIRS", size, size, 0 if value == 4 and size < 8 else value), True
    for size in (4, 8):
        yield Method("KEYS", size, 4, squeeze=True), False
        yield Method("KEYS", size, 4, squeeze=True, watch=True), False
        for mode in ("ARGSORT", "ARGSORT_BY"):
            yield Method(mode, size, 4, squeeze=True), False
    yield Method("KEYS", 8, 8, squeeze=True), False
    yield Method("ARGSORT", 8, 8, 4, squeeze=True), False


def all_names(capability: tuple[int, int]) -> dict[str, list[str]]:
    """Return every instantiation that a device of this compute capability can be asked to launch, by file."""
    found: set[str] = set()
    for method, wide in methods():
        for n in (1 << 19, 1 << 21, 1 << 27, *((1 << 31, 1 << 33) if wide else ())):
            shape = policy.radix_shape(capability, method.word, method.payload, n)
            counting = policy.histogram_shape(capability, method.key, n, 132)
            found.update(radix_names(method, shape, counting, n >= policy.NARROW_LIMIT))
    small = {small_name(size, index, items) for size in UNSIGNED for index in (False, True) for items in (1, 2, 4)}
    finish = {finish_name(8, mode) for mode in ("KEYS", "ARGSORT")}
    finish.update(name for unify in (False, True) for name in sample_names(8, unify))
    return {
        "radix_onesweep.cu": sorted(found),
        "radix_small.cu": sorted(small),
        "radix_finish.cu": sorted(finish),
    }
