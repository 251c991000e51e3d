"""The manifests of deploy/ against the schemas of Kubernetes and KServe, and against what hardtack-server takes."""

from __future__ import annotations

import hashlib
import importlib
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import served
import serving_bundles
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from hardtack.codegen.package import signing

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = ROOT / "build" / "deploy"
KUBERNETES = "1.37"
FILES = sorted((ROOT / "deploy").rglob("*.yaml"))
SCALARS = {"str": str, "int": int, "bool": bool, "float": float, "object": object}


@pytest.fixture(scope="module")
def schemas() -> Iterator[Path]:
    """The packages with the schemas, below build/; they come last on sys.path and hide nothing."""
    requirements, stamp = ROOT / "requirements" / "deploy.txt", SCHEMAS / "requirements.stamp"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(SCHEMAS, ignore_errors=True)
        options = ["-q", "-q", "--no-deps", "--no-compile", "--target", str(SCHEMAS)]
        command = [sys.executable, "-m", "pip", "install", *options, "-r", str(requirements)]
        if subprocess.run(command, check=False).returncode != 0:
            pytest.skip("the schemas of requirements/deploy.txt cannot be installed")
        stamp.write_text(wanted)
    before = set(sys.modules)
    sys.path.append(str(SCHEMAS))
    # the packages themselves import all that a running server and client need; only single models are wanted
    for name in ("kserve", "kserve.models"):
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [str(SCHEMAS / name.replace(".", "/"))]
    yield SCHEMAS
    sys.path.remove(str(SCHEMAS))
    for name in set(sys.modules) - before:
        if name.startswith("kserve"):
            del sys.modules[name]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def check_all(found: list[dict[str, Any]]) -> None:
    for document in found:
        check(document)


def check(document: dict[str, Any]) -> None:
    """Raises for a document that the schema of its kind does not allow; unknown fields are not allowed."""
    group, _, version = document["apiVersion"].rpartition("/")
    if group == "serving.kserve.io":
        check_kserve(version.capitalize() + document["kind"], document, document["kind"])
    else:
        importlib.import_module("kubernetes_validate").validate(document, KUBERNETES, strict=True)


def check_kserve(kind: str, value: Any, where: str) -> None:
    """A value against a type as KServe's models name them: str, dict(str, int), list[X], X."""
    if kind in SCALARS:
        good = isinstance(value, SCALARS[kind]) and (kind in ("bool", "object") or not isinstance(value, bool))
        assert good, f"{where} is {value!r}, which is no {kind}"
    elif kind.startswith("list["):
        assert isinstance(value, list), f"{where} is no list"
        for i, item in enumerate(value):
            check_kserve(kind[5:-1], item, f"{where}[{i}]")
    elif kind.startswith("dict("):
        for key, item in value.items():
            check_kserve(kind[5:-1].split(", ")[1], item, f"{where}.{key}")
    elif kind in OF_KUBERNETES:
        importlib.import_module("kubernetes_validate").validate(OF_KUBERNETES[kind](value), KUBERNETES, strict=True)
    else:
        check_model(kind, value, where)


def check_model(kind: str, value: dict[str, Any], where: str) -> None:
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower()
    model = getattr(importlib.import_module(f"kserve.models.{file}"), kind)
    fields = {json: (name, model.openapi_types[name]) for name, json in model.attribute_map.items()}
    given = {}
    for key, item in value.items():
        assert key in fields, f"{where} has no field {key!r}"
        name, field_kind = fields[key]
        check_kserve(field_kind, item, f"{where}.{key}")
        given[name] = item
    model(**given)  # refuses when one that is required is missing


def pod(container: dict[str, Any], **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "x", **container}], **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


# Types of Kubernetes that KServe's kinds contain, in a document of Kubernetes that has the same.
OF_KUBERNETES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "V1Container": pod,
    "V1PodSecurityContext": lambda value: pod({}, securityContext=value),
    "V1Volume": lambda value: pod({}, volumes=[value]),
    "V1VolumeMount": lambda value: pod({"volumeMounts": [value]}),
    "V1ResourceRequirements": lambda value: pod({"resources": value}),
    "V1ObjectMeta": lambda value: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": value},
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT / "deploy").as_posix())
def test_manifests_are_what_their_schemas_allow(schemas: Path, path: Path) -> None:
    found = documents(path)
    assert found
    check_all(found)


def changed(path: Path, old: str, new: str) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    return list(yaml.safe_load_all(text.replace(old, new)))


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("kubernetes/hardtack-server.yaml", "minReplicas: 2", "minReplica: 2", "minReplica"),
        ("kubernetes/hardtack-server.yaml", "failureThreshold: 150", "failureThreshold: often", "often"),
        ("kserve/serving-runtime.yaml", "autoSelect: true", "autoSelected: true", "no field 'autoSelected'"),
        ("kserve/inference-service.yaml", 'modelFormat: {name: hardtack, version: "1"}', "args: []", "model_format"),
        ("kserve/serving-runtime.yaml", "containerPort: 8000", "port: 8000", "port"),
        ("kserve/inference-service.yaml", "maxReplicas: 4", "maxReplicas: four", "is no int"),
        ("kserve/inference-service.yaml", "requests: {cpu", "request: {cpu", "request"),
        ("kserve/inference-service.yaml", "secretName: hardtack-access", "name: hardtack-access", "name"),
        ("kserve/inference-service.yaml", "mountPath:", "path:", "path"),
        ("access/secret.yaml", "stringData:", "strings:", "strings"),
    ],
)
def test_mistakes_are_found(schemas: Path, file: str, old: str, new: str, complaint: str) -> None:
    found = changed(ROOT / "deploy" / file, old, new)
    with pytest.raises(Exception, match=re.escape(complaint)):
        check_all(found)


