"""A module becomes an ExportedProgram: torch.export, with errors that name the user's line and say what to change."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from hardtack.exporter.aliases import written_operands
from hardtack.exporter.capture.conditions import shape_env
from hardtack.exporter.capture.dynamic_shapes import Prepared, prepare
from hardtack.exporter.capture.eager_layouts import first_other_strides, refuse_laid_out_resizes, refuse_other_layouts
from hardtack.exporter.capture.expanded_writes import refuse_expanded_writes
from hardtack.exporter.capture.small.classes import class_decisions
from hardtack.exporter.capture.small.guards import guard_decisions
from hardtack.exporter.capture.small.runs import differs_as_laid_out, differs_by_strides, differs_on_example, mattering
from hardtack.exporter.capture.small.sizes import Decision, Watch
from hardtack.exporter.capture.small.small_shapes import shape_decisions, with_other_shapes
from hardtack.exporter.capture.small.small_strides import layout_decisions, stride_decisions
from hardtack.exporter.capture.small.small_views import view_decisions
from hardtack.exporter.capture.sparse.modules import around, buffers_apart, with_parts
from hardtack.exporter.capture.sparse.stand_ins import is_sparse
from hardtack.exporter.capture.torch_errors import translated
from hardtack.exporter.capture.torch_patches.bool_operands import bools_as_ints
from hardtack.exporter.capture.torch_patches.composite_ops import composites_asked_once
from hardtack.exporter.capture.torch_patches.dense_operands import dense_operands, writes_through
from hardtack.exporter.capture.torch_patches.float_arithmetic import folds_noted
from hardtack.exporter.capture.torch_patches.guard_lines import noted_lines
from hardtack.exporter.capture.torch_patches.mask_selections import selections_of_whole_masks
from hardtack.exporter.capture.torch_patches.new_constants import constants_kept
from hardtack.exporter.capture.torch_patches.random_states import random_states_made_once
from hardtack.exporter.capture.torch_patches.size_comparisons import watched
from hardtack.exporter.capture.torch_patches.triton_calls import triton_calls_as_ops
from hardtack.exporter.capture.torch_patches.whole_shapes import kept_whole
from hardtack.exporter.capture.torch_patches.window_sizes import rounded_down
from hardtack.exporter.capture.training_mode import check_eval
from hardtack.exporter.capture.weight_scales import check_program, check_tensors
from hardtack.exporter.decompose.decompositions import decompose
from hardtack.exporter.decompose.user_decompositions import has_decompositions
from hardtack.exporter.errors import (
    CaptureError,
    ExportError,
    InputSpecError,
    SourceLine,
)
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.origin import WRAPPED, source_of
from hardtack.exporter.sizes.float_folds import Folds
from hardtack.exporter.sizes.ranges import Declared
from hardtack.exporter.sizes.strides import contract_order, laid_out


@dataclass
class Captured:
    """A captured program: decomposed, with what was declared of its dynamic dimensions.

    `source` is the program as torch.export gave it, before decomposition; `decided` the conditions on sizes that torch
    noted nowhere, because they hold from size 2 on; `folded` the numbers that are not rounded where the program's are.
    """

    ep: ExportedProgram
    source: ExportedProgram
    declared: Declared = field(default_factory=Declared)
    decided: tuple[Decision, ...] = ()
    folded: frozenset[sympy.Basic] = frozenset()


class _Function(nn.Module):
    """A plain function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function if _has_signature(function) else lambda *args, **kwargs: function(*args, **kwargs)
        self.eval()


def _has_signature(function: Callable[..., Any]) -> bool:
    """False for functions of C++, such as torch.relu, which take what they take."""
    try:
        inspect.signature(function)
    except ValueError:
        return False
    return True


