"""Options.compute: which products take 16 bits, what the graph is then, and that its numbers are those of such
products."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.types import DType
from hardtack.exporter import InputSpecError, to_graphs
from hardtack.exporter.precision import Accuracy, AccuracyMeter, compare_outputs
from tests.export.checks import assert_same, entry, feed, kinds, ours
from tests.export.narrowing import narrow, reasons, rounded, texts


def seeded(module: nn.Module) -> nn.Module:
    """The module in eval mode, its parameters no whole numbers."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_()
    return module.eval()


def test_a_product_of_a_constant() -> None:
    made, report = narrow(seeded(nn.Linear(8, 4)), (torch.randn(3, 8),))
    assert texts(made) == [
        "input.r0: bf16[3, 8] = cast(input, dtype=bf16)",
        "linear.1: f32[3, 4] = matmul(input.r0, linear.r0, dtype=f32)",
        "linear.2: f32[3, 4] = add(linear.1, bias)",
    ]
    assert [str(entry(made).graph.types[c.name]) for c in entry(made).graph.constants] == ["f32[4]", "bf16[8, 4]"]
    assert sorted(str(d.dtype) for d in made.store.data.values()) == ["bf16", "f32"], (
        "no f32 copy of the weight is left"
    )
    assert report.num_narrowed == 1


class Heads(nn.Module):
    """Products of one value, seen through views, one of them by another product."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_what_products_share_is_converted_once_and_behind_its_views() -> None:
    """Where q, k and v are made, they are converted, all three in one op."""
    made, _ = narrow(seeded(Heads()), (torch.randn(2, 5, 16),))
    assert kinds(made).count("cast") == 3
    lines = texts(made)
    assert "linear.2.r0: bf16[10, 48] = cast(linear.2, dtype=bf16)" in lines
    (attention,) = [line for line in lines if "attention(" in line]
    assert attention.startswith("scaled_dot_product_attention: f32[2, 2, 5, 8] = attention(")
    assert "dtype=f32" in attention


def test_a_slice_of_what_is_read_as_f32_too_is_converted_alone() -> None:
    weight = torch.randn(8, 8)

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.sin()
        return y.exp(), y[:2] @ weight, y @ y.mT

    made, _ = narrow(forward, (torch.randn(4, 8),))
    assert [line.partition(" = ")[2] for line in texts(made) if "= cast(" in line] == [
        "cast(slice_1, dtype=bf16)",
        "cast(sin, dtype=bf16)",
    ]


def test_no_conversion_meets_one_back() -> None:
    weight = torch.randn(8, 8)
    made, _ = narrow(lambda x: x.float() @ weight, (torch.randn(4, 8).bfloat16(),))
    assert kinds(made) == ["matmul"]


def test_a_convolutions_bias_stays_and_is_added_before_anything_is_rounded() -> None:
    module, x = seeded(nn.Conv2d(4, 6, 3, padding=1)), torch.randn(2, 4, 5, 5)
    made, _ = narrow(module, (x,))
    assert [line.partition(", stride")[0] for line in texts(made)] == [
        "input.r0: bf16[2, 4, 5, 5] = cast(input, dtype=bf16)",
        "convolution: f32[2, 6, 5, 5] = conv(input.r0, weight.r0, bias, dilation=(1, 1), dtype=f32, groups=1, "
        "output_padding=(0, 0), padding=((1, 1), (1, 1))",
    ]
    assert_same(ours(made, (x,)), [F.conv2d(rounded(x), rounded(module.weight), module.bias, padding=1)])  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
@pytest.mark.parametrize("low", [-math.inf, torch.finfo(torch.float32).min, -1e9])
def test_a_mask_stays_f32(dtype: DType, low: float) -> None:
    """finfo(float32).min is -inf in f16: a row of a mask that hides all keys would be another one."""
    q = torch.randn(1, 2, 5, 8)
    mask = torch.zeros(5, 5).masked_fill(~torch.ones(5, 5, dtype=torch.bool).tril(), low)
    shift = torch.randn(5, 5) / 3
    made, _ = narrow(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (q, mask + shift), dtype=dtype)
    assert kinds(made) == ["cast", "attention"]
    half = rounded(q, torch.bfloat16 if dtype is DType.BF16 else torch.float16)
    assert_same(ours(made, (q, mask + shift)), [F.scaled_dot_product_attention(half, half, half, mask + shift)])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.rows.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        return self.head(self.rows(i))


def test_a_table_that_is_a_products_weight_too_is_kept_in_both() -> None:
    made, _ = narrow(seeded(Tied()), (torch.tensor([3, 1]),))
    types = sorted(str(entry(made).graph.types[c.name]) for c in entry(made).graph.constants)
    assert types == ["bf16[8, 16]", "f32[16, 8]"]


def test_what_has_16_bits_or_64_is_not_touched() -> None:
    bf16, f64 = torch.randn(8, 8).bfloat16(), torch.randn(8, 8).double()
    made, report = narrow(lambda x, y: (x @ bf16, y @ f64), (torch.randn(4, 8).bfloat16(), torch.randn(4, 8).double()))
    assert (kinds(made), report.num_narrowed, report.kept) == (["matmul", "matmul"], 0, [])


X = torch.randn(4, 16)
SCORES, TABLE = torch.randn(16, 8), torch.randn(8, 16)
POSITIONS, TURNS, FILTERS = torch.arange(12), torch.rand(1, 8), torch.randn(2, 3, 3, 3)


def routed(x: torch.Tensor) -> torch.Tensor:
    """The best two rows of a table, as a router or a codebook finds them."""
    weights, rows = (x @ SCORES).softmax(-1).topk(2)
    return (TABLE[rows] * weights.unsqueeze(-1)).sum(1)


KEPT: list[tuple[str, Any, tuple[torch.Tensor, ...], str]] = [
    ("angles", lambda p: p[:, None].float() * 3 @ TURNS, (POSITIONS,), "whole numbers alone"),
    ("one-hot", lambda i: F.one_hot(i, 16).float() @ SCORES, (POSITIONS,), "whole numbers alone"),
    ("running sum", lambda x: torch.ones(4, 4).tril() @ x, (X,), "whole numbers alone"),
    ("mean of what a mask shows", lambda x, m: m.float() @ x, (X, torch.ones(2, 4) > 0), "whole numbers alone"),
    ("coordinates", lambda x: x @ TABLE[:2], (torch.rand(9, 2),), "fewer than 8 terms"),
    ("few channels", lambda x: F.conv1d(x, FILTERS[:, :2, 0]), (torch.randn(1, 2, 9),), "fewer than 8 terms"),
    ("Fourier transform", lambda x: torch.fft.rfft(x).abs(), (X,), "a part of _fft_r2c"),
    ("router", routed, (X,), "its order or whole part decides what is read"),
    ("places", lambda x: TABLE[(x @ SCORES).abs().clamp(max=7).long()], (X,), "its order or whole part"),
]


@pytest.mark.parametrize(("forward", "args", "reason"), [k[1:] for k in KEPT], ids=[k[0] for k in KEPT])
def test_products_that_stay_f32(forward: Any, args: tuple[torch.Tensor, ...], reason: str) -> None:
    made, report = narrow(forward, args)
    assert report.num_narrowed == 0
    assert report.kept
    assert all(reason in r for r in reasons(report))
    assert texts(made) == texts(to_graphs(forward, args))


NARROWED: list[tuple[str, Any, tuple[torch.Tensor, ...]]] = [
    ("pixels", lambda x: F.conv2d(x.float() / 255, FILTERS), (torch.ones(1, 3, 8, 8).byte(),)),
    ("tokens", lambda x: (x @ SCORES).argmax(-1), (X,)),
    ("embedded", lambda i: F.embedding(i, TABLE) @ SCORES, (torch.tensor([1, 2]),)),
    ("scores", lambda x: (x @ x.mT).softmax(-1), (X,)),
    ("leaky", lambda x: F.leaky_relu(x @ SCORES), (X,)),
]


@pytest.mark.parametrize(("forward", "args"), [k[1:] for k in NARROWED], ids=[k[0] for k in NARROWED])
def test_products_beside_those(forward: Any, args: tuple[torch.Tensor, ...]) -> None:
    """Bytes are data; a choice that is a result alone is the caller's; comparisons in functions decide nothing."""
    _, report = narrow(forward, args)
    assert (report.num_narrowed, report.kept) == (1, [])


