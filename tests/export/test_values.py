"""Numbers that a run computes: .item() in arithmetic and as an index; what cannot be, in words; integer scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.types import DType
from hardtack.exporter import CaptureError, ExportError, InputSpecError, InternalError, UnsupportedOpError, to_graphs
from hardtack.exporter.convert.registry import CONVERTERS
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import check, ours
from tests.support.torch_versions import refused_before


def _joint() -> torch.export.ExportedProgram:
    """A program with its backward pass. torch imports Triton for it, which tests/triton must have done before."""
    from torch.export.experimental import _export_forward_backward

    return _export_forward_backward(torch.export.export(_Loss(), (X,)))


X, N = torch.randn(4, 6), torch.tensor(2)
VALUES = refused_before(2, 13, CaptureError, "asks for the value of a tensor there")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * n.item(),
        lambda x, n: (x * 3).int() * (n * 0.5).item(),
        lambda x, n: x.half() * (n / 7).item(),
        lambda x, n: x + n.item() / 2 - (n.item() + 1) // 2 * 3 % 4,
        lambda x, n: x * (n.item() > 2),
        pytest.param(lambda x, n: x.clamp(max=n.item()) ** n.item(), marks=VALUES),
        lambda x, n: torch.where(x > n.item(), x, -n.item()),
        lambda x, n: torch.full((2,), n.item()) + x.sum(),
        lambda x, n: x * n.tolist(),
        lambda x, n: torch.roll(x, n.item(), 0),
        lambda x, n: torch.roll(x, (n.item(), 1), (0, 1)),
        lambda x, n: x[n.item()],
        pytest.param(lambda x, n: x[n], marks=VALUES),
        pytest.param(lambda x, n: x[:, n], marks=VALUES),
        pytest.param(lambda x, n: x[n, n], marks=VALUES),
        lambda x, n: x.narrow(1, n.item(), 3),
        lambda x, n: x.clone().index_put((n,), torch.zeros(6)),
    ],
)
def test_item(function: Callable[..., Any]) -> None:
    check(function, (X, N), None, [(X, torch.tensor(3)), (X, torch.tensor(0))])


def test_written_at_an_item() -> None:
    def forward(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[n.item()] = 0
        return y

    check(forward, (X, N), None, [(X, torch.tensor(-1))])


class Cache(nn.Module):
    """Rows written at a place that is data, as into a cache of keys."""

    def forward(self, x: torch.Tensor, new: torch.Tensor, n: torch.Tensor) -> Any:
        start = n.item()
        torch._check(start >= 0)
        torch._check(start + new.shape[0] <= x.shape[0])
        y = x.clone()
        y[start : start + new.shape[0]] = new
        z = x.clone()
        z.narrow(1, n.item(), 1).zero_()
        return y, z, y[start : start + new.shape[0]]


def test_written_from_an_item_on() -> None:
    new = torch.randn(2, 6)
    module = Cache().eval()
    exported = check(module, (X, new, N), None, [(X, new, torch.tensor(0)), (X, new, torch.tensor(1))])
    for at in (-1, 3):
        with pytest.raises(ReferenceFailure):
            ours(exported, (X, new, torch.tensor(at)))


def test_a_number_of_sizes_is_promoted_like_a_number() -> None:
    """Not like a tensor of f64."""
    check(lambda x: x * (1 / x.shape[0]), (X.int(),), ({0: Dim.DYNAMIC},), [(X[:3].int(),)])


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("scale", torch.tensor(0.5))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[self.get_buffer("count").item()] * self.get_buffer("scale").item()


def test_item_of_a_buffer() -> None:
    check(Constants(), (X,))


NEEDED = "the value of a tensor is needed as a Python number while the module is captured"
KEEP = (
    "keep it a tensor: y[i.reshape(1)] = z instead of y[i] = z, x.to(torch.int64) instead of int(x); a number that "
    "never changes can be read once, in the module's constructor"
)


@pytest.mark.parametrize(
    ("function", "what", "fix"),
    [
        (lambda x, n: x * int(x.sum()), NEEDED, KEEP),
        (lambda x, n: sum((x for _ in range(n)), x), NEEDED, KEEP),
        (lambda x, n: x.narrow(0, n, 1), NEEDED, KEEP),
        (lambda x, n: x.clone().__setitem__(n, 0), NEEDED, KEEP),
        (
            lambda x, n: x if (n > 1).item() else -x,
            "Python control flow depends on the value of a tensor",
            "replace the branch by torch.where or torch.cond, int(x) of a bool by x.to(torch.int64)",
        ),
    ],
)
def test_values_that_capture_needs(function: Callable[..., Any], what: str, fix: str) -> None:
    with pytest.raises(CaptureError) as caught:
        to_graphs(function, (X, N))
    assert (caught.value.what, caught.value.fix) == (what, fix)
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_values.py")


INSIDE = "a size that the run computes inside of a branch or a loop: compute it outside, and pass it in"


def _in_a_branch(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.cond(n > 1, lambda x: x[x > 0].sum(), lambda x: x.sum(), (x,))


def test_a_size_inside_of_a_branch() -> None:
    """Said once, of the op that makes the size, and not of all that follows."""
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(_in_a_branch, (X, N))
    (found,) = caught.value.ops
    assert (found.op, found.reason) == ("aten.index.Tensor", INSIDE)


def test_a_size_that_torch_asks_for() -> None:
    with pytest.raises(CaptureError) as caught:
        to_graphs(lambda x: torch.cdist(x[x[:, 0] > 0], x), (X,))
    assert caught.value.what == "whether Eq(6*u0, 0) decides what torch traces, of a size that the run computes"
    assert caught.value.fix.startswith("say what holds in front of it, as in torch._check(y.shape[0] > 0)")
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_values.py")


def test_a_size_that_must_be_half() -> None:
    """torch concludes what n is from 2 * n == 4: the run checks it."""
    exported = check(lambda x, n: x.split([n.item(), n.item()])[0], (X, N))
    with pytest.raises(ReferenceFailure, match=r"_local_scalar_dense\.default is not what the sizes need"):
        ours(exported, (X, torch.tensor(3)))


@pytest.mark.parametrize("size", [0, 2, 5])
@pytest.mark.parametrize(
    "x", [torch.tensor([[1, 0, 2], [0, 3, 0]]), torch.zeros(0, 3), torch.tensor(3.0), torch.tensor([torch.nan, 0.0])]
)
def test_nonzero_static(x: torch.Tensor, size: int) -> None:
    check(lambda x: (torch.nonzero_static(x, size=size), torch.nonzero_static(x, size=size, fill_value=7)), (x,))


def test_nonzero_static_of_any_size() -> None:
    check(
        lambda x: torch.nonzero_static(x, size=4),
        (X,),
        ({0: Dim.DYNAMIC},),
        [(torch.zeros(0, 6),), (torch.ones(1, 6),), (torch.zeros(7, 6),)],
    )


class Chunks(nn.Module):
    """Padded to a multiple of 16, taken apart, put together, and cut, as state space models do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        y = F.pad(x, (0, 0, 0, (16 - length % 16) % 16))
        y = y.reshape(y.shape[0], -1, 16, y.shape[-1]).cumsum(2)
        return y.reshape(y.shape[0], -1, y.shape[-1])[:, :length]


