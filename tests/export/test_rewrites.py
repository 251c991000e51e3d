"""Each rewrite rule: what it makes of a small module, and that the result still equals eager."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.graph_verify import GraphError, verify_graph
from hardtack.exporter import to_graphs
from hardtack.exporter.rewrite import rules
from tests.export.checks import check, entry, kinds, ours

ANY = Dim.DYNAMIC


def _norm(channels: int, kind: type[nn.Module] = nn.BatchNorm2d) -> Any:
    norm: Any = kind(channels)
    with torch.no_grad():
        for t in (norm.weight, norm.bias, norm.running_mean):
            t.normal_()
        norm.running_var.uniform_(0.5, 2)
    return norm


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
def test_batch_norm_folds_into_convolution(bias: bool, groups: int) -> None:
    module = nn.Sequential(nn.Conv2d(4, 8, 3, bias=bias, groups=groups), _norm(8), nn.ReLU()).eval()
    exported = check(module, (torch.randn(2, 4, 6, 6),), ({0: ANY},), atol=1e-4)
    assert kinds(exported) == ["conv", "max"]


def test_batch_norm_folds_into_transposed_convolution() -> None:
    module = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), _norm(6)).eval()
    assert kinds(check(module, (torch.randn(2, 4, 5, 5),), atol=1e-4)) == ["conv"]


def test_batch_norm_folds_into_linear() -> None:
    module = nn.Sequential(nn.Linear(4, 6), _norm(6, nn.BatchNorm1d)).eval()
    assert kinds(check(module, (torch.randn(2, 4),), atol=1e-4)) == ["matmul", "add"]


def test_no_folding_where_the_convolution_has_another_use() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 1), _norm(4)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            return y, self.norm(y)

    assert kinds(check(Both().eval(), (torch.randn(1, 3, 4, 4),), atol=1e-4)) == ["conv", "mul", "add"]


@pytest.mark.parametrize("bias", [False, True])
def test_no_folding_of_a_scale_that_one_channel_is_broadcast_to(bias: bool) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = nn.Linear(3, 1, bias=bias), nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> Any:
            return self.linear(x) * self.scale

    assert "mul" in kinds(check(Outer().eval(), (torch.randn(6, 3),), ({0: ANY},)))


def test_no_folding_of_a_scale_that_varies_in_space() -> None:
    conv, scale = nn.Conv2d(3, 4, 1).eval(), torch.randn(1, 1, 4, 4)
    assert kinds(check(lambda x: conv(x) * scale, (torch.randn(1, 3, 4, 4),))) == ["conv", "mul"]


@pytest.mark.parametrize("scale", [0.0, float("inf"), 1e-42, 1e25], ids=str)
def test_no_folding_of_a_scale_that_a_weight_cannot_take(scale: float) -> None:
    """Folded, a weight would be infinite, of one bit, or its zeros those of another sign."""
    weight, x = torch.tensor([[1e14, -2e14], [3e14, 4e14]]), torch.tensor([[3e-10, 1e-12], [-2e-10, 5e-12]])
    factor = torch.tensor([scale, 1.0])
    found = check(lambda x: (x @ weight) * factor, (x,))
    assert kinds(found) == ["matmul", "mul"]
    got, want = ours(found, (x,))[0], (x @ weight) * factor
    torch.testing.assert_close(got, want, rtol=1e-5, atol=0)
    assert torch.equal(got.signbit(), want.signbit())


def test_a_scale_of_zero_is_folded_where_something_is_added_behind() -> None:
    weight, factor, shift = torch.randn(3, 2), torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0])
    assert kinds(check(lambda x: (x @ weight) * factor + shift, (torch.randn(4, 3),))) == ["matmul", "add"]
    assert "mul" in kinds(check(lambda x: (x @ weight) * factor + -shift, (torch.randn(4, 3),)))


def test_no_distribution_of_a_scale_that_a_weight_cannot_take() -> None:
    weight, shift = torch.randn(3, 2), torch.randn(2)
    assert kinds(check(lambda x: (x @ weight + shift) * 0.0, (torch.randn(4, 3),))) == ["matmul", "add", "mul"]


def test_zero_padding_becomes_the_convolutions() -> None:
    conv = nn.Conv2d(3, 4, 3, stride=2, padding=1).eval()
    exported = check(lambda x: conv(F.pad(x, (0, 1, 2, 0))), (torch.randn(1, 3, 8, 8),))
    assert kinds(exported) == ["conv"]
    assert entry(exported).graph.ops[0].attr("padding") == ((3, 1), (1, 2))


def test_other_padding_stays() -> None:
    conv = nn.Conv2d(3, 4, 3).eval()
    assert kinds(check(lambda x: conv(F.pad(x, (1, 1), value=2.0)), (torch.randn(1, 3, 8, 8),))) == ["pad", "conv"]


def test_transposed_weight_is_a_constant() -> None:
    exported = check(nn.Linear(4, 6).eval(), (torch.randn(2, 4),))
    assert kinds(exported) == ["matmul", "add"]
    weight = entry(exported).graph.ops[0].inputs[1]
    assert str(entry(exported).graph.types[str(weight)]) == "f32[4, 6]"


def test_tables_of_positions_vanish() -> None:
    """Rotary tables, position ids: what follows from constants alone is computed at export."""

    class Rotary(nn.Module):
        frequency: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("frequency", 1 / 10000 ** (torch.arange(0, 8, 2) / 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            angle = torch.outer(torch.arange(6).float(), self.frequency)
            return x * torch.cat([angle.cos(), angle.sin()], -1)

    assert kinds(check(Rotary().eval(), (torch.randn(2, 6, 8),))) == ["mul"]


def test_large_expansions_are_not_folded() -> None:
    row = torch.randn(1024)
    exported = check(lambda x: row.expand(1024, 1024).contiguous() + x, (torch.randn(1, 1),))
    assert max(d.array.nbytes for d in exported.store.data.values()) == 4096


torch.manual_seed(0)  # eager rounds f16 at every step: whether that is within the tolerance depends on the numbers
Q, K = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8)
MASK = torch.randn(2, 1, 5, 7)
HIDDEN = torch.rand(2, 1, 5, 7) > 0.7

ATTENTION: list[tuple[str, Any, tuple[torch.Tensor, ...]]] = [
    ("plain", lambda q, k: ((q @ k.mT) * 0.3).softmax(-1) @ k, (Q, K)),
    ("divided", lambda q, k: ((q @ k.mT) / 8**0.5).softmax(-1) @ k, (Q, K)),
    ("no scale", lambda q, k: (q @ k.mT).softmax(-1) @ k, (Q, K)),
    ("scaled before", lambda q, k: ((q * 0.3) @ k.mT).softmax(-1) @ k, (Q, K)),
    ("both scaled", lambda q, k: ((q * 0.5) @ (k * 0.6).mT).softmax(-1) @ k, (Q, K)),
    ("masked", lambda q, k, m: ((q @ k.mT) * 0.3 + m).softmax(-1) @ k, (Q, K, MASK)),
    ("mask first", lambda q, k, m: (m + q @ k.mT).softmax(-1) @ k, (Q, K, MASK)),
    ("mask, then scale", lambda q, k, m: ((q @ k.mT + m) / 3).softmax(-1) @ k, (Q, K, MASK)),
    ("two masks", lambda q, k, m: ((q @ k.mT) * 0.3 + m * 2 + m.sin()).softmax(-1) @ k, (Q, K, MASK)),
    ("five dims", lambda q, k: ((q[None] @ k[None].mT) * 0.3).softmax(-1) @ k[None], (Q, K)),
    ("filled", lambda q, k, h: (q @ k.mT).masked_fill(h, -1e9).softmax(-1) @ k, (Q, K, HIDDEN)),
    ("three dims", lambda q, k, m: torch.bmm((torch.bmm(q[0], k[0].mT) + m[0]).softmax(-1), k[0]), (Q, K, MASK)),
    ("in f32", lambda q, k: ((q @ k.mT) * 0.3).softmax(-1, dtype=torch.float32).to(q.dtype) @ k, (Q.half(), K.half())),
]


@pytest.mark.parametrize(("function", "inputs"), [r[1:] for r in ATTENTION], ids=[r[0] for r in ATTENTION])
def test_attention_is_recognised(function: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    exported = check(function, inputs, atol=1e-3 if inputs[0].dtype is torch.float16 else 1e-5)
    assert "attention" in kinds(exported)
    assert "exp" not in kinds(exported)


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k: ((q @ k.mT).softmax(-1) @ k, (q @ k.mT).softmax(-1)),
        lambda q, k: (q @ k.mT).softmax(-2) @ k,
        lambda q, k: ((q @ k.mT).softmax(-1) * 2) @ k,
        lambda q, k: (q @ k.mT).masked_fill(q[..., :1] > 0, 0.0).softmax(-1) @ k,
    ],
    ids=["probabilities used", "other dim", "changed after", "filled with zero"],
)
def test_what_is_no_attention(function: Any) -> None:
    assert "attention" not in kinds(check(function, (Q, K)))


def test_common_subexpressions() -> None:
    exported = check(lambda x: (x.sin() + 1) * (x.sin() + 1), (torch.randn(3),))
    assert kinds(exported) == ["sin", "add", "mul"]


def test_equal_looking_literals_stay_apart() -> None:
    exported = check(lambda x: (torch.copysign(x, 0.0), torch.copysign(x, -0.0)), (torch.randn(3),))
    assert kinds(exported) == ["copysign", "copysign"]


def test_chains_of_views() -> None:
    exported = check(lambda x: x.view(6, 4).view(2, 12).transpose(0, 1).transpose(0, 1).view(4, 6), (torch.randn(24),))
    assert kinds(exported) == ["reshape"]


class ReshapedTwice(nn.Module):
    """Reshapes that are right by a condition each, which do not add up to one that the verifier knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([x, x.flip(0)], -1)
        z = y.reshape(y.shape[::-1])
        z.flatten().add_(z.flatten())
        z.mul_(2)
        return y


