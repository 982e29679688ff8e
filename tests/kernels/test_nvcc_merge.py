"""nvcc compiles what the k-way merge launches, for every generation, without spilling a register."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from distsort.kernels import instances, policy

KERNELS = Path(policy.__file__).parent


def instantiations(capability: tuple[int, int]) -> list[str]:
    """Return every width and number of runs with the codes that take most registers, and each thing carried."""
    cupy_merge = pytest.importorskip("distsort.backends.cupy_merge")
    names: list[str] = []
    for size in (1, 2, 4, 8):
        for k in (2, 4, 8):
            kind = "i" if size == 1 else "f"
            codec = policy.codec(kind, size, unified=True)
            carried = [("NOTHING", None), ("INDEX", "i8")]
            if k != 4:
                carried += [("INDEX", "u4"), ("VALUES", "u4"), ("VALUES", "u8")]
            for carry, value in carried if size >= 4 else carried[:2]:
                shape = policy.merge_shape(capability, size, k, carry != "NOTHING")
                value_dtype = None if value is None else np.dtype(value)
                names += cupy_merge.kernel_names(shape, k, np.dtype(f"{kind}{size}"), codec, carry, value_dtype)
    for size, kind in ((4, "u"), (8, "u"), (4, "i"), (8, "i")):
        shape = policy.merge_shape(capability, size, 8, False)
        names += cupy_merge.kernel_names(shape, 8, np.dtype(f"{kind}{size}"), policy.codec(kind, size), "NOTHING", None)
    for size, width in ((4, 2), (8, 2), (8, 4)):
        for down in (False, True):
            names.append(instances.narrow_name(size, width, down))
    for size in (4, 8):
        for k in (2, 8):
            for kind in "ui":
                shape, codec = policy.merge_shape(capability, size, k, False), policy.codec(kind, size)
                dtype = np.dtype(f"{kind}{size}")
                names += cupy_merge.kernel_names(shape, k, dtype, codec, "NOTHING", None, narrowed=True)
    return sorted(set(names))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)], ids=str)
def test_no_instantiation_spills(tmp_path, flavour, capability):
    if flavour != "plain":
        pytest.skip("nothing runs here that a sanitizer could watch")
    wanted = instantiations(capability)
    source = tmp_path / "merge_all.cu"
    taken = "".join(f"    reinterpret_cast<const void*>(&{name}),\n" for name in wanted)
    source.write_text(
        f'#include "merge_kway.cu"\n#include "merge_narrow.cu"\nconst void* const instantiations[] = {{\n{taken}}};\n'
    )
    target = ["-cubin", "-o", str(tmp_path / "all.cubin"), f"-arch=sm_{capability[0]}{capability[1]}"]
    command = ["nvcc", "-std=c++17", f"-I{KERNELS}", "-Xptxas", "-v", *target, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    stores = [int(n) for n in re.findall(r"(\d+) bytes spill stores", done.stderr)]
    assert len(stores) >= len(wanted), f"only {len(stores)} of {len(wanted)} were compiled"
    assert sum(stores) == 0, re.findall(r"Compiling entry.*\n.*\n.* [1-9]\d* bytes spill stores", done.stderr)
