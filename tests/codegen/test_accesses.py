"""What kernels declare to access: that readers put parts together soundly, and what kernels of parts of buffers really
write. For every op, test_ops.py looks at what kernels write.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hardtack
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.plan import Access, span
from hardtack.codegen.plan.accesses import tighter
from tests.codegen.access_runner import AccessRunner
from tests.codegen.compare import compile_module


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([x, y, x.flip(1)], 1), torch.stack([x.cumsum(1), x.cumsum(0)], 1)


class Pieces(torch.nn.Module):
    """A product whose rows are one axis of the kernel and three dimensions of what its epilogue writes a part of."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = torch.nn.Linear(10, 17), torch.nn.Linear(10, 17)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.gate(x).sigmoid() * self.up(x)
        return torch.cat([y, y, y], -3)


@pytest.mark.parametrize("dynamic", [None, 0, 1, 2])
def test_parts_that_a_kernel_writes_by_the_digits_of_an_axis_are_declared(dynamic: int | None) -> None:
    x = torch.randn(3, 8, 12, 10, generator=torch.Generator().manual_seed(1))
    shapes = None if dynamic is None else ({dynamic: torch.export.Dim("n", min=0)},)
    compiled = compile_module(Pieces().eval(), (x,), shapes, runner=AccessRunner)
    compiled(x)
    kernels = [
        k for k in compiled.entry.plan.kernels for c in k.calls if sum(a.fills for x in c.accesses for a in x) == 3
    ]
    assert kernels, "no kernel fills three parts of one buffer"


def test_a_launch_that_fills_less_than_it_declares_is_found() -> None:
    x, y = torch.ones(3, 4), torch.ones(3, 5)
    compiled = compile_module(Joined().eval(), (x, y), runner=AccessRunner)
    compiled(x, y)
    plan = compiled.entry.plan
    more = [replace(k, calls=tuple(replace(c, accesses=_whole(c.accesses)) for c in k.calls)) for k in plan.kernels]
    compiled.runner.compiled = replace(compiled.entry, plan=replace(plan, kernels=tuple(more)))
    with pytest.raises(AssertionError, match=r"it does not write all that it declares to fill"):
        compiled(x, y)


def _whole(accesses: tuple[tuple[Access, ...], ...]) -> tuple[tuple[Access, ...], ...]:
    """Fills of parts made fills of the 39 elements of the concatenation."""
    whole = Access(True, const(0), (const(39),), (const(1),))
    return tuple(tuple(whole if a.fills and len(a.shape) > 1 else a for a in x) for x in accesses)


