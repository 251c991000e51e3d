"""Compiles Triton kernels to machine code: a process of its own, and the one file that imports triton.

It reads one job a line on standard input and answers each with one line, both JSON. A job: text (a Python module),
function, signature {parameter: type}, constexprs {parameter: value, or {"type": name} for a type of Triton}, divisible
[parameters known to be multiples of 16], target [backend, architecture, threads of a warp] (["cuda", 90, 32]), options.
An answer: {"code", "parameters" (the part of the assembly that lists them), "metadata"} or {"error"}.

The argument is the folder that holds the triton that was chosen: it comes before installed packages and behind the
standard library.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(next((k for k, p in enumerate(sys.path) if p.endswith("-packages")), len(sys.path)), sys.argv[1])

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

METADATA = (
    "name", "num_warps", "num_ctas", "shared", "global_scratch_size", "global_scratch_align", "profile_scratch_size",
    "launch_pdl", "tensordesc_meta", "tmem_size",
)  # fmt: skip
PARTS = {
    "cuda": ("ptx", "cubin", ".entry", "{"),
    "hip": ("amdgcn", "hsaco", ".amdgpu_metadata", ".end_amdgpu_metadata"),
}
"""Backend -> the names of its assembly and of its machine code, and where the list of parameters begins and ends."""


def module_at(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def halves_apart_in_ptx() -> None:
    """Has Triton give ptxas what it assembles right: see halves.py."""
    halves = module_at(Path(__file__).with_name("halves.py"))
    backend = triton.backends.backends["nvidia"].compiler
    make_ptx = backend.make_ptx

    def made(self: Any, *args: Any) -> str:
        text: str = halves.halves_apart(make_ptx(self, *args))
        return text

    backend.make_ptx = made


def compile_job(job: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """One kernel."""
    path = folder / f"kernel_{number}.py"  # Triton reads a function's source from its file
    path.write_text(job["text"], encoding="utf-8")
    function = getattr(module_at(path), job["function"])
    names = function.arg_names
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in job["divisible"]}
    constexprs = {
        n: triton.language.dtype(v["type"]) if isinstance(v, dict) else v for n, v in job["constexprs"].items()
    }
    source = ASTSource(function, {name: job["signature"][name] for name in names}, constexprs, attributes)
    target = GPUTarget(*job["target"])
    compiled = triton.compile(source, target=target, options=job["options"])
    module_at(Path(__file__).with_name("fragments.py")).count_fragments(compiled.asm["ttgir"])
    assembly, code, begin, end = PARTS[target.backend]
    start = compiled.asm[assembly].index(begin)
    metadata = {name: getattr(compiled.metadata, name, None) for name in METADATA}
    return {
        "code": base64.b64encode(compiled.asm[code]).decode(),
        "parameters": compiled.asm[assembly][start : compiled.asm[assembly].index(end, start)],
        "metadata": metadata,
    }


def plain(value: object) -> object:
    """What JSON does not know, as text."""
    return str(value)


def main() -> None:
    halves_apart_in_ptx()
    with tempfile.TemporaryDirectory(prefix="hardtack_triton_") as folder:
        for number, line in enumerate(sys.stdin):
            try:
                answer = compile_job(json.loads(line), Path(folder), number)
            except Exception:  # whatever a compiler raises is the answer to this job, and the next one may work
                answer = {"error": traceback.format_exc()}
            sys.stdout.write(json.dumps(answer, default=plain) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
