"""From captured graphs to the content of a bundle: every entry point, every target, one set of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hardtack.codegen.backends.cpp.cache import KernelCache
from hardtack.codegen.backends.cpp.compiler import Compiler, find_compiler
from hardtack.codegen.backends.cpp.targets import CpuTarget, parse_target
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.dump import dump_folder, origins_of, write_dump
from hardtack.codegen.ir.constants import ConstantData, ConstantStore, ModuleTensor
from hardtack.codegen.ir.expr import Expr, int_value, product
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.plan import Plan
from hardtack.codegen.package.content import (
    BundleContent,
    EntryContent,
    StateContent,
    TargetContent,
    TensorContent,
    Tree,
)
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.codegen.prepack import pack
from hardtack.codegen.recipes import init_name, replaceable

Progress = Callable[[str, int, int], None]
"""progress(what, done, total)."""


@dataclass(frozen=True)
class Source:
    """One captured entry point: its graph, the pytrees of its call, and example sizes of its symbols."""

    graph: Graph
    in_tree: Tree
    out_tree: Tree
    hints: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """The content of a bundle, and what is worth telling about how it was made."""

    content: BundleContent
    compiled: Mapping[str, CompiledEntry]
    decisions: tuple[Decision, ...]


def build_content(
    sources: Mapping[str, Source],
    store: ConstantStore,
    targets: Sequence[str],
    *,
    compiler: Compiler | None = None,
    cache: KernelCache | None = None,
    jobs: int | None = None,
    tensors: Mapping[str, ModuleTensor] | None = None,
    producer: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    dump: Path | None = None,
) -> Built:
    """Compile every entry point for every target. `dump`: where to write every stage; None: where HARDTACK_DUMP says.

    tensors: the module's parameters and buffers; those that can be replaced in the bundle become its parameters.

    Raises TargetError for an unknown target and ToolchainError where a kernel does not compile.
    """
    cpu_targets = _targets(targets)
    used_compiler = compiler or find_compiler()
    report = progress or (lambda what, done, total: None)
    dumped = dump or dump_folder()
    compiled: dict[str, CompiledEntry] = {}
    for k, (name, source) in enumerate(sources.items()):
        report("generate", k, len(sources))
        compiled[name] = entry = compile_entry(source.graph, source.hints)
        if dumped is not None:
            write_dump(dumped, name, entry.texts, entry.decisions, entry.sources, origins_of(source.graph))
    report("generate", len(sources), len(sources))
    libraries = _libraries(compiled, cpu_targets, used_compiler, cache or KernelCache(), jobs, report)
    plans: dict[tuple[str, str], Plan] = {}
    for name, entry in compiled.items():
        for t in cpu_targets:
            plans[name, f"cpu:{t.name}"] = entry.for_target(f"cpu:{t.name}")
    constants = _constants(sources, compiled, store)
    parameters, recipes = replaceable(sources, compiled, store, tensors or {})
    content = BundleContent(
        entries=tuple(_entry(name, s, compiled[name].plan) for name, s in sources.items()),
        targets=tuple(TargetContent(f"cpu:{t.name}", "cpu", t.features, libraries[t.name]) for t in cpu_targets),
        plans=plans,
        constants=tuple(sorted(constants.items())),
        states=_states(sources),
        parameters=parameters,
        recipes={name: r for name, r in recipes.items() if name in constants},
        producer={**(producer or {}), "compiler": used_compiler.version},
        numerics={"accumulate": "f32", "fp_contract": "off"},
    )
    return Built(content, compiled, tuple(d for e in compiled.values() for d in e.decisions))


def _targets(names: Sequence[str]) -> tuple[CpuTarget, ...]:
    """The targets in the order given, each once."""
    found: dict[str, CpuTarget] = {}
    for text in names:
        for t in parse_target(text):
            found.setdefault(t.name, t)
    return tuple(found.values())


def _libraries(
    compiled: Mapping[str, CompiledEntry],
    targets: Sequence[CpuTarget],
    compiler: Compiler,
    cache: KernelCache,
    jobs: int | None,
    report: Progress,
) -> dict[str, bytes]:
    """One library a target, with the kernels of all entry points."""
    sources: dict[str, str] = {}
    for entry in compiled.values():
        sources.update(entry.sources)
    units = [Unit(name, text) for name, text in sorted(sources.items())]
    out: dict[str, bytes] = {}
    for k, t in enumerate(targets):

        def progress(done: int, total: int, before: int = k) -> None:
            report("compile", before * total + done, len(targets) * total)

        out[t.name] = compile_library(units, t, compiler, cache=cache, jobs=jobs, progress=progress)
    return out


def _entry(name: str, source: Source, plan: Plan) -> EntryContent:
    """The contract. An input's strides are the plan's, which has dense ones where a dimension of size 1 has any."""
    g = source.graph
    values = {v.name: v for v in plan.values}
    at_inputs = (values[i.name] for i in g.inputs)
    inputs = tuple(TensorContent(v.name, v.dtype, v.shape, v.strides) for v in at_inputs)
    outputs = tuple(
        TensorContent(out_name, g.types[v].dtype, g.types[v].shape, row_major_strides(g.types[v].shape))
        for out_name, v in zip(g.output_names, g.outputs, strict=True)
    )
    syms = tuple(s.sym for s in g.syms)
    return EntryContent(name, syms, inputs, outputs, source.in_tree, source.out_tree)


def row_major_strides(shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Elements from one index to the next, for each dimension of a dense tensor."""
    return tuple(product(shape[d + 1 :]) for d in range(len(shape)))


def _constants(
    sources: Mapping[str, Source], compiled: Mapping[str, CompiledEntry], store: ConstantStore
) -> dict[str, ConstantData]:
    """Every constant that some plan reads, packed where asked, and the first contents of states."""
    found: dict[str, ConstantData] = {}
    packed_from: dict[str, str] = {}
    for name, source in sources.items():
        keys = {c.name: c.key for c in source.graph.constants}
        for c in compiled[name].constants:
            _put(found, c, store[keys[c]])
        for packed, request in compiled[name].prepacks.items():
            key = keys[request.source]
            if packed_from.setdefault(packed, key) != key:
                raise _disagreement(request.source)
            if packed not in found:
                found[packed] = ConstantData(store[key].dtype, pack(request, store[key].array))
        for s in source.graph.states:
            if s.init is not None:
                _put(found, init_name(s.name), store[s.init])
    return found


def _put(found: dict[str, ConstantData], name: str, data: ConstantData) -> None:
    if name in found and found[name].key() != data.key():
        raise _disagreement(name)
    found[name] = data


def _disagreement(name: str) -> ValueError:
    return ValueError(f"entry points disagree about the content of {name!r}; give the constants different names")


def _states(sources: Mapping[str, Source]) -> tuple[StateContent, ...]:
    """States of all entry points, joined by name."""
    found: dict[str, StateContent] = {}
    for source in sources.values():
        for s in source.graph.states:
            t = source.graph.types[s.name]
            shape = tuple(int_value(n) or 0 for n in t.shape)
            state = StateContent(s.name, t.dtype, shape, None if s.init is None else init_name(s.name))
            if found.setdefault(s.name, state) != state:
                raise ValueError(f"entry points disagree about the state {s.name!r}: {found[s.name]} and {state}")
    return tuple(found[n] for n in sorted(found))
