"""Whole bundles: written, read back, determinism, places that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import sample

from hardtack.codegen.ir.constants import ConstantData
from hardtack.codegen.ir.plan import Copy
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.errors import LoadError, OutputError
from hardtack.codegen.package.output import check_output
from hardtack.codegen.package.plan_text import listing
from hardtack.codegen.package.writer import write_bundle

CONTENT = sample.content(("x86-64-v3",))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    written = write_bundle(path, CONTENT)
    assert (written.path, written.nbytes) == (path, path.stat().st_size)
    report = verify_bundle(path)
    assert (report.num_plans, report.num_libraries, report.num_constants, report.signed_by) == (2, 1, 4, None)
    with open_bundle(path) as bundle:
        m = bundle.manifest
        assert [e.name for e in m.entries] == ["forward", "copy"]
        assert m.entries[0].inputs[0].shape == ("n", 4)
        assert dict(m.producer) == {"hardtack": "0.1.0", "compiler": "none"}
        assert [(s.name, s.init) for s in m.states] == [("calls", "start")]
        np.testing.assert_array_equal(bundle.constant("layer.tied"), [[1, 2], [3, 0.5]])
        assert {c.name: c.tensor for c in m.constants}["layer.tied"] == "layer.scale"
        assert bytes(bundle.view("debug/note.txt")) == b"made by hand\n"
        assert len(bundle.plan("forward", "cpu:x86-64-v3").body) == 3


def test_same_content_same_bytes_in_another_process_and_folder(tmp_path: Path) -> None:
    write_bundle(tmp_path / "a.pkg", CONTENT)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    program = (
        "import sample; from hardtack.codegen.package.writer import write_bundle; "
        "write_bundle('b.pkg', sample.content(('x86-64-v3',)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(sample.__file__).parent), "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=True)
    assert (tmp_path / "a.pkg").read_bytes() == (folder / "b.pkg").read_bytes()


def test_order_of_constants_and_plans_does_not_matter(tmp_path: Path) -> None:
    shuffled = replace(
        CONTENT,
        constants=CONTENT.constants[::-1],
        plans=dict(reversed(list(CONTENT.plans.items()))),
        debug=CONTENT.debug,
    )
    for name, content in (("a", CONTENT), ("b", shuffled)):
        write_bundle(tmp_path / name, content)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_manifest_is_plain_json_and_weights_plain_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    with open_bundle(path) as bundle:
        manifest = json.loads(bytes(bundle.view("manifest.json")))
        weights = safetensors.numpy.load(bytes(bundle.view("weights.safetensors")))
    assert manifest["format"] == 1
    np.testing.assert_array_equal(weights["layer.scale"], np.array([1, 2, 3, 0.5], np.float32))


def test_an_existing_bundle_survives_a_failed_write(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    before = path.read_bytes()
    plans = dict(CONTENT.plans)
    broken = replace(plans["copy", "cpu:x86-64-v3"], body=(Copy("y", "x"),))
    plans["copy", "cpu:x86-64-v3"] = broken
    with pytest.raises(LoadError, match="value 'y' is used before it is defined"):
        write_bundle(path, replace(CONTENT, plans=plans))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["m.pkg"]


def test_the_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    mask = os.umask(0o027)
    try:
        write_bundle(path, CONTENT)
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640


def test_output_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught:
        check_output(tmp_path)
    assert str(caught.value) == f"cannot write {tmp_path}: it is a directory; name a file, such as {tmp_path}/model.pkg"


def test_output_directory_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "none" / "m.pkg"
    with pytest.raises(OutputError) as caught:
        write_bundle(path, CONTENT)
    assert str(caught.value) == f"cannot write {path}: the directory {path.parent} does not exist"


def test_output_directory_is_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write anywhere, so the answer of the system is put in
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    path = tmp_path / "m.pkg"
    with pytest.raises(OutputError) as caught:
        check_output(path)
    assert str(caught.value) == f"cannot write {path}: no permission to write in the directory {tmp_path}"
    path.write_bytes(b"old")
    with pytest.raises(OutputError) as caught:
        check_output(path)
    assert str(caught.value) == f"cannot write {path}: no permission to replace it"


def test_no_room_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError) as caught:
        write_bundle(tmp_path / "m.pkg", CONTENT)
    assert str(caught.value) == f"cannot write {tmp_path / 'm.pkg'}: No space left on device"
    assert os.listdir(tmp_path) == []


def test_bfloat16_and_empty_constants(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x7FC0], np.uint16)
    extra = (("b", ConstantData(DType.BF16, bits)), ("e", ConstantData(DType.F32, np.zeros((0, 3), np.float32))))
    path = tmp_path / "m.pkg"
    write_bundle(path, replace(CONTENT, constants=(*CONTENT.constants, *extra)))
    verify_bundle(path)
    with open_bundle(path) as bundle:
        np.testing.assert_array_equal(bundle.constant("b"), bits)
        assert bundle.constant("e").shape == (0, 3)


def test_listing_names_the_source_line(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    write_bundle(path, CONTENT)
    with open_bundle(path) as bundle:
        lines = listing(bundle.plan("forward", "cpu:x86-64-v3")).splitlines()
    assert lines[0] == "plan forward for cpu:x86-64-v3, arena 1088 bytes"
    assert "  launch k_scale(x, scale, t; n, 4)   # aten.mul.Tensor model.py:12" in lines
    assert "  guard n != 13: n must not be 13" in lines
