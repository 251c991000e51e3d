"""Graphs of a few ops, lowered for a GPU and executed by Triton's interpreter on torch's CPU tensors."""

from __future__ import annotations

import importlib.util
import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Constant, Graph, Input, Op, TensorType, make_attrs
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import gpu_of
from hardtack.codegen.pipeline import context_of, fused_groups, kernel_of, run_nest_passes
from hardtack.codegen.plan.prepack import made
from hardtack.codegen.tune.choice import NO_TUNING, Tuning
from hardtack.exporter.dtypes import TORCH_DTYPE

BYTES = {torch.bool: torch.int8, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}
"""What kernels take elements for that are bytes to them."""
_folder = tempfile.TemporaryDirectory(prefix="hardtack_triton_")
_counter = itertools.count()


class GraphOf:
    """A graph under construction: inputs of given shapes, then ops."""

    def __init__(self) -> None:
        self.types: dict[str, TensorType] = {}
        self.inputs: list[Input] = []
        self.constants: list[Constant] = []
        self.ops: list[Op] = []

    def input(self, name: str, dtype: DType, shape: Sequence[int | Expr], constant: bool = False) -> str:
        dims = tuple(n if isinstance(n, Expr) else const(n) for n in shape)
        self.types[name] = TensorType(dtype, dims)
        if constant:
            self.constants.append(Constant(name, name))
            return name
        strides: list[Expr] = []
        step: Expr = const(1)
        for n in reversed(dims):
            strides.append(step)
            step = step * n
        self.inputs.append(Input(name, tuple(reversed(strides))))
        return name

    def op(self, op_kind: str, *inputs: Any, dtype: DType, shape: Sequence[int | Expr], **attrs: object) -> str:
        return self.ops_of(op_kind, *inputs, results=[(dtype, shape)], **attrs)[0]

    def ops_of(
        self, op_kind: str, *inputs: Any, results: Sequence[tuple[DType, Sequence[int | Expr]]], **attrs: object
    ) -> list[str]:
        names = []
        for dtype, shape in results:
            name = f"t{len(self.types)}"
            self.types[name] = TensorType(dtype, tuple(n if isinstance(n, Expr) else const(n) for n in shape))
            names.append(name)
        self.ops.append(Op(op_kind, inputs, make_attrs(**attrs), tuple(names)))
        return names

    def bytes_product(self, a: str, b: str, shape: Sequence[int | Expr], fast: bool = False) -> str:
        """a b of int8 in i32, or of floats of 8 bits in f32, as tensor cores add them up."""
        dtype = self.types[a].dtype
        wide, how = (DType.I32, {}) if dtype is DType.I8 else (DType.F32, {"sums": "float8_fast" if fast else "float8"})
        return self.ops_of("matmul", a, b, results=[(wide, shape)], dtype=wide, **how)[0]

    def linear(self, a: str, b: str, bias: str, dtype: DType, shape: Sequence[int | Expr]) -> str:
        """a b + bias, rounded once."""
        wide = DType.F32 if dtype.is_half else dtype
        y = self.op(
            "add", self.op("matmul", a, b, dtype=wide, shape=shape), self.cast(bias, wide), dtype=wide, shape=shape
        )
        return self.cast(y, dtype)

    def cast(self, x: str, dtype: DType) -> str:
        t = self.types[x]
        return x if t.dtype is dtype else self.op("cast", x, dtype=dtype, shape=t.shape)

    def done(self, *outputs: str) -> Graph:
        return Graph(
            "g", tuple(self.inputs), outputs, outputs, tuple(self.constants), (), tuple(self.ops), (), (), self.types
        )


def lowered(graph: Graph, arch: str, hints: Mapping[str, int], tuning: Tuning = NO_TUNING) -> Lowered:
    """The graph as nests, as the pipeline prepares them for fusion."""
    backend = TritonBackend(gpu_of(arch), tuning=tuning)
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machine, hints, backend.tuning)
    return run_nest_passes(low, backend, context_of(backend, hints), [], {})


def kernels(low: Lowered, arch: str, hints: Mapping[str, int]) -> list[tuple[Group, TritonKernel]]:
    """Every group's kernel."""
    backend = TritonBackend(gpu_of(arch))
    context = context_of(backend, hints)
    groups = fused_groups(low, backend, context, [], {})
    out = []
    for k, (g, following) in enumerate(zip(groups, (*groups, None)[1:], strict=True)):
        users = {b for i, other in enumerate(groups) if i != k for b in other.reads() | other.writes()}
        kept = frozenset({*low.outputs, *users})
        rendered, _ = kernel_of(g, low.buffers, kept, following, backend, context)
        assert isinstance(rendered.detail, TritonKernel)
        out.append((g, rendered.detail))
    return out


