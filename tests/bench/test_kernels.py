"""The kernel benchmark's edges: options, tables, plots, claims, and its error where there is no GPU."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from distsort.bench import kernels, measure
from distsort.bench.kernels_command import kernels as command
from distsort.bench.kernels_command import parse_sizes, plots, tables
from distsort.errors import OptionError


@pytest.fixture
def report() -> kernels.Report:
    """Return a report with made-up times: the faster of two is always the one the textbook says."""
    made = kernels.Report("2026-01-01", "a GPU", "u32")
    for part, method, n, ms, where in [
        ("size", "distsort", 2**16, 0.03, {}),
        ("size", "distsort", 2**20, 0.05, {}),
        ("size", "CUB SortKeys", 2**20, 0.08, {}),
        ("entropy", "distsort", 2**20, 0.05, {"entropy": "0.5"}),
        ("merge", "merge_basic", 2**20, 4.0, {}),
        ("merge", "merge_tiled", 2**20, 2.0, {}),
        ("merge", "merge_circular", 2**20, 1.6, {}),
        ("radix", "radix_local_sort", 2**20, 3.0, {"bits": 1, "coarsening": 1}),
        ("radix", "radix_local_sort", 2**20, 1.0, {"bits": 4, "coarsening": 1}),
        ("coarsening", "radix_local_sort", 2**20, 2.0, {"bits": 8, "coarsening": 1}),
        ("coarsening", "radix_local_sort", 2**20, 1.0, {"bits": 8, "coarsening": 16}),
    ]:
        made.rows.append({"part": part, "method": method, "n": n, **where, "ms": ms, "gkeys_per_s": n / ms / 1e6})
    made.claims = kernels.claims(made)
    return made


def test_sizes():
    assert parse_sizes("2^16..2^20") == (2**16, 2**18, 2**20)
    assert parse_sizes("1000,2^10") == (1000, 1024)
    for bad in ("", "2^", "many", "2^4..2^2", "0"):
        with pytest.raises(OptionError, match="sizes"):
            parse_sizes(bad)


def test_claims_have_numbers(report):
    ratios = {claim["claim"]: claim["ratio"] for claim in report.claims}
    assert ratios["tiles in shared memory beat uncoalesced merging"] == 2.0
    assert ratios["a circular buffer beats loading the unused half of each tile again"] == 1.25
    assert ratios["4 bits a digit beat 1 bit: fewer trips through memory"] == 3.0
    assert ratios["16 keys a thread beat 1"] == 2.0
    assert len(ratios) == 4  # what was not measured makes no claim


def test_tables_and_json(report):
    found = {str(table.title): table for table in tables(report)}
    assert found["size, u32, a GPU"].row_count == 3
    assert list(found["entropy, u32, a GPU"].columns[2].cells) == ["0.5"]
    assert list(found["size, u32, a GPU"].columns[1].cells) == ["2^16", "2^20", "2^20"]
    assert json.loads(report.to_json())["rows"][0]["ms"] == 0.03


def test_plots(report, tmp_path):
    pytest.importorskip("matplotlib")
    written = plots(report, tmp_path / "new")
    assert [p.name for p in written] == [
        f"kernels-{part}-u32.png" for part in ("size", "entropy", "radix", "coarsening")
    ]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)


def test_without_a_gpu_it_says_so(monkeypatch):
    def none() -> None:
        raise OptionError("bench kernels needs a GPU, and CUDA finds none on this machine")

    monkeypatch.setattr(measure, "need_gpu", none)
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 1
    assert "needs a GPU" in result.output


def test_unknown_names_are_refused_before_anything_runs():
    with pytest.raises(OptionError, match="unknown part 'speed'"):
        kernels.run(kernels.Options(parts=("speed",)))
    with pytest.raises(OptionError, match="unknown dtype 'u16'"):
        kernels.run(kernels.Options(dtype="u16"))


def test_cub_must_be_there():
    with pytest.raises(OptionError, match="no such file"):
        measure.Cub("nowhere.cu")


def test_a_sample_is_not_drawn_from_fewer_keys_than_it_takes():
    pytest.importorskip("cupy")
    from distsort.kernels import policy

    from distsort.backends import cupy_radix

    with pytest.raises(ValueError, match=f"a sample of {policy.SAMPLE} keys cannot be drawn from 10"):
        cupy_radix._sample(SimpleNamespace(n=10))


def test_a_cub_program_that_does_not_compile_says_so(tmp_path, monkeypatch):
    """Compiled beside other work, waited for when it is asked."""
    (tmp_path / "nvcc").write_text("#!/bin/sh\necho 'no such header' >&2\nexit 2\n")
    (tmp_path / "nvcc").chmod(0o755)
    (tmp_path / "peer.cu").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cub = measure.Cub(str(tmp_path / "peer.cu"))
    with pytest.raises(OptionError, match="nvcc refused the CUB program:\nno such header"):
        cub("sort_keys", "u32", 8)
