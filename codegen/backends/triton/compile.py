"""Triton kernels to machine code with launch records: worker processes, a cache by content, checked parameter lists.

For CUDA the code is a cubin, for AMD GPUs a code object (hsaco).

Workers run in a clean environment, so that no TRITON_ variable changes code, and without line information, so that the
bytes do not depend on paths.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.codegen.backends.triton import amdgcn, ptx
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.ptx import AbiError, Param, check
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.kernel_code import TritonType
from hardtack.codegen.ir.plan import GpuArg, GpuKernel, TensorMap
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.package.content import kernel_member

TRITON_REQUIREMENT = "triton==3.6.0"
SUPPORTED = ("3.6", "3.7", "3.8", "3.9")
"""Triton versions whose calling convention is known."""
OPTIONS = {
    "enable_fp_fusion": False,  # a*b+c is fused where the text says fma, and nowhere else
    "default_dot_input_precision": "ieee",
    "sanitize_overflow": False,
}
BACKEND_OPTIONS: dict[str, dict[str, object]] = {  # both: subnormal numbers are kept
    "cuda": {"enable_reflect_ftz": False},
    "hip": {"allow_flush_denorm": False},
}
_WORKER = Path(__file__).with_name("worker.py")
_LAYOUT = "triton-3"
_MAP = Param(128, 64)


class TritonError(RuntimeError):
    """Triton is not there, is not a supported version, or cannot compile a kernel."""


@dataclass(frozen=True)
class GpuCode:
    """A compiled kernel: its code and how it is launched."""

    code: bytes
    record: GpuKernel


@dataclass(frozen=True)
class Toolchain:
    """The installed Triton and its assembler for one architecture: what the code depends on besides its text.

    ptxas: None for AMD GPUs, whose assembler is a part of Triton.
    """

    triton: str
    ptxas: str | None


def toolchain(machine: Gpu) -> Toolchain:
    """What compiles for a machine. Raises TritonError when triton is not installed or not a supported version."""
    package = _package()
    if package is None:
        raise TritonError(f"target {machine.target} needs Triton to compile kernels: pip install {TRITON_REQUIREMENT}")
    version = importlib.metadata.version("triton")
    if ".".join(version.split(".")[:2]) not in SUPPORTED:
        raise TritonError(
            f"Triton {version} is installed; Hardtack knows the calling conventions of {SUPPORTED[0]} to "
            f"{SUPPORTED[-1]}: pip install {TRITON_REQUIREMENT}"
        )
    if machine.device == "hip":
        return Toolchain(version, None)
    folder = package / "backends" / "nvidia" / "bin"
    return Toolchain(version, _ptxas_version(folder / machine.assembler))


def _package() -> Path | None:
    """The folder of the installed Triton, which is not imported here."""
    spec = importlib.util.find_spec("triton")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


def _ptxas_version(path: Path) -> str:
    try:
        said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise TritonError(f"cannot run Triton's assembler {path}: {error}") from error
    found = re.search(r"V(\d+\.\d+\.\d+)", said)
    if found is None:
        raise TritonError(f"no version in what {path} --version says: {said.strip()[:200]!r}")
    return found[1]


def compile_kernels(
    kernels: Sequence[TritonKernel],
    machine: Gpu,
    *,
    cache: KernelCache | None = None,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, GpuCode]:
    """Every kernel for one architecture, by name. `progress(done, total)` counts kernels.

    Raises TritonError where Triton is missing or a kernel does not compile or fit, AbiError where its parameters are
    not those that its text declares.
    """
    tools = toolchain(machine)
    cache = cache or KernelCache()
    report = progress or (lambda done, total: None)
    keys = {k.name: _key(k, machine, tools) for k in kernels}
    answers: dict[str, dict[str, Any]] = {}
    missing: list[TritonKernel] = []
    for k in kernels:
        stored = cache.get(keys[k.name])
        if stored is None:
            missing.append(k)
        else:
            answers[k.name] = json.loads(stored)
    report(len(answers), len(kernels))
    for kernel, answer in _compiled(missing, machine, jobs):
        if "error" in answer:
            path = cache.keep_source(f"{kernel.name}.py", kernel.text)
            raise TritonError(
                f"Triton cannot compile kernel {kernel.name}{_users(kernel)} for {machine.name} ({path}):\n"
                f"{answer['error']}"
            )
        answers[kernel.name] = answer
        cache.put(keys[kernel.name], json.dumps(answer).encode())
        report(len(answers), len(kernels))
    if missing:
        cache.trim_if_due()
    return {k.name: code_of(k, machine, answers[k.name]) for k in kernels}


def _job(kernel: TritonKernel, machine: Gpu) -> dict[str, object]:
    options: dict[str, object] = {
        **OPTIONS,
        **BACKEND_OPTIONS[machine.device],
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "num_ctas": kernel.num_ctas,
        **({"launch_pdl": kernel.dependent} if machine.device == "cuda" else {}),
        **kernel.options,
    }
    return {
        "text": kernel.text,
        "function": kernel.name,
        "signature": {a.name: a.type for a in kernel.arguments} | dict.fromkeys(kernel.constexprs, "constexpr"),
        "constexprs": {name: _constexpr(value) for name, value in kernel.constexprs.items()},
        "divisible": [a.name for a in kernel.arguments if a.divisible],
        "target": [
            machine.device,
            int(machine.name.removeprefix("sm_")) if machine.device == "cuda" else machine.name,
            machine.warp_size,
        ],
        "options": options,
    }


def _constexpr(value: object) -> object:
    """A constexpr as JSON has it."""
    return {"type": value.name} if isinstance(value, TritonType) else value


def _key(kernel: TritonKernel, machine: Gpu, tools: Toolchain) -> str:
    text = json.dumps([_LAYOUT, tools.triton, tools.ptxas, _job(kernel, machine)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _compiled(
    kernels: Sequence[TritonKernel], machine: Gpu, jobs: int | None
) -> Iterator[tuple[TritonKernel, dict[str, Any]]]:
    """Each kernel with its worker's answer, as they come."""
    todo: queue.SimpleQueue[TritonKernel | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[TritonKernel, dict[str, Any]]] = queue.SimpleQueue()
    workers = max(1, min(jobs or os.cpu_count() or 1, len(kernels)))
    for k in (*kernels, *[None] * workers):
        todo.put(k)
    with tempfile.TemporaryDirectory(prefix="hardtack_compile_") as home:
        threads = [threading.Thread(target=_serve, args=(todo, done, machine, f"{home}/{w}")) for w in range(workers)]
        if kernels:
            for t in threads:
                t.start()
        try:
            for _ in kernels:
                yield done.get()
        finally:
            while not todo.empty():  # after an error nothing more is begun
                todo.get()
            for _ in threads:
                todo.put(None)
            for t in threads:
                if t.ident is not None:
                    t.join()


