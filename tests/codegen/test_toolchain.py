"""The toolchain: what the shared object holds, the cache, errors, targets and compilers."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hardtack.codegen.backends.cpp.compiler import Compiler, CompilerError, find_compiler, system_compiler
from hardtack.codegen.backends.cpp.toolchain import ToolchainError, Unit, compile_library, include_dirs, table_source
from hardtack.codegen.cache import CacheError, KernelCache, default_cache_dir
from hardtack.codegen.machine.blocking import MOST_UNIT_NBYTES, macros, staged_depth, unit_nbytes
from hardtack.codegen.machine.data import AARCH64, AMX, X86_64_V3, X86_64_V4, X86_64_V4_BF16
from hardtack.codegen.machine.host import host_caches, native_cpu
from hardtack.codegen.machine.machine import Cpu, TargetError
from hardtack.codegen.targets import parse_targets

ADD = """
#include "simd.h"
#include <hardtack/kernel_abi.h>

extern "C" int32_t %(name)s(const HtKernelArgs* args) {
  float* y = static_cast<float*>(args->buffers[0]);
  const int64_t n = args->ints[0];
  for (int64_t i = 0; i < n; i += ht::W) {
    const int m = n - i < ht::W ? static_cast<int>(n - i) : ht::W;
    ht::store_n(y + i, ht::load_n(y + i, m) + %(constant)s.0f, m);
  }
  return HT_KERNEL_OK;
}
"""


def add(name: str, constant: int) -> Unit:
    return Unit(name, ADD % {"name": name, "constant": constant})


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "cache")


def build(cache: KernelCache, units: list[Unit], target: Cpu = X86_64_V3, compiler: Compiler | None = None) -> bytes:
    return compile_library(units, target, compiler or find_compiler(), cache=cache, jobs=2)


class Elf:
    """The parts of a 64-bit little-endian shared object that the promises are about."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        assert data[:6] == b"\x7fELF\x02\x01"
        self.machine = struct.unpack_from("<H", data, 18)[0]
        offset, entry_nbytes, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
        rows = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * entry_nbytes) for i in range(count)]
        self.types = {row[1] for row in rows}
        self.dynamic = self._dynamic(next(row for row in rows if row[1] == 6))
        self.symbols = self._symbols(next(row for row in rows if row[1] == 11), rows)

    def _dynamic(self, row: tuple[int, ...]) -> list[int]:
        start, nbytes = row[4], row[5]
        return [struct.unpack_from("<qQ", self.data, start + i)[0] for i in range(0, nbytes, 16)]

    def _symbols(self, row: tuple[int, ...], rows: list[tuple[int, ...]]) -> list[tuple[str, int]]:
        """(name, section) of every dynamic symbol; section 0 is an import."""
        strings = rows[row[6]][4]
        out = []
        for i in range(1, row[5] // 24):
            name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", self.data, row[4] + i * 24)
            end = self.data.index(b"\0", strings + name)
            out.append((self.data[strings + name : end].decode(), section))
        return out


@pytest.mark.parametrize("target", [X86_64_V4, X86_64_V3, AARCH64], ids=lambda target: target.name)
def test_library_exports_one_symbol_and_needs_nothing(cache: KernelCache, target: Cpu) -> None:
    big_copy = """
#include <hardtack/kernel_abi.h>
struct Block { char bytes[5000]; };
extern "C" int32_t copy(const HtKernelArgs* a) {
  *static_cast<Block*>(a->buffers[0]) = *static_cast<const Block*>(a->buffers[1]);
  const unsigned __int128 wide = static_cast<unsigned __int128>(a->ints[0]) * static_cast<uint64_t>(a->ints[1]);
  return static_cast<int32_t>(wide / static_cast<uint64_t>(a->ints[2]));
}
"""
    elf = Elf(build(cache, [add("plus", 1), Unit("copy", big_copy)], target))
    assert [name for name, section in elf.symbols if section] == ["hardtack_kernels"]
    assert [name for name, section in elf.symbols if not section] == []
    needed, soname, textrel = 1, 14, 22
    assert not {needed, soname, textrel} & set(elf.dynamic)
    notes, symbol_table = 7, 2
    assert not {notes, symbol_table} & elf.types
    assert elf.machine == {"x86_64": 62, "aarch64": 183}[target.arch]


def test_same_bytes_from_other_folders(tmp_path: Path) -> None:
    units = [add("one", 1), add("two", 2), add("three", 3)]
    first = build(KernelCache(tmp_path / "a"), units)
    elsewhere = tmp_path / "some" / "where" / "else"
    elsewhere.mkdir(parents=True)
    headers = []
    for index, folder in enumerate(include_dirs()):
        headers.append(elsewhere / f"include{index}")
        shutil.copytree(folder, headers[-1])
    cache = KernelCache(elsewhere / "cache")
    second = compile_library(units[::-1], X86_64_V3, find_compiler(), cache=cache, jobs=1, includes=headers)
    assert first == second
    text = first.decode("latin-1")
    for word in (str(tmp_path), str(include_dirs()[0]), "unit.cpp", "/usr", "/tmp", "ziglang"):
        assert word not in text


def test_table_is_sorted_and_kernels_run(cache: KernelCache, tmp_path: Path) -> None:
    if not set(X86_64_V3.features) <= set(native_cpu().features):
        pytest.skip("this machine does not run x86-64-v3")
    path = tmp_path / "kernels.so"
    path.write_bytes(build(cache, [add("b", 2), add("a", 1), add("B", 3)]))

    class Entry(ctypes.Structure):
        _fields_ = [("name", ctypes.c_char_p), ("fn", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p))]

    class Table(ctypes.Structure):
        _fields_ = [("abi", ctypes.c_uint32), ("count", ctypes.c_uint32), ("entries", ctypes.POINTER(Entry))]

    table = Table.in_dll(ctypes.CDLL(str(path)), "hardtack_kernels")
    assert table.abi == 1
    assert [table.entries[i].name for i in range(table.count)] == [b"B", b"a", b"b"]
    values = (ctypes.c_float * 19)(*range(19))
    buffers = (ctypes.c_void_p * 1)(ctypes.addressof(values))
    ints = (ctypes.c_int64 * 1)(19)
    args = (ctypes.c_void_p * 6)(ctypes.addressof(buffers), ctypes.addressof(ints))
    assert table.entries[2].fn(ctypes.addressof(args)) == 0
    assert list(values) == [i + 2.0 for i in range(19)]


