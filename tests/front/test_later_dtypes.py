"""Element types that format 2 of bundles brought, as inputs, outputs, constants and states of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import hardtack
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.errors import ReplaceError
from hardtack.comparison import compare
from hardtack.exporter import dtypes
from tests.codegen.compare import to_numpy

UNSIGNED = (torch.uint16, torch.uint32)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class Mixed(torch.nn.Module):
    """A table that indices pick from, and the last input as a state."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        top = torch.iinfo(dtype).max
        self.register_buffer("table", torch.tensor([[1, top], [top - 2, 3], [0, top // 2 + 1]], dtype=dtype))
        self.register_buffer("last", torch.tensor([7, top], dtype=dtype))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.last.clone()
        self.last.copy_(x)
        return self.table[index], before, x ^ before, x.float() * 0.5


def number_of(path: Path) -> int:
    with open_bundle(path) as bundle:
        return bundle.manifest.format


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_everywhere(dtype: torch.dtype, tmp_path: Path) -> None:
    path, module = tmp_path / "m.pkg", Mixed(dtype).eval()
    x, index = torch.tensor([40000, torch.iinfo(dtype).max], dtype=dtype), torch.tensor([2, 0, 1])
    hardtack.export(module, (x, index), path=path)
    assert number_of(path) == 2
    assert verify_bundle(path).num_constants == 2
    session = hardtack.load(path, threads=1).session("forward")
    for given in (x, x[[1, 0]]):
        got, want = session(given, index), module(given, index)
        assert [g.dtype for g in got] == [w.dtype for w in want]
        assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
    np.testing.assert_array_equal(session.read_state("last"), x[[1, 0]].numpy())
    session.write_state("last", np.array([5, 6], x.numpy().dtype))
    np.testing.assert_array_equal(session(x.numpy(), index.numpy())[1], [5, 6])


def test_arrays_of_uint16_are_bits_where_bf16_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    example = (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.uint16))
    hardtack.export(torch.nn.Identity().eval(), (example[0],), path=path)
    assert number_of(path) == 1
    bits = np.array([0x3F80, 0x4000], np.uint16)
    np.testing.assert_array_equal(hardtack.load(path, threads=1)(bits), bits)
    with pytest.raises(hardtack.InputError, match="u16"):
        hardtack.load(path, threads=1)(example[1])


def test_a_bundle_without_them_is_read_by_older_versions(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    hardtack.export(torch.nn.ReLU().eval(), (torch.ones(2),), path=path)
    assert number_of(path) == 1


def test_codes_inside_of_a_plan_count_too(tmp_path: Path) -> None:
    """No input, output, constant or state is u16, but a value between two kernels."""

    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.uint16).sort(dim=0, stable=True).values.float()

    path, x = tmp_path / "m.pkg", torch.tensor([5.0, 65535.0, 3.5, 40000.0])
    hardtack.export(Sorted().eval(), (x,), path=path)
    assert number_of(path) == 2
    assert hardtack.load(path, threads=1)(x).tolist() == [3.0, 5.0, 40000.0, 65535.0]


def test_weights_are_replaced(tmp_path: Path) -> None:
    path, changed = tmp_path / "m.pkg", tmp_path / "changed.pkg"
    index = torch.tensor([1])
    x = torch.tensor([1, 2], dtype=torch.uint32)
    hardtack.export(Mixed(torch.uint32).eval(), (x, index), path=path)
    table = np.array([[1, 2], [2**32 - 1, 2**31], [3, 4]], np.uint32)
    hardtack.replace_weights(path, {"table": table}, path=changed)
    assert number_of(changed) == 2
    np.testing.assert_array_equal(hardtack.load(changed, threads=1)(x.numpy(), index.numpy())[0], table[1:2])


class Codes(torch.nn.Module):
    """The last codes as a state, a table of them, and conversions both ways."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        every = torch.arange(256).to(torch.uint8).view(dtype).reshape(64, 4)
        self.register_buffer("table", every)
        self.register_buffer("last", every[:1].clone())

    def forward(self, codes: torch.Tensor, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.last.clone()
        self.last.copy_(codes)
        return F.embedding(index, self.table), before, codes.to(x.dtype) * x, (x * 3).to(self.dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8) if x.dtype in FLOAT8 else x


@pytest.mark.sweep(over="number")
@pytest.mark.parametrize("number", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_everywhere(dtype: torch.dtype, number: torch.dtype, tmp_path: Path) -> None:
    path, module = tmp_path / "m.pkg", Codes(dtype).eval()
    codes = torch.tensor([[0.5, -3.5, 240.0, 0.0]]).to(dtype)
    x, index = torch.tensor([[0.3, 1e-3, -100.0, 7.0]], dtype=number), torch.tensor([31, 2])
    hardtack.export(module, (codes, x, index), path=path)
    assert number_of(path) == 2
    session = hardtack.load(path, threads=1).session("forward")
    for given in (codes, codes[:, [1, 3, 0, 2]]):
        got, want = session(given, x, index), module(given, x, index)
        assert [g.dtype for g in got] == [w.dtype for w in want]
        assert all(torch.equal(bits(g), bits(w)) for g, w in zip(got, want, strict=True))
    np.testing.assert_array_equal(session.read_state("last"), bits(given).numpy())
    session.write_state("last", np.array([[1, 2, 3, 255]], np.uint8))
    arrays = [to_numpy(t) for t in (codes, x, index)]
    again = session(*arrays)
    np.testing.assert_array_equal(again[1], [[1, 2, 3, 255]])
    assert again[3].dtype == np.uint8
    compared = compare(hardtack.load(path, threads=1), Codes(dtype).eval(), (codes, x, index), steps=True)
    assert all(d.good for d in (*compared.outputs, *compared.steps))


def test_arrays_of_ml_dtypes(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path, x = tmp_path / "m.pkg", torch.tensor([1.0, -448.0, 0.25]).to(torch.float8_e4m3fn)
    hardtack.export(Converted(torch.float32), (x,), path=path)
    model = hardtack.load(path, threads=1)
    np.testing.assert_array_equal(model(np.array([1, -448, 0.25], ml_dtypes.float8_e4m3fn)), [1, -448, 0.25])
    with pytest.raises(hardtack.InputError, match=r"f8e5m2"):
        model(np.array([1, -448, 0.25], ml_dtypes.float8_e5m2))
    with pytest.raises(hardtack.InputError, match="dtype is f32, expected f8e4m3fn"):
        model(np.ones(3, np.float32))


class Scales(torch.nn.Module):
    """Powers of 2 as an input, a constant, a state and outputs."""

    def __init__(self) -> None:
        super().__init__()
        codes = torch.arange(256).to(torch.uint8).view(torch.float8_e8m0fnu).reshape(64, 4)
        self.register_buffer("table", codes)
        self.register_buffer("last", codes[:1].clone())

    def forward(self, codes: torch.Tensor, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.last.clone()
        self.last.copy_(codes)
        return F.embedding(index, self.table), before, codes.to(x.dtype) * x, (x * 3).to(torch.float8_e8m0fnu)


def test_powers_of_two_everywhere(tmp_path: Path) -> None:
    path, changed, module = tmp_path / "m.pkg", tmp_path / "changed.pkg", Scales().eval()
    codes = torch.tensor([[0.5, 2.0**-127, float("nan"), 2.0**127]]).to(torch.float8_e8m0fnu)
    x, index = torch.tensor([[0.3, 1e-3, -100.0, 7.0]]), torch.tensor([63, 0])
    hardtack.export(module, (codes, x, index), path=path)
    assert number_of(path) == 2
    model = hardtack.load(path, threads=1)
    got, want = model(codes, x, index), module(codes, x, index)
    assert [g.dtype for g in got] == [w.dtype for w in want]
    assert all(torch.equal(_raw(g), _raw(w)) for g, w in zip(got[:2] + got[3:], want[:2] + want[3:], strict=True))
    torch.testing.assert_close(got[2], want[2], rtol=0, atol=0, equal_nan=True)
    np.testing.assert_array_equal(model(*map(to_numpy, (codes, x, index)))[0], _raw(want[0]).numpy())
    table = torch.full((64, 4), 4.0).to(torch.float8_e8m0fnu)
    for given in (table, _raw(table).numpy()):
        hardtack.replace_weights(path, {"table": given}, path=changed)
        assert torch.equal(_raw(hardtack.load(changed, threads=1)(codes, x, index)[0]), _raw(table[:2]))


def _raw(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8) if x.element_size() == 1 else x


class Converted(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self.dtype)


def test_codes_are_replaced(tmp_path: Path) -> None:
    path, changed = tmp_path / "m.pkg", tmp_path / "changed.pkg"
    codes, x, index = torch.ones(1, 4).to(torch.float8_e5m2), torch.ones(1, 4), torch.tensor([3])
    hardtack.export(Codes(torch.float8_e5m2).eval(), (codes, x, index), path=path)
    table = torch.full((64, 4), -1.75).to(torch.float8_e5m2)
    for given in (table, bits(table).numpy()):
        hardtack.replace_weights(path, {"table": given}, path=changed)
        got = hardtack.load(changed, threads=1)(codes, x, index)[0]
        assert torch.equal(bits(got), bits(table[3:4]))
    with pytest.raises(ReplaceError, match="f8e4m3fn"):
        hardtack.replace_weights(path, {"table": table.to(torch.float8_e4m3fn)}, path=changed)


def test_older_versions_of_torch_make_nan_of_what_e4m3_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "E4M3_SATURATES", False)
    x = torch.tensor([463.9, 464.0, 464.1, -1e9, float("inf"), float("nan"), -2.0])
    path = tmp_path / "m.pkg"
    hardtack.export(Converted(torch.float8_e4m3fn), (x,), path=path)
    got = hardtack.load(path, threads=1)(x).float()
    nan = float("nan")
    torch.testing.assert_close(got, torch.tensor([448.0, 448.0, nan, nan, nan, nan, -2.0]), equal_nan=True)


@pytest.mark.parametrize(
    ("function", "name", "what"),
    [
        (lambda x: x + x, "aten.add.Tensor", "add is not defined on (f8e4m3fn, f8e4m3fn)"),
        (lambda x: x.sum(), "aten.sum", "reduce is not defined on f8e4m3fn"),
        (lambda x: x.floor(), "aten.floor.default", "floor is not defined on (f8e4m3fn)"),
        (lambda x: x.abs().round(), "aten.abs.default", "abs is not defined on (f8e4m3fn)"),
        (lambda x: x.sort().values, "aten.sort.default", "sort is not defined on f8e4m3fn"),
        (lambda x: x[None] @ x[:, None], "aten.mm.default", "matmul is not defined on f8e4m3fn"),
        (lambda x: torch.full_like(x, 1e3), "aten.full", "the scalar 1000.0 does not fit f8e4m3fn (-448.0 to 448.0)"),
    ],
)
def test_what_float8_has_not_is_refused_in_words(function: Any, name: str, what: str, tmp_path: Path) -> None:
    x = torch.ones(3).to(torch.float8_e4m3fn)
    with pytest.raises(hardtack.ExportError) as caught:
        hardtack.export(Called(function), (x,), path=tmp_path / "m.pkg")
    said = str(caught.value)
    assert [part for part in (name, what, "test_later_dtypes.py") if part not in said] == []


class Called(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


class Doubled(torch.nn.Module):
    def forward(self, codes: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.cat([codes, codes]), codes.float() * x, x.to(codes.dtype), codes.bfloat16().sum(0)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_of_any_size(dtype: torch.dtype, tmp_path: Path) -> None:
    path, module, n = tmp_path / "m.pkg", Doubled().eval(), Dim("n", max=64)

    def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(rows, 5).to(dtype), torch.randn(rows, 5)

    hardtack.export(module, inputs(4), dynamic_shapes={"codes": {0: n}, "x": {0: n}}, path=path)
    model = hardtack.load(path, threads=1)
    for rows in (0, 1, 2, 37, 64):
        given = inputs(rows)
        got, want = model(*given), module(*given)
        assert [g.shape for g in got] == [w.shape for w in want]
        assert all(torch.equal(bits(g), bits(w)) for g, w in zip(got, want, strict=True))
