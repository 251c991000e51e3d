"""Hardtack in a program of one's own, in C++ and C: find_package, pkg-config, add_subdirectory, as far as a run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
PRINTED = "0.1.0: 1 2 3\n"
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wundef"]

pytestmark = pytest.mark.slow


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    given = None if environment is None else os.environ | environment
    result = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def configure(build: Path, *options: str) -> None:
    run("cmake", "-G", "Ninja", "-S", PROGRAMS, "-B", build, *options)


def needs_hardtack(program: Path) -> bool:
    """Whether the program takes the runtime from a shared library."""
    return "libhardtack.so.0.1" in run("readelf", "--dynamic", "--wide", program)


def check_pkg_config(prefix: Path, bundle: Path, build: Path, shared: bool) -> None:
    """Builds run.cpp and run.c with nothing but what pkg-config says."""
    (pc,) = prefix.rglob("hardtack.pc")
    environment = {"PKG_CONFIG_PATH": str(pc.parent)}
    flags = run("pkg-config", "--cflags", "--libs", "hardtack", environment=environment).split()
    libdir = run("pkg-config", "--variable=libdir", "hardtack", environment=environment).strip()
    assert run("pkg-config", "--modversion", "hardtack", environment=environment) == "0.1.0\n"
    for compiler, source in (["g++", "-std=c++17"], "run.cpp"), (["gcc", "-std=c11"], "run.c"):
        run(*compiler, PROGRAMS / source, "-o", build / source[4:], *flags, f"-Wl,-rpath,{libdir}")
        assert run(build / source[4:], bundle) == PRINTED
        assert needs_hardtack(build / source[4:]) == shared


def test_find_package(prefix: Path, bundle: Path, tmp_path: Path) -> None:
    configure(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=0.1")
    run("cmake", "--build", tmp_path)
    for program in ("run", "run_c"):
        assert run(tmp_path / program, bundle) == PRINTED
        assert needs_hardtack(tmp_path / program)


def test_find_package_in_a_project_without_cxx(prefix: Path, bundle: Path, tmp_path: Path) -> None:
    configure(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DLANGUAGES_WANTED=C")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "run_c", bundle) == PRINTED


def test_find_package_refuses_another_minor_version(prefix: Path, tmp_path: Path) -> None:
    command = ["cmake", "-G", "Ninja", "-S", PROGRAMS, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", "-DWANTED=0.2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "compatible with requested version" in result.stderr


def test_pkg_config(prefix: Path, bundle: Path, tmp_path: Path) -> None:
    check_pkg_config(prefix, bundle, tmp_path, shared=True)


@pytest.mark.parametrize(("libdir", "up"), [("lib", "../.."), ("lib/x86_64-linux-gnu", "../../..")])
def test_pkg_config_finds_its_prefix_wherever_libraries_lie(libdir: str, up: str, tmp_path: Path) -> None:
    options = [f"-DCMAKE_INSTALL_LIBDIR={libdir}", "-DHARDTACK_TOOLS=OFF"]
    run("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *options)
    lines = (tmp_path / "runtime_cpp" / "hardtack.pc").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [f"prefix=${{pcfiledir}}/{up}", f"libdir=${{prefix}}/{libdir}"]


def build_from_source(*options: str) -> Path:
    """The programs with the source tree as a part of their build; kept between runs: it compiles the runtime."""
    build = ROOT / "build" / "packaging"
    fast = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DHARDTACK_UNITY=ON")
    configure(build, f"-DHARDTACK_SOURCE={ROOT}", *fast, *options)
    run("cmake", "--build", build, "-j", str(len(os.sched_getaffinity(0))))
    return build


def test_add_subdirectory(bundle: Path) -> None:
    """Nothing but the library is built, and nothing installed."""
    build = build_from_source("-DHARDTACK_SHARED=ON", "-DHARDTACK_INSTALL=OFF")
    for program in ("run", "run_c"):
        assert run(build / program, bundle) == PRINTED
        assert needs_hardtack(build / program)
    assert not list(build.rglob("hardtack-rt"))
    installs = (build / "hardtack" / "runtime_cpp" / "cmake_install.cmake").read_text(encoding="utf-8")
    assert "file(INSTALL" not in installs


def test_a_static_library(bundle: Path, tmp_path: Path) -> None:
    """As a part of a build, and installed: a program has the runtime inside, also in a project that knows no C++."""
    build = build_from_source("-DHARDTACK_SHARED=OFF", "-DHARDTACK_INSTALL=ON")
    for program in ("run", "run_c"):
        assert run(build / program, bundle) == PRINTED
        assert not needs_hardtack(build / program)
    prefix = tmp_path / "prefix"
    run("cmake", "--install", build, "--component", "development", "--prefix", prefix)
    check_pkg_config(prefix, bundle, tmp_path, shared=False)
    for languages in ("C;CXX", "C"):
        installed = tmp_path / languages.replace(";", "")
        configure(installed, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DLANGUAGES_WANTED={languages}")
        run("cmake", "--build", installed)
        programs = ["run_c", "run"][: languages.count("C")]
        assert [run(installed / program, bundle) for program in programs] == [PRINTED] * len(programs)


def test_build_shared_libs_is_followed_inside_another_project(tmp_path: Path) -> None:
    configure(tmp_path, f"-DHARDTACK_SOURCE={ROOT}", "-DBUILD_SHARED_LIBS=OFF")
    assert "HARDTACK_SHARED:BOOL=OFF\n" in (tmp_path / "CMakeCache.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("standard", ["c99", "c11", "c17", "c2x", "c++17", "c++20", "c++2b"])
@pytest.mark.parametrize("family", ["gcc", "clang"])
def test_the_headers_give_no_warning(family: str, standard: str) -> None:
    """Seen as one's own, not as a system's header."""
    plus, source = (True, "run.cpp") if "++" in standard else (False, "run.c")
    compiler = {"gcc": "g++", "clang": "clang++"}[family] if plus else family
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    include = ROOT / "runtime_cpp" / "include"
    run(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", f"-I{include}", PROGRAMS / source)
