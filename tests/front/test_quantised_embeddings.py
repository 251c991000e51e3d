"""Embeddings of few bits: stored as codes, read where rows are picked; bit by bit what floats give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hardtack
from hardtack.codegen.package.errors import ReplaceError

ROWS = 1000
TARGETS = ("cpu:x86-64-v3", "cuda:sm_90")


class Rows(nn.Module):
    """Rows of a weight that is dequantised as `group` neighbours have a scale, with zero points or without. narrow: in
    bf16."""

    def __init__(self, width: int, bits: int = 8, group: int = 0, unsigned: bool = False, narrow: bool = False) -> None:
        super().__init__()
        half = 1 << (bits - 1)
        low, dtype = (0, torch.uint8) if unsigned else (-half, torch.int8)
        self.group = group or width
        self.weight = nn.Buffer(torch.randint(low, low + 2 * half, (ROWS, width)).to(dtype))
        self.scales = nn.Buffer(torch.rand(ROWS, width // self.group) + 0.01)
        self.zeros = nn.Buffer(torch.randint(0, 9, (ROWS, width // self.group)).float() if unsigned else torch.zeros(0))
        if narrow:
            self.bfloat16()

    def floats(self) -> Tensor:
        w = self.weight.to(self.scales.dtype).reshape(ROWS, -1, self.group)
        if self.zeros.numel():
            w = w - self.zeros[..., None]
        return (w * self.scales[..., None]).reshape(ROWS, -1)

    def forward(self, i: Tensor) -> Tensor:
        return F.embedding(i, self.floats()) + 1.0


class Tied(Rows):
    """Rows, and a product with all of them."""

    def forward(self, i: Tensor) -> Tensor:
        return F.linear(F.embedding(i, self.floats()), self.floats())


class Spelled(Rows):
    """Other ways to pick."""

    def forward(self, i: Tensor) -> tuple[Tensor, ...]:
        w = self.floats()
        columns = i % w.shape[1]
        return (
            w[i, columns],
            w.t()[columns].sum(-1),
            w.index_select(0, i.flatten()),
            torch.gather(w[10:], 0, columns[:, :5]),
            w.reshape(ROWS // 2, 2, -1)[i // 2],
        )


class Whole(Rows):
    """What needs all of the weight as float."""

    def forward(self, i: Tensor) -> Tensor:
        return F.embedding(i, self.floats()) + self.floats().sum(0)


def exported(module: nn.Module, path: Path, targets: tuple[str, ...] = TARGETS) -> hardtack.ExportInfo:
    return hardtack.export(module.eval(), (torch.randint(0, ROWS, (3, 8)),), path=path, targets=targets)


MADE: dict[str, Callable[[], Rows]] = {
    "bytes": lambda: Rows(48),
    "bytes in groups": lambda: Rows(96, group=32),
    "unsigned": lambda: Rows(48, group=16, unsigned=True),
    "unsigned, of bf16": lambda: Rows(48, group=16, unsigned=True, narrow=True),
    "4 bits, of bf16": lambda: Rows(64, bits=4, group=16, narrow=True),
    "4 bits": lambda: Rows(64, bits=4, group=16),
    "4 bits, unsigned": lambda: Rows(40, bits=4, group=8, unsigned=True),
    "4 bits, an odd width": lambda: Rows(33, bits=4),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_rows_of_codes_are_those_of_floats(tmp_path: Path, made: Callable[[], Rows]) -> None:
    torch.manual_seed(0)
    module = made()
    info = exported(module, tmp_path / "m.pkg", ("cpu:x86-64-v3", "cpu:native"))
    codes = module.weight.numel() // (1 if module.weight.max() > 15 else 2) + ROWS
    assert info.widened == ()
    assert info.weights_nbytes < codes + 4 * (module.scales.numel() + module.zeros.numel()) + 8192
    session = hardtack.load(info.path).session()
    for _ in range(3):
        i = torch.randint(0, ROWS, (3, 8))
        assert torch.equal(session(i), module(i))


@pytest.mark.parametrize("bits", [4, 8])
def test_other_ways_to_pick(tmp_path: Path, bits: int) -> None:
    torch.manual_seed(0)
    module = Spelled(64, bits=bits, group=16)
    info = exported(module, tmp_path / "m.pkg", TARGETS[:1])
    assert info.widened == ()
    i = torch.randint(0, ROWS, (3, 8))
    for found, want in zip(hardtack.load(info.path).session()(i), module(i), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-5)


def test_an_index_beyond_the_rows_is_refused(tmp_path: Path) -> None:
    info = exported(Rows(33, bits=4), tmp_path / "m.pkg", TARGETS[:1])
    with pytest.raises(hardtack.RunError, match="an index is out of range"):
        hardtack.load(info.path).session()(torch.full((3, 8), ROWS))


@pytest.mark.sweep(share=3)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_rows_of_codes_are_replaced(tmp_path: Path, made: Callable[[], Rows]) -> None:
    torch.manual_seed(0)
    module, other = made(), made()
    path = exported(module, tmp_path / "m.pkg").path
    fresh = exported(other, tmp_path / "other.pkg").path
    hardtack.replace_weights(
        path, {k: v for k, v in other.state_dict().items() if v.numel()}, path=tmp_path / "new.pkg"
    )
    assert (tmp_path / "new.pkg").read_bytes() == fresh.read_bytes()


def test_a_gpu_has_codes_too(tmp_path: Path) -> None:
    assert exported(Rows(64, bits=4, group=16), tmp_path / "m.pkg").widened == ()


def test_a_tied_weight_is_stored_as_codes(tmp_path: Path) -> None:
    """Plain and in panels: less than floats would be. A GPU's products read them as embeddings do."""
    torch.manual_seed(0)
    module, i = Tied(64, bits=4, group=16), torch.randint(0, ROWS, (3, 8))
    info = exported(module, tmp_path / "m.pkg", TARGETS[:1])
    assert info.widened == ()
    assert info.weights_nbytes < 2 * (ROWS * 32 + ROWS * 16) + 16384
    torch.testing.assert_close(hardtack.load(info.path).session()(i), module(i), rtol=1e-4, atol=1e-4)
    both = exported(module, tmp_path / "both.pkg", TARGETS[1:])
    assert both.widened == ()
    assert both.weights_nbytes < ROWS * 32 + ROWS * 16 + 16384


def test_what_needs_floats_has_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, i = Whole(64), torch.randint(0, ROWS, (3, 8))
    info = exported(module, tmp_path / "m.pkg", TARGETS[:1])
    torch.testing.assert_close(hardtack.load(info.path).session()(i), module(i), rtol=1e-5, atol=1e-4)
    with pytest.raises(ReplaceError, match="weight"):
        hardtack.replace_weights(info.path, {"weight": module.weight}, path=tmp_path / "new.pkg")
