"""What a template's call is made of. Each is registered for its template where it is spelled, in a file calls_*.py.

    @calls(PackedGemm)
    def call_gemm_packed(anchor: TemplateNest, pointers: Sequence[str], p: Parameters) -> Call: ...

RESULT and EXTRA<k> stand in a call for the pointers of the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hardtack.codegen.backends.cpp.cpp_body import storage_type
from hardtack.codegen.backends.cpp.epilogue import Parameters
from hardtack.codegen.discovery import load_modules
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.tune.cut_plan import CutPlan

T = TypeVar("T", bound=Template)


@dataclass(frozen=True)
class Call:
    """A template's use: headers, statements before the call, the call's expression; what is declared in front."""

    headers: tuple[str, ...]
    setup: tuple[str, ...]
    call: str
    declarations: tuple[str, ...] = ()


Speller = Callable[[TemplateNest, Sequence[str], Parameters], Call]
"""(anchor, the pointers of its operands, the kernel's parameters) -> its call."""
_SPELLERS: dict[type[Template], Speller] = {}


def calls(template: type[Template]) -> Callable[[Speller], Speller]:
    """Registers what spells the call of a template."""

    def register(speller: Speller) -> Speller:
        assert template not in _SPELLERS, f"{template.__name__} has a call already"
        _SPELLERS[template] = speller
        return speller

    return register


def spellers() -> Mapping[type[Template], Speller]:
    """Template -> what spells its call."""
    load_modules("hardtack.codegen.backends.cpp", "calls_")
    return _SPELLERS


def parameters(anchor: TemplateNest, what: type[T]) -> T:
    """The template that a nest is of, by the class that has the call."""
    assert isinstance(anchor.template, what), f"{anchor.template} is called as {what.__name__}"
    return anchor.template


_RIGHTS = {"by_size": "kBySize", "packed": "kPacked", "in_place": "kInPlace"}


def blocks(plan: CutPlan | None, left: Operand) -> str:
    """The template argument of a product that a tuning table has a plan for; "" for the machine's own blocks."""
    if plan is None:
        return ""
    return f"<ht::TunedBlocks<{storage_type(left.dtype)}, {plan.depth}, ht::Right::{_RIGHTS[plan.right]}>>"


def quad_blocks(seven_bits: bool) -> str:
    """The same of a product of int8: no table has any; that its rows are known to be numbers from 0 to 127 is said."""
    return "<ht::MachineBlocks<int8_t>, ht::code7>" if seven_bits else ""


__all__ = ["Call", "Parameters", "blocks", "calls", "parameters", "quad_blocks", "spellers"]