def capture(
    module_or_ep: nn.Module | ExportedProgram | Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    extensions: Extensions | None = None,
) -> Captured:
    """Capture the whole forward of a module for the given example inputs, or take an ExportedProgram as it is.

    dynamic_shapes is that of torch.export.export. Raises TrainingModeError, InputSpecError, CaptureError, PluginError.
    """
    brought = Extensions() if extensions is None else extensions
    if isinstance(module_or_ep, ExportedProgram):
        _refuse_training(module_or_ep)
        return _given(module_or_ep, brought)
    if isinstance(module_or_ep, torch.jit.ScriptModule):
        ep = _from_torchscript(module_or_ep, args, kwargs, dynamic_shapes)
        return _finish(ep, Prepared(args, {}, None), brought)
    if isinstance(module_or_ep, type) or not callable(module_or_ep):
        kind = module_or_ep if isinstance(module_or_ep, type) else type(module_or_ep)
        given = f"the class {kind.__name__}" if kind is module_or_ep else f"a {kind.__name__}"
        raise InputSpecError(
            f"what is to be exported is {given}", fix="pass a module, a function or an ExportedProgram"
        )
    if isinstance(module_or_ep, nn.Module):
        _refuse_unready(module_or_ep)
    if not isinstance(kwargs, Mapping | None):
        raise InputSpecError(
            f"kwargs is a {type(kwargs).__name__}",
            fix="pass a dict of example inputs by argument's name; a file's path as path=...",
        )
    module = module_or_ep if isinstance(module_or_ep, nn.Module) else _Function(module_or_ep)
    check_eval(module)
    check_tensors(module)
    if not isinstance(args, tuple):
        raise InputSpecError(f"args is a {type(args).__name__}", fix="pass the positional example inputs as a tuple")
    with buffers_apart(module) as places:
        call = with_parts(module.forward, args, kwargs or {}, dynamic_shapes)
        plain = call.is_plain and not places
        if strict and not plain:
            raise InputSpecError("a model with sparse tensors is captured with strict=True", fix="leave strict out")
        first: CaptureError | None = None
        if plain:
            try:
                found = _traced(module, args, kwargs, dynamic_shapes, strict, brought)
                if strict or not _meets_sparse(found.source):
                    return found
            except CaptureError as error:
                if strict or type(error) is not CaptureError:
                    raise
                first = error
        wrapped = around(module, call, places)
        try:
            found = _traced(wrapped, call.args, call.kwargs, call.dynamic_shapes, strict, brought)
        except ExportError as error:
            if not wrapped.trace.met and first is not None:
                raise first from error
            raise
        if first is not None and not wrapped.trace.met:
            raise first
        return found


def _meets_sparse(ep: ExportedProgram) -> bool:
    """True if an op of the program takes or gives a sparse tensor: torch takes some of them for what they are."""
    return any(is_sparse(x) for node in ep.graph.nodes for x in pytree.tree_leaves(node.meta.get("val")))


def _traced(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    strict: bool,
    brought: Extensions,
) -> Captured:
    """The program of a module whose inputs are dense."""
    examples = pytree.tree_leaves((args, kwargs))
    as_given = Prepared(args, dict(kwargs or {}), None)
    args, kwargs = _apart(module, args, kwargs)
    if kwargs and dynamic_shapes is not None:
        module, dynamic_shapes = with_explicit_keywords(module, args, kwargs, dynamic_shapes)
    prepared = prepare(module.forward, args, kwargs or {}, dynamic_shapes)
    with bools_as_ints(), folds_noted() as folds:
        ep, watch = _export(module, prepared, strict)
        if not strict and _buffer_entered_twice(ep):
            strict = True
            ep, watch = _export(module, prepared, strict)
        if writes_through(ep):
            ep, watch = _export(module, prepared, strict, dense=False)
    _refuse_places(ep, examples)
    laid_out = as_given if _relaid(examples) else None
    refuse_other_layouts(ep, prepared, laid_out)
    found = _finish(ep, prepared, brought, folds)
    asks, writes = _asks(ep, strict, watch), any(map(written_operands, ep.graph.nodes))
    other = first_other_strides(found.source, prepared) if asks or writes else None
    if asks:
        _refuse_strides_that_matter(found, module, prepared, laid_out, other, watch.strides.where)
    asked, own = ([d for d in watch.decisions.values() if d.asked is by_model] for by_model in (True, False))
    decisions = [*asked, *found.decided, *with_other_shapes(ep, own), *_program_decisions(ep), *layout_decisions(ep)]
    if watch.strides.asked is not None or other is not None:
        decisions += stride_decisions(ep, watch.strides.where or (None if other is None else source_of(other)))
    return replace(found, decided=mattering(decisions, found.ep, module, prepared))


def _asks(ep: ExportedProgram, strict: bool, watch: Watch) -> bool:
    """True if the model asks for strides, reads memory by its place, or writes in place where contiguous() gave a
    tensor back as it is. Any model may ask, where torch's bytecode analysis has answered.
    """
    questions = watch.strides
    if strict or questions.asked is not None or _reads_places(ep) is not None:
        return True
    return questions.copied is not None and any(map(written_operands, ep.graph.nodes))


