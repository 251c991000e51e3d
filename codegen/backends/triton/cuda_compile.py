"""Users' CUDA kernels to cubins with launch records: by NVRTC, with a cache by content, and checked parameters."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from hardtack.codegen.backends.triton import ptx
from hardtack.codegen.backends.triton.compile import GpuCode
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.nvrtc import Compiled, DoesNotCompile, Nvrtc, NvrtcError, nvrtc
from hardtack.codegen.backends.triton.ptx import Param
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.kernel_code import CUDA_NUMBERS, CudaCode
from hardtack.codegen.ir.plan import GpuArg, GpuKernel
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.package.content import kernel_member

HEADER = "hardtack/cuda_kernel.h"
OPTIONS = ("--std=c++17", "--fmad=false")  # a*b+c is fused where the text says fma, and nowhere else
_LAYOUT = "cuda-1"
_TEMPLATES = Path(__file__).parents[2] / "templates" / "cuda"
_WORDS = {"fp32": "i32", "fp64": "i64"}
_REGISTERS = 65536
"""Of a multiprocessor; a block's threads share them."""
_CHECK = """
#line 1 "{mark}"
#include <{header}>
namespace ht_check_of_parameters {{
template <class T> struct plain {{ using type = T; }};
template <> struct plain<long long> {{ using type = long; }};
template <> struct plain<const long long> {{ using type = const long; }};
template <class T> struct plain<T*> {{ using type = typename plain<T>::type*; }};
template <class T> struct form;
template <class... A> struct form<void(A...)> {{ using type = void(typename plain<A>::type...); }};
template <class A, class B> struct same {{ static constexpr bool value = false; }};
template <class A> struct same<A, A> {{ static constexpr bool value = true; }};
}}
static_assert(ht_check_of_parameters::same<typename ht_check_of_parameters::form<decltype({function})>::type,
                                           void({types})>::value, "{mark}");
"""
_MARK = "hardtack: the stated parameters"


def compile_cuda(
    kernels: Sequence[TritonKernel], machine: Gpu, *, cache: KernelCache
) -> tuple[dict[str, GpuCode], dict[str, str]]:
    """Every kernel for one architecture, by name, and the compiler with its version; nothing for no kernels.

    Raises NvrtcError where NVRTC is missing, or a kernel does not compile or is not as its parameters were stated.
    """
    if not kernels:
        return {}, {}
    compiler = nvrtc()
    if int(machine.name.removeprefix("sm_")) not in compiler.architectures():
        known = ", ".join(f"sm_{n}" for n in compiler.architectures())
        raise NvrtcError(f"NVRTC {compiler.version} does not compile for {machine.name}; it knows {known}")
    found = {k.name: _code(k, machine, _compiled(k, machine, compiler, cache)) for k in kernels}
    return found, {"nvrtc": compiler.version}


def _compiled(kernel: TritonKernel, machine: Gpu, compiler: Nvrtc, cache: KernelCache) -> Compiled:
    assert kernel.cuda is not None
    code = kernel.cuda
    header = (_TEMPLATES / "cuda_kernel.h").read_text(encoding="utf-8")
    options = (f"--gpu-architecture={machine.name}", *OPTIONS)
    text = code.source + _CHECK.format(
        mark=_MARK, header=HEADER, function=code.function, types=", ".join(code.parameters)
    )
    job = json.dumps([_LAYOUT, compiler.version, header, text, code.file, options])
    key = hashlib.sha256(job.encode()).hexdigest()
    stored = cache.get(key)
    if stored is not None:
        answer = json.loads(stored)
        return Compiled(base64.b64decode(answer["cubin"]), answer["ptx"])
    try:
        made = compiler.compile(text, code.file, options, {HEADER: header})
    except DoesNotCompile as error:
        raise _problem(code, kernel, machine, compiler, str(error)) from None
    cache.put(key, json.dumps({"cubin": base64.b64encode(made.cubin).decode(), "ptx": made.ptx}).encode())
    cache.trim_if_due()
    return made


