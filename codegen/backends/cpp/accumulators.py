"""Reductions as C++: the partial results of a nest, how a vector of points joins them, how lanes become one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.backends.cpp.cpp_body import Body
from hardtack.codegen.backends.cpp.cpp_spelling import COMBINE, HORIZONTAL, identity, literal, register_type
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Reduce
from hardtack.codegen.ir.types import DType


class Accumulators:
    """The C++ of the partial results of a nest's reductions: fields of one struct."""

    def __init__(self, reduces: Sequence[Reduce], types: Mapping[str, DType]) -> None:
        self.reduces = reduces
        self.types = types

    def value_type(self, r: Reduce) -> str:
        if r.kind.startswith("arg"):
            a = r.args[0]
            t = a.dtype if isinstance(a, Lit) else self.types[a]
            return f"ht::Best<{register_type(t)}>"
        return register_type(r.dtype)

    def start(self, r: Reduce) -> str:
        if r.kind.startswith("arg"):
            a = r.args[0]
            t = a.dtype if isinstance(a, Lit) else self.types[a]
            return f"{{{literal(Lit(0, t))}, ht::bcast<int64_t>(-1)}}"
        return identity(r.kind, r.dtype)

    def declare(self) -> list[str]:
        fields = [f"{self.value_type(r)} a{k};" for k, r in enumerate(self.reduces)]
        return ["struct Acc {", *("  " + f for f in fields), "};"]

    def starts(self) -> str:
        return "{" + ", ".join(self.start(r) for r in self.reduces) + "}"

    def update(self, body: Body, masked: bool) -> list[str]:
        """One vector of points into `acc`.

        masked: lanes outside the loop are left out. Where every lane has a result of its own they do no harm.
        """
        lines: list[str] = []
        for k, r in enumerate(self.reduces):
            value = body.arg(r.args[0])
            if r.kind.startswith("arg"):
                index = body.arg(r.args[1])
                lanes = f"ht::active({body.cnt})" if masked else "ht::bcast<int32_t>(-1)"
                lines.append(f"ht::take_best(acc.a{k}, {value}, {index}, {lanes}, {_largest(r)});")
                continue
            if masked:
                neutral = identity(r.kind, r.dtype)
                inside = f"ht::select(ht::active({body.cnt}), {value}, {neutral})"
                value = f"(ht::all_lanes({body.cnt}) ? {value} : {inside})"
            lines.append(f"acc.a{k} = {COMBINE[r.kind].format(f'acc.a{k}', value)};")
        return lines

    def join(self) -> str:
        """The lambda by which one partial result joins another."""
        lines: list[str] = []
        for k, r in enumerate(self.reduces):
            if r.kind.startswith("arg"):
                lines.append(f"ht::merge_best(a.a{k}, b.a{k}, {_largest(r)});")
            else:
                lines.append(f"a.a{k} = {COMBINE[r.kind].format(f'a.a{k}', f'b.a{k}')};")
        return f"[](Acc& a, const Acc& b) HT_LAMBDA {{ {' '.join(lines)} }}"

    def rounds(self) -> bool:
        """True if it matters in which order values join: a sum of floats."""
        return any(r.kind == "sum" and r.dtype.is_float for r in self.reduces)

    def merge(self) -> list[str]:
        """Four accumulators into the first, always in the same order."""
        lines: list[str] = []
        for k, r in enumerate(self.reduces):
            if r.kind.startswith("arg"):
                lines += [f"ht::merge_best(acc[0].a{k}, acc[{j}].a{k}, {_largest(r)});" for j in (1, 2, 3)]
                continue
            low = COMBINE[r.kind].format(f"acc[0].a{k}", f"acc[1].a{k}")
            high = COMBINE[r.kind].format(f"acc[2].a{k}", f"acc[3].a{k}")
            lines.append(f"acc[0].a{k} = {COMBINE[r.kind].format(low, high)};")
        return lines

    def across(self, r: Reduce, k: int) -> str:
        """All lanes of the first accumulator into one value."""
        a = f"acc[0].a{k}"
        if r.kind.startswith("arg"):
            return f"ht::bcast<int64_t>(ht::best_of_lanes({a}, {_largest(r)}))"
        if r.dtype is DType.BOOL:
            test = "ht::hany" if r.kind in ("any", "max") else "ht::hall"
            return f"ht::bcast<int32_t>({test}({a}) ? -1 : 0)"
        element = register_type(r.dtype).removeprefix("ht::vec<").removesuffix(">")
        return f"ht::bcast<{element}>({HORIZONTAL[r.kind]}({a}))"


def _largest(r: Reduce) -> str:
    """Whether an argmax or argmin looks for the largest value, as a C++ literal."""
    return "true" if r.kind == "argmax" else "false"
