"""The conversion table: torch op name -> the function that emits Graph ops for it.

A convert function takes the builder and then what the op's schema lists, positionally and by keyword, with tensors as
Values, sizes as int or Expr and everything else as torch has it. It returns a Value, a tuple of Values (None for an
output that nothing may use) or nothing. `Refusal` from it becomes a line of UnsupportedOpError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import DType


@dataclass(frozen=True)
class Value:
    """A tensor in the Graph under construction."""

    name: str
    type: TensorType

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)


@dataclass(frozen=True)
class Number(Value):
    """A Python number that the run computes, as `.item()` gives it, as a scalar of i64, f64 or bool: with a tensor it
    is promoted like a number.
    """


@dataclass(frozen=True)
class ComplexValue:
    """A complex tensor as its two parts, of equal shape and dtype."""

    re: Value
    im: Value

    @property
    def dtype(self) -> DType:
        """Of the parts."""
        return self.re.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.re.shape


Scalar = bool | int | float | Expr
Size = int | Expr
Result = Value | ComplexValue | tuple["Value | None", ...] | list[Value] | None
Convert = Callable[..., Result]
Some = TypeVar("Some", bound=Convert)

CONVERTERS: dict[str, Convert] = {}
"""op name, as `aten.add.Tensor` -> convert function."""

REFUSED: dict[str, str] = {}
"""op name, overload left off -> why it is refused."""


def converts(*names: str, **which: Any) -> Callable[[Some], Some]:
    """Register the decorated function for ops of these names. which: keywords that tell one group of ops from another
    that the same function serves.
    """

    def register(function: Some) -> Some:
        for name in names:
            assert name not in CONVERTERS, name
            CONVERTERS[name] = partial(function, **which) if which else function
        return function

    return register


def refuses(reason: str, names: str) -> None:
    """Ops that have no place in a compiled program, with the reason in words; names: aten's, parted by spaces."""
    REFUSED.update(dict.fromkeys((f"aten.{name}" for name in names.split()), reason))


def call(convert: Convert, builder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
    """Run a convert function."""
    return convert(builder, *args, **kwargs)
