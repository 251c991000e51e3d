"""Element types that format 2 of bundles brought, as inputs, outputs, constants and states of a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import hardtack
from hardtack.codegen.package.bundle import open_bundle, verify_bundle

UNSIGNED = (torch.uint16, torch.uint32)


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
