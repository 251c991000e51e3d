"""Signing: what Python signs both readers trust, and nothing else."""

from __future__ import annotations

import errno
import itertools
import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import hardtack
from hardtack import _native
from hardtack.cli import main
from hardtack.codegen.package import canonical, signing
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.errors import KeyFileError, LoadError, OutputError
from hardtack.codegen.package.signing import Release
from hardtack.codegen.package.trust import Trust, read_trusted_keys
from hardtack.codegen.package.writer import write_bundle


def current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


CONTENT = sample.content(("x86-64-v3",))
# RFC 8032, section 7.1: secret key, public key, message, signature
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2465"
        "5141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00"
        "d291612bb0c00",
    ),
]
KEY = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTORS[0][0]))
PUBLIC = bytes.fromhex(VECTORS[0][1])
OTHER = bytes.fromhex(VECTORS[1][1])


def python_error(path: Path, keys: list[bytes], file: Path | None = None, model: str | None = None) -> str:
    try:
        verify_bundle(path)
        trust = Trust([]) if file is None else read_trusted_keys(file)
        with open_bundle(path) as bundle:
            signing.check_signature(bundle, replace(trust, keys=[*keys, *trust.keys], model=model))
    except LoadError as error:
        return str(error)
    return ""


def runtime_error(path: Path, keys: list[bytes], file: Path | None = None, model: str | None = None) -> str:
    try:
        report = _native.verify_file(str(path), keys, "", str(file or ""), model or "")
    except _native.NativeError as error:
        return str(error.args[1])
    assert report["trusted"]
    return ""


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    assert signing.sign_bundle(path, KEY) == PUBLIC
    return path


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_the_library_signs_as_rfc_8032_says(secret: str, public: str, message: str, signature: str) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    assert signing.public_bytes(key).hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature


def test_both_readers_trust_the_key_and_no_other(signed: Path) -> None:
    assert python_error(signed, [OTHER, PUBLIC]) == runtime_error(signed, [OTHER, PUBLIC]) == ""
    problem = f"{signed}: the bundle is signed by a key that is not among the 1 trusted ones"
    assert python_error(signed, [OTHER]) == runtime_error(signed, [OTHER]) == problem
    assert hardtack.load(signed, trusted_keys=[PUBLIC]).trusted
    with pytest.raises(LoadError) as caught:
        hardtack.load(signed, trusted_keys=[OTHER])
    assert str(caught.value) == problem


def test_an_unsigned_bundle_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    problem = f"{path}: a trusted signature is required, but the bundle is not signed"
    assert python_error(path, [PUBLIC]) == runtime_error(path, [PUBLIC]) == problem


def test_only_the_manifest_changes_and_signing_twice_gives_the_same_bytes(signed: Path, tmp_path: Path) -> None:
    plain, again = tmp_path / "plain.pkg", tmp_path / "again.pkg"
    write_bundle(plain, CONTENT)
    before = plain.read_bytes()
    signing.sign_bundle(plain, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTORS[1][0])), again)
    assert plain.read_bytes() == before
    signing.sign_bundle(again, KEY)
    assert again.read_bytes() == signed.read_bytes()
    with open_bundle(plain) as a, open_bundle(signed) as b:
        assert list(a.entries) == list(b.entries)
        for name in a.entries:
            if name != "manifest.json":
                assert bytes(a.view(name)) == bytes(b.view(name))
        manifest = json.loads(bytes(b.view("manifest.json")))
        assert manifest.pop("signature")["public_key"] == PUBLIC.hex()
        assert canonical.dumps({**manifest, "signature": None}) == bytes(a.view("manifest.json"))


