"""hardtack.export: a module in, a bundle out. Everything it does is done by the rooms behind it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import hardtack
from hardtack.caches import Cached, cache_report, cache_states
from hardtack.codegen.backend import Backend
from hardtack.codegen.build import Built, Source, build_content
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.ir.kernel_code import CudaCode, TritonCode
from hardtack.codegen.lower.custom import code_of, custom_ops
from hardtack.codegen.package.content import BundleContent
from hardtack.codegen.package.output import check_output
from hardtack.codegen.package.writer import Written, write_bundle
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import backends_for, stage_backend
from hardtack.codegen.tune.choice import KIND, shapes_in_tables
from hardtack.codegen.tune.table import read_tables
from hardtack.exporter import EntryGraph, Exported
from hardtack.exporter.errors import InputSpecError
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.tensors import constants_apart
from hardtack.extending import extensions_of
from hardtack.generation import generation
from hardtack.kernels import Kernel
from hardtack.narrowing import Narrowed, measured, narrow_products, numerics_of
from hardtack.options import Options
from hardtack.progress import Stages, stages
from hardtack.quantisation import Quantised, graphs_of, quantise, with_accuracy
from hardtack.trees import flattener
from hardtack.widened import Widened, widened_weights

FUSIONS = ("inline", "fuse")
"""Kinds of decisions that are counted as fusions."""


@dataclass(frozen=True)
class ExportInfo:
    """What an export made. Sizes in bytes; `seconds` by stage.

    num_fused, num_refused: fusions. num_shapes: the shapes of products, convolutions and attentions on GPU targets,
    and on CPU targets with a tuning table, to which tables may give plans; num_tuned: those to which one did.
    weights_path: the weights file beside the bundle, where Options.external_weights asked for one. narrowed: what
    Options.compute did; None for "f32". quantised: what Options.weights, embeddings and
    activations did; None without. cached: what Options.cache did; None without. widened: quantised weights
    that the bundle holds in floating point.
    """

    path: Path
    weights_path: Path | None
    entries: tuple[str, ...]
    targets: tuple[str, ...]
    nbytes: int
    weights_nbytes: int
    code_nbytes: int
    plans_nbytes: int
    num_kernels: int
    num_launches: int
    num_fused: int
    num_refused: int
    num_shapes: int
    num_tuned: int
    seconds: Mapping[str, float]
    narrowed: Narrowed | None = None
    quantised: Quantised | None = None
    cached: Cached | None = None
    widened: tuple[Widened, ...] = ()

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        beside = f" in {self.weights_path}" if self.weights_path is not None else ""
        return (
            f"{self.path}: {self.nbytes:,} bytes, weights {self.weights_nbytes:,}{beside}, "
            f"code {self.code_nbytes:,} for {len(self.targets)} targets; "
            f"{self.num_kernels} kernels in {self.num_launches} launches; {total:.1f} s"
        )


def export(
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | os.PathLike[str] = "m.pkg",
    dynamic_shapes: Any = None,
    targets: Sequence[str] = ("cpu",),
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: Mapping[Any, Kernel] | None = None,
    options: Options | None = None,
    progress: bool | None = None,
) -> ExportInfo:
    """Captures `module`, compiles it for `targets` and writes one bundle at `path`.

    module: an nn.Module in eval mode, a function, an ExportedProgram, or a dict of these by entry point; then args,
    kwargs and dynamic_shapes are dicts by entry point, too (an ExportedProgram needs none).
    args, kwargs: example inputs. dynamic_shapes: as for torch.export.export; every size in a declared range will work.
    targets: "cpu" is x86-64-v4 and x86-64-v3; "cpu:aarch64" and so on is one; "cpu:native" is this machine's;
    "cuda:sm_80", "cuda:sm_90" and "cuda:sm_100" need Triton and no GPU; so does "hip:gfx942", which is compiled and
    checked but cannot be run yet. Several share one file and its weights.
    decompositions: op -> a function of its arguments that computes it in torch's ops, for custom ops or in place of
    what Hardtack does with an op; an op is torch.ops.mylib.op, what torch.library.custom_op gave, or "mylib::op".
    kernels: op -> a kernel of it, a hardtack.CppKernel, a hardtack.HostKernel or a hardtack.CudaKernel, or a tuple of
    one for CPUs and one for GPUs.
    progress: show progress on standard error; None: when that is a terminal.

    Raises OutputError before any work when `path` cannot be written; ExportError and its subclasses for a model that
    cannot be exported, PluginError among them for what the user brought; InternalError for a bug of Hardtack;
    UnsupportedOp for an op that a target has no kernel for; OverBudget for a model that Options.memory_budget does not
    hold; TargetError, ToolchainError and TritonError from hardtack.codegen.backends; LoadError for a tuning table that
    cannot be read.
    """
    chosen = options or Options()
    out = check_output(path)
    if isinstance(targets, str):
        targets = (targets,)
    backends = backends_for(targets, read_tables(chosen.tuning), chosen.compiler)
    brought = extensions_of(chosen, decompositions, kernels)
    devices = {"cpu" if m.device == "cpu" else "gpu" for b in backends for m in b.machines}
    if devices == {"gpu"}:
        brought = brought.for_gpus()
    for backend in backends:
        backend.tools()  # what is missing is told before any work is done
    with stages(progress) as stage:
        made = _made(module, args, kwargs, dynamic_shapes, chosen, brought, stage)
        with generation():
            sources = sources_of(made.exported, made.model, args, kwargs)
            store = made.exported.store
            if len(devices) > 1 and brought.launching:
                store = _for_both(sources, made, args, kwargs, dynamic_shapes, chosen, brought.for_gpus())
            built = build_content(
                sources,
                store,
                backends,
                jobs=chosen.jobs,
                tensors=made.exported.tensors,
                producer={"hardtack": hardtack.__version__, "torch": torch.__version__, **brought.used},
                numerics=numerics_of(chosen),
                progress=stage.report,
                memory_budget=chosen.memory_budget,
            )
        stage.report("write", 0, 0)
        content = with_debug(built) if chosen.debug else built.content
        written = write_bundle(out, content, external=chosen.external_weights)
    widened = widened_weights(sources, store, made.exported.tensors, built)
    return _info(written, made, backends, built, widened, stage.seconds)


def _check_measurable(exported: Exported, chosen: Options, brought: Extensions) -> None:
    """InputSpecError for options whose cost is measured by running a model that this machine's CPU cannot run."""
    asked = [n for n in ("weights", "embeddings", "cache") if getattr(chosen, n) is not None]
    asked += ["compute"] if chosen.compute != "f32" else []
    ops = [op for e in exported.entries.values() for op in custom_ops(e.graph)]
    launched = {code_of(op).function for op in ops if isinstance(code_of(op), (TritonCode, CudaCode))}
    kernels = brought.launching or launched
    if asked and kernels:
        raise InputSpecError(
            f"what {', '.join(asked)} costs is measured by running the model on a CPU, where its kernels for GPUs do "
            f"not run: {', '.join(sorted(kernels))}",
            fix="leave the option out",
        )