def _refuse_strides_that_matter(
    found: Captured,
    module: nn.Module,
    prepared: Prepared,
    laid_out: Prepared | None,
    other: Node | None,
    where: SourceLine | None,
) -> None:
    """CaptureError for a model that asks for strides which are the caller's choice, or which were traced unlike they
    are in eager mode, and does something else then.

    laid_out: the examples with the strides that the caller gave them, where those of `prepared` are the contract's.
    other: the first of the program's results with other strides than traced. where: the line that asks, if it is known.
    """
    apart = differs_on_example(found.ep, module, prepared)
    if other is not None and (apart or _reads_places(found.source)):
        raise CaptureError(
            f"what forward gives depends on the strides of what {other.target} gives, which is traced with others "
            "than in eager mode",
            source_of(other),
            "call .contiguous() on the tensors that it is given, or ask for shapes instead of strides",
        )
    if apart:
        raise CaptureError(
            "what forward asks of strides was answered otherwise than in eager mode",
            where,
            "ask for shapes instead of strides, and call .clone() on what is written in place",
        )
    if differs_by_strides(found.ep, module, prepared):
        raise CaptureError(
            "what forward gives depends on the strides of dimensions of size 1, which are the caller's choice",
            where,
            "ask for shapes instead of strides, and call .clone() on what is written in place",
        )
    if laid_out is not None and differs_as_laid_out(found.ep, module, laid_out):
        raise CaptureError(
            "what forward gives depends on the strides of an example that is not row-major, as the program takes it",
            where,
            "call .contiguous() on the example, or ask for shapes, not strides, and .clone() what is written in place",
        )


def _given(ep: ExportedProgram, extensions: Extensions) -> Captured:
    """A program that torch.export made, which is its own oracle for small sizes; without examples nothing is tried."""
    found = _finish(ep, Prepared((), {}, None), extensions)
    decisions = (*_program_decisions(ep), *found.decided)
    if ep.example_inputs is not None:
        args, kwargs = ep.example_inputs
        prepared = Prepared(args, dict(kwargs), None)
        refuse_other_layouts(ep, prepared)
        decisions = mattering(decisions, found.ep, ep.module(), prepared) if decisions else ()
    return replace(found, decided=decisions)


def _program_decisions(ep: ExportedProgram) -> tuple[Decision, ...]:
    """What can be told of other sizes from a program that is not yet decomposed."""
    return (*view_decisions(ep), *class_decisions(ep), *shape_decisions(ep), *guard_decisions(ep))


