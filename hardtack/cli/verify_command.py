"""hardtack verify"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace

import click

from hardtack import _native
from hardtack.cli.common import (
    BUNDLE,
    WrongUse,
    console,
    error_line,
    json_option,
    print_json,
    signing,
    size_text,
    weights_option,
)
from hardtack.codegen.package.bundle import VerifyReport, open_bundle, verify_opened
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.trust import Trust, read_trusted_keys


@click.command(name="verify")
@click.argument("bundle", type=BUNDLE)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="A public key to trust: 64 hexadecimal digits, or a file of these or of a PEM key; may be repeated.",
)
@click.option(
    "--trusted-keys",
    metavar="FILE",
    help="A file of keys to trust, one a line, and of models with the lowest version that is trusted.",
)
@click.option("--signed-model", metavar="NAME", help="The model that the signature must name.")
@weights_option
@json_option
def command(
    bundle: str,
    keys: tuple[str, ...],
    trusted_keys: str | None,
    signed_model: str | None,
    weights: str | None,
    as_json: bool,
) -> None:
    """Prove a bundle sound without running anything in it.

    Both readers check it, Python's and the runtime's: the container's form, the manifest, every checksum and hash, the
    weights, the form of the libraries, and every plan for every target. With --key or --trusted-keys, also that the
    bundle is signed by one of the keys. Exit status 1 when it is refused.
    """
    listed = [signing().read_public_key(key) for key in keys]
    trust = Trust([]) if trusted_keys is None else read_trusted_keys(trusted_keys)
    trust = replace(trust, keys=[*listed, *trust.keys], model=signed_model)
    if signed_model is not None and not trust.keys:
        raise WrongUse("--signed-model is checked against a trusted signature: give --key or --trusted-keys, too")
    problem = ""
    try:
        with open_bundle(bundle, weights) as opened:
            report = verify_opened(opened)
            if trust.keys:
                signing().check_signature(opened, trust)
        _native.verify_file(bundle, listed, weights or "", trusted_keys or "", signed_model or "")
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
        print_json({"ok": True, **asdict(report), "trusted": bool(trust.keys)})
        return
    console().print(
        f"{bundle} is sound: {report.num_members} members, {size_text(report.nbytes)}; "
        f"{report.num_plans} plans of {report.num_instructions} instructions proved; "
        f"{report.num_libraries} libraries; {report.num_constants} constants, "
        f"weights {size_text(report.weights_nbytes)}; {_signed(report, bool(trust.keys))}"
    )


def _signed(report: VerifyReport, trusted: bool) -> str:
    if report.signed_by is None:
        return "not signed"
    named = f" as version {report.signed_version} of {report.signed_model}" if report.signed_model is not None else ""
    return f"signed by {report.signed_by}{named}, {'a trusted key' if trusted else 'not checked: no --key given'}"
