"""Views and copies as the example inputs have them in eager mode, against what torch.export traced.

Which of the two reshape, flatten or contiguous gives depends on strides. torch traces those of tensors without
elements, and for some ops they are others than in eager mode: relu of a channels_last image of one pixel is row-major,
and traced as channels_last; a transposed matrix divided by a tensor without dimensions and rounded down stays
transposed, and is traced as row-major. A write in place through such a view would then be lost, or reach too far. So it
would be where an example is transposed, which torch traces as the row-major tensor that callers will give. Of
contiguous(), where nothing is to be copied, nothing is traced at all, nor of what a model asks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from hardtack.exporter.aliases import aliased_operands
from hardtack.exporter.capture.dynamic_shapes import Prepared
from hardtack.exporter.capture.guarded_kernels import GuardedKernels
from hardtack.exporter.capture.small.runs import Unchecked, example_leaves, run_program
from hardtack.exporter.decompose.reshape_writes import written_reshapes
from hardtack.exporter.eager_views import is_view, share_memory
from hardtack.exporter.errors import CaptureError
from hardtack.exporter.origin import source_of
from hardtack.exporter.sizes.strides import example_size, otherwise_strided


def refuse_other_layouts(ep: ExportedProgram, prepared: Prepared, laid_out: Prepared | None = None) -> None:
    """CaptureError for the first written view that is a copy in eager mode, or the reverse. Runs the program, not yet
    decomposed, on its example inputs, if it has such views at all.

    laid_out: the examples with the strides that the caller gave them, where those of `prepared` are the contract's. A
    program that means something else with them is refused, too.
    """
    traced = {n.name: is_view(n) for n in written_reshapes(ep)}
    if not traced:
        return
    if found := _first_other(ep, traced, example_leaves(ep, prepared)):
        node, kind, other = found
        raise CaptureError(
            f"forward writes in place to what is a {kind} in eager mode, and was traced as a {other}",
            source_of(node),
            "call .clone() on the tensor before, or write to the tensor itself",
        )
    if laid_out is not None and (found := _first_other(ep, traced, example_leaves(ep, laid_out))):
        node, kind, other = found
        raise CaptureError(
            f"forward writes in place to what is a {kind} for the example as it is laid out, and a {other} for one as "
            "the program takes it",
            source_of(node),
            "call .contiguous() on the example, or .clone() on the tensor before",
        )
    if found := _first_other(ep, traced, list(map(otherwise_strided, example_leaves(ep, prepared)))):
        raise CaptureError(
            "forward writes in place to what is a view or a copy by the strides of dimensions of size 1, which are the "
            "caller's choice",
            source_of(found[0]),
            "call .clone() on the tensor before, or write to the tensor itself",
        )


def first_other_strides(ep: ExportedProgram, prepared: Prepared) -> Node | None:
    """The first node whose result has other strides in eager mode than torch traced, for the example inputs, on which
    the program, not yet decomposed, is run; those of dimensions of size 1 and of results without elements do not count.
    """
    found: list[Node] = []

    class Observed(Unchecked):
        def run_node(self, n: Node) -> Any:
            made = super().run_node(n)
            if not found and isinstance(made, torch.Tensor) and _is_laid_out_otherwise(made, n.meta.get("val")):
                found.append(n)
            return made

    _run_on_examples(ep, example_leaves(ep, prepared), Observed)
    return found[0] if found else None


def _is_laid_out_otherwise(made: torch.Tensor, traced: object) -> bool:
    if not isinstance(traced, torch.Tensor) or made.layout is not torch.strided or not made.numel():
        return False
    strides = zip(made.shape, made.stride(), map(example_size, traced.stride()), strict=True)
    return any(n > 1 and expected is not None and stride != expected for n, stride, expected in strides)


def _first_other(ep: ExportedProgram, traced: dict[str, bool], leaves: list[Any]) -> tuple[Node, str, str] | None:
    """The first node that is a view or copy otherwise than traced; what it is for these inputs, and what it is not."""
    found: dict[str, bool] = {}

    class Observed(Unchecked):
        def run_node(self, n: Node) -> Any:
            made = super().run_node(n)
            if n.name in traced:
                found[n.name] = share_memory(self.env[aliased_operands(n)[0]], made)
            return made

    _run_on_examples(ep, leaves, Observed)
    for node in ep.graph.nodes:
        if node.name in found and found[node.name] is not traced[node.name]:
            return (node, "view", "copy") if found[node.name] else (node, "copy", "view")
    return None


def _run_on_examples(ep: ExportedProgram, leaves: list[Any], interpreter: type[Unchecked]) -> None:
    try:
        with torch.no_grad(), GuardedKernels():
            run_program(ep, leaves, {}, interpreter)
    except Exception:  # whatever the model raises for its own example; what ran before that is known
        pass


def refuse_laid_out_resizes(ep: ExportedProgram) -> None:
    """CaptureError for a resize_ to another memory format, which torch leaves out where it takes the program apart."""
    for module in ep.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            given = node.kwargs.get("memory_format")
            resizes = node.target in (torch.ops.aten.resize_.default, torch.ops.aten.resize_as_.default)
            if resizes and given not in (None, torch.contiguous_format, torch.preserve_format):
                raise CaptureError(
                    f"resize_ with {given} is not supported",
                    source_of(node),
                    "leave memory_format out, and call .contiguous(memory_format=...) behind it",
                )