def _apart(module: Any, args: Any, kwargs: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """The example inputs with a copy for each that is not laid out as callers will lay it out, or whose memory an
    earlier one or a weight has, as in attention(x, x, x): torch takes equal objects for one, and the program would read
    only one of them; of a view it asks for the sizes of what it is a view of.
    """
    known = (*module.parameters(), *module.buffers()) if isinstance(module, nn.Module) else ()
    seen = {_memory(t) for t in known}

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if _memory(x) in seen or x._is_view() or not _laid_out(x):
            return _copy(x)
        seen.add(_memory(x))
        return x

    found: tuple[Any, Mapping[str, Any] | None] = pytree.tree_map(own, (args, kwargs))
    return found


def _laid_out(x: torch.Tensor) -> bool:
    """Whether it has the contract's strides, those of dimensions of size 1 as well: what eager mode makes of a tensor
    that is both row-major and channels_last hangs on them.
    """
    return x.layout is not torch.strided or x.stride() == laid_out(x.detach().to("meta"), contract_order(x)).stride()


def _relaid(examples: list[Any]) -> bool:
    """True if _apart gives one of the examples other strides."""
    return any(isinstance(x, torch.Tensor) and not _laid_out(x) for x in examples)


def _copy(x: torch.Tensor) -> torch.Tensor:
    return laid_out(x.detach(), contract_order(x)) if x.layout is torch.strided else x.detach().clone()


_QUANTISED = ("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized.", "torch.nn.quantized.")


def _refuse_unready(module: nn.Module) -> None:
    """InputSpecError for a module whose parameters have no shape yet, or are packed for quantised kernels."""
    for name, part in module.named_modules():
        if f"{type(part).__module__}.".startswith(_QUANTISED):
            raise InputSpecError(
                f"{name or 'the module'} is a quantised {type(part).__name__}",
                fix="export the module in floating point: quantised modules are not supported",
            )
    for name, t in (*module.named_parameters(), *module.named_buffers()):
        if nn.parameter.is_lazy(t):
            raise InputSpecError(
                f"{name} has no shape yet: its module is lazy", fix="call the module once on an example, then .eval()"
            )


def _refuse_training(ep: ExportedProgram) -> None:
    """A program with its backward part has results that are no results of forward."""
    if ep.graph_signature.backward_signature is not None:
        raise InputSpecError(
            "the program holds a backward pass, too",
            fix="export hardtack.training_step of the module, or the module itself",
        )


def _refuse_places(ep: ExportedProgram, examples: list[Any]) -> None:
    """CaptureError for as_strided where an example is laid out unlike the tensors that callers will give."""
    found = _reads_places(ep)
    if found is not None and any(isinstance(x, torch.Tensor) and not _fills_its_memory(x) for x in examples):
        raise CaptureError(
            "as_strided reads memory by its place, and an example input is not contiguous or a part of another tensor",
            source_of(found),
            "call .clone(memory_format=torch.contiguous_format) on the example",
        )


def _reads_places(ep: ExportedProgram) -> Node | None:
    """The first op that reads or writes memory by its place, where the strides are that torch traced."""
    return next((n for n in ep.graph.nodes if "as_strided" in str(n.target)), None)


def _fills_its_memory(x: torch.Tensor) -> bool:
    """True for a row-major tensor that has its memory for itself."""
    return not _has_storage(x) or (x.is_contiguous() and x.untyped_storage().nbytes() == x.numel() * x.itemsize)


def _memory(x: torch.Tensor) -> int:
    """What tensors on the same memory have in common; those without memory (sparse ones) are all different."""
    return x.untyped_storage()._cdata if _has_storage(x) else id(x)


class _Explicit(nn.Module):
    """A module whose forward takes **kwargs, with the keywords in use as parameters of their own: torch cannot match
    dynamic_shapes with keywords that have none.
    """

    def __init__(self, inner: nn.Module, signature: inspect.Signature) -> None:
        super().__init__()
        setattr(self, WRAPPED, inner)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward
        self.eval()


def with_explicit_keywords(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[nn.Module, Any]:
    """The module itself, or wrapped so that keywords that only **kwargs takes are parameters; dynamic_shapes
    accordingly.
    """
    signature = inspect.signature(module.forward)
    extra = [k for k in kwargs if k not in signature.parameters]
    stars = [p for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    if not extra or not stars:
        return module, dynamic_shapes
    if isinstance(dynamic_shapes, Mapping) and isinstance(dynamic_shapes.get(stars[0].name), Mapping):
        nested = dynamic_shapes[stars[0].name]
        dynamic_shapes = {k: v for k, v in dynamic_shapes.items() if k != stars[0].name} | nested
    plain = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    named = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY) for k in extra]
    return _Explicit(module, inspect.Signature([*plain, *named])), dynamic_shapes


def _export(module: nn.Module, prepared: Prepared, strict: bool, dense: bool = True) -> tuple[ExportedProgram, Watch]:
    with (
        torch.no_grad(),
        noted_lines(strict),
        random_states_made_once(),
        selections_of_whole_masks(),
        kept_whole(),
        dense_operands(dense),
        rounded_down(),
        triton_calls_as_ops(),
        watched(strict) as watch,
    ):
        try:
            ep = torch.export.export(
                module, prepared.args, prepared.kwargs, dynamic_shapes=prepared.hints, strict=strict
            )
            return ep, watch
        except ExportError:
            raise
        except Exception as error:  # torch raises many types; each becomes one of ours, with its cause kept
            raise translated(error) from error


def _buffer_entered_twice(ep: ExportedProgram) -> bool:
    """True if a changed buffer's storage is a lifted constant, too: reads through the one would miss writes to the
    other.
    """
    changed = {s.target for s in ep.graph_signature.output_specs if s.kind is OutputKind.BUFFER_MUTATION}
    storages: dict[int, int] = {}
    written: set[int] = set()
    for spec in ep.graph_signature.input_specs:
        if spec.kind not in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR) or spec.target is None:
            continue
        t = ep.constants.get(spec.target, ep.state_dict.get(spec.target))
        if not isinstance(t, torch.Tensor) or t.numel() == 0:
            continue
        if not _has_storage(t):
            continue
        place = t.untyped_storage().data_ptr()
        storages[place] = storages.get(place, 0) + 1
        if spec.target in changed or _written_in_place(ep, spec.arg.name):
            written.add(place)
    return any(storages[p] > 1 for p in written)


