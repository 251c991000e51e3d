"""Signing a bundle, and checking a signature: ed25519 over the manifest (docs/package.md, "Signature").

The manifest holds the hash of every member and of external weights, so the signature covers all of the bundle. This is
the only module that needs the package `cryptography`; running bundles never does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from hardtack.codegen.package import canonical
from hardtack.codegen.package.bundle import Bundle, open_bundle, verify_opened
from hardtack.codegen.package.canonical import INT64_MAX
from hardtack.codegen.package.container import Member
from hardtack.codegen.package.errors import KeyFileError, LoadError, OutputError
from hardtack.codegen.package.manifest import Signature, signature_document
from hardtack.codegen.package.manifest_read import WHERE
from hardtack.codegen.package.output import PathLike, check_output, write_files
from hardtack.codegen.package.trust import Trust, check_release, is_model_name
from hardtack.codegen.package.writer import Parts, write_parts


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public key's 32 bytes."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def write_key(path: PathLike) -> tuple[Path, bytes]:
    """A new private key at `path` (PEM, PKCS #8, readable by its owner only) and its public key beside it, in hex.

    Returns the path of the public key, `path` with .pub after it, and its 32 bytes. Raises OutputError, also where one
    of the files exists: a key that is gone cannot be had again. Both are written, or none.
    """
    out = check_output(path)
    beside = check_output(out.with_name(f"{out.name}.pub"))
    for file in (out, beside):
        if file.exists():
            raise OutputError(f"cannot write {file}: it exists, and a key is never replaced; name another file")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = public_bytes(key)

    def write_public(file: BinaryIO) -> None:
        file.write(public.hex().encode() + b"\n")

    write_files([(out, lambda file: file.write(private)), (beside, write_public)], private=(out,))
    return beside, public


def read_private_key(path: PathLike) -> Ed25519PrivateKey:
    """The private key of a PEM file without a password. Raises KeyFileError."""
    try:
        key = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{os.fspath(path)} is not a private key in PEM without a password: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{os.fspath(path)} is a private key of another kind than ed25519")
    return key


def read_public_key(text: str) -> bytes:
    """The 32 bytes of a public key: 64 hexadecimal digits, or a file of these or of a PEM public key.

    Raises KeyFileError.
    """
    if re.fullmatch("[0-9a-fA-F]{64}", text):
        return bytes.fromhex(text)
    data = _read(text)
    digits = data.strip().decode("latin-1")
    if re.fullmatch("[0-9a-fA-F]{64}", digits):
        return bytes.fromhex(digits)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyFileError(f"{text} is neither 64 hexadecimal digits nor a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{text} is a public key of another kind than ed25519")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def _read(path: PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KeyFileError(f"cannot read the key {os.fspath(path)}: {error.strerror or error}") from None


@dataclass(frozen=True)
class Release:
    """What a signature says of itself: `version` counts up, from 0."""

    model: str
    version: int

    def __post_init__(self) -> None:
        if not is_model_name(self.model):
            raise ValueError(
                f"the model is {self.model!r}; it must be 1 to 255 of the characters A-Z a-z 0-9 . _ : / -"
            )
        if not 0 <= self.version <= INT64_MAX:
            raise ValueError(f"the version is {self.version}; it must be from 0 to 2^63 - 1")


def signed_manifest(manifest: bytes, key: Ed25519PrivateKey, release: Release | None = None) -> bytes:
    """The manifest with the signature of `key` in place of the one it may have."""
    document = canonical.loads(manifest, WHERE)
    assert isinstance(document, dict)
    signature = Signature("ed25519", public_bytes(key).hex(), "")
    if release is not None:
        signature = replace(signature, model=release.model, version=release.version)
    value = key.sign(_covered(document, signature))
    return canonical.dumps({**document, "signature": signature_document(replace(signature, value=value.hex()))})


def _covered(document: Mapping[str, object], signature: Signature) -> bytes:
    """What is signed: the manifest with the signature's `value` null, or with no signature where it names no model."""
    if signature.model is None:
        return canonical.dumps({**document, "signature": None})
    return canonical.dumps({**document, "signature": {**signature_document(signature), "value": None}})


def sign_bundle(
    path: PathLike,
    key: Ed25519PrivateKey,
    out: PathLike | None = None,
    weights_path: PathLike | None = None,
    release: Release | None = None,
) -> bytes:
    """Signs a bundle, in place or as another file; every member but the manifest keeps its bytes. Gives the public key.

    The bundle is verified first, external weights too: a signature says that everything in it is as it was when it was
    signed. release: what it is signed as; None: a signature of the older kind, which names no model.
    Raises LoadError and OutputError.
    """
    target = check_output(path if out is None else out)
    with open_bundle(path, weights_path) as bundle:
        verify_opened(bundle)
        members = [Member(name, [bundle.view(name)]) for name in bundle.entries]
        members[0] = Member(WHERE, [signed_manifest(bundle.manifest_text, key, release)])
        write_parts(target, Parts(members))
    return public_bytes(key)


def check_signature(bundle: Bundle, trust: Trust) -> None:
    """Raises LoadError unless one of the keys signed the manifest, as a model and a version that are asked for."""
    signature = bundle.manifest.signature
    if signature is None:
        raise LoadError("a trusted signature is required, but the bundle is not signed")
    key = bytes.fromhex(signature.public_key)
    if key not in trust.keys:
        raise LoadError(f"the bundle is signed by a key that is not among the {len(trust.keys)} trusted ones")
    document = canonical.loads(bundle.manifest_text, WHERE)
    assert isinstance(document, dict)
    try:
        covered = _covered(document, signature)
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(signature.value), covered)
    except (InvalidSignature, ValueError):
        raise LoadError("the bundle's signature is not the trusted key's over this manifest") from None
    check_release(signature, trust)