def test_no_kernels_is_a_library_too(cache: KernelCache) -> None:
    assert [name for name, _ in Elf(build(cache, [])).symbols] == ["hardtack_kernels"]
    assert "0u, entries" in table_source([])


def test_cache_is_per_unit_and_by_content(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    real_run = subprocess.run

    def counting(command: list[str], **rest: object) -> object:
        ran.append(command)
        return real_run(command, **rest)  # type: ignore[call-overload]

    compiler = find_compiler()
    monkeypatch.setattr(subprocess, "run", counting)

    def compiled(units: list[Unit]) -> int:
        ran.clear()
        build(cache, units, compiler=compiler)
        return sum("unit.cpp" in command for command in ran)

    assert compiled([add("one", 1), add("two", 2)]) == 4  # with the table and support.cpp
    assert compiled([add("two", 2), add("one", 1)]) == 0
    assert not ran  # not even linked
    assert compiled([add("one", 1), add("two", 5)]) == 1
    assert compiled([add("one", 1)]) == 1  # the table


def test_changed_header_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "headers"
    shutil.copytree(include_dirs()[0], folder)
    (folder / "deep.h").write_text("#define ANSWER 1\n")
    (folder / "outer.h").write_text('#include "deep.h"\n')
    source = '#include <hardtack/kernel_abi.h>\n#include "outer.h"\n'
    source += 'extern "C" int32_t k(const HtKernelArgs*) { return ANSWER; }\n'
    cache, includes = KernelCache(tmp_path / "cache"), [folder, include_dirs()[1]]

    def bytes_now() -> bytes:
        return compile_library([Unit("k", source)], X86_64_V3, find_compiler(), cache=cache, includes=includes)

    before = bytes_now()
    (folder / "deep.h").write_text("#define ANSWER 2\n")
    assert bytes_now() != before


def test_damaged_entries_are_rebuilt(cache: KernelCache) -> None:
    units = [add("one", 1)]
    want = build(cache, units)
    entries = [path for path in cache.root.glob("v*/??/*") if path.is_file()]
    assert len(entries) == 5  # the unit, the table, support.cpp, the precompiled header, the library
    for path in entries:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert build(cache, units) == want
    entries[0].write_bytes(b"short")
    assert cache.get(entries[0].name) is None
    assert not entries[0].exists()


def test_cache_drops_what_was_used_least_recently(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit_nbytes=10_000)
    for i in range(12):
        cache.put(f"{i:02d}aa", bytes(1000))
        os.utime(cache._path(f"{i:02d}aa"), (i + 1, i + 1))
    assert cache.get("00aa") == bytes(1000)  # now the latest
    stale = cache._path("00aa").with_name("new-dead")
    stale.write_bytes(b"x")
    os.utime(stale, (1, 1))
    assert cache.trim() > 0
    left = {i for i in range(12) if cache.get(f"{i:02d}aa") is not None}
    assert left == {0, 6, 7, 8, 9, 10, 11}
    assert not stale.exists()
    assert cache.trim() == 0


def test_a_cache_that_is_not_there_has_nothing_to_trim(tmp_path: Path) -> None:
    assert KernelCache(tmp_path / "nowhere").trim() == 0


def test_a_cache_is_walked_once_a_minute_by_whoever_compiles(tmp_path: Path) -> None:
    walked = KernelCache(tmp_path)._entries / "walked"
    for after_s, removed in ((0, True), (-59, False), (-61, True), (61, True)):
        cache = KernelCache(tmp_path, limit_nbytes=100)  # another than the one that walked
        cache.put("00aa", bytes(1000))
        if walked.exists():
            os.utime(walked, (time.time() + after_s,) * 2)
        assert (cache.trim_if_due() > 0) == removed
        assert (cache.get("00aa") is None) == removed
    assert time.time() - walked.stat().st_mtime < 50


def test_a_library_that_is_compiled_trims_the_cache(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit_nbytes=1)
    build(cache, [add("one", 1)])
    assert [p.name for p in cache._entries.glob("*/*")] == []


def test_concurrent_builds_share_a_cache(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from hardtack.codegen import cache\n"
        "from hardtack.codegen.backends.cpp import compiler, toolchain\n"
        "from hardtack.codegen.machine import data as machines\n"
        f"source = {ADD!r}\n"
        "units = [toolchain.Unit(f'k{i}', source % {'name': f'k{i}', 'constant': i}) for i in range(4)]\n"
        "data = toolchain.compile_library(units, machines.X86_64_V3, compiler.find_compiler(),\n"
        "    cache=cache.KernelCache(Path(sys.argv[1])), jobs=1)\n"
        "import hashlib; print(hashlib.sha256(data).hexdigest())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "cache")], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    digests = {process.communicate()[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(digests) == 1


def test_unusable_cache_is_an_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(CacheError, match=re.escape(f"kernel cache at {blocker}") + ".*set HARDTACK_CACHE"):
        build(KernelCache(blocker), [])


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDTACK_CACHE", "/x/y")
    assert default_cache_dir() == Path("/x/y")
    monkeypatch.delenv("HARDTACK_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache_dir() == Path("/xdg/hardtack")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache_dir() == Path("/home/someone/.cache/hardtack")


def test_compile_error_names_the_kernel_and_keeps_its_source(cache: KernelCache) -> None:
    bad = Unit("wrong", "#include <hardtack/kernel_abi.h>\nint x = no_such_thing;\n")
    with pytest.raises(ToolchainError) as caught:
        build(cache, [add("fine", 1), bad])
    message = str(caught.value)
    kept = cache.root / "failed" / "wrong.x86-64-v3.cpp"
    assert message.startswith("kernel wrong does not compile for x86-64-v3 with ziglang ")
    assert "unit.cpp:2:" in message
    assert "no_such_thing" in message
    assert message.endswith(f"its source is kept in {kept}")
    assert kept.read_text() == bad.source


@pytest.mark.parametrize(("name", "called"), [(None, "ziglang"), ("g++", "gcc")])
def test_a_compiler_that_does_not_end_is_an_error(
    name: str | None, called: str, cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hardtack.codegen.backends.cpp.toolchain._COMPILE_SECONDS", 5)
    lines = ("#if __INCLUDE_LEVEL__ < 60", "#include __FILE__", "#include __FILE__", "#endif")  # 2^60 in all
    with pytest.raises(ToolchainError) as caught:
        build(cache, [Unit("endless", "\n".join(lines))], compiler=find_compiler(name))
    message = str(caught.value)
    assert message.startswith(f"kernel endless does not compile for x86-64-v3 with {called} ")
    assert "\nthe compiler did not end within 5 s\n" in message
    (kept,) = (line for line in message.splitlines() if line.startswith("its source is kept in "))
    assert Path(kept.removeprefix("its source is kept in ")).read_text() == "\n".join(lines)


def test_a_limit_that_cannot_be_raised_stays(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell refuses to set a limit above one that an administrator has set, as it refuses a negative one."""
    monkeypatch.setattr("hardtack.codegen.backends.cpp.toolchain._COMPILE_SECONDS", "-1x")
    assert build(cache, [add("limited", 1)]).startswith(b"\x7fELF")


def test_missing_symbol_is_a_link_error(cache: KernelCache) -> None:
    source = '#include <hardtack/kernel_abi.h>\nextern "C" double cbrt(double);\n'
    source += 'extern "C" int32_t k(const HtKernelArgs* a) { return cbrt(a->ints[0]); }\n'
    with pytest.raises(ToolchainError, match=r"do not link for x86-64-v3(.|\n)*cbrt"):
        build(cache, [Unit("k", source)])


@pytest.mark.parametrize("name", ["", "9lives", "a-b", "a b", "hardtack_kernels", "naïve"])
def test_kernel_names_are_c_identifiers(cache: KernelCache, name: str) -> None:
    with pytest.raises(ToolchainError, match="is not a C identifier"):
        build(cache, [Unit(name, "")])


def test_repeated_kernel_name(cache: KernelCache) -> None:
    with pytest.raises(ToolchainError, match="two kernels are named 'twice'"):
        build(cache, [add("twice", 1), add("twice", 2)])


def test_missing_header(cache: KernelCache) -> None:
    with pytest.raises(ToolchainError, match=r"kernel k: header 'nowhere\.h' is in none of"):
        build(cache, [Unit("k", '#include "nowhere.h"\n')])


def test_progress_counts_every_unit(cache: KernelCache) -> None:
    seen: list[tuple[int, int]] = []
    units = [add("one", 1), add("two", 2)]
    for _ in range(2):
        compile_library(units, X86_64_V3, find_compiler(), cache=cache, progress=lambda *now: seen.append(now))
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4), (4, 4)]


def test_template_beside_a_header_is_linked_once(cache: KernelCache) -> None:
    source = """
#include "micro.h"
extern "C" int32_t %s(const HtKernelArgs* args) {
  const float* row = static_cast<const float*>(args->buffers[0]);
  const int64_t zero = 0;
  ht::micro_tile(1, {&row, &zero, 1, 4, ht::kPanel}, row, static_cast<float*>(args->buffers[1]), ht::kPanel, 8, false);
  return HT_KERNEL_OK;
}
"""
    units = [Unit(name, "#include <hardtack/kernel_abi.h>\n" + source % name) for name in ("m", "n")]
    assert [name for name, section in Elf(build(cache, units)).symbols if section] == ["hardtack_kernels"]


def test_system_compiler_builds_the_same_contract(cache: KernelCache) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++ here")
    compiler = find_compiler("g++")
    assert compiler.kind == "system"
    assert re.match(r"gcc .*\d+\.\d+", compiler.version)
    elf = Elf(build(cache, [add("plus", 1)], compiler=compiler))
    assert elf.symbols == [("hardtack_kernels", elf.symbols[0][1])]
    assert 1 not in elf.dynamic  # DT_NEEDED
    with pytest.raises(CompilerError, match="builds for x86_64, not for aarch64"):
        build(cache, [], AARCH64, compiler)


def test_compilers_are_found_or_refused(tmp_path: Path) -> None:
    zig = find_compiler()
    assert zig == find_compiler("zig")
    assert zig.kind == "zig"
    assert re.fullmatch(r"ziglang \d+\.\d+\.\d+ \(clang \d+\.\d+\.\d+\)", zig.version)
    with pytest.raises(CompilerError, match="no compiler at '/no/such/cc'"):
        system_compiler("/no/such/cc")
    impostor = tmp_path / "cc"
    impostor.write_text("#!/bin/sh\necho tcc version 0.9\n")
    impostor.chmod(0o755)
    with pytest.raises(CompilerError, match=r"is neither gcc nor clang: it calls itself 'tcc version 0\.9'"):
        system_compiler(str(impostor))


def test_environment_does_not_reach_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = build(KernelCache(tmp_path / "a"), [add("one", 1)])
    monkeypatch.setenv("CPATH", str(tmp_path))
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-O0")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(time.time())))
    assert build(KernelCache(tmp_path / "b"), [add("one", 1)]) == want


def test_parse_targets() -> None:
    assert parse_targets(["cpu"]) == (X86_64_V4, X86_64_V3)
    assert parse_targets(["cpu:x86-64-v3"]) == (X86_64_V3,)
    assert parse_targets(["cpu:aarch64"]) == (AARCH64,)
    assert parse_targets(["cpu:native"])[0].name == "native"
    mixed = parse_targets(["cuda:sm_90", "cpu:x86-64-v3", "cpu:amx", "cpu", "cpu:native"])
    assert [m.name for m in mixed] == ["native", "amx", "x86-64-v4", "x86-64-v3", "sm_90"], "CPUs best first"
    for text in ("cpu:x86-64-v9", "gpu", "", "cpu:", "cuda:native"):
        with pytest.raises(TargetError) as caught:
            parse_targets([text])
        assert str(caught.value) == (
            f"unknown target {text!r}; known targets: cpu, cpu:amx, cpu:x86-64-v4-bf16, cpu:x86-64-v4, cpu:x86-64-v3, "
            "cpu:aarch64-bf16, cpu:aarch64, cpu:native, cuda:sm_80, cuda:sm_90, cuda:sm_100, hip:gfx942"
        )


V3_FLAGS = "pni ssse3 sse4_1 sse4_2 popcnt avx avx2 bmi1 bmi2 f16c fma abm movbe"
V4_FLAGS = "avx512f avx512bw avx512cd avx512dq avx512vl"


def test_native_target_takes_what_the_host_has() -> None:
    v3 = native_cpu("x86_64", f"flags\t\t: fpu {V3_FLAGS} avx_vnni sse9\n")
    assert v3.features == (*X86_64_V3.features, "avxvnni")
    assert v3.flags_clang == ("-march=x86-64-v3", "-mavxvnni")
    assert v3.vector_nbytes == 32
    v4 = native_cpu("x86_64", f"flags : {V3_FLAGS} {V4_FLAGS} avx512_vnni\n")
    assert v4.features == (*X86_64_V4.features, "avx512vnni")
    assert v4.vector_nbytes == 64
    bf16 = native_cpu("x86_64", f"flags : {V3_FLAGS} {V4_FLAGS} avx512_bf16 avx512_vnni\n")
    assert bf16.features == X86_64_V4_BF16.features
    assert bf16.flags_clang == X86_64_V4_BF16.flags_clang
    assert native_cpu("x86_64", f"flags : {V3_FLAGS} {V4_FLAGS} avx512_bf16\n").features == X86_64_V4.features
    amx = native_cpu("x86_64", f"flags : {V3_FLAGS} {V4_FLAGS} avx512_bf16 avx512_vnni amx_tile amx_bf16 amx_int8\n")
    assert amx.features == AMX.features
    assert native_cpu("aarch64", "Features\t: fp asimd\n").features == ("neon",)
    assert native_cpu("aarch64", "Features\t: fp asimd bf16\n").features == ("neon",)
    assert native_cpu("aarch64", "Features\t: fp asimd asimddp bf16\n").features == ("neon", "bf16", "dotprod")
    with pytest.raises(TargetError, match="this machine's CPU lacks avx2, fma, which x86-64-v3 needs"):
        native_cpu("x86_64", "flags : " + V3_FLAGS.replace("avx2 ", "").replace("fma ", ""))
    with pytest.raises(TargetError, match="this machine is riscv64; Hardtack knows x86_64 and aarch64"):
        native_cpu("riscv64")


def test_a_native_target_has_the_caches_of_the_host(tmp_path: Path) -> None:
    """As /sys tells them; where it does not, those of the level."""
    for index, level, kind, size in ((0, 1, "Data", "32K"), (1, 1, "Instruction", "64K"), (2, 2, "Unified", "2048K")):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    (tmp_path / "index3").mkdir()
    caches = host_caches(tmp_path)
    assert caches == {1: 32 << 10, 2: 2 << 20}
    cpuinfo = f"flags : {V3_FLAGS} {V4_FLAGS}\n"
    found = native_cpu("x86_64", cpuinfo, caches)
    assert (found.first_level_nbytes, found.second_level_nbytes) == (32 << 10, 2 << 20)
    assert native_cpu("x86_64", cpuinfo, {}) == replace(X86_64_V4, name="native", level="x86-64-v4")


def test_blocks_come_from_the_caches() -> None:
    """A tile's staged rows fit in the first level, a unit's part of B in the second; plans have room for no more."""
    assert macros(X86_64_V4) == (
        "-DHT_STAGED_DEPTH=768", "-DHT_FLOAT_DEPTH=2048", "-DHT_UNIT_NBYTES=786432", "-DHT_SECOND_LEVEL_NBYTES=1048576"
    )  # fmt: skip
    assert macros(X86_64_V3)[2:] == ("-DHT_UNIT_NBYTES=393216", "-DHT_SECOND_LEVEL_NBYTES=524288")
    assert staged_depth(replace(X86_64_V4, first_level_nbytes=32 << 10)) == 512
    assert unit_nbytes(replace(X86_64_V4, second_level_nbytes=4 << 20)) == MOST_UNIT_NBYTES
    assert macros(X86_64_V4)[0] in find_compiler().compile_flags(X86_64_V4)


def test_native_builds(cache: KernelCache) -> None:
    assert build(cache, [add("plus", 1)], native_cpu())
