"""A plan as people read it, from the form in which it was stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hardtack.codegen.package.plan_read import RawInstr, RawPlan
from hardtack.codegen.package.plan_verify import text


def listing(plan: RawPlan) -> str:
    """One line a value and an instruction, each instruction with the user's source line."""
    lines = [f"plan {plan.entry} for {plan.target}, arena {text(plan, plan.arena)} bytes"]
    for s in plan.syms:
        if s.input is None:
            lines.append(f"  {s.lo} <= {s.name}{f' <= {s.hi}' if s.hi is not None else ''}: read during the run")
            continue
        place = f"dimension {s.dim}" if s.dim is not None else "the value"
        hi = f" <= {s.hi}" if s.hi is not None else ""
        lines.append(f"  {s.lo} <= {s.name}{hi}: {place} of input {plan.values[plan.inputs[s.input]].name}")
    signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
    for g in plan.guards:
        lines.append(f"  guard {text(plan, g.a)} {signs[g.relation]} {text(plan, g.b)}: {g.text}")
    for v in plan.values:
        shape, strides = (", ".join(text(plan, e) for e in es) for es in (v.shape, v.strides))
        at = text(plan, v.at) if v.storage == "arena" and isinstance(v.at, int) else str(v.at)
        lines.append(f"  {v.name}: {v.dtype}[{shape}] strides ({strides}) in {v.storage} {at}")
    lines += _body(plan, plan.body, "  ")
    return "\n".join(lines) + "\n"


def _body(plan: RawPlan, body: Iterable[RawInstr], indent: str) -> Iterator[str]:
    names = [v.name for v in plan.values]
    deeper = indent + "  "
    for i in body:
        if i.op == "launch":
            ints = ", ".join(text(plan, e) for e in i.ints)
            buffers = ", ".join(names[b] for b in i.buffers)
            grid = f" over {' x '.join(text(plan, e) for e in i.grid)} programs" if i.grid else ""
            yield f"{indent}launch {plan.kernels[i.kernel].name}({buffers}; {ints}){grid}{_origin(plan, i)}"
        elif i.op == "copy":
            yield f"{indent}copy {names[i.dst]} <- {names[i.src]}{_origin(plan, i)}"
        elif i.op == "fill":
            yield f"{indent}fill {names[i.dst]} with {i.bits:#x}{_origin(plan, i)}"
        elif i.op == "read":
            arena = f"arena {text(plan, i.arena)} bytes"
            yield f"{indent}read {plan.syms[i.sym].name} from {names[i.src]}, {arena}{_origin(plan, i)}"
        elif i.op == "if":
            yield f"{indent}if {names[i.cond]}:"
            yield from _body(plan, i.body, deeper)
            yield f"{indent}else:"
            yield from _body(plan, i.orelse, deeper)
        else:
            yield f"{indent}while:"
            yield from _body(plan, i.cond_body, deeper)
            yield f"{deeper}test {names[i.cond]}"
            yield from _body(plan, i.body, deeper)


def _origin(plan: RawPlan, i: RawInstr) -> str:
    o = plan.origins[i.origin]
    place = f"{o.file}:{o.line}" if o.file else ""
    parts = " ".join(part for part in (o.op, place, f"in {o.module}" if o.module else "") if part)
    return f"   # {parts}" if parts else ""
