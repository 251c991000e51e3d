"""Templates: each class has what renders it, refuses what it cannot compute in words, and is verified."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F

import hardtack.codegen.lower
from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.cpp.cpp_templates import CALLS
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.backends.triton.triton_templates import RENDERERS
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.loops import Buffer, LoopError
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import H200, X86_64_V3, X86_64_V4
from hardtack.codegen.package.canonical import dumps
from hardtack.exporter import to_graphs


def classes(of: type[Template] = Template) -> Iterator[type[Template]]:
    """Every template: those without a kind are what several have in common."""
    for module in pkgutil.iter_modules(hardtack.codegen.lower.__path__):
        importlib.import_module(f"hardtack.codegen.lower.{module.name}")
    for found in of.__subclasses__():
        if hasattr(found, "kind") and found.__module__.startswith("hardtack."):
            yield found
        yield from classes(found)


def test_every_template_has_a_renderer() -> None:
    every = set(classes())
    assert set(CALLS) | set(RENDERERS) == every
    assert all(c.__module__.startswith("hardtack.codegen.lower.") for c in every), "it stands with its lowering"


@pytest.mark.parametrize("template", sorted(set(classes()), key=lambda c: c.__name__), ids=lambda c: c.__name__)
def test_a_template_says_what_it_takes(template: type[Template]) -> None:
    left_out = [role.endswith("?") for role in template.roles]
    assert template.roles
    assert left_out == sorted(left_out), "only the last operands may be left out"
    assert template.dtypes
    assert template.__doc__
    assert not template.__doc__.startswith(f"{template.__name__}("), "no docstring that dataclass makes"
    assert all(f.type for f in fields(template))


def lowered(function: Callable[..., torch.Tensor], *args: torch.Tensor, backend: Backend | None = None) -> Lowered:
    backend = backend or CppBackend()
    (entry,) = to_graphs(function, args).entries.values()
    return lower_graph(entry.graph, choose_orders(entry.graph), backend.rules, backend.machines[0], {}, backend.tuning)


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


A, B, IMAGE = torch.ones(3, 4), torch.ones(4, 5), torch.ones(1, 2, 8, 8)
CPU, GPU = CppBackend(), TritonBackend(H200)
NO_MATRIX = "the matrix is no constant; the template gemm_dynamic takes no"
HEADS = (half(1, 2, 4, 8), half(1, 2, 4, 8), half(1, 2, 4, 8))


@pytest.mark.parametrize(
    ("backend", "function", "args", "why"),
    [
        (CPU, torch.matmul, (A.double(), B.double()), f"{NO_MATRIX} f64"),
        (CPU, torch.matmul, (half(3, 4), half(4, 5)), f"{NO_MATRIX} bf16"),
        (CPU, F.conv2d, (IMAGE, torch.ones(3, 2, 3, 3)), "the weights are no constant"),
        (CPU, lambda x: F.conv3d(x, W3), (torch.ones(1, 2, 4, 4, 4),), "three spatial dimensions have no template"),
        (CPU, lambda x: F.conv2d(x, W2), (IMAGE.bfloat16(),), "the template conv takes no bf16"),
        (CPU, F.scaled_dot_product_attention, HEADS, "the template attention takes no bf16"),
        (GPU, lambda x: F.conv2d(x, W2.double()), (IMAGE.double(),), "the template conv takes no f64"),
        (
            GPU,
            F.scaled_dot_product_attention,
            tuple(torch.ones(1, 1, 4, 300) for _ in range(3)),
            "heads of 300 and 300 elements in f32",
        ),
    ],
)  # fmt: skip
def test_what_no_template_computes_is_told(
    backend: Backend, function: Callable[..., torch.Tensor], args: tuple[torch.Tensor, ...], why: str
) -> None:
    low = lowered(function, *args, backend=backend)
    (decision,) = [d for d in low.decisions if d.kind == "template"]
    assert (decision.partner, decision.reason) == ("reductions", why)
    assert not any(isinstance(n, TemplateNest) for n in low.nests)


W2, W3 = torch.ones(3, 2, 3, 3, dtype=torch.bfloat16), torch.ones(3, 2, 3, 3, 3)


def gemm() -> tuple[TemplateNest, dict[str, Buffer]]:
    low = lowered(torch.matmul, A, B)
    (nest,) = [n for n in low.nests if isinstance(n, TemplateNest)]
    return nest, dict(low.buffers)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda n: replace(n, operands=n.operands[:1]), "it has 1 operands, expected a, b"),
        (lambda n: replace(n, axes=n.axes[::-1]), "its axes are not the dimensions of matmul in the order of memory"),
        (
            lambda n: replace(n, operands=(replace(n.operands[0], dtype=DType.F64), n.operands[1])),
            "its first operand is f64, expected f32",
        ),
        (
            lambda n: replace(n, operands=(n.operands[0], replace(n.operands[1], dtype=DType.F64))),
            "its operand b is f64, but the buffer f32",
        ),
        (
            lambda n: replace(n, operands=(replace(n.operands[0], strides=(const(1),)), n.operands[1])),
            "its operand a has 2 dimensions and 1 strides",
        ),
        (lambda n: replace(n, result="nobody"), "unknown buffer nobody"),
    ],
)
def test_a_nest_that_breaks_its_template_is_refused(change: Callable[[TemplateNest], TemplateNest], why: str) -> None:
    nest, buffers = gemm()
    verify_nest(nest, buffers)
    with pytest.raises(LoopError, match=f"gemm_dynamic matmul: {why}"):
        verify_nest(change(nest), buffers)


def test_cpus_of_two_layouts_are_compiled_apart_and_share_weights() -> None:
    """A layout of its own has plans and texts of its own; what both pack alike is in the file once."""
    wide = replace(X86_64_V4, layout="tiles")
    backends = (CppBackend((wide,)), CppBackend((X86_64_V3,)))
    assert [b.key for b in backends] == ["cpu:tiles", "cpu"]
    exported = to_graphs(torch.nn.Linear(40, 70).eval(), (torch.ones(3, 40),))
    (entry,) = exported.entries.values()
    source = Source(entry.graph, entry.in_tree, entry.out_tree)
    content = build_content({"forward": source}, exported.store, backends).content
    alone = build_content({"forward": source}, exported.store, backends[1:]).content
    assert [t.name for t in content.targets] == ["cpu:x86-64-v4", "cpu:x86-64-v3"]
    assert {target for _, target in content.plans} == {"cpu:x86-64-v4", "cpu:x86-64-v3"}
    assert [name for name, _ in content.constants] == [name for name, _ in alone.constants]
    assert dumps(sorted(content.recipes)) == dumps(sorted(alone.recipes))


def test_cpus_of_two_layouts_are_not_one_backend() -> None:
    with pytest.raises(AssertionError, match="compiled apart"):
        CppBackend((X86_64_V4, replace(X86_64_V3, layout="tiles")))
