"""hardtack sign"""

from __future__ import annotations

import click

from hardtack.cli.common import BUNDLE, check_target_path, console, json_option, print_json, signing, weights_option


@click.command(name="sign")
@click.argument("bundle", type=BUNDLE)
@click.option("--key", required=True, metavar="FILE", help="The private key, as `hardtack keygen` writes it.")
@click.option("-o", "--output", metavar="FILE", help="Write the signed bundle there; default: in place.")
@weights_option
@json_option
def command(bundle: str, key: str, output: str | None, weights: str | None, as_json: bool) -> None:
    """Sign a bundle: its manifest, and with that everything in it and its external weights.

    The bundle is verified first. Only the manifest changes; an older signature is replaced.

    \b
    hardtack keygen release.pem
    hardtack sign model.pkg --key release.pem
    hardtack verify model.pkg --key release.pem.pub
    """
    out = output or bundle
    check_target_path(out)
    found = signing()
    public = found.sign_bundle(bundle, found.read_private_key(key), out, weights)
    if as_json:
        print_json({"bundle": out, "key": public.hex()})
        return
    console().print(f"{out} is signed by {public.hex()}")
