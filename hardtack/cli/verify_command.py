"""hardtack verify"""

from __future__ import annotations

import dataclasses
import sys

import click

from hardtack import _native
from hardtack.cli.common import (
    BUNDLE,
    console,
    error_line,
    json_option,
    print_json,
    signing,
    size_text,
    weights_option,
)
from hardtack.codegen.package.bundle import VerifyReport, open_bundle, verify_bundle
from hardtack.codegen.package.errors import LoadError


@click.command(name="verify")
@click.argument("bundle", type=BUNDLE)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="A public key to trust: 64 hexadecimal digits, or a file of these or of a PEM key; may be repeated.",
)
@weights_option
@json_option
def command(bundle: str, keys: tuple[str, ...], weights: str | None, as_json: bool) -> None:
    """Prove a bundle sound without running anything in it.

    Both readers check it, Python's and the runtime's: the container's form, the manifest, every checksum and hash, the
    weights, the form of the libraries, and every plan for every target. With --key, also that the bundle is signed by
    one of the keys. Exit status 1 when it is refused.
    """
    trusted = [signing().read_public_key(key) for key in keys]
    problem = ""
    try:
        report = verify_bundle(bundle, weights)
        if trusted:
            with open_bundle(bundle, weights) as opened:
                signing().check_signature(opened, trusted)
        _native.verify_file(bundle, trusted, weights or "")
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
        print_json({"ok": True, **dataclasses.asdict(report), "trusted": bool(trusted)})
        return
    console().print(
        f"{bundle} is sound: {report.num_members} members, {size_text(report.nbytes)}; "
        f"{report.num_plans} plans of {report.num_instructions} instructions proved; "
        f"{report.num_libraries} libraries; {report.num_constants} constants, "
        f"weights {size_text(report.weights_nbytes)}; {_signed(report, bool(trusted))}"
    )


def _signed(report: VerifyReport, trusted: bool) -> str:
    if report.signed_by is None:
        return "not signed"
    return f"signed by {report.signed_by}, {'a trusted key' if trusted else 'not checked: no --key given'}"
