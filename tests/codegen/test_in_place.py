"""Writes to parts of a state, as caches stacked over layers have them: in the state's own memory where nothing needs
what was there, and with eager's numbers wherever something does."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.loops import LoopError, LoopNest
from hardtack.codegen.lower import in_place, lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.passes.shared import inline
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import backends_for
from hardtack.exporter import to_graphs
from tests.codegen.compare import assert_same, compile_module

LAYERS, ROWS, WIDTH = 3, 4, 6
Write = Callable[[torch.Tensor, int, torch.Tensor, torch.Tensor], object]
WRITES: dict[str, Write] = {
    "index_copy": lambda s, i, at, x: s[i].index_copy_(0, at, x[:1]),
    "row": lambda s, i, at, x: s.__setitem__((i, at), x[:1]),
    "row of a view": lambda s, i, at, x: s[i].__setitem__(at, x[:1]),
    "row by a negative layer": lambda s, i, at, x: s.__setitem__((i - LAYERS, at), x[:1]),
    "column": lambda s, i, at, x: s.__setitem__((i, slice(None), at), x[:, :1]),
    "column of a view": lambda s, i, at, x: s[i].index_copy_(1, at, x[:, :1]),
    "transposed": lambda s, i, at, x: s[i].t().index_copy_(0, at, x[:, 0][None]),
    "layer": lambda s, i, at, x: s.select(0, i).copy_(x),
    "rows": lambda s, i, at, x: s[i, 1:3].copy_(x[1:3]),
    "corner": lambda s, i, at, x: s[i, 2:, :2].copy_(x[2:, :2]),
    "dynamic layer": lambda s, i, at, x: s.__setitem__((at, i), x[:1]),
    "dynamic layer and column": lambda s, i, at, x: s.__setitem__((at, slice(None), at + 1), x[:, 0][None]),
    "negative place": lambda s, i, at, x: s.__setitem__((i, at - ROWS), x[:1]),
    "added": lambda s, i, at, x: s.index_put_((torch.tensor([i]), at), x[:1], accumulate=True),
    "equal places": lambda s, i, at, x: s[i].index_put_((torch.stack([at[0], at[0]]),), x[:2]),
}
READS = ("none", "old", "old later", "whole", "layer", "itself", "other layer")
"""What a step does with the state before it writes."""


class Steps(nn.Module):
    """Random writes and reads of one state."""

    s: torch.Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        self.steps = [
            (draw.choice(READS), draw.choice([*WRITES]), draw.randrange(LAYERS)) for _ in range(draw.randint(1, 5))
        ]
        self.returns = draw.choice(("nothing", "state", "view"))
        self.register_buffer("s", torch.arange(float(LAYERS * ROWS * WIDTH)).reshape(LAYERS, ROWS, WIDTH))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        total, late = x.sum() * 0 + x, []
        for k, (read, write, i) in enumerate(self.steps):
            given = x * (k + 2) + total * 0.125
            if read == "old":
                total = total + self.s[i]
            elif read == "old later":
                late.append(self.s[i].clone())
            elif read == "whole":
                late.append(self.s.clone().amax(0))
            elif read == "itself":
                given = self.s[i].flip(0) + 1
            elif read == "other layer":
                given = self.s[(i + 1) % LAYERS] * 2
            WRITES[write](self.s, i, at, given)
            if read == "layer":
                total = total + self.s[i].relu()
        for old in late:
            total = total + old * 0.5
        return (
            total
            if self.returns == "nothing"
            else (total, self.s.clone() if self.returns == "state" else self.s[1].clone())
        )


class Programs(nn.Module):
    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self.programs = nn.ModuleList(Steps(seed) for seed in range(first, first + count))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> list[torch.Tensor]:
        made = [p(x, at) for p in self.programs]
        return [t for m in made for t in (m if isinstance(m, tuple) else (m,))]


@pytest.mark.parametrize("first", [0, 40])
def test_random_writes_and_reads(first: int) -> None:
    module, given = Programs(first, 40).eval(), Programs(first, 40).eval()
    compiled = compile_module(given, [torch.randn(ROWS, WIDTH), torch.tensor([1])])
    for at in (1, 2, 0):
        x = torch.randn(ROWS, WIDTH)
        with torch.no_grad():
            want = module(x, torch.tensor([at]))
        assert_same(compiled(x, torch.tensor([at])), want)
        for name, buffer in module.named_buffers():
            np.testing.assert_allclose(compiled.runner.states[name], buffer.numpy(), rtol=1e-5, err_msg=name)


class Cache(nn.Module):
    """A decoder's cache of all layers in one buffer: each layer writes its rows and reads all of its own."""

    k: torch.Tensor

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("k", torch.zeros(LAYERS, ROWS, WIDTH))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        for i in range(LAYERS):
            self.write(self.k, i, at, x.tanh())
            x = x + F.scaled_dot_product_attention(x[None, None], self.k[i][None, None], self.k[i][None, None])[0, 0]
        return x