def load_kernel(kernel: TritonKernel, device: str) -> Any:
    """The kernel's function: for the interpreter, or compiled at its first launch for the GPU of this machine."""
    if device == "cpu":
        from tests.triton import simulate

        return simulate.load_kernel(kernel)
    path = Path(_folder.name) / f"kernel_{next(_counter)}.py"
    path.write_text(kernel.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


@dataclass(frozen=True)
class Prepared:
    """A graph with its memory on a device, ready to be launched as often as wanted."""

    launches: tuple[Callable[[], None], ...]
    outputs: tuple[torch.Tensor, ...]
    kernels: tuple[TritonKernel, ...]
    decisions: tuple[str, ...]

    def __call__(self) -> None:
        for one in self.launches:
            one()


def prepare(
    graph: Graph,
    tensors: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int] | None = None,
    arch: str = "sm_90",
    hints: Mapping[str, int] | None = None,
    device: str = "cpu",
    tuning: Tuning = NO_TUNING,
) -> Prepared:
    """`graph` on `tensors`, its inputs and constants by name. Everything that it writes is NaN or 1 before."""
    sizes = dict(sizes or {})
    hints = hints or sizes
    low = lowered(graph, arch, hints, tuning)
    memory = {name: _memory(low, name, tensors, sizes, device) for name in low.buffers}
    found = [kernel for _, kernel in kernels(low, arch, hints)]
    launches = [launcher(k, memory, sizes, device) for k in found]
    outputs = []
    for name in low.outputs:
        buffer = low.buffers[name]
        shape = [evaluate(buffer.shape[d], sizes) for d in buffer.order]
        inverse = sorted(range(len(shape)), key=lambda d, order=buffer.order: order[d])  # type: ignore[misc]
        outputs.append(memory[name].reshape(shape).permute(inverse))
    decisions = tuple(str(d) for d in low.decisions)
    return Prepared(tuple(x for x in launches if x is not None), tuple(outputs), tuple(found), decisions)


def run(
    graph: Graph,
    tensors: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int] | None = None,
    arch: str = "sm_90",
    hints: Mapping[str, int] | None = None,
    device: str = "cpu",
) -> list[torch.Tensor]:
    """The outputs of `graph` on `tensors`."""
    prepared = prepare(graph, tensors, sizes, arch, hints, device)
    prepared()
    return list(prepared.outputs)


def _memory(
    low: Lowered, name: str, tensors: Mapping[str, torch.Tensor], sizes: Mapping[str, int], device: str
) -> torch.Tensor:
    """A buffer's memory, flat."""
    buffer = low.buffers[name]
    if name in tensors:
        return tensors[name].permute(buffer.order).contiguous().reshape(-1).to(device)
    if name in low.prepacks:
        dtype = torch.uint8 if buffer.dtype.is_float8 else TORCH_DTYPE[buffer.dtype]  # a byte to kernels

        def content(source: str) -> np.ndarray[Any, Any]:
            raw = tensors[source].cpu()
            return (raw.view(torch.int16) if dtype is torch.bfloat16 else raw.view(dtype)).numpy()

        constant = torch.from_numpy(made(low.prepacks[name], content).copy())
        return constant.view(dtype).reshape(-1).to(device)
    numel = math.prod(evaluate(e, sizes) for e in buffer.shape)
    fresh = torch.empty(numel, dtype=TORCH_DTYPE[buffer.dtype], device=device)
    return fresh.fill_(math.nan) if buffer.dtype.is_float else fresh.fill_(1)


def descriptor(
    kernel: TritonKernel, m: int, kind: str, memory: Mapping[str, torch.Tensor], sizes: Mapping[str, int]
) -> Any:
    """What a kernel takes for its m-th tensor map."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    source = kernel.maps[m]
    start = evaluate(source.offset, sizes)
    base = memory[kernel.buffers[source.buffer]][start:]
    shape, strides = ([evaluate(e, sizes) for e in es] for es in (source.shape, source.strides))
    block = [int(n) for n in kind[kind.index("[") + 1 : kind.index("]")].split(",")]
    return TensorDescriptor(base, shape, strides, block)


def launcher(
    kernel: TritonKernel, memory: Mapping[str, torch.Tensor], sizes: Mapping[str, int], device: str
) -> Callable[[], None] | None:
    """A call that runs the kernel once; None where its grid is empty."""
    grid = tuple(evaluate(e, sizes) for e in kernel.grid)
    if 0 in grid:
        return None
    arguments: list[Any] = []
    for a in kernel.arguments:
        if a.role[0] == "buffer":
            tensor = memory[kernel.buffers[int(str(a.role[1]))]]
            arguments.append(tensor if tensor.dtype not in BYTES else tensor.view(BYTES[tensor.dtype]))
        elif a.role[0] == "int":
            arguments.append(evaluate(kernel.ints[int(str(a.role[1]))], sizes))
        elif a.role[0] == "map":
            arguments.append(descriptor(kernel, int(str(a.role[1])), a.type, memory, sizes))
        elif a.role[0] == "status":
            arguments.append(torch.zeros(1, dtype=torch.int32, device=device))
        else:
            arguments.append(1)
    options: dict[str, Any] = {}
    if device != "cpu":
        options = {
            "num_warps": kernel.num_warps,
            "num_stages": kernel.num_stages,
            "launch_pdl": kernel.dependent,
            "enable_fp_fusion": False,
            **kernel.options,
        }
    function = load_kernel(kernel, device)
    return lambda: function[grid](*arguments, **kernel.constexprs, **options)