def _problem(code: CudaCode, kernel: TritonKernel, machine: Gpu, compiler: Nvrtc, log: str) -> NvrtcError:
    """What NVRTC says, in words where it says it of the check of the parameters."""
    own = [line for line in log.splitlines() if re.search(r"\): (catastrophic )?error", line)]
    if own and all(line.startswith(f"{_MARK}(") for line in own):
        if any("is undefined" in line for line in own):
            return _no_function(code)
        return NvrtcError(
            f"{code.function} of {code.file}, the kernel of {kernel.origin}, does not take the arguments that are "
            f"stated: they are ({', '.join(code.parameters)}), of void {code.function}"
        )
    kept = re.split(rf"(?m)^{re.escape(_MARK)}\(", log)[0].strip()
    return NvrtcError(
        f"the CUDA kernel {code.function} of {code.file} does not compile for {machine.name} with NVRTC "
        f"{compiler.version}:\n{kept or log}"
    )


def _no_function(code: CudaCode) -> NvrtcError:
    return NvrtcError(
        f'{code.file} has no kernel {code.function}: it must be extern "C" __global__ void {code.function}'
        f"({', '.join(code.parameters)}), in no namespace"
    )


def _code(kernel: TritonKernel, machine: Gpu, made: Compiled) -> GpuCode:
    """The compiled kernel with its launch record."""
    code = kernel.cuda
    assert code is not None
    entry = re.search(rf"\.entry {re.escape(code.function)}\s*(\([^)]*\))", made.ptx)
    if entry is None:
        raise _no_function(code)
    args: list[GpuArg] = []
    expected: list[Param] = []
    for a in kernel.arguments:
        at = int(str(a.role[1]))
        if a.role[0] == "buffer":
            args.append(("buffer", at))
            expected.append(Param(8))
        else:
            word = _WORDS.get(CUDA_NUMBERS[a.type], CUDA_NUMBERS[a.type])
            args.append(("int", at, word))
            expected.append(Param(4 if word == "i32" else 8))
    ptx.check(code.function, ptx.params(entry[1]) if kernel.arguments else (), expected)
    _check_limits(code, kernel, machine, made.cubin)
    member = kernel_member(made.cubin, machine.device)
    record = GpuKernel(member, code.function, code.threads, code.shared_nbytes, tuple(args))
    return GpuCode(made.cubin, record)


def _check_limits(code: CudaCode, kernel: TritonKernel, machine: Gpu, cubin: bytes) -> None:
    """NvrtcError for more shared memory or more registers than a block can have."""
    fixed, registers = _needs(cubin, code.function)
    if fixed + code.shared_nbytes > machine.shared_nbytes:
        raise NvrtcError(
            f"the CUDA kernel {code.function} of {kernel.origin} takes {fixed + code.shared_nbytes} bytes of shared "
            f"memory; {machine.name} has {machine.shared_nbytes}: give it smaller blocks, or less of it"
        )
    if -(-registers // 8) * 8 * code.threads > _REGISTERS:
        raise NvrtcError(
            f"the CUDA kernel {code.function} of {kernel.origin} takes {registers} registers a thread for "
            f"{code.threads} threads; {machine.name} has {_REGISTERS} for a block: write "
            f"__launch_bounds__({code.threads}) in front of its name, or give it smaller blocks"
        )


def _needs(cubin: bytes, function: str) -> tuple[int, int]:
    """Bytes of static shared memory, and registers of a thread: from the sections .nv.shared.F and .text.F."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<IIQQQQII", cubin, table + k * size) for k in range(count)]
    fixed = registers = 0
    for name_at, _, _, _, _, nbytes, _, info in sections:
        start = sections[names][4] + name_at
        name = cubin[start : cubin.index(b"\0", start)].decode()
        fixed = nbytes if name == f".nv.shared.{function}" else fixed
        registers = info >> 24 if name == f".text.{function}" else registers
    return fixed, registers
