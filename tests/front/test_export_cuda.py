"""Exports for GPUs through the front door: what a user sees of them on a machine without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main


class Small(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).softmax(-1)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cuda") / "m.pkg"
    hardtack.export(Small().eval(), (torch.ones(3, 40),), path=path, targets=("cuda:sm_80", "cuda:sm_90"))
    return path


def said(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_inspect_lists_targets_and_kernels(bundle: Path) -> None:
    text = said("inspect", bundle, "--kernels")
    assert re.search(r"cuda:sm_80\s+\S+ \w+\s+sm_80", text), text
    for arch in ("sm_80", "sm_90"):
        table = text.partition(f"kernels for cuda:{arch}")[2]
        assert re.search(r"softmax_[0-9a-f]{12}\s+[\d,]+\s+\d+\s+\d+\s+0\s+4", table), text


def test_verify_reads_the_cubins(bundle: Path) -> None:
    assert "2 plans" in said("verify", bundle)


def test_stop_after_prints_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_cuda_model.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef make():\n    return nn.ReLU().eval(), (torch.ones(4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = said("export", "small_cuda_model:make", "--stop-after", "render", "--target", "cuda:sm_90")
    assert "@triton.jit" in text
    assert "tl.where(" in text


def test_dump_has_the_text_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARDTACK_DUMP", str(tmp_path / "dump"))
    hardtack.export(Small().eval(), (torch.ones(3, 40),), path=tmp_path / "m.pkg", targets="cuda:sm_90")
    folder = tmp_path / "dump" / "cuda_sm_90" / "forward"
    (kernel,) = (folder / "kernels").iterdir()
    assert kernel.suffix == ".py"
    (rendered,) = folder.glob("*-render.txt")
    assert kernel.read_text() in rendered.read_text()
    assert "@triton.jit" in (folder / "index.html").read_text()


def test_the_same_bytes_twice(bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pkg"
    hardtack.export(Small().eval(), (torch.ones(3, 40),), path=again, targets=("cuda:sm_80", "cuda:sm_90"))
    assert again.read_bytes() == bundle.read_bytes()
