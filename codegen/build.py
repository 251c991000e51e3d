"""From captured graphs to the content of a bundle: every entry point, every target, one set of weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hardtack.codegen.backend import Backend, MachineCode, Rendered
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.dump.folder import dump_folder, origins_of, write_dump
from hardtack.codegen.ir.constants import ConstantData, ConstantStore, ModuleTensor
from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.loops import row_major_strides
from hardtack.codegen.ir.plan import Plan
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.lower.custom import code_of, custom_ops, runs_on, without_kernel
from hardtack.codegen.package.content import (
    BundleContent,
    ComplexPorts,
    EntryContent,
    StateContent,
    TargetContent,
    TensorContent,
    Tree,
    UserKernelContent,
)
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.codegen.plan.prepack import dtype_made, made, sources_of
from hardtack.codegen.recipes import init_name, replaceable
from hardtack.codegen.tune.choice import Tuning

Progress = Callable[[str, int, int], None]
"""progress(what, done, total)."""
NUMERICS = {"accumulate": "f32", "fp_contract": "off"}
"""What may change bits, and is the same for every model; docs/package.md."""


@dataclass(frozen=True)
class Source:
    """One captured entry point: its graph, the pytrees of its call, and example sizes of its symbols.
    tuning: in the place of the backends' own, for several plans in one bundle. texts: of stages in front of the
    graph, by name, for the dump. complex: what callers see as complex numbers. on_gpus: the graph for GPUs, where that
    is another one."""

    graph: Graph
    in_tree: Tree
    out_tree: Tree
    hints: Mapping[str, int] = field(default_factory=dict)
    tuning: Tuning | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    complex: ComplexPorts = field(default_factory=ComplexPorts)
    on_gpus: Graph | None = None

    def graph_on(self, device: str) -> Graph:
        """The graph for a kind of device, cpu, cuda or hip."""
        return self.graph if device == "cpu" or self.on_gpus is None else self.on_gpus

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.graph,) if self.on_gpus is None else (self.graph, self.on_gpus)


@dataclass(frozen=True)
class Built:
    """The content of a bundle, and what is worth telling about how it was made.

    compiled: by entry point and the backend's key.
    """

    content: BundleContent
    compiled: Mapping[tuple[str, str], CompiledEntry]
    decisions: tuple[Decision, ...]


def build_content(
    sources: Mapping[str, Source],
    store: ConstantStore,
    backends: Sequence[Backend],
    *,
    cache: KernelCache | None = None,
    jobs: int | None = None,
    tensors: Mapping[str, ModuleTensor] | None = None,
    producer: Mapping[str, str] | None = None,
    numerics: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    dump: Path | None = None,
    memory_budget: int | None = None,
) -> Built:
    """Compile every entry point for every machine of the backends. `dump`: where to write every stage; None: where
    HARDTACK_DUMP says. memory_budget: bytes that the arena of each may take.

    tensors: the module's parameters and buffers; those that can be replaced in the bundle become its parameters.
    numerics: what the manifest says of this model under that word, beside NUMERICS.

    Raises UnsupportedOp for an op that a backend has no kernel for, OverBudget, and CompilerError, ToolchainError,
    TritonError and NvrtcError where a kernel does not compile, or its compiler is missing.
    """
    _check_kernels(sources, backends)
    _check_faces(sources)
    tools = _tools(backends)
    report = progress or (lambda what, done, total: None)
    compiled = _generate(sources, backends, dump or dump_folder(), report, memory_budget)
    codes = _codes(compiled, backends, cache or KernelCache(), jobs, report)
    constants = _constants(sources, compiled, store)
    by_entry = {name: tuple(_of(compiled, None, name).values()) for name in sources}
    parameters, recipes = replaceable(*_by_graph(sources, compiled, backends), store, tensors or {})
    content = BundleContent(
        entries=tuple(_entry(n, s, by_entry[n][0].plan) for n, s in sources.items()),
        targets=tuple(
            TargetContent(m.target, m.device, codes[m.target].requires, codes[m.target].library)
            for b in backends
            for m in b.machines
        ),
        plans=_plans(compiled, backends, codes),
        constants=tuple(sorted(constants.items())),
        states=_states(sources),
        parameters=parameters,
        recipes={name: r for name, r in recipes.items() if name in constants},
        producer={**(producer or {}), **tools, **_more_tools(codes), **_tables(backends)},
        numerics={**NUMERICS, **(numerics or {})},
        user_kernels=_user_kernels(sources),
        kernels={member: code for found in codes.values() for member, code in found.members.items()},
    )
    return Built(content, compiled, tuple(d for e in compiled.values() for d in e.decisions))


def _check_kernels(sources: Mapping[str, Source], backends: Sequence[Backend]) -> None:
    """Raise UnsupportedOp for an op with a user's kernel that some targets cannot take, with all of them."""
    machines = [m for b in backends for m in b.machines]
    for source in sources.values():
        for graph in source.graphs:
            for op in custom_ops(graph):
                on = [m for m in machines if source.graph_on(m.device) is graph]
                without = [m.target for m in on if not runs_on(code_of(op), m.device)]
                if without:
                    raise UnsupportedOp(op.origin, ", ".join(without), without_kernel(op))


