"""Weights outside of the bundle: written, found, checked by both readers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import sample

import hardtack
from hardtack import _native
from hardtack.codegen.package import signing
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.errors import LoadError, OutputError
from hardtack.codegen.package.writer import write_bundle

CONTENT = sample.content()


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "m.pkg"
    written = write_bundle(path, CONTENT, external=True)
    assert written.weights_path == tmp_path / "m.safetensors"
    assert written.weights_nbytes == written.weights_path.stat().st_size
    assert sorted(os.listdir(tmp_path)) == ["m.pkg", "m.safetensors"]
    return path


def refusals(path: Path, weights: Path | None = None) -> tuple[str, str]:
    """What Python's reader and the runtime say in verify."""
    try:
        verify_bundle(path, weights)
        ours = ""
    except LoadError as error:
        ours = str(error)
    try:
        _native.verify_file(str(path), (), str(weights or ""))
        theirs = ""
    except _native.NativeError as error:
        theirs = str(error.args[1])
    return ours, theirs


def outputs(model: hardtack.Model) -> np.ndarray:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    return model.session("forward")(x)["y"]


def test_the_weights_are_those_of_the_member(bundle: Path, tmp_path: Path) -> None:
    embedded = tmp_path / "e.pkg"
    write_bundle(embedded, CONTENT)
    with open_bundle(embedded) as a, open_bundle(bundle) as b:
        assert bytes(a.view("weights.safetensors")) == (tmp_path / "m.safetensors").read_bytes()
        assert [n for n in a.entries if n not in b.entries] == ["weights.safetensors"]
        np.testing.assert_array_equal(a.constant("layer.tied"), b.constant("layer.tied"))
        assert verify_bundle(bundle).weights_nbytes == verify_bundle(embedded).weights_nbytes
    assert refusals(bundle) == ("", "")
    np.testing.assert_array_equal(outputs(hardtack.load(bundle)), outputs(hardtack.load(embedded)))
    assert hardtack.load(bundle).weights_nbytes == hardtack.load(embedded).weights_nbytes
    scale = safetensors.numpy.load_file(tmp_path / "m.safetensors")["layer.scale"]
    np.testing.assert_array_equal(scale, np.array([1, 2, 3, 0.5], np.float32))


def test_the_same_content_gives_the_same_files(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    write_bundle(folder / "m.pkg", CONTENT, external=True)
    for name in ("m.pkg", "m.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / name).read_bytes()


def test_weights_elsewhere_are_named(bundle: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "w"
    (tmp_path / "m.safetensors").rename(elsewhere)
    size = elsewhere.stat().st_size
    beside = tmp_path / "m.safetensors"
    theirs = (
        f"{bundle}: cannot open {beside}: No such file or directory; the bundle keeps its weights there, {size} bytes"
    )
    ours = (
        f"{bundle}: {beside}: cannot open the weights: No such file or directory; "
        f"the bundle keeps {size} bytes of them outside"
    )
    assert refusals(bundle) == (ours, theirs)
    with pytest.raises(LoadError) as caught:
        hardtack.load(bundle)
    assert str(caught.value) == theirs
    assert refusals(bundle, elsewhere) == ("", "")
    for copy in (False, True):
        model = hardtack.load(bundle, weights=elsewhere, copy_weights=copy)
        assert outputs(model).tolist() == [[0, 4, 18, 0.75], [4, 20, 54, 1.75]]


def test_another_size_is_refused_at_load(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    size = file.stat().st_size
    with open(file, "ab") as f:
        f.write(b"\0")
    ours = f"{bundle}: {file}: has {size + 1} bytes; the bundle's weights have {size}"
    theirs = f"{bundle}: {file} has {size + 1} bytes; the bundle's weights have {size}"
    assert refusals(bundle) == (ours, theirs)
    with pytest.raises(LoadError) as caught:
        hardtack.load(bundle)
    assert str(caught.value) == theirs


def test_other_content_is_refused_by_verify_and_under_a_signature(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    public = signing.sign_bundle(bundle, signing.Ed25519PrivateKey.generate())
    assert hardtack.load(bundle, trusted_keys=[public]).trusted
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    ours, theirs = refusals(bundle)
    assert ours.startswith(f"{bundle}: {file}: sha256 is ")
    assert theirs == f"{bundle}: external weights m.safetensors: their SHA-256 is not the manifest's"
    hardtack.load(bundle)
    for strict in ({"trusted_keys": [public]}, {"verify_weights": True}):
        with pytest.raises(LoadError) as caught:
            hardtack.load(bundle, **strict)  # type: ignore[arg-type]
        assert str(caught.value) == theirs


def test_a_weights_file_for_a_bundle_that_needs_none(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    problem = f"{path}: %s its weights itself; the file {path} is not needed"
    assert refusals(path, path) == (problem % "holds", problem % "the bundle holds")


def test_the_bundle_may_not_take_the_name_of_its_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(OutputError) as caught:
        write_bundle(path, CONTENT, external=True)
    assert str(caught.value) == f"cannot write {path}: its external weights would have the same name; name it .pkg"


def test_both_files_survive_a_failed_write(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [(tmp_path / n).read_bytes() for n in ("m.pkg", "m.safetensors")]

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError):
        write_bundle(bundle, sample.content(("x86-64-v3",)), external=True)
    assert [(tmp_path / n).read_bytes() for n in ("m.pkg", "m.safetensors")] == before
    assert sorted(os.listdir(tmp_path)) == ["m.pkg", "m.safetensors"]
