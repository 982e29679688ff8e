from __future__ import annotations

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


def test_environment_variables_reach_the_package():
    code = "from distsort import config; print(config.get('pull.threshold') + 1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"DASK_DISTSORT__PULL__THRESHOLD": "7", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
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
