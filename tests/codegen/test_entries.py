"""What is around the ops: states, outputs that alias, runs that fail, 16-bit and 64-bit models, equal builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.codegen.compare import assert_same, compile_module, eager
from tests.codegen.runner import KernelFailed


class Aliases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return x, self.weight, y, y, y.t(), x[1:], self.weight.t(), y[0], x.reshape(-1), y + 1, torch.full((2,), 3.0)


def test_outputs_that_are_inputs_constants_views_and_duplicates() -> None:
    x = torch.randn(4, 5)
    compiled = compile_module(Aliases().eval(), [x], ({0: Dim.AUTO},))
    for given in (x, torch.randn(2, 5), torch.randn(9, 5)):
        assert_same(compiled(given), eager(Aliases(), [given]))


class EqualByGuard(nn.Module):
    """Sizes that a condition makes equal (an even number of rows; seven of them at least) in forms of their own."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(2, 7))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs, diagonal = x.view(-1, 2).flatten(), y.diagonal(-1, 0, 1)
        joined = torch.cat([self.state, diagonal])
        self.state.copy_(diagonal)
        first, second = x.chunk(2)
        halves = torch.cat([first[None], second[None]]), torch.cat([second, first]) + x
        return torch.stack([pairs, x]), *halves, joined, self.state + 1


def test_sizes_that_a_guard_makes_equal_are_joined_and_stored() -> None:
    given = [torch.randn(8), torch.randn(8, 11, 2)]
    module = EqualByGuard().eval()
    compiled = compile_module(module, given, ({0: Dim.DYNAMIC}, {1: Dim.DYNAMIC}))
    for x, y in ((8, 11), (12, 7), (2, 30)):
        args = [torch.randn(x), torch.randn(8, y, 2)]
        assert_same(compiled(*args), eager(module, args))


class Counter(nn.Module):
    """Buffers mutated in place in every way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", torch.ones(3, 4))
        self.register_buffer("other", torch.full((3, 4), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        before = self.last.clone()
        self.last.copy_(self.other)  # a swap: each state takes what the other held
        self.other.copy_(before + x)
        return x - self.mean + self.count


def test_states_keep_their_content_between_runs() -> None:
    module = Counter().eval()
    compiled = compile_module(Counter().eval(), [torch.randn(3, 4)])
    for k in range(4):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(k))
        with torch.no_grad():
            want = module(x)
        assert_same(compiled(x), [want])
        for name, buffer in module.named_buffers():
            np.testing.assert_allclose(compiled.runner.states[name], buffer.numpy(), rtol=1e-6)
    compiled.runner.reset()
    assert compiled.runner.states["count"] == 0


class Cache(nn.Module):
    """One step of decoding: keys and values are put at a position into a cache that attention reads whole."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.register_buffer("keys", torch.zeros(1, 2, 12, 8))
        self.register_buffer("values", torch.zeros(1, 2, 12, 8))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(1, 1, 3, 2, 8).transpose(1, 3).unbind(2)
        self.keys.index_copy_(2, position, k)
        self.values[:, :, position] = v
        mask = torch.arange(12) <= position
        return F.scaled_dot_product_attention(q, self.keys, self.values, mask[None, None, None])


def test_a_cache_that_is_written_at_a_position() -> None:
    torch.manual_seed(1)
    module = Cache().eval()
    compiled = compile_module(module, [torch.randn(1, 1, 16), torch.tensor([0])])
    for k in range(5):
        args = [torch.randn(1, 1, 16), torch.tensor([k])]
        with torch.no_grad():
            want = module(*args)
        assert_same(compiled(*args), [want], 10)
    with pytest.raises(KernelFailed):
        compiled(torch.randn(1, 1, 16), torch.tensor([12]))


