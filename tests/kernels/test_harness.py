"""The harness sees seeded bugs, each in the flavour that is meant to see it, and nothing in the correct kernels."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCHEDULES = [
    {"order": o, "blocks": b, "seed": 5, "resident": r}
    for o, b, r in itertools.product(("fifo", "reverse", "random"), ("fifo", "reverse"), (1, 3))
]


@pytest.fixture(scope="module", params=["plain", "ucontext"])
def seeded(request, build, flavour):
    if flavour != "plain":
        pytest.skip("the harness tests start their own sanitizer processes")
    return build.Library(build.library("seeded", request.param))


@pytest.fixture
def data():
    return np.random.default_rng(7).integers(0, 1000, 640, dtype=np.uint32)


def reverse(lib, bug, x):
    y = np.full_like(x, 0xAAAAAAAA)
    lib("run_reverse", bug, x, y, x.size)
    return np.array_equal(y, np.concatenate([x[i : i + 64][::-1] for i in range(0, x.size, 64)]))


def scan(lib, bug, x):
    y = np.empty_like(x)
    lib("run_scan", bug, x, y, x.size // 64)
    return np.array_equal(y, x.cumsum(dtype=np.uint32) + x[0])


def swap(lib, bug, x):
    y = np.empty(64, np.uint32)
    lib("run_swap", bug, x, y)
    return np.array_equal(y, x[:64].reshape(-1, 2)[:, ::-1].ravel())


def look_back(lib, bug, x):
    y = np.empty(x.size, np.uint64)
    one, many, flags = np.zeros(1, np.uint32), np.zeros(x.size, np.uint64), np.zeros(x.size, np.uint32)
    lib("run_look_back", bug, x, y, one, many, flags, x.size)
    return np.array_equal(y, x.cumsum(dtype=np.uint64))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: "-".join(map(str, s.values())))
def test_correct_kernels_pass_in_every_schedule(seeded, schedule, data):
    seeded.schedule(**schedule)
    assert reverse(seeded, 0, data[:200])
    assert scan(seeded, 0, data[:192])
    assert swap(seeded, 0, data)
    assert look_back(seeded, 0, data[:40])
    out = np.empty(64, np.uint32)
    seeded("run_divergent", 0, out)
    assert (out == 0xAAAAAAAA).all()


@pytest.mark.parametrize("order", ["fifo", "reverse", "random"])
@pytest.mark.parametrize(
    ("kernel", "bug"),
    [
        pytest.param(reverse, 1, id="no barrier after the tile load"),
        pytest.param(reverse, 3, id="unwritten shared memory"),
        pytest.param(scan, 1, id="doubling scan with half of its barriers"),
        pytest.param(scan, 3, id="next round overwrites"),
    ],
)
def test_wrong_in_every_order(seeded, order, kernel, bug, data):
    seeded.schedule(order, seed=1)
    assert not kernel(seeded, bug, data[:192])


def test_a_broadcast_without_barrier_is_wrong_once_the_order_is_not_ascending(seeded, data):
    verdicts = {}
    for order in ("fifo", "reverse", "random"):
        seeded.schedule(order, seed=1)
        verdicts[order] = scan(seeded, 2, data[:64])
    assert verdicts == {"fifo": True, "reverse": False, "random": False}


def line(text: str) -> int:
    source = Path(__file__).with_name("seeded.cpp").read_text().splitlines()
    return next(k for k, s in enumerate(source, 1) if text in s)


@pytest.mark.parametrize("order", ["fifo", "reverse", "random"])
@pytest.mark.parametrize(
    ("bug", "words"),
    [
        (1, ["divergent block_sync", f"seeded.cpp:{line('if (t < 40)') + 1}", f"seeded.cpp:{line('if (t < 40)') + 3}"]),
        (2, ["deadlock", "32 threads wait in a warp collective", f"seeded.cpp:{line('if (t & 1) out[t]')}"]),
        (3, ["returned while", f"seeded.cpp:{line('if (t == 5) return') + 1}"]),
        (4, ["deadlock", "32 threads wait in named_sync", f"seeded.cpp:{line('named_sync(1, 64)')}"]),
        (5, ["divergent warp collective"]),
    ],
)
def test_divergence_and_deadlock_are_reported_with_lines(seeded, build, order, bug, words):
    seeded.schedule(order, seed=2)
    with pytest.raises(build.KernelReport) as report:
        seeded("run_divergent", bug, np.empty(64, np.uint32))
    if (bug, order) == (3, "reverse"):  # thread 5 returns when others wait already, or they come after it
        assert "returned" in str(report.value)
    else:
        assert all(w in str(report.value) for w in words), report.value


def wait_and_swap(lib, bug):
    words, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    lib("run_wait_and_swap", bug, words, out)
    return out.tolist() == [(t ^ 1) + 1 for t in range(32)] * 2


@pytest.mark.parametrize("order", ["fifo", "reverse", "random"])
def test_lanes_that_wait_apart_meet_nowhere(seeded, order):
    """Lanes leave a waiting loop one by one, as on a GPU, not in step: what they share then needs a warp_sync."""
    for seed in range(5):
        seeded.schedule(order, seed=seed, resident=2)
        assert wait_and_swap(seeded, 0)
        assert not wait_and_swap(seeded, 2)


@pytest.mark.parametrize("order", ["fifo", "reverse", "random"])
def test_a_named_barrier_counts_whole_warps(seeded, build, order):
    seeded.schedule(order, seed=3)
    with pytest.raises(
        build.KernelReport, match=f"named_sync of part of a warp.*seeded.cpp:{line('named_sync(1, 32)')}"
    ):
        seeded("run_half_warps", np.empty(64, np.uint32))


def test_a_report_leaves_the_library_usable(seeded, build, data):
    seeded.schedule()
    with pytest.raises(build.KernelReport, match="divergent"):
        seeded("run_divergent", 1, np.empty(64, np.uint32))
    assert reverse(seeded, 0, data)


def test_look_back_by_block_index_is_a_livelock_unless_blocks_start_in_order(seeded, build, data):
    seeded.schedule("fifo", "fifo", resident=1)
    assert look_back(seeded, 1, data[:20])
    seeded.schedule("fifo", "reverse", resident=2)
    with pytest.raises(build.KernelReport, match=f"livelock.*seeded.cpp:{line('while (ld_acquire')}"):
        look_back(seeded, 1, data[:20])


def test_misaligned_and_overlapping_memory_is_reported(seeded, build, data):
    with pytest.raises(build.KernelReport, match="not aligned to 16"):
        seeded("run_misaligned", data, data.copy())
    with pytest.raises(build.KernelReport, match="carved past the 128 bytes"):
        seeded("run_carve_too_much", data.copy())


SANITIZED = """
import ctypes, sys
dll = ctypes.CDLL(sys.argv[1])
dll.emu_configure(*map(int, sys.argv[3].split(",")))
words = lambda n: (ctypes.c_uint32 * n)()
make = lambda a: words(int(a[1:])) if a[0] == "w" else ctypes.c_int64(int(a))
sys.exit(dll[sys.argv[2]](*map(make, sys.argv[4:])))
"""

RACE, WRITE, BOUNDS = "ThreadSanitizer: data race", "heap-buffer-overflow", "out of bounds"


@pytest.mark.parametrize(
    ("flavour_name", "driver", "arguments", "found"),
    [
        ("asan", "run_reverse", "0 w200 w200 200", None),
        ("asan", "run_reverse", "2 w200 w200 200", BOUNDS),
        ("asan", "run_reverse", "4 w256 w200 200", WRITE),
        ("asan", "run_carve_neighbour", "w32 0", WRITE),
        ("tsan", "run_reverse", "0 w200 w200 200", None),
        ("tsan", "run_scan", "0 w192 w192 3", None),
        ("tsan", "run_look_back", "0 w9 w18 w1 w18 w9 9", None),
        ("tsan", "run_divergent", "1 w64", "reported by the emulator"),
        ("tsan", "run_reverse", "1 w200 w200 200", RACE),
        ("tsan", "run_scan", "1 w192 w192 3", RACE),
        ("tsan", "run_scan", "2 w192 w192 3", RACE),
        ("tsan", "run_scan", "3 w192 w192 3", RACE),
        ("tsan", "run_swap", "0 w64 w64", None),
        ("tsan", "run_swap", "1 w64 w64", RACE),
        ("tsan", "run_swap", "2 w64 w64", RACE),
        ("tsan", "run_look_back", "2 w9 w18 w1 w18 w9 9", RACE),
        ("tsan", "run_wait_and_swap", "0 w64 w64", None),
        ("tsan", "run_wait_and_swap", "1 w64 w64", RACE),
        ("tsan", "run_wait_and_swap", "2 w64 w64", RACE),
    ],
)
def test_sanitizers(build, flavour, tmp_path, flavour_name, driver, arguments, found):
    if flavour != "plain":
        pytest.skip("the harness tests start their own sanitizer processes")
    library = build.library("seeded", flavour_name)
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-S", "-c", SANITIZED, str(library), driver, "0,0,0,2", *arguments.split()],
        env=build.environment(flavour_name, log),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    report = done.stderr + "".join(p.read_text() for p in tmp_path.glob("log*"))
    if found == "reported by the emulator":
        assert (done.returncode, report) == (1, "")
    elif found:
        assert done.returncode == 66, report
        assert found in report
    else:
        assert (done.returncode, report) == (0, "")
