"""A signed bundle that somebody rewrites in place while it is loaded is refused, or it is the one that was signed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import sample
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import hardtack
from hardtack.codegen.package import signing
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.signing import Release
from hardtack.codegen.package.writer import write_bundle

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
X = np.arange(8, dtype=np.float32).reshape(2, 4)
LOADS = 150


@pytest.fixture(params=[False, True], ids=["inside", "outside"])
def signed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "m.pkg"
    write_bundle(path, sample.content(("x86-64-v3",)), external=request.param)
    signing.sign_bundle(path, KEY, release=Release("m", 3))
    return path


def _places(path: Path) -> list[tuple[Path, int]]:
    """Bytes to change: in the weights' numbers, the library's code, a plan, the manifest's signature."""
    with open_bundle(path) as bundle:
        places = [
            (path, bundle.manifest_text.index(b'"version":3') + 10 + bundle.entries["manifest.json"].offset),
            *((path, e.offset + e.nbytes // 2) for n, e in bundle.entries.items() if n.startswith(("plans/", "lib/"))),
        ]
        external = bundle.manifest.external
        if external is None:
            entry = bundle.entries["weights.safetensors"]
            return [*places, (path, entry.offset + entry.nbytes - 1)]
        return [*places, (path.parent / external.name, external.nbytes - 1)]


@contextmanager
def _rewritten(places: list[tuple[Path, int]]) -> Iterator[None]:
    """Meanwhile each place is changed and put back, over and over, with the dates of the file as they were."""
    done = threading.Event()

    def work() -> None:
        files = {path: os.open(path, os.O_RDWR) for path, _ in places}
        dates = {path: os.stat(path) for path in files}
        good = {(path, at): os.pread(files[path], 1, at) for path, at in places}
        while not done.is_set():
            for path, at in places:
                for data in (bytes([good[path, at][0] ^ 1]), good[path, at]):
                    os.pwrite(files[path], data, at)
                    os.utime(files[path], ns=(dates[path].st_atime_ns, dates[path].st_mtime_ns))
        for fd in files.values():
            os.close(fd)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_what_is_loaded_is_what_was_signed(signed: Path) -> None:
    trusted = [signing.public_bytes(KEY)]
    good = hardtack.load(signed, trusted_keys=trusted).session("forward")(X)
    with _rewritten(_places(signed)):
        for _ in range(LOADS):
            try:
                model = hardtack.load(signed, trusted_keys=trusted)
            except LoadError:
                continue
            assert model.signed_as == ("m", 3)
            found = model.session("forward")(X)
            for a, b in zip(good, found, strict=True):
                np.testing.assert_array_equal(a, b)


def test_each_place_alone_is_refused(signed: Path) -> None:
    trusted = [signing.public_bytes(KEY)]
    for path, at in _places(signed):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        good = path.read_bytes()
        path.write_bytes(data)
        with pytest.raises(LoadError):
            hardtack.load(signed, trusted_keys=trusted)
        path.write_bytes(good)
    hardtack.load(signed, trusted_keys=trusted)


def test_what_is_signed_is_what_was_verified(signed: Path) -> None:
    """Signing again while the file changes: the signature stands over the good manifest, or nothing is written."""
    out = signed.with_name("again.pkg")
    with open_bundle(signed) as bundle:
        manifest = bundle.manifest_text
    with _rewritten(_places(signed)):
        for _ in range(10):
            try:
                signing.sign_bundle(signed, KEY, out, release=Release("m", 3))
            except LoadError:
                continue
            with open_bundle(out) as bundle:
                assert bundle.manifest_text == manifest
