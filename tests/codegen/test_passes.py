"""Passes: their names, and that each kernel pass's verifier refuses what computes something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Compute, Load, LoopError, LoopNest, Store
from hardtack.codegen.ir.schedule import Kernel, Overlap, Storage
from hardtack.codegen.ir.tiles import TiledKernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import A100, GPUS, H200
from hardtack.codegen.passes.gpu.addend import START_FROM_ADDEND, verify_addend
from hardtack.codegen.passes.gpu.dependent_launch import verify_overlap
from hardtack.codegen.passes.gpu.gelu import FUSE_GELU, verify_gelus, with_gelus
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr
from hardtack.codegen.pipeline import compile_entry, context_of, fused_groups, run_graph_passes, run_nest_passes
from hardtack.codegen.targets import STAGES
from hardtack.exporter import to_graphs

HALF = torch.bfloat16
BOTH = ["coarse_gelu", "coarse_gelu_tanh"]


class Layer(nn.Module):
    """A product with a bias and a GELU behind it, in 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.linear(x))


class Alone(nn.Module):
    """Two GELUs that are loops of their own."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.gelu(x), F.gelu(x.flip(0), approximate="tanh")


def scheduled(module: nn.Module, *args: torch.Tensor, backend: TritonBackend | None = None) -> tuple[Any, list[Any]]:
    """The buffers, and the kernels before any kernel pass."""
    backend = backend or TritonBackend(H200)
    (entry,) = to_graphs(module.eval(), args).entries.values()
    context = context_of(backend, {})
    graph = run_graph_passes(entry.graph, backend, context, [], {})
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machine, {})
    low = run_nest_passes(low, backend, context, [], {})
    groups = fused_groups(low, backend, context, [], {})
    kept = frozenset(low.outputs)
    return low.buffers, [backend.schedule(g, low.buffers, kept, "k", context) for g in groups]


def test_names_are_words_and_each_is_of_one_thing() -> None:
    for backend in (CppBackend(), *map(TritonBackend, GPUS.values())):
        stages = backend.passes().stages
        assert len(set(stages)) == len(stages)
        assert all(name.isalpha() and name.islower() for name in stages)
        assert set(stages) <= set(STAGES)
        assert [s for s in STAGES if s in stages] == list(stages), "one order for all"


def test_the_page_of_a_gpu() -> None:
    assert " ".join(TritonBackend(H200).passes().stages) == (
        "graph integers bytes products lower inline gates neutral regroup split fuse prologues siblings"
        " tile gelu coarse addend overlap render plan"
    )
    assert (
        " ".join(CppBackend().passes().stages)
        == "graph clamps pools integers codes lower inline expand fuse tile render plan"
    )


def gelus(kernel: GpuKernelIr) -> list[str]:
    nests = kernel.nests if isinstance(kernel, (Kernel, TiledKernel)) else [n for p in kernel.parts for n in p.nests]
    return [s.op for n in nests for s in n.nest.body if isinstance(s, Compute) and s.op.startswith("coarse_gelu")]


@pytest.mark.parametrize("module", [Layer().to(HALF), Alone()], ids=["epilogue", "loops"])
def test_gelus_are_found_and_verified(module: nn.Module) -> None:
    backend = TritonBackend(H200)
    buffers, kernels = scheduled(module, torch.ones(128, 64, dtype=HALF))
    found: list[str] = []
    for kernel in kernels:
        made = FUSE_GELU.run(kernel, buffers, None, context_of(backend, {}))
        FUSE_GELU.verify(kernel, made, buffers)
        found += gelus(made)
    assert sorted(found) == (["coarse_gelu"] if isinstance(module, Layer) else BOTH)


def _edited(kernel: Any, edit: Any) -> Any:
    nests = tuple(replace(n, nest=replace(n.nest, body=edit(n.nest))) for n in kernel.nests)
    return replace(kernel, nests=nests)


def _other_gelu(nest: LoopNest) -> tuple[Any, ...]:
    return tuple(replace(s, op=BOTH[1]) if isinstance(s, Compute) and s.op == BOTH[0] else s for s in nest.body)


def _of_another_value(nest: LoopNest) -> tuple[Any, ...]:
    body: list[Any] = []
    for s in nest.body:
        if isinstance(s, Compute) and s.op == "coarse_gelu":
            body.append(Compute("twice", "mul", (s.args[0], Lit(2.0, s.dtype)), s.dtype))
            s = replace(s, args=("twice",))
        body.append(s)
    return tuple(body)


def _without_stores(nest: LoopNest) -> tuple[Any, ...]:
    return tuple(s for s in nest.body if not isinstance(s, Store))


def _without_its_argument(nest: LoopNest) -> tuple[Any, ...]:
    used = [s.args[0] for s in nest.body if isinstance(s, Compute) and s.op == "coarse_gelu"]
    return tuple(s for s in nest.body if getattr(s, "out", None) not in used)


def _stored_twice(nest: LoopNest) -> tuple[Any, ...]:
    return (*nest.body, *(s for s in nest.body if isinstance(s, Store)))


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (_stored_twice, "at another place, or twice: store"),
        (_of_another_value, "has computed nothing like: twice"),
        (_without_stores, "does no more: store"),
        (_without_its_argument, "which nothing computes any more"),
    ],
)
def test_a_gelu_of_something_else_is_refused(edit: Any, why: str) -> None:
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    made = FUSE_GELU.run(kernel, buffers, None, context_of(TritonBackend(H200), {}))
    with pytest.raises(LoopError, match=why):
        verify_gelus(kernel, _edited(made, edit), buffers)


def test_a_kernel_with_a_gelu_is_otherwise_the_one_before() -> None:
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    made: Any = FUSE_GELU.run(kernel, buffers, None, context_of(TritonBackend(H200), {}))
    with pytest.raises(LoopError, match="the kernel is another one"):
        verify_gelus(kernel, replace(made, name="other"), buffers)
    with pytest.raises(LoopError, match="the kernel is another one"):
        verify_gelus(kernel, replace(made, nests=made.nests[:-1]), buffers)
    nests = tuple(replace(n, nest=replace(n.nest, axes=())) for n in made.nests)
    with pytest.raises(LoopError, match="is another nest"):
        verify_gelus(kernel, replace(made, nests=nests), buffers)


def test_a_gelu_of_which_all_bits_are_needed_is_refused() -> None:
    """Where the result is f32, the pass leaves the ops as they are."""
    buffers, (kernel,) = scheduled(Layer(), torch.ones(128, 64))
    assert FUSE_GELU.run(kernel, buffers, None, context_of(TritonBackend(H200), {})) == kernel
    every = frozenset(s.out for n in kernel.nests for s in n.nest.body if isinstance(s, Compute))
    nests = tuple(replace(n, nest=with_gelus(n.nest, every)) for n in kernel.nests)
    made = replace(kernel, nests=nests)
    assert gelus(made) == ["coarse_gelu"]
    with pytest.raises(LoopError, match="needs all bits of a coarse result in: store"):
        verify_gelus(kernel, made, buffers)


def test_the_other_formula_is_refused() -> None:
    """The two differ by up to 5e-4."""
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    made = FUSE_GELU.run(kernel, buffers, None, context_of(TritonBackend(H200), {}))
    with pytest.raises(LoopError, match=r"gelu_tanh\(.*and was"):
        verify_gelus(kernel, _edited(made, _other_gelu), buffers)


def _gelu_of(**changes: Any) -> Any:
    def edit(nest: LoopNest) -> tuple[Any, ...]:
        return tuple(replace(s, **changes) if isinstance(s, Compute) and s.op in BOTH else s for s in nest.body)

    return edit


def _minus_zero(nest: LoopNest) -> tuple[Any, ...]:
    """Its literals negated, of a body that adds a zero in front."""
    return tuple(
        replace(s, args=tuple(Lit(-a.value, a.dtype) if isinstance(a, Lit) and a.value == 0 else a for a in s.args))
        if isinstance(s, Compute)
        else s
        for s in nest.body
    )


def _and_zero(nest: LoopNest) -> tuple[Any, ...]:
    zero = Compute("zero", "add", (Lit(0.0, DType.F32), Lit(0.0, DType.F32)), DType.F32)
    return (zero, *nest.body)


def test_a_gelu_of_another_dtype_or_zero_is_refused() -> None:
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    made = FUSE_GELU.run(kernel, buffers, None, context_of(TritonBackend(H200), {}))
    for changes in ({"dtype": DType.F64}, {"dtype": DType.BOOL}):
        with pytest.raises(LoopError, match="of one f32 number otherwise"):
            verify_gelus(kernel, _edited(made, _gelu_of(**changes)), buffers)
    before, after = _edited(kernel, _and_zero), _edited(made, _and_zero)
    verify_gelus(before, after, buffers)
    with pytest.raises(LoopError, match="computed nothing like"):
        verify_gelus(before, _edited(after, _minus_zero), buffers)


def with_addend() -> tuple[Any, Kernel, Kernel]:
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    made = START_FROM_ADDEND.run(kernel, buffers, None, context_of(TritonBackend(H200), {}))
    verify_addend(kernel, made, buffers)
    assert made.addend is not None
    return buffers, kernel, made


def test_a_product_starts_from_its_bias() -> None:
    _, _, made = with_addend()
    assert made.addend is not None
    load = made.addend.vector[0]
    assert isinstance(load, Load)
    assert load.buffer == "linear.bias"


def test_an_addend_that_is_not_added_first_is_refused() -> None:
    buffers, kernel, made = with_addend()
    a = made.addend
    assert a is not None
    rows = kernel.nests[a.nest].nest.stores()[0].index
    for wrong in (
        replace(a, total=replace(a.total, op="mul")),
        replace(a, vector=(replace(a.vector[0], index=rows), *a.vector[1:])),  # type: ignore[call-arg]
    ):
        with pytest.raises(LoopError, match="not of the nest that reads the results"):
            verify_addend(kernel, replace(made, addend=wrong), buffers)
    with pytest.raises(LoopError, match="another one"):
        verify_addend(kernel, replace(made, addend=None, name="other"), buffers)


def test_an_addend_that_is_no_vector_of_others_is_refused() -> None:
    """The cast of what no listed load gives, a vector that the kernel itself writes, results that stay in memory."""
    buffers, kernel, made = with_addend()
    a = made.addend
    assert a is not None
    assert isinstance(a.vector[0], Load)
    with pytest.raises(LoopError, match="the addend is no vector"):
        verify_addend(kernel, replace(made, addend=replace(a, vector=a.vector[1:])), buffers)
    writes = kernel.writes | {a.vector[0].buffer}
    with pytest.raises(LoopError, match="written in the kernel that adds it"):
        verify_addend(replace(kernel, writes=writes), replace(made, writes=writes), buffers)
    assert kernel.anchor is not None
    storage = {**kernel.storage, kernel.anchor.result: Storage("memory")}
    with pytest.raises(LoopError, match="do not start from an addend"):
        verify_addend(replace(kernel, storage=storage), replace(made, storage=storage), buffers)


def test_a_value_that_is_needed_without_the_addend_is_refused() -> None:
    buffers, kernel, made = with_addend()
    a = made.addend
    assert a is not None
    n = kernel.nests[a.nest]
    more = Compute("more", "mul", (a.sums.out, Lit(2.0, a.total.dtype)), a.total.dtype)
    at = n.nest.body.index(a.total)
    nest = replace(n.nest, body=(*n.nest.body[:at], more, *n.nest.body[at:]))
    nests = tuple(replace(n, nest=nest) if k == a.nest else x for k, x in enumerate(kernel.nests))
    with pytest.raises(LoopError, match="needed without the addend"):
        verify_addend(replace(kernel, nests=nests), replace(made, nests=nests), buffers)


def test_overlap() -> None:
    buffers, (kernel,) = scheduled(Layer().to(HALF), torch.ones(128, 64, dtype=HALF))
    with pytest.raises(LoopError, match="does not wait"):
        verify_overlap(kernel, replace(kernel, overlap=Overlap(False, True)), buffers)
    with pytest.raises(LoopError, match="another one"):
        verify_overlap(kernel, replace(kernel, overlap=Overlap(True), serial=True), buffers)
    backend = TritonBackend(A100)
    (launch,) = (p for p in backend.passes().kernels if p.name == "overlap")
    assert launch.run(kernel, buffers, None, context_of(backend, {})) is kernel, "an A100 launches one after the other"


class Branches(nn.Module):
    """Branches whose sizes are the outer graph's."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Linear(64, 64, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cond(x.sum() > 0, lambda x: self.a(x) * self.b(x), lambda x: x + 1, (x,))


cond: Any = torch.cond


def test_a_pass_on_a_branch_is_verified_with_the_sizes_around_it() -> None:
    rows = ({0: torch.export.Dim("rows", min=1, max=9)},)
    (entry,) = to_graphs(Branches().eval(), (torch.ones(4, 64),), dynamic_shapes=rows).entries.values()
    made = compile_entry(entry.graph, {"rows": 4}, TritonBackend(H200))
    assert made.texts["products"].count("f32[rows, 64]") > 4, "both branches are there"
