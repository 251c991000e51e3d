"""deploy/Dockerfile without Docker: its build stage configures, and the server runs on what it gathers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from filelock import FileLock
from served import Server, build_program
from serving_bundles import put, spin

from tests.support.builds import RELEASE, bring_up_to_date

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
USER = "65532"


def instructions() -> list[tuple[str, str]]:
    """The words of the Dockerfile and what follows them, continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r" *\\\n *", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def arguments(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def run(*command: str | Path) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def sent(tmp_path: Path) -> Path:
    """What `docker build` sends of the project: what .dockerignore leaves."""
    context = tmp_path / "context"
    everything, *patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()[1:]
    assert everything == "*"
    for pattern in patterns:
        source = ROOT / pattern.lstrip("!")
        target = context / source.relative_to(ROOT)
        assert source.exists(), pattern
        if not pattern.startswith("!"):
            shutil.rmtree(target)
        elif source.is_dir():
            shutil.copytree(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return context


def words(name: str) -> set[str]:
    """A list of ./dev."""
    text = (ROOT / "dev").read_text(encoding="utf-8")
    return set(re.findall(rf"^readonly {name}=\(([^)]*)\)", text, re.MULTILINE)[0].split())


def test_its_packages_are_those_that_the_tests_build_the_server_with() -> None:
    (installed,) = [rest for rest in arguments("RUN") if "apt-get install" in rest]
    packages = set(re.findall(r"--no-install-recommends ([^&]*)", installed)[0].split())
    assert packages == words("APT_SERVING") - {"doxygen", "golang-go"} | {"g++", "cmake", "ninja-build"}
    assert packages <= words("APT_SERVING") | words("APT_PACKAGES")


@pytest.mark.slow
def test_the_build_stage_configures(tmp_path: Path) -> None:
    """With what is sent and copied and no more; and it names targets that there are."""
    context = sent(tmp_path)
    for rest in arguments("COPY"):
        source, target = rest.split()[-2:]
        if rest.startswith("--from"):
            continue
        to = tmp_path / target.lstrip("/")
        to = to / source.rpartition("/")[2] if target.endswith("/") else to
        to.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (context / source).is_dir() else shutil.copy)(context / source, to)
    (steps,) = [rest for rest in arguments("RUN") if "cmake --build" in rest]
    configure, build, install = (re.sub(r"(?<= )/", f"{tmp_path}/", step).split() for step in steps.split(" && "))
    run(*configure)
    assert "hardtack-server" in run(*build, "--", "-n")
    component = install[install.index("--component") + 1]
    assert f'"{component}"' in (tmp_path / "build" / "server" / "cmake_install.cmake").read_text(encoding="utf-8")
    gather = next(rest for rest in arguments("RUN") if "gather" in rest).split()[1]
    assert (tmp_path / gather.lstrip("/")).exists()


def test_the_manifests_fit_the_image() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert arguments("USER") == [f"{USER}:{USER}"]
    assert arguments("ENTRYPOINT") == ['["hardtack-server"]']
    assert arguments("ENV") == ["PATH=/usr/local/bin"]
    assert f"-t hardtack-server:{version} " in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for name in ("kubernetes/hardtack-server.yaml", "kserve/serving-runtime.yaml"):
        document = next(iter(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8"))))
        pod = document["spec"].get("template", document)["spec"]
        (container,) = pod["containers"]
        assert container["image"].endswith(f"/hardtack-server:{version}")
        assert container["command"] == ["hardtack-server"]
        assert pod.get("securityContext", {}).get("runAsUser", int(USER)) == int(USER)
        assert {str(p["containerPort"]) for p in container["ports"]} <= set(arguments("EXPOSE")[0].split())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the image, of the release build: the program as installed, and what gather_libraries.sh adds."""
    build = build_program().parents[1]
    if not (build / "build.ninja").exists():
        pytest.skip("HARDTACK_SERVER_PROGRAM names a program that was built elsewhere")
    bring_up_to_date("hardtack-rt")  # of the component with the library, too
    root = tmp_path_factory.mktemp("image") / "root"
    with FileLock(RELEASE.with_suffix(".lock")):
        for component in ("server", "development"):
            run("cmake", "--install", build, "--component", component, "--strip", "--prefix", root / "usr" / "local")
    run("sh", DEPLOY / "gather_libraries.sh", root, root / "usr" / "local" / "bin" / "hardtack-server")
    (root / "proc").mkdir()
    for folder in (root, *root.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)
    return root


@pytest.mark.slow
def test_the_server_needs_no_other_file(root: Path, tmp_path: Path) -> None:
    """With that folder as the root of all that it sees it loads a bundle, answers, and stops."""
    put(spin(), root / "models" / "spin.pkg")
    (root / "models" / "spin.pkg").chmod(0o644)
    program = tmp_path / "hardtack-server"
    as_root, user = ("", f"--userspec={USER}:{USER}") if os.getuid() == 0 else ("--map-root-user", "")
    # as containers have it: without /proc neither kernels nor a library beside a program are found
    mount = ["unshare", *as_root.split(), "--mount", "sh", "-c", f'mount --rbind /proc "{root}/proc"']
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let one mount /proc elsewhere")
    mount[-1] += f' && exec chroot {user} "{root}" /usr/local/bin/hardtack-server "$@"'
    program.write_text(f'#!/bin/sh\nexec {shlex.join(mount)} hardtack-server "$@"\n')
    program.chmod(0o755)
    with Server(program, Path("/models")) as server:
        answer = server.infer("spin", np.ones((2, 4), np.float32))
        assert answer.status == 200, answer.body
        assert server.grpc_port > 0


@pytest.mark.slow
def test_libraries_come_with_their_licences_and_records(root: Path) -> None:
    packages = {p.name for p in (root / "var" / "lib" / "dpkg" / "status.d").iterdir()}
    assert {"libc6", "libstdc++6", "libssl3", "zlib1g", "libgrpc++1.51"} <= packages
    for package in packages:
        assert (root / "usr" / "share" / "doc" / package / "copyright").stat().st_size > 0
        record = (root / "var" / "lib" / "dpkg" / "status.d" / package).read_text(encoding="utf-8")
        assert record.startswith(f"Package: {package}\n")
        assert "\nVersion: " in record
    assert {p.name for p in (root / "usr" / "local" / "bin").iterdir()} == {"hardtack-server", "hardtack-rt"}
    assert not (root / "bin").exists()


def test_a_library_that_is_missing_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int x(void) { return 1; }\n")
    (tmp_path / "main.c").write_text("int x(void);\nint main(void) { return x(); }\n")
    run("gcc", "-shared", "-o", tmp_path / "libhidden.so", tmp_path / "x.c")
    run("gcc", "-o", tmp_path / "main", tmp_path / "main.c", f"-L{tmp_path}", "-lhidden")
    command = ["sh", DEPLOY / "gather_libraries.sh", tmp_path / "root", tmp_path / "main"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("gather_libraries.sh: a library is missing: ")
    assert "libhidden.so => not found" in result.stderr
    assert not (tmp_path / "root").exists()
