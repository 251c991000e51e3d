"""The C++ compilers that Hardtack can build kernels with, and their flags.

The default is the clang inside the ``ziglang`` package from PyPI: pinned, the same on every machine, able to compile
for every target. Its ``clang`` and ``ld.lld`` commands are used directly: ``zig c++`` on top of them costs 10 ms more a
call, wants a cache of its own, and some versions build a libc before the first link.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardtack.codegen.machine.blocking import macros
from hardtack.codegen.machine.machine import Cpu

# Of 0.13 to 0.17, the fastest to compile with. 0.17.0 (clang 22.1.8) miscompiles narrowing vector stores under a
# constant mask of one lane; simd.h works around it, and around it only.
ZIG_REQUIREMENT = "ziglang==0.16.0"

_COMMON_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-ffreestanding",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-stack-protector",
    "-fno-strict-aliasing",  # arenas are bytes, seen as the types that their buffers have
    "-fwrapv",  # integers wrap
    "-ffp-contract=off",  # a*b+c is fused where the source says fma, and nowhere else, whatever the compiler
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fomit-frame-pointer",
    "-fno-ident",
    "-ffunction-sections",
    "-w",  # the sources are generated and tested; a user cannot act on a warning
)
_LINKER_FLAGS = (
    "--build-id=none",
    "--gc-sections",
    "--strip-all",
    "--hash-style=gnu",
    "--no-undefined",
)
_LINKER_Z = ("noexecstack", "relro", "now")


class CompilerError(RuntimeError):
    """A compiler that is not there, or that cannot build for a target."""


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler with its linker.

    ``kind`` is "zig" or "system"; ``family`` "clang" or "gcc"; ``version`` identifies the compiler in cache keys and in
    the manifest and holds no path; ``arch`` is the only architecture it builds for, or None when it builds for all.
    """

    kind: str
    family: str
    command: tuple[str, ...]
    link_command: tuple[str, ...]
    version: str
    arch: str | None
    builtin_include: Path | None = None

    def compile_flags(self, target: Cpu) -> tuple[str, ...]:
        """The flags that decide what an object holds. Raises CompilerError for a target that this compiler lacks."""
        if self.arch is not None and self.arch != target.arch:
            raise CompilerError(
                f"{self.command[0]} ({self.version}) builds for {self.arch}, not for {target.name}; "
                "use a cross compiler, or the ziglang package, which builds for every target"
            )
        if self.family == "clang":
            return ("-target", target.triple, *target.flags_clang, *macros(target), *_COMMON_FLAGS)
        return (*target.flags_gcc, *macros(target), *_COMMON_FLAGS)

    def include_flags(self, folders: Sequence[Path]) -> tuple[str, ...]:
        """Where headers are looked for: ``folders`` and the compiler's own freestanding headers, nothing else."""
        flags: list[str] = []
        for folder in folders:
            flags += ["-I", str(folder)]
        if self.builtin_include is not None:
            flags += ["-nostdinc", "-isystem", str(self.builtin_include)]
        elif self.family == "clang":
            flags += ["-nostdlibinc"]
        else:
            flags += ["-nostdinc++"]
        return tuple(flags)

    @property
    def has_precompiled_headers(self) -> bool:
        """Whether ``precompile_flags`` and ``precompiled_flags`` may be used."""
        return self.family == "clang"

    def precompile_flags(self) -> tuple[str, ...]:
        """With ``compile_flags``: writes the header that follows in precompiled form.

        The result is good for as long as the headers' paths and texts are the same; their dates do not count.
        """
        return ("-Xclang", "-fno-pch-timestamp", "-fpch-instantiate-templates", "-x", "c++-header")

    def precompiled_flags(self, path: Path) -> tuple[str, ...]:
        """With ``compile_flags``: starts a unit with the precompiled header at ``path``."""
        return ("-include-pch", str(path))

    def link_flags(self, target: Cpu) -> tuple[str, ...]:
        """The flags of the link for ``target``, less the output and the objects."""
        if self.kind == "zig":
            z_flags = [part for word in _LINKER_Z for part in ("-z", word)]
            return ("-shared", *_LINKER_FLAGS, *z_flags)
        wrapped = [f"-Wl,{flag}" for flag in _LINKER_FLAGS]
        wrapped += [f"-Wl,-z,{word}" for word in _LINKER_Z]
        triple = ("-target", target.triple) if self.family == "clang" else ()
        return (*triple, "-shared", "-nostdlib", "-nostartfiles", *wrapped)


@functools.lru_cache(maxsize=1)
def zig_compiler() -> Compiler:
    """The clang of the installed ``ziglang`` package. Raises CompilerError when it is not installed."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        raise CompilerError(
            f"the ziglang package is not installed: pip install {ZIG_REQUIREMENT}, or name a system compiler"
        )
    root = Path(spec.submodule_search_locations[0])
    executable = root / ("zig.exe" if os.name == "nt" else "zig")
    zig_version = _output([str(executable), "version"])
    clang_version = _clang_version(_output([str(executable), "clang", "--version"]))
    return Compiler(
        kind="zig",
        family="clang",
        command=(str(executable), "clang"),
        link_command=(str(executable), "ld.lld"),
        version=f"ziglang {zig_version} (clang {clang_version})",
        arch=None,
        builtin_include=root / "lib" / "include",
    )


@functools.cache
def system_compiler(path: str) -> Compiler:
    """The gcc or clang at ``path`` (a path, or a name on PATH). Raises CompilerError when it is neither."""
    executable = shutil.which(path)
    if executable is None:
        raise CompilerError(f"no compiler at {path!r}: it is not an executable file and not on PATH")
    executable = os.path.abspath(executable)
    banner = _output([executable, "--version"])
    first = banner.splitlines()[0] if banner else ""
    arch = _output([executable, "-dumpmachine"]).split("-", 1)[0]
    if "clang" in first:
        family, version, only_arch = "clang", f"clang {_clang_version(banner)}", None
    elif "Free Software Foundation" in banner:
        # The first word is the name the compiler was called by, which may differ between machines.
        family, version, only_arch = "gcc", f"gcc {first.split(' ', 1)[-1]}", arch
    else:
        raise CompilerError(f"{executable} is neither gcc nor clang: it calls itself {first!r}")
    return Compiler(
        kind="system",
        family=family,
        command=(executable,),
        link_command=(executable,),
        version=version,
        arch=only_arch,
    )


def find_compiler(name: str | None = None) -> Compiler:
    """The compiler called ``name``: None or "zig" for the pinned one, otherwise a system compiler's path."""
    return zig_compiler() if name in (None, "zig") else system_compiler(str(name))


def _clang_version(banner: str) -> str:
    """``22.1.8`` out of ``clang version 22.1.8 (...)``; a distribution's prefix and suffix are kept out."""
    words = banner.split()
    for before, word in itertools.pairwise(words):
        if before == "version":
            return word
    raise CompilerError(f"no clang version in {banner[:80]!r}")


def _output(command: Sequence[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise CompilerError(f"cannot run {command[0]}: {error.strerror or error}") from error
    if result.returncode != 0:
        said = result.stderr.strip()[:200]
        raise CompilerError(f"{' '.join(command)} failed with status {result.returncode}: {said}")
    return result.stdout.strip()