def test_reshapes_that_are_right_by_conditions_of_their_own_stay_two() -> None:
    check(ReshapedTwice().eval(), (torch.randn(8, 4, 2),), ({0: Dim.DYNAMIC},))


def test_dead_ops_are_left_out() -> None:
    exported = to_graphs(lambda x: (x.sort(0), x + 1)[1], (torch.randn(3),))
    assert kinds(exported) == ["add"]


class Bags(nn.Module):
    """Bags of one size, and of two."""

    def __init__(self, mode: str, padding: int | None) -> None:
        super().__init__()
        self.even = nn.EmbeddingBag(10, 4, mode=mode, padding_idx=padding)
        self.offsets: torch.Tensor
        self.register_buffer("offsets", torch.tensor([0, 5]))

    def forward(self, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.even(i), self.even(i.reshape(-1), self.offsets)


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size_are_reduced_in_order(mode: str, padding: int | None) -> None:
    module, i = Bags(mode, padding).eval(), torch.tensor([[1, 2, 2], [9, 0, 2], [2, 2, 2]])
    exported = check(module, (i,), atol=1e-6)
    ops = entry(exported).graph.ops
    updated = {o.outputs[0] for o in ops if o.kind in ("scatter", "put")}
    even, _ = entry(exported).graph.outputs
    made = {r: o for o in ops for r in o.outputs}
    seen, todo = set(), [even]
    while todo:
        seen.add(name := todo.pop())
        todo += [a for a in (made[name].inputs if name in made else ()) if isinstance(a, str)]
    assert updated, "bags by offsets are added up one by one"
    assert not updated & seen


def test_bags_of_one_element() -> None:
    """torch leaves a step of 1 out."""
    i = torch.tensor([[3], [1], [2]])
    check(nn.EmbeddingBag(10, 4, mode="sum").eval(), (i,), atol=1e-6)


def test_bags_of_one_size_vary_in_both_sizes() -> None:
    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.EmbeddingBag(10, 4, mode="sum")

        def forward(self, i: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
            return self.rows(i, per_sample_weights=by)

    sizes = {0: ANY, 1: ANY}
    exported = check(Weighed().eval(), (torch.randint(0, 10, (3, 5)), torch.randn(3, 5)), (sizes, sizes), atol=1e-6)
    assert not {"scatter", "put"} & set(kinds(exported))


def test_a_graph_is_verified_after_each_rule_that_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most rules change nothing; what they leave has been verified."""
    module = nn.Sequential(nn.Conv2d(4, 8, 3), _norm(8), nn.GELU(), nn.Flatten(), nn.LazyLinear(3))
    module(torch.randn(1, 4, 6, 6))
    exported = to_graphs(module.eval(), (torch.randn(2, 4, 6, 6),))
    graph, seen = entry(exported).graph, list[Graph]()

    def noted(graph: Graph) -> Graph:
        seen.append(graph)
        return verify_graph(graph)

    monkeypatch.setattr(rules, "verify_graph", noted)
    assert rules.simplify(graph, exported.store) == graph
    assert not seen
    (first, *others) = graph.ops
    for changed in (replace(graph, ops=(replace(first), *others)), replace(graph, output_names=("other",))):
        rule = rules.Rule("changes", lambda graph, store, changed=changed: changed)  # type: ignore[misc]
        rules.simplify(graph, exported.store, [rule])
        assert seen.pop() is changed
    broken = rules.Rule("breaks", lambda graph, store: replace(graph, ops=()))
    with pytest.raises(GraphError):
        rules.simplify(graph, exported.store, [broken])
