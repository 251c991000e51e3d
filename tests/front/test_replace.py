"""Replacing weights in a bundle: what comes out is what a fresh export of the other weights gives, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.errors import ReplaceError

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Small(nn.Module):
    """Packed, transposed, plain and sliced weights, an equal pair, a buffer, and 16-bit weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.norm = nn.LayerNorm(16)
        self.norm2 = nn.LayerNorm(16)
        self.fc = nn.Linear(8, 5)
        self.brief = nn.Parameter(torch.randn(5).bfloat16())
        self.register_buffer("offset", torch.randn(2, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(torch.relu(self.conv(x))).flatten(2)
        y = self.norm2(self.norm(y)).mean(-1)
        return (self.fc(y).bfloat16() * self.brief).float() + self.offset[:, 2:7]


def made(module: Callable[[], nn.Module], seed: int) -> nn.Module:
    """The module with random weights, so that no two tensors are equal."""
    torch.manual_seed(seed)
    m = module().eval()
    if seed:
        with torch.no_grad():
            for t in m.state_dict().values():
                if t.is_floating_point():
                    t.copy_(torch.rand(t.shape) + 0.5)
    return m


def export(module: nn.Module, path: Path, **options: Any) -> Path:
    hardtack.export(module, (X,), path=path, targets=("cpu:native",), options=hardtack.Options(**options))
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose two layer norms are equal, so that their weights are stored once."""
    return export(made(Small, 0), tmp_path_factory.mktemp("first") / "m.pkg")


def test_all_weights_replaced_is_a_fresh_export(first: Path, tmp_path: Path) -> None:
    second = made(Small, 7)
    values = second.state_dict()
    result = hardtack.replace_weights(first, values, path=tmp_path / "m2.pkg")
    assert set(result.names) == set(values)
    assert not result.dropped_signature
    fresh = export(second, tmp_path / "fresh.pkg")
    assert (tmp_path / "m2.pkg").read_bytes() == fresh.read_bytes()
    ours = hardtack.load(tmp_path / "m2.pkg")(X)
    assert torch.equal(ours, hardtack.load(fresh)(X))
    with torch.no_grad():
        torch.testing.assert_close(ours, second(X), rtol=1e-2, atol=1e-2)


def test_back_again_is_the_old_bundle(first: Path, tmp_path: Path) -> None:
    hardtack.replace_weights(first, made(Small, 7).state_dict(), path=tmp_path / "m.pkg")
    hardtack.replace_weights(tmp_path / "m.pkg", made(Small, 0).state_dict(), path=tmp_path / "m.pkg")
    assert (tmp_path / "m.pkg").read_bytes() == first.read_bytes()


def test_one_of_two_equal_weights_is_replaced_alone(first: Path, tmp_path: Path) -> None:
    model = made(Small, 0)
    assert torch.equal(model.norm.weight, model.norm2.weight)
    new = torch.linspace(1, 2, 16)
    hardtack.replace_weights(first, {"norm2.weight": new.numpy()}, path=tmp_path / "m.pkg")
    with torch.no_grad():
        model.norm2.weight.copy_(new)
        torch.testing.assert_close(hardtack.load(tmp_path / "m.pkg")(X), model(X), rtol=1e-2, atol=1e-2)


def test_bfloat16_as_bits(first: Path, tmp_path: Path) -> None:
    values = made(Small, 7).brief.detach()
    bits = values.view(torch.int16).numpy().view(np.uint16)
    for name, value in (("a", values), ("b", bits)):
        hardtack.replace_weights(first, {"brief": value}, path=tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def refusal(bundle: Path, values: dict[str, Any], path: Path) -> str:
    with pytest.raises(ReplaceError) as caught:
        hardtack.replace_weights(bundle, values, path=path)
    assert not path.exists()
    return str(caught.value)


def test_other_dtypes_and_shapes_are_refused(first: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pkg"
    assert refusal(first, {"fc.bias": np.zeros(5)}, out) == "fc.bias is f64[5], the bundle has f32[5]"
    assert refusal(first, {"fc.weight": torch.zeros(8, 5)}, out) == "fc.weight is f32[8, 5], the bundle has f32[5, 8]"
    message = refusal(first, {"fc.bias": np.zeros(5, np.complex64)}, out)
    assert message == "fc.bias is an array of complex64, which no bundle holds"


def test_unknown_names_are_refused_with_what_there_is(first: Path, tmp_path: Path) -> None:
    assert refusal(first, {"fc.wait": np.zeros(5, np.float32)}, tmp_path / "m.pkg") == (
        "fc.wait cannot be replaced: it is unknown to the bundle, unused, or folded into other weights when it was "
        "exported; what can be replaced is: brief, conv.bias, conv.weight, depthwise.bias, depthwise.weight, fc.bias, "
        "fc.weight, norm.bias, norm.weight, norm2.bias, norm2.weight, offset"
    )


class Folded(nn.Module):
    """A batch norm that is folded, a weight that is used as it is and folded, and a scale that becomes a number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.both = nn.Parameter(torch.rand(6))
        self.scale = nn.Parameter(torch.tensor(0.4))
        self.plain = nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn(self.conv(x))
        y = y * self.both + (self.both.sin() + 2) + self.plain
        attended = torch.softmax((y @ y.transpose(-1, -2)) * self.scale, -1) @ y
        return attended * self.scale


def test_what_was_folded_cannot_be_replaced(tmp_path: Path) -> None:
    path = export(made(Folded, 3), tmp_path / "m.pkg")
    with open_bundle(path) as bundle:
        assert [p.name for p in bundle.manifest.parameters] == ["plain"]
    names = ["both", "bn.weight", "conv.weight", "scale"]
    values = {n: t for n, t in made(Folded, 4).state_dict().items() if n in names}
    assert refusal(path, values, tmp_path / "m2.pkg") == (
        "bn.weight, both, conv.weight, scale cannot be replaced: they are unknown to the bundle, unused, or folded "
        "into other weights when it was exported; what can be replaced is: plain"
    )
    other = made(Folded, 3)
    with torch.no_grad():
        other.plain.copy_(torch.ones(6))
        hardtack.replace_weights(path, {"plain": other.plain}, path=tmp_path / "m2.pkg")
        torch.testing.assert_close(hardtack.load(tmp_path / "m2.pkg")(X), other(X), rtol=1e-4, atol=1e-4)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(x))


def test_two_names_of_one_tensor_go_together(tmp_path: Path) -> None:
    path = export(made(Tied, 3), tmp_path / "m.pkg")
    second = made(Tied, 4)
    values = {n: t.clone() for n, t in second.state_dict().items()}
    one = {"a.weight": values["a.weight"]}
    out = tmp_path / "m2.pkg"
    message = "a.weight and b.weight are one tensor in the module: give values for both"
    assert refusal(path, one, out) == message
    message = "a.weight and b.weight are one tensor in the module, but the values given differ"
    assert refusal(path, {**one, "b.weight": torch.zeros(8, 8)}, out) == message
    hardtack.replace_weights(path, values, path=out)
    assert out.read_bytes() == export(second, tmp_path / "fresh.pkg").read_bytes()


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.mean()
        return self.total.clone()


def test_the_start_of_a_state_is_replaced(tmp_path: Path) -> None:
    path = export(made(Counter, 0), tmp_path / "m.pkg")
    hardtack.replace_weights(path, {"total": np.full(3, 5, np.float32)}, path=tmp_path / "m2.pkg")
    ours = hardtack.load(tmp_path / "m2.pkg")(X)
    torch.testing.assert_close(ours, torch.full((3,), 5.0) + X.mean())


def test_external_weights_stay_external(tmp_path: Path) -> None:
    second = made(Small, 7)
    path = export(made(Small, 0), tmp_path / "m.pkg", external_weights=True)
    before = (tmp_path / "m.safetensors").read_bytes()
    folder = tmp_path / "fresh"
    folder.mkdir()
    hardtack.replace_weights(path, second.state_dict(), path=tmp_path / "m2.pkg")
    assert (tmp_path / "m.safetensors").read_bytes() == before
    export(second, folder / "m2.pkg", external_weights=True)
    for name in ("m2.pkg", "m2.safetensors"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    verify_bundle(tmp_path / "m2.pkg")


def cli(*args: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in args])


def test_the_commands(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new = {"fc.bias": torch.arange(5.0), "brief": torch.arange(5.0).bfloat16()}
    safetensors.torch.save_file(new, tmp_path / "new.safetensors", metadata={"from": "elsewhere"})
    listed = json.loads(cli("weights", first, "--json").output)
    assert {"name": "fc.weight", "dtype": "f32", "shape": [5, 8], "aliases": []} in listed
    assert ["fc.weight", "f32[5,", "8]", "160"] in map(str.split, cli("weights", first).output.splitlines())

    assert cli("keygen", "k.pem").exit_code == 0
    assert cli("sign", first, "--key", "k.pem", "-o", "signed.pkg").exit_code == 0
    public = Path("k.pem.pub").read_text().strip()
    assert f"signed by {public}" in cli("inspect", "signed.pkg").output
    assert f"signed by {public}, a trusted key" in cli("verify", "signed.pkg", "--key", "k.pem.pub").output
    assert f"signed by {public}, not checked: no --key given" in cli("verify", "signed.pkg").output
    refused = cli("verify", "signed.pkg", "--key", "00" * 32)
    assert refused.exit_code == 1
    assert "signed.pkg: the bundle is signed by a key that is not among the 1 trusted ones" in refused.output
    assert cli("keygen", "k.pem").exit_code == 1
    assert cli("verify", "signed.pkg", "--key", "none").exit_code == 1

    done = cli("weights", "signed.pkg", "--set", "new.safetensors", "-o", "m2.pkg")
    assert done.exit_code == 0, done.output
    assert "m2.pkg: 2 tensors replaced" in done.output
    assert "the signature of the old bundle is not its; sign it with: hardtack sign" in done.output
    assert "not signed" in cli("inspect", "m2.pkg").output
    changed = cli("diff", first, "m2.pkg", "--json")
    rows = {(c["what"], c["name"]) for c in json.loads(changed.output)["changes"] if c["what"] == "constant"}
    assert rows == {("constant", "fc.bias"), ("constant", "brief")}
    assert cli("weights", first, "--set", "new.safetensors").exit_code == 2
    assert cli("weights", first, "-o", "m3.pkg").exit_code == 2


def test_a_file_of_weights_that_is_none(first: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    for data, problem in (
        (b"", "has 0 bytes; a safetensors file has at least 8"),
        (b"\x40" + bytes(7), "its header of 64 bytes does not fit in its 8 bytes"),
    ):
        bad.write_bytes(data)
        result = cli("weights", first, "--set", bad, "-o", tmp_path / "m2.pkg")
        assert (result.exit_code, f"{bad}: {problem}" in result.output) == (1, True), result.output
    header = b'{"fc.bias":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}}'
    bad.write_bytes(len(header).to_bytes(8, "little") + header + bytes(19))
    result = cli("weights", first, "--set", bad, "-o", tmp_path / "m2.pkg")
    assert f"{bad}: tensor 'fc.bias' ends at byte 89, the file at 88" in result.output


class Crossed(nn.Module):
    """Two layers in one order or the other: both entry points name what they fold after the same two ops."""

    def __init__(self, a: nn.Linear, b: nn.Linear, bias: nn.Parameter, folds: bool) -> None:
        super().__init__()
        self.a, self.b, self.bias, self.folds = a, b, bias, folds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.folds:
            return self.b(self.a(x)) + self.bias.sin()
        return self.a(self.b(x)) + self.bias


def crossed(seed: int) -> dict[str, nn.Module]:
    torch.manual_seed(seed)
    a, b, bias = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.randn(8))
    return {"ab": Crossed(a, b, bias, True).eval(), "ba": Crossed(a, b, bias, False).eval()}


def test_entry_points_share_weights_and_what_one_of_them_folds_is_fixed(tmp_path: Path) -> None:
    args = {"ab": (X,), "ba": (X,)}
    models, others = crossed(1), crossed(2)
    hardtack.export(models, args, path=tmp_path / "m.pkg", targets=("cpu:native",))
    values = others["ab"].state_dict()
    message = refusal(tmp_path / "m.pkg", {"bias": values["bias"]}, tmp_path / "m2.pkg")
    assert message.endswith("what can be replaced is: a.bias, a.weight, b.bias, b.weight")
    rest = {n: t for n, t in values.items() if n != "bias"}
    hardtack.replace_weights(tmp_path / "m.pkg", rest, path=tmp_path / "m2.pkg")
    with torch.no_grad():
        others["ab"].bias.copy_(models["ab"].bias)
    for path, wanted in (("m.pkg", models), ("m2.pkg", others)):
        model = hardtack.load(tmp_path / path)
        for entry, module in wanted.items():
            with torch.no_grad():
                torch.testing.assert_close(model.session(entry)(X), module(X), rtol=1e-4, atol=1e-4)


def test_entry_points_of_two_modules_keep_their_own_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    modules = {"one": nn.Linear(8, 8).eval(), "two": nn.Linear(8, 8).eval()}
    hardtack.export(modules, {"one": (X,), "two": (X,)}, path=tmp_path / "m.pkg", targets=("cpu:native",))
    model = hardtack.load(tmp_path / "m.pkg")
    for entry, module in modules.items():
        with torch.no_grad():
            torch.testing.assert_close(model.session(entry)(X), module(X), rtol=1e-4, atol=1e-4)
    message = refusal(tmp_path / "m.pkg", {"weight": np.zeros((8, 8), np.float32)}, tmp_path / "m2.pkg")
    assert message.endswith("what can be replaced is: nothing")
