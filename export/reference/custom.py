"""Ops that users have kernels for, computed by the op itself in eager torch; KERNELS of ops.py has it as `custom`."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from hardtack.codegen.ir.kernel_code import Argument, CudaCode, TritonCode
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.functional_ops import run_functional
from hardtack.exporter.reference.ops import KERNELS
from hardtack.exporter.reference.step import ReferenceFailure, Step


def _custom(s: Step) -> tuple[torch.Tensor, ...]:
    code = s.attr("code")
    if isinstance(code, TritonCode):
        raise ReferenceFailure(f"the Triton kernel {code.function} runs on GPUs alone")
    if isinstance(code, CudaCode):
        raise ReferenceFailure(f"the CUDA kernel {code.function} runs on GPUs alone")
    op = _op(s.attr("op"))
    values = [_value(a, s.args) for a in s.attr("arguments")]
    stated = op._schema.arguments
    args = [v for v, a in zip(values, stated, strict=True) if not a.kwarg_only]
    kwargs = {a.name: v for v, a in zip(values, stated, strict=True) if a.kwarg_only}
    return tuple(
        torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in run_functional(op, args, kwargs)
    )


def _op(name: str) -> OpOverload:
    space, packet, overload = name.split(".")
    found = getattr(getattr(getattr(torch.ops, space), packet), overload)
    assert isinstance(found, OpOverload)
    return found


def _value(argument: Argument, tensors: list[torch.Tensor]) -> Any:
    kind, *rest = argument
    if kind == "tensor":
        return tensors[rest[0]]
    if kind == "pairs":
        return torch.view_as_complex(tensors[rest[0]].contiguous())
    if kind == "list":
        return [_value(a, tensors) for a in rest[0]]
    if kind == "dtype":
        return TORCH_DTYPE[rest[0]]
    return rest[0] if rest else None


KERNELS["custom"] = _custom
