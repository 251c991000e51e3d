"""Tensors described by text: the expression that makes one here stands in the script of a failure, too.

The functions are self-contained: a script gets the source of those that it uses.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch


def normal(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal random numbers; integers from -20 to 20, or all that 8 bits hold."""
    g = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=g) > 0.4
    if dtype.is_floating_point:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)
    lo, hi = {torch.uint8: (0, 256), torch.int8: (-128, 128)}.get(dtype, (-20, 21))
    return torch.randint(lo, hi, shape, generator=g).to(dtype)


def quarters(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal random numbers rounded to quarters: many are equal, and small sums of them are exact."""
    g = torch.Generator().manual_seed(seed)
    return ((torch.randn(shape, generator=g, dtype=torch.float64) * 4).round() / 4).to(dtype)


def positive(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Numbers from 0.1 on."""
    g = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=g, dtype=torch.float64).abs() + 0.1).to(dtype)


def level(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """One positive number everywhere: what a sum of many loses is lost each time."""
    value = torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05
    return value.expand(shape).clone().to(dtype)


def special(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal random numbers with NaN, infinities, zeros of both signs, tiny and large ones between them."""
    g = torch.Generator().manual_seed(seed)
    rare = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 3e4, -2.5, 0.5, 1.5]).double()
    pick = rare[torch.randint(0, len(rare), shape, generator=g)]
    plain = torch.randn(shape, generator=g, dtype=torch.float64)
    return torch.where(torch.rand(shape, generator=g) < 0.15, pick, plain).to(dtype)


def index(shape: tuple[int, ...], dtype: torch.dtype, seed: int, lo: int, hi: int) -> torch.Tensor:
    """Integers from lo to hi - 1."""
    return torch.randint(lo, hi, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def permutation(shape: tuple[int, ...], dtype: torch.dtype, seed: int, n: int) -> torch.Tensor:
    """Different integers below n."""
    found = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return found[: torch.Size(shape).numel()].reshape(shape).to(dtype)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Zeros, as states begin with."""
    return torch.zeros(shape, dtype=dtype)


FILLS = {f.__name__: f for f in (normal, quarters, positive, level, special, zeros, index, permutation)}
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = {name: getattr(torch, name) for name in (*FLOATS, *INTS, "bool")}
LAYOUTS = ("dense", "permuted", "strided", "expanded", "offset", "channels_last")

Size = int | str
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor by its description.

    shape: sizes, a symbol's name where one is dynamic. fill: one of FILLS, with `limits` for index and permutation.
    widened: the numbers are those of `dtype`, the tensor is float64.
    """

    name: str
    shape: tuple[Size, ...]
    dtype: str
    fill: str
    seed: int
    layout: str = "dense"
    limits: tuple[int, ...] = ()
    widened: bool = False

    def sizes(self, given: Sizes) -> tuple[int, ...]:
        """The shape with symbols replaced."""
        return tuple(given[s] if isinstance(s, str) else s for s in self.shape)

    def symbols(self) -> dict[int, str]:
        """dimension -> symbol."""
        return {d: s for d, s in enumerate(self.shape) if isinstance(s, str)}

    def expression(self, given: Sizes, salt: int = 0) -> str:
        """Python text that makes the tensor. Another salt gives other numbers, save for indices."""
        shape = self.sizes(given)
        text = self._laid_out(shape, self.seed if self.limits else self.seed + salt)
        return f"{text}.double()" if self.widened else text

    def make(self, given: Sizes, salt: int = 0) -> torch.Tensor:
        made = eval(self.expression(given, salt), {"torch": torch, **FILLS})
        assert isinstance(made, torch.Tensor)
        return made

    def _filled(self, shape: tuple[int, ...], seed: int) -> str:
        parts = [str(tuple(shape)), f"torch.{self.dtype}", str(seed), *map(str, self.limits)]
        return f"{self.fill}({', '.join(parts)})"

    def _laid_out(self, shape: tuple[int, ...], seed: int) -> str:
        rank = len(shape)
        if self.layout == "permuted" and rank > 1:
            order = list(range(rank))
            random.Random(self.seed).shuffle(order)
            back = ", ".join(str(order.index(d)) for d in range(rank))
            return f"{self._filled(tuple(shape[d] for d in order), seed)}.permute({back})"
        if self.layout == "strided" and rank:
            cuts = ", ".join(f"1:{1 + 2 * n}:2" for n in shape)
            return f"{self._filled(tuple(2 * n + 1 for n in shape), seed)}[{cuts}]"
        if self.layout == "expanded" and rank:
            at = self.seed % rank
            small = tuple(min(n, 1) if d == at else n for d, n in enumerate(shape))
            return f"{self._filled(small, seed)}.expand({', '.join(map(str, shape))})"
        if self.layout == "offset" and rank:
            return f"{self._filled((shape[0] + 1, *shape[1:]), seed)}[1:]"
        if self.layout == "channels_last" and rank == 4:
            return f"{self._filled(shape, seed)}.to(memory_format=torch.channels_last)"
        return self._filled(shape, seed)


def in_double(spec: TensorSpec) -> TensorSpec:
    """The same numbers as float64."""
    return replace(spec, widened=True) if spec.dtype in FLOATS else spec


def sources(texts: str) -> str:
    """The source of the fill functions that a text calls."""
    used = [f for name, f in FILLS.items() if re.search(rf"\b{name}\(", texts)]
    return "\n\n".join(inspect.getsource(f) for f in used)