def _for_both(
    sources: dict[str, Source],
    made: _Made,
    args: Any,
    kwargs: Any,
    dynamic_shapes: Any,
    chosen: Options,
    brought: Extensions,
) -> ConstantStore:
    """Give sources, which are for CPUs, graphs for GPUs beside their own, with Triton kernels of users. The constants
    of both."""
    exported = graphs_of(made.model, chosen, args, kwargs, dynamic_shapes, chosen.strict, brought)
    exported, _ = narrow_products(exported, chosen.compute, chosen.keep_f32)
    exported, _ = cache_states(exported, chosen)
    plain = [s.graph for s in sources.values()]
    graphs = list(constants_apart([*plain, *(e.graph for e in exported.entries.values())]))
    for (name, source), graph, on_gpus in zip(
        list(sources.items()), graphs[: len(plain)], graphs[len(plain) :], strict=True
    ):
        sources[name] = replace(source, graph=graph, on_gpus=on_gpus)
    first, second = made.exported.store, exported.store
    return ConstantStore({**first.data, **second.data}, first.inlined | second.inlined)


@dataclass(frozen=True)
class _Made:
    """A model as it is compiled, and what its options did. model: it as a module, with weights of few bits."""

    exported: Exported
    model: Any
    narrowed: Narrowed | None
    quantised: Quantised | None
    cached: Cached | None


def _made(
    module: Any, args: Any, kwargs: Any, dynamic_shapes: Any, chosen: Options, brought: Extensions, stage: Stages
) -> _Made:
    """The graphs of a model, and reports of what its options cost, for which both are run on examples."""
    if chosen.weights is not None or chosen.embeddings is not None:
        stage.report("quantise", 0, 0)
    found = quantise(module, chosen, args, kwargs, dynamic_shapes)
    stage.report("capture", 0, 0)
    wide = graphs_of(found.model, chosen, args, kwargs, dynamic_shapes, chosen.strict, brought)
    _check_measurable(wide, chosen, brought)
    exported, report = narrow_products(wide, chosen.compute, chosen.keep_f32)
    narrowed = quantised = cached = None
    if report is not None:
        stage.report("measure", 0, 0)
        narrowed = measured(wide, exported, report, chosen.compute, module, args, kwargs)
    if found.report is not None:
        stage.report("measure", 0, 0)
        quantised = with_accuracy(found, exported, module, args, kwargs)
    coded, caches = cache_states(exported, chosen)
    if caches is not None:
        stage.report("measure", 0, 0)
        cached = cache_report(exported, coded, caches, found.model, args, kwargs, found.calibration)
    return _Made(coded, found.model, narrowed, quantised, cached)


