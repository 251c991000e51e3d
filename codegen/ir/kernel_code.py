"""KernelCode: where a kernel comes from that Hardtack did not write; the arguments of ops that have one.

    KernelCode ::= KernelCode(function, source, file)
    Argument   ::= ("none",) | ("tensor", k) | ("int", int or Expr) | ("float", float) | ("bool", bool) | ("text", str)
                 | ("dtype", DType) | ("list", (Argument, ...))

k counts the op's operands, in their order. Arguments stand in the order of the op's schema in torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Argument = tuple[Any, ...]
ARGUMENT_KINDS = ("none", "tensor", "int", "float", "bool", "text", "dtype", "list")


@dataclass(frozen=True)
class KernelCode:
    """A user's kernel (hardtack/kernel.h): C++ text with a function in it. file: what messages call the text. Without a
    text the program that loads the bundle registers the function."""

    function: str
    source: str | None = None
    file: str = ""

    @property
    def host(self) -> bool:
        """Whether the program that loads the bundle has it."""
        return self.source is None

    @property
    def key(self) -> str:
        """The hash of the text and of its name, which is in its messages."""
        return hashlib.sha256(f"{self.file}\0{self.source}".encode()).hexdigest()[:12]

    def __str__(self) -> str:
        return f"{self.function} of the program" if self.host else f"{self.function} of {self.file} {self.key}"


def tensors_in(arguments: tuple[Argument, ...]) -> Iterator[int]:
    """The operands that stand in the arguments, in order."""
    for kind, *rest in arguments:
        if kind == "tensor":
            yield rest[0]
        elif kind == "list":
            yield from tensors_in(rest[0])
