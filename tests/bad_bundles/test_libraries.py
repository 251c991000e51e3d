"""Libraries of the compilers we support are accepted; one that would run when it is loaded is refused before it is."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import corpus
import corpus_libraries
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hardtack
from hardtack.codegen.backends.cpp.compiler import Compiler, system_compiler, zig_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library, include_dirs
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.machine.data import CPUS
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from hardtack.codegen.package.library import check_library

GOOD = corpus.good_files()[corpus.LIBRARY]
# Constants, tables of addresses, zeros and values that are written: every kind of section that kernels have.
KERNEL = """
#include <hardtack/kernel_abi.h>
static const double table[4] = {1, 2, 3, 4};
static int32_t counted = 7;
static double zeros[100];
static const char* const texts[2] = {"a", "b"};
extern "C" int32_t k(const HtKernelArgs* a) {
  volatile int64_t n = a->ints[0];
  for (int64_t i = 0; i < n; ++i) zeros[i] += table[i & 3] + texts[i & 1][0] + counted++;
  __builtin_memcpy(a->buffers[0], zeros, n);
  return 0;
}
"""
SYSTEM_COMPILERS = ("g++", "clang++", "aarch64-linux-gnu-g++")
COMPILERS = [zig_compiler(), *(system_compiler(name) for name in SYSTEM_COMPILERS if shutil.which(name))]


def targets_of(compiler: Compiler) -> list[Cpu]:
    """What a compiler builds for: of those of one architecture, what runs here, or all of the other one."""
    if compiler.arch in (None, native_cpu().arch):
        return [*CPUS.values()] if compiler.arch is None else [native_cpu()]
    return [target for target in CPUS.values() if target.arch == compiler.arch]


@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda c: f"{c.version.split()[0]}-{c.arch}")
def test_libraries_of_compilers_are_accepted(compiler: Compiler, tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    for target in targets_of(compiler):
        data = compile_library([Unit("k", KERNEL)], target, compiler, cache=cache)
        check_library(memoryview(data), "lib", f"cpu:{target.name}")
        path = tmp_path / "m.pkg"
        if target.name == "x86-64-v3":
            path.write_bytes(corpus.with_member(corpus.LIBRARY, data))
            assert corpus.python_error(path) == corpus.runtime_error(path) == ""


def test_a_local_symbol_of_a_section_is_accepted(tmp_path: Path) -> None:
    """GNU's ld for aarch64 writes one into every library."""
    library = corpus_libraries.Library(GOOD)
    library.symbol("<B", 4, 0x03)
    path = tmp_path / "m.pkg"
    path.write_bytes(corpus.with_member(corpus.LIBRARY, bytes(library.data)))
    assert corpus.python_error(path) == corpus.runtime_error(path) == ""


def test_bytes_at_the_place_of_the_dynamic_section_in_the_file_are_not_read(tmp_path: Path) -> None:
    library = corpus_libraries.Library(GOOD)
    (header,) = library.headers(corpus_libraries.DYNAMIC)
    library.put(header, corpus_libraries.OFFSET, 0)
    path = tmp_path / "m.pkg"
    path.write_bytes(corpus.with_member(corpus.LIBRARY, bytes(library.data)))
    assert corpus.python_error(path) == corpus.runtime_error(path) == ""
    hardtack.load(path)


