"""Bundles, and one Triton server for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample
import torch
from torch import nn
from torch.export import Dim
from triton_server import MISSING, TritonServer, build_backend, is_there

import hardtack
from hardtack.codegen.ir.expr import const, mul
from hardtack.codegen.ir.plan import Copy, Plan, PlanSym, Value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.content import BundleContent, TensorContent
from hardtack.codegen.package.writer import write_bundle


class Mlp(nn.Module):
    """(batch, 16) -> (batch, 4)"""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


class Many(nn.Module):
    """Fixed shapes, many dtypes, tensors without dimensions."""

    def forward(self, a: Any, b: Any, c: Any, d: Any, e: Any, n: Any) -> Any:
        return {"a": a + 1, "b": ~b, "c": c * 2, "d": d * 2, "e": e.double() / 2, "n": n + 1, "u": e.to(torch.uint8)}


class Words(nn.Module):
    """(batch, length) ids -> (batch, length, 3); an id from 10 on is an error of the kernel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(10, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.table(ids)
        return out


class Counter(nn.Module):
    """The sum of what the sequence gave so far; an index other than 0 to 2 fails halfway, when `total` has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.full((3,), 100.0))

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
        self.total.add_(x)
        return self.total.clone(), self.total[index]


class Tally(nn.Module):
    """Rows, plus the sum of all rows that the sequence gave so far."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return x + self.total


class Pixels(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.arange(6.0).reshape(1, 3, 2, 1)


class Outer(nn.Module):
    """(n,) -> (n, n): a small question with a large answer, and none that could be joined with another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, None] * x


class Heavy(nn.Module):
    """4 MB of weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer = nn.Linear(1024, 1024)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out


def twice() -> BundleContent:
    """forward(x: f32[2*n, n]) -> x; an export would call the first size by a name of its own."""
    bundle, shape = sample.content(sample.TARGETS[:2]), (mul(const(2), sample.N), sample.N)
    strides = (sample.N, sample.ONE)
    entry = replace(
        bundle.entries[1],
        name="forward",
        syms=(sample.N,),
        inputs=(TensorContent("x", DType.F32, shape, strides),),
        outputs=(TensorContent("y", DType.F32, shape, strides),),
    )
    values = tuple(
        Value(name, DType.F32, shape, strides, (kind, 0)) for name, kind in (("x", "input"), ("y", "output"))
    )
    syms = (PlanSym(sample.N, 0, 1),)
    plans = {
        ("forward", t.name): Plan(
            "forward", t.name, syms, (), values, ("x",), ("y",), (), (Copy("x", "y"),), sample.ZERO
        )
        for t in bundle.targets
    }
    return replace(bundle, entries=(entry,), plans=plans, states=())


@pytest.fixture(scope="session")
def modules() -> dict[str, nn.Module]:
    return {
        "mlp": Mlp(1), "mlp2": Mlp(2), "many": Many(), "words": Words(), "counter": Counter(), "tally": Tally(),
        "pixels": Pixels(), "outer": Outer(), "heavy": Heavy(),
    }  # fmt: skip


@pytest.fixture(scope="session")
def bundles(modules: dict[str, nn.Module], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name of the module; mlp for batches up to 64."""
    if not is_there():
        pytest.skip(MISSING)
    batch, length = Dim("batch", max=64), Dim("length", max=32)
    row = (torch.zeros(2, 16),)
    many = (
        torch.zeros(2, 3), torch.zeros(4, dtype=torch.bool), torch.zeros(3, dtype=torch.int64),
        torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16), torch.tensor(0),
    )  # fmt: skip
    arguments: dict[str, tuple[tuple[torch.Tensor, ...], Any]] = {
        "mlp": (row, ({0: batch},)),
        "mlp2": (row, ({0: batch},)),
        "many": (many, None),
        "words": ((torch.zeros(2, 5, dtype=torch.int64),), ({0: batch, 1: length},)),
        "counter": ((torch.zeros(3), torch.tensor([0])), None),
        "tally": ((torch.zeros(2, 3),), ({0: batch},)),
        "pixels": ((torch.zeros(2, 3, 2, 5).to(memory_format=torch.channels_last),), ({0: batch},)),
        "outer": ((torch.zeros(8),), ({0: Dim("n", max=32768)},)),
        "heavy": ((torch.zeros(1, 1024),), None),
    }
    folder = tmp_path_factory.mktemp("bundles")
    paths = {}
    for name, (args, shapes) in arguments.items():
        paths[name] = folder / f"{name}.pkg"
        module = modules[name].eval()
        hardtack.export(module, args, path=paths[name], dynamic_shapes=shapes, targets=("cpu:native",))
    paths["twice"] = folder / "twice.pkg"
    write_bundle(paths["twice"], twice())
    return paths


@pytest.fixture(scope="session")
def backend() -> Path:
    if not is_there():
        pytest.skip(MISSING)
    return build_backend()


@pytest.fixture(scope="session")
def server(backend: Path, bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server without models; every test adds its own, under a name of its own."""
    with TritonServer(tmp_path_factory.mktemp("triton"), backend) as started:
        yield started