@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim("length", min=1, max=100)])
def test_chunks_of_a_padded_length(dim: Any) -> None:
    others = [(torch.randn(2, n, 3),) for n in (1, 16, 17, 32)]
    check(Chunks().eval(), (torch.randn(2, 20, 3),), ({1: dim},), others)


@pytest.mark.parametrize(
    ("module", "what", "fix"),
    [
        (
            lambda: nn.Sequential(nn.LazyLinear(3)).eval(),
            "0.weight has no shape yet: its module is lazy",
            "call the module once on an example, then .eval()",
        ),
        (
            lambda: _joint(),
            "the program holds a backward pass, too",
            "export hardtack.training_step of the module, or the module itself",
        ),
    ],
)
def test_modules_that_are_not_ready(module: Callable[[], Any], what: str, fix: str) -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(module(), (X,))
    assert (caught.value.what, caught.value.fix) == (what, fix)


class _Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x).sum()


def test_our_own_bugs_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op, the line, that it is ours, and the cause."""

    def broken(*_: Any) -> None:
        raise TypeError("of all things")

    monkeypatch.setitem(CONVERTERS, "aten.sin.default", broken)
    with pytest.raises(InternalError) as caught:
        to_graphs(lambda x: x.sin() + 1, (X,))
    assert not isinstance(caught.value, ExportError)
    first, where, source, last = str(caught.value).splitlines()
    assert first == "the conversion of aten.sin.default failed with TypeError: of all things"
    assert "test_values.py" in where
    assert "x.sin() + 1" in source
    assert last == "  This is a bug of Hardtack: please report it with the traceback above"
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (lambda b, x: b.to(x, DType.F64), "f64[4, 6]"),
        (lambda b, x: b.unsqueeze(x, 0), "f32[1, 4, 6]"),
        (lambda b, x: b.reshape(x, (6, 4)), "f32[6, 4]"),
    ],
)
def test_a_conversion_that_gives_another_type_than_torch_states_is_ours(
    wrong: Any, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONVERTERS, "aten.sin.default", wrong)
    with pytest.raises(InternalError) as caught:
        to_graphs(lambda x: x.sin().sum(), (torch.randn(4, 6),))
    assert str(caught.value).splitlines()[0] == (
        f"the conversion of aten.sin.default failed with ValueError: a result of {found}, and torch states f32[4, 6]"
    )


def test_a_stand_in_leads_to_no_bug_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refused op, what follows from it is not ours to report."""

    def broken(*_: Any) -> None:
        raise TypeError("of all things")

    monkeypatch.setitem(CONVERTERS, "aten.sin.default", broken)
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(lambda x: torch.igamma(x, x).sin(), (X,))
    assert [u.op for u in caught.value.ops] == ["aten.igamma.default"]


