"""Compiles Triton kernels to cubins: a process of its own, and the one file that imports triton.

It reads one job a line on standard input and answers each with one line, both JSON. A job: text (a Python module),
function, signature {parameter: type}, constexprs {parameter: value}, divisible [positions of parameters known to be
multiples of 16], capability (90), options. An answer: {"cubin", "ptx" (its head), "metadata"} or {"error"}.

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


def module_of(text: str, folder: Path, number: int) -> ModuleType:
    """The text as a module: Triton reads a function's source from its file."""
    path = folder / f"kernel_{number}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"kernel_{number}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_job(job: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    """One kernel."""
    function = getattr(module_of(job["text"], folder, number), job["function"])
    attributes = {(at,): [["tt.divisibility", 16]] for at in job["divisible"]}
    source = ASTSource(function, job["signature"], job["constexprs"], attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", job["capability"], 32), options=job["options"])
    ptx = compiled.asm["ptx"]
    start = ptx.index(".entry")
    metadata = {name: getattr(compiled.metadata, name, None) for name in METADATA}
    return {
        "cubin": base64.b64encode(compiled.asm["cubin"]).decode(),
        "ptx": ptx[start : ptx.index("{", start)],
        "metadata": metadata,
    }


def plain(value: object) -> object:
    """What JSON does not know, as text."""
    return str(value)


def main() -> None:
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