class Shift(nn.Module):
    """A state whose next content is another state's present one, which is itself updated in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.arange(4.0))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        self.a.copy_(self.b)
        self.b[i] = x
        return x + 1


def test_a_state_copied_before_it_is_updated_in_place() -> None:
    module = Shift().eval()
    compiled = compile_module(Shift().eval(), [torch.randn(1), torch.tensor([1])])
    for k in (1, 3, 0):
        args = [torch.full((1,), 10.0 + k), torch.tensor([k])]
        module(*args)
        compiled(*args)
        for name, buffer in module.named_buffers():
            np.testing.assert_array_equal(compiled.runner.states[name], buffer.numpy(), name)


FAILING = {
    "take": (lambda x, i: x[i], torch.tensor([0, 5])),
    "take_negative": (lambda x, i: x[i].sum(), torch.tensor([-6])),
    "embedding": (lambda x, i: F.embedding(i, x) * 2, torch.tensor([3, 1 << 40])),
    "gather": (lambda x, i: x.gather(0, i[None]), torch.tensor([4, 9, 0])),
    "scatter": (lambda x, i: x.scatter(0, i[None], 1.0), torch.tensor([0, 1, 5])),
    "put": (lambda x, i: x.index_put((i,), x[:1]), torch.tensor([5])),
    "lanes": (lambda x, i: x[:, 0][i] * 2, torch.tensor([-5] * 16 + [4] * 22 + [5])),
    "lanes_negative": (lambda x, i: x[:, 0][i] * 2, torch.tensor([-6] + [-5] * 38)),
    "lanes_large": (lambda x, i: x[:, 0][i] * 2, torch.tensor([0] * 15 + [2**63 - 1] + [-(2**63)] * 23)),
    "divide": (lambda x, i: 7 // i, torch.tensor([1, 0])),
    "remainder": (lambda x, i: i % (i - i), torch.tensor([1, 2])),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_run_that_fails_says_so(name: str) -> None:
    function, bad = FAILING[name]
    x, good = torch.randn(5, 3), torch.ones_like(bad)

    class Module(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return function(x, i)

    compiled = compile_module(Module().eval(), [x, good])
    if name != "remainder":
        assert_same(compiled(x, good), eager(Module(), [x, good]))
    with pytest.raises(KernelFailed):
        compiled(x, bad)


class Block(nn.Module):
    """Linear, convolution, norm and attention in one dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.conv, self.norm = nn.Linear(8, 24), nn.Conv1d(8, 8, 3, padding=1), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x.transpose(1, 2)).transpose(1, 2) + x
        q, k, v = self.linear(self.norm(y)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) + y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_block_in_every_float_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    module = Block().eval().to(dtype)
    x = torch.randn(2, 5, 8).to(dtype)
    assert_same(compile_module(module, [x])(x), eager(module, [x]), 4)


@pytest.mark.parametrize(
    "name", ["batch", "n", "m", "point", "float", "args", "c0", "o0", "begin", "acc", "cnt", "block"]
)
def test_sizes_may_have_any_name(name: str) -> None:
    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x @ x.t(), x.softmax(0), (x + 1).flatten()

    compiled = compile_module(Module().eval(), [torch.randn(5, 4)], ({0: Dim(name, max=64)},))
    for rows in (5, 1, 2, 33):
        x = torch.randn(rows, 4)
        assert_same(compiled(x), eager(Module(), [x]), 10)


_BUILD = """
import hashlib, torch
from torch import nn
from torch.export import Dim
from hardtack.exporter import to_graphs
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.plan import to_json
from hardtack.codegen.pipeline import compile_entry
torch.manual_seed(0)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n, self.c = nn.Linear(12, 36), nn.LayerNorm(12), nn.Conv2d(3, 12, 3)
    def forward(self, x):
        y = self.c(x).flatten(2).transpose(1, 2)
        q, k, v = self.a(self.n(y)).view(y.shape[0], -1, 3, 2, 6).permute(2, 0, 3, 1, 4)
        z = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return z, torch.cat([z, y], 1).sort(dim=1)[0], y.argmax(1), z.softmax(-1) @ y.transpose(1, 2)
g = to_graphs(M().eval(), (torch.randn(2, 3, 6, 7),), {}, ({0: Dim("batch", max=9)},), False).entries["forward"].graph
c = compile_entry(g, {"batch": 2}, CppBackend())
text = repr([sorted(c.sources.items()), to_json(c.for_target("x")), sorted(c.prepacks), c.texts["fuse"]])
print(hashlib.sha256(text.encode()).hexdigest(), len(c.sources))
"""


def test_two_processes_give_equal_sources_and_plans() -> None:
    root = str(Path(__file__).resolve().parents[2])
    found = set()
    for seed in ("1", "77"):
        path = os.pathsep.join([*(p for p in sys.path if p), root])
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _BUILD], env=env, capture_output=True, text=True, check=True
        )
        found.add(done.stdout.strip())
    assert len(found) == 1, found
