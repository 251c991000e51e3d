"""From kernel sources to one shared object per CPU target.

Every unit is compiled by itself, in parallel, and cached by the hash of all that it was made from. The library exports
one symbol, ``hardtack_kernels`` (kernel_abi.h), needs no other library, and holds no path, date or build id: the same
sources give the same bytes in every folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from hardtack.codegen.backends.cpp.compiler import Compiler
from hardtack.codegen.backends.cpp.user_code import FREESTANDING, link_problem
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.codegen.machine.machine import Cpu

_KEY_VERSION = "hardtack-object-2"  # changes when a key would otherwise miss a change in this file
_KERNEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<(hardtack/[^>]+)>)', re.MULTILINE)
_TABLE = "hardtack_kernels"
_SUPPORT = "support"
_SHARED_PREFIX = "templates/"  # no kernel's name holds a slash
_ERROR_LINES = 12
_COMPILE_SECONDS = 1800  # of processor time, for one unit: a fault of a compiler may keep it busy for ever

# Every template includes the first header, and it the compiler's intrinsics; every generated kernel the second, which
# has the first and vmath.h, whose functions are instances of templates. Parsing and instantiating them takes a second
# in every unit, or 20 ms when they are read in precompiled form. Units with the first alone take the second's form,
# too: what they do not use leaves no trace in an object.
_INTRINSICS, _PRECOMPILED = "simd.h", "loops.h"


class ToolchainError(RuntimeError):
    """A unit that does not compile, a library that does not link, or a header that is missing."""


@dataclass(frozen=True)
class Unit:
    """One kernel: C++ source that defines ``extern "C" int32_t <name>(const HtKernelArgs*)``.

    ``name`` is the kernel's content name in the plan, a C identifier. ``codes``: of a user's text (user_code.py), the
    functions of it that kernels call; such a unit is no kernel. ``abi``: the version of kernel_abi.h that it needs.
    """

    name: str
    source: str
    codes: tuple[KernelCode, ...] = ()
    abi: int = 1

    @property
    def what(self) -> str:
        """In messages."""
        if not self.codes:
            return f"kernel {self.name}"
        names = ", ".join(c.function for c in self.codes)
        return f"the C++ kernel{'s' if len(self.codes) > 1 else ''} {names} of {self.codes[0].file}"


@dataclass(frozen=True)
class _Job:
    unit: Unit
    key: str
    headers: tuple[str, ...]


def include_dirs() -> tuple[Path, ...]:
    """Where the templates' headers and ``hardtack/kernel_abi.h`` lie, in a source tree or an installed package.

    Raises ToolchainError when kernel_abi.h is in neither place.
    """
    codegen = Path(__file__).resolve().parents[2]
    candidates = (codegen.parent / "include", codegen.parent / "runtime_cpp" / "include")
    for folder in candidates:
        if (folder / "hardtack" / "kernel_abi.h").is_file():
            return codegen / "templates" / "cpp", folder
    looked = " or ".join(str(folder) for folder in candidates)
    raise ToolchainError(f"hardtack/kernel_abi.h is not in {looked}; this installation of Hardtack is incomplete")


def compile_library(
    units: Sequence[Unit],
    target: Cpu,
    compiler: Compiler,
    *,
    cache: KernelCache,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    includes: Sequence[Path] | None = None,
) -> bytes:
    """Compiles ``units`` for ``target`` into one shared object and returns its bytes.

    ``jobs`` compilers run at once (default: one a core). ``progress(done, total)`` is called as units finish, those
    found in the cache at once. ``includes`` are the header folders (default: ``include_dirs()``).
    Raises ToolchainError (the kernel, the compiler's first lines, the path of the source kept for inspection) and
    CacheError (the cache's folder cannot be used).
    """
    kernels = [unit.name for unit in units if not unit.codes]
    _check_names(kernels)
    folders = tuple(includes) if includes is not None else include_dirs()
    headers = _HeaderReader(folders)
    fingerprint = _fingerprint(compiler, target)

    def job(unit: Unit) -> _Job:
        found = headers.of(unit.what, unit.source)
        read = {*found, *headers.of(unit.what, f'#include "{_PRECOMPILED}"')} if _has_intrinsics(found) else found
        return _job(unit, fingerprint, [name for name, _ in found], sorted(read))

    todo = [job(unit) for unit in sorted(units, key=lambda unit: unit.name)]
    todo.append(job(Unit(_TABLE, table_source(kernels, max((unit.abi for unit in units), default=1)))))
    todo += [job(unit) for unit in _shared_units(todo, folders)]
    library_key = _digest("library", *compiler.link_flags(target), *(f"{job.unit.name}:{job.key}" for job in todo))
    stored = cache.get(library_key)
    if stored is not None:
        if progress is not None:
            progress(len(todo), len(todo))
        return stored
    with tempfile.TemporaryDirectory(prefix="hardtack-") as scratch:
        build = _Build(Path(scratch), target, compiler, cache, folders)
        objects = build.objects(todo, jobs or os.cpu_count() or 1, progress)
        library = build.link(objects, [code for unit in units for code in unit.codes])
    cache.put(library_key, library)
    cache.trim_if_due()
    return library


def table_source(names: Iterable[str], version: int = 1) -> str:
    """The unit that defines ``hardtack_kernels`` for the kernels ``names``. version: of the ABI that they need."""
    ordered = sorted(names)
    lines = ["#include <hardtack/kernel_abi.h>", 'extern "C" {']
    lines += [f"int32_t {name}(const HtKernelArgs*);" for name in ordered]
    lines += ["}", "namespace {"]
    if ordered:
        lines += ["const HtKernelEntry entries[] = {"]
        lines += [f'  {{"{name}", {name}}},' for name in ordered]
        lines += ["};"]
    else:
        lines += ["const HtKernelEntry* const entries = nullptr;"]
    lines += [
        "}",
        'extern "C" __attribute__((visibility("default"))) const HtKernelTable hardtack_kernels = {',
        f"  {version}u, {len(ordered)}u, entries}};",
        "",
    ]
    return "\n".join(lines)


def _check_names(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not _KERNEL_NAME.match(name) or name == _TABLE:
            raise ToolchainError(f"kernel name {name!r} is not a C identifier that a kernel may have")
        if name in seen:
            raise ToolchainError(f"two kernels are named {name!r}")
        seen.add(name)


def _shared_units(todo: Sequence[_Job], folders: Sequence[Path]) -> list[Unit]:
    """What kernels have in common: support.cpp, and the .cpp beside every header that a unit includes."""
    headers = {header for job in todo for header in job.headers}
    stems = [_SUPPORT, *sorted(header.removesuffix(".h") for header in headers)]
    units = []
    for stem in stems:
        path = next((folder / f"{stem}.cpp" for folder in folders if (folder / f"{stem}.cpp").is_file()), None)
        if path is not None:
            units.append(Unit(f"{_SHARED_PREFIX}{stem}", path.read_text(encoding="utf-8")))
        elif stem == _SUPPORT:
            raise ToolchainError(f"support.cpp is in none of {', '.join(map(str, folders))}")
    return units


class _HeaderReader:
    """Finds the project headers that a source includes, and reads each once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._texts: dict[str, str] = {}
        self._closures: dict[str, tuple[str, ...]] = {}

    def of(self, unit: str, source: str) -> list[tuple[str, str]]:
        """(name, text) of every header that the ``source`` of ``unit`` may include, directly or not, sorted by name.

        Conditional includes count: a key that covers too much only costs a rebuild. Raises ToolchainError for a header
        that is in no folder.
        """
        seen: set[str] = set()
        stack = self._included(source)
        while stack:
            name = stack.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self._texts:
                self._texts[name] = self._read(name, unit)
                self._closures[name] = tuple(self._included(self._texts[name]))
            stack.extend(self._closures[name])
        return [(name, self._texts[name]) for name in sorted(seen)]

    @staticmethod
    def _included(text: str) -> list[str]:
        return [quoted or bracketed for quoted, bracketed in _INCLUDE.findall(text)]

    def _read(self, name: str, unit: str) -> str:
        for folder in self._folders:
            path = folder / name
            if path.is_file():
                return path.read_text(encoding="utf-8")
        looked = ", ".join(map(str, self._folders))
        raise ToolchainError(f"{unit}: header {name!r} is in none of {looked}")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fingerprint(compiler: Compiler, target: Cpu) -> str:
    return _digest(_KEY_VERSION, compiler.version, *compiler.compile_flags(target))


def _has_intrinsics(headers: Iterable[tuple[str, str]]) -> bool:
    return any(name == _INTRINSICS for name, _ in headers)


def _job(unit: Unit, fingerprint: str, headers: Iterable[str], read: Iterable[tuple[str, str]]) -> _Job:
    """The job of a unit that includes `headers`, where the compiler reads `read`."""
    key = _digest(fingerprint, unit.source, *(part for header in read for part in header))
    return _Job(unit, key, tuple(headers))


@dataclass(frozen=True)
class _Build:
    """One library under way, in a scratch folder of its own."""

    scratch: Path
    target: Cpu
    compiler: Compiler
    cache: KernelCache
    includes: tuple[Path, ...]

    def objects(self, todo: Sequence[_Job], jobs: int, progress: Callable[[int, int], None] | None) -> list[bytes]:
        """The object of every job, from the cache or compiled, in the order of ``todo``."""
        found: dict[str, bytes] = {}
        missing: dict[str, _Job] = {}
        for job in todo:
            stored = self.cache.get(job.key)
            if stored is None:
                missing[job.key] = job
            else:
                found[job.key] = stored
        total = len({job.key for job in todo})
        if progress is not None:
            progress(len(found), total)
        precompiled = self._precompiled(job for job in missing.values())
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            # The longest sources first: the last compiler to finish then finishes sooner.
            order = sorted(missing.values(), key=lambda job: (-len(job.unit.source), job.unit.name))
            running = {pool.submit(self._compile, job, precompiled): job.key for job in order}
            try:
                for future in as_completed(running):
                    found[running[future]] = future.result()
                    if progress is not None:
                        progress(len(found), total)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [found[job.key] for job in todo]

    def _precompiled(self, missing: Iterable[_Job]) -> Path | None:
        """The precompiled header, from the cache or made now, when a unit of ``missing`` can use it."""
        if not self.compiler.has_precompiled_headers or not any(_INTRINSICS in job.headers for job in missing):
            return None
        header = next(folder / _PRECOMPILED for folder in self.includes if (folder / _PRECOMPILED).is_file())
        texts = _HeaderReader(self.includes).of(_PRECOMPILED, f'#include "{_PRECOMPILED}"')
        # Unlike an object, it holds the paths of the headers and is of use only with them.
        include_flags = self.compiler.include_flags(self.includes)
        flags = [*include_flags, *self.compiler.precompile_flags()]
        fingerprint = _digest("precompiled", _fingerprint(self.compiler, self.target), *flags)
        key = _digest(fingerprint, *(part for text in texts for part in text))
        path = self.scratch / f"{_PRECOMPILED}.pch"
        stored = self.cache.get(key)
        if stored is not None:
            path.write_bytes(stored)
            return path
        command = [*self.compiler.command, *self.compiler.compile_flags(self.target), *flags]
        result = _run([*command, str(header), "-o", str(path)], self.scratch)
        if result.returncode != 0:
            raise ToolchainError(
                f"{header} does not compile for {self.target.name} with {self.compiler.version}:\n"
                f"{_first_lines(result.stderr)}"
            )
        self.cache.put(key, path.read_bytes())
        return path

    def _compile(self, job: _Job, precompiled: Path | None) -> bytes:
        unit = job.unit
        folder = self.scratch / job.key[:16]
        folder.mkdir()
        # Fixed relative names: neither the scratch folder nor the kernel's name gets into the object.
        (folder / "unit.cpp").write_text(unit.source, encoding="utf-8")
        command = [*self.compiler.command, *self.compiler.compile_flags(self.target)]
        command += self.compiler.include_flags(self.includes)
        if precompiled is not None and _INTRINSICS in job.headers:
            command += self.compiler.precompiled_flags(precompiled)
        start = time.monotonic()
        result = _run([*command, "-c", "unit.cpp", "-o", "unit.o"], folder)
        if result.returncode != 0:
            if time.monotonic() - start >= _COMPILE_SECONDS:
                raise self._compile_error(unit, f"the compiler did not end within {_COMPILE_SECONDS} s")
            raise self._compile_error(unit, _first_lines(result.stderr))
        data = (folder / "unit.o").read_bytes()
        self.cache.put(job.key, data)
        return data

    def _compile_error(self, unit: Unit, why: str) -> ToolchainError:
        """An error that says ``why``, and where the unit's source is kept."""
        head = f"{unit.what} does not compile for {self.target.name} with {self.compiler.version}:\n{why}\n"
        if unit.codes:
            return ToolchainError(head + FREESTANDING)
        name = unit.name.replace("/", "-")
        kept = self.cache.keep_source(f"{name}.{self.target.name}.cpp", unit.source)
        return ToolchainError(f"{head}its source is kept in {kept}")

    def link(self, objects: Sequence[bytes], codes: Sequence[KernelCode]) -> bytes:
        """One shared object out of ``objects``. ``codes``: the users' functions in them."""
        names = [f"{index:05d}.o" for index in range(len(objects))]
        for name, data in zip(names, objects, strict=True):
            (self.scratch / name).write_bytes(data)
        # A response file: thousands of kernels would not fit on a command line.
        (self.scratch / "objects.rsp").write_text("\n".join(names), encoding="utf-8")
        command = [*self.compiler.link_command, *self.compiler.link_flags(self.target)]
        result = _run([*command, "-o", "library.so", "@objects.rsp"], self.scratch)
        if result.returncode != 0:
            problem = link_problem(result.stderr, codes) if codes else None
            if problem is not None:
                raise ToolchainError(f"the users' kernels do not link for {self.target.name}: {problem}")
            raise ToolchainError(
                f"the kernels do not link for {self.target.name} with {self.compiler.version}:\n"
                f"{_first_lines(result.stderr)}"
            )
        return (self.scratch / "library.so").read_bytes()


def _first_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    shown = lines[:_ERROR_LINES]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more lines")
    return "\n".join(shown)


def _environment() -> Mapping[str, str]:
    """What compilers get to see: no CPATH, no override of options, messages in English."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a compiler or linker. The shell limits its processor time and that of the programs that it starts, so that
    they end even where the process that exports has been killed. Where a lower limit is set, it stays.
    """
    return subprocess.run(
        ["/bin/sh", "-c", f'ulimit -t {_COMPILE_SECONDS} 2>/dev/null || :; exec "$@"', "sh", *command],
        cwd=folder,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
