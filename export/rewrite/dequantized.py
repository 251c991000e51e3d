"""What constants were dequantised from, kept while they are folded: codes, and the steps that make float of them.

Folding computes a weight that a model dequantises, (codes - zero points) * scales in whatever spelling, as it computes
any other constant. Beside the numbers it keeps here where they come from, so that a code generator may store the codes
and do the rest in registers. Where that cannot be told, or would give other bits, the numbers stand alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from hardtack.codegen.ir.constants import ConstantStore, Recipe, View
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Constant, Lit, Op, Operand, Quantized, QuantizedStep, TensorType
from hardtack.exporter.constants import load_tensor, store_tensor
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch
from hardtack.exporter.reference import run_op
from hardtack.exporter.rewrite.known import Codes, Known, Narrow, Spread, Step

_WHOLE_CODES = (torch.int8, torch.uint8)
_FLOAT_CODES = (torch.float8_e4m3fn, torch.float8_e5m2)
_CODES = (*_WHOLE_CODES, *_FLOAT_CODES)
"""All of which bf16 and f16 have."""
_TABLES = (torch.float8_e4m3fn, torch.float8_e8m0fnu)
"""What numbers of a table are stored as where they come from it."""
_FLOAT4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""The numbers of float4_e2m1 that have no sign."""
_FEW = 256
"""Of numbers that bytes pick from, as those that 4 bits stand for."""
_INTEGERS = (torch.int32, torch.int64)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_EXACT = 1 << 22
"""Integers up to here, and what codes less or more they are, are exact in f32."""
_MOST_NUMBERS = 1 << 12
"""Of a table that are tried with every code."""
_RANGES = {torch.int8: (-8, 7), torch.uint8: (0, 15)}
"""Of codes of 4 bits."""
STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sub": torch.sub, "mul": torch.mul, "add": torch.add,
}  # fmt: skip
"""What may make a weight of codes, element by element, by op kind."""


def known_constant(c: Constant, store: ConstantStore) -> Known:
    """A constant that is in the store."""
    value = load_tensor(store, c.key)
    few = value.element_size() == 1 or value.numel() <= _FEW
    return Known(value, c.tensors, c.recipe, _codes_of(c, store), of_bytes=few)


def settled(t: torch.Tensor) -> torch.Tensor:
    """The same numbers, row-major in memory of their own, from which the recipe of a view of them is told."""
    alone = t.is_contiguous() and t.untyped_storage().nbytes() == t.numel() * t.element_size()
    return t if alone else t.clone(memory_format=torch.contiguous_format)


def literal(x: Operand) -> Known:
    """A number that stands in the graph."""
    assert isinstance(x, Lit)
    return Known(torch.tensor(x.value, dtype=TORCH_DTYPE[x.dtype]), of_bytes=True)


def viewed(op: Op, source: Known, value: torch.Tensor) -> Known:
    """Behind an op whose result is a view of its first operand, or a copy of that view."""
    shape = tuple(map(const, value.shape))

    def view(t: torch.Tensor) -> torch.Tensor:
        return run_op(op, (t, *op.inputs[1:]), (TensorType(from_torch(t.dtype), shape),), {})[0]

    recipe = recipe_of_view(op, source.recipe, source.value, value)
    if op.kind == "expand":
        index = torch.arange(source.value.numel(), dtype=torch.int32).view(source.value.shape)
        spread = source.spread or Spread(source.value.reshape(-1), index, source.recipe, _narrow(source))
        return Known(value, source.tensors, recipe, spread=replace(spread, index=view(spread.index)))
    known = Known(value, source.tensors, recipe)
    if source.spread is not None:
        known = replace(known, spread=replace(source.spread, index=view(source.spread.index)))
    if source.codes is not None:
        codes = view(source.codes.value)
        moves = recipe_of_view(op, source.codes.recipe, source.codes.value, codes)
        steps = (replace(s, spread=replace(s.spread, index=view(s.spread.index))) for s in source.codes.steps)
        known = replace(known, codes=replace(source.codes, value=settled(codes), recipe=moves, steps=tuple(steps)))
    return known


def recipe_of_view(op: Op, recipe: Recipe | None, before: torch.Tensor, after: torch.Tensor) -> Recipe | None:
    """The recipe of what an op made by moving elements of one constant, found in the strides that torch gave it.
    before: settled."""
    if recipe is None:
        return None
    if after.numel() and after.untyped_storage().data_ptr() != before.untyped_storage().data_ptr():
        return recipe if op.kind == "reshape" else None
    if after.is_contiguous() and after.numel() == before.numel():
        return recipe
    view = View(int(after.storage_offset()), tuple(after.shape), tuple(after.stride()))
    return replace(recipe, views=(*recipe.views, view))