SCALARS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "lt": lambda x, s: x < s,
    "ge": lambda x, s: x >= s,
    "eq": lambda x, s: x == s,
    "ne": lambda x, s: x != s,
    "add": lambda x, s: x + s,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "mul": lambda x, s: x * s,
    "div": lambda x, s: x / s,
    "floordiv": lambda x, s: x // s,
    "truncdiv": lambda x, s: torch.div(x, s, rounding_mode="trunc"),
    "remainder": lambda x, s: x % s,
    "fmod": lambda x, s: torch.fmod(x, s),
    "and": lambda x, s: x & s,
    "or": lambda x, s: x | s,
    "xor": lambda x, s: x ^ s,
    "rand": lambda x, s: torch.bitwise_and(s, x),
    "shl": lambda x, s: x << s,
    "rpow": lambda x, s: s**x,
    "clamp": lambda x, s: x.clamp(min=s),
    "where": lambda x, s: torch.where(x > 3, x, s),
    "fill": lambda x, s: x.masked_fill(x > 3, s),
    "full": lambda x, s: torch.full_like(x, s),
}


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("scalar", [-1, -200, 300, 2**31, -(2**33) - 3])
def test_integer_scalars_that_the_dtype_does_not_hold(dtype: torch.dtype, scalar: int) -> None:
    """torch takes their low bits, or refuses them."""
    x = torch.tensor([1, 2, 100, 0, 7, 3]).to(dtype)
    taken = [f for name, f in SCALARS.items() if _runs(f, x, scalar)]
    assert len(taken) > 10
    check(lambda x: [f(x, scalar) for f in taken], (x,))


def _runs(function: Callable[..., Any], x: torch.Tensor, scalar: int) -> bool:
    try:
        function(x, scalar)
    except RuntimeError:
        return False
    return True


def test_an_integer_scalar_that_torch_refuses() -> None:
    with pytest.raises(UnsupportedOpError, match=r"the scalar 300 does not fit i8 \(-128 to 127\)"):
        to_graphs(lambda x: x.clamp(min=300), (torch.tensor([1], dtype=torch.int8),))


