"""The wheel as users get it: in an environment of its own, without torch, away from the source tree."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What running a bundle needs besides Hardtack: numpy, and click and rich with what they need.
DEPENDENCIES = ("numpy", "click", "rich", "markdown-it-py", "mdurl", "pygments")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run([sys.executable, "-m", *command, "-C", "build-dir=build/python"], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and its dependencies, which are linked from here: no network is needed."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = next((venv / "lib").glob("python*/site-packages"))
    for name in DEPENDENCIES:
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            (site / top).symlink_to(str(distribution.locate_file(top)))
    install = ["pip", "--python", venv / "bin" / "python", "install", "--quiet", "--no-deps", wheel]
    subprocess.run([sys.executable, "-m", *install], check=True)
    return venv


def run(command: list[str | Path], cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    result = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_what_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for wanted in (
        "hardtack/__init__.py",
        "hardtack/exporter/__init__.py",
        "hardtack/codegen/package/bundle.py",
        "hardtack/codegen/templates/cpp/simd.h",
        "hardtack/codegen/templates/cpp/support.cpp",
        "hardtack/include/hardtack/kernel_abi.h",
        "hardtack/include/hardtack/hardtack.hpp",
    ):
        assert wanted in names
    assert [n for n in names if n.startswith("hardtack/lib/")] == ["hardtack/lib/libhardtack.so.0.1"]
    assert any(n.startswith("hardtack/_native.") for n in names)
    assert any(n.endswith(".data/scripts/hardtack-rt") for n in names)
    assert not [
        n
        for n in names
        if n.endswith((".pyc", ".pkg")) or n.startswith(("tests", "bench", "build", "examples", "server"))
    ]


def test_load_and_run_without_torch(environment: Path, bundle: Path, tmp_path: Path) -> None:
    program = (
        "import sys, numpy, hardtack; model = hardtack.load(sys.argv[1]); "
        "print(model.session('copy')(numpy.ones(3, 'f')).tolist(), hardtack.__file__)"
    )
    printed = run([environment / "bin" / "python", "-c", program, bundle], tmp_path)
    assert printed.startswith("[1.0, 1.0, 1.0] ")
    assert str(environment) in printed


def test_loading_takes_numpy_and_nothing_else(environment: Path, bundle: Path, tmp_path: Path) -> None:
    program = (
        "import sys, importlib.util; sys.modules.update(click=None, rich=None); import numpy, hardtack; "
        "session = hardtack.load(sys.argv[1]).session('forward'); session(numpy.ones((2, 4), 'f')); "
        "print(importlib.util.find_spec('torch'), [n for n in ('click', 'rich') if sys.modules[n]])"
    )
    assert run([environment / "bin" / "python", "-c", program, bundle], tmp_path) == "None []\n"


def test_the_commands(environment: Path, bundle: Path, tmp_path: Path) -> None:
    assert " is sound: " in run([environment / "bin" / "hardtack", "verify", bundle], tmp_path)
    assert "0.1.0" in run([environment / "bin" / "hardtack", "--version"], tmp_path)
    assert "forward" in run([environment / "bin" / "hardtack-rt", "inspect", bundle], tmp_path)


def test_export_says_that_torch_is_missing(environment: Path, tmp_path: Path) -> None:
    program = "import hardtack\ntry:\n  hardtack.export\nexcept ImportError as error:\n  print(error)"
    printed = run([environment / "bin" / "python", "-c", program], tmp_path)
    assert printed == "exporting needs torch; to install it: pip install 'hardtack[export]'\n"


def test_kernels_compile_with_the_headers_of_the_wheel(environment: Path, tmp_path: Path) -> None:
    program = (
        "from hardtack.codegen.backends.cpp.toolchain import include_dirs; "
        "print([(d / f).is_file() for d, f in zip(include_dirs(), ('simd.h', 'hardtack/kernel_abi.h'))])"
    )
    assert run([environment / "bin" / "python", "-c", program], tmp_path) == "[True, True]\n"