def _serve(
    todo: queue.SimpleQueue[TritonKernel | None],
    done: queue.SimpleQueue[tuple[TritonKernel, dict[str, Any]]],
    machine: Gpu,
    home: str,
) -> None:
    """One worker process, fed until the queue says None."""
    os.makedirs(home)
    environment = {
        "HOME": home,
        "PATH": os.environ.get("PATH", os.defpath),
        "TRITON_CACHE_DIR": f"{home}/cache",
        "TRITON_DISABLE_LINE_INFO": "1",
        "TMPDIR": home,
    }
    package = _package()
    assert package is not None, "toolchain() found it"
    command = [sys.executable, "-I", str(_WORKER), str(package.parent)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    said: list[str] = []
    listener = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    listener.start()
    while (kernel := todo.get()) is not None:
        try:
            process.stdin.write(json.dumps(_job(kernel, machine)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        died = {"error": f"the compiling process ended\n{''.join(said)[-4000:]}"}
        done.put((kernel, json.loads(line) if line else died))
    process.stdin.close()
    process.wait()
    listener.join()
    process.stdout.close()
    process.stderr.close()


# launch records

_WORDS = {"i32": "i32", "i64": "i64", "fp32": "i32", "fp64": "i64"}
_NBYTES = {"i32": 4, "i64": 8}
_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([\d, ]+)\]")


def code_of(kernel: TritonKernel, machine: Gpu, answer: Mapping[str, Any]) -> GpuCode:
    """A worker's answer as code and launch record.

    AbiError where the parameters are not those declared, TritonError for more shared memory than a block can have.
    """
    code = base64.b64decode(answer["code"])
    meta = answer["metadata"]
    if meta["profile_scratch_size"]:
        raise AbiError(f"kernel {kernel.name} wants memory for profiling, which nothing asked for")
    if int(meta["shared"]) > machine.shared_nbytes:
        raise TritonError(
            f"kernel {kernel.name}{_users(kernel)} takes {meta['shared']} bytes of shared memory; "
            f"{machine.name} has {machine.shared_nbytes}"
            f"{': give it smaller blocks, fewer stages, or another config first' * kernel.whole}"
        )
    args, expected, maps = _arguments(kernel, meta)
    read = ptx.params if machine.device == "cuda" else amdgcn.params
    check(kernel.name, read(answer["parameters"]), expected)
    scratch = int(meta["global_scratch_size"] or 0)
    record = GpuKernel(
        member=kernel_member(code, machine.device),
        function=str(meta["name"]),
        threads=machine.warp_size * int(meta["num_warps"]),
        shared_nbytes=int(meta["shared"]),
        args=tuple(args),
        cluster=int(meta["num_ctas"]),
        dependent=kernel.dependent,
        scratch_nbytes=scratch,
        scratch_align=int(meta["global_scratch_align"] or 1) if scratch else 1,
        maps=tuple(maps),
    )
    return GpuCode(code, record)


def _users(kernel: TritonKernel) -> str:
    """Whose a kernel is, where a user has written it."""
    return f" of {kernel.origin}" if kernel.whole else ""


def _arguments(kernel: TritonKernel, meta: Mapping[str, Any]) -> tuple[list[GpuArg], list[Param], list[TensorMap]]:
    """The .param list that the function's parameters should become: a descriptor is a map, its shape and strides; two
    pointers follow, to scratch memory and to the profiler's."""
    args: list[GpuArg] = []
    expected: list[Param] = []
    maps: list[TensorMap] = []
    for a in kernel.arguments:
        if a.role[0] == "map":
            at = len(maps)
            found = _DESCRIPTOR.match(a.type)
            assert found is not None, a.type
            described = meta["tensordesc_meta"][at]
            block = tuple(int(n) for n in described["block_size"])
            maps.append(TensorMap(block, int(described["swizzle"]), _descriptor_dtype(found[1])))
            rank = len(found[2].split(","))
            args.append(("map", at))
            args += [("map_shape", at, d) for d in range(rank)]
            args += [("map_stride", at, d) for d in range(rank)]
            expected += [_MAP, *[Param(4)] * rank, *[Param(8)] * rank]
        elif a.role[0] == "int":
            args.append(("int", int(str(a.role[1])), _WORDS[a.type]))
            expected.append(Param(_NBYTES[_WORDS[a.type]]))
        elif a.role[0] == "site":
            args.append(("site",))
            expected.append(Param(4))
        else:
            args.append(("status",) if a.role[0] == "status" else ("buffer", int(str(a.role[1]))))
            expected.append(Param(8))
    args += [("scratch",), ("null",)]
    return args, [*expected, Param(8), Param(8)], maps


def _descriptor_dtype(text: str) -> DType:
    halves = {"fp16": DType.F16, "bf16": DType.BF16}
    bytes_ = {"i8": DType.I8, "u8": DType.U8, "fp8e4nv": DType.F8E4M3, "fp8e5": DType.F8E5M2}
    return (halves | bytes_ | {"fp32": DType.F32, "fp64": DType.F64})[text]