def converted(source: Known, value: torch.Tensor) -> Known:
    """Behind a conversion: of codes, of integers that were made of them, or of any numbers."""
    spread = source.spread and replace(source.spread, numbers=source.spread.numbers.to(value.dtype), recipe=None)
    known = Known(value, source.tensors, spread=spread)
    if value.dtype not in (*_FLOATS, *_INTEGERS):
        return known
    starts = source.value.dtype in (*_FLOAT_CODES, *_TABLES) and value.dtype in _FLOATS
    if starts or source.value.dtype in _WHOLE_CODES:
        return replace(known, codes=Codes(source.value, source.tensors, source.recipe))
    if source.codes is not None and source.codes.steps and value.dtype not in (torch.float32, *_INTEGERS):
        return replace(known, codes=_rounded(source.codes, value.dtype))
    return replace(known, codes=source.codes)


def _rounded(codes: Codes, dtype: torch.dtype) -> Codes | None:
    """Codes whose last step gives half numbers; None where it rounds to others already."""
    *before, last = codes.steps
    if last.result not in (torch.float32, dtype):
        return None
    return replace(codes, steps=(*before, replace(last, result=dtype)))


def codes_of_step(kind: str, operands: Sequence[Known], result: torch.Tensor, store: ConstantStore) -> Codes | None:
    """Behind an op of STEPS, one of whose operands is dequantised and has the result's shape."""
    for k in (0, 1) if kind != "sub" else (0,):
        codes, other = operands[k].codes, operands[1 - k]
        if codes is not None and codes.value.shape == result.shape:
            return _stepped(kind, codes, other, result, store)
    for k in (0, 1) if kind == "mul" else ():
        if operands[k].value.shape == result.shape and (float4 := _float4_codes(operands[k])) is not None:
            return _stepped(kind, float4, operands[1 - k], result, store)
    return None


def _float4_codes(known: Known) -> Codes | None:
    """The numbers of a matrix that was made of bytes as float8_e4m3fn, where float4_e2m1 has all of them: however its
    bits became numbers, these are told by themselves."""
    value = known.value
    if not known.of_bytes or value.dtype not in _FLOATS or value.dim() < 2 or value.numel() <= _FEW:
        return None
    return Codes(value.to(torch.float8_e4m3fn), known.tensors, None) if _is_float4(value) else None


def _is_float4(value: torch.Tensor) -> bool:
    return bool(torch.isin(value.float().abs(), _FLOAT4).all())


def _narrow(known: Known) -> Narrow | None:
    """What a value was converted from, floats of 8 bits, perhaps times one number."""
    codes = known.codes
    if codes is None or codes.value.dtype not in _TABLES or len(codes.steps) > 1:
        return None
    factor: Known | None = None
    for step in codes.steps:
        index = step.spread.index.reshape(-1)
        if step.kind != "mul" or step.result is not torch.float32 or bool((index != index[0]).any()):
            return None
        number = step.spread.numbers[index[:1].long()]
        view = View(int(index[0]), (1,), (1,))
        recipe = step.spread.recipe and replace(step.spread.recipe, views=(*step.spread.recipe.views, view))
        factor = Known(number, step.tensors, recipe)
    return Narrow(codes.value.reshape(-1), codes.tensors, codes.recipe, factor)


def _stepped(kind: str, codes: Codes, other: Known, result: torch.Tensor, store: ConstantStore) -> Codes | None:
    is_float = other.value.dtype in _FLOATS and other.value.dtype is result.dtype
    if not is_float and not (kind != "mul" and other.value.dtype in (*_WHOLE_CODES, *_INTEGERS)):
        return None
    if not is_float and other.value.numel() and max(-int(other.value.min()), int(other.value.max())) > _EXACT:
        return None
    if kind != "mul" and not codes.steps and not bool(other.value.any()):
        store.inlined.update(other.tensors)  # a code less 0 is itself, and that no step at all
        return codes
    spread = other.spread
    if spread is None:
        index = torch.arange(other.value.numel(), dtype=torch.int32).view(other.value.shape)
        spread = Spread(other.value.reshape(-1), index, other.recipe, _narrow(other))
    recipe = spread.recipe if is_float else None  # no recipe converts
    numbers = spread.numbers if is_float else spread.numbers.to(torch.float32)
    rounded = result.dtype if is_float else torch.float32
    narrow = spread.narrow if is_float else None
    step = Step(kind, Spread(numbers, spread.index.expand(result.shape), recipe, narrow), other.tensors, rounded)
    return replace(codes, steps=(*codes.steps, step))


