"""Faults put in on purpose: how many programs until the fuzzer finds each.

A mutant is a copy of the project's Python rooms and kernel templates with a few words of one file changed, in which the
fuzzer runs as a process of its own. Half of them take out a mend of a fault that was found here; their words must be in
the file exactly once, so that a mutant follows the code or is noticed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import hardtack._native

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"hardtack": "hardtack", "export": "hardtack/export", "codegen": "hardtack/codegen"}
"""Folder in the project -> where a package of them has it."""

FOUND = ("wrong", "changes", "internal", "crash")
"""Kinds of failure that count: a hang may be a busy machine."""

_RUN = """
import runpy, sys
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
sys.path[:0] = sys.argv[1:3]
sys.argv[:] = ["fuzz", *sys.argv[3:]]
runpy.run_module("tests.fuzz", run_name="__main__")
"""


@dataclass(frozen=True)
class Mutant:
    """what: the fault in words. way: how programs are run. edits: words of the file, and what replaces them."""

    name: str
    what: str
    way: str
    file: str
    edits: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Hunted:
    """found: the first seed that fails with the mutant and not without, 0 programs if none did; kind: how it fails."""

    mutant: Mutant
    programs: int
    seed: int | None
    kind: str
    text: str

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.mutant.name:34s} not found in {self.programs} programs: {self.mutant.what}"
        found = f"found by program {self.programs} (seed {self.seed}, {self.mutant.way}), as {self.kind}"
        return f"{self.mutant.name:34s} {found}: {self.mutant.what}\n    {' '.join(self.text.split())[:200]}"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "row by an index that is data",
        "an index that is data is taken for a product's row axis",
        "cpu",
        "codegen/fuse.py",
        (
            ("if isinstance(read, Sym) and read in own and read.extent", "if isinstance(read, Sym) and read.extent"),
            (
                "    if any(s.extent is not None and s not in own for e in load.index for s in free_syms(e)):\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        "epilogue at another point",
        "an epilogue reads the result at another point than the one just computed",
        "cpu",
        "codegen/fuse.py",
        (("if buffers[s.buffer].offset(s.index) is not _written_offset(group, s.buffer, buffers):", "if False:"),),
    ),
    Mutant(
        "outer axes that do not agree",
        "a loop reads what another outer point writes",
        "cpu",
        "codegen/fuse.py",
        (("        if not same:\n            return k\n    return len(outer)", "    return len(outer)"),),
    ),
    Mutant(
        "passes over different places",
        "two passes over a row are joined though the second reads elsewhere",
        "cpu",
        "codegen/row_passes.py",
        (
            (
                "together = bool(read) and all(written.get(s.buffer) is s.index[0] for s in read)",
                "together = bool(read)",
            ),
        ),
    ),
    Mutant(
        "part of a buffer inlined",
        "a nest that writes a part of its buffer is computed inside its reader",
        "cpu",
        "codegen/inline.py",
        (('            return "it writes a part of its buffer"\n', "            seen.add(Sym)  # type: ignore\n"),),
    ),
    Mutant(
        "divisor under a mask",
        "an integer is divided by what a pad does not read",
        "cpu",
        "codegen/inline.py",
        (("if isinstance(s, Compute) and s.op in INT_DIVISIONS and", "if False and isinstance(s, Compute) and"),),
    ),
    Mutant(
        "half sums in half",
        "sums of half types are accumulated in the half type",
        "cpu",
        "codegen/lower/builder.py",
        (('if dtype.is_half and kind in ("sum", "prod"):', "if False:"),),
    ),
    Mutant(
        "rows of a window as large as read",
        "a kernel's scratch is a row short",
        "cpu",
        "codegen/tile.py",
        (("        sizes.add(top + 1)\n", "        sizes.add(top)\n"),),
    ),
    Mutant(
        "memory shared while alive",
        "a value's memory is given away one step early",
        "cpu",
        "codegen/memory.py",
        (
            (
                "return self.first <= other.last and other.first <= self.last",
                "return self.first < other.last and other.first < self.last",
            ),
        ),
    ),
    Mutant(
        "slice off by one",
        "a slice with a step begins one element late",
        "cpu",
        "codegen/lower/views.py",
        (
            (
                "i * step + as_expr(start) if d == dim else i",
                "i * step + as_expr(start) + (step > 1) if d == dim else i",
            ),
        ),
    ),
    Mutant(
        "shift by the width",
        "a shift by its width or more shifts by the low bits",
        "cpu",
        "codegen/templates/cpp/simd_math.h",
        (
            (
                "const U moved = bit_copy<U>(a) << (count & static_cast<lane<U>>(width - 1));\n  return bit_copy<V>((count < width) ? moved : U{});",
                "return bit_copy<V>(bit_copy<U>(a) << (count & static_cast<lane<U>>(width - 1)));",
            ),
        ),
    ),
    Mutant(
        "running sums in float",
        "running sums of f32 are kept in f32",
        "cpu",
        "codegen/templates/cpp/scan.h",
        (("  using type = double;", "  using type = float;"),),
    ),
    Mutant(
        "sizes for the factor",
        "interpolate takes the ratio of sizes where a factor was given",
        "cpu",
        "codegen/lower/resize.py",
        (("        if d.scale is not None\n        else b.compute", "        if False\n        else b.compute"),),
    ),
    Mutant(
        "scale along any dimension",
        "a scale is folded into a product along whatever dimension it varies",
        "graph",
        "export/rewrite_affine.py",
        (
            (
                "return len(shape) <= rank and all(int_value(s) == 1 for i, s in enumerate(padded) if i != dim)",
                "return len(shape) <= rank",
            ),
        ),
    ),
    Mutant(
        "permutations the wrong way",
        "two permutations are merged in the wrong order",
        "graph",
        "export/rewrite_basic.py",
        (("make_attrs(dims=[inner[d] for d in outer])", "make_attrs(dims=[outer[d] for d in inner])"),),
    ),
    Mutant(
        "equal but for attributes",
        "ops on equal operands are taken for equal whatever their attributes",
        "graph",
        "export/rewrite_basic.py",
        (("tuple(map(repr, inputs)), repr(op.attrs), tuple", "tuple(map(repr, inputs)), tuple"),),
    ),
    Mutant(
        "padding of any value",
        "what is padded with other numbers than zero becomes a convolution's padding",
        "graph",
        "export/rewrite_affine.py",
        (("isinstance(value, Lit) and value.value == 0", "isinstance(value, Lit)"),),
    ),
    Mutant(
        "numbers rounded to half first",
        "a number beside a half tensor is rounded before it multiplies",
        "graph",
        "export/convert_pointwise.py",
        (("if not dtype.is_half or all(_of_half(a, dtype) for a in (x, y)):", "if True:"),),
    ),
    Mutant(
        "GPU: another walk's value",
        "a nest that joins another's walk reads before the store",
        "interpreter",
        "codegen/backends/triton/passing.py",
        (
            (
                "if s.buffer in stored and (reduces or s.index[0] is not value_offset.get(s.buffer)):",
                "if s.buffer in stored and reduces:",
            ),
        ),
    ),
)


def copy_with(mutant: Mutant, folder: Path) -> None:
    """The package hardtack with the mutant's words, below `folder`. ValueError where they are not there once."""
    for room, place in ROOMS.items():
        shutil.copytree(ROOT / room, folder / place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    native = Path(str(hardtack._native.__file__))
    for path in native.parent.glob(f"{native.name}*"):
        shutil.copy(path, folder / "hardtack" / path.name)
    for beside in ("include", "lib"):
        if (native.parent / beside).is_dir():
            shutil.copytree(native.parent / beside, folder / "hardtack" / beside, symlinks=True, dirs_exist_ok=True)
    room, _, rest = mutant.file.partition("/")
    path = folder / ROOMS[room] / rest
    path.write_text(changed(mutant), encoding="utf-8")


def changed(mutant: Mutant) -> str:
    """The text of the mutant's file."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    for words, others in mutant.edits:
        if text.count(words) != 1:
            raise ValueError(f"mutant {mutant.name!r}: {mutant.file} has {words!r} {text.count(words)} times, not once")
        text = text.replace(words, others)
    return text


def hunt(mutant: Mutant, *, most: int, jobs: int, seed: int) -> Hunted:
    """Runs programs until one fails that is right without the mutant."""
    with tempfile.TemporaryDirectory(prefix="hardtack_mutant_") as name:
        folder = Path(name)
        copy_with(mutant, folder)
        done = 0
        while done < most:
            records = _models(folder, _flags(mutant.way), jobs, seed + done, most - done, folder / "found.jsonl")
            done += max(1, len(records))
            failed = next((r for r in records if r["kind"] in FOUND), None)
            if failed is not None and _is_right(mutant, int(str(failed["seed"]))):
                return Hunted(mutant, done, int(str(failed["seed"])), str(failed["kind"]), str(failed["text"]))
        return Hunted(mutant, done, None, "", "")


def _flags(way: str) -> list[str]:
    return {"graph": ["--graph"], "interpreter": ["--interpreter"]}.get(way, [])


def _models(folder: Path, flags: Sequence[str], jobs: int, seed: int, count: int, log: Path) -> list[dict[str, object]]:
    """Outcomes up to the first failure, of the package in `folder`."""
    log.unlink(missing_ok=True)
    arguments = ["models", *flags, "--stop", "--jobs", str(jobs), "--seed", str(seed), "--count", str(count)]
    command = [sys.executable, "-c", _RUN, str(folder), str(ROOT), *arguments, "--together", "4", "--json", str(log)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1) or not log.is_file():
        raise RuntimeError(f"the fuzzer did not run: {ran.stderr[-2000:]}")
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _is_right(mutant: Mutant, seed: int) -> bool:
    """True if the program is right in the project as it is."""
    with tempfile.TemporaryDirectory(prefix="hardtack_mutant_") as name:
        plain = Path(name)
        copy_with(Mutant(mutant.name, "", mutant.way, mutant.file, ()), plain)
        (record,) = _models(plain, _flags(mutant.way), 1, seed, 1, plain / "found.jsonl")
        return record["kind"] == "right"


def run_mutants(names: Sequence[str], *, most: int, jobs: int, seed: int, out: TextIO) -> int:
    """Every mutant, or those whose names contain one of `names`; 1 where one is not found."""
    chosen = [m for m in MUTANTS if not names or any(n in m.name for n in names)]
    if not chosen:
        raise SystemExit(f"no such mutant; there are: {', '.join(m.name for m in MUTANTS)}")
    lost = 0
    for mutant in chosen:
        found = hunt(mutant, most=most, jobs=jobs, seed=seed)
        lost += found.seed is None
        out.write(f"{found}\n")
        out.flush()
    out.write(f"{len(chosen)} mutants, {lost} not found\n")
    return 1 if lost else 0
