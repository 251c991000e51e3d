"""Coarse forms of ops: where the pass takes them, and that wrong rewrites are refused, by a verifier of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.codegen.backends.triton.helpers import HELPERS
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Lit, Origin
from hardtack.codegen.ir.loops import (
    Assert,
    Buffer,
    Check,
    Compute,
    Load,
    LoopError,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    out_of,
)
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.tiles import SharedLaunch, TiledKernel, TileNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import H200
from hardtack.codegen.ops import COARSE_FORMS, COARSE_OPS, SCALAR_OPS
from hardtack.codegen.passes.gpu.coarse import TAKE_COARSE_FORMS, verify_coarse_ops, with_coarse_ops
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr, nests_of, with_nests
from hardtack.codegen.pipeline import context_of
from tests.codegen.test_passes import HALF, scheduled

GPU = TritonBackend(H200)
F32, BF16, I32 = DType.F32, DType.BF16, DType.I32


class Of(nn.Module):
    """A function of inputs and a weight, a constant of one row a result."""

    def __init__(self, f: Callable[..., object], width: int = 0, dtype: torch.dtype = HALF) -> None:
        super().__init__()
        self.f = f
        self.w = nn.Parameter(torch.ones(96, width, dtype=dtype), requires_grad=False) if width else None

    def forward(self, *args: Tensor) -> object:
        return self.f(*args) if self.w is None else self.f(*args, self.w)


def gated(x: Tensor, w: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.linear(F.silu(gate) * up, w)


def ones(*shape: int, dtype: torch.dtype = HALF) -> Tensor:
    return torch.ones(shape, dtype=dtype)


Program = tuple[Of, Sequence[Tensor]]
WIDE = torch.float32


def both(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float().tanh()
    return wide, wide.to(HALF)


def apart(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.exp() * 2, y.softmax(-1)


ROUNDED: dict[str, tuple[Program, type[GpuKernelIr], list[str]]] = {
    "loops": ((Of(lambda x: x.erf()), [ones(4, 64)]), TiledKernel, ["coarse_erf"]),
    "behind steady ops": (
        (Of(lambda x: ((x.float().tanh() + 1).sigmoid() * 3).sum(-1).to(HALF)), [ones(4, 64)]),
        TiledKernel,
        ["coarse_tanh", "coarse_sigmoid"],
    ),
    "through registers": ((Of(lambda x: x.softmax(-1)), [ones(4, 64)]), TiledKernel, ["coarse_exp"]),
    "epilogue": ((Of(lambda x, w: F.silu(F.linear(x, w)), 64), [ones(128, 64)]), Kernel, ["coarse_sigmoid"]),
    "prologue": ((Of(gated, 64), [ones(1, 128)]), Kernel, ["coarse_sigmoid"]),
    "a GELU in a prologue": ((Of(lambda x, w: F.linear(F.gelu(x), w), 64), [ones(1, 64)]), Kernel, ["coarse_erf"]),
    "siblings": ((Of(apart), [ones(1000), ones(5, 70)]), SharedLaunch, ["coarse_exp", "coarse_exp"]),
}
EXACT: dict[str, tuple[Program, str]] = {
    "a result of f32": ((Of(lambda x: x.float().exp()), [ones(4, 64)]), "store"),
    "a result of f32 beside one of 16 bits": ((Of(both), [ones(4, 64)]), "store"),
    "f32 through registers": ((Of(lambda x: x.softmax(-1)), [ones(4, 64, dtype=WIDE)]), "store"),
    "a comparison": ((Of(lambda x: (x.float().tanh() > 0.5).to(HALF)), [ones(4, 64)]), r"gt\("),
    "a steep function": ((Of(lambda x: (x.float().exp() - 1).log().to(HALF)), [ones(4, 64)]), r"log\("),
    "a whole number": ((Of(lambda x: x.float().sigmoid().int().to(HALF)), [ones(4, 64)]), r"i32 = cast\("),
    "whether it is 0": ((Of(lambda x: x.float().exp().bool().to(HALF)), [ones(4, 64)]), r"bool = cast\(|ne\("),
    "an index": ((Of(lambda x: x.float().tanh().argmax(-1).to(HALF)), [ones(4, 64)]), r"reduce argmax\("),
    "an epilogue": ((Of(lambda x, w: F.linear(x, w).sigmoid(), 64, WIDE), [ones(128, 64, dtype=WIDE)]), "store"),
    "a row of f32": ((Of(gated, 64, WIDE), [ones(1, 128, dtype=WIDE)]), "store mul"),
    "siblings": ((Of(apart), [ones(1000, dtype=WIDE), ones(5, 70)]), "store mul"),
}


def kernel_of(program: Program) -> tuple[Any, Any]:
    """The buffers, and the program's only kernel before any pass on kernels."""
    module, args = program
    buffers, (kernel,) = scheduled(module, *args)
    return buffers, kernel