def _codes_of(c: Constant, store: ConstantStore) -> Codes | None:
    if c.quantized is None:
        return None
    codes = load_tensor(store, c.quantized.codes.key)
    steps: list[Step] = []
    for s in c.quantized.steps:
        table = load_tensor(store, s.table.key)
        index = torch.arange(table.numel(), dtype=torch.int32).view(_with_runs(table.shape, [1] * len(s.runs)))
        index = index.expand(_with_runs(table.shape, s.runs)).reshape(codes.shape)
        steps.append(Step(s.kind, _spread_of(s, table, index, store), s.table.tensors, TORCH_DTYPE[s.result]))
    return Codes(codes, c.quantized.codes.tensors, c.quantized.codes.recipe, tuple(steps))


def _spread_of(s: QuantizedStep, table: torch.Tensor, index: torch.Tensor, store: ConstantStore) -> Spread:
    """A step's table, whose elements `index` numbers, as it was."""
    numbers = table.reshape(-1)
    if not s.number.is_float8:
        return Spread(numbers, index, s.table.recipe)
    factor: Known | None = None
    if (f := s.factor) is not None:
        factor = Known(load_tensor(store, f.key), f.tensors, f.recipe)
    narrow = Narrow(numbers, s.table.tensors, s.table.recipe, factor)
    return Spread(_widened(numbers, factor), index, None, narrow)


def _widened(codes: torch.Tensor, factor: Known | None) -> torch.Tensor:
    """Floats of 8 bits as f32, times their factor."""
    return codes.float() if factor is None else codes.float() * factor.value


def quantized(known: Known, store: ConstantStore) -> Quantized | None:
    """What a constant says of its codes, which are put to the store; None unless they give its numbers bit by bit."""
    codes, value = known.codes, known.value
    if codes is None or value.dtype not in _FLOATS or value.dim() < 2 or not value.numel():
        return None
    if codes.value.dtype not in _CODES:
        return None
    bits = _bits(codes)
    codes = _without_idle_rounding(codes, bits)
    tables = [_table(s, codes) for s in codes.steps]
    again = codes.value.to(torch.float32)
    for step, table in zip(codes.steps, tables, strict=True):
        apart = again.reshape(_with_runs(table.numbers.shape, table.runs))
        numbers = _widened(table.numbers, table.factor).view(_with_runs(table.numbers.shape, [1] * len(table.runs)))
        again = STEPS[step.kind](apart, numbers).reshape(value.shape).to(step.result).float()
    if not _same_bits(again, value.float()):
        return None
    steps = tuple(
        _stored(k, step, table, store) for k, (step, table) in enumerate(zip(codes.steps, tables, strict=True))
    )
    made = Constant("codes", store_tensor(store, codes.value), codes.tensors, codes.recipe)
    signed: Constant | None = None
    if codes.value.dtype is torch.uint8:  # their own recipe is none: it would have to compute
        signed = Constant("signed", store_tensor(store, codes.value.bitwise_xor(128).view(torch.int8)), codes.tensors)
    return Quantized(made, steps, from_torch(codes.value.dtype), bits, signed)


def _stored(k: int, step: Step, table: _Table, store: ConstantStore) -> QuantizedStep:
    """Step k, its table in the store."""
    constant = Constant(f"{step.kind}{k}", store_tensor(store, table.numbers), table.tensors, table.recipe)
    factor: Constant | None = None
    if (f := table.factor) is not None:
        factor = Constant(f"factor{k}", store_tensor(store, f.value), f.tensors, f.recipe)
    number, result = from_torch(table.numbers.dtype), from_torch(step.result)
    limits = _limits(table.numbers, table.recipe) if factor is None else None
    return QuantizedStep(step.kind, constant, table.runs, number, result, limits, factor)


def _limits(table: torch.Tensor, recipe: Recipe | None) -> tuple[int, int] | None:
    """QuantizedStep.limits of a table."""
    wide = table.float()
    least, most = float(wide.min()), float(wide.max())
    whole = recipe is None and max(-least, most) <= _EXACT and torch.equal(wide, wide.round())
    return (int(least), int(most)) if whole else None


def _bits(codes: Codes) -> int:
    """Of each code. Floats of 8 bits that can be replaced keep them: others need not be numbers of 4."""
    value = codes.value
    if value.dtype in _RANGES:
        lo, hi = _RANGES[value.dtype]
        return 4 if lo <= int(value.min()) and int(value.max()) <= hi else 8
    fits = value.dtype is torch.float8_e4m3fn and codes.recipe is None and _is_float4(value)
    return 4 if fits else 8