def _graph(module: nn.Module, *more: torch.Tensor) -> Graph:
    args = (torch.randn(ROWS, WIDTH), torch.tensor([1]), *more)
    (entry,) = to_graphs(module.eval(), args).entries.values()
    return entry.graph


IN_PLACE = [w for w in WRITES if w not in ("equal places", "corner")]
"""A corner is a part of a part, of several rows and columns: that layer is joined first."""
TARGETS = ("cpu:x86-64-v3", "cuda:sm_90")


@pytest.mark.sweep(over="target")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("write", IN_PLACE)
def test_a_cache_of_all_layers_stays_where_it_is(write: str, target: str) -> None:
    """Nothing as large as the cache, or as a layer of it, is written but the written part."""
    backend, graph = backends_for([target])[0], _graph(Cache(WRITES[write]))
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {})
    assert len(low.in_place) == LAYERS, [str(d) for d in low.decisions]
    copies = [
        n for n in low.nests if isinstance(n, LoopNest) and any(s.buffer in ("k", *low.in_place) for s in n.loads())
    ]
    assert not copies
    compile_entry(graph, {}, backend)


@pytest.mark.parametrize("target", TARGETS)
def test_a_cache_that_is_an_input_is_copied_once(target: str) -> None:
    class Step(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            k = k.clone()
            for i in range(LAYERS):
                k[i].index_copy_(0, at, x[:1].tanh())
                x = x + k[i] * 2
            return x, k

    backend, graph = backends_for([target])[0], _graph(Step(), torch.randn(LAYERS, ROWS, WIDTH))
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {})
    assert len(low.in_place) == LAYERS - 1
    compile_entry(graph, {}, backend)


class Late(nn.Module):
    """What was in the state is read after it is written."""

    s: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("s", torch.zeros(LAYERS, ROWS, WIDTH))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        old = self.s[1].clone()
        self.s[0].index_copy_(0, at, x[:1])
        return torch.cumsum(old, 0) @ x.t()


def test_what_is_still_read_is_copied_and_said() -> None:
    backend, graph = backends_for([TARGETS[0]])[0], _graph(Late())
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {})
    assert not low.in_place
    (said,) = [str(d) for d in low.decisions if d.kind == "in place"]
    assert "s is copied: scan cumsum reads s as it was" in said


@pytest.mark.parametrize("target", TARGETS)
def test_a_wrong_analysis_does_not_pass_the_verifier(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = _graph(Late())
    monkeypatch.setattr(in_place, "_reads_it_still", lambda *_: None)
    with pytest.raises(LoopError, match=r"reads s, whose memory .* takes"):
        compile_entry(graph, {}, backends_for([target])[0])


class Early(nn.Module):
    """What was in the state is read before it is written, and what is made of it behind."""

    s: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("s", torch.ones(LAYERS, ROWS, WIDTH))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        old = self.s[1] + 1
        self.s[1].index_copy_(0, at, x[:1])
        return old * x


def test_nothing_is_inlined_behind_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, backend = _graph(Early()), backends_for([TARGETS[0]])[0]
    compile_entry(graph, {}, backend)
    monkeypatch.setattr(inline, "why_too_late", lambda *_: None)
    with pytest.raises(LoopError, match=r"reads s, whose memory .* takes"):
        compile_entry(graph, {}, backend)
