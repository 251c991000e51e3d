"""What fusion decides on small graphs: how many kernels, which epilogues, and the reasons of refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Axis, Check, Load, LoopNest, Reduce, Store, exact, phases
from hardtack.codegen.ir.plan import Launch
from hardtack.codegen.ir.types import DType
from tests.codegen.compare import assert_same, compile_module, eager
from tests.codegen.graphs import GOLDEN, Feedforward, ResidualBlock, Softmax, compiled, golden_texts

TEXTS = Path(__file__).parent / "golden"


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: object, *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*self.parts, *args)  # type: ignore[operator]


def kernels(module: nn.Module, *args: torch.Tensor, dynamic: object = None) -> list[str]:
    """The launches, each named by what its kernel is: a template's name, or "loops"."""
    entry = compiled(module, *args, dynamic=dynamic)
    launched = [i.kernel for i in entry.plan.body if isinstance(i, Launch)]
    words = (
        "gemm_packed",
        "gemm_quads",
        "gemm_dynamic",
        "depthwise",
        "conv",
        "attention",
        "sort",
        "topk",
        "scan",
        "lstm",
        "gru",
    )
    return [next((w for w in words if name.startswith(f"{w}_")), "loops") for name in launched]


X = torch.randn(64, 48)


def test_softmax_and_norms_are_one_kernel() -> None:
    assert kernels(Softmax(), X) == ["loops"]
    assert kernels(Softmax(), X, dynamic=({0: Dim("batch", max=99)},)) == ["loops"]
    assert kernels(Of(lambda x: F.layer_norm(x, (48,))), X) == ["loops"]
    assert kernels(Of(lambda x: F.layer_norm(x + x.flip(0), (48,)).relu() * 2), X) == ["loops"]
    assert kernels(Of(lambda x: (x.exp() + 1, x.exp() * 2, x.sin())), X) == ["loops"]


def test_epilogues_leave_no_kernel_of_their_own() -> None:
    assert kernels(Feedforward(), torch.randn(2, 10, 48)) == ["loops", "gemm_packed"]
    assert kernels(Of(lambda m, x: m(x).relu() + x, nn.Linear(48, 48)), X) == ["gemm_packed"]
    assert kernels(Of(lambda m, x: (m(x).view(64, 6, 8) * 2).flatten(), nn.Linear(48, 48)), X) == ["gemm_packed"]
    assert kernels(Of(lambda x: (x @ x.t()) * 0.125 + 1), X) == ["gemm_dynamic"]


class Int8Linear(nn.Module):
    """Rows of x [.., 48] quantised by their largest magnitudes, times a weight of int8 with scales, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.arange(48 * 48).to(torch.int8).view(48, 48))
        self.scales, self.bias = nn.Buffer(torch.arange(48.0) / 999), nn.Buffer(torch.arange(48.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        small = (x / scale).round().clamp(-128, 127).to(torch.int8)
        return torch._int_mm(small, self.weight.t()) * scale * self.scales + self.bias


def test_a_product_of_int8_is_one_kernel_behind_that_which_quantises_rows() -> None:
    """No matrix of int32 is stored, and the bundle has a byte for each weight."""
    layer = Int8Linear()
    assert kernels(layer, X) == ["loops", "gemm_quads"]
    assert kernels(layer, X, dynamic=({0: Dim("rows", max=99)},)) == ["loops", "gemm_quads"]
    assert kernels(layer, X[:1]) == ["loops", "gemm_quads"]
    assert kernels(Of(lambda m, x: F.gelu(m(x)), layer), X) == ["loops", "gemm_quads"]
    assert kernels(Of(lambda m, x: m(x).relu() + x, layer), X) == ["loops", "gemm_quads"]
    entry = compiled(Of(lambda m, x: F.gelu(m(x)), layer), X)
    assert not any(v.dtype is DType.I32 for v in entry.plan.values)
    (packed,) = (v for v in entry.plan.values if "quads" in v.name)
    assert packed.dtype is DType.I8


def test_a_convolution_takes_norm_residual_and_activation() -> None:
    found = kernels(ResidualBlock(), torch.randn(2, 32, 9, 9))
    assert found.count("conv") == 2
    # one kernel brings the input to channels-last, one takes the mean
    assert found.count("loops") <= 2


REFUSALS = {
    "it reduces or asserts, an epilogue is point for point": (Of(lambda m, x: m(x).sum(0), nn.Linear(48, 48)), X),
    "the template attention takes no epilogue": (
        Of(lambda q: F.scaled_dot_product_attention(q, q, q).relu()),
        torch.randn(1, 2, 5, 8),
    ),
    "points that must run in order stay alone": (
        Of(lambda x: x.exp().index_put((torch.tensor([1]),), x[:1], accumulate=True).sum(0)),
        X,
    ),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_says_why(reason: str) -> None:
    module, x = REFUSALS[reason]
    found = [d.reason for d in compiled(module, x).decisions if not d.accepted]
    assert reason in found, found


def test_inlining_says_what_it_does_and_why_not() -> None:
    entry = compiled(Of(lambda x: ((x * 2 + 1).relu(), (x.exp().softmax(0) @ x.t()))), X)
    inlined = [d for d in entry.decisions if d.kind == "inline"]
    assert any(d.accepted and d.reason == "computed where it is used" for d in inlined)
    assert all(d.reason for d in entry.decisions)
    assert {d.kind for d in entry.decisions} <= {"inline", "fuse", "layout", "tuning"}


@pytest.mark.parametrize("name", GOLDEN)
def test_stages_have_the_texts_on_record(name: str, update_golden: bool) -> None:
    texts = golden_texts(name)
    # of passes on one form the last: what is printed, and what follows from it
    groups = [stage for stage in ("siblings", "fuse") if stage in texts][:1]
    kernels = [stage for stage in ("overlap", "tile") if stage in texts][:1]
    stages = (*groups, *kernels, "render", "plan")
    found = "".join(f"==== {stage} ====\n{texts[stage].rstrip()}\n\n" for stage in stages)
    # kernels are named by the hash of their text, which comments and line numbers of tests do not change
    found = re.sub(r" at \S*?:\d+", " at SOURCE", found)
    path = TEXTS / f"{name}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert path.read_text() == found, f"{path} differs; if that is meant, run pytest with --update-golden"


def test_zeros_of_both_signs_stay_apart() -> None:
    """0.0 == -0.0 in Python: merging equal statements must not merge these."""
    assert exact(Lit(0.0, DType.F32)) != exact(Lit(-0.0, DType.F32))
    found = compile_module(SignedZeros().eval(), (torch.ones(3),))(torch.ones(3))
    assert torch.equal(torch.signbit(found[0]), torch.tensor([False] * 3))
    assert torch.equal(torch.signbit(found[1]), torch.tensor([True] * 3))


class SignedZeros(torch.nn.Module):
    """The same op with zeros of either sign."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.copysign(x, torch.tensor(0.0)), torch.copysign(x, torch.tensor(-0.0))


