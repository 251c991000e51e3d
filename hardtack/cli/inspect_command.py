"""hardtack inspect"""

from __future__ import annotations

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from hardtack.cli.common import BUNDLE, WrongUse, console, json_option, print_json, size_text, table
from hardtack.codegen.package.bundle import Bundle, open_bundle
from hardtack.codegen.package.manifest import ConstantSpec, EntrySpec, Manifest, Signature, TensorSpec, document
from hardtack.codegen.package.plan_read import RawGpu
from hardtack.codegen.package.plan_text import listing
from hardtack.codegen.package.weights import numel_of


@click.command(name="inspect")
@click.argument("bundle", type=BUNDLE)
@click.option("--plan", "plan_of", metavar="ENTRY", help="List the instructions of an entry point.")
@click.option("--target", help="With --plan: for this target; default: the first.")
@click.option("--members", is_flag=True, help="List the members of the file with their sizes and hashes.")
@click.option("--constants", is_flag=True, help="List the weights and other constants.")
@click.option("--kernels", is_flag=True, help="List the GPU kernels of each target and how they are launched.")
@json_option
def command(
    bundle: str,
    plan_of: str | None,
    target: str | None,
    members: bool,
    constants: bool,
    kernels: bool,
    as_json: bool,
) -> None:
    """Show what a bundle holds, what its entry points take, and what made it. Nothing in it is run.

    \b
    hardtack inspect model.pkg
    hardtack inspect model.pkg --plan forward
    """
    with open_bundle(bundle) as opened:
        if plan_of is not None:
            _print_plan(opened, plan_of, target)
        elif as_json:
            print_json({"nbytes": len(opened.data), **document(opened.manifest)})
        else:
            out = console()
            _print_summary(opened, out)
            if members:
                _print_members(opened, out)
            if constants:
                _print_constants(opened, out)
            if kernels:
                _print_kernels(opened, out)


def _print_plan(bundle: Bundle, entry: str, target: str | None) -> None:
    names = [t.name for t in bundle.manifest.targets]
    if target is not None and target not in names:
        raise WrongUse(f"the bundle has no target {target!r}; it has: {', '.join(names)}")
    known = [e.name for e in bundle.manifest.entries]
    if entry not in known:
        raise WrongUse(f"the bundle has no entry point {entry!r}; it has: {', '.join(known)}")
    click.echo(listing(bundle.plan(entry, target or names[0])), nl=False)


def _print_summary(bundle: Bundle, out: Console) -> None:
    m = bundle.manifest
    outside = f" in {m.external.name}, which goes with it" if m.external is not None else ""
    out.print(f"{bundle.path}: {size_text(len(bundle.data))}, weights {size_text(bundle.weights_nbytes)}{outside}")
    out.print("made by " + ", ".join(f"{name} {version}" for name, version in sorted(m.producer.items())))
    if "compute" in m.numerics:
        kept = f", but for {m.numerics['keep_f32']}" if "keep_f32" in m.numerics else ""
        out.print(f"products take operands of {m.numerics['compute']}{kept}")
    for option, what in (("weights", "linear layers"), ("embeddings", "embeddings")):
        if option in m.numerics:
            kept = f", but for {m.numerics['keep_weights']}" if "keep_weights" in m.numerics else ""
            out.print(f"{what} have weights of {m.numerics[option]}{kept}")
    if "activations" in m.numerics:
        kept = f", but for {m.numerics['keep_activations']}" if "keep_activations" in m.numerics else ""
        out.print(f"linear layers round their inputs to {m.numerics['activations']}{kept}")
    if "cache" in m.numerics:
        kept = f", but for {m.numerics['keep_cache']}" if "keep_cache" in m.numerics else ""
        out.print(f"caches are stored as {m.numerics['cache']}{kept}")
    for k in m.user_kernels:
        where = "the program that loads it registers" if k.host else "in the bundle"
        out.print(f"{k.op} is computed by a user's kernel: {k.function}, {where}")
    out.print(_signed(m.signature))
    for e in m.entries:
        _print_entry(e, out)
    targets = table("targets, best first", "name", ">code", "requires")
    for t in m.targets:
        nbytes = bundle.entries[t.library].nbytes if t.library is not None else 0
        nbytes += sum(bundle.entries[m].nbytes for m in {g.member for g in _gpu_kernels(bundle, t.name).values()})
        targets.add_row(t.name, size_text(nbytes), " ".join(t.requires))
    out.print()
    out.print(targets)
    if m.states:
        out.print()
        out.print(_states(m))


