"""nvcc compiles every instantiation of the radix sort that a launch policy asks for, and none spills a register."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from distsort.kernels import instances, policy

KERNELS = Path(policy.__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("file", ["radix_onesweep.cu", "radix_small.cu", "radix_finish.cu"])
def test_no_instantiation_spills(tmp_path, flavour, file, capability):
    if flavour != "plain":
        pytest.skip("nothing runs here that a sanitizer could watch")
    names = instances.all_names(capability)[file]
    taken = "".join(f"    reinterpret_cast<const void*>(&{name}),\n" for name in names)
    source = tmp_path / "all.cu"
    source.write_text(f'#include "{file}"\nconst void* const instantiations[] = {{\n{taken}}};\n')
    target = ["-cubin", "-o", str(tmp_path / "all.cubin"), "-arch=sm_{}{}".format(*capability)]
    command = ["nvcc", "-std=c++17", f"-I{KERNELS}", "-Xptxas", "-v", *target, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    spills = re.findall(r"Function properties for (\S+)\n\s*(\d+) bytes stack frame, (\d+) bytes spill", done.stderr)
    assert len(spills) >= len(names), f"only {len(spills)} of {len(names)} were compiled"
    assert [name for name, stack, stores in spills if int(stack) or int(stores)] == []


def test_every_shape_fits_its_device():
    limits = {(8, 0): (163 << 10, 164 << 10), (9, 0): (227 << 10, 228 << 10), (10, 0): (227 << 10, 228 << 10)}
    for capability, (block, whole) in limits.items():
        for method, wide in instances.methods():
            for n in (1 << 19, 1 << 21, 1 << 27, 1 << 33):
                shape = policy.radix_shape(capability, method.word, method.payload, n)
                shared = shape.shared(method.word, method.payload, wide and n >= policy.NARROW_LIMIT)
                assert shared <= block
                assert shape.blocks * (shared + 1024) <= whole, (capability, method, n)
                assert policy.histogram_shape(capability, method.key, n, 132).shared(method.key) <= block