HEAD = (
    "#include <hardtack/kernel_abi.h>\n"
    'extern "C" int32_t k(const HtKernelArgs*) { return 0; }\n'
    'static const HtKernelEntry entries[] = {{"k", k}};\n'
    'extern "C" __attribute__((visibility("default"))) const HtKernelTable hardtack_kernels = '
    "{HT_KERNEL_ABI_VERSION, 1, entries};\n"
)
HOSTILE = {
    "a constructor": HEAD + "__attribute__((constructor)) static void start() { __builtin_trap(); }\n",
    "a function that tells its address": (
        '#include <hardtack/kernel_abi.h>\nextern "C" HtKernelFn tell() { __builtin_trap(); }\n'
        'extern "C" __attribute__((ifunc("tell"))) int32_t k(const HtKernelArgs*);\n' + HEAD.partition("\n")[2]
    ).replace('extern "C" int32_t k(const HtKernelArgs*) { return 0; }\n', ""),
    "an exported function that tells its address": (
        HEAD.replace("const HtKernelTable hardtack_kernels", "const HtKernelTable table")
        + 'extern "C" const void* tell() { __builtin_trap(); }\n'
        + 'extern "C" __attribute__((visibility("default"), ifunc("tell"))) void hardtack_kernels();\n'
    ),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("what", HOSTILE)
def test_code_that_would_run_when_it_is_loaded_does_not(what: str, tmp_path: Path) -> None:
    source, library, bundle = tmp_path / "k.cpp", tmp_path / "k.so", tmp_path / "m.pkg"
    source.write_text(HOSTILE[what])
    flags = [
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-nostdlib",
        "-nostartfiles",
        "-Wl,--hash-style=gnu",
        "-Wl,-z,now",
    ]
    include = [f"-I{folder}" for folder in include_dirs()]
    subprocess.run(["g++", *flags, *include, str(source), "-o", str(library)], check=True)
    opened = f"import ctypes; ctypes.CDLL({str(library)!r}).hardtack_kernels"
    assert subprocess.run([sys.executable, "-c", opened], check=False).returncode < 0  # it does run there
    bundle.write_bytes(corpus.with_member(corpus.LIBRARY, library.read_bytes()))
    loaded = (
        "import sys, hardtack\ntry: hardtack.load(sys.argv[1])\n"
        "except hardtack.LoadError as error: print(error.problem)\nelse: print('loaded')"
    )
    done = subprocess.run([sys.executable, "-c", loaded, str(bundle)], capture_output=True, text=True, check=True)
    assert "loaded" not in done.stdout.split()
    assert f"library {corpus.LIBRARY}: " in done.stdout
    assert corpus.python_error(bundle) != ""


@pytest.mark.parametrize("addend", [2**40, -(2**40), 2**62])
@pytest.mark.parametrize("relocation", range(5))
def test_a_table_of_kernels_is_followed_no_further_than_the_library_goes(
    addend: int, relocation: int, tmp_path: Path
) -> None:
    library = corpus_libraries.Library(GOOD)
    at = library.place(library.value(corpus_libraries.RELA)) + 24 * relocation
    struct.pack_into("<q", library.data, at + 16, addend)
    path = tmp_path / "m.pkg"
    path.write_bytes(corpus.with_member(corpus.LIBRARY, bytes(library.data)))
    with pytest.raises(hardtack.LoadError, match=r"lies elsewhere$"):
        hardtack.load(path)


def _places() -> list[int]:
    """Where a change may matter to the linker: all but the code."""
    library = corpus_libraries.Library(GOOD)
    code = next(h for h in library.headers(corpus_libraries.LOAD) if library.get(h, corpus_libraries.PERMISSIONS) & 1)
    first = library.get(code, corpus_libraries.OFFSET)
    last = first + library.get(code, corpus_libraries.FILE_NBYTES)
    dynamic = library.tag(corpus_libraries.FLAGS)
    return [at for at in (*range(first), *range(dynamic, dynamic + 192)) if not first <= at < last]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(_places()), st.integers(0, 255)), min_size=1, max_size=3))
@example([(420, 1)])
def test_both_readers_judge_changed_libraries_alike(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = tmp_path / "changed.pkg"
    code = bytearray(GOOD)
    for at, value in changes:
        code[at] = value
    path.write_bytes(corpus.with_member(corpus.LIBRARY, bytes(code)))
    python, runtime = corpus.python_error(path), corpus.runtime_error(path)
    assert (python == "") == (runtime == ""), f"python: {python or 'sound'}\nruntime: {runtime or 'sound'}"


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    """The error is told, with a mark where its bytes are none of UTF-8."""
    path = tmp_path / "bad.pkg"
    path.write_bytes(corpus.with_member(corpus.LIBRARY, GOOD.replace(b"k_scale\0", b"a\xf2scale\0")))
    with pytest.raises(hardtack.LoadError, match=r"library lib/x86-64-v3\.so: kernel a�scale is out of order"):
        hardtack.load(path)
