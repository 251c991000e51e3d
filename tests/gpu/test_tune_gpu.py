"""hardtack tune on the GPU of this machine: real figures, right results, and a table that an export takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import hardtack
from hardtack.cli import main
from hardtack.codegen.tune.table import read_table
from tests.gpu.support import assert_close, eager, leaves

MODEL = """
import torch
from torch import nn


def make():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(1024, 3072, bias=False), nn.GELU(), nn.Linear(3072, 1024))
    return layers.eval().to(torch.bfloat16), (torch.randn(1, 1024).to(torch.bfloat16),)
"""


def test_a_table_is_made_and_used(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tuned_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "table.json"
    result = CliRunner().invoke(main, ["tune", "tuned_model.py:make", "-o", str(out), "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["target"] == target
    assert len(found["entries"]) == 2
    for entry in found["entries"]:
        right = [c for c in entry["candidates"] if not c["problem"]]
        assert len(right) >= 3, entry
        assert 0 < entry["after_us"] <= entry["before_us"]
    assert sorted(read_table(out).entries) == sorted(e["key"] for e in found["entries"])
    import tuned_model  # type: ignore[import-not-found]

    module, args = tuned_model.make()
    hardtack.export(module, args, path="m.pkg", targets=(target,), options=hardtack.Options(tuning=str(out)))
    module, args = module.cuda(), tuple(a.cuda() for a in args)
    got = hardtack.load("m.pkg", device="cuda:0").session()(*args)
    assert_close(leaves(got), eager(module, args))