# --- the server as its manifests run it ---

SECRET = documents(ROOT / "deploy" / "access" / "secret.yaml")[0]
TOKENS = {"app": "app-secret-0123456789", "prometheus": "prometheus-secret-0123"}


def container_of(file: str) -> dict[str, Any]:
    """What is run: for KServe the runtime's container, with what the InferenceService adds."""
    document = documents(ROOT / "deploy" / file)[0]
    (container,) = document["spec"].get("template", document)["spec"]["containers"]
    if file.startswith("kserve"):
        model = documents(ROOT / "deploy" / "kserve" / "inference-service.yaml")[0]["spec"]["predictor"]["model"]
        container = container | {"args": container["args"] + model["args"], "volumeMounts": model["volumeMounts"]}
    return dict(container)


def options_of(container: dict[str, Any], access: Path) -> list[str]:
    """Its arguments without folder and ports, and with `access` in the place of the mounted Secret."""
    folder, *options = container["args"]
    assert folder in ("/models", "/mnt/models")
    mount = next(m["mountPath"] for m in container["volumeMounts"] if m["name"] == "access")
    given = [option for option in options if not re.match("--(http|grpc)-port=", option)]
    return [option.replace(f"={mount}/", f"={access}/") for option in given]


def filled_in(folder: Path) -> Ed25519PrivateKey:
    """The Secret's files as a user makes them of deploy/access/secret.yaml."""
    key = Ed25519PrivateKey.generate()
    tokens, keys = (SECRET["stringData"][name] for name in ("tokens", "trusted-keys"))
    for name, token in TOKENS.items():
        tokens, count = re.subn(rf"(?m)^({name} +)FILL-ME-IN", rf"\g<1>{token}", tokens)
        assert count == 1
    (folder / "tokens").write_text(tokens)
    (folder / "trusted-keys").write_text(keys.replace("FILL-ME-IN", signing.public_bytes(key).hex()))
    return key


@pytest.mark.slow
@pytest.mark.parametrize("bundle", ["good", "bad", "unsigned"])
@pytest.mark.parametrize("file", ["kubernetes/hardtack-server.yaml", "kserve/serving-runtime.yaml"])
def test_the_server_runs_and_its_probes_answer(file: str, bundle: str, tmp_path: Path) -> None:
    """As its manifest has it, but for folders and ports. A bad bundle makes pods unready, and restarts none."""
    models = tmp_path / "models"
    serving_bundles.put(serving_bundles.spin(), models / "spin.pkg")
    key = filled_in(tmp_path)
    if bundle == "good":
        signing.sign_bundle(models / "spin.pkg", key, release=signing.Release("spin", 1))
    if bundle == "bad":
        (models / "spin.pkg").write_bytes(b"no bundle")
    container = container_of(file)
    with served.Server(served.build_program(), models, *options_of(container, tmp_path), ready=False) as server:
        server.told("model loaded" if bundle == "good" else "load failed")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            assert asked["port"] in ("http", 8000)
            status = server.get(asked["path"]).status
            assert status == (503 if probe == "readinessProbe" and bundle != "good" else 200), probe
        for path, name in (("/v2/models/spin", "app"), ("/metrics", "prometheus")):
            headers = {"Authorization": f"Bearer {TOKENS[name]}"}
            assert server.get(path).status == 401
            assert server.request("GET", path, headers=headers).status == (
                400 if name == "app" and bundle != "good" else 200
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tokens", "line 2: a token has from 16 to 512 characters"),
        ("trusted-keys", "line 2: expected a public key of 64 hexadecimal digits, or the name of a model and its"),
    ],
)
def test_a_secret_that_was_not_filled_in_is_refused(name: str, why: str, tmp_path: Path) -> None:
    filled_in(tmp_path)
    (tmp_path / name).write_text(SECRET["stringData"][name])
    options = options_of(container_of("kubernetes/hardtack-server.yaml"), tmp_path)
    command = [served.build_program(), tmp_path, "--http-port=0", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert why in done.stderr


@pytest.mark.parametrize("file", ["kubernetes/hardtack-server.yaml", "kserve/inference-service.yaml"])
def test_the_secret_is_where_the_options_look(file: str) -> None:
    document = documents(ROOT / "deploy" / file)[0]
    pod_spec = document["spec"]["template"]["spec"] if "template" in document["spec"] else document["spec"]["predictor"]
    container = pod_spec["containers"][0] if "containers" in pod_spec else pod_spec["model"]
    (volume,) = (v["secret"] for v in pod_spec["volumes"] if v["name"] == "access")
    (mount,) = (m for m in container["volumeMounts"] if m["name"] == "access")
    assert volume["secretName"] == SECRET["metadata"]["name"]
    assert (volume["defaultMode"], pod_spec["securityContext"]["fsGroup"]) == (0o440, 65532)
    assert "subPath" not in mount  # what is mounted so does not follow the Secret
    looked = {a.split("=")[1] for a in container["args"] if a.startswith(("--tokens=", "--trusted-keys="))}
    assert looked == {f"{mount['mountPath']}/{name}" for name in SECRET["stringData"]}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT / "deploy").as_posix())
def test_the_server_takes_the_options(path: Path) -> None:
    known = set(re.findall(r'"!?(--[a-z-]+)"', (ROOT / "server" / "command_line.cpp").read_text(encoding="utf-8")))
    text = path.read_text(encoding="utf-8")
    given = set(re.findall(r"^ +- (--[a-z-]+)", text, re.MULTILINE))
    assert given <= known
    assert given or path.name == "secret.yaml"
    pages = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    for asked in re.findall(r"path: (/[\w/]+), port", text):
        assert f"`{asked}`" in pages