SCALED: dict[str, Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]] = {
    "add": lambda x, y, a: torch.add(x, y, alpha=a),
    "add a number": lambda x, y, a: torch.add(x, 3, alpha=a),
    "sub": lambda x, y, a: torch.sub(x, y, alpha=a),
    "rsub": lambda x, y, a: torch.rsub(x, y, alpha=a),
    "rsub a number": lambda x, y, a: torch.rsub(x, 3, alpha=a),
    "index_add": lambda x, y, a: x.index_add(0, torch.tensor([0, 2, 2, 1]), y, alpha=a),
    "addmm": lambda x, y, a: torch.addmm(x, y.expand(4, 4), y.expand(4, 4), alpha=a),
}


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("alpha", [-1, 100, 200, -200, 300, 2**31, 1e6, 1e39, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.float16, torch.float32, torch.bool])
def test_an_alpha_that_the_dtype_does_not_hold(dtype: torch.dtype, alpha: Any) -> None:
    """Eager's result, or a refusal where eager refuses; index_add of torch.export takes no float for integers."""
    x, y = torch.tensor([1, 2, 100, 0]).to(dtype), torch.tensor([3, 1, 0, 5]).to(dtype)
    taken, refused = [], []
    for function in SCALED.values():
        (taken if _runs_with(function, x, y, alpha) else refused).append(function)
    if not dtype.is_floating_point and isinstance(alpha, float):
        taken = []
    check(lambda x, y: [x, *(f(x, y, alpha) for f in taken)], (x, y), atol=1e-3)
    for function in refused:
        if dtype is torch.bool and {"sub", "rsub"} & set(function.__code__.co_names):
            continue  # torch itself traces a difference of bool and a number
        with pytest.raises(ExportError):
            to_graphs(lambda x, y, f=function: f(x, y, alpha), (x, y))


@pytest.mark.parametrize("alpha", [-(2**63), 2**63 - 1, 1 - 2**63])
def test_the_outermost_alphas(alpha: int) -> None:
    """The lowest has no negative, by which a difference is computed."""
    x, y = torch.tensor([1, 2, -3, 2**62]), torch.tensor([1, 5, -7, 3])
    check(
        lambda x, y: [torch.add(x, y, alpha=alpha), torch.sub(x, y, alpha=alpha), torch.rsub(x, y, alpha=alpha)], (x, y)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_products_of_whole_numbers_take_the_whole_part_of_a_factor(dtype: torch.dtype) -> None:
    m, n = torch.arange(12).reshape(2, 2, 3).to(dtype), torch.arange(12).reshape(2, 3, 2).to(dtype)

    def program(m: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        x, found = m[:, :, :2], []
        for alpha, beta in ((0.6, 2.9), (1.7, 0.2), (3.0, 1.0)):
            found += [
                torch.addmm(x[0], m[0], n[0], alpha=alpha, beta=beta),
                torch.addmv(x[0, 0], m[0], n[0, :, 0], alpha=alpha, beta=beta),
                torch.baddbmm(x, m, n, alpha=alpha, beta=beta),
                torch.addbmm(x[0], m, n, alpha=alpha, beta=beta),
            ]
        return found

    check(program, (m, n))


def _runs_with(function: Callable[..., Any], x: torch.Tensor, y: torch.Tensor, alpha: Any) -> bool:
    try:
        function(x, y, alpha)
    except (RuntimeError, OverflowError):
        return False
    return True


@pytest.mark.parametrize(
    ("dtype", "alpha", "reason"),
    [
        (torch.int8, 300, "the scalar 300 does not fit i8 (-128 to 127)"),
        (torch.uint8, 300, "the scalar 300 does not fit u8 (0 to 255)"),
        (torch.float16, 1e6, "alpha=1000000.0 does not fit f16"),
        (torch.int32, True, "alpha=True, which torch takes for a result of bool only: give a number"),
        (torch.bool, 2.5, "alpha=2.5 of bool: give a whole number"),
    ],
)
def test_why_an_alpha_is_refused(dtype: torch.dtype, alpha: Any, reason: str) -> None:
    x = torch.tensor([1, 2]).to(dtype)
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(lambda x: torch.add(x, x, alpha=alpha), (x,))
    assert [u.reason for u in caught.value.ops] == [reason]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_conversion_that_a_decomposition_writes(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    check(lambda x: x.renorm(2, 1, 1.0), (x,), atol=8e-3)
