"""From captured graphs to the content of a bundle: every entry point, every target, one set of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cache import KernelCache
from hardtack.codegen.backends.cpp.compiler import Compiler, find_compiler
from hardtack.codegen.backends.cpp.targets import CpuTarget
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.backends.triton.compile import GpuCode, compile_kernels, toolchain
from hardtack.codegen.backends.triton.kernel import TritonKernel
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
from hardtack.codegen.prepack import made, sources_of
from hardtack.codegen.recipes import init_name, replaceable
from hardtack.codegen.targets import Targets, parse_targets
from hardtack.codegen.tune.machine import machine_of, target_name
from hardtack.codegen.tune.table import TuningTable

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
    """The content of a bundle, and what is worth telling about how it was made.

    compiled: by entry point and "cpu" or the GPU target's name.
    """

    content: BundleContent
    compiled: Mapping[tuple[str, str], CompiledEntry]
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
    tuning: TuningTable | None = None,
) -> Built:
    """Compile every entry point for every target. `dump`: where to write every stage; None: where HARDTACK_DUMP says.

    tensors: the module's parameters and buffers; those that can be replaced in the bundle become its parameters.
    tuning: the user's table of plans for kernels; it comes before the one that is shipped.

    Raises TargetError for an unknown target or a table for none of the targets, UnsupportedOp for an op that a target
    has no kernel for, ToolchainError and TritonError where a kernel does not compile, or its compiler is missing.
    """
    chosen = parse_targets(targets)
    used_compiler = (compiler or find_compiler()) if chosen.cpu else None
    report = progress or (lambda what, done, total: None)
    backends = chosen.backends(tuning)
    compiled = _generate(sources, backends, dump or dump_folder(), report)
    kernels = cache or KernelCache()
    libraries: dict[str, bytes] = {}
    if used_compiler is not None:
        libraries = _libraries(_of(compiled, "cpu"), chosen.cpu, used_compiler, kernels, jobs, report)
    codes = {target_name(a): _codes(_of(compiled, target_name(a)), a, kernels, jobs, report) for a in chosen.gpu}
    built = [TargetContent(f"cpu:{t.name}", "cpu", t.features, libraries[t.name]) for t in chosen.cpu]
    built += [TargetContent(target_name(arch), machine_of(arch).device, (arch,), None) for arch in chosen.gpu]
    constants = _constants(sources, compiled, store)
    by_entry = {name: tuple(_of(compiled, None, name).values()) for name in sources}
    graphs = {name: source.graph for name, source in sources.items()}
    parameters, recipes = replaceable(graphs, by_entry, store, tensors or {})
    content = BundleContent(
        entries=tuple(_entry(n, s, by_entry[n][0].plan) for n, s in sources.items()),
        targets=tuple(built),
        plans=_plans(compiled, chosen, codes),
        constants=tuple(sorted(constants.items())),
        states=_states(sources),
        parameters=parameters,
        recipes={name: r for name, r in recipes.items() if name in constants},
        producer={**(producer or {}), **_tools(used_compiler, chosen), **_tables(backends)},
        numerics={"accumulate": "f32", "fp_contract": "off"},
        kernels={c.record.member: c.code for found in codes.values() for c in found.values()},
    )
    return Built(content, compiled, tuple(d for e in compiled.values() for d in e.decisions))


Compiled = Mapping[tuple[str, str], CompiledEntry]


def _generate(
    sources: Mapping[str, Source], backends: Mapping[str, Backend], dumped: Path | None, report: Progress
) -> dict[tuple[str, str], CompiledEntry]:
    """Every entry point for every backend."""
    compiled: dict[tuple[str, str], CompiledEntry] = {}
    total = len(sources) * len(backends)
    for name, source in sources.items():
        for key, backend in backends.items():
            report("generate", len(compiled), total)
            texts: dict[str, str] = {}
            try:
                compiled[name, key] = compile_entry(source.graph, source.hints, backend, texts)
            finally:
                if dumped is not None:  # what there is of it, also where a stage fails
                    _dump(dumped, name, key, source, texts, compiled.get((name, key)))
    report("generate", total, total)
    return compiled


def _dump(
    folder: Path, name: str, key: str, source: Source, texts: Mapping[str, str], entry: CompiledEntry | None
) -> None:
    """The dump of one entry point for one backend; without `entry`, of the stages that were reached."""
    below = folder if key == "cpu" else folder / key.replace(":", "_")
    decisions, kernels = ((), {}) if entry is None else (entry.decisions, entry.sources)
    write_dump(below, name, texts, decisions, kernels, origins_of(source.graph), "cpp" if key == "cpu" else "py")


def _of(compiled: Compiled, key: str | None, entry: str | None = None) -> dict[str, CompiledEntry]:
    """What was compiled for one backend, by entry point; for None of `entry`, by backend."""
    if key is None:
        return {k: c for (name, k), c in compiled.items() if name == entry}
    return {name: c for (name, k), c in compiled.items() if k == key}


def _plans(
    compiled: Compiled, chosen: Targets, codes: Mapping[str, Mapping[str, GpuCode]]
) -> dict[tuple[str, str], Plan]:
    plans: dict[tuple[str, str], Plan] = {}
    for (name, key), entry in compiled.items():
        if key == "cpu":
            for t in chosen.cpu:
                plans[name, f"cpu:{t.name}"] = entry.for_target(f"cpu:{t.name}")
        else:
            records = {n: c.record for n, c in codes[key].items()}
            plans[name, key] = entry.for_target(key, records)
    return plans


def _tools(compiler: Compiler | None, chosen: Targets) -> dict[str, str]:
    """What made the code, with versions."""
    tools = {} if compiler is None else {"compiler": compiler.version}
    if chosen.gpu:
        found = {arch: toolchain(arch) for arch in chosen.gpu}
        tools["triton"] = next(iter(found.values())).triton
        if assemblers := {t.ptxas for t in found.values() if t.ptxas is not None}:
            tools["ptxas"] = ", ".join(sorted(assemblers))
    return tools


def _tables(backends: Mapping[str, Backend]) -> dict[str, str]:
    """The tuning tables that plans were looked up in, with their hashes."""
    used = [f"{key} {b.tuning}" for key, b in backends.items() if b.tuning.levels]
    return {"tuning": "; ".join(used)} if used else {}


def _codes(
    compiled: Mapping[str, CompiledEntry], arch: str, cache: KernelCache, jobs: int | None, report: Progress
) -> dict[str, GpuCode]:
    """The kernels of all entry points for one GPU architecture, by name."""
    kernels: dict[str, TritonKernel] = {}
    for entry in compiled.values():
        for name, detail in entry.details.items():
            assert isinstance(detail, TritonKernel)
            kernels[name] = detail
    ordered = [kernels[n] for n in sorted(kernels)]
    return compile_kernels(
        ordered, arch, cache=cache, jobs=jobs, progress=lambda done, total: report("compile", done, total)
    )


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


def _constants(sources: Mapping[str, Source], compiled: Compiled, store: ConstantStore) -> dict[str, ConstantData]:
    """Every constant that some plan reads, packed where asked, and the first contents of states."""
    found: dict[str, ConstantData] = {}
    made_from: dict[str, tuple[str, ...]] = {}
    for name, source in sources.items():
        keys = {c.name: c.key for c in source.graph.constants}
        for entry in _of(compiled, None, name).values():
            for c in entry.constants:
                _put(found, c, store[keys[c]])
            for made_name, request in entry.prepacks.items():
                used = sources_of(request)
                contents = tuple(keys[n] for n in used)
                if made_from.setdefault(made_name, contents) != contents:
                    raise _disagreement(", ".join(used))
                if made_name not in found:
                    array = made(request, lambda n, keys=keys: store[keys[n]].array)  # type: ignore[misc]
                    found[made_name] = ConstantData(store[contents[0]].dtype, array)
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
