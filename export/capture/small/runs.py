"""Which of the decisions that torch made by itself matter: the captured program against the module itself, run on
inputs of other sizes.

A comparison may change nothing, like a flag that is not used or a broadcast written out. So the program as captured and
the module in eager mode run on the same inputs, the example cut or repeated to a size at which the comparison fails,
with its floats replaced by noise. Where the results are equal, the size needs no condition.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import sympy
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from hardtack.exporter.aliases import CHANGES, written_inputs
from hardtack.exporter.capture.conditions import shape_env
from hardtack.exporter.capture.dynamic_shapes import Prepared
from hardtack.exporter.capture.eager_runs import Results, run_module
from hardtack.exporter.capture.guarded_kernels import GuardedKernels
from hardtack.exporter.capture.small.sizes import Decision, Trial
from hardtack.exporter.sizes.shapes import NO_NUMBER
from hardtack.exporter.sizes.strides import contract_order, laid_out, otherwise_strided
from hardtack.exporter.triton_calls.launch_ops import launch_of

_CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range")
_TOLERANCE = 1e-3
_ULPS = 16
"""How many ulps of 1 the results of a program and of its module may be apart."""
_NOISE = (1.0, -4.0)
"""What normal random numbers are multiplied by: of few elements all may be positive, or within a clamp's limits."""
_ROUNDING = 10.0
"""Of small inputs, the part of the usual difference that rounding alone explains."""


def mattering(
    decisions: Collection[Decision], ep: ExportedProgram, module: nn.Module, prepared: Prepared
) -> tuple[Decision, ...]:
    """The conditions without which the decomposed program would differ from the module, or run where the module itself
    fails: of a decision that fails for harmless sizes, too, only what excludes the others, if it is one size alone.
    """
    env = shape_env(ep)
    if env is None:
        return ()
    trials = sorted({t for d in decisions for t in d.fails})
    runs = _Trials(ep, module, prepared)
    verdicts: dict[Trial, Verdict] = {t: runs.verdict(t) for t in trials}
    out: list[Decision] = []
    for d in decisions:
        wrong = {t for t in d.fails if verdicts[t] == "apart" or (verdicts[t] == "refused" and d.asked)}
        if wrong and (not d.asked or len(wrong) == len(d.fails) or any(len(trial) > 1 for trial in wrong)):
            out.append(d)
            continue
        for trial in sorted(wrong):
            apart = [sympy.Ne(_symbol(env, name), size, evaluate=False) for name, size in trial]
            out.append(Decision(sympy.Or(*apart), d.where, (trial,)))
    return tuple(out)


def differs_by_strides(ep: ExportedProgram, module: nn.Module, prepared: Prepared) -> bool:
    """True if the module gives something else than the decomposed program for the example's sizes, where the inputs
    have other strides in dimensions of size 1.
    """
    if all(otherwise_strided(x) is x for x in example_leaves(ep, prepared)):
        return False
    return _Trials(ep, module, prepared).verdict(()) == "apart"


def differs_on_example(ep: ExportedProgram, module: nn.Module, prepared: Prepared) -> bool:
    """True if the module gives something else than the decomposed program for the example itself, by more than rounding
    explains in the coarsest dtype of a result.
    """
    distance = _Trials(ep, module, prepared).distance_as_given()
    results = [n.meta.get("val") for n in ep.graph.output_node().all_input_nodes]
    floats = [t.dtype for t in results if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]
    return distance is not None and distance > max([_TOLERANCE, *(_ULPS * torch.finfo(d).eps for d in floats)])


def differs_as_laid_out(ep: ExportedProgram, module: nn.Module, given: Prepared) -> bool:
    """True if the module gives something else than the decomposed program for the example with the strides that the
    caller gave it.
    """
    runs = _Trials(ep, module, given)
    distance = runs.distance_as_given()
    return distance is not None and not runs.is_rounding(distance)


