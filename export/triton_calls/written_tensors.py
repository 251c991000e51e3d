"""Which tensors a Triton kernel writes to, by torch's analysis of Triton's own intermediate text, without a GPU."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._higher_order_ops import triton_kernel_wrap

from hardtack.codegen.ir.kernel_code import TRITON_POINTERS
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.errors import CaptureError, SourceLine
from hardtack.exporter.triton_calls.kernel_text import file_of, head_line

_TORCH: Any = triton_kernel_wrap
_POINTERS = {TORCH_DTYPE[dtype]: pointer for dtype, pointer in TRITON_POINTERS.items()}


def written_tensors(
    kernel: Any, functions: Sequence[Any], given: Mapping[str, Any], where: SourceLine | None
) -> set[str]:
    """The names of the parameters whose memory a launch writes to. kernel: a function of triton.jit; functions: those
    of its text; given: a value for each parameter, constexprs too. CaptureError for a kernel that Triton does not take,
    with the line of the kernel, and for one that torch cannot look into.
    """
    constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr or _is_constant(given[p.name])}
    types = {p.name: "constexpr" if p.name in constants else _type(p, given[p.name]) for p in kernel.params}
    passed = [name for name in types if name not in constants]

    def intermediate(*_: Any) -> tuple[Any, list[str]]:
        return _intermediate(kernel, types, constants), passed

    original = _TORCH.generate_ttir
    _TORCH.generate_ttir = intermediate  # torch's takes bools for bytes, and asks a GPU what it is
    try:
        with torch._C._DisableTorchDispatch(), _failure_of_torch() as failures:
            memory = {name: torch.empty(0) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
            found = _written(kernel, memory)
    finally:
        _TORCH.generate_ttir = original
    if failures:
        raise _refusal(kernel, functions, failures[0], where)
    return found


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _type(p: Any, value: Any) -> str:
    """The type of an argument as far as it matters to what is written."""
    if p.annotation_type:
        return str(p.annotation_type)
    if isinstance(value, torch.Tensor):
        return _POINTERS.get(value.dtype, "*u8")
    return "fp32" if isinstance(value, float) else "i64"


def _intermediate(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any]) -> Any:
    """Triton's first text of a kernel, as for an H100 whatever the machine has."""
    compiler, ir = sys.modules["triton.compiler.compiler"], sys.modules["triton._C.libtriton"].ir
    target = sys.modules["triton.backends.compiler"].GPUTarget("cuda", 90, 32)
    backend, context = compiler.make_backend(target), ir.context()
    options = backend.parse_options({"enable_fp_fusion": False})
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = compiler.ASTSource(kernel, dict(types), dict(constants), {})
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made = source.make_ir(target, options, functions, modules, context)
    if not made.verify():
        raise ValueError("Triton made an intermediate text of it that is wrong")
    return made


def _written(kernel: Any, args: dict[str, Any]) -> set[str]:
    if hasattr(_TORCH, "identify_accessed_tensors"):
        names = [dep.name for dep in _TORCH.identify_accessed_tensors(kernel, args, {}).read_writes.writes]
    else:  # torch 2.12 and before
        names = _TORCH.identify_mutated_tensors(kernel, args, {})
    return {name for name in names if isinstance(args.get(name), torch.Tensor)}


@contextlib.contextmanager
def _failure_of_torch() -> Iterator[list[BaseException]]:
    """What torch's analysis logs in the place of raising it, before it takes all tensors for written."""
    found: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            found.append(record.exc_info[1])
            return False
        return True

    log = _TORCH.log
    log.addFilter(keep)
    try:
        yield found
    finally:
        log.removeFilter(keep)


def _refusal(kernel: Any, functions: Sequence[Any], error: BaseException, where: SourceLine | None) -> CaptureError:
    """Of Triton's errors the innermost has the line and the reason; those around it lead there."""
    while error.__cause__ is not None and _line_of(error.__cause__, functions) is not None:
        error = error.__cause__
    line = _line_of(error, functions)
    if line is None:
        return CaptureError(
            f"torch cannot tell what the Triton kernel {kernel.__name__} writes to: {type(error).__name__}: {error}",
            where,
        )
    said = getattr(error, "error_message", None) or type(error).__name__
    cause = error.__cause__
    reason = f"{said}: {cause}" if cause is not None and str(cause) not in str(said) else str(said)
    return CaptureError(f"Triton cannot compile the kernel {kernel.__name__}: {reason}", line)


def _line_of(error: BaseException, functions: Sequence[Any]) -> SourceLine | None:
    """The user's line of an error of Triton's compiler, which counts from the head of a function."""
    text, node = getattr(error, "src", None), getattr(error, "node", None)
    at = getattr(node, "lineno", None)
    if text is None or at is None:
        return None
    found = next((f for f in functions if str(f.src) == text), functions[0])
    lines = text.splitlines()
    return SourceLine(file_of(found), head_line(found) + at - 1, lines[at - 1].strip() if at <= len(lines) else "")
