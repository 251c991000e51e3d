"""hardtack keygen"""

from __future__ import annotations

import click

from hardtack.cli.common import console, json_option, print_json, signing


@click.command(name="keygen")
@click.argument("key", type=click.Path(dir_okay=False))
@json_option
def command(key: str, as_json: bool) -> None:
    """Make a new ed25519 key pair for signing bundles.

    The private key is written to KEY (PEM, readable by you only), the public key in hexadecimal digits to KEY.pub: that
    is what `hardtack verify --key`, `hardtack-rt verify --key` and trusted_keys of the runtime take.
    """
    path, public = signing().write_key(key)
    if as_json:
        print_json({"private": key, "public": str(path), "key": public.hex()})
        return
    console().print(f"private key {key}: keep it secret\npublic key {path}: {public.hex()}")
