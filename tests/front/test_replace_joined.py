"""Replacing weights that a GPU target has joined: all of them, one alone, and those outside of the bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle, verify_bundle


class Projections(nn.Module):
    """Three products of a matrix, of which one has no bias, and two of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 32), nn.Linear(16, 32, bias=False), nn.Linear(16, 16)
        self.gate, self.up = nn.Linear(16, 48, bias=False), nn.Linear(16, 48, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mixed = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x)
        row = mixed.mean(0, keepdim=True)
        return mixed, torch.relu(self.gate(row)) * self.up(row)


X = torch.randn(40, 16, generator=torch.Generator().manual_seed(1)).bfloat16()


def made(seed: int) -> Projections:
    torch.manual_seed(seed)
    return Projections().bfloat16().eval()


def export(module: nn.Module, path: Path, targets: tuple[str, ...] = ("cuda:sm_90",), **options: Any) -> Path:
    hardtack.export(module, (X,), path=path, targets=targets, options=hardtack.Options(**options))
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(made(0), tmp_path_factory.mktemp("joined") / "m.pkg")


def test_three_constants_hold_all_weights(first: Path) -> None:
    with open_bundle(first) as bundle:
        parts = {c.shape: [r.source for r in c.recipe] for c in bundle.manifest.constants}
        names = [p.name for p in bundle.manifest.parameters]
    assert parts == {
        (16, 80): ["q.weight", "k.weight", "v.weight"],
        (80,): ["q.bias", "v.bias"],
        (96, 16): ["gate.weight", "up.weight"],
    }
    assert names == sorted(made(0).state_dict())
    listed = CliRunner().invoke(main, ["inspect", str(first), "--constants"]).output
    assert "q.bias | v.bias" in listed


def test_all_weights_replaced_is_a_fresh_export(first: Path, tmp_path: Path) -> None:
    second = made(7)
    hardtack.replace_weights(first, second.state_dict(), path=tmp_path / "m2.pkg")
    assert (tmp_path / "m2.pkg").read_bytes() == export(second, tmp_path / "fresh.pkg").read_bytes()


@pytest.mark.parametrize("name", ["k.weight", "v.bias", "up.weight"])
def test_a_part_is_replaced_alone(first: Path, tmp_path: Path, name: str) -> None:
    module, value = made(0), made(7).state_dict()[name]
    hardtack.replace_weights(first, {name: value}, path=tmp_path / "m2.pkg")
    module.load_state_dict({name: value}, strict=False)
    assert (tmp_path / "m2.pkg").read_bytes() == export(module, tmp_path / "fresh.pkg").read_bytes()


def test_external_weights_of_two_targets(tmp_path: Path) -> None:
    """The CPU has the same weights apart, in panels."""
    targets = ("cpu:native", "cuda:sm_90")
    path = export(made(0), tmp_path / "m.pkg", targets, external_weights=True)
    second = made(0)
    new = {n: t for n, t in made(7).state_dict().items() if n != "k.weight"}
    second.load_state_dict(new, strict=False)
    hardtack.replace_weights(path, new, path=tmp_path / "m2.pkg")
    folder = tmp_path / "fresh"
    folder.mkdir()
    export(second, folder / "m2.pkg", targets, external_weights=True)
    for file in ("m2.pkg", "m2.safetensors"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()
    verify_bundle(tmp_path / "m2.pkg")
    ours = hardtack.load(tmp_path / "m2.pkg", device="cpu")(X)
    with torch.no_grad():
        torch.testing.assert_close(list(ours), list(second(X)), rtol=2e-2, atol=2e-2)


class Fixed(nn.Module):
    """One of the joined weights is folded elsewhere, too: it cannot be replaced, its sibling can."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a(x), self.b(x) + self.a.weight.float().sin().sum()


def test_the_sibling_of_a_folded_weight(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Fixed().bfloat16().eval()
    path = export(module, tmp_path / "m.pkg")
    with open_bundle(path) as bundle:
        assert [p.name for p in bundle.manifest.parameters] == ["b.weight"]
    new = torch.randn(32, 16).bfloat16()
    hardtack.replace_weights(path, {"b.weight": new}, path=tmp_path / "m2.pkg")
    module.load_state_dict({"b.weight": new}, strict=False)
    assert (tmp_path / "m2.pkg").read_bytes() == export(module, tmp_path / "fresh.pkg").read_bytes()