def _check_faces(sources: Mapping[str, Source]) -> None:
    """Raise ValueError where what callers see of an entry point would hang on the target."""
    for name, source in sources.items():
        first, *others = map(_face, source.graphs)
        for other in others:
            for what, a, b in zip(("inputs", "outputs", "sizes", "states"), first, other, strict=True):
                if a != b:
                    raise ValueError(
                        f"the {what} of entry point {name!r} are others on CPUs than on GPUs: export it for each apart"
                    )


def _face(graph: Graph) -> tuple[object, ...]:
    """What callers see."""
    inputs = [(i, graph.types[i.name]) for i in graph.inputs]
    outputs = [(name, graph.types[v]) for name, v in zip(graph.output_names, graph.outputs, strict=True)]
    states = [(s.name, s.init, graph.types[s.name]) for s in graph.states]
    return inputs, outputs, graph.syms, states


def _user_kernels(sources: Mapping[str, Source]) -> tuple[UserKernelContent, ...]:
    """The ops with users' kernels, each once."""
    graphs = (g for s in sources.values() for g in s.graphs)
    found = {op.str_attr("op"): code_of(op) for g in graphs for op in custom_ops(g)}
    return tuple(UserKernelContent(op, code.function, code.host) for op, code in sorted(found.items()))


Compiled = Mapping[tuple[str, str], CompiledEntry]


def _generate(
    sources: Mapping[str, Source],
    backends: Sequence[Backend],
    dumped: Path | None,
    report: Progress,
    budget: int | None,
) -> dict[tuple[str, str], CompiledEntry]:
    """Every entry point for every backend."""
    compiled: dict[tuple[str, str], CompiledEntry] = {}
    total = len(sources) * len(backends)
    for name, source in sources.items():
        for backend in backends:
            report("generate", len(compiled), total)
            texts: dict[str, str] = dict(source.texts)
            try:
                graph, tuned = source.graph_on(backend.machines[0].device), _tuned(backend, source)
                compiled[name, backend.key] = compile_entry(graph, source.hints, tuned, texts, budget)
            finally:
                if dumped is not None:  # what there is of it, also where a stage fails
                    _dump(dumped, name, backend, source, texts, compiled.get((name, backend.key)))
    report("generate", total, total)
    return compiled


def _tuned(backend: Backend, source: Source) -> Backend:
    """The backend, with the source's own tuning where it has one."""
    return backend if source.tuning is None else replace(backend, tuning=source.tuning)  # type: ignore[type-var]


def _dump(
    folder: Path, name: str, backend: Backend, source: Source, texts: Mapping[str, str], entry: CompiledEntry | None
) -> None:
    """The dump of one entry point for one backend; without `entry`, of the stages that were reached."""
    decisions, kernels = ((), {}) if entry is None else (entry.decisions, entry.sources)
    origins = origins_of(source.graph_on(backend.machines[0].device))
    write_dump(folder / backend.subfolder, name, texts, decisions, kernels, origins, backend.suffix)


def _of(compiled: Compiled, key: str | None, entry: str | None = None) -> dict[str, CompiledEntry]:
    """What was compiled for one backend, by entry point; for None of `entry`, by backend."""
    if key is None:
        return {k: c for (name, k), c in compiled.items() if name == entry}
    return {name: c for (name, k), c in compiled.items() if k == key}


def _by_graph(
    sources: Mapping[str, Source], compiled: Compiled, backends: Sequence[Backend]
) -> tuple[dict[str, Graph], dict[str, list[CompiledEntry]]]:
    """Every graph, and as what it was compiled, under one name."""
    graphs: dict[str, Graph] = {}
    entries: dict[str, list[CompiledEntry]] = {}
    for name, source in sources.items():
        for k, graph in enumerate(source.graphs):
            key = f"{name} {k}"
            graphs[key] = graph
            on = [b.key for b in backends if source.graph_on(b.machines[0].device) is graph]
            entries[key] = [compiled[name, b] for b in on]
    return graphs, entries


