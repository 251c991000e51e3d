"""Accesses of kernels in Triton's interpreter: the check itself, and kernels that it refused."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from tests.codegen.compare import assert_same, eager
from tests.triton.accesses import Accesses, BadAccess, checked
from tests.triton.test_loops import normal, on_gpu

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, y):\n    i = tl.arange(0, 8)\n"
MINE = "    mine = tl.program_id(0) * 8 + i\n"

BAD: dict[str, tuple[int, str, str]] = {
    "a load outside": (1, "    v = tl.load(x + i + 9)\n", r"line 7: a load outside all buffers, \+64 from one of 64"),
    "a store outside": (1, "    tl.store(y + i + 16, i * 1.0, mask=i == 3)\n", "line 7: a store outside all buffers"),
    "a load of another program's": (
        2,
        f"{MINE}    tl.store(y + mine, i * 1.0)\n    tl.debug_barrier()\n    v = tl.load(y + 15 - mine)\n",
        "line 10 loads what another program stores",
    ),
    "another thread's without a barrier": (
        1,
        "    tl.store(y + i, i * 1.0)\n    v = tl.load(y + 7 - i)\n",
        "line 8 loads what was stored without a barrier",
    ),
    "a store over what another thread loads": (
        1,
        "    v = tl.load(y + 7 - i)\n    tl.store(y + i, v)\n",
        "line 8 stores over what was loaded without a barrier",
    ),
    "two stores in no order": (
        1,
        "    tl.store(y + i, i * 1.0)\n    tl.store(y + 7 - i, i * 1.0)\n",
        "line 8 stores over another statement without a barrier",
    ),
    "two programs' stores in no order": (
        2,
        f"{MINE}    tl.store(y + mine, i * 1.0)\n    tl.debug_barrier()\n    tl.store(y + 15 - mine, i * 1.0)\n",
        "line 10 stores over another statement of another program",
    ),
    "a load of what another program updates": (
        2,
        f"{MINE}    tl.atomic_add(y + i, 1.0)\n    tl.debug_barrier()\n    tl.load(y + i)\n",
        "line 8 updates over what another program loads",
    ),
}
GOOD: dict[str, tuple[int, str]] = {
    "in place": (2, f"{MINE}    tl.store(y + mine, tl.load(y + mine) + tl.load(x + mine))\n"),
    "masked": (1, "    tl.load(x + i + 12, mask=i < 4)\n    tl.store(y + i - 4, i * 1.0, mask=i >= 4)\n"),
    "a barrier": (1, "    tl.store(y + i, i * 1.0)\n    tl.debug_barrier()\n    v = tl.load(y + 7 - i)\n"),
    "one store wins": (2, "    tl.store(y + i // 2, i * 1.0)\n"),
    "updates": (2, "    tl.atomic_add(y + i // 2, 1.0)\n    tl.atomic_add(y + i // 3, 1.0)\n"),
}


def run(programs: int, body: str, folder: Path, load: Callable[[Path], Any]) -> None:
    path = folder / "kernel_case.py"
    path.write_text(HEAD + body, encoding="utf-8")
    x, y = torch.zeros(16), torch.zeros(16)
    with checked([(t.data_ptr(), 64) for t in (x, y)]):
        load(path).k[(programs,)](x, y)


@pytest.fixture
def load() -> Callable[[Path], Any]:
    def loaded(path: Path) -> Any:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded


@pytest.mark.parametrize("name", BAD)
def test_a_bad_access_is_told(name: str, tmp_path: Path, load: Callable[[Path], Any]) -> None:
    programs, body, message = BAD[name]
    with pytest.raises(Exception, match=message):
        run(programs, body, tmp_path, load)


@pytest.mark.parametrize("name", GOOD)
def test_good_accesses_pass(name: str, tmp_path: Path, load: Callable[[Path], Any]) -> None:
    run(*GOOD[name], tmp_path, load)


def test_buffers_that_overlap_are_one() -> None:
    accesses = Accesses([(1000, 20), (1010, 30), (2000, 0)])
    accesses.access("load", np.array([1000, 1016, 1036]), True, 4)
    with pytest.raises(BadAccess, match="outside"):
        accesses.access("load", np.array([1037]), True, 4)


class Nothing(nn.Module):
    """Reductions of no element, beside values that are there."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x.sum(1) + w
        less = x.sum(1, keepdim=True) - x
        return total, x.mean(1), x.all(1), x.any(1), x.prod(1), less.amin(0), less, x.cumsum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool])
def test_reductions_of_nothing(dtype: torch.dtype) -> None:
    """A tile of an empty axis has a point in the kernel, which no buffer has: it was read, and counted."""
    module = Nothing() if dtype.is_floating_point else Counts()
    args = [torch.ones(3, 0, dtype=dtype), torch.arange(3).to(dtype)]
    assert_same(on_gpu(module, args)(*args), eager(module, args))


class Counts(nn.Module):
    """As Nothing, without floats."""

    def forward(self, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(1) + w, x.all(1), x.any(1), x.prod(1)


def test_distances_of_empty_rows() -> None:
    """A buffer without elements, read at an offset that does not depend on the empty axis."""

    class Distances(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.cdist(x, y)

    args = [torch.ones(33, 0), torch.ones(2, 0)]
    assert_same(on_gpu(Distances(), args)(*args), eager(Distances(), args))


def test_a_row_of_nothing_beside_others() -> None:
    """The nest that stores nothing leaves the kernel, its result does not."""

    class Beside(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * x.sum(1, keepdim=True)
            return y, y[:, 2:2].neg(), y[:, :0] - 1

    x = normal(3, 5)
    assert_same(on_gpu(Beside(), [x])(x), eager(Beside(), [x]))


def test_a_pass_whose_second_nest_reads_memory_is_behind_a_barrier() -> None:
    """Walked rows: the product needs the sum's end and begins a pass, which the turned row joins."""

    class Late(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x.exp()
            z = x * y.sum(-1, keepdim=True)
            return y, z, y.flip(-1) + z

    x = normal(3, 300)
    compiled = on_gpu(Late(), [x], ({0: Dim.AUTO, 1: Dim.AUTO},))
    assert_same(compiled(x), eager(Late(), [x]))
