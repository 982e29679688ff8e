"""The files of deploy/, each checked by the tool or the schema of the system that will read it."""

from __future__ import annotations

import copy
import importlib.resources
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.33", "1.37")


def run(*command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **kwargs)


def need(program):
    """Return a program, from this environment or the system."""
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def documents():
    return [(path.name, doc) for path in KUBERNETES for doc in yaml.safe_load_all(path.read_text())]


class Schemas:
    """The schema of a kind: Kubernetes' own, strict, or that of the operator's custom resources.

    The operator's schemas refer to Kubernetes' definitions of an old version. These references are led to the strict
    definitions of a current one, and unknown keys are refused everywhere: a cluster would drop them without a word.
    """

    def __init__(self, version):
        pytest.importorskip("kubernetes_validate")
        pytest.importorskip("dask_kubernetes")
        folder = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
        name = next(p.name for p in folder.iterdir() if re.fullmatch(rf"v{version}\.\d+-local-strict", p.name))
        self.folder = folder / name
        self.definitions = json.loads((self.folder / "_definitions.json").read_text())["$defs"]
        self.operator = importlib.resources.files("dask_kubernetes") / "operator" / "customresources"
        self.templates = yaml.safe_load((self.operator / "templates.yaml").read_text())["definitions"]

    def of(self, document):
        kind = document["kind"]
        if document["apiVersion"].startswith("kubernetes.dask.org"):
            crd = yaml.safe_load((self.operator / f"{kind.lower()}.yaml").read_text())
            own = self.strict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
            names = {
                "apiVersion": {"const": f"{crd['spec']['group']}/v1"},
                "kind": {"const": crd["spec"]["names"]["kind"]},
            }
            meta = {"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            own["properties"] = {**own["properties"], **names, "metadata": meta}
            own["required"] = ["apiVersion", "kind", "metadata", "spec"]
        else:
            group = document["apiVersion"].replace("/", "-")
            own = self.local(json.loads((self.folder / f"{kind.lower()}-{group}.json").read_text()))
        own.pop("$id", None)
        return {**own, "$defs": self.local(self.definitions)}

    def strict(self, node):
        """Return a schema of the operator with its references resolved and unknown keys refused."""
        if isinstance(node, list):
            return [self.strict(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        if isinstance(node.get("$ref"), str):
            name = node["$ref"].rpartition("/")[2]
            return self.strict(self.templates[name]) if name in self.templates else {"$ref": f"#/$defs/{name}"}
        made = {key: self.strict(value) for key, value in node.items()}
        if isinstance(made.get("properties"), dict) and "type" in made and isinstance(made["type"], str):
            made["additionalProperties"] = False
        return made

    def local(self, node):
        """Lead references between files to the one place where the definitions are."""
        if isinstance(node, list):
            return [self.local(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        made = {key: self.local(value) for key, value in node.items()}
        # One definition has a property that is called $ref.
        if isinstance(made.get("$ref"), str):
            made["$ref"] = "#/$defs/" + made["$ref"].rpartition("/")[2]
        return made

    def faults(self, document):
        import jsonschema

        found = jsonschema.Draft202012Validator(self.of(document)).iter_errors(document)
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


@pytest.fixture(scope="module", params=VERSIONS)
def schemas(request):
    return Schemas(request.param)


@pytest.mark.parametrize(("name", "document"), documents(), ids=lambda value: value if isinstance(value, str) else "")
def test_kubernetes(schemas, name, document):
    assert schemas.faults(document) == []


def places(node, path=()):
    """Yield the path of every mapping key."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*path, key)
            yield from places(value, (*path, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from places(value, (*path, i))


# Below these a mapping may hold any name.
FREE = {"labels", "annotations", "limits", "requests", "matchLabels", "selector"}


@pytest.mark.parametrize(("name", "document"), documents(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_misspelt_key_is_found(name, document):
    schemas = Schemas(VERSIONS[-1])
    import jsonschema

    validator = jsonschema.Draft202012Validator(schemas.of(document))
    tried = 0
    for path in places(document):
        if FREE & set(path[:-1]):
            continue
        wrong = copy.deepcopy(document)
        node = wrong
        for word in path[:-1]:
            node = node[word]
        node[f"{path[-1]}x"] = node.pop(path[-1])
        assert not validator.is_valid(wrong), f"{'.'.join(map(str, path))}x goes unnoticed"
        tried += 1
    assert tried > 5


def test_kubernetes_validate_itself_takes_the_plain_kinds():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    plain = [document for _, document in documents() if "dask.org" not in document["apiVersion"]]
    assert {document["kind"] for document in plain} == {"Job", "PersistentVolumeClaim"}
    for document in plain:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


def test_pods_are_confined():
    """Every container of every manifest: no root, no privileges, no writable root, memory limited."""
    containers = []

    def walk(node):
        if isinstance(node, dict):
            for container in node.get("containers", ()):
                assert node["securityContext"]["runAsNonRoot"], container["name"]
                assert node["automountServiceAccountToken"] is False
                containers.append(container)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk([document for _, document in documents()])
    assert len(containers) == 7
    for container in containers:
        confined = container["securityContext"]
        assert confined["readOnlyRootFilesystem"]
        assert not confined["allowPrivilegeEscalation"]
        assert confined["capabilities"]["drop"] == ["ALL"]
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
@pytest.mark.parametrize("wrong", [False, True])
def test_compose(name, wrong, tmp_path):
    document = yaml.safe_load((DEPLOY / "compose" / name).read_text())
    if wrong:
        document["services"]["scheduler"]["enviroment"] = {}
    (tmp_path / name).write_text(yaml.safe_dump(document))
    schema = ["--builtin-schema", "vendor.compose-spec"]
    done = run(need("check-jsonschema"), *schema, str(tmp_path / name))
    assert (done.returncode != 0) == wrong, done.stdout
    assert ("enviroment" in done.stdout) == wrong


def test_dockerfile():
    done = run(need("hadolint"), str(DEPLOY / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_dockerfile_checks_our_ready_route_and_is_not_root():
    text = (DEPLOY / "Dockerfile").read_text()
    assert "/distsort/v1/ready" in text[text.index("HEALTHCHECK") :]
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]


@pytest.mark.parametrize("name", ["distsort-scheduler.service", "distsort-worker@.service"])
@pytest.mark.parametrize("wrong", [False, True])
def test_systemd(name, wrong, tmp_path):
    """The units, with a stand-in for the program that they start."""
    stand_in = tmp_path / "dask"
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    for unit in (DEPLOY / "systemd").glob("*.service"):
        text = unit.read_text().replace("/usr/local/lib/distsort/bin/dask", str(stand_in))
        (tmp_path / unit.name).write_text(text.replace("ProtectHome", "ProtectHoem") if wrong else text)
    done = run(need("systemd-analyze"), "verify", "--man=no", str(tmp_path / name.replace("@.", "@1.")))
    shown = [line for line in (done.stdout + done.stderr).splitlines() if str(tmp_path) in line or "distsort" in line]
    assert bool(shown) == wrong, shown
    if not wrong:
        assert done.returncode == 0, done.stderr


def test_environment_of_the_units():
    """Every variable that a unit uses is set in the environment file, and every key of distsort there exists."""
    from distsort import config

    text = (DEPLOY / "systemd" / "distsort.env").read_text()
    given = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    used = {
        name for unit in (DEPLOY / "systemd").glob("*.service") for name in re.findall(r"\$\{(\w+)\}", unit.read_text())
    }
    assert used <= set(given)
    everything = "".join(path.read_text() for path in DEPLOY.rglob("*") if path.is_file())
    keys = {
        key.lower().replace("__", ".").replace("_", "-") for key in re.findall(r"DASK_DISTSORT__([A-Z_]+)", everything)
    }
    assert keys
    assert keys <= set(config.keys())


def test_prometheus():
    promtool = need("promtool")
    folder = DEPLOY / "prometheus"
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = run(promtool, *command, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_use_metrics_that_exist():
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    source = (Path(__file__).parents[2] / "distsort" / "service" / "metrics.py").read_text()
    known = set(re.findall(r"distsort_\w+", source))
    known |= {"distsort_queue_oldest_seconds", "distsort_running_oldest_seconds"}
    known |= {f"{name}_total" for name in known}
    used = set(re.findall(r"distsort_\w+", rules))
    assert used
    assert used <= known


def test_scripts():
    scripts = [*(DEPLOY / "slurm").glob("*.sbatch"), Path(__file__).parent / "slurm.sh"]
    assert len(scripts) == 3
    done = run(need("shellcheck"), *map(str, scripts))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_readme_names_files_commands_and_settings_that_exist():
    from distsort import config
    from distsort.cli import COMMANDS

    text = (DEPLOY / "README.md").read_text()
    for name in set(re.findall(r"(?:slurm|kubernetes|compose|systemd|prometheus)/[\w@.-]+\.\w+", text)):
        assert (DEPLOY / name).is_file(), name
    used = re.findall(r"^ {4}(?:\S+=\S+ )*distsort (\w+)|`distsort (\w+)", text, re.MULTILINE)
    assert {a or b for a, b in used} <= set(COMMANDS)
    assert {f"service.{name}" for name in re.findall(r"`(?:distsort\.)?service\.([\w-]+)`", text)} <= set(config.keys())
    for path in sorted(path for path in DEPLOY.iterdir() if path.is_dir()):
        assert f"{path.name}/" in text, path.name