def test_products_too_small_to_gain_stay_f32() -> None:
    weight = torch.randn(16, 16)
    sizes = [narrow(lambda x: x @ weight, (torch.randn(n, 16),), fewest=16**3)[1].num_narrowed for n in (15, 16)]
    assert sizes == [0, 1]
    dynamic = narrow(lambda x: x @ weight, (torch.randn(2, 16),), ({0: Dim.DYNAMIC},), fewest=16**3)
    assert dynamic[1].num_narrowed == 1, "a size that is not known counts as large"


def test_weights_that_f16_does_not_hold_stay_f32() -> None:
    x = torch.randn(3, 8)
    for factor in (1e-8, 1e6):
        weight = torch.randn(8, 4) * factor
        _, report = narrow(lambda x, w=weight: x @ w, (x,), dtype=DType.F16)
        assert reasons(report) == ["f16 does not hold its weights"]
        assert narrow(lambda x, w=weight: x @ w, (x,))[1].num_narrowed == 1


class Cached(nn.Module):
    """Attention over a cache of keys, which are values, too."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.cache: torch.Tensor
        self.register_buffer("cache", torch.zeros(1, 1, 16, 8))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        self.cache.index_copy_(2, at, self.project(x)[None, None])
        return F.scaled_dot_product_attention(x[None, None], self.cache, self.cache)


def test_a_state_stays_f32_and_so_does_what_reads_all_of_it() -> None:
    made, report = narrow(seeded(Cached()), (torch.randn(2, 8), torch.tensor([0, 1])))
    assert str(entry(made).graph.types["cache"]) == "f32[1, 1, 16, 8]"
    assert (report.num_narrowed, reasons(report)) == (1, ["an operand is a state, all of which each run would convert"])


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        w = self.weight

        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return i - 1, (x @ w).tanh()

        _, x = torch.while_loop(lambda i, x: i > 0, body, (i, x))  # type: ignore[misc]
        return torch.cond(x.sum() > 0, lambda x: (x @ w,), lambda x: (x.exp(),), (x,))[0]


def test_graphs_inside_of_ops() -> None:
    """What is only converted inside is converted outside, once for all turns: a weight, at export."""
    module, args = seeded(Branches()), (torch.randn(3, 8), torch.tensor(3))
    made, report = narrow(module, args)
    assert report.num_narrowed == 2
    graph = entry(made).graph
    assert [str(graph.types[c.name]) for c in graph.constants] == ["bf16[8, 8]"]
    x = args[0]
    for _ in range(3):
        x = (rounded(x) @ rounded(module.weight)).tanh()  # type: ignore[arg-type]
    want = rounded(x) @ rounded(module.weight) if x.sum() > 0 else x.exp()  # type: ignore[arg-type]
    assert_same(ours(made, args), [want], rtol=1e-2, atol=1e-2)


def test_modules_that_stay_f32() -> None:
    module = seeded(nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))))
    x = (torch.randn(4, 8),)
    for patterns, kept in ((("1",), ["1.0", "1.1"]), (("*.1", "0"), ["0", "1.1"]), ((), [])):
        assert [k.module for k in narrow(module, x, keep_f32=patterns)[1].kept] == kept
    assert reasons(narrow(module, x, keep_f32=("1.0",))[1]) == ["keep_f32 has '1.0'"]


def test_a_pattern_that_no_product_stands_in() -> None:
    with pytest.raises(InputSpecError) as caught:
        narrow(seeded(nn.Linear(8, 8)), (torch.randn(4, 8),), keep_f32=("head",))
    assert str(caught.value) == (
        "keep_f32 has 'head', but no product of the model stands in such a module\n"
        "  To fix: name a module as named_modules() does; * stands for any part of a path"
    )


def test_accuracy_at_the_example() -> None:
    module, x = seeded(nn.Linear(8, 4, bias=False)), torch.randn(3, 8)
    wide = to_graphs(module, (x,))
    made, _ = narrow(module, (x,))
    wide.store.data.update(made.store.data)
    graph = entry(wide).graph
    (found,) = compare_outputs(graph, entry(made).graph, wide.store, feed(graph, (x,)))
    exact = x @ module.weight.detach().mT  # type: ignore[operator, union-attr]
    error = (rounded(x) @ rounded(module.weight.detach()).mT - exact).double()  # type: ignore[operator, union-attr]
    assert found.output == "output"
    assert found.absolute == pytest.approx(float(error.abs().max()), rel=1e-2)
    assert found.relative == pytest.approx(found.absolute / float(exact.abs().max()), rel=1e-3)
    assert found.snr == pytest.approx(10 * math.log10(exact.double().square().sum() / error.square().sum()), abs=0.1)
    assert found.num_lost == 0
    ours = (exact + error).double()
    assert found.cosine == pytest.approx(float((ours * exact).sum() / ours.norm() / exact.double().norm()), abs=1e-9)
    assert found.top1 == 1.0


def accuracy(found: torch.Tensor, exact: torch.Tensor) -> Accuracy:
    meter = AccuracyMeter("a")
    meter.add(found, exact)
    return meter.result()


def test_accuracy_of_two_tensors() -> None:
    exact = torch.tensor([[1.0, 2.0, 0.0], [3.0, -1.0, 0.0]])
    equal = accuracy(exact, exact)
    assert (equal.absolute, equal.snr, equal.cosine, equal.top1) == (0.0, math.inf, 1.0, 1.0)
    other = accuracy(torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 4.0]]), exact)
    assert other.cosine == pytest.approx(5 / math.sqrt(21 * 15))
    assert other.top1 == 0.5
    lost = accuracy(torch.tensor([[1.0, 2.0, 0.0], [3.0, -1.0, math.inf]]), exact)
    assert (lost.absolute, lost.cosine, lost.num_lost, lost.top1) == (0.0, 1.0, 1, 0.5)
    assert accuracy(torch.zeros(2, 3), exact).cosine == 0.0
    for without in (torch.tensor(1.0), torch.ones(3, 1), torch.ones(0, 3), torch.tensor([1, 2])):
        assert accuracy(without, without).top1 is None


def test_accuracy_counts_what_overflows() -> None:
    weight, x = torch.rand(8, 4) + 0.1, torch.rand(3, 8) + 0.1
    x[0] *= 1e6
    wide = to_graphs(lambda x: x @ weight, (x,))
    made, _ = narrow(lambda x: x @ weight, (x,), dtype=DType.F16)
    wide.store.data.update(made.store.data)
    graph = entry(wide).graph
    (found,) = compare_outputs(graph, entry(made).graph, wide.store, feed(graph, (x,)))
    assert found.num_lost == 4
    assert found.relative < 1e-3
