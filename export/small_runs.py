"""Which of the decisions that torch made by itself matter: the captured program against the module itself, run on
inputs of the small sizes.

A comparison may change nothing, like a flag that is not used or a broadcast written out. So the program as captured and
the module in eager mode run on the same inputs, the example cut to size 0 or 1 with its floats replaced by noise. Where
the results are equal, the size needs no condition.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from hardtack.export.aliases import written_inputs
from hardtack.export.conditions import shape_env
from hardtack.export.dynamic import Prepared
from hardtack.export.small_sizes import Decision, Trial

_CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range")
_TOLERANCE = 1e-3


def mattering(
    decisions: Collection[Decision], ep: ExportedProgram, module: nn.Module, prepared: Prepared
) -> tuple[Decision, ...]:
    """The conditions without which the decomposed program would differ from the module, or run where the module itself
    fails: of a decision that fails for harmless sizes, too, only what excludes the others.
    """
    env = shape_env(ep)
    trials = sorted({t for d in decisions for t in d.fails})
    wrong = {t for t in trials if not _equals_eager(t, ep, module, prepared)}
    out: list[Decision] = []
    for d in decisions:
        if wrong.issuperset(d.fails):
            out.append(d)
            continue
        for trial in sorted(wrong.intersection(d.fails)):
            apart = [sympy.Ne(_symbol(env, name), size, evaluate=False) for name, size in trial]
            out.append(Decision(sympy.Or(*apart), d.where, (trial,)))
    return tuple(out)


def _symbol(env: Any, name: str) -> sympy.Symbol | None:
    """None for a symbol that only the body of a loop has, which torch traced apart."""
    return next((s for s in env.var_to_range if str(s) == name), None)


def _equals_eager(trial: Trial, ep: ExportedProgram, module: nn.Module, prepared: Prepared) -> bool:
    env = shape_env(ep)
    if env is None:
        return True
    sizes: dict[sympy.Symbol, sympy.Integer] = {}
    for name, size in trial:
        known = _symbol(env, name)
        symbol = None if known is None else env.replace(known)
        if symbol is None or symbol.is_number:
            return True  # no size of the program, or one that has become constant
        sizes[symbol] = sympy.Integer(size)
    inputs = _cut(ep, prepared, sizes)
    if inputs is None:
        return False
    try:
        with torch.no_grad():
            shared = {id(p): p for p in module.parameters()}
            args, kwargs = pytree.tree_unflatten([_copy(x) for x in inputs], _spec(ep))
            want = pytree.tree_leaves(copy.deepcopy(module, shared)(*args, **kwargs))
            found = run_program(ep, inputs)
    except Exception:  # whatever the model raises: it does not take this size, or the program does not
        return False
    return len(found) == len(want) and all(_same(f, w) for f, w in zip(found, want, strict=True))


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


def _cut(ep: ExportedProgram, prepared: Prepared, sizes: dict[sympy.Symbol, sympy.Integer]) -> list[Any] | None:
    """The leaves of the example inputs at these sizes; None if they cannot be had by cutting."""
    env = shape_env(ep)
    leaves = example_leaves(ep, prepared)
    nodes = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    users = [s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    values = {**env.backed_var_to_val, **sizes}
    noise = torch.Generator().manual_seed(0)
    out: list[Any] = []
    for leaf, name in zip(leaves, users, strict=True):
        stated = nodes[name].meta.get("val")
        if isinstance(stated, torch.SymInt):
            out.append(int(stated.node.expr.xreplace(values)))
            continue
        if isinstance(leaf, torch.Tensor):
            for dim, n in enumerate(stated.shape):
                wanted = int(n.node.expr.xreplace(values)) if isinstance(n, torch.SymInt) else n
                if not 0 <= wanted <= leaf.shape[dim]:
                    return None
                leaf = leaf.narrow(dim, 0, wanted)
            leaf = leaf.contiguous()
            if leaf.dtype.is_floating_point:
                leaf = torch.randn(leaf.shape, generator=noise).to(leaf)  # of its dtype, where it is
        out.append(leaf)
    return out


class Unchecked(torch.fx.Interpreter):
    """Runs a program without the checks that keep it from small sizes."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if getattr(target, "__name__", "").startswith(_CHECKS):
            return None
        return super().call_function(target, args, kwargs)


def run_program(ep: ExportedProgram, inputs: Sequence[Any], interpreter: type[Unchecked] = Unchecked) -> list[Any]:
    """The program's results for the leaves of its inputs, which stay as they are, like its state."""
    rest, written = iter(inputs), written_inputs(ep)
    flat: list[Any] = []
    for spec in ep.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            given = next(rest)
        else:
            assert spec.target is not None
            given = ep.constants.get(spec.target, ep.state_dict.get(spec.target))
        flat.append(_copy(given) if spec.arg.name in written else given)  # weights may be large
    found = interpreter(ep.graph_module).run(*flat)
    kinds = [s.kind for s in ep.graph_signature.output_specs]
    return [f for f, kind in zip(found, kinds, strict=True) if kind is OutputKind.USER_OUTPUT]


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
