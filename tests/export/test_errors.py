"""Refusals: the class, the user's line, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.exporter import (
    CaptureError,
    ExportError,
    InputSpecError,
    MutationError,
    RangeError,
    TrainingModeError,
    UnsupportedOpError,
    to_graphs,
)
from hardtack.exporter.sizes import shapes
from tests.export.checks import entry

ANY = Dim.DYNAMIC
X = torch.randn(8, 8)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Item(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[: int(n.item())]


class FourRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(8, -1) * 2


class MoreThanFive(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 5 else x


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[0]]


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, 2, -1).sum(1)


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        a = torch.igamma(x, x).sum()
        b = torch.poisson(x.abs()).sum()
        return b + a + torch.igamma(x, x).sum() + x.unique(dim=0).sum()


class Runs(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def refused(kind: type[ExportError], module: Any, args: tuple[Any, ...], spec: Any = None) -> ExportError:
    """The error that exporting raises; exactly of `kind`."""
    with pytest.raises(ExportError) as caught:
        to_graphs(module.eval(), args, None, spec)
    assert type(caught.value) is kind, caught.value
    return caught.value


def assert_line(error: ExportError, source: str) -> None:
    """The error names this file and a line with this text."""
    assert error.where is not None, error
    assert error.where.file.endswith("test_errors.py")
    assert source in error.where.source


@pytest.mark.parametrize(
    ("module", "args", "source", "fix"),
    [
        (Branch(), (X,), "if x.sum() > 0:", "torch.cond"),
        (Item(), (X, torch.tensor(2)), "return x[: int(n.item())]", "keep it a tensor"),
    ],
)
def test_control_flow_on_values(module: nn.Module, args: tuple[Any, ...], source: str, fix: str) -> None:
    error = refused(CaptureError, module, args)
    assert_line(error, source)
    assert fix in error.fix


@pytest.mark.parametrize("dim", [ANY, Dim("B", max=64)])
def test_dimension_fixed_by_the_model(dim: Any) -> None:
    error = refused(RangeError, FourRows(), (X,), ({0: dim},))
    assert_line(error, "return x.view(8, -1) * 2")
    assert "dimension 0 of input x" in error.what
    assert "holds only for size 8" in error.what


def test_fixed_dimension_that_nobody_declared() -> None:
    graph = entry(to_graphs(FourRows().eval(), (X,), None, ({1: Dim("N", max=64)},))).graph
    assert str(graph.types["x"]) == "f32[8, N]"


class Shrunk(nn.Module):
    """torch's `interpolate` computes the size in floating point, and adaptive pooling takes it as it is now."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x[None], scale_factor=0.7, mode="area")


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_recurrence_without_a_step(kind: Any, strict: bool) -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(kind(3, 4).eval(), (torch.zeros(0, 2, 3),), strict=strict)
    (found,) = caught.value.ops
    assert found.reason.endswith(" gets a sequence without a step, which eager refuses, too: give one step or more")


@pytest.mark.parametrize("dim", [ANY, Dim("B", max=64)])
def test_a_size_fixed_by_a_condition_that_no_guard_can_say(dim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "scaling", lambda *_: None)  # as of a factor that has no form in whole numbers
    error = refused(RangeError, Shrunk(), (X,), ({1: dim},))
    name = "B" if isinstance(dim, Dim) else "s0"
    size = int(0.7 * X.shape[1])
    condition = f"int(0.7*{name}) == {size}"
    assert error.what == f"the program holds only where {condition}, which no run can check"
    assert error.fix == "give sizes in place of a scale factor, or leave the dimension static"
    assert_line(error, "F.interpolate(")


def test_a_size_fixed_by_a_condition_in_floating_point() -> None:
    error = refused(RangeError, Shrunk(), (X,), ({1: Dim("B", max=64)},))
    assert "the program needs int(0.7*B) == 5, but B = 0 fails" in error.what
    assert_line(error, "F.interpolate(")
    graph = entry(to_graphs(Shrunk().eval(), (X,), None, ({1: Dim.DYNAMIC(min=2, max=64)},))).graph
    assert [g.text for g in graph.guards if g.relation == "eq"] == ["int(0.7*s0) == 5"]