def test_every_flipped_byte_is_refused_by_both(signed: Path, tmp_path: Path) -> None:
    data = signed.read_bytes()
    with open_bundle(signed) as bundle:
        entries = list(bundle.entries.values())
        manifest = bundle.entries["manifest.json"]
    places = [*range(manifest.offset, manifest.offset + manifest.nbytes, 23)]
    places += [e.offset + k for e in entries for k in (0, e.nbytes // 2, e.nbytes - 1)]
    places += [e.header_offset + 14 for e in entries]
    path = tmp_path / "flipped.pkg"
    for at in places:
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert python_error(path, [PUBLIC]), at
        assert runtime_error(path, [PUBLIC]), at


def test_a_changed_manifest_in_sound_form_breaks_the_signature(signed: Path) -> None:
    import corpus

    with open_bundle(signed) as bundle:
        files = {n: bytes(bundle.view(n)) for n in bundle.entries}
    document = json.loads(files["manifest.json"])
    document["producer"]["hardtack"] = "0.1.1"
    files["manifest.json"] = canonical.dumps(document)
    signed.write_bytes(corpus.pack(files))
    verify_bundle(signed)
    problem = f"{signed}: the bundle's signature is not the trusted key's over this manifest"
    assert python_error(signed, [PUBLIC]) == runtime_error(signed, [PUBLIC]) == problem


def test_a_bad_bundle_is_not_signed(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    data = bytearray(path.read_bytes())
    with open_bundle(path) as bundle:
        data[bundle.entries["weights.safetensors"].offset + 300] ^= 1
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"weights\.safetensors: CRC-32 is"):
        signing.sign_bundle(path, KEY)
    assert path.read_bytes() == data


def test_keys_are_written_for_their_owner_only_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "release.pem"
    beside, public = signing.write_key(path)
    assert beside == tmp_path / "release.pem.pub"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signing.public_bytes(signing.read_private_key(path)) == public
    assert beside.read_text() == f"{public.hex()}\n"
    assert stat.S_IMODE(beside.stat().st_mode) & 0o444 == 0o444 & ~current_umask()
    pem = tmp_path / "public.pem"
    key = signing.read_private_key(path).public_key()
    pem.write_bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    for text in (public.hex(), public.hex().upper(), str(beside), str(pem)):
        assert signing.read_public_key(text) == public
    with pytest.raises(OutputError) as caught:
        signing.write_key(path)
    assert str(caught.value) == f"cannot write {path}: it exists, and a key is never replaced; name another file"


@pytest.mark.parametrize(("call", "at"), [("os.fsync", 1), ("os.fsync", 2), ("os.replace", 1), ("os.replace", 2)])
def test_of_a_key_pair_both_files_are_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    real, calls = getattr(os, call.removeprefix("os.")), itertools.count(1)

    def full(*args: Any) -> Any:
        if next(calls) == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*args)

    monkeypatch.setattr(f"hardtack.codegen.package.output.{call}", full)
    with pytest.raises(OutputError, match=r"cannot write .*: No space left on device"):
        signing.write_key(tmp_path / "release.pem")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_key_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"nothing")
    with pytest.raises(KeyFileError) as caught:
        signing.read_public_key(str(path))
    assert str(caught.value) == f"{path} is neither 64 hexadecimal digits nor a public key in PEM"
    with pytest.raises(KeyFileError, match=f"^{path} is not a private key in PEM without a password: "):
        signing.read_private_key(path)
    with pytest.raises(KeyFileError) as caught:
        signing.read_private_key(tmp_path / "none")
    assert str(caught.value) == f"cannot read the key {tmp_path / 'none'}: No such file or directory"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """Signed as version 7 of org/model."""
    path = tmp_path / "released.pkg"
    write_bundle(path, CONTENT)
    signing.sign_bundle(path, KEY, release=Release("org/model", 7))
    return path


def trust_file(folder: Path, text: str) -> Path:
    path = folder / "trusted"
    path.write_bytes(text.encode("latin-1"))
    return path


def test_a_signature_names_model_and_version(released: Path, tmp_path: Path) -> None:
    file = trust_file(tmp_path, f"# who may sign\n\n{PUBLIC.hex()}  # release\norg/model 7\nother 9\n")
    for model in (None, "org/model"):
        assert python_error(released, [], file, model) == runtime_error(released, [], file, model) == ""
    loaded = hardtack.load(released, trusted_keys=file, signed_model="org/model")
    assert loaded.trusted
    assert loaded.signed_as == ("org/model", 7)
    assert verify_bundle(released).signed_version == 7
    other = f'{released}: the bundle is signed as "org/model", not as the model "minilm" that is asked for'
    assert (
        python_error(released, [PUBLIC], None, "minilm") == runtime_error(released, [PUBLIC], None, "minilm") == other
    )
    with pytest.raises(LoadError) as caught:
        hardtack.load(released, trusted_keys=[PUBLIC], signed_model="minilm")
    assert str(caught.value) == other


def test_white_space_in_a_file_of_trusted_keys_is_that_of_ascii(released: Path, tmp_path: Path) -> None:
    file = trust_file(tmp_path, f"\r\n\v{PUBLIC.hex()}\f\r\n\torg/model \v7\t\r\n# \x85\xa0\x1c")
    assert python_error(released, [], file) == runtime_error(released, [], file) == ""


def test_an_older_version_is_not_trusted(released: Path, tmp_path: Path) -> None:
    file = trust_file(tmp_path, f"{PUBLIC.hex().upper()}\norg/model 8\n")
    problem = f"{released}: the bundle is signed as version 7 of org/model; {file} asks for 8 or later"
    assert python_error(released, [], file) == runtime_error(released, [], file) == problem
    with pytest.raises(LoadError) as caught:
        hardtack.load(released, trusted_keys=file)
    assert str(caught.value) == problem