def _without_idle_rounding(codes: Codes, bits: int) -> Codes:
    """The same without the rounding of a first step whose results are half numbers as they are: codes less whole zero
    points. It is looked for over all codes of so many bits, and where the numbers cannot be replaced. A step that is
    the last, too, says what the constant's numbers are."""
    first = codes.steps[0] if len(codes.steps) > 1 else None
    if first is None or first.result is torch.float32 or first.spread.recipe is not None:
        return codes
    if codes.value.dtype not in _WHOLE_CODES:
        return codes
    whole = torch.iinfo(codes.value.dtype)
    lo, hi = _RANGES[codes.value.dtype] if bits == 4 else (whole.min, whole.max)
    every = torch.arange(lo, hi + 1, dtype=torch.float32)
    numbers = np.unique(first.spread.numbers.float().numpy())
    if len(numbers) > _MOST_NUMBERS:
        return codes
    exact = STEPS[first.kind](every, torch.from_numpy(numbers)[:, None])
    if not _same_bits(exact.to(first.result).float(), exact):
        return codes
    return replace(codes, steps=(replace(first, result=torch.float32), *codes.steps[1:]))


def _same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    return torch.equal(x.contiguous().view(torch.int32), y.contiguous().view(torch.int32))


def _with_runs(blocks: Sequence[int], runs: Sequence[int]) -> tuple[int, ...]:
    """Each dimension as blocks of runs."""
    return tuple(n for pair in zip(blocks, runs, strict=True) for n in pair)


@dataclass(frozen=True)
class _Table:
    """A step's numbers without the neighbours that share one, and how many do along each dimension. tensors, recipe: of
    the numbers; factor: Narrow.factor, of floats of 8 bits."""

    numbers: torch.Tensor
    runs: tuple[int, ...]
    tensors: tuple[str, ...]
    recipe: Recipe | None
    factor: Known | None = None


def _table(step: Step, codes: Codes) -> _Table:
    spread = step.spread
    runs = tuple(_run(spread.index, d) for d in range(spread.index.dim()))
    thin = _thinned(spread.index, runs).long()
    if (narrow := spread.narrow) is not None and step.kind == "mul":
        recipe = _picked(replace(spread, recipe=narrow.recipe), runs)
        return _Table(_picked_codes(narrow.codes, thin), runs, narrow.tensors, recipe, narrow.factor)
    numbers, recipe = spread.numbers[thin], _picked(spread, runs)
    if recipe is None and step.kind == "mul" and codes.value.dtype in _FLOAT_CODES:
        numbers = _as_float8(numbers)
    return _Table(numbers, runs, step.tensors, recipe)


def _picked_codes(codes: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return codes.view(torch.uint8)[at].view(codes.dtype)


def _as_float8(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers as floats of 8 bits where these have all of them, as scales of MX and NVFP4, else as they are."""
    wide = numbers.float()
    for dtype in (torch.float8_e8m0fnu, torch.float8_e4m3fn):
        if _same_bits(wide.to(dtype).float(), wide):
            return numbers.to(dtype)
    return numbers


def _thinned(index: torch.Tensor, runs: Sequence[int]) -> torch.Tensor:
    return index[tuple(slice(None, None, n) for n in runs)]


def _run(index: torch.Tensor, dim: int) -> int:
    """The largest divisor of a dimension's size such that as many neighbours along it have one number everywhere."""
    size = index.shape[dim]
    if size == 1 or index.stride(dim) == 0:
        return size
    for d in range(index.dim()):
        if index.stride(d) == 0:
            index = index.narrow(d, 0, 1)
    changes = index.narrow(dim, 1, size - 1) != index.narrow(dim, 0, size - 1)
    others = [d for d in range(index.dim()) if d != dim]
    where = (changes.any(dim=others) if others else changes).nonzero().reshape(-1) + 1
    return math.gcd(size, *where.tolist())


def _picked(spread: Spread, runs: Sequence[int]) -> Recipe | None:
    """The recipe of a table whose numbers lie in those of a constant by strides; None where they do not."""
    recipe, thin = spread.recipe, _thinned(spread.index, runs).long()
    offset = int(thin[(0,) * thin.dim()])
    strides = tuple(int(thin.select(d, 1).reshape(-1)[0]) - offset if n > 1 else 0 for d, n in enumerate(thin.shape))
    found = torch.full((), offset)
    for d, (n, stride) in enumerate(zip(thin.shape, strides, strict=True)):
        found = found + (torch.arange(n) * stride).view(-1, *(1,) * (thin.dim() - d - 1))
    if recipe is None or not torch.equal(found.expand(thin.shape), thin):
        return None
    return replace(recipe, views=(*recipe.views, View(offset, tuple(thin.shape), strides)))