@pytest.mark.parametrize(
    ("module", "dim", "what", "source"),
    [
        (MoreThanFive(), Dim("B", min=1, max=64), "B (1 to 64) would be narrowed: the program needs 5 < B", "> 5"),
        (Positions(), Dim("T"), "T (from 0) would be narrowed: the program needs T <= 16", "self.table["),
        (Positions(), Dim("T", max=17), "T = 17 fails", "self.table["),
        (Pairs(), Dim("B", max=64), "B (0 to 64) would be narrowed", "reshape"),
    ],
)
def test_narrowed_range(module: nn.Module, dim: Any, what: str, source: str) -> None:
    error = refused(RangeError, module, (X,), ({0: dim},))
    assert what in error.what
    assert_line(error, source)


@pytest.mark.parametrize(
    ("module", "dim"),
    [
        (MoreThanFive(), Dim("B", min=6, max=64)),
        (MoreThanFive(), Dim("B")),
        (Positions(), Dim("T", max=16)),
        (Positions(), ANY),
        (Pairs(), 2 * Dim("half", min=1, max=32)),
        (Pairs(), ANY),
    ],
)
def test_ranges_that_hold(module: nn.Module, dim: Any) -> None:
    """Conditions within the declared range, or where nobody declared a bound, are input checks."""
    to_graphs(module.eval(), (X,), None, ({0: dim},))


def test_a_condition_becomes_a_lower_bound() -> None:
    graph = entry(to_graphs(MoreThanFive().eval(), (X,), None, ({0: Dim("B")},))).graph
    assert [(b.sym.name, b.sym.lo, b.sym.hi) for b in graph.syms] == [("B", 6, None)]
    assert graph.guards == ()


def test_two_names_for_equal_sizes() -> None:
    error = refused(RangeError, Sum(), (X, X), ({0: Dim("A")}, {0: Dim("B")}))
    assert error.what == "dimension 0 of input x and dimension 0 of input y were declared A and B, but must be equal"


def test_all_unsupported_ops_at_once() -> None:
    error = refused(UnsupportedOpError, Unsupported(), (X,))
    assert isinstance(error, UnsupportedOpError)
    found = {u.op: u for u in error.ops}
    assert found["aten.igamma.default"].count == 2
    assert "pass them in as an input" in found["aten.poisson.default"].reason
    assert "give each row a number" in found["aten.unique_dim.default"].reason
    where = found["aten.igamma.default"].where
    assert where is not None
    assert where.source == "a = torch.igamma(x, x).sum()"
    assert "(2 times; first) at" in str(error)


class SumsInGroups(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, y, offs=ends)


def test_grouped_products_of_parts_of_the_sum() -> None:
    x, ends = torch.zeros(16, 24).bfloat16(), torch.tensor([8, 24], dtype=torch.int32)
    error = refused(UnsupportedOpError, SumsInGroups(), (x, x.mT.contiguous(), ends))
    assert isinstance(error, UnsupportedOpError)
    (found,) = error.ops
    assert found.op == "aten._grouped_mm.default"
    assert found.reason == "a grouped product of ranks 2 and 2 is not supported: only groups of rows are"


@pytest.mark.parametrize(("kind", "name"), [(nn.LSTM, "lstm"), (nn.GRU, "gru")])
def test_recurrence_of_doubles(kind: Any, name: str) -> None:
    error = refused(UnsupportedOpError, Runs(kind(8, 3).double()), (X.double(),), ({0: ANY},))
    assert isinstance(error, UnsupportedOpError)
    (found,) = error.ops
    assert (found.op, found.count) == (f"aten.{name}.input", 1)
    assert found.reason == (
        f"{name} of f64 takes a fixed number of steps: leave that dimension static, or call .float() on the module and "
        "its inputs"
    )
    assert found.where is not None
    assert found.where.source == "return self.inner(x)"


def test_written_input() -> None:
    error = refused(MutationError, Writes(), (X,))
    assert "its input x" in error.what
    assert_line(error, "x.add_(1)")


def test_training_mode() -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5))
    with pytest.raises(TrainingModeError, match=r"1 \(Dropout\) would behave as in training") as caught:
        to_graphs(module, (X,))
    assert caught.value.fix == "call .eval() on the module before exporting"


