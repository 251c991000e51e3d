"""Whose signatures are trusted, and how old the bundles may be that they signed (docs/package.md, "Signature")."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hardtack.codegen.package.canonical import INT64_MAX
from hardtack.codegen.package.errors import KeyFileError, LoadError
from hardtack.codegen.package.manifest import Signature
from hardtack.codegen.package.output import PathLike

_KEY = re.compile("[0-9a-fA-F]{64}")
_MODEL = re.compile("[A-Za-z0-9._:/-]{1,255}")
_VERSION = re.compile("0|[1-9][0-9]{0,18}")
_MAX_NBYTES = 2**20


@dataclass(frozen=True)
class Trust:
    """Public keys of 32 bytes each, and model -> its lowest version, which stand in the file `file`.

    model: what the signature must name; None: any, or none.
    """

    keys: Sequence[bytes]
    lowest_versions: Mapping[str, int] = field(default_factory=dict)
    file: str = ""
    model: str | None = None


def is_model_name(text: str) -> bool:
    """Whether a signature may name a model so."""
    return _MODEL.fullmatch(text) is not None


def read_trusted_keys(path: PathLike) -> Trust:
    """The trust that a file gives: lines of a public key in hexadecimal digits, or of a model and its lowest version.

    Raises KeyFileError.
    """
    where = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_NBYTES + 1)
    except OSError as error:
        raise KeyFileError(f"cannot open {where}: {error.strerror or error}") from None
    if len(data) > _MAX_NBYTES:
        raise KeyFileError(f"{where}: a file of trusted keys has at most {_MAX_NBYTES} bytes")
    keys: list[bytes] = []
    lowest: dict[str, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        words = [word.decode("latin-1") for word in line.partition(b"#")[0].split()]  # at ASCII's white space alone
        if len(words) == 1 and _KEY.fullmatch(words[0]):
            keys.append(bytes.fromhex(words[0]))
        elif words:
            model, version = _lowest(words, f"{where}: line {number}: ")
            if model in lowest:
                raise KeyFileError(f"{where}: line {number}: the model {model} stands here a second time")
            lowest[model] = version
    if not keys:
        raise KeyFileError(f"{where} holds no public key; a line of 64 hexadecimal digits is one")
    return Trust(keys, lowest, str(where))


def _lowest(words: Sequence[str], where: str) -> tuple[str, int]:
    good = len(words) == 2 and is_model_name(words[0]) and _VERSION.fullmatch(words[1]) is not None
    if not good or int(words[1]) > INT64_MAX:
        raise KeyFileError(
            f"{where}expected a public key of 64 hexadecimal digits, or the name of a model and its lowest version"
        )
    return words[0], int(words[1])


def check_release(signature: Signature, trust: Trust) -> None:
    """Raises LoadError unless the signature names the model and a version that are asked for."""
    model = signature.model
    if trust.model is not None and model != trust.model:
        named = "no model" if model is None else f'"{model}"'
        raise LoadError(f'the bundle is signed as {named}, not as the model "{trust.model}" that is asked for')
    if not trust.lowest_versions:
        return
    if model is None or signature.version is None:
        raise LoadError(
            f"the bundle's signature names no model and no version, and {trust.file} has lowest versions; "
            "sign it with --model and --model-version"
        )
    lowest = trust.lowest_versions.get(model)
    if lowest is not None and signature.version < lowest:
        raise LoadError(
            f"the bundle is signed as version {signature.version} of {model}; {trust.file} asks for {lowest} or later"
        )
