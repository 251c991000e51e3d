"""hardtack diff"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click

from hardtack.cli.common import BUNDLE, console, json_option, print_json, table
from hardtack.codegen.package.bundle import Bundle, open_bundle
from hardtack.codegen.package.content import UserKernelContent
from hardtack.codegen.package.manifest import document

_PARTS = ("producer", "numerics", "targets", "entries", "states")


@click.command(name="diff")
@click.argument("a", type=BUNDLE)
@click.argument("b", type=BUNDLE)
@click.option("--weights-a", type=BUNDLE, metavar="FILE", help="A's weights, when they are outside and not beside it.")
@click.option("--weights-b", type=BUNDLE, metavar="FILE", help="B's weights, likewise.")
@json_option
def command(a: str, b: str, weights_a: str | None, weights_b: str | None, as_json: bool) -> None:
    """Show how two bundles differ: contract, what made them, weights, kernels, plans. Nothing in them is run.

    Exit status 0 when they are equal in every byte, 1 when they differ.
    """
    with open_bundle(a, weights_a) as first, open_bundle(b, weights_b) as second:
        equal = first.data == second.data
        changes = [] if equal else list(_changes(first, second))
    if as_json:
        rows = [{"what": what, "name": name, "a": x, "b": y} for what, name, x, y in changes]
        print_json({"equal": equal, "changes": rows})
    elif equal:
        console().print(f"{a} and {b} are equal in every byte")
    else:
        made = table(f"{a} and {b} differ", "what", "name", "a", "b")
        for change in changes:
            made.add_row(*change)
        console().print(made)
    sys.exit(0 if equal else 1)


def _changes(a: Bundle, b: Bundle) -> Iterator[tuple[str, str, str, str]]:
    """(what, name, in a, in b) of everything that is not the same in both; "" where it is missing."""
    left, right = document(a.manifest), document(b.manifest)
    for part in _PARTS:
        yield from _by_name(part, _named(left[part]), _named(right[part]))
    yield from _by_name("user's kernel", *({k.op: _kernel(k) for k in x.manifest.user_kernels} for x in (a, b)))
    yield from _by_name("signature", _signature(a), _signature(b))
    yield from _by_name("constant", _constants(a), _constants(b))
    yield from _by_name("kernel", _kernels(a), _kernels(b))
    yield from _by_name("member", _members(a), _members(b))


def _named(part: Any) -> dict[str, str]:
    """A part of the manifest as name -> text, one line a field of an entry point, target or state."""
    if isinstance(part, Mapping):
        return {str(k): str(v) for k, v in part.items()}
    return {f"{x['name']}.{k}": _text(v) for x in part for k, v in x.items() if k != "name"}


def _kernel(k: UserKernelContent) -> str:
    return f"{k.function} of the program" if k.host else f"{k.function}, in the bundle"


def _text(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping) and "dtype" in value[0]:
        return "; ".join(f"{t['name']} {t['dtype']}[{', '.join(map(str, t['shape']))}]" for t in value)
    return str(value)


def _by_name(what: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    for name in sorted(set(a) | set(b)):
        if a.get(name) != b.get(name):
            yield what, name, a.get(name, ""), b.get(name, "")


def _constants(bundle: Bundle) -> dict[str, str]:
    """Constant -> dtype, shape and the start of the hash of its bytes."""
    out: dict[str, str] = {}
    for c in bundle.manifest.constants:
        digest = hashlib.sha256(bundle.constant(c.name).tobytes()).hexdigest()
        out[c.name] = f"{c.dtype}[{', '.join(map(str, c.shape))}] {digest[:12]}"
    return out


def _signature(bundle: Bundle) -> dict[str, str]:
    signature = bundle.manifest.signature
    return {"by": signature.public_key, "value": signature.value[:12]} if signature is not None else {}


def _kernels(bundle: Bundle) -> dict[str, str]:
    """How often the plans for the first target launch each kernel; kernels are named by content."""
    counts: dict[str, int] = {}
    target = bundle.manifest.targets[0].name
    for e in bundle.manifest.entries:
        plan = bundle.plan(e.name, target)
        for i in plan.instructions():
            if i.op == "launch":
                name = plan.kernels[i.kernel].name
                counts[name] = counts.get(name, 0) + 1
    return {name: f"{n} launches" for name, n in counts.items()}


def _members(bundle: Bundle) -> dict[str, str]:
    external = bundle.manifest.external
    rows = {x.name: f"{x.nbytes:,} bytes {x.sha256[:12]}" for x in bundle.manifest.members}
    if external is not None:
        rows[external.name] = f"{external.nbytes:,} bytes {external.sha256[:12]}, outside"
    return rows
