"""Products with weights of 4 bits as torch packs them for CPUs."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from hardtack.exporter import CaptureError, to_graphs
from hardtack.exporter.decompose import packed_int4
from tests.export.checks import check, entry


def codes_of(n: int, k: int) -> torch.Tensor:
    return torch.randint(0, 16, (n, k), generator=torch.Generator().manual_seed(n), dtype=torch.int32)


class Packed(nn.Module):
    """A weight (n, k) in groups along k."""

    def __init__(self, n: int, k: int, group: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.group = group
        self.weight = nn.Buffer(torch._convert_weight_to_int4pack_for_cpu(codes_of(n, k), 1))
        g = torch.Generator().manual_seed(1)
        self.scales_and_zeros = nn.Buffer(torch.randn(k // group, n, 2, generator=g).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._weight_int4pack_mm_for_cpu(x, self.weight, self.group, self.scales_and_zeros)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("n", "k", "group"), [(64, 64, 32), (16, 128, 128), (112, 128, 64)])
def test_gives_what_eager_does_and_keeps_the_codes(n: int, k: int, group: int, dtype: torch.dtype) -> None:
    x = torch.randn(5, k, generator=torch.Generator().manual_seed(0)).to(dtype)
    atol = {torch.float32: 1e-3, torch.float16: 0.07, torch.bfloat16: 0.5}[dtype]  # the last place of some 60
    exported = check(Packed(n, k, group, dtype).eval(), (x,), atol=atol)
    (quantized,) = (c.quantized for c in entry(exported).graph.constants if c.quantized is not None)
    assert quantized.bits == 4
    assert [(s.kind, s.runs) for s in quantized.steps] == [("sub", (k, n)), ("mul", (group, 1)), ("add", (group, 1))]


def packed_by_hand(codes: torch.Tensor, block: int, apart: bool) -> torch.Tensor:
    """Byte by byte."""
    (n, k), found = codes.shape, []
    for begin in range(0, n, block):
        columns = codes[begin : begin + block]
        count = len(columns)
        half = count // 2
        for depth in range(k):
            for j in range(half):
                low, high = (j, j + half) if apart and count == block else (2 * j, 2 * j + 1)
                found.append(int(columns[low, depth]) | int(columns[high, depth]) << 4)
    return torch.tensor(found, dtype=torch.uint8).view(n, k // 2)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize("n", [16, 64, 80, 208])
def test_every_layout_is_unpacked(n: int, block: int, apart: bool) -> None:
    """Those of CPUs with AVX-512, with AVX2, and of others."""
    codes = codes_of(n, 6)
    found = packed_int4._Layout(block, apart).codes(packed_by_hand(codes, block, apart))
    assert torch.equal(found.int(), codes)


def test_a_torch_that_packs_nothing_exports_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(torch, "_convert_weight_to_int4pack_for_cpu", missing)
    monkeypatch.setattr(packed_int4, "_layout", functools.cache(packed_int4._layout.__wrapped__))
    assert packed_int4._layout() is None
    check(nn.Linear(4, 3).eval(), (torch.randn(2, 4),))


def test_packing_is_asked_on_the_cpu() -> None:
    """Whatever device tensors are made on by default."""
    with torch.device("meta"):
        assert packed_int4._layout.__wrapped__() is not None


def test_a_layout_that_is_not_known_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_int4, "_layout", lambda: None)
    with pytest.raises(CaptureError) as caught:
        to_graphs(Packed(16, 64, 32, torch.float32).eval(), (torch.randn(2, 64),))
    assert "_weight_int4pack_mm_for_cpu: how torch packs weights of 4 bits on this CPU is not known" in str(
        caught.value
    )
