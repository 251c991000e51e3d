"""What came out wrong on a GPU alone: constants beside empty ones, rows without elements, values that pass through
memory within a kernel, special values beside a window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.gpu.support import assert_close, check, eager, exported, leaves


class Constants(nn.Module):
    """Empty constants among others, in the order of their names."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in {"a": (4,), "b": (0, 16), "c": (5, 4), "d": (0,), "e": (4,), "f": (0, 4)}.items():
            self.register_buffer(name, torch.randn(shape, generator=generator))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b, c, d, e, f = self.buffers()
        return x * a + e, c @ x.t(), (b * 2).sum(0), torch.cat([d, a]), torch.cat([f, c, f])


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x * x.sum(1, keepdim=True)
        none = x[:, :0]
        return y, none.all(0), none.sum(1) + x[:, 0], none.exp().prod(1), y[:, 2:2].neg(), torch.cdist(none, none[:2])


class Late(nn.Module):
    """A walk over long rows whose second nest reads what other threads have stored."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = x.exp()
        z = x * y.sum(-1, keepdim=True)
        return y, z, y.flip(-1) + z


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "constants": (Constants, (7, 4), False),
    "rows of nothing": (Nothing, (33, 5), False),
    "late": (Late, (40, 9000), True),
}


def test_probabilities_that_only_bfloat16_has(tmp_path: Path, target: str) -> None:
    """Subnormal ones, which f32 has too: above 0 where eager's are."""
    x = torch.tensor([[0.0, -87.5, -88.5, -90.0, -95.0]], device="cuda").expand(40, 5).bfloat16().contiguous()

    class Shares(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            shares = x.softmax(-1)
            return shares, shares > 0, x.exp() > 0

    check(Shares().cuda().eval(), [(x,)], tmp_path, target)


@pytest.mark.parametrize("name", CASES)
def test_corners(name: str, tmp_path: Path, target: str) -> None:
    make, shape, varies = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda")
    dynamic = ({0: Dim("rows", min=1, max=4096), 1: Dim("columns", min=2, max=1 << 16)},) if varies else None
    check(make().cuda().eval(), [(x,)], tmp_path, target, dynamic, scale=5)


def test_special_values_stay_in_their_windows(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    module = nn.Conv2d(3, 8, (5, 2)).cuda().eval()
    x = torch.randn(1, 3, 9, 7, device="cuda")
    x.view(-1)[5], x.view(-1)[90], x.view(-1)[-3] = torch.inf, torch.nan, -torch.inf
    (want,) = eager(module, (x,))
    assert want.isfinite().any()
    (got,) = leaves(exported(module, (x,), tmp_path, target)(x))
    assert torch.equal(got.isfinite(), want.isfinite())
    assert_close([got.nan_to_num(0.0, 0.0, 0.0)], [want.nan_to_num(0.0, 0.0, 0.0)], 5)


def test_bags_of_one_size_have_the_same_bits(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    module = nn.EmbeddingBag(33, 8, mode="mean").cuda().eval()
    i = torch.randint(0, 33, (64, 257), device="cuda")
    session = exported(module, (i,), tmp_path, target).session()
    first, *others = [leaves(session(i))[0].clone() for _ in range(6)]
    assert_close([first], eager(module, (i,)))
    assert all(torch.equal(first, other) for other in others)