class Parts(torch.nn.Module):
    """Each op twice: on a tensor, and on the first rows of a longer one, by the same kernel with the same ints."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n, z = x.shape[0], x.cumsum(1)
        long = torch.cat([x, x * 2]).cumsum(1)
        pieces = (z, long[:n])
        soft = [p.softmax(1).cumsum(1) for p in pieces]
        rolled = [torch.roll(p, 1, 0).cumsum(0) for p in pieces]
        picked = [p[:, torch.tensor([0, 2, 1])].cumsum(1) for p in pieces]
        return *soft, *rolled, *picked, torch.cat([p.exp().cumsum(1) for p in pieces]), long


def test_a_kernel_reads_a_whole_buffer_and_a_part_of_another(tmp_path: Path) -> None:
    example = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    bundle = tmp_path / "m.pkg"
    module = Parts().eval()
    hardtack.export(module, (example,), path=bundle, dynamic_shapes=({0: torch.export.Dim("n", min=0, max=100)},))
    session = hardtack.load(bundle).session()
    for n in (5, 1, 9, 0):
        x = torch.randn(n, 7, generator=torch.Generator().manual_seed(n))
        for got, want in zip(session(x.numpy()), module(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want)


def test_rows_are_moved_in_pairs_beside_rows_that_are_not(tmp_path: Path) -> None:
    """One kernel walks both in blocks of two rows of dynamic length, which do not leave the four."""

    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([x, x.unflatten(0, (-1, 2)).flip(0).reshape(x.shape)])

    hardtack.export(
        Pairs().eval(),
        (torch.randn(4, 11),),
        path=tmp_path / "m.pkg",
        dynamic_shapes=({1: torch.export.Dim("n", max=1024)},),
        targets=["cpu", "cuda:sm_90"],
    )
    model = hardtack.load(tmp_path / "m.pkg", device="cpu")
    for n in (11, 1, 0, 1024):
        x = torch.randn(4, n)
        assert torch.equal(model(x), Pairs()(x))


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90"])
def test_nothing_is_accessed_of_what_has_no_elements(tmp_path: Path, target: str) -> None:
    """Writing a bundle verifies its plan. A product over no batch is launched on no block."""

    class Batches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.einsum("bij,bkj->ikb", x, x), x @ x

    hardtack.export(Batches().eval(), (torch.zeros(0, 3, 3),), path=tmp_path / "m.pkg", targets=[target])


def test_one_kernel_copies_nothing_out_of_something_and_out_of_nothing(tmp_path: Path) -> None:
    class Copies(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.none = torch.nn.Buffer(torch.zeros(0))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x[..., -4:-3], self.none.clone()

    hardtack.export(Copies().eval(), (torch.randn(3),), path=tmp_path / "m.pkg")
    assert [r.shape for r in hardtack.load(tmp_path / "m.pkg")(torch.randn(3))] == [(0,), (0,)]


class Routed(torch.nn.Module):
    """Rows that masks pick are added to others, twice: one kernel, which reads as many as there are places."""

    def forward(self, x: torch.Tensor, places: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        out = x
        for mask in masks:
            rows = torch.cat([out[torch.nonzero(m).squeeze(1)] for m in (mask, mask.logical_not())])
            out = out.index_add(0, places, rows.cumsum(0))
        return out


def test_one_kernel_reads_rows_whose_numbers_are_found_apart(tmp_path: Path) -> None:
    example = torch.randn(5, 7), torch.tensor([0, 2, 2, 1, 4]), torch.tensor([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1]]) > 0
    number = torch.export.Dim("number", max=9)
    module = Routed().eval()
    hardtack.export(module, example, path=tmp_path / "m.pkg", dynamic_shapes=(None, {0: number}, None))
    session = hardtack.load(tmp_path / "m.pkg").session()
    x, places, masks = example
    torch.testing.assert_close(session(x, places, ~masks), module(x, places, ~masks))
    with pytest.raises(hardtack.RunError, match="u0 = 3, u1 = 2 the left side is 5, expected equal to 4"):
        session(x, places[1:], masks)


def test_one_kernel_reads_parts_of_a_whole_buffer_and_of_a_longer_one(tmp_path: Path) -> None:
    """Both read real parts and whole numbers, which lie in the same memory; rows of 4 are rows of 5 elsewhere."""

    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> list[torch.Tensor]:
            return [*(torch.linalg.qr(t * t.real).R for t in (x, y[0])), z.mT.contiguous(), z.contiguous()]

    args = tuple(torch.randn(*shape, dtype=torch.complex64) for shape in ((4, 5), (2, 4, 5), (2, 4, 5)))
    hardtack.export(Pairs().eval(), args, path=tmp_path / "m.pkg")
    for got, want in zip(hardtack.load(tmp_path / "m.pkg")(*args), Pairs()(*args), strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want)


def test_accesses_that_cannot_both_be_so_are_refused() -> None:
    n, m = sym("n", 1, 9), sym("m", 1, 9)
    with pytest.raises(ValueError, match="one kernel and the same ints, but other accesses"):
        tighter(((span(n),),), ((span(m),),))
    assert tighter(((span(n + m),),), ((span(n),),)) == ((span(n),),)
    one = [Access(True, const(0), (const(1), n), (const(stride), const(2))) for stride in (34, 17)]
    assert tighter(((one[0],),), ((one[1],),)) == ((one[0],),), "the stride of a dimension of one element says nothing"
    rows = Access(True, const(0), (n, const(4)), (const(4), const(1)))
    assert tighter(((rows,),), ((span(n * 4, True),),)) == ((rows,),)
    pairs = [Access(True, const(0), shape, strides) for shape, strides in (
        ((n, const(4), const(5)), (const(40), const(10), const(2))),
        ((n, const(10), const(2)), (const(40), const(4), const(2))),
        ((n, const(4), const(4)), (const(40), const(10), const(2))),
    )]  # fmt: skip
    assert tighter(((pairs[0],),), ((pairs[1],),)) == ((pairs[0],),), "every second element, in rows of 5 or of 2"
    with pytest.raises(ValueError, match="one kernel and the same ints, but other accesses"):
        tighter(((pairs[0],),), ((pairs[2],),))
    assert tighter(((span(n),),), ((),)) == ((),), "a buffer without elements"
    with pytest.raises(ValueError, match="one kernel and the same ints, but other accesses"):
        tighter(((span(n, True),),), ((),))
