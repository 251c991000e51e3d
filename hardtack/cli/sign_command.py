"""hardtack sign"""

from __future__ import annotations

import click

from hardtack.cli.common import (
    BUNDLE,
    WrongUse,
    check_target_path,
    console,
    json_option,
    print_json,
    signing,
    weights_option,
)


@click.command(name="sign")
@click.argument("bundle", type=BUNDLE)
@click.option("--key", required=True, metavar="FILE", help="The private key, as `hardtack keygen` writes it.")
@click.option("-o", "--output", metavar="FILE", help="Write the signed bundle there; default: in place.")
@click.option("--model", metavar="NAME", help="The model that it is signed as; with --model-version.")
@click.option(
    "--model-version", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Its version; a later one is higher."
)
@weights_option
@json_option
def command(
    bundle: str,
    key: str,
    output: str | None,
    model: str | None,
    model_version: int | None,
    weights: str | None,
    as_json: bool,
) -> None:
    """Sign a bundle: its manifest, and with that everything in it and its external weights.

    The bundle is verified first. Only the manifest changes; an older signature is replaced. With --model and
    --model-version the signature says what it signs: those who trust the key may ask for a model, and for a lowest
    version of it, so that nobody can give them an old bundle for a new one.

    \b
    hardtack keygen release.pem
    hardtack sign model.pkg --key release.pem --model minilm --model-version 7
    hardtack verify model.pkg --key release.pem.pub
    """
    out = output or bundle
    check_target_path(out)
    found = signing()
    release = None
    if (model is None) != (model_version is None):
        raise WrongUse("--model and --model-version go together: give both, or neither")
    if model is not None:
        try:
            release = found.Release(model, model_version)
        except ValueError as error:
            raise WrongUse(f"--model: {error}") from None
    public = found.sign_bundle(bundle, found.read_private_key(key), out, weights, release)
    if as_json:
        print_json({"bundle": out, "key": public.hex(), "model": model, "version": model_version})
        return
    named = "" if model is None else f" as version {model_version} of {model}"
    console().print(f"{out} is signed by {public.hex()}{named}")
