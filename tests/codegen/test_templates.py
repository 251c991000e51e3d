"""Templates: each class has what renders it, refuses what it cannot compute in words, and is verified."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.call import spellers
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_templates import renderers
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.graph_infer_nn import GATES
from hardtack.codegen.ir.loops import Buffer, LoopError
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.lower.template import template as emit
from hardtack.codegen.machine.data import H200, X86_64_V3, X86_64_V4
from hardtack.codegen.machine.machine import Cpu
from hardtack.codegen.package.canonical import dumps
from hardtack.exporter import to_graphs
from tests.codegen.template_nests import CPU, GPU, PROGRAMS, classes, lowered, nest_of
from tests.triton.template_runs import GraphOf


def test_every_template_has_a_renderer() -> None:
    every = set(classes())
    assert set(spellers()) | set(renderers()) == every
    assert all(c.__module__.startswith("hardtack.codegen.lower.") for c in every), "it stands with its lowering"


@pytest.mark.parametrize("template", sorted(set(classes()), key=lambda c: c.__name__), ids=lambda c: c.__name__)
def test_a_template_says_what_it_takes(template: type[Template]) -> None:
    left_out = [role.optional for role in template.roles]
    assert template.roles or template.operand_roles is not Template.operand_roles
    assert left_out == sorted(left_out), "only the last operands may be left out"
    assert template.dtypes
    assert template.__doc__
    assert not template.__doc__.startswith(f"{template.__name__}("), "no docstring that dataclass makes"
    assert all(f.type for f in fields(template))


A, B, IMAGE = torch.ones(3, 4), torch.ones(4, 5), torch.ones(1, 2, 8, 8)
NO_MATRIX = "the matrix is no constant; the template gemm_dynamic takes no"
DOUBLE = torch.ones(1, 2, 4, 8).double()


@pytest.mark.parametrize(
    ("backend", "function", "args", "why"),
    [
        (CPU, torch.matmul, (A.double(), B.double()), f"{NO_MATRIX} f64"),
        (CPU, F.conv2d, (IMAGE, torch.ones(3, 2, 3, 3)), "the weights are no constant"),
        (CPU, lambda x: F.conv3d(x, W3), (torch.ones(1, 2, 4, 4, 4),), "three spatial dimensions have no template"),
        (
            CPU,
            lambda x: F.conv2d(x, W2.double()),
            (IMAGE.double(),),
            "the template conv takes no f64; the template conv_paired takes no f64; "
            "the template conv_quads takes no f64",
        ),
        (CPU, F.scaled_dot_product_attention, (DOUBLE, DOUBLE, DOUBLE), "the template attention takes no f64"),
        (GPU, lambda x: F.conv2d(x, W2.double()), (IMAGE.double(),), "the template conv takes no f64"),
        (
            GPU,
            lambda x: F.conv2d(x, W2[:2, :1].double(), groups=2),
            (IMAGE.double(),),
            "the template depthwise takes no f64",
        ),
        (GPU, F.scaled_dot_product_attention, (DOUBLE, DOUBLE, DOUBLE), "the template attention takes no f64"),
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


def _graph(op: str, dtype: DType, *shapes: tuple[int, ...], **attrs: object) -> Graph:
    """A graph that no export makes: one op of a dtype that its type rule, or the export, keeps out."""
    g = GraphOf()
    inputs = [g.input(f"x{k}", dtype, shape) for k, shape in enumerate(shapes)]
    out = (*shapes[0][:-1], shapes[1][-1]) if op == "matmul" else shapes[0]
    results = [(dtype, out)] if op not in GATES else [(dtype, (5, 3, 20)), (dtype, (3, 20)), (dtype, (3, 20))]
    return g.done(*g.ops_of(op, *inputs, results=results, **attrs))


def _lowered_graph(graph: Graph, backend: Backend) -> Lowered:
    return lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {}, backend.tuning)


def test_a_product_of_integers_is_loops_on_a_gpu() -> None:
    low = _lowered_graph(_graph("matmul", DType.I32, (3, 4), (4, 5)), GPU)
    (decision,) = low.decisions
    assert (decision.partner, decision.reason) == ("reductions", "the template gemm takes no i32")
    assert not any(isinstance(n, TemplateNest) for n in low.nests)


LOGS = "the template scan takes no logsumexp of i32"
LSTM = ((5, 3, 7), (3, 20), (3, 20), (80, 7), (80, 20))


@pytest.mark.parametrize(
    ("backend", "graph", "why"),
    [
        (CPU, _graph("scan", DType.I32, (3, 4), kind="logsumexp", dim=1), LOGS),
        (GPU, _graph("scan", DType.I32, (3, 4), kind="logsumexp", dim=1), LOGS),
        (CPU, _graph("scan", DType.BOOL, (3, 4), kind="sum", dim=1), "the template scan takes no bool"),
        (GPU, _graph("scan", DType.BOOL, (3, 4), kind="sum", dim=1), "the template scan takes no bool"),
        (
            CPU,
            _graph("lstm", DType.F32, *LSTM, reverse=False, has_bias=False),
            "lstm takes only constant weights (make them parameters of the module)",
        ),
        (GPU, _graph("lstm", DType.I32, *LSTM, reverse=False, has_bias=False), "the template recurrence takes no i32"),
    ],
)  # fmt: skip
def test_what_nothing_computes_is_refused_in_words(backend: Backend, graph: Graph, why: str) -> None:
    """There are no loops for these: the op is refused before anything is emitted."""
    with pytest.raises(UnsupportedOp, match=re.escape(f"{why} on {backend.machines[0].name}")):
        _lowered_graph(graph, backend)


def test_a_recurrence_by_weights_that_are_given_is_refused_at_the_users_line() -> None:
    """On a CPU: their panels are packed at export. It was a KeyError."""

    def steps(x: torch.Tensor, h: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor) -> torch.Tensor:
        return torch.rnn_tanh(x, h, [w_ih, w_hh], False, 1, 0.0, False, False, False)[0]

    args = (torch.ones(5, 3, 7), torch.zeros(1, 3, 20), torch.ones(20, 7), torch.ones(20, 20))
    with pytest.raises(UnsupportedOp, match=r"test_templates\.py:\d+: rnn_tanh takes only constant weights"):
        lowered(steps, *args)
    low = lowered(steps, *args, backend=GPU)
    assert [n.template.label for n in low.nests if isinstance(n, TemplateNest)] == ["gemm", "rnn_tanh"]


def test_the_hidden_bias_of_a_gru_is_dense() -> None:
    """Its kernel knows no strides; a part of every other element was read as if it were of neighbours."""

    def steps(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor, r: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.gru(x, h, [w, r, b[::2], b[::2]], True, 1, 0.0, False, False, False)[0]

    args = (torch.ones(5, 3, 7), torch.zeros(1, 3, 20), torch.ones(60, 7), torch.ones(60, 20), torch.ones(120))
    low = lowered(steps, *args, backend=GPU)
    (nest,) = [n for n in low.nests if isinstance(n, TemplateNest) and n.template.label == "gru"]
    bias = nest.operands[3]
    assert (bias.shape, bias.strides, bias.offset) == ((const(20),), (const(1),), const(40))
    assert low.buffers[bias.buffer].shape == (const(60),)


@pytest.mark.parametrize(
    "template", sorted(set(classes()), key=repr), ids=lambda c: f"{c.__module__[-3:]}.{c.__name__}"
)
def test_a_template_says_which_machines_and_dtypes_it_is_not_for(template: type[Template]) -> None:
    own, other = (X86_64_V4, H200) if template.machine is Cpu else (H200, X86_64_V4)
    for dtype in DType:
        why = template.why_not_of(dtype, own)
        assert why == (None if dtype in template.dtypes else f"the template {template.kind} takes no {dtype}")
    foreign = f"the template {template.kind} is for {'CPUs' if template.machine is Cpu else 'GPUs'}"
    assert template.why_not_of(template.dtypes[0], other) == foreign
    in_cpu_file = template.__module__.rpartition(".")[2].startswith("cpu_")
    assert in_cpu_file == (template.machine is Cpu)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_template_is_emitted_where_it_cannot_compute(name: str) -> None:
    """The last to ask is what emits: a rule that forgets to is told."""
    nest, buffers = nest_of(name)
    for machine in (X86_64_V4, H200):
        low = Lowering(_graph("exp", DType.F32, (3, 4)), {}, dict(buffers), machine)
        (op,) = low.graph.ops
        for dtype in DType:
            first = replace(nest.operands[0], dtype=dtype)
            why = nest.template.why_not_of(dtype, machine)
            args = (low, op, nest.template, buffers[nest.result], (first, *nest.operands[1:]))
            if why is None:
                emit(*args)
                continue
            with pytest.raises(UnsupportedOp, match=re.escape(why)):
                emit(*args)


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