def _has_storage(t: torch.Tensor) -> bool:
    """False for sparse tensors and the wrappers of torch.func's transforms."""
    try:
        t.untyped_storage()
    except NotImplementedError:
        return False
    return True


def _written_in_place(ep: ExportedProgram, name: str) -> bool:
    """True if an op of the undecomposed program writes to the placeholder."""
    node = next((n for n in ep.graph.nodes if n.name == name), None)
    return node is not None and any(node in written_operands(u) for u in node.users)


def _from_torchscript(module: Any, args: tuple[Any, ...], kwargs: Any, dynamic_shapes: Any) -> ExportedProgram:
    from torch._export.converter import TS2EPConverter

    if dynamic_shapes is not None or kwargs:
        raise InputSpecError(
            "a TorchScript module is captured with fixed sizes and positional inputs only",
            fix="export the original Python module for dynamic shapes",
        )
    check_eval(module)
    try:
        found = TS2EPConverter(module, args).convert()
    except Exception as error:  # the converter raises what its passes raise
        raise translated(error) from error
    assert isinstance(found, ExportedProgram)
    return found


def _finish(ep: ExportedProgram, prepared: Prepared, extensions: Extensions, before: Folds | None = None) -> Captured:
    """`before`: what was noted of numbers while the program was traced; decomposition traces what is left of them.
    `decided` of what is given are the conditions that users' decompositions asked for, whether they matter or not."""
    refuse_expanded_writes(ep)
    refuse_laid_out_resizes(ep)
    check_program(ep)
    try:
        with (
            composites_asked_once(),
            random_states_made_once(),
            selections_of_whole_masks(),
            constants_kept(),
            kept_whole(),
            dense_operands(not writes_through(ep)),
            rounded_down(),
            triton_calls_as_ops(),
            folds_noted() as folds,
            watched(strict=True) if has_decompositions(extensions) else contextlib.nullcontext(Watch()) as watch,
        ):
            plain = decompose(ep, extensions)
    except ExportError:
        raise
    except Exception as error:  # decompositions raise what their Python code raises
        raise translated(error) from error
    env = shape_env(ep) or shape_env(plain)
    noted = folds.found | (before.found if before is not None else set())
    folded = frozenset(env.replace(e) for e in noted) if env is not None else frozenset[sympy.Basic]()
    asked = tuple(d for d in watch.decisions.values() if d.asked)
    return Captured(plain, ep, _declared(plain, prepared), asked, folded)


def _declared(ep: ExportedProgram, prepared: Prepared) -> Declared:
    """The declared dimensions by the program's own input names, and torch's ranges."""
    users = [s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    start = _first_leaves(ep)
    out = Declared()
    for (argument, leaf, dim), found in prepared.dims.items():
        if argument in start:
            out.dims[users[start[argument] + leaf], dim] = found
    for node in ep.graph.nodes:
        if node.op == "placeholder" and node.name in users:
            out.ranges.update(_torch_ranges(ep, node))
    return out


def _first_leaves(ep: ExportedProgram) -> dict[str, int]:
    """argument name -> the index of its first leaf."""
    positional, keywords = ep.call_spec.in_spec.children()
    names = ep.module_call_graph[0].signature.forward_arg_names or []
    out: dict[str, int] = {}
    at = 0
    for i, child in enumerate(positional.children()):
        out[names[i] if i < len(names) else f"args_{i}"] = at
        at += child.num_leaves
    for key, child in zip(keywords.context, keywords.children(), strict=True):
        out[key] = at
        at += child.num_leaves
    return out


def _torch_ranges(ep: ExportedProgram, node: torch.fx.Node) -> dict[tuple[str, int | None], tuple[int, int | None]]:
    value = node.meta.get("val")
    sizes = list(enumerate(value.shape)) if isinstance(value, torch.Tensor) else [(None, value)]
    out: dict[tuple[str, int | None], tuple[int, int | None]] = {}
    for dim, size in sizes:
        if not isinstance(size, torch.SymInt):
            continue
        found = ep.range_constraints.get(size.node.expr)
        if found is not None:
            hi = int(found.upper) if found.upper.is_Integer and int(found.upper) < 2**62 else None
            out[node.name, dim] = (int(found.lower), hi)
    return out
