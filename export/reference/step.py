"""One op at run time, as the kernels of the reference interpreter see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Lit, Op, TensorType
from hardtack.exporter.dtypes import TORCH_DTYPE


class ReferenceFailure(Exception):
    """A graph cannot be run on the given inputs."""


Env = Mapping[str, int]


class Step:
    """One op at run time: operands as tensors, attributes with sizes put in, stated output shapes as ints."""

    def __init__(self, op: Op, args: Sequence[Any], types: Sequence[TensorType], sizes: Env) -> None:
        self.op, self.types, self.sizes = op, types, sizes
        self.args: list[torch.Tensor] = [self._tensor(a) for a in args]

    def _tensor(self, a: Any) -> torch.Tensor:
        if isinstance(a, Lit) and a.dtype.is_float8:
            return torch.tensor(a.value, dtype=torch.uint8).view(TORCH_DTYPE[a.dtype])
        if isinstance(a, Lit):
            return torch.tensor(a.value, dtype=TORCH_DTYPE[a.dtype])
        if isinstance(a, Expr):
            return torch.tensor(evaluate(a, self.sizes), dtype=torch.int64)
        assert isinstance(a, torch.Tensor)
        return a

    def attr(self, name: str) -> Any:
        return self.value(self.op.attr(name))

    def value(self, v: Any) -> Any:
        """An attribute with its Exprs evaluated."""
        if isinstance(v, tuple):
            return tuple(self.value(i) for i in v)
        return evaluate(v, self.sizes) if isinstance(v, Expr) else v

    @property
    def shape(self) -> list[int]:
        """The first output's shape."""
        return [evaluate(s, self.sizes) for s in self.types[0].shape]

    @property
    def dtype(self) -> torch.dtype:
        return TORCH_DTYPE[self.types[0].dtype]