@contextmanager
def _seeded() -> Iterator[None]:
    """Random numbers that are the same each time, of which the user's own go on as if there were none."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _symbol(env: Any, name: str) -> sympy.Symbol | None:
    """None for a symbol that only the body of a loop has, which torch traced apart."""
    return next((s for s in env.var_to_range if str(s) == name), None)


Verdict = Literal["equal", "apart", "refused"]


@dataclass
class _Trials:
    """Runs of the program and of the module on inputs of other sizes."""

    ep: ExportedProgram
    module: nn.Module
    prepared: Prepared

    @cached_property
    def _launches(self) -> bool:
        """Whether kernels of the user's are launched. One that writes beyond what these sizes have ends the process's
        use of its device.
        """
        graphs = [m.graph for m in self.ep.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
        return any(launch_of(node.target) is not None for graph in graphs for node in graph.nodes)

    def verdict(self, trial: Trial) -> Verdict:
        """Whether the program's results at these sizes are the module's. "refused": the module has none, the inputs
        cannot be had, or kernels of the user's would have to be launched at sizes that nobody gave.
        """
        env = shape_env(self.ep)
        sizes: dict[sympy.Symbol, sympy.Integer] = {}
        for name, size in trial:
            known = _symbol(env, name)
            symbol = None if known is None else env.replace(known)
            if symbol is None or symbol.is_number:
                return "equal"  # no size of the program, or one that has become constant
            sizes[symbol] = sympy.Integer(size)
        if sizes and self._launches:
            return "refused"
        distance = self._distance(sizes)
        if distance is None:
            return "refused"
        return "equal" if self.is_rounding(distance) else "apart"

    def is_rounding(self, distance: float) -> bool:
        return distance <= _TOLERANCE or distance <= _ROUNDING * self._usual

    @cached_property
    def _written(self) -> set[str]:
        """The names of the states that the program changes."""
        changes = [s.target for s in self.ep.graph_signature.output_specs if s.kind in CHANGES]
        return {name for target in changes for name in _names(self.ep, str(target))}

    @cached_property
    def _usual(self) -> float:
        """How far the program is from the module at the example's sizes: by rounding alone."""
        found = self._distance({}, others=False)
        return found if found is not None and math.isfinite(found) else 0.0

    def _distance(self, sizes: Mapping[sympy.Symbol, sympy.Integer], others: bool = True) -> float | None:
        """The largest difference of two results; infinite for other shapes, dtypes or integers, and for a program that
        fails. None where the module has no results. others: also of inputs with other strides that callers may give.
        """
        env = shape_env(self.ep)
        values = {**(env.backed_var_to_val if env is not None else {}), **sizes}
        found: list[float | None] = []
        for factor in _NOISE:
            try:
                inputs = _resized(self.ep, self.prepared, values, factor)
            except NO_NUMBER:
                return None
            if inputs is None:
                return None
            found.append(self.distance_for(inputs, values))
            again = [otherwise_strided(x) for x in inputs] if others else inputs
            if found[-1] is not None and any(a is not x for a, x in zip(again, inputs, strict=True)):
                found.append(self.distance_for(again, values))
            if not any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in inputs):
                break
        # a module may refuse some of them, as view() does other strides
        return max((d for d in found if d is not None), default=None)

    def distance_as_given(self) -> float | None:
        """The largest difference for the example inputs as they are, as _distance has it."""
        env = shape_env(self.ep)
        values = env.backed_var_to_val if env is not None else {}
        return self.distance_for(example_leaves(self.ep, self.prepared), values)

    def distance_for(self, inputs: list[Any], values: Mapping[sympy.Symbol, Any]) -> float | None:
        """The largest difference for these inputs, of the sizes that `values` says, as _distance has it; that of what
        becomes of states, too.
        """
        count = 2 if self._written else 1  # the first finds states as they are at the beginning, often zeros
        try:
            calls = [pytree.tree_unflatten([_copy(x) for x in inputs], _spec(self.ep)) for _ in range(count)]
            with _seeded():
                want = run_module(self.module, calls, self._written)
        except Exception:  # whatever the model raises: it does not take this size
            return None
        found: list[Results] = []
        try:
            with torch.no_grad(), GuardedKernels(), _seeded():
                for _ in want:
                    found.append(run_program(self.ep, inputs, values, states=found[-1].states if found else {}))
        except Exception:  # whatever its ops raise: what holds for larger sizes does not hold for these
            return math.inf
        given = (pytree.tree_leaves(call) for call in calls)  # as the module has left them
        return max(self._apart(f, w, leaves) for f, w, leaves in zip(found, want, given, strict=False))

    def _apart(self, found: Results, want: Results, given: Sequence[Any]) -> float:
        if len(found.outputs) != len(want.outputs):
            return math.inf
        pairs = list(zip(found.outputs, want.outputs, strict=True))
        pairs += [(f, given[k]) for k, f in found.inputs.items()]
        for name in {**found.states, **want.states}:
            before = _given(self.ep, name)
            pairs.append((found.states.get(name, before), want.states.get(name, before)))
        return max((_apart(f, w) for f, w in pairs), default=0.0)


def _spec(ep: ExportedProgram) -> pytree.TreeSpec:
    spec: pytree.TreeSpec | None = ep.call_spec.in_spec
    assert spec is not None
    return spec


def example_leaves(ep: ExportedProgram, prepared: Prepared) -> list[Any]:
    """The example inputs in the order in which the program takes them."""
    keywords = _spec(ep).children()[1].context
    return pytree.tree_leaves((prepared.args, {k: prepared.kwargs[k] for k in keywords}))


