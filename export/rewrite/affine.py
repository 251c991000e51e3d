"""Per-channel scale and shift folded into the convolution or matrix product before them.

This is how batch norm disappears. The rules emit ops on constants only, which constant folding then computes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import Expr, const, int_value
from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand
from hardtack.exporter.constants import load_tensor
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.rewrite.edit import Edit, Facts

Shape = tuple[Expr, ...]

_LARGEST_SCALE = 2.0**60
"""Of f32 a weight of 1e-20 times the least scale is still a normal number, with all of its bits."""


def _split(facts: Facts, op: Op) -> tuple[str, Operand] | None:
    """(variable operand, constant operand) of a binary op; None if it has not one of each."""
    for x, c in (op.inputs, op.inputs[::-1]):
        if isinstance(x, str) and not facts.is_constant(x) and (facts.is_constant(c) or isinstance(c, Lit)):
            return x, c
    return None


def _along(shape: Shape, rank: int, dim: int) -> bool:
    """True if a constant of `shape` varies along dim `dim` of a tensor of `rank` only, or not at all."""
    padded = (const(1),) * (rank - len(shape)) + shape
    return len(shape) <= rank and all(int_value(s) == 1 for i, s in enumerate(padded) if i != dim)


def _channel_dim(op: Op, rank: int) -> int:
    """The dim of the result that counts output channels."""
    return 1 if op.kind == "conv" else rank - 1


def _scalable(facts: Facts, value: Operand) -> Op | None:
    """The conv or matmul with constant weight that makes value, if nothing else uses it."""
    if not isinstance(value, str) or not facts.used_once(value):
        return None
    op = facts.made_by(value, "conv") or facts.made_by(value, "matmul")
    if op is None or not facts.is_constant(op.inputs[1]):
        return None
    weight = facts.graph.type_of(op.inputs[1]).dtype
    if weight.is_half or not weight.is_float:
        return None  # weights would be rounded again, and what the program rounds would not be; int8 would not fit
    if op.kind == "matmul" and facts.constants[op.value(1)].quantized is not None:
        return None  # kernels may read its codes, and sums are fewer than these
    if op.kind == "conv":
        fixed_bias = len(op.inputs) == 2 or facts.is_constant(op.inputs[2])
        plain = not op.attr("transposed") or op.attr("groups") == 1
        return op if fixed_bias and plain else None
    return op


def _plain_scale(facts: Facts, store: ConstantStore, weight: Operand, scale: Operand, *, zeros: bool) -> bool:
    """True if x * (weight * scale) is (x * weight) * scale: no weight overflows, and none that matters loses bits."""
    weights, sizes = _tensor(facts, store, weight), _tensor(facts, store, scale).double().abs()
    if not weights.dtype.is_floating_point or not weights.numel() or not sizes.numel():
        return True
    usual = (sizes >= 1 / _LARGEST_SCALE) & (sizes <= _LARGEST_SCALE)
    largest = max(abs(float(weights.amin())), abs(float(weights.amax()))) * float(sizes.amax())
    return bool((usual | (sizes == 0) if zeros else usual).all()) and largest <= torch.finfo(weights.dtype).max


def _tensor(facts: Facts, store: ConstantStore, value: Operand) -> torch.Tensor:
    """The elements of a constant, or a number."""
    if isinstance(value, str):
        return load_tensor(store, facts.constants[value].key)
    assert isinstance(value, Lit)
    return torch.tensor(value.value, dtype=TORCH_DTYPE[value.dtype])


def _hides_zeros(facts: Facts, store: ConstantStore, value: str) -> bool:
    """True if the sign of a zero in value does not matter, since what is added to it right behind is never -0."""
    users = facts.users.get(value, [])
    parts = _split(facts, users[0]) if facts.used_once(value) and users[0].kind == "add" else None
    if parts is None:
        return False
    added = _tensor(facts, store, parts[1])
    return not bool(((added == 0) & added.signbit()).any())


def distribute_scale(graph: Graph, store: ConstantStore) -> Graph:
    """(x + c) * s = x * s + c * s, for x made by a conv or matmul that can take the scale."""
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        parts = _split(facts, op) if op.kind == "mul" else None
        add = facts.made_by(parts[0], "add") if parts is not None else None
        inner = _split(facts, add) if add is not None else None
        if parts is None or add is None or inner is None or not facts.used_once(add.outputs[0]):
            edit.keep(op)
            continue
        scale, shape = parts[1], facts.shape(op.outputs[0])
        target = _scalable(facts, inner[0])
        fits = target is not None and all(
            _along(facts.shape(c), len(shape), _channel_dim(target, len(shape))) for c in (scale, inner[1])
        )
        if target is None or not fits or not _plain_scale(facts, store, target.inputs[1], scale, zeros=False):
            edit.keep(op)
            continue
        scaled = edit.emit("mul", inner[0], scale, like=op)
        shift = edit.emit("mul", *_constant_first(inner[1], scale), like=op)
        edit.renamed[op.outputs[0]] = edit.emit("add", scaled, shift, like=op)
    return edit.done()


def _constant_first(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    return (a, b) if isinstance(a, str) else (b, a)


def merge_shifts(graph: Graph) -> Graph:
    """(x + a) + b = x + (a + b) for constants, where x + a has no other use."""
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        parts = _split(facts, op) if op.kind == "add" else None
        add = facts.made_by(parts[0], "add") if parts is not None else None
        inner = _split(facts, add) if add is not None else None
        floating = graph.types[op.outputs[0]].dtype.is_float if op.outputs else False
        # only behind a product: elsewhere the order of additions is the user's
        if parts is None or add is None or inner is None or not floating or not facts.used_once(add.outputs[0]):
            edit.keep(op)
            continue
        if _scalable(facts, inner[0]) is None or not any(facts.is_constant(c) for c in (parts[1], inner[1])):
            edit.keep(op)
            continue
        total = edit.emit("add", *_constant_first(inner[1], parts[1]), like=op)
        edit.renamed[op.outputs[0]] = edit.emit("add", inner[0], total, like=op)
    return edit.done()


def fold_scale(graph: Graph, store: ConstantStore) -> Graph:
    """conv(x, w, b) * s = conv(x, w * s, b * s), and (x @ w) * s = x @ (w * s).

    A zero in s keeps no sign of the product: it is folded only where something is added behind.
    """

    def scaled(facts: Facts, edit: Edit, op: Op, target: Op, scale: Operand) -> str | None:
        zeros = _hides_zeros(facts, store, op.outputs[0])
        plain = all(_plain_scale(facts, store, w, scale, zeros=zeros) for w in target.inputs[1:])
        return _scaled(facts, edit, op, target, scale) if plain else None

    return _fold_into(graph, "mul", scaled)


def fold_shift(graph: Graph) -> Graph:
    """conv(x, w, b) + t = conv(x, w, b + t). A matmul has no bias; its shift stays an epilogue."""
    return _fold_into(graph, "add", _shifted)


Fold = Callable[[Facts, Edit, Op, Op, Operand], str | None]


def _fold_into(graph: Graph, kind: str, fold: Fold) -> Graph:
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        parts = _split(facts, op) if op.kind == kind else None
        target = _scalable(facts, parts[0]) if parts is not None else None
        rank = len(facts.shape(op.outputs[0])) if op.outputs else 0
        if parts is None or target is None or not _along(facts.shape(parts[1]), rank, _channel_dim(target, rank)):
            edit.keep(op)
            continue
        # one channel that is broadcast to the constant has no room for it in its weight
        if facts.shape(op.outputs[0]) != facts.shape(target.outputs[0]):
            edit.keep(op)
            continue
        made = fold(facts, edit, op, target, parts[1])
        if made is None:
            edit.keep(op)
        else:
            edit.renamed[op.outputs[0]] = made
    return edit.done()


def _per_channel(facts: Facts, edit: Edit, op: Op, value: Operand, shape: Shape) -> Operand:
    """A per-channel constant in `shape`; a number as it is."""
    return value if not isinstance(value, str) or not facts.shape(value) else _reshaped(facts, edit, op, value, shape)


def _reshaped(facts: Facts, edit: Edit, op: Op, value: str, shape: Shape) -> str:
    numel = 1
    for s in facts.shape(value):
        numel *= int_value(s) or 0
    return edit.reshape(value, tuple(const(1) for _ in shape) if numel == 1 else shape, op)


def _scaled(facts: Facts, edit: Edit, op: Op, target: Op, scale: Operand) -> str:
    weight = str(target.inputs[1])
    rank = len(facts.shape(weight))
    channels = _channels(facts, target)
    dim = rank - 1 if target.kind == "matmul" else 1 if target.attr("transposed") else 0
    along = tuple(channels if i == dim else const(1) for i in range(rank))
    new = [edit.emit("mul", weight, _per_channel(facts, edit, op, scale, along), like=op)]
    if len(target.inputs) == 3:
        new.append(edit.emit("mul", target.inputs[2], _per_channel(facts, edit, op, scale, (channels,)), like=op))
    return edit.emit(target.kind, target.inputs[0], *new, like=target, attrs=target.attrs)


def _channels(facts: Facts, target: Op) -> Expr:
    shape = facts.shape(target.outputs[0])
    return shape[_channel_dim(target, len(shape))]


def _shifted(facts: Facts, edit: Edit, op: Op, target: Op, shift: Operand) -> str | None:
    if target.kind != "conv" or not isinstance(shift, str):
        return None
    channels = _channels(facts, target)
    bias = _reshaped(facts, edit, op, shift, (channels,))
    if len(target.inputs) == 3:
        bias = edit.emit("add", target.inputs[2], bias, like=op)
    elif edit.types[str(edit.resolve(bias))].shape != (channels,):
        return None
    return edit.emit("conv", target.inputs[0], target.inputs[1], bias, like=target, attrs=target.attrs)
