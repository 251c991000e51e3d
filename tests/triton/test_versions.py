"""Conformance with every version of Triton on the list: the same kernels, compiled, checked and launched.

`./dev test` installs the versions below build/triton; one that is not there is skipped. Compiling checks each kernel's
parameters in PTX against those expected; loading on the null driver checks them again, in the machine code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from null_driver import ROOT, NullDriver

import hardtack
from hardtack.codegen.backends.triton.compile import SUPPORTED
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.machine.data import CUDA_ARCHITECTURES, GPUS, gpu_of
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from tests.triton.version_models import ENTRIES

FOLDER = ROOT / "build" / "triton"
WORKER = ROOT / "codegen" / "backends" / "triton" / "worker.py"


def installed(line: str) -> str:
    """The version of a line such as 3.7 that is there, or an empty text."""
    return max((p.name for p in FOLDER.glob(f"{line}.*") if (p / "done").exists()), default="")


@pytest.fixture(scope="module", params=SUPPORTED)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """(version, a bundle that it compiled for every architecture, without any cache)."""
    version = installed(str(request.param))
    if not version:
        pytest.skip(f"no triton {request.param} below {FOLDER}: ./dev test installs it")
    folder = tmp_path_factory.mktemp("triton")
    path = folder / "m.pkg"
    paths = os.pathsep.join([str(FOLDER / version), str(ROOT)])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}  # other tests interpret
    environment |= {"PYTHONPATH": paths, "HARDTACK_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "tests.triton.version_models", str(path), *GPUS]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return version, path


def records(path: Path, entry: str, arch: str) -> list[GpuKernel]:
    with open_bundle(path) as bundle:
        return [k.gpu for k in bundle.plan(entry, gpu_of(arch).target).kernels if k.gpu is not None]


def test_dev_installs_a_version_of_every_line() -> None:
    found = re.search(r"^readonly TRITONS=\((.*)\)$", (ROOT / "dev").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert tuple(v.rpartition(".")[0] for v in found[1].split()) == SUPPORTED


_WORKER_VERSION = """
import runpy, sys
sys.argv = sys.argv[1:]
print(runpy.run_path(sys.argv[0])["triton"].__version__)
"""


def test_the_worker_takes_the_version_that_was_chosen(built: tuple[str, Path]) -> None:
    version, _ = built
    command = [sys.executable, "-I", "-c", _WORKER_VERSION, str(WORKER), str(FOLDER / version)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == version


def test_both_readers_accept_the_records(built: tuple[str, Path]) -> None:
    version, path = built
    with open_bundle(path) as bundle:
        assert bundle.manifest.producer["triton"] == version
    assert verify_bundle(path).num_plans == len(ENTRIES) * len(GPUS)
    command = [str(Path(sys.executable).parent / "hardtack-rt"), "verify", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arch", GPUS)
def test_the_kernels_are_those_meant(built: tuple[str, Path], arch: str) -> None:
    """Each kind of argument and attribute is there where the architecture has it."""
    _, path = built
    found = {entry: records(path, entry, arch) for entry in ENTRIES}
    assert all(found.values())
    assert any(k.maps for k in found["stream"]) == (arch in ("sm_90", "sm_100"))
    assert any(k.dependent for k in found["vector"]) == (arch in ("sm_90", "sm_100"))
    assert len(found["split"]) == 2
    assert [len(found[name]) for name in ("held_row", "walked_row", "siblings")] == [1, 1, 1]
    assert any(("status",) in [a[:1] for a in k.args] for k in found["gather"])
    for kernels in found.values():
        for k in kernels:
            assert [a[0] for a in k.args[-2:]] == ["scratch", "null"]


@pytest.mark.parametrize("arch", CUDA_ARCHITECTURES)
def test_they_are_launched(built: tuple[str, Path], arch: str, driver: NullDriver) -> None:
    _, path = built
    driver.set("ARCH", arch.removeprefix("sm_"))
    model = hardtack.load(path, device="cuda", cuda_driver=driver.path)
    assert model.target == f"cuda:{arch}"
    for entry, (_, args) in ENTRIES.items():
        session = model.session(entry)
        driver.log()
        for _ in range(3):
            session(*args)
        seen = {line.split()[1] for line in driver.log() if line.startswith("launch ")}
        assert seen == {k.function for k in records(path, entry, arch)}
        assert session.memory["num_graphs"] == 1
