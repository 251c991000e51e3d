"""What a template's call is made of, shared by the files that spell the calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from hardtack.codegen.backends.cpp.epilogue import Parameters
from hardtack.codegen.ir.nests import Template, TemplateNest

T = TypeVar("T", bound=Template)


@dataclass(frozen=True)
class Call:
    """A template's use: headers, statements before the call, the call's expression."""

    headers: tuple[str, ...]
    setup: tuple[str, ...]
    call: str


def parameters(anchor: TemplateNest, what: type[T]) -> T:
    """The template that a nest is of, by the class that has the call."""
    assert isinstance(anchor.template, what), f"{anchor.template} is called as {what.__name__}"
    return anchor.template


__all__ = ["Call", "Parameters", "parameters"]
