"""Bundles of every release since this promise was made load, verify, and give the bits that they gave then."""

from __future__ import annotations

import platform
from pathlib import Path

import corpus
import numpy as np
import pytest
from null_driver import NullDriver

import hardtack
from hardtack import _native
from hardtack.codegen.package import canonical
from hardtack.codegen.package.bundle import open_bundle, verify_bundle

HERE = Path(__file__).parent
BUNDLES = sorted(HERE.glob("*/*.pkg"))
PUBLIC = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
KINDS = {"states", "control_flow", "entries", "external", "types", "signed", "signed_without_version", "cuda", "hip"}


def name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_every_kind_of_content_is_there() -> None:
    releases = {path.parent for path in BUNDLES}
    assert releases
    for release in releases:
        assert {path.stem for path in release.glob("*.pkg")} == KINDS
        assert sum(file.stat().st_size for file in release.iterdir()) < 2**20


@pytest.mark.parametrize("path", BUNDLES, ids=name_of)
def test_both_readers_verify_it(path: Path) -> None:
    keys = [PUBLIC] if path.stem.startswith("signed") else []
    report = verify_bundle(path)
    assert report.signed_by == (PUBLIC.hex() if keys else None)
    assert _native.verify_file(str(path), keys)["num_plans"] == report.num_plans


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the bits are those of the target cpu:x86-64-v3")
@pytest.mark.parametrize("path", [p for p in BUNDLES if p.stem not in ("cuda", "hip")], ids=name_of)
def test_it_gives_the_same_bits(path: Path) -> None:
    keys = [PUBLIC] if path.stem.startswith("signed") else []
    model = hardtack.load(path, threads=1, target="cpu:x86-64-v3", trusted_keys=keys)
    assert model.signed_as == (("compat", 1) if path.stem == "signed" else None)
    known = np.load(path.with_suffix(".npz"))
    runs = sorted({tuple(key.split()[:2]) for key in known.files}, key=lambda run: int(run[0]))
    assert runs
    sessions = {entry: model.session(entry) for _, entry in runs}
    for k, entry in runs:
        keys_of = [key for key in known.files if key.startswith(f"{k} {entry} ")]
        inputs = [known[f"{k} {entry} in {i}"] for i in range(sum(" in " in key for key in keys_of))]
        result = sessions[entry](*inputs)
        results = result if isinstance(result, tuple) else (result,)
        assert len(results) == sum(" out " in key for key in keys_of)
        for i, found in enumerate(results):
            expected = known[f"{k} {entry} out {i}"]
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert found.tobytes() == expected.tobytes(), (k, entry, i)


@pytest.mark.parametrize("path", [p for p in BUNDLES if p.stem == "cuda"], ids=name_of)
def test_code_for_cuda_is_loaded(path: Path, driver: NullDriver) -> None:
    model = hardtack.load(path, device="cuda", cuda_driver=str(driver.path))
    assert model.target == "cuda:sm_90"
    del model


@pytest.mark.parametrize("path", [p for p in BUNDLES if p.stem == "hip"], ids=name_of)
def test_code_for_amd_is_read(path: Path) -> None:
    with open_bundle(path) as bundle:
        assert [t.name for t in bundle.manifest.targets] == ["hip:gfx942"]
        bundle.check_kernels(bundle.prove_plans())


def test_a_newer_file_is_refused_with_both_numbers_whatever_else_is_new(tmp_path: Path) -> None:
    path = tmp_path / "newer.pkg"
    path.write_bytes(corpus.pack({**corpus.good_files(), "manifest.json": canonical.dumps({"format": 6, "news": [1]})}))
    assert corpus.python_error(path) == "<path>: manifest.json: format is 6; this reader knows formats 1 to 5"
    version = hardtack.__version__
    assert corpus.runtime_error(path) == (
        f"HT_BAD_BUNDLE: <path>: this bundle has format 6; this version of Hardtack ({version}) reads formats 1 to 5"
    )