def run(kernel: GpuKernelIr, buffers: Any) -> Any:
    return TAKE_COARSE_FORMS.run(kernel, buffers, None, context_of(GPU, {}))


def functions(kernel: GpuKernelIr) -> list[str]:
    """The ops that are coarse or could be."""
    named = {*COARSE_FORMS, *COARSE_OPS}
    return [s.op for n in nests_of(kernel) for s in n.body if isinstance(s, Compute) and s.op in named]


def everywhere(kernel: Any) -> Any:
    """The kernel with every coarse form that there is, also where it must not be."""
    nests = nests_of(kernel)
    return with_nests(kernel, [with_coarse_ops(n, frozenset(map(str, map(out_of, n.body)))) for n in nests])


@pytest.mark.parametrize("name", ROUNDED)
def test_where_results_are_rounded(name: str) -> None:
    program, kind, ops = ROUNDED[name]
    buffers, kernel = kernel_of(program)
    assert type(kernel) is kind
    made = run(kernel, buffers)
    assert functions(made) == ops
    verify_coarse_ops(kernel, made, buffers)
    GPU.verify(made, None, buffers)


@pytest.mark.parametrize("name", EXACT)
def test_where_all_bits_are_needed(name: str) -> None:
    """The pass leaves the ops, and its verifier refuses what another pass would have taken."""
    program, where = EXACT[name]
    buffers, kernel = kernel_of(program)
    made = run(kernel, buffers)
    assert made is kernel or name == "siblings"
    verify_coarse_ops(kernel, made, buffers)
    forced = everywhere(kernel)
    assert functions(forced) != functions(kernel)
    with pytest.raises(LoopError, match=f"needs all bits of a coarse result in: .*{where}"):
        verify_coarse_ops(kernel, forced, buffers)


def _edited(kernel: Any, edit: Callable[[list[Stmt]], Sequence[Stmt]]) -> Any:
    return with_nests(kernel, [replace(n, body=tuple(edit(list(n.body)))) for n in nests_of(kernel)])


def _each(**fields: object) -> Callable[[list[Stmt]], Sequence[Stmt]]:
    """Other fields of the coarse op."""
    given: Any = fields

    def edit(body: list[Stmt]) -> list[Any]:
        return [replace(s, **given) if isinstance(s, Compute) and s.op in COARSE_OPS else s for s in body]

    return edit


def _other_zero(body: list[Stmt]) -> list[Any]:
    zero = Lit(-0.0, F32)
    return [replace(s, args=(s.args[0], zero)) if isinstance(s, Compute) and s.op == "add" else s for s in body]


def _stored_elsewhere(body: list[Stmt]) -> list[Any]:
    return [replace(s, index=(s.index[0] + 1,)) if isinstance(s, Store) else s for s in body]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (_each(op="coarse_tanh"), r"coarse_tanh\(v2\) in place of: .*sigmoid\(v2\)"),
        (_each(op="coarse_gelu"), "coarse_gelu"),
        (_each(args=("v1",)), r"coarse_sigmoid\(v1\) in place of"),
        (_each(out="other"), "other: f32"),
        (_each(dtype=BF16), "bf16 = coarse_sigmoid"),
        (_other_zero, r"-0\.0:f32\) in place of: .*, 0\.0:f32"),
        (_stored_elsewhere, "store .* in place of: store"),
        (lambda body: [*body[:2], body[2], *body[2:]], "is another nest"),
        (lambda body: body[:-1], "is another nest"),
        (lambda body: [body[1], body[0], *body[2:]], "in place of"),
    ],
)
def test_other_rewrites_are_refused(edit: Any, why: str) -> None:
    buffers, kernel = kernel_of((Of(lambda x: (x.float() + 0.0).sigmoid().to(HALF)), [ones(4, 64)]))
    made = run(kernel, buffers)
    verify_coarse_ops(kernel, made, buffers)
    with pytest.raises(LoopError, match=why):
        verify_coarse_ops(kernel, _edited(made, edit), buffers)


def test_the_kernel_is_otherwise_the_one_before() -> None:
    for program, _, _ in ROUNDED.values():
        buffers, kernel = kernel_of(program)
        made = run(kernel, buffers)
        with pytest.raises(LoopError, match="the kernel is another one"):
            verify_coarse_ops(kernel, replace(made, name="other"), buffers)
        nests = [replace(n, axes=n.axes[1:]) for n in nests_of(made)]
        with pytest.raises(LoopError, match="is another nest"):
            verify_coarse_ops(kernel, with_nests(made, nests), buffers)