def _states(m: Manifest) -> Table:
    """The states; of caches that are stored as codes what these stand for, too."""
    coded = "cache" in m.numerics
    made = table(
        "states, kept by a session between runs", "name", "type", "starts as", *(["stands for"] if coded else [])
    )
    for s in m.states:
        scales = f"{s.name}.scales"
        number = f"{s.name} * {scales}" if coded and scales in m.states_by_name else ""
        made.add_row(s.name, f"{s.type_name}[{_dims(s.shape)}]", s.init or "zeros", *([number] if coded else []))
    return made


def _signed(signature: Signature | None) -> str:
    if signature is None:
        return "not signed"
    named = "" if signature.model is None else f" as version {signature.version} of {signature.model}"
    return f"signed by {signature.public_key}{named}"


def _print_entry(e: EntrySpec, out: Console) -> None:
    made = table(f"entry point {e.name}", "", "name", "type", "strides")
    for what, tensors in (("input", e.inputs), ("output", e.outputs)):
        for t in tensors:
            made.add_row(what, t.name, _type(t), f"({_dims(t.strides)}){', written' if t.written else ''}")
    out.print()
    out.print(made)
    if e.syms:
        out.print("where " + ", ".join(map(str, e.syms)))


def _dims(dims: Sequence[object]) -> str:
    return ", ".join(map(str, dims))


def _type(t: TensorSpec) -> str:
    return f"{t.type_name}[{_dims(t.shape)}]"


def _origin(c: ConstantSpec) -> str:
    """The tensors of the module that a constant is, or is made of; "" for one that cannot be replaced."""
    return " | ".join(r.source + (f", packed as {r.packing.kind}" if r.packing is not None else "") for r in c.recipe)


def _gpu_kernels(bundle: Bundle, target: str) -> dict[str, RawGpu]:
    """The GPU kernels of a target's plans by name."""
    plans = [bundle.plan(e.name, target) for e in bundle.manifest.entries]
    return {k.name: k.gpu for plan in plans for k in plan.kernels if k.gpu is not None}


def _print_kernels(bundle: Bundle, out: Console) -> None:
    for t in bundle.manifest.targets:
        if t.device == "cpu":
            continue
        made = table(f"kernels for {t.name}", "name", ">code", ">threads", ">shared", ">scratch", ">parameters")
        for name, g in sorted(_gpu_kernels(bundle, t.name).items()):
            sizes = (f"{n:,}" for n in (bundle.entries[g.member].nbytes, g.threads, g.shared_nbytes, g.scratch_nbytes))
            made.add_row(name, *sizes, str(len(g.args)))
        out.print()
        out.print(made)


def _print_members(bundle: Bundle, out: Console) -> None:
    made = table("members", "name", ">bytes", ">offset", "sha256")
    hashes = {x.name: x.sha256 for x in bundle.manifest.members}
    for e in bundle.entries.values():
        made.add_row(e.name, f"{e.nbytes:,}", f"{e.offset:,}", hashes.get(e.name, ""))
    out.print()
    out.print(made)


def _print_constants(bundle: Bundle, out: Console) -> None:
    made = table("constants", "name", "type", ">bytes", "stored as", "made of")
    for c in bundle.manifest.constants:
        nbytes = numel_of(c.shape) * c.dtype.nbytes
        stored = "" if c.tensor == c.name else c.tensor
        made.add_row(c.name, f"{c.dtype}[{_dims(c.shape)}]", f"{nbytes:,}", stored, _origin(c))
    out.print()
    out.print(made)
