"""nvcc compiles every instantiation that the ladder, merge sort and row sorts launch, without spilling a register."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from distsort.kernels import policy

from distsort.backends import cupy_rows

KERNELS = Path(policy.__file__).parent


def ladder() -> list[str]:
    threads = policy.LADDER_THREADS
    names = ("radix_bits", "radix_bit_scatter", "radix_block_sort", "radix_place")
    keyed = [f"{name}<{key}, {threads}>" for name in names for key in ("u32", "u64")]
    return [f"exclusive_scan<{threads}, {policy.SCAN_ROWS}>", *keyed]


def merge_ladder() -> list[str]:
    return [f"{name}<{key}>" for name in ("merge_basic", "merge_tiled", "merge_circular") for key in ("u32", "u64")]


def merge_sort() -> list[str]:
    shape = f"{policy.MERGE_SORT_ITEMS}, {policy.MERGE_SORT_THREADS}"
    keyed = list(itertools.product(("u32", "u64", "U128"), ("false", "true")))
    return [
        *(f"merge_sort_{part}<{key}, {index}, {shape}>" for part in ("tiles", "pass") for key, index in keyed),
        *(f"merge_sort_cuts<{moved}>" for moved in ("u32", "u64", "U128", "Indexed<u64>", "Indexed<U128>")),
        *(f"sort_by_network<{key}>" for key in ("u32", "u64")),
    ]


def rows() -> list[str]:
    asked = itertools.product((1, 2, 4, 8), (False, True), (200, 300, 4096, 8192), (1, 1 << 20))
    shapes = [(word, index, policy.row_shape(word, index, n, rows)) for word, index, n, rows in asked]
    return sorted({cupy_rows.kernel_name(*found) for found in shapes if found[2] is not None})


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("names", [ladder, merge_ladder, merge_sort, rows])
def test_no_instantiation_spills(tmp_path, flavour, names, capability):
    if flavour != "plain":
        pytest.skip("nothing runs here that a sanitizer could watch")
    file = {ladder: "radix_ladder", merge_ladder: "merge_ladder", merge_sort: "merge_sort", rows: "row_sort"}[names]
    wanted = names()
    source = tmp_path / f"{file}_all.cu"
    taken = "".join(f"    reinterpret_cast<const void*>(&{name}),\n" for name in wanted)
    source.write_text(f'#include "{file}.cu"\nconst void* const instantiations[] = {{\n{taken}}};\n')
    target = ["-cubin", "-o", str(tmp_path / "all.cubin"), f"-arch=sm_{capability}"]
    command = ["nvcc", "-std=c++17", f"-I{KERNELS}", "-Xptxas", "-v", *target, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stores = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert len(stores) >= len(wanted), f"only {len(stores)} of {len(wanted)} were compiled"
    assert sum(stores) == 0, re.findall(r"Compiling entry.*\n.*\n.* [1-9]\d* bytes spill stores", done.stderr)
