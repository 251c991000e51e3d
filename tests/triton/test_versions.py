"""Conformance with every version of Triton on the list: the same kernels, compiled, checked and launched.

`./dev test` installs the versions below build/triton; one that is not there is skipped. Compiling checks each kernel's
parameters in PTX against those expected; loading on the null driver checks them again, in the machine code.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from null_driver import ROOT, NullDriver

import hardtack
from hardtack.codegen.backends.triton.compile import SUPPORTED
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.machine.data import CUDA_ARCHITECTURES, GPUS, gpu_of
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from tests.triton import version_models
from tests.triton.version_models import ENTRIES

FOLDER = ROOT / "build" / "triton"
WORKER = ROOT / "codegen" / "backends" / "triton" / "worker.py"


def installed(line: str) -> str:
    """The version of a line such as 3.7 that is there, or an empty text."""
    return max((p.name for p in FOLDER.glob(f"{line}.*") if (p / "done").exists()), default="")


KEPT = {"3.6": "gfx942", "3.7": "sm_80", "3.8": "sm_100", "3.9": "sm_90"}
"""Of each version one architecture, of each architecture one version: the rest is for a sweep. All other tests compile
for all architectures, with the version that is installed."""
BUILDS = [
    pytest.param((v, a), id=f"{v}-{a}", marks=() if KEPT.get(v) == a else pytest.mark.sweep(only=True))
    for v in SUPPORTED
    for a in GPUS
]


@dataclass(frozen=True)
class Built:
    """A bundle that a version of Triton compiled for an architecture, without any cache."""

    version: str
    arch: str
    path: Path


def _export(triton: Path, path: Path, arch: str) -> None:
    """Exports with the Triton of a folder, and with no cache: in a copy of this process, which has imported torch. Why
    it fails lies beside the bundle then."""
    torch.set_num_threads(1)
    os.environ["HARDTACK_CACHE"] = str(path.parent / "cache")
    sys.path.insert(0, str(triton))
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        del sys.modules[name]
    try:
        version_models.export(path, arch)
    except BaseException:
        path.with_suffix(".txt").write_text(traceback.format_exc(), encoding="utf-8")
        raise


@pytest.fixture(scope="module", params=BUILDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    line, arch = request.param
    version = installed(line)
    if not version:
        pytest.skip(f"no triton {line} below {FOLDER}: ./dev test installs it")
    folder = tmp_path_factory.mktemp("triton")
    path = folder / "m.pkg"
    child = multiprocessing.get_context("fork").Process(target=_export, args=(FOLDER / version, path, arch))
    child.start()
    child.join()
    failure = path.with_suffix(".txt")
    assert child.exitcode == 0, failure.read_text(encoding="utf-8") if failure.exists() else child.exitcode
    return Built(version, arch, path)


def records(path: Path, entry: str, arch: str) -> list[GpuKernel]:
    with open_bundle(path) as bundle:
        return [k.gpu for k in bundle.plan(entry, gpu_of(arch).target).kernels if k.gpu is not None]


def test_dev_installs_a_version_of_every_line() -> None:
    found = re.search(r"^readonly TRITONS=\((.*)\)$", (ROOT / "dev").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    assert tuple(v.rpartition(".")[0] for v in found[1].split()) == SUPPORTED


def test_every_version_and_architecture_has_its_turn() -> None:
    assert tuple(KEPT) == SUPPORTED
    assert set(KEPT.values()) == set(GPUS)


_WORKER_VERSION = """
import runpy, sys
sys.argv = sys.argv[1:]
print(runpy.run_path(sys.argv[0])["triton"].__version__)
"""


def test_the_worker_takes_the_version_that_was_chosen(built: Built) -> None:
    command = [sys.executable, "-I", "-c", _WORKER_VERSION, str(WORKER), str(FOLDER / built.version)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == built.version


def test_both_readers_accept_the_records(built: Built) -> None:
    with open_bundle(built.path) as bundle:
        assert bundle.manifest.producer["triton"] == built.version
    assert verify_bundle(built.path).num_plans == len(ENTRIES)
    command = [str(Path(sys.executable).parent / "hardtack-rt"), "verify", str(built.path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_kernels_are_those_meant(built: Built) -> None:
    """Each kind of argument and attribute is there where the architecture has it."""
    found = {entry: records(built.path, entry, built.arch) for entry in ENTRIES}
    assert all(found.values())
    assert any(k.maps for k in found["stream"]) == (built.arch in ("sm_90", "sm_100"))
    assert any(k.dependent for k in found["vector"]) == (built.arch in ("sm_90", "sm_100"))
    assert len(found["split"]) == 2
    assert [len(found[name]) for name in ("held_row", "walked_row", "siblings")] == [1, 1, 1]
    assert any(("status",) in [a[:1] for a in k.args] for k in found["gather"])
    for kernels in found.values():
        for k in kernels:
            assert [a[0] for a in k.args[-2:]] == ["scratch", "null"]


def test_they_are_launched(built: Built, driver: NullDriver) -> None:
    if built.arch not in CUDA_ARCHITECTURES:
        pytest.skip("Hardtack runs nothing on GPUs of AMD")
    driver.set("ARCH", built.arch.removeprefix("sm_"))
    model = hardtack.load(built.path, device="cuda", cuda_driver=driver.path)
    assert model.target == f"cuda:{built.arch}"
    for entry, (_, args) in ENTRIES.items():
        session = model.session(entry)
        driver.log()
        for _ in range(3):
            session(*args)
        seen = {line.split()[1] for line in driver.log() if line.startswith("launch ")}
        assert seen == {k.function for k in records(built.path, entry, built.arch)}
        assert session.memory["num_graphs"] == 1
