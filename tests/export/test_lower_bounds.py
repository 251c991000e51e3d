"""The lowest sizes that conditions tell, and what they are good for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import hardtack
from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Guard, SymBinding
from hardtack.exporter.sizes.lower_bounds import raised

N = ex.sym("n")
M = ex.sym("m", 2, 9)
HOLDS = {"le": int.__le__, "lt": int.__lt__, "ne": int.__ne__, "eq": int.__eq__}


def bounds(*guards: Guard) -> dict[tuple[str, int | None], int]:
    return dict(raised(guards, (SymBinding(N, "x", 0), SymBinding(M, "y", None))))


@pytest.mark.parametrize(
    ("relation", "a", "b"),
    [
        ("le", ex.const(2), N),
        ("lt", ex.const(2), N),
        ("le", ex.const(0), N - 3),
        ("le", ex.const(5), 3 * N + 1),
        ("lt", N + 4, 3 * N),
        ("le", ex.const(2), ex.floordiv(N, 3)),
        ("lt", ex.const(1), ex.floordiv(N + 1, 2)),
        ("le", ex.const(7), 2 * ex.floordiv(2 * N + 3, 5) - 1),
        ("ne", N, ex.const(0)),
    ],
)
def test_a_bound_is_the_first_size_for_which_the_condition_holds(relation: str, a: ex.Expr, b: ex.Expr) -> None:
    holds = [HOLDS[relation](evaluate(a, {"n": n}), evaluate(b, {"n": n})) for n in range(60)]
    assert holds == sorted(holds)
    assert bounds(Guard(relation, a, b, "")) == {("x", 0): holds.index(True)}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (N, ex.const(2)),
        (ex.const(2), N),
        (9 - N, ex.const(2)),
        (2 * ex.floordiv(N, 2) - 1, ex.const(9)),
        (ex.const(6), ex.floordiv(2 * N + 2, 3)),
    ],
)
def test_an_equality_tells_the_first_size_for_which_it_holds(a: ex.Expr, b: ex.Expr) -> None:
    holds = [evaluate(a, {"n": n}) == evaluate(b, {"n": n}) for n in range(60)]
    assert bounds(Guard("eq", a, b, "")) == {("x", 0): holds.index(True)}


@pytest.mark.parametrize(
    ("relation", "a", "b"),
    [
        ("le", N, ex.const(2)),
        ("le", ex.const(2), N + M),
        ("le", ex.const(2), 9 - N),
        ("eq", 9 - N + M, ex.const(2)),
        ("eq", ex.mod(N, 5), ex.const(2)),
        ("ne", N, ex.const(2)),
        ("le", ex.const(3), ex.mod(N, 5)),
        ("le", ex.const(2), M),
        ("le", ex.const(12), M),
        ("le", ex.const(3), ex.floordiv(N, M)),
        ("le", ex.const(3), ex.sym("k")),
    ],
)
def test_other_conditions_tell_no_bound(relation: str, a: ex.Expr, b: ex.Expr) -> None:
    assert not bounds(Guard(relation, a, b, ""))


def test_the_highest_of_several_bounds_counts() -> None:
    conditions = [Guard("le", ex.const(k), s, "") for k in (3, 5, 4) for s in (N, M)]
    assert bounds(*conditions) == {("x", 0): 5, ("y", None): 5}


class Inserted(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:2], y, x[2:]])


class Twice(nn.Module):
    """The second bound follows from sizes that the first one makes known."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        inner = x[2:]
        return torch.cat([inner[:3], y, inner[3:], x[:2]])


@pytest.mark.parametrize(("module", "least"), [(Inserted(), 2), (Twice(), 5)])
def test_parts_in_front_of_what_a_bound_leaves(module: nn.Module, least: int, tmp_path: Path) -> None:
    """That x has two rows stood in a guard alone, and the place n - 2 was taken for one that may be negative."""
    shapes = {"x": {0: torch.export.Dim("n")}, "y": {0: torch.export.Dim("m")}}
    path, given = tmp_path / "m.pkg", (torch.randn(8), torch.randn(5))
    hardtack.export(module.eval(), given, path=path, dynamic_shapes=shapes)
    session = hardtack.load(path).session()
    for n in range(least, least + 5):
        for m in range(4):
            x, y = torch.randn(n), torch.randn(m)
            assert torch.equal(torch.as_tensor(session(x, y)), module(x, y))
    with pytest.raises(hardtack.InputError) as caught:
        session(torch.randn(least - 1), torch.randn(2))
    assert str(caught.value) == (
        f'input "x" (0 of entry "forward"): dimension 0 is {least - 1}, expected at least {least} (n)'
    )


class Halved(nn.Module):
    """That n // 2 is at least 1 follows from the sizes of the parts alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.narrow(-1, x.shape[-1] // 4, x.shape[-1] // 2).flip(-1)
        return torch.split(torch.cat([half, half[:, 1:]], 1), [5, 4], 1)[1]


def test_parts_whose_sizes_are_given(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    hardtack.export(Halved().eval(), (torch.randn(3, 11),), path=path, dynamic_shapes=({1: torch.export.Dim.DYNAMIC},))
    session = hardtack.load(path).session()
    for n in (10, 11):
        x = torch.randn(3, n)
        assert torch.equal(torch.as_tensor(session(x)), Halved()(x))
    for n in (9, 12):
        with pytest.raises(hardtack.InputError):
            session(torch.randn(3, n))