def test_a_signature_without_a_version_is_not_trusted_where_versions_are_asked_for(
    signed: Path, tmp_path: Path
) -> None:
    file = trust_file(tmp_path, f"{PUBLIC.hex()}\norg/model 1\n")
    problem = (
        f"{signed}: the bundle's signature names no model and no version, and {file} has lowest versions; "
        "sign it with --model and --model-version"
    )
    assert python_error(signed, [], file) == runtime_error(signed, [], file) == problem
    problem = f'{signed}: the bundle is signed as no model, not as the model "m" that is asked for'
    assert python_error(signed, [PUBLIC], None, "m") == runtime_error(signed, [PUBLIC], None, "m") == problem


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(version=8),
        lambda s: s.update(model="minilm"),
        lambda s: (s.pop("model"), s.pop("version")),
    ],
)
def test_model_and_version_are_covered_by_the_signature(
    released: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    import corpus

    with open_bundle(released) as bundle:
        files = {n: bytes(bundle.view(n)) for n in bundle.entries}
    document = json.loads(files["manifest.json"])
    change(document["signature"])
    files["manifest.json"] = canonical.dumps(document)
    released.write_bytes(corpus.pack(files))
    problem = f"{released}: the bundle's signature is not the trusted key's over this manifest"
    assert python_error(released, [PUBLIC]) == runtime_error(released, [PUBLIC]) == problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "{} holds no public key; a line of 64 hexadecimal digits is one"),
        ("model 1\n", "{} holds no public key; a line of 64 hexadecimal digits is one"),
        (f"{PUBLIC.hex()}\nm 1\nm 2\n", "{}: line 3: the model m stands here a second time"),
        *(
            (
                f"{PUBLIC.hex()}\n{line}\n",
                "{}: line 2: expected a public key of 64 hexadecimal digits, or the name of a model and its lowest "
                "version",
            )
            for line in (
                *("abc", "m -1", "m 01", "m 1 2", "m 9223372036854775808", "m\u00e9 1", "m " + "1" * 99),
                *("m\x1c1", "m\x1f1", "m\x851", "m\xa01", f"{PUBLIC.hex()}\x1d"),  # white space, but not ASCII's
            )
        ),
    ],
)
def test_a_file_of_trusted_keys_that_is_none_is_refused_in_words(signed: Path, text: str, problem: str) -> None:
    file = trust_file(signed.parent, text)
    with pytest.raises(KeyFileError) as caught:
        read_trusted_keys(file)
    assert str(caught.value) == problem.format(file)
    with pytest.raises(LoadError) as refused:
        hardtack.load(signed, trusted_keys=file)
    assert str(refused.value).endswith(problem.format(file))


def test_a_file_of_trusted_keys_that_is_missing(signed: Path) -> None:
    file = signed.parent / "none"
    with pytest.raises(KeyFileError, match=f"^cannot open {file}: No such file or directory$"):
        read_trusted_keys(file)
    with pytest.raises(LoadError, match=f"cannot open {file}: No such file or directory$"):
        hardtack.load(signed, trusted_keys=file)


def test_a_release_needs_a_name_and_a_version_that_fit() -> None:
    with pytest.raises(ValueError, match="it must be 1 to 255 of the characters"):
        Release("a model", 1)
    with pytest.raises(ValueError, match="it must be from 0 to"):
        Release("m", -1)


def test_sign_and_verify_as_commands(tmp_path: Path) -> None:
    path, key = tmp_path / "m.pkg", tmp_path / "key.pem"
    write_bundle(path, CONTENT)
    signing.write_key(key)
    public = Path(f"{key}.pub").read_text().strip()
    file = trust_file(tmp_path, f"{public}\nminilm 3\n")
    run = CliRunner()
    half = run.invoke(main, ["sign", str(path), "--key", str(key), "--model", "minilm"])
    assert (half.exit_code, "--model and --model-version go together" in half.output) == (2, True)
    done = run.invoke(main, ["sign", str(path), "--key", str(key), "--model", "minilm", "--model-version", "2"])
    assert done.output.split() == f"{path} is signed by {public} as version 2 of minilm".split()
    old = run.invoke(main, ["verify", str(path), "--trusted-keys", str(file)])
    assert old.exit_code == 1
    assert f"the bundle is signed as version 2 of minilm; {file} asks for 3 or later" in old.output
    run.invoke(main, ["sign", str(path), "--key", str(key), "--model", "minilm", "--model-version", "3"])
    good = run.invoke(main, ["verify", str(path), "--trusted-keys", str(file), "--signed-model", "minilm"])
    assert good.exit_code == 0, good.output
    assert "version 3 of minilm, a trusted key" in " ".join(good.output.split())
    alone = run.invoke(main, ["verify", str(path), "--signed-model", "minilm"])
    assert (alone.exit_code, "give --key or --trusted-keys, too" in alone.output) == (2, True)