def test_f64_has_no_coarse_form() -> None:
    buffers, kernel = kernel_of((Of(lambda x: x.tanh().to(HALF)), [ones(4, 64, dtype=torch.float64)]))
    assert run(kernel, buffers) is kernel

    def coarse(body: list[Stmt]) -> list[Any]:
        return [replace(s, op="coarse_tanh") if isinstance(s, Compute) and s.op == "tanh" else s for s in body]

    wrong = _edited(kernel, coarse)
    with pytest.raises(LoopError, match=r"f64 = coarse_tanh.* in place of"):
        verify_coarse_ops(kernel, wrong, buffers)
    with pytest.raises(LoopError, match=r"coarse_tanh is not defined on \(f64\)"):
        GPU.verify(wrong, None, buffers)


# what no program of today lowers to


def tiles(*bodies: tuple[Stmt, ...], inside: str = "") -> tuple[TiledKernel, dict[str, Buffer]]:
    """A kernel of one point. inside: the names of the buffers that stay in registers; p.. are of bf16, q.. of f32."""
    nests = tuple(LoopNest(f"nest{k}", (), body) for k, body in enumerate(bodies))
    names = sorted(set().union(*(n.reads() | n.writes() for n in nests)))
    buffers = {b: Buffer(b, F32 if b.startswith("q") else BF16, (), ()) for b in names}
    storage = {b: "register" if b in inside.split() else "memory" for b in names}
    memory = tuple(buffers[b] for b in names if storage[b] == "memory")
    passes = tuple((TileNest(n, None, frozenset(n.reads() & set(inside.split()))),) for n in nests)
    none = frozenset[str]()
    return TiledKernel("k", (), passes, storage, memory, none, none, 1, False, False, Origin()), buffers


def _store(buffer: str, value: str) -> Store:
    return Store(buffer, (), value)


EXP = (Load("a", "q_in", ()), Compute("b", "exp", ("a",), F32))
ROUND = (Compute("r", "cast", ("b",), BF16), _store("p_out", "r"))


@pytest.mark.parametrize(
    ("bodies", "where"),
    [
        ([(*EXP, Check("i", "b", const(1)))], "check b"),
        ([(*EXP, Assert("b", "it is so"), *ROUND)], "assert b"),
        ([(*EXP, Load("m", "p_in", (), "b"), _store("p_out", "m"))], "load p_in"),
        ([(*EXP, Reduce("any", "any", ("b",), F32))], "reduce any"),
        ([(*EXP, Compute("f", "floor", ("b",), F32), *ROUND)], "floor"),
        ([(*EXP, _store("q", "b")), (Load("c", "q", ()), _store("q_out", "c"))], "store q_out"),
        ([(Load("c", "q", ()), _store("q_out", "c")), (*EXP, _store("q", "b"))], "store q_out"),
    ],
)
def test_the_rule_holds_for_every_statement(bodies: Any, where: str) -> None:
    kernel, buffers = tiles(*bodies, inside="q")
    with pytest.raises(LoopError, match=f"needs all bits of a coarse result in: .*{where}"):
        verify_coarse_ops(kernel, everywhere(kernel), buffers)


def test_registers_that_end_rounded_are_right() -> None:
    load = Load("b", "q", ())
    kernel, buffers = tiles((*EXP, _store("q", "b")), (load, *ROUND), inside="q")
    made = run(kernel, buffers)
    assert functions(made) == ["coarse_exp"]
    verify_coarse_ops(kernel, made, buffers)
    kernel, buffers = tiles((*EXP, _store("q", "b")), (load, *ROUND))
    assert run(kernel, buffers) is kernel, "memory is of f32, and others may read it"
    with pytest.raises(LoopError, match="store q"):
        verify_coarse_ops(kernel, everywhere(kernel), buffers)


def test_only_passes_on_kernels_make_them() -> None:
    assert not COARSE_OPS.keys() & SCALAR_OPS.keys()
    assert set(COARSE_FORMS) <= SCALAR_OPS.keys()
    assert set(COARSE_FORMS.values()) <= COARSE_OPS.keys() <= HELPERS.keys()
    kernel, buffers = tiles((*EXP, *ROUND))
    (nest,) = nests_of(everywhere(kernel))
    with pytest.raises(LoopError, match="unknown op coarse_exp in"):
        verify_nest(nest, buffers)
