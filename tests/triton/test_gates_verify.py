"""What verifiers say of a product of halves that is not what it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.group_verify import verify_group
from hardtack.codegen.ir.loops import Axis, Buffer, Load, LoopError, LoopNest
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.lower import lower_graph
from hardtack.codegen.lower.gpu_quantized import CodeRow
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import context_of, fused_groups, run_graph_passes, run_nest_passes
from hardtack.codegen.schedule.template_tile import tile_template
from hardtack.exporter import to_graphs
from tests.support.gates import Codes, Gate


@pytest.fixture(scope="module")
def halves() -> tuple[Group, dict[str, Buffer]]:
    """The group of the product, and all buffers."""
    module = Gate(Codes(512, 1056), lambda a, b: F.silu(a) * b).eval()
    graph = to_graphs(module, (torch.randn(1, 512),)).entries["forward"].graph
    backend = TritonBackend(H200)
    context = context_of(backend, {})
    graph = run_graph_passes(graph, backend, context, [], {})
    lowered = lower_graph(graph, choose_orders(graph), backend.rules, H200, {}, backend.tuning)
    lowered = run_nest_passes(lowered, backend, context, [], {})
    (group,) = (g for g in fused_groups(lowered, backend, context, [], {}) if g.half is not None)
    return group, dict(lowered.buffers)


def _moved(nest: LoopNest, buffer: str, by: int) -> LoopNest:
    """The nest that reads a buffer `by` columns further on."""
    body = [
        replace(s, index=(*s.index[:-1], s.index[-1] + by)) if isinstance(s, Load) and s.buffer == buffer else s
        for s in nest.body
    ]
    return replace(nest, body=tuple(body), sources=())  # of nothing: sources would say so first


def _first_half(g: Group) -> LoopNest:
    """The nest that reads an element of the first half in place of that of the second: half of the columns' middle."""
    (nest,) = g.nests
    body = [
        replace(s, index=(s.index[0], s.index[1] - 264)) if isinstance(s, Load) and _is_second(s, g) else s
        for s in nest.body
    ]
    return replace(nest, body=tuple(body), sources=())


def _is_second(s: Load, g: Group) -> bool:
    assert g.half is not None
    return s.buffer == _result(g) and s.index[1] is not g.half.sym


def _result(g: Group) -> str:
    assert g.anchor is not None
    return g.anchor.result


THIRD = Axis(sym("half", extent=const(32)), const(32))
BROKEN: dict[str, tuple[Callable[[Group], Group], str]] = {
    "a third": (lambda g: replace(g, half=THIRD), "32 columns are no half of 1056"),
    "all columns": (lambda g: replace(g, half=None), "walks other axes than the template"),
    "the row before": (
        lambda g: replace(g, nests=(_moved(g.nests[0], _result(g), -2),)),
        "leaves",
    ),
    "the first half twice": (lambda g: replace(g, nests=(_first_half(g),)), "at another point than its own"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_broken_groups(broken: str, halves: tuple[Group, dict[str, Buffer]]) -> None:
    group, buffers = halves
    verify_group(group, buffers)
    change, message = BROKEN[broken]
    with pytest.raises(LoopError, match=message):
        verify_group(change(group), buffers)


def test_a_template_without_halves(halves: tuple[Group, dict[str, Buffer]], monkeypatch: pytest.MonkeyPatch) -> None:
    group, buffers = halves
    monkeypatch.setattr(CodeRow, "takes_halves", lambda self, nest: False)
    with pytest.raises(LoopError, match="the template gemm_code_row takes no halves"):
        verify_group(group, buffers)


def _kernel(group: Group, buffers: dict[str, Buffer]) -> Kernel:
    (last,) = (n for n in group.nests)
    return tile_template(group, buffers, frozenset(last.writes()), "swiglu")


def test_a_register_that_is_read_elsewhere(halves: tuple[Group, dict[str, Buffer]]) -> None:
    group, buffers = halves
    kernel = _kernel(group, buffers)
    verify_kernel(kernel, group, buffers)
    assert kernel.storage[_result(group)].kind == "register"
    (scheduled,) = kernel.nests
    moved = replace(scheduled, nest=_moved(scheduled.nest, _result(group), 2))
    with pytest.raises(LoopError, match="is accessed at"):
        verify_kernel(replace(kernel, nests=(moved,)), None, buffers)


def test_a_loop_tree_without_its_half(halves: tuple[Group, dict[str, Buffer]]) -> None:
    group, buffers = halves
    with pytest.raises(LoopError, match="has loops of its own in a flat kernel"):
        verify_kernel(replace(_kernel(group, buffers), half=None), group, buffers)