PARTS = {
    "a part read back": Of(lambda x: torch.stack([x, x * 2], -1)[..., 0]),
    "both parts read back": Of(lambda x: torch.stack([x, x * 2], -1).pow(2).unbind(-1)),
    "the whole given, too": Of(lambda x: (lambda s: (s, s[..., 0], s[..., 1]))(torch.stack([x, x * 2], -1))),
    "parts across the outer axes": Of(lambda x: torch.stack([x, x * 2, x.sin()], 0)[1:].transpose(0, 1)),
    "real part": Of(lambda x: torch.complex(x, x * 2).real),
    "a reduction beside its rows": Of(lambda x: torch.stack([x.sum(1), x.amax(1)], -1)[..., 0]),
    "a part that an epilogue writes": Of(lambda m, x: torch.stack([m(x), x], 0).transpose(0, 1), nn.Linear(48, 48)),
    "parts that one epilogue writes": Of(lambda m, x: torch.stack([m(x), m(x).sin()], 1)[:, 0], nn.Linear(48, 48)),
    "steps of a recurrence": Of(lambda m, x: m(x.view(8, 8, 48)), nn.RNN(48, 48, batch_first=True)),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_buffer_is_not_taken_for_another(name: str) -> None:
    """What a kernel writes into one part of a buffer, its later nests do not read as the other part."""
    module = PARTS[name].eval()
    assert_same(compile_module(module, (X,))(X), eager(module, (X,)))


EMPTY = {
    "beside a sum": Of(lambda x: (x[:, :0], x[:, :0].sum(1), x[:0] * 2)),
    "blocks": Of(lambda x: torch.block_diag(x, x[:2])),
    "an empty last part": Of(lambda x: (lambda v: torch.cat([v[:1], v[1:], v[:0]]).sum(1))(torch.cat([x, x]))),
    "windows": Of(lambda x: F.unfold(x[:0].view(0, 3, 4, 4), 2, padding=1, stride=2)),
    "a mean": Of(lambda x: (lambda m: m < m.abs())(x[:0].view(0, 12, 4).mean(2))),
    "rows": Of(lambda x: (x[:0].softmax(-1), x[:, :0].softmax(-1), F.layer_norm(x[:0], (48,)), x[:0] @ x.t())),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements(name: str) -> None:
    module = EMPTY[name].eval()
    assert_same(compile_module(module, (X,))(X), eager(module, (X,)))


def test_an_example_without_rows() -> None:
    """Kernels that the example gives no work are compiled like others."""
    module = Of(lambda x: (x * 2, x.sum(1), x.flip(1), x.exp().t())).eval()
    found = compile_module(module, (X[:0],), ({0: Dim("batch", max=99)},), {"batch": 0})
    for given in (X, X[:1], X[:0]):
        assert_same(found(given), eager(module, (given,)))


def test_an_index_that_is_checked_for_its_refusal_alone() -> None:
    """It runs where its argument can, and takes its argument along: beside a reduction, or behind one."""
    r = Axis(sym("r", extent=4), const(4), "reduce")
    total = (Load("x", "a", (r.sym,)), Reduce("sum", "sum", ("x",), DType.I64), Store("y", (), "sum"))
    early = LoopNest("n", (r,), (Load("i", "b", (const(0),)), Check("c", "i", const(1)), *total))
    late = LoopNest("n", (r,), (*total[:2], Check("c", "sum", const(1)), total[2]))
    for nest, before, after in ((early, "icx", ""), (late, "x", "c")):
        found = phases(nest)[1:]
        outs = ["".join(s.out for s in part if isinstance(s, (Load, Check))) for part in found]
        assert outs == [before, after]
