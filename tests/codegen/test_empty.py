"""Every template and the loops around views at size 0 in each dimension, fixed and dynamic: eager's shapes, no trap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.codegen.compare import assert_same, compile_module, eager, leaves
from tests.codegen.runner import KernelFailed

PROGRAMS: dict[str, tuple[Callable[..., object], tuple[tuple[int, ...], ...]]] = {
    "scans": (lambda x: [f(x, d) for d in range(3) for f in (torch.cumsum, torch.cumprod)], ((3, 4, 5),)),
    "extremes": (lambda x: [leaves(f(x, d)) for d in range(3) for f in (torch.cummax, torch.cummin)], ((3, 4, 5),)),
    "sums of exponentials": (lambda x: [torch.logcumsumexp(x, d) for d in range(2)], ((4, 5),)),
    "sorts": (lambda x: [leaves(torch.sort(x, d)) for d in range(3)], ((3, 4, 5),)),
    "product": (lambda x, y: x @ y, ((3, 4, 5), (3, 5, 6))),
    "linear": (lambda x: F.linear(x, torch.ones(7, 5), torch.ones(7)), ((2, 3, 5),)),
    "convolution": (lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), torch.ones(4), padding=1), ((2, 3, 5, 5),)),
    "depthwise": (lambda x: F.conv2d(x, torch.ones(3, 1, 3, 3), padding=1, groups=3), ((2, 3, 5, 5),)),
    "transposed": (lambda x: F.conv_transpose2d(x, torch.ones(3, 4, 3, 3), stride=2), ((2, 3, 5, 5),)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5),
        ((2, 3, 4, 8), (2, 3, 6, 8), (2, 3, 6, 8)),
    ),
    "a padded view": (lambda x: F.pad(x.permute(1, 0).reshape(-1), (1, 2)) * 2, ((3, 4),)),
    "a joined view": (lambda x, y: torch.cat([x.reshape(-1), y.permute(1, 0).reshape(-1)]), ((3, 4), (4, 2))),
    "a reshaped sum": (lambda x: x.permute(2, 0, 1).reshape(-1).sum(), ((3, 4, 5),)),
}
"""name -> a function of f32 tensors, and shapes with which it works. Equal sizes are one symbol where they must be."""


class Program(torch.nn.Module):
    """One of them as a module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.f = PROGRAMS[name][0]

    def forward(self, *args: torch.Tensor) -> list[torch.Tensor]:
        return leaves(self.f(*args))


def empties(name: str) -> list[list[tuple[int, int]]]:
    """Sets of (input, dim) that may be 0 together: each by itself, and all of one size."""
    shapes = PROGRAMS[name][1]
    every = [(i, d) for i, s in enumerate(shapes) for d in range(len(s))]
    tied = [[at for at in every if shapes[at[0]][at[1]] == n] for n in {n for s in shapes for n in s}]
    sets = [[at] for at in every] + [t for t in tied if len(t) > 1]
    return [s for s in sets if _runs(name, s)]


def _arguments(name: str, zero: list[tuple[int, int]]) -> tuple[torch.Tensor, ...]:
    shapes = PROGRAMS[name][1]
    return tuple(torch.ones([0 if (i, d) in zero else n for d, n in enumerate(s)]) for i, s in enumerate(shapes))


def _runs(name: str, zero: list[tuple[int, int]]) -> bool:
    args = _arguments(name, zero)
    if name == "attention" and len({a.shape[:2] for a in args}) + len({a.shape[2] for a in args[1:]}) > 2:
        return False  # eager broadcasts some of these
    try:
        Program(name)(*args)
    except (RuntimeError, IndexError):
        return False
    return True


@pytest.mark.parametrize("name", PROGRAMS)
def test_fixed(name: str) -> None:
    module = Program(name).eval()
    for zero in empties(name):
        args = _arguments(name, zero)
        assert_same(compile_module(module, args)(*args), eager(module, args))


DYNAMIC = {
    **{name: [(0, d)] for name, d in (("extremes", 1), ("sums of exponentials", 1), ("sorts", 0), ("depthwise", 0))},
    "scans": [(0, 0), (0, 1), (0, 2)],
    "product": [(0, 2), (1, 1)],
    "linear": [(0, 1)],
    "attention": [(0, 2)],
    "a padded view": [(0, 0), (0, 1)],
    "a joined view": [(0, 1), (1, 0)],
    "a reshaped sum": [(0, 0), (0, 1), (0, 2)],
}
"""What is exported with other sizes and run with 0."""


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic(name: str) -> None:
    module, free = Program(name).eval(), DYNAMIC[name]
    spec = tuple({d: Dim.DYNAMIC for i, d in free if i == k} for k in range(len(PROGRAMS[name][1])))
    compiled = compile_module(module, _arguments(name, []), (spec,))
    for zero in [[at] for at in free if _runs(name, [at])] + [free]:
        args = _arguments(name, zero)
        assert_same(compiled(*args), eager(module, args))


INDEXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "take": lambda x, i: torch.take(x, i % 7),
    "rows": lambda x, i: x[i] * 2,
    "summed rows": lambda x, i: x[i].sum(1),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "put": lambda x, i: x.index_put((i,), torch.ones(2, 4096)),
    "beside a product": lambda x, i: F.linear(torch.ones(2, 5), torch.ones(4096, 5)) + x[i],
}
"""Programs that index the first dimension of x, which may be 0, by i."""


class Indexed(torch.nn.Module):
    """One of them as a module."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.f = INDEXED[name]

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return self.f(x, i)


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_into_nothing_is_refused_before_anything_is_read(name: str) -> None:
    module, i = Indexed(name).eval(), torch.tensor([1, 2])
    compiled = compile_module(module, (torch.ones(7, 4096), i), ({0: Dim.DYNAMIC}, {}))
    assert_same(compiled(torch.ones(3, 4096), i), eager(module, (torch.ones(3, 4096), i)))
    with pytest.raises(KernelFailed):
        compiled(torch.ones(0, 4096), i)


def test_one_kernel_of_a_number_and_of_nothing() -> None:
    """Copies of no elements are one kernel, whether what they are copied from has elements or not."""

    class Repeats(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            return [x.repeat(0), y.repeat(0)]

    args = (torch.tensor(1.5), torch.zeros(0))
    module = Repeats().eval()
    assert_same(compile_module(module, args)(*args), eager(module, args))
