"""hardtack weights"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
import numpy as np

from hardtack.cli.common import (
    BUNDLE,
    WrongUse,
    check_target_path,
    console,
    json_option,
    print_json,
    size_text,
    table,
    weights_option,
)
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.replace import replace_weights
from hardtack.codegen.package.weights import numel_of, read_foreign


@click.command(name="weights")
@click.argument("bundle", type=BUNDLE)
@click.option("--list", "listed", is_flag=True, help="List what can be replaced; also without any option.")
@click.option("--set", "new", type=BUNDLE, metavar="FILE.safetensors", help="New values, by the module's names.")
@click.option("-o", "--output", metavar="FILE", help="With --set: where to write the new bundle.")
@weights_option
@json_option
def command(bundle: str, listed: bool, new: str | None, output: str | None, weights: str | None, as_json: bool) -> None:
    """List the weights of a bundle that can be replaced, or write it with new values for some of them.

    Nothing is compiled: the new bundle has the same code. A tensor that was folded into others when the model was
    exported (a batch norm into its convolution) cannot be replaced, and is not listed.

    \b
    hardtack weights model.pkg
    hardtack weights model.pkg --set finetuned.safetensors -o finetuned.pkg
    """
    if new is None:
        if output is not None:
            raise WrongUse("-o goes with --set: name the new values")
        _list(bundle, as_json)
        return
    if output is None or listed:
        raise WrongUse("name the bundle to write with -o" if output is None else "--list and --set do not go together")
    check_target_path(output)
    mapped = np.memmap(new, np.uint8, "r").data if Path(new).stat().st_size else memoryview(b"")
    result = replace_weights(bundle, read_foreign(mapped, new), output, weights)
    if as_json:
        print_json(dataclasses.asdict(result))
        return
    out = console()
    out.print(f"{output}: {len(result.names)} tensors replaced, weights {size_text(result.written.weights_nbytes)}")
    if result.dropped_signature:
        out.print("the signature of the old bundle is not its; sign it with: hardtack sign")


def _list(bundle: str, as_json: bool) -> None:
    with open_bundle(bundle) as opened:
        parameters = opened.manifest.parameters
    if as_json:
        print_json(
            [{"name": p.name, "dtype": p.dtype.value, "shape": p.shape, "aliases": p.aliases} for p in parameters]
        )
        return
    made = table("weights that can be replaced", "name", "type", ">bytes", "also named")
    for p in parameters:
        nbytes = numel_of(p.shape) * p.dtype.nbytes
        made.add_row(p.name, f"{p.dtype}[{', '.join(map(str, p.shape))}]", f"{nbytes:,}", ", ".join(p.aliases))
    console().print(made)