def _info(
    written: Written,
    made: _Made,
    backends: Sequence[Backend],
    built: Built,
    widened: tuple[Widened, ...],
    seconds: Mapping[str, float],
) -> ExportInfo:
    tabled = _tuned_shapes(backends, built)
    fused = [d.accepted for d in built.decisions if d.kind in FUSIONS]
    return ExportInfo(
        path=written.path,
        weights_path=written.weights_path,
        entries=tuple(made.exported.entries),
        targets=tuple(t.name for t in built.content.targets),
        nbytes=written.nbytes,
        weights_nbytes=written.weights_nbytes,
        code_nbytes=written.code_nbytes,
        plans_nbytes=written.plans_nbytes,
        num_kernels=len({name for c in built.compiled.values() for name in c.sources}),
        num_launches=sum(len(c.plan.body) for c in built.compiled.values()),
        num_fused=sum(fused),
        num_refused=len(fused) - sum(fused),
        num_shapes=len(tabled),
        num_tuned=sum(tabled.values()),
        seconds=seconds,
        narrowed=made.narrowed,
        quantised=made.quantised,
        cached=made.cached,
        widened=widened,
    )


def _tuned_shapes(backends: Sequence[Backend], built: Built) -> dict[tuple[str, str], bool]:
    """(backend, shape) -> whether a table gave its plan, of those backends that look into tables."""
    tunable = {b.key for b in backends if b.tuning.levels or b.machines[0].device != "cpu"}
    return {
        (key, s): tuned
        for (_, key), c in built.compiled.items()
        if key in tunable
        for s, tuned in shapes_in_tables(c.decisions).items()
    }


def stage_texts(
    stage: str,
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str = "cpu",
    options: Options | None = None,
) -> dict[str, str]:
    """Entry point -> the text of one of a target's stages. No compiler of kernels runs and nothing is written.

    The other arguments and ExportError are as for `export`. Raises TargetError for a stage that the target does not
    have.
    """
    chosen = options or Options()
    backend = stage_backend(target, stage, read_tables(chosen.tuning))
    sources = _sources_alone(module, args, kwargs, dynamic_shapes, chosen, target)
    if stage == "graph":
        return {name: to_text_graph(s.graph) for name, s in sources.items()}
    with generation():
        return {
            name: compile_entry(s.graph, s.hints, backend, budget=chosen.memory_budget).texts[stage]
            for name, s in sources.items()
        }


def tuning_keys(
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: str,
    options: Options | None = None,
) -> list[str]:
    """What a tuning table can decide of a model that is exported so: the keys of its template kernels on a target, each
    once."""
    chosen = options or Options()
    (backend,) = backends_for([target])
    found: dict[str, None] = {}
    for s in _sources_alone(module, args, kwargs, dynamic_shapes, chosen, target).values():
        with generation():
            decisions = compile_entry(s.graph, s.hints, backend).decisions
        found |= dict.fromkeys(d.subject for d in decisions if d.kind == KIND)
    return list(found)


def _sources_alone(
    module: Any, args: Any, kwargs: Any, dynamic_shapes: Any, chosen: Options, target: str
) -> dict[str, Source]:
    """What the compiler takes of a model that is exported so for a target, without a report of what options cost."""
    model = quantise(module, chosen, args, kwargs, dynamic_shapes).model
    brought = extensions_of(chosen) if target.startswith("cpu") else extensions_of(chosen).for_gpus()
    exported = graphs_of(model, chosen, args, kwargs, dynamic_shapes, chosen.strict, brought)
    exported, _ = narrow_products(exported, chosen.compute, chosen.keep_f32)
    exported, _ = cache_states(exported, chosen)
    return sources_of(exported, model, args, kwargs)


def sources_of(exported: Exported, module: Any, args: Any, kwargs: Any) -> dict[str, Source]:
    """What the compiler takes: graphs, trees, and the sizes of the example inputs as hints."""
    out: dict[str, Source] = {}
    for name, entry in exported.entries.items():
        one, given, named = module, args, kwargs
        if isinstance(module, Mapping):
            one, given, named = module[name], (args or {}).get(name), (kwargs or {}).get(name)
        if isinstance(one, ExportedProgram):
            given, named = one.example_inputs or ((), {})
        hints = size_hints(entry, given or (), named or {})
        out[name] = Source(entry.graph, entry.in_tree, entry.out_tree, hints, texts=entry.texts, complex=entry.complex)
    return out


def size_hints(entry: EntryGraph, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, int]:
    """Symbol name -> its size in the example inputs; empty without examples."""
    if not args and not kwargs:
        return {}
    leaves = flattener(entry.in_tree, entry.graph.name)(args, kwargs)
    by_name = {i.name: leaf for i, leaf in zip(entry.graph.inputs, leaves, strict=True)}
    hints: dict[str, int] = {}
    for binding in entry.graph.syms:
        if binding.input is None:
            continue
        leaf = by_name[binding.input]
        hints[binding.sym.name] = int(leaf) if binding.dim is None else int(leaf.shape[binding.dim])
    return hints


def with_debug(built: Built) -> BundleContent:
    """The content with a listing of every stage of every entry point under debug/."""
    texts = {
        f"debug/{entry}.{'' if key == 'cpu' else key.replace(':', '_') + '.'}{stage}.txt": text.encode()
        for (entry, key), compiled in built.compiled.items()
        for stage, text in compiled.texts.items()
    }
    return replace(built.content, debug={**built.content.debug, **texts})
