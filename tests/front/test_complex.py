"""Complex numbers as inputs, outputs, states and constants: numpy and torch, both readers, the tools, refusals."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import torch
from torch.export import Dim

import hardtack
from hardtack.codegen.package import canonical
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare
from hardtack.errors import InputError

NATIVE = ("cpu:native",)


class Filter(torch.nn.Module):
    """Complex everywhere: a constant, two states of both sizes, inputs and outputs, and real ones beside."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taps", torch.tensor([1 + 2j, -1j, 0.5, 3 - 1j]).conj())
        self.register_buffer("total", torch.zeros(4, dtype=torch.complex64))
        self.register_buffer("turn", torch.tensor([1j, -1], dtype=torch.complex128))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        self.total.add_(x.sum(0))
        self.turn.mul_(1j)
        z = x * self.taps + y
        return {
            "z": z,
            "same": x.clone(),
            "conjugate": z.conj(),
            "pairs": torch.view_as_real(x.resolve_conj()),
            "size": z.abs(),
            "total": self.total.clone(),
            "turn": self.turn * 1,
        }


def samples(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


Y = torch.tensor(1 - 2j)
DYNAMIC = {"x": {0: Dim("n", max=10)}, "y": None}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("complex") / "filter.pkg"
    hardtack.export(Filter().eval(), (samples(3), Y), path=out, dynamic_shapes=DYNAMIC, targets=NATIVE)
    return out


@pytest.fixture
def session(path: Path) -> hardtack.Session:
    return hardtack.load(path, threads=1).session()


def check(ours: dict[str, Any], eager: dict[str, torch.Tensor]) -> None:
    assert list(ours) == list(eager)
    for name, want in eager.items():
        found = torch.as_tensor(ours[name])
        torch.testing.assert_close(found, want.resolve_conj(), rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_description(path: Path) -> None:
    model = hardtack.load(path)
    entry = model.entries["forward"]
    assert [str(t) for t in entry.inputs] == ["x: c64[n, 4]", "y: c64[]"]
    assert entry.inputs[0].strides == (4, 1)
    kinds = {t.name: t.dtype for t in entry.outputs}
    assert kinds == {
        "z": "c64", "same": "c64", "conjugate": "c64", "pairs": "f32", "size": "f32", "total": "c64", "turn": "c128",
    }  # fmt: skip
    assert {n: str(t) for n, t in model.states.items()} == {"total": "total: c64[4]", "turn": "turn: c128[2]"}
    with open_bundle(path) as bundle:
        assert bundle.manifest.format == 4


@pytest.mark.parametrize("n", [0, 1, 5])
def test_torch_and_numpy_in_and_out(session: hardtack.Session, n: int) -> None:
    eager, x = Filter().eval(), samples(n, 1)
    check(session(x, Y), eager(x, Y))
    out = session(x.numpy(), Y.numpy())
    assert type(out["z"]) is np.ndarray
    assert out["z"].dtype == np.complex64
    assert out["turn"].dtype == np.complex128
    check(out, eager(x, Y))


def test_tensors_that_are_conjugated_or_negated_lazily(session: hardtack.Session) -> None:
    eager = Filter().eval()
    for x, y in (
        (samples(3, 2).conj(), Y),
        (samples(1, 3).conj(), Y.conj()),
        (torch._neg_view(samples(3, 4)), torch._neg_view(Y)),
        (torch._neg_view(samples(3, 5)).conj(), Y),
        (samples(4, 6).t().conj(), Y),
        (samples(6, 7)[::2].conj(), Y),
    ):
        assert x.is_conj() or x.is_neg()
        check(session(x, y), eager(x, y))


def test_other_strides_and_python_numbers(session: hardtack.Session) -> None:
    eager, x = Filter().eval(), samples(4, 8)
    check(session(x.t(), 1 - 2j), eager(x.t(), Y))
    check(session(x.numpy()[:, ::-1], 3j), eager(x.flip(1), torch.tensor(3j)))
    with pytest.raises(InputError, match=r"input y: c64\[\] cannot be the Python float 1\.0"):
        session(x, 1.0)


def test_reals_are_not_taken_for_complex_numbers(session: hardtack.Session) -> None:
    with pytest.raises(InputError, match=r'input "x" \(0 of entry "forward"\): dtype is f32, expected c64'):
        session(torch.ones(3, 4), Y)
    with pytest.raises(InputError, match="dtype is c128, expected c64"):
        session(samples(3).to(torch.complex128), Y)
    with pytest.raises(InputError, match="rank is 3, expected 2"):
        session(samples(3)[None], Y)
    with pytest.raises(InputError, match=r"dimension 1 is 3, expected 4"):
        session(samples(3)[:, :3], Y)
    with pytest.raises(InputError, match="dtype is DLPack code 5, 32 bits, 1 lanes, expected c64"):
        session(samples(3).to(torch.complex32), Y)
    with pytest.raises(InputError, match="numpy dtype complex256 is not one that models take"):
        session(samples(3).numpy().astype(np.complex256), Y)


def test_states_are_read_and_written(path: Path) -> None:
    session, eager, x = hardtack.load(path, threads=1).session(), Filter().eval(), samples(3, 9)
    session(x, Y)
    eager(x, Y)
    assert session.read_state("total").dtype == np.complex64
    np.testing.assert_allclose(session.read_state("total"), eager.total.numpy(), rtol=1e-5)
    session.write_state("total", np.array([1j, 2, 3, 4], np.complex64))
    eager.total.copy_(torch.tensor([1j, 2, 3, 4]))
    check(session(x, Y), eager(x, Y))
    with pytest.raises(InputError, match=r"state total: c64\[4\] cannot take an array float32\[4\]"):
        session.write_state("total", np.zeros(4, np.float32))
    session.reset()
    np.testing.assert_array_equal(session.read_state("turn"), np.array([1j, -1]))


def test_comparison_with_eager_step_by_step(path: Path) -> None:
    found = compare(hardtack.load(path), Filter().eval(), (samples(3), Y), dynamic_shapes=DYNAMIC, steps=True)
    assert [d.dtype for d in found.outputs][:4] == ["complex64", "complex64", "complex64", "float32"]
    assert found.steps
    assert all(d.good for d in (*found.outputs, *found.steps))

    class Other(Filter):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            return super().forward(x, y.conj())

    other = compare(hardtack.load(path), Other().eval(), (samples(3), Y), dynamic_shapes=DYNAMIC)
    assert not other.outputs[0].good


def test_the_tools_without_python(path: Path, tmp_path: Path) -> None:
    x = samples(3, 10)
    for name, array in (("x", x.numpy()), ("y", Y.numpy())):
        np.save(tmp_path / f"{name}.npy", array)
    line = ["hardtack-rt", "run", str(path), "-i", f"x={tmp_path}/x.npy", "-i", f"y={tmp_path}/y.npy"]
    subprocess.run([*line, "-o", str(tmp_path / "out")], check=True, capture_output=True)
    eager = Filter().eval()(x, Y)
    for name in ("z", "turn"):
        found = np.load(next((tmp_path / "out").glob(f"{name}*.npy")))
        np.testing.assert_allclose(found, eager[name].numpy(), rtol=1e-5, atol=1e-6)
    shown = subprocess.run(["hardtack-rt", "inspect", str(path)], check=True, capture_output=True, text=True).stdout
    assert "c64 [n, 4]" in shown
    assert "c128 [2]" in shown


def edited(path: Path, tmp_path: Path, key: tuple[Any, ...], value: object) -> tuple[str, str]:
    """What both readers say of the bundle with one item of its manifest changed."""
    with zipfile.ZipFile(path) as archive:
        files = {n: archive.read(n) for n in archive.namelist()}
    document = json.loads(files["manifest.json"])
    at = document
    for k in key[:-1]:
        at = at[k]
    assert at[key[-1]] != value
    at[key[-1]] = value
    out = tmp_path / "edited.pkg"
    out.write_bytes(corpus.pack({**files, "manifest.json": canonical.dumps(document)}))
    return corpus.python_error(out), corpus.runtime_error(out)


EDITS = {
    ("format",): (3, "'total' is c64, which came with format 4; its own is 3"),
    ("entries", 0, "inputs", 0, "dtype"): ("c128", "input 'x' is f32; the manifest says f64"),
    ("entries", 0, "inputs", 1, "dtype"): ("f32", "input 'y' has 1 dimensions; the manifest says 0"),
    ("entries", 0, "outputs", 0, "dtype"): ("f32", "has 3 dimensions; the manifest says 2"),
    ("entries", 0, "outputs", 4, "dtype"): ("c64", "has 2 dimensions; the manifest says 3"),
    ("entries", 0, "inputs", 0, "strides"): ([8, 1], "has the stride 8 in dimension 0; the manifest says 16"),
    ("states", 0, "dtype"): ("f32", "total"),
    ("states", 1, "dtype"): ("c64", "turn"),
    ("states", 1, "shape"): ([3], "turn"),
}


@pytest.mark.parametrize("key", EDITS, ids=lambda key: ".".join(map(str, key)))
def test_both_readers_check_complex_numbers_against_the_plan(path: Path, tmp_path: Path, key: tuple[Any, ...]) -> None:
    value, words = EDITS[key]
    python, runtime = edited(path, tmp_path, key, value)
    assert words in python
    assert "HT_BAD_BUNDLE" in runtime


def test_complex_numbers_are_of_interfaces_only(path: Path, tmp_path: Path) -> None:
    python, runtime = edited(path, tmp_path, ("constants", 0, "dtype"), "c64")
    assert "dtype" in python
    assert 'unknown dtype "c64"' in runtime


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_complex32_is_refused() -> None:
    with pytest.raises(hardtack.ExportError, match="input x: element type complex32 is not supported: complex64 is"):
        hardtack.export(Twice().eval(), (samples(2).to(torch.complex32),), path="never.pkg")


@pytest.mark.parametrize("lazily", [torch.conj, torch._neg_view, lambda x: x.t().conj()], ids=["conj", "neg", "t"])
def test_examples_that_are_lazy(lazily: Any, tmp_path: Path) -> None:
    x = lazily(samples(4))
    out = tmp_path / "twice.pkg"
    hardtack.export(Twice().eval(), (x,), path=out, targets=NATIVE)
    found = hardtack.load(out)(x)
    assert torch.equal(found, (x * 2).resolve_conj())


class Spectrum(torch.nn.Module):
    """Ops of every family, in the kernels of a CPU."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.fft.fft2(x),
            torch.fft.irfft(x, n=5),
            x @ y.mH,
            x.prod(1),
            y.cumprod(0),
            torch.where(x == x.conj(), x, y.exp()),
            torch.cat([x, y.real.to(x.dtype)], 1).flip(0),
            x.asin() * y.log1p(),
            torch.linalg.vector_norm(x, dim=1),
        )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
def test_ops_of_every_family(dtype: torch.dtype, tmp_path: Path) -> None:
    x, y = samples(3, 1).to(dtype), samples(3, 2).to(dtype)
    out = tmp_path / "spectrum.pkg"
    hardtack.export(Spectrum().eval(), (x, y), path=out, targets=NATIVE)
    for found, want in zip(hardtack.load(out)(x, y), Spectrum()(x, y), strict=True):
        torch.testing.assert_close(found, want, rtol=2e-5, atol=2e-5)
