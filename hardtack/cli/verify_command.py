"""hardtack verify"""

from __future__ import annotations

import dataclasses
import sys

import click

from hardtack import _native
from hardtack.cli.common import BUNDLE, console, error_line, json_option, print_json, size_text
from hardtack.codegen.package.bundle import verify_bundle
from hardtack.codegen.package.errors import LoadError


@click.command(name="verify")
@click.argument("bundle", type=BUNDLE)
@json_option
def command(bundle: str, as_json: bool) -> None:
    """Prove a bundle sound without running anything in it.

    Both readers check it, Python's and the runtime's: the container's form, the manifest, every checksum and hash, the
    weights, the form of the libraries, and every plan for every target. Exit status 1 when it is refused.
    """
    problem = ""
    try:
        report = verify_bundle(bundle)
        _native.verify_file(bundle)
    except LoadError as error:
        problem = str(error)
    except _native.NativeError as error:
        problem = f"{bundle}: {error.args[1]}"
    if problem:
        if as_json:
            print_json({"ok": False, "problem": problem})
        else:
            error_line(problem)
        sys.exit(1)
    if as_json:
        print_json({"ok": True, **dataclasses.asdict(report)})
        return
    signed = f"signed by {report.signed_by} (trust is checked at load)" if report.signed_by else "not signed"
    console().print(
        f"{bundle} is sound: {report.num_members} members, {size_text(report.nbytes)}; "
        f"{report.num_plans} plans of {report.num_instructions} instructions proved; "
        f"{report.num_libraries} libraries; {report.num_constants} constants, "
        f"weights {size_text(report.weights_nbytes)}; {signed}"
    )