def _plans(
    compiled: Compiled, backends: Sequence[Backend], codes: Mapping[str, MachineCode]
) -> dict[tuple[str, str], Plan]:
    """Entry point and target -> plan."""
    plans: dict[tuple[str, str], Plan] = {}
    served = {b.key: b.machines for b in backends}
    for (name, key), entry in compiled.items():
        for m in served[key]:
            plans[name, m.target] = entry.for_target(m.target, codes[m.target].records)
    return plans


def _tools(backends: Sequence[Backend]) -> dict[str, str]:
    """What makes the code, with versions."""
    found: dict[str, set[str]] = {}
    for backend in backends:
        for name, version in backend.tools().items():
            found.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(versions)) for name, versions in found.items()}


def _more_tools(codes: Mapping[str, MachineCode]) -> dict[str, str]:
    """What else has made the code of targets, with versions."""
    return {name: version for code in codes.values() for name, version in code.tools.items()}


def _tables(backends: Sequence[Backend]) -> dict[str, str]:
    """The tuning tables that plans were looked up in, with their hashes."""
    used = [f"{b.key} {b.tuning}" for b in backends if b.tuning.levels]
    return {"tuning": "; ".join(used)} if used else {}


def _codes(
    compiled: Compiled, backends: Sequence[Backend], cache: KernelCache, jobs: int | None, report: Progress
) -> dict[str, MachineCode]:
    """Target -> the machine code of the kernels of all entry points."""
    codes: dict[str, MachineCode] = {}
    for backend in backends:
        kernels: dict[str, Rendered] = {}
        for entry in _of(compiled, backend.key).values():
            kernels.update(entry.kernels)
        for k, machine in enumerate(backend.machines):

            def progress(done: int, total: int, before: int = k, of: int = len(backend.machines)) -> None:
                report("compile", before * total + done, of * total)

            codes[machine.target] = backend.compile(kernels, machine, cache=cache, jobs=jobs, progress=progress)
    return codes


def _entry(name: str, source: Source, plan: Plan) -> EntryContent:
    """The contract. An input's strides are the plan's, which has dense ones where a dimension of size 1 has any."""
    g = source.graph
    values = {v.name: v for v in plan.values}
    at_inputs = (values[i.name] for i in g.inputs)
    inputs = tuple(
        _complex_tensor(v.name, v.dtype, v.shape)
        if v.name in source.complex.inputs
        else TensorContent(v.name, v.dtype, v.shape, v.strides)
        for v in at_inputs
    )
    inputs = tuple(replace(t, written=i.final is not None) for t, i in zip(inputs, g.inputs, strict=True))
    outputs = tuple(
        _complex_tensor(out_name, t.dtype, t.shape)
        if i in source.complex.outputs
        else TensorContent(out_name, t.dtype, t.shape, row_major_strides(t.shape))
        for i, (out_name, t) in enumerate(zip(g.output_names, (g.types[v] for v in g.outputs), strict=True))
    )
    syms = tuple(s.sym for s in g.syms)
    return EntryContent(name, syms, inputs, outputs, source.in_tree, source.out_tree)


def _complex_tensor(name: str, dtype: DType, shape: tuple[Expr, ...]) -> TensorContent:
    """An input or output, row-major, whose pairs are complex numbers for callers."""
    return TensorContent(name, dtype, shape[:-1], row_major_strides(shape[:-1]), complex=True)


def _constants(sources: Mapping[str, Source], compiled: Compiled, store: ConstantStore) -> dict[str, ConstantData]:
    """Every constant that some plan reads, packed where asked, and the first contents of states."""
    found: dict[str, ConstantData] = {}
    made_from: dict[str, tuple[str, ...]] = {}
    for name, source in sources.items():
        constants = (c for g in source.graphs for c in g.constants)  # of one name, they are one
        keys = {x.name: x.key for c in constants for x in (c, *c.parts())}
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
                    found[made_name] = ConstantData(dtype_made(request, store[contents[0]].dtype), array)
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
            pairs = s.name in source.complex.states
            init = None if s.init is None else init_name(s.name)
            state = StateContent(s.name, t.dtype, shape[:-1] if pairs else shape, init, pairs)
            if found.setdefault(s.name, state) != state:
                raise ValueError(f"entry points disagree about the state {s.name!r}: {found[s.name]} and {state}")
    return tuple(found[n] for n in sorted(found))
