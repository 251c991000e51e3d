"""Every template as the lowering emits it for a small model, and the ways in which such a nest can be broken."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

import hardtack.codegen.lower
from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.kernel_code import KernelCode, TritonCode, TritonParameter
from hardtack.codegen.ir.loops import Axis, Buffer
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.cpu_attention import Attention
from hardtack.codegen.lower.cpu_conv import (
    Conv,
    Depthwise,
    PairedConv,
    PairedTransposedConv,
    QuadConv,
    TransposedConv,
    Winograd,
)
from hardtack.codegen.lower.cpu_custom import Custom
from hardtack.codegen.lower.cpu_matmul import DynamicGemm, PackedGemm, PairedGemm, QuadGemm, QuantizedGemm
from hardtack.codegen.lower.cpu_picked import GroupedGemm, PickedGemm
from hardtack.codegen.lower.cpu_quantized import CodeStep
from hardtack.codegen.lower.cpu_recurrence import PackedRecurrence
from hardtack.codegen.lower.cpu_rows import Scan, Sort
from hardtack.codegen.lower.gpu_attention import AttentionCombine, TiledAttention
from hardtack.codegen.lower.gpu_code_rows import TableStep
from hardtack.codegen.lower.gpu_conv import TiledConv, TiledDepthwise
from hardtack.codegen.lower.gpu_custom import CudaCall, TritonCall
from hardtack.codegen.lower.gpu_fragments import CodeFragments
from hardtack.codegen.lower.gpu_grouped import Grouped
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.lower.gpu_quantized import CodeRow, CodeTile
from hardtack.codegen.lower.gpu_recurrence import TiledRecurrence
from hardtack.codegen.lower.gpu_rows import BlockScan, SortCount, SortMerge, SortRows
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import context_of, run_graph_passes
from hardtack.codegen.tune.cut_plan import CutPlan
from hardtack.exporter import to_graphs
from hardtack.exporter.extensions import Contribution, CudaParameter, CudaUserKernel, UserKernel, extensions
from hardtack.exporter.triton_calls.launch_ops import LaunchOp, op_of

CPU, GPU = CppBackend(), TritonBackend(H200)


def classes(of: type[Template] = Template) -> Iterator[type[Template]]:
    """Every template: those without a kind of their own are what several have in common."""
    for module in pkgutil.iter_modules(hardtack.codegen.lower.__path__):
        importlib.import_module(f"hardtack.codegen.lower.{module.name}")
    for found in of.__subclasses__():
        if "kind" in vars(found) and found.__module__.startswith("hardtack."):
            yield found
        yield from classes(found)


def lowered(
    function: Any, *args: Any, backend: Backend | None = None, dynamic: Any = None, kernels: Any = None
) -> Lowered:
    """A function's or a module's nests. kernels: of users, by op."""
    backend = backend or CPU
    found = kernels or {}
    on_cpus = {op: k for op, k in found.items() if isinstance(k, UserKernel)}
    on_gpus = {op: k for op, k in found.items() if isinstance(k, CudaUserKernel)}
    brought = extensions([Contribution("a test", kernels=on_cpus, cuda_kernels=on_gpus)])
    brought = brought.for_gpus() if on_gpus else brought
    (entry,) = to_graphs(function, args, dynamic_shapes=dynamic, extensions=brought).entries.values()
    graph = entry.graph
    if isinstance(backend, CppBackend):
        graph = run_graph_passes(graph, backend, context_of(backend, {}), [], {})
    return lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {}, backend.tuning)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


def _conv(channels: int, outs: int, *kernel: int, **options: Any) -> torch.nn.Module:
    made: torch.nn.Module = (torch.nn.Conv1d, torch.nn.Conv2d)[len(kernel) - 1](
        channels, outs, kernel, bias=False, **options
    )
    return made.eval()


def _turned(*kernel: int, **options: Any) -> torch.nn.Module:
    return torch.nn.ConvTranspose2d(4, 32, kernel, bias=False, **options).eval()


def _attention(causal: bool = False, **options: Any) -> Callable[..., torch.Tensor]:
    return lambda q, k, v, mask=None: F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, **options)


def _heads(dtype: torch.dtype, keys: int, mask: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """[2, 6, 5, 16] queries over `keys` keys of 3 heads, whose values have 8 elements."""
    given = (ones(2, 6, 5, 16, dtype=dtype), ones(2, 3, keys, 16, dtype=dtype), ones(2, 3, keys, 8, dtype=dtype))
    return (*given, mask) if mask is not None else given


class _Picked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3, 7, 64))

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return x @ self.w[ids]


class _CpuGrouped(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3, 16, 8, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, self.w, offs=ends)  # type: ignore[no-any-return]


def _grouped(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(a, b, offs=ends)  # type: ignore[no-any-return]


GQA = _attention(enable_gqa=True)
ENDS = torch.tensor([8, 16, 24], dtype=torch.int32)
IMAGE = ones(2, 4, 9, 10)


class Bytes(torch.nn.Module):
    """A product of int8 with a weight (64, 7)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Buffer(torch.arange(64 * 7).to(torch.int8).view(64, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, self.weight.t())


class SevenBits(torch.nn.Module):
    """A product of int8 whose rows are held to 0 to 127."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Buffer(ones(7, 32, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x.clamp(0, 127).to(torch.int8), self.w)


class ConvBytes(torch.nn.Module):
    """A convolution of what int8 stand for, which is one of int8."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Buffer(torch.arange(64 * 32 * 6).to(torch.int8).view(64, 32, 2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d((x.float() - 3) * 0.5, self.weight.float() * 0.25)


class Rnn(torch.nn.Module):
    """A recurrence's y alone."""

    def __init__(self, cell: torch.nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0]  # type: ignore[no-any-return]


class Groups(torch.nn.Module):
    """A product with a weight of int8 (64, k), whose rows have scales of some groups."""

    def __init__(self, k: int = 24, groups: int = 3) -> None:
        super().__init__()
        self.codes = torch.nn.Buffer(torch.arange(64 * k).to(torch.int8).view(64, k))
        self.scales = torch.nn.Buffer(torch.arange(64 * groups).float().view(64, groups))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        run = x.shape[-1] // self.scales.shape[1]
        return F.linear(x, (self.codes.to(x.dtype) - 3) * self.scales.repeat_interleave(run, 1))


STEPS = (ones(5, 3, 7),)


def _rnn(kind: type[torch.nn.RNNBase], **options: Any) -> torch.nn.Module:
    return Rnn(kind(7, 20, **options)).eval()


@dataclass(frozen=True)
class Program:
    """A model, and which of its nests is meant, where several are of one class."""

    backend: Backend
    module: Any
    args: tuple[torch.Tensor, ...]
    at: int = 0
    kernels: Any = None

    def nest(self, of: type[Template]) -> tuple[TemplateNest, dict[str, Buffer]]:
        low = lowered(self.module, *self.args, backend=self.backend, kernels=self.kernels)
        found = [n for n in low.nests if isinstance(n, TemplateNest) and type(n.template) is of]
        return found[self.at], dict(low.buffers)


@torch.library.custom_op("hardtack_nests::mixed", mutates_args={"total"})
def mixed(total: torch.Tensor, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    raise AssertionError("nobody runs it")


@mixed.register_fake
def _(total: torch.Tensor, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(7, 8), torch.empty(4, dtype=torch.int64)


def _users(total: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    total = total * 2
    return (*mixed(total, x.T[1:], 0.5), total)


class _UsersState(torch.nn.Module):
    """The kernel writes to a state's own memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", ones(3, 2))
        self.eval()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return mixed(self.total, x.T[1:], 0.5)


USERS = {mixed: UserKernel(KernelCode("mixed", "int32_t mixed;", "mixed.cpp"), ("x",), 64, 128)}

ON_GPUS = {
    mixed: CudaUserKernel(
        "mixed",
        "",
        "mixed.cu",
        tuple(
            CudaParameter(*p)
            for p in (
                ("float*", "total"), ("const int32_t*", "x"), ("int64_t", "x.numel"), ("float", "scale"),
                ("float*", "result[0]"), ("int64_t*", "result[1]"), ("double*", "workspace"),
            )
        ),
        (lambda total, x, scale: (x.shape[0], 2)), 64, 128, 80,
    )
}  # fmt: skip


LAUNCH = op_of(
    LaunchOp(
        TritonCode("mixed", "", "mixed.py", tuple(map(TritonParameter, ("total", "x", "n", "scale", "out"))), ()),
        (("tensor", 0), ("tensor", 1), ("int", 0), ("float", 0.5), ("tensor", 2)),
        (0, 2),
    )
)


def _launches(total: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A Triton kernel that writes to a value, which is copied first, and to memory without content."""
    changed, made = LAUNCH([total * 2, x, torch.empty(7, 8)], [45, 3, 2, 1])
    return changed, made


PROGRAMS: Mapping[str, tuple[type[Template], Program]] = {
    "picked": (PickedGemm, Program(CPU, _Picked().eval(), (ones(4, 1, 7), torch.tensor([1, 0, 2, 1])))),
    "cpu_grouped": (GroupedGemm, Program(CPU, _CpuGrouped().eval(), (half(24, 16), ENDS))),
    "packed": (PackedGemm, Program(CPU, torch.nn.Linear(7, 64).eval(), (ones(5, 7),))),
    "quantized": (QuantizedGemm, Program(CPU, Groups().eval(), (ones(5, 24),))),
    "quantized half": (QuantizedGemm, Program(CPU, Groups().eval().bfloat16(), (half(5, 24),))),
    "paired": (PairedGemm, Program(CPU, torch.nn.Linear(7, 64).eval().bfloat16(), (half(5, 7),))),
    "quads": (QuadGemm, Program(CPU, Bytes().eval(), (ones(5, 7, dtype=torch.int8),))),
    "dynamic bytes": (
        DynamicGemm,
        Program(CPU, torch._int_mm, (ones(5, 7, dtype=torch.int8), ones(7, 3, dtype=torch.int8))),
    ),
    "dynamic": (DynamicGemm, Program(CPU, torch.matmul, (ones(2, 5, 7), ones(2, 7, 3)))),
    "attention": (Attention, Program(CPU, GQA, _heads(torch.float32, 10, ones(5, 10)))),
    "lstm": (PackedRecurrence, Program(CPU, _rnn(torch.nn.LSTM), STEPS)),
    "gru": (PackedRecurrence, Program(CPU, _rnn(torch.nn.GRU), STEPS)),
    "rnn": (PackedRecurrence, Program(CPU, _rnn(torch.nn.RNN), STEPS)),
    "winograd": (Winograd, Program(CPU, _conv(64, 128, 3, 3, padding=1), (ones(2, 64, 20, 22),))),
    "conv": (Conv, Program(CPU, _conv(4, 64, 3, 2, groups=2, padding=1, stride=2), (IMAGE,))),
    "paired conv": (PairedConv, Program(CPU, _conv(6, 64, 3, 2, groups=2, padding=1).bfloat16(), (half(2, 6, 9, 11),))),
    "quads of seven bits": (QuadGemm, Program(CPU, SevenBits().eval(), (ones(5, 7),))),
    "conv of bytes": (QuadConv, Program(CPU, ConvBytes().eval(), (ones(2, 32, 9, 11, dtype=torch.int8),))),
    "taps side by side": (PairedConv, Program(CPU, _conv(3, 32, 2, 3, padding=1).bfloat16(), (half(2, 3, 9, 11),))),
    "paired transposed": (
        PairedTransposedConv,
        Program(CPU, _turned(3, 2, stride=(3, 2), output_padding=1).bfloat16(), (IMAGE.bfloat16(),)),
    ),
    "conv 1d": (Conv, Program(CPU, _conv(4, 32, 3, padding=1), (ones(2, 4, 9),))),
    "transposed": (TransposedConv, Program(CPU, _turned(3, 2, stride=(3, 2), output_padding=1), (IMAGE,))),
    "depthwise": (Depthwise, Program(CPU, _conv(6, 6, 3, 2, groups=6, dilation=2), (ones(2, 6, 9, 11),))),
    "sort": (Sort, Program(CPU, lambda x: torch.sort(x, 1), (ones(3, 5, 2),))),
    "topk": (Sort, Program(CPU, lambda x: torch.topk(x, 4, 1), (ones(3, 5, 2),))),
    "scan": (Scan, Program(CPU, lambda x: torch.cumsum(x, 1), (ones(3, 5, 2),))),
    "custom": (Custom, Program(CPU, _users, (ones(3, 2), ones(5, 9, dtype=torch.int32)), kernels=USERS)),
    "custom in place": (Custom, Program(CPU, _UsersState(), (ones(5, 9, dtype=torch.int32),), kernels=USERS)),
    "launch": (TritonCall, Program(GPU, _launches, (ones(3, 2), ones(5, 9, dtype=torch.int32)))),
    "cuda": (CudaCall, Program(GPU, _users, (ones(3, 2), ones(5, 9, dtype=torch.int32)), kernels=ON_GPUS)),
    "gemm": (Gemm, Program(GPU, torch.nn.Linear(7, 40).eval(), (ones(5, 7),))),
    "gemm in a batch": (Gemm, Program(GPU, torch.matmul, (half(2, 5, 7), half(2, 7, 3)))),
    "gemm in parts": (Gemm, Program(GPU, torch.matmul, (half(5, 8192), half(8192, 6)))),
    "row of codes": (CodeRow, Program(GPU, Groups(2048, 4).eval().bfloat16(), (half(1, 2048),))),
    "tiles of codes": (CodeTile, Program(GPU, Groups(96).eval().half(), (half(50, 96).half(),))),
    "fragments of codes": (CodeFragments, Program(GPU, Groups(2048, 8).eval().bfloat16(), (half(5, 2048),))),
    "tiled attention": (TiledAttention, Program(GPU, GQA, _heads(torch.bfloat16, 10, ones(5, 10) > 0))),
    "attention in parts": (TiledAttention, Program(GPU, GQA, _heads(torch.bfloat16, 512))),
    "combine": (AttentionCombine, Program(GPU, GQA, _heads(torch.bfloat16, 512))),
    "tiled gru": (TiledRecurrence, Program(GPU, _rnn(torch.nn.GRU), STEPS)),
    "tiled lstm": (TiledRecurrence, Program(GPU, _rnn(torch.nn.LSTM), STEPS)),
    "tiled conv": (TiledConv, Program(GPU, _conv(4, 6, 3, 2, groups=2, padding=1, stride=2), (IMAGE,))),
    "tiled conv in parts": (TiledConv, Program(GPU, _conv(512, 6, 3, 3), (ones(1, 512, 4, 5),))),
    "tiled transposed": (TiledConv, Program(GPU, _turned(3, 2, stride=(3, 2), output_padding=1), (IMAGE,))),
    "tiled depthwise": (TiledDepthwise, Program(GPU, _conv(6, 6, 3, 2, groups=6, dilation=2), (ones(2, 6, 9, 11),))),
    "grouped": (Grouped, Program(GPU, _grouped, (half(24, 16), half(3, 16, 8), ENDS))),
    "rows": (SortRows, Program(GPU, lambda x: torch.topk(x, 4, 1), (ones(3, 5, 2),))),
    "runs": (SortRows, Program(GPU, lambda x: torch.sort(x, 1), (ones(3, 5000),))),
    "first merge": (SortMerge, Program(GPU, lambda x: torch.sort(x, 1), (ones(3, 5000),))),
    "last merge": (SortMerge, Program(GPU, lambda x: torch.sort(x, 1), (ones(3, 5000),), -1)),
    "count": (SortCount, Program(GPU, lambda x: torch.sort(x, 1), (ones(3, 5, 2).double(),))),
    "block scan": (BlockScan, Program(GPU, lambda x: torch.cumsum(x, 1), (ones(3, 5, 2),))),
}
"""Name -> the template that it has, and a model for which the lowering emits it. Sizes differ, so that no two can be
exchanged."""


@cache
def nest_of(name: str) -> tuple[TemplateNest, dict[str, Buffer]]:
    """The nest of a program, with the buffers."""
    of, program = PROGRAMS[name]
    return program.nest(of)


Broken = tuple[str, TemplateNest, dict[str, Buffer]]


def broken(nest: TemplateNest, buffers: Mapping[str, Buffer]) -> Iterator[Broken]:
    """The nest with one thing changed, each with what it was. All that other rules of nests would find is adapted:
    buffers have the dtypes of operands, and axes are those of the result."""
    for what, changed in _fields(nest.template):
        yield what, replace(nest, template=changed), dict(buffers)
    ops = nest.operands
    for k in range(len(ops)):
        yield f"operand {k} left out", replace(nest, operands=(*ops[:k], *ops[k + 1 :])), dict(buffers)
        for what, changed_operand in _operands(ops[k], buffers[ops[k].buffer]):
            yield (
                f"operand {k} {what}",
                replace(nest, operands=(*ops[:k], changed_operand, *ops[k + 1 :])),
                dict(buffers),
            )
        for dtype in DType:
            if dtype is not ops[k].dtype:
                name = ops[k].buffer
                retyped = tuple(replace(o, dtype=dtype) if o.buffer == name else o for o in ops)
                typed = {**buffers, name: replace(buffers[name], dtype=dtype)}
                yield f"operand {k} of {dtype}", replace(nest, operands=retyped), typed
    yield "one operand more", replace(nest, operands=(*ops, ops[-1])), dict(buffers)
    if len(ops) > 1:
        yield "operands turned around", replace(nest, operands=ops[::-1]), dict(buffers)
    yield from _results(nest, buffers)


def _operands(o: Operand, buffer: Buffer) -> Iterator[tuple[str, Operand]]:
    rank = len(o.shape)
    for d in range(rank):
        longer = (*o.shape[:d], o.shape[d] + 1, *o.shape[d + 1 :])
        yield f"longer in dim {d}", replace(o, shape=longer)
        shorter = (*o.shape[:d], o.shape[d] - 1, *o.shape[d + 1 :])
        yield f"shorter in dim {d}", replace(o, shape=shorter)
        if o.strides[d] is not const(0) and o.shape[d] is not const(1):
            steps = (*o.strides[:d], o.strides[d] * 100_000, *o.strides[d + 1 :])
            yield f"with steps outside in dim {d}", replace(o, strides=steps)
        without = (*o.shape[:d], *o.shape[d + 1 :]), (*o.strides[:d], *o.strides[d + 1 :])
        yield f"without dim {d}", replace(o, shape=without[0], strides=without[1])
        for e in range(d):
            order = list(range(rank))
            order[d], order[e] = e, d
            swapped = tuple(o.shape[x] for x in order)
            if swapped == o.shape:
                continue
            yield f"with sizes {e} and {d} exchanged", replace(o, shape=swapped)
            yield (
                f"with dims {e} and {d} exchanged",
                replace(o, shape=swapped, strides=tuple(o.strides[x] for x in order)),
            )
    yield "with one dim more", replace(o, shape=(const(2), *o.shape), strides=(const(0), *o.strides))
    yield "behind its buffer", replace(o, offset=buffer.numel())
    yield "before its buffer", replace(o, offset=const(-1))


def _results(nest: TemplateNest, buffers: Mapping[str, Buffer]) -> Iterator[Broken]:
    for name in (nest.result, *nest.results):
        whose = "result" if name == nest.result else f"result {nest.results.index(name) + 1}"
        buffer = buffers[name]
        for what, changed in _buffers(buffer):
            axes = tuple(
                Axis(a.sym, changed.shape[d]) for a, d in zip(_axes(nest, changed), changed.order, strict=True)
            )
            yield (
                f"{whose} {what}",
                replace(nest, axes=axes) if name == nest.result else nest,
                {**buffers, name: changed},
            )
    for k in range(len(nest.results)):
        kept = (*nest.results[:k], *nest.results[k + 1 :])
        yield f"result {k + 1} left out", replace(nest, results=kept), dict(buffers)
    yield "one result more", replace(nest, results=(*nest.results, nest.result)), dict(buffers)


def _axes(nest: TemplateNest, changed: Buffer) -> tuple[Axis, ...]:
    """As many axes as the changed result has dimensions."""
    more = tuple(Axis(sym(f"more{k}", extent=1), const(1)) for k in range(len(changed.shape)))
    return (*nest.axes, *more)[: len(changed.shape)]


def _buffers(b: Buffer) -> Iterator[tuple[str, Buffer]]:
    rank = len(b.shape)
    for d in range(rank):
        yield f"longer in dim {d}", replace(b, shape=(*b.shape[:d], b.shape[d] + 1, *b.shape[d + 1 :]))
        for e in range(d):
            order = list(b.order)
            i, j = order.index(d), order.index(e)
            order[i], order[j] = order[j], order[i]
            yield f"with dims {e} and {d} exchanged in memory", replace(b, order=tuple(order))
    yield "with one dim more", replace(b, shape=(*b.shape, const(2)), order=(*b.order, rank))
    for dtype in DType:
        if dtype is not b.dtype:
            yield f"of {dtype}", replace(b, dtype=dtype)


def _fields(what: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """A frozen dataclass with one of its numbers, words or sizes changed; plans inside of it likewise."""
    for f in fields(what):
        value = getattr(what, f.name)
        name = f"{within}{f.name}"
        if is_dataclass(value):
            for inner, changed in _fields(value, f"{name}."):
                yield inner, replace(what, **{f.name: changed})
            continue
        for how, changed in _values(value):
            yield f"{name} {how}", replace(what, **{f.name: changed})


def _changed(value: Any) -> Any:
    """What stands in a tuple, each number in it one more; a word misspelt."""
    if isinstance(value, str):
        return "nonsense"
    if isinstance(value, DType):
        return DType.I64
    if isinstance(value, TensorType):
        return TensorType(DType.F16, value.shape)
    if isinstance(value, (CodeStep, TableStep)):
        return type(value)(*map(_changed, value))
    if isinstance(value, TritonParameter):
        return replace(value, name="nonsense")
    return tuple(map(_changed, value)) if isinstance(value, tuple) else value + 1


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    if value is None:
        yield "of a tuning table, and not legal", CutPlan(100, "by_size", "")
    elif isinstance(value, bool):
        yield "turned", not value
    elif isinstance(value, Expr):
        yield "larger", value + 1
    elif isinstance(value, int):
        yield "larger", value + 1
        yield "far smaller", value - 100
    elif isinstance(value, float):
        yield "larger", value + 1.0
    elif isinstance(value, str):
        yield "misspelt", "nonsense"
    elif isinstance(value, tuple):
        yield "shorter", value[:-1]
        for k in range(len(value)):
            changed = "misspelt" if isinstance(value[k], str) else "larger"
            yield f"{changed} in {k}", (*value[:k], _changed(value[k]), *value[k + 1 :])
    else:
        raise AssertionError(f"no way to break {value!r}")
