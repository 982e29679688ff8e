from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import dask
import pytest
import yaml

import distsort
from distsort import config
from distsort.errors import OptionError

HOME = Path(distsort.__file__).parent
TYPES = {
    "object": dict,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "null": type(None),
}


def load(name):
    return yaml.safe_load((HOME / name).read_text())


def conforms(value, schema, path):
    if "enum" in schema:
        assert value in schema["enum"], path
    if "type" in schema:
        names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert isinstance(value, tuple(TYPES[n] for n in names)), path
    if isinstance(value, dict):
        for key, child in value.items():
            conforms(child, schema["properties"][key], f"{path}.{key}")


def test_every_default_fits_the_schema():
    conforms(load("distsort.yaml"), load("distsort-schema.yaml"), "")


def test_every_schema_key_has_a_default_and_a_description():
    def walk(schema, defaults, path):
        assert list(schema["properties"]) == list(defaults), f"keys of {path or 'the root'} differ"
        for key, child in schema["properties"].items():
            if "properties" in child:
                assert child["additionalProperties"] is False, f"{path}.{key}"
                walk(child, defaults[key], f"{path}.{key}")
            else:
                assert child["description"].endswith("."), f"{path}.{key}"

    walk(load("distsort-schema.yaml"), load("distsort.yaml"), "")


def test_every_size_and_time_parses():
    schema = load("distsort-schema.yaml")["properties"]["distsort"]
    for path in config.keys():  # noqa: SIM118
        leaf = schema
        for word in path.split("."):
            leaf = leaf["properties"][word]
        if leaf["description"].endswith("(bytes)."):
            assert config.get_bytes(path) > 0
        if leaf["description"].endswith("(time)."):
            assert config.get_seconds(path) > 0


def test_values_are_read_when_used():
    assert config.get("exchange") is None
    with dask.config.set({"distsort.exchange": "graph", "distsort.files.part-size": "1 kiB"}):
        assert config.get("exchange") == "graph"
        assert config.get_bytes("files.part-size") == 1024
    assert config.get("exchange") is None