@pytest.mark.parametrize(
    ("args", "spec", "what"),
    [
        ((X, X), ({0: ANY},), "dynamic_shapes has 1 entries for 2 inputs (x, y)"),
        ((X, X), {"z": None}, "dynamic_shapes names z, the inputs are x, y"),
        ((X, X), ({5: ANY}, None), "dynamic_shapes of x names dim 5, the example has 2 dims"),
        ((X, X), ({0: "B"}, None), "dynamic_shapes holds 'B'"),
        ((X, X), {0: ANY}, "dynamic_shapes names 0, the inputs are x, y"),
        ((X, X), ({0: Dim("B", max=5)}, None), "dimension 0 of x is 8 in the example and was declared B (0 to 5)"),
        ((X, 0.5), (None, ANY), "dynamic_shapes of y is one dimension, the example a float"),
        ((X, X), torch.export.ShapesCollection(), "dynamic_shapes is a ShapesCollection"),
        ((X,), None, "missing a required argument: 'y'"),
        ((X, X.to(torch.complex32)), None, "input y: element type complex32 is not supported: complex64 is"),
    ],
)
def test_input_specs(args: tuple[Any, ...], spec: Any, what: str) -> None:
    assert what in refused(InputSpecError, Sum(), args, spec).what


def test_keyword_arguments_are_a_mapping() -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(Sum().eval(), (X, X), "model.pkg")  # type: ignore[arg-type]
    assert caught.value.what == "kwargs is a str"
    assert caught.value.fix == "pass a dict of example inputs by argument's name; a file's path as path=..."


def test_weights_without_data() -> None:
    error = refused(InputSpecError, nn.Linear(8, 2, device="meta"), (X.to("meta"),))
    assert "meta device" in error.what


class Squeezed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(1).squeeze()


class Largest(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.amax(0)


class Chooses(nn.Module):
    """Another computation for small sizes; `choose` is the line that decides."""

    def __init__(self, choose: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.choose = choose

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.sum(0)
        return total + 1 if self.choose(x) else total - 1


class Divides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(0) / max(x.shape[0], 1)


_more_than_one = Chooses(lambda x: x.shape[0] > 1)
_is_one = Chooses(lambda x: x.shape[0] == 1)
_any_row = Chooses(lambda x: x.shape[0])
_any_element = Chooses(lambda x: x.numel() > 0)
_any_pair = Chooses(lambda x: x.shape[0] // 2 >= 1)
_not_seven = Chooses(lambda x: x.shape[0] != 7)

SMALL = [
    (_more_than_one, Dim("B", min=1), "B (from 1)", "1 < B", "B = 1", "if self.choose(x)"),
    (_is_one, Dim("B", max=9), "B (0 to 9)", "B != 1", "B = 1", "if self.choose(x)"),
    (_any_pair, Dim("B", min=1, max=9), "B (1 to 9)", "1 <= B//2", "B = 1", "if self.choose(x)"),
    (_not_seven, Dim("B"), "B (from 0)", "B != 7", "B = 7", "if self.choose(x)"),
    (Squeezed(), Dim("B"), "B (from 0)", "B != 1", "B = 1", "x.unsqueeze(1).squeeze()"),
]


@pytest.mark.sweep(over="strict")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("module", "dim", "declared", "needs", "fails", "source"), SMALL)
def test_code_that_treats_a_small_size_apart(
    module: nn.Module, dim: Any, declared: str, needs: str, fails: str, source: str, strict: bool
) -> None:
    """torch decides such a comparison without a word."""
    with pytest.raises(RangeError) as caught:
        to_graphs(module.eval(), (X,), None, ({0: dim},), strict)
    error = caught.value
    assert error.what == (
        f"the declared range of {declared} would be narrowed: the program needs {needs}, but {fails} fails"
    )
    assert_line(error, source)
    assert (
        error.fix == "declare a range for which this holds, or change the line so that it does not depend on the size"
    )


@pytest.mark.sweep(over="strict")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("module", "least", "guards"),
    [
        (_more_than_one, 2, []),
        (_is_one, 0, ["s0 != 1"]),
        (_any_row, 1, []),
        (_any_element, 1, []),
        (_not_seven, 0, ["s0 != 7"]),
        (Divides(), 1, []),
        (Squeezed(), 0, ["squeeze would drop a dimension of size 1: s0 != 1"]),
        (Largest(), 1, []),
    ],
)
def test_small_sizes_become_input_checks(module: nn.Module, least: int, guards: list[str], strict: bool) -> None:
    graph = entry(to_graphs(module.eval(), (X,), None, ({0: ANY},), strict)).graph
    assert [b.sym.lo for b in graph.syms] == [least]
    assert [g.text for g in graph.guards] == guards
