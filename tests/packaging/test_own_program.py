"""Hardtack in a program of one's own: find_package, pkg-config and add_subdirectory, each as far as a run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
PRINTED = "0.1.0: 1 2 3\n"

pytestmark = pytest.mark.slow


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    given = None if environment is None else os.environ | environment
    result = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def configure(build: Path, *options: str) -> None:
    run("cmake", "-G", "Ninja", "-S", PROGRAMS, "-B", build, *options)


def test_find_package(prefix: Path, bundle: Path, tmp_path: Path) -> None:
    configure(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=0.1")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "run", bundle) == PRINTED


def test_find_package_refuses_another_minor_version(prefix: Path, tmp_path: Path) -> None:
    command = ["cmake", "-G", "Ninja", "-S", PROGRAMS, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=0.2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "compatible with requested version" in result.stderr


def test_pkg_config(prefix: Path, bundle: Path, tmp_path: Path) -> None:
    (pc,) = prefix.rglob("hardtack.pc")
    environment = {"PKG_CONFIG_PATH": str(pc.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "hardtack", environment=environment).split()
    libdir = run("pkg-config", "--variable=libdir", "hardtack", environment=environment).strip()
    assert run("pkg-config", "--modversion", "hardtack", environment=environment) == "0.1.0\n"
    run("g++", "-std=c++17", PROGRAMS / "run.cpp", "-o", tmp_path / "run", *flags, f"-Wl,-rpath,{libdir}")
    assert run(tmp_path / "run", bundle) == PRINTED


@pytest.mark.parametrize(("libdir", "up"), [("lib", "../.."), ("lib/x86_64-linux-gnu", "../../..")])
def test_pkg_config_finds_its_prefix_wherever_libraries_lie(libdir: str, up: str, tmp_path: Path) -> None:
    options = [f"-DCMAKE_INSTALL_LIBDIR={libdir}", "-DHARDTACK_TOOLS=OFF"]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *options)
    lines = (tmp_path / "runtime_cpp" / "hardtack.pc").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [f"prefix=${{pcfiledir}}/{up}", f"libdir=${{prefix}}/{libdir}"]


def test_add_subdirectory(bundle: Path) -> None:
    """Kept between runs: it compiles the runtime. Nothing but the library is built, and nothing installed."""
    build = ROOT / "build" / "packaging"
    configure(build, f"-DHARDTACK_SOURCE={ROOT}", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", build, "-j", str(len(os.sched_getaffinity(0))))
    assert run(build / "run", bundle) == PRINTED
    assert not list(build.rglob("hardtack-rt"))
    installs = (build / "hardtack" / "runtime_cpp" / "cmake_install.cmake").read_text(encoding="utf-8")
    assert "file(INSTALL" not in installs