def _copy(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x


def _resized(
    ep: ExportedProgram, prepared: Prepared, values: Mapping[sympy.Symbol, Any], factor: float
) -> list[Any] | None:
    """The leaves of the example inputs at these sizes, cut or repeated, floats as normal random numbers times `factor`;
    None if there are none of such sizes.
    """
    leaves = example_leaves(ep, prepared)
    nodes = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    users = [s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    noise = torch.Generator().manual_seed(0)
    out: list[Any] = []
    for leaf, name in zip(leaves, users, strict=True):
        stated = nodes[name].meta.get("val")
        if isinstance(stated, torch.SymInt):
            out.append(int(stated.node.expr.xreplace(values)))
            continue
        if isinstance(leaf, torch.Tensor):
            order = contract_order(leaf)
            for dim, n in enumerate(stated.shape):
                wanted = int(n.node.expr.xreplace(values)) if isinstance(n, torch.SymInt) else n
                if wanted < 0 or (wanted > 0 and not leaf.shape[dim]):
                    return None
                if wanted != leaf.shape[dim]:
                    leaf = leaf.index_select(dim, torch.arange(wanted, device=leaf.device) % max(leaf.shape[dim], 1))
            if leaf.dtype.is_floating_point:
                leaf = (torch.randn(leaf.shape, generator=noise) * factor).to(leaf)  # of its dtype, where it is
            leaf = laid_out(leaf, order)
        out.append(leaf)
    return out


class Unchecked(torch.fx.Interpreter):
    """Runs a program without the checks that keep it from small sizes, and with the numbers that torch made of sizes,
    as kernels will. values: symbol -> size; {} to compute the numbers as the program does.
    """

    def __init__(self, module: torch.fx.GraphModule, values: Mapping[sympy.Symbol, Any]) -> None:
        super().__init__(module)
        self._values = values

    def run_node(self, n: torch.fx.Node) -> Any:
        number = n.meta.get("val")
        if n.op == "call_function" and isinstance(number, torch.SymInt):
            found = number.node.expr.xreplace(self._values)
            if found.is_number:
                return int(found)
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if getattr(target, "__name__", "").startswith(_CHECKS):
            return None
        return super().call_function(target, args, kwargs)


def run_program(
    ep: ExportedProgram,
    inputs: Sequence[Any],
    values: Mapping[sympy.Symbol, Any],
    interpreter: type[Unchecked] = Unchecked,
    *,
    states: Mapping[str, torch.Tensor] | None = None,
) -> Results:
    """What the program gives for the leaves of its inputs, which stay as they are, like its states. states: what these
    are at the beginning, where that is not what was captured.
    """
    rest, changed = iter(inputs), written_inputs(ep)
    flat: list[Any] = []
    for spec in ep.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            given = next(rest)
        else:
            assert spec.target is not None
            given = (states or {}).get(spec.target, _given(ep, spec.target))
        flat.append(_copy(given) if spec.arg.name in changed else given)  # weights may be large
    found = interpreter(ep.graph_module, values).run(*flat)
    pairs = list(zip(found, ep.graph_signature.output_specs, strict=True))
    outputs = [f for f, spec in pairs if spec.kind is OutputKind.USER_OUTPUT]
    states = {name: f for f, spec in pairs if spec.kind in CHANGES for name in _names(ep, str(spec.target))}
    users = [s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    written = {users.index(str(s.target)): f for f, s in pairs if s.kind is OutputKind.USER_INPUT_MUTATION}
    return Results(outputs, states, written)


def _names(ep: ExportedProgram, target: str) -> list[str]:
    """All names of the tensor that one names."""
    tensor = _given(ep, target)
    return [name for name, t in {**ep.state_dict, **ep.constants}.items() if t is tensor]


def _given(ep: ExportedProgram, name: str) -> Any:
    """A weight, a state or a constant of a program, as it was captured."""
    return ep.constants.get(name, ep.state_dict.get(name))


def _apart(a: Any, b: Any) -> float:
    """How far two results differ, in parts of what they are beyond 1."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return 0.0 if type(a) is type(b) and bool(a == b) else math.inf
    if a.dtype != b.dtype or a.shape != b.shape:
        return math.inf
    if torch.equal(a, b) or not a.numel():
        return 0.0
    if not (a.is_floating_point() or a.is_complex()):
        return math.inf
    x, y = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
    alike = (x == y) | ((x != x) & (y != y))
    apart = torch.where(alike, 0.0, (x - y).abs() / (1 + y.abs()))
    return float(apart.nan_to_num(nan=math.inf).max())