def python(code, **setting):
    """Run code in a process of its own, with a setting in its environment."""
    environment = {"PATH": "/usr/bin:/bin", **setting}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_environment_variables_reach_the_package():
    code = "from distsort import config; print(config.get('pull.threshold') + 1)"
    done = python(code, DASK_DISTSORT__PULL__THRESHOLD="7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "8"


@pytest.mark.parametrize(("reader", "path"), [("get_bytes", "files.part-size"), ("get_seconds", "pull.timeout")])
def test_a_bad_size_or_time_names_its_key(reader, path):
    with (
        dask.config.set({f"distsort.{path}": "much"}),
        pytest.raises(OptionError, match=f"distsort.{path}='much'"),
    ):
        getattr(config, reader)(path)


def test_settings_of_the_command_line():
    assert config.parse_settings(("files.part-size=4 MiB", "distsort.pull.threshold=3", "exchange=null")) == {
        "distsort.files.part-size": "4 MiB",
        "distsort.pull.threshold": 3,
        "distsort.exchange": None,
    }
    with pytest.raises(OptionError, match=r"did you mean pull\.threshold"):
        config.parse_settings(("pull.treshold=3",))
    with pytest.raises(OptionError, match="KEY=VALUE"):
        config.parse_settings(("pull.threshold",))
    with pytest.raises(OptionError, match="'many' is not of the kind of the default, 64"):
        config.parse_settings(("pull.threshold=many",))
    assert config.parse_settings(("files.part-size=1000",)) == {"distsort.files.part-size": 1000}


WRONG = [
    ("files.csv-block-size", 0, "it must be more than 0"),
    ("files.part-size", 0, "it must be more than 0"),
    ("files.part-size", -1, "it must be more than 0"),
    ("files.part-size", "-1 MiB", "it must be more than 0"),
    ("files.part-size", None, "is not a size"),
    ("files.part-size", float("inf"), "is not a size"),
    ("files.in-process", "-1 B", "it must be 0 or more"),
    ("files.row-group-rows", 0, "it must be more than 0"),
    ("files.row-group-rows", 1.5, "it must be a whole number"),
    ("files.row-group-rows", True, "it must be a whole number"),
    ("files.minimum-partitions", 0, "it must be more than 0"),
    ("files.compression", "foo", "it must be one of none, snappy, gzip, brotli, lz4, zstd"),
    ("rates.rows", 0, "it must be more than 0"),
    ("rates.rows", float("nan"), "it must be more than 0"),
    ("rates.rows", "many", "it must be a number"),
    ("rates.read.csv", "0 B", "it must be more than 0"),
    ("cuts.probes", 0, "it must be more than 0"),
    ("cuts.samples", 0, "it must be more than 0"),
    ("graph.slices", -3, "it must be more than 0"),
    ("pull.threshold", -1, "it must be 0 or more"),
    ("pull.threshold", None, "it must be a whole number"),
    ("pull.retries", -1, "it must be 0 or more"),
    ("pull.timeout", "0 s", "it must be more than 0"),
    ("pull.bytes-in-flight", "0", "it must be more than 0"),
    ("progress.interval", -1, "is not a time"),
]


@pytest.mark.parametrize(("path", "value", "words"), WRONG)
def test_a_setting_out_of_range_is_refused_by_name(path, value, words):
    with (
        dask.config.set({f"distsort.{path}": value}),
        pytest.raises(OptionError, match=re.escape(f"distsort.{path}={value!r}") + f":? {words}"),
    ):
        config.check()


def test_zero_and_null_where_they_have_a_meaning():
    zeros = {"pull.threshold": 0, "pull.retries": 0, "files.in-process": 0, "progress.interval": "0 ms"}
    with dask.config.set({f"distsort.{path}": value for path, value in zeros.items()}):
        config.check()
        assert config.get("pull.threshold") == 0
        assert config.get_bytes("files.in-process") == 0
        assert config.get_seconds("progress.interval") == 0
    with dask.config.set({"distsort.service.keep": 0, "distsort.service.keep-for": 0, "distsort.service.queued": 0}):
        config.check()
        assert (config.get("service.keep"), config.get_seconds("service.keep-for")) == (0, 0)
        with pytest.raises(OptionError, match=r"^distsort\.service\.queued=0: it must be more than 0$"):
            config.get("service.queued")
    for codec in (None, "none", "ZSTD", "snappy"):
        with dask.config.set({"distsort.files.compression": codec}):
            assert config.get("files.compression") == codec
    with dask.config.set({"distsort.rates.rows": 1.5e6}):
        assert config.get("rates.rows") == 1.5e6


def test_checks_agree_with_the_schema():
    schema = load("distsort-schema.yaml")["properties"]["distsort"]
    defaults = load("distsort.yaml")["distsort"]
    for path in config.keys():  # noqa: SIM118
        leaf, default = schema, defaults
        for word in path.split("."):
            leaf, default = leaf["properties"][word], default[word]
        if leaf.get("type") in ("integer", "number"):
            assert (leaf.get("minimum") == 0) == (path in config._FROM_ZERO), path
            assert (leaf["type"] == "number") == (path in config._REAL), path
        text = leaf["description"]
        assert bool(config._SIZE.fullmatch(str(default))) == text.endswith("(bytes)."), path
        assert bool(config._TIME.fullmatch(str(default))) == text.endswith("(time)."), path


def test_a_wrong_setting_of_the_environment_is_refused():
    code = "from distsort import config; config.check()"
    done = python(code, DASK_DISTSORT__FILES__PART_SIZE="0")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("OptionError: distsort.files.part-size=0: it must be more than 0")


def test_the_first_sort_may_be_within_a_setting():
    """Dask takes back what was not there before the block: the defaults, too."""
    code = """
import dask, dask.array as da, distsort
x = da.arange(4, chunks=2)[::-1]
with dask.config.set({"distsort.pull.threshold": 128}):
    assert distsort.sort(x).compute().tolist() == [0, 1, 2, 3]
assert distsort.sort(x).compute().tolist() == [0, 1, 2, 3]
from distsort import config
assert [config.get("exchange"), config.get("pull.threshold")] == [None, 64]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
