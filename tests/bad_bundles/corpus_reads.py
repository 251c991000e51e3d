"""Bad bundles whose plan reads a size during the run, each made from a good one by one change."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import sample

from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.plan import Copy, Fill, If, PlanSym, Read, Value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import canonical
from hardtack.codegen.package.container import Member, write_archive
from hardtack.codegen.package.writer import parts_of
from hardtack.codegen.plan.memory import aligned

Document = dict[str, Any]
TARGET = "x86-64-v3"
PLAN = f"plans/forward.cpu:{TARGET}.json"
U = sym("u", 0, 64)
START = 64 * 16 + 64


@cache
def good_files() -> dict[str, bytes]:
    """The members of the good bundle: forward reads its state as a size, fills a value of it and copies that."""
    content = sample.content((TARGET,))
    key = ("forward", f"cpu:{TARGET}")
    plan = content.plans[key]
    sized = aligned(U * 4)
    values = (
        Value("flag", DType.BOOL, (), (), ("arena", const(0))),
        Value("w", DType.F32, (U,), (const(1),), ("arena", const(START))),
        Value("v", DType.F32, (U,), (const(1),), ("arena", sized + START)),
    )
    copied = (Copy("w", "v"),)
    body = (
        Fill("flag", 1),
        Read(U, "calls", sized * 2 + START, sample.ORIGIN),
        Fill("w", 0),
        If("flag", copied, copied),
    )
    plan = replace(
        plan,
        syms=(*plan.syms, PlanSym(U, None, None)),
        values=(*plan.values, *values),
        body=(*plan.body, *body),
    )
    entries = tuple(replace(e, syms=(*e.syms, U)) if e.name == "forward" else e for e in content.entries)
    content = replace(content, entries=entries, plans={**content.plans, key: plan})
    return {m.name: b"".join(bytes(c) for c in m.chunks) for m in parts_of(content).members}


def with_plan(edit: Callable[[Document], Any], manifest: Callable[[Document], Any] = lambda m: None) -> bytes:
    """The good bundle with its plan edited, and its manifest."""
    files = dict(good_files())
    plan = json.loads(files[PLAN])
    edit(plan)
    files[PLAN] = canonical.dumps(plan)
    document = json.loads(files["manifest.json"])
    for m in document["members"]:
        m.update(nbytes=len(files[m["name"]]), sha256=hashlib.sha256(files[m["name"]]).hexdigest())
    manifest(document)
    files["manifest.json"] = canonical.dumps(document)
    out = io.BytesIO()
    write_archive(out, [Member(name, [data]) for name, data in files.items()])
    return out.getvalue()


def _forward(manifest: Document) -> Document:
    entry: Document = next(e for e in manifest["entries"] if e["name"] == "forward")
    return entry


def _expr(plan: Document, *e: object) -> int:
    plan["exprs"].append(list(e))
    return len(plan["exprs"]) - 1


def _symbol(plan: Document, sym: int) -> int:
    found: int = plan["exprs"].index(["sym", sym])
    return found


def _number(plan: Document, name: str) -> int:
    return next(n for n, v in enumerate(plan["values"]) if v["name"] == name)


def _read(plan: Document, **to: object) -> None:
    plan["body"][4].update(to)


def _twice(plan: Document) -> None:
    plan["body"].insert(5, plan["body"][4])


def _at_the_end(plan: Document) -> None:
    plan["body"].append(plan["body"].pop(4))


def _first(plan: Document) -> None:
    """It reads what a launch writes later."""
    _read(plan, src=_number(plan, "before"))
    plan["body"].insert(0, plan["body"].pop(4))


def _in_a_branch(plan: Document) -> None:
    read = plan["body"][4]
    plan["body"][4:] = [{**plan["body"][-1], "then": [read], "else": []}]


def _nowhere(document: Document) -> None:
    document["syms"].append({**document["syms"][1], "name": "t"})


def _swapped(document: Document) -> None:
    document["syms"].reverse()


def _named(plan: Document, name: str, **to: object) -> None:
    plan["values"][_number(plan, name)].update(to)


def _launch_of(plan: Document) -> None:
    """A launch in front of the read, and the call that it is one of, have the symbol for a number."""
    e, kernel = _symbol(plan, 1), plan["body"][0]["kernel"]
    plan["body"][0]["ints"][0] = plan["body"][1]["ints"][0] = plan["kernels"][kernel]["calls"][0]["ints"][0] = e


def _access_of(plan: Document) -> None:
    """What a call in front of the read accesses depends on the symbol."""
    e, kernel = _symbol(plan, 1), plan["body"][0]["kernel"]
    plan["kernels"][kernel]["calls"][0]["accesses"][0][0][2][0] = e


def _overflow(plan: Document) -> None:
    plan["syms"][1]["lo"] = 16
    _expr(plan, "mul", [_symbol(plan, 1), _expr(plan, "const", 2**62)])


def _bounded(document: Document) -> None:
    _forward(document)["syms"][1]["lo"] = 16


def _manifest_edits() -> Iterator[tuple[str, bytes]]:
    yield "in a manifest of format 3", with_plan(lambda p: None, lambda m: m.update(format=3))
    yield "in a manifest without users' kernels", with_plan(lambda p: None, lambda m: m.pop("user_kernels"))
    yield "with other bounds in the manifest", with_plan(lambda p: None, _bounded)
    yield "a symbol that nothing reads", with_plan(_nowhere, lambda m: _nowhere(_forward(m)))
    yield "a symbol in front of an input's", with_plan(_swapped, lambda m: _swapped(_forward(m)))
    yield "a bound that overflows", with_plan(_overflow, _bounded)


PLAN_EDITS: dict[str, Callable[[Document], Any]] = {
    "twice": _twice,
    "behind what is made of it": _at_the_end,
    "before its value is written": _first,
    "in a branch": _in_a_branch,
    "of no symbol": lambda p: _read(p, sym=9),
    "of an input's symbol": lambda p: _read(p, sym=0),
    "of no value": lambda p: _read(p, src=99),
    "of floats": lambda p: _read(p, src=_number(p, "scale")),
    "of a bool": lambda p: _read(p, src=_number(p, "flag")),
    "of many numbers": lambda p: _named(p, "calls", shape=[_symbol(p, 0)], strides=[_expr(p, "const", 1)]),
    "with no arena": lambda p: p["body"][4].pop("arena"),
    "with an arena of no expression": lambda p: _read(p, arena=99),
    "with an arena below 0": lambda p: _read(p, arena=_expr(p, "const", -64)),
    "with a key too many": lambda p: _read(p, dst=0),
    "an arena that is made of it": lambda p: p.update(arena=p["body"][4]["arena"]),
    "a symbol of a dimension of no input": lambda p: p["syms"][1].update(dim=0),
    "a symbol whose range is empty": lambda p: p["syms"][1].update(lo=65),
    "a launch in front that has it": _launch_of,
    "an access in front that has it": _access_of,
    "a place in front that has it": lambda p: _named(p, "t", storage=["arena", p["body"][4]["arena"]]),
    "a value in front that has it": lambda p: _named(p, "t", shape=[_symbol(p, 1), *p["values"][3]["shape"][1:]]),
}


def cases() -> Iterator[tuple[str, bytes]]:
    """Every bad bundle by name."""
    for name, edit in PLAN_EDITS.items():
        yield f"read: {name}", with_plan(edit)
    for name, data in _manifest_edits():
        yield f"read: {name}", data
