"""What a template's call is made of, shared by the files that spell the calls."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.backends.cpp.epilogue import Parameters


@dataclass(frozen=True)
class Call:
    """A template's use: headers, statements before the call, the call's expression."""

    headers: tuple[str, ...]
    setup: tuple[str, ...]
    call: str


__all__ = ["Call", "Parameters"]
