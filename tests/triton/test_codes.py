"""Products with weights of few bits in GPU kernels, through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.lower import gpu_few_rows
from hardtack.codegen.machine.data import H200
from hardtack.codegen.tune import code_plan
from tests.codegen.compare import Compiled
from tests.support.code_layer import Layer
from tests.triton.test_loops import on_gpu


def by_codes(compiled: Compiled) -> list[str]:
    """The kernels that read codes in words."""
    return [text for text in compiled.entry.sources.values() if "codes = codes_next" in text]


def fragmented(compiled: Compiled) -> bool:
    """True if a kernel feeds tensor cores with what its lanes load."""
    return any("= add_products(" in text for text in compiled.entry.sources.values())


def tiled(compiled: Compiled) -> bool:
    """True if a kernel makes numbers of codes tile by tile."""
    return any("tile_product(left, right.T" in text for text in compiled.entry.sources.values())


def assert_near(got: torch.Tensor, module: nn.Module, *args: torch.Tensor) -> None:
    """Near what float64 gives of the same weights, scales and row."""
    exact = module.double()(*(a.double() if a.is_floating_point() else a for a in args))
    eps = torch.finfo(got.dtype).eps
    tol = max(2 * eps, 1e-5) * (1 + exact.abs().max().item())
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=tol)


MADE: dict[str, Callable[[], Layer]] = {
    "bytes as they are": lambda: Layer(96, 40, steps=""),
    "a scale a column": lambda: Layer(512, 33),
    "one scale": lambda: Layer(64, 24, spread=False),
    "groups": lambda: Layer(1280, 24, group=32),
    "groups longer than a block": lambda: Layer(3072, 8, group=1536),
    "odd groups": lambda: Layer(144, 20, group=48, steps="sub mul"),
    "zero points": lambda: Layer(128, 20, group=64, steps="sub mul", signed=False),
    "in parts": lambda: Layer(4096, 12, group=128, steps="mul add"),
    "4 bits": lambda: Layer(2048, 40, 4, 128),
    "4 bits, a scale a column": lambda: Layer(1504, 24, 4),
    "4 bits without a sign": lambda: Layer(256, 36, 4, 32, "sub mul", signed=False),
    "float8": lambda: Layer(512, 33, float8=torch.float8_e4m3fn),
    "float8, groups": lambda: Layer(1280, 24, group=32, float8=torch.float8_e4m3fn),
    "float8 with more exponents": lambda: Layer(768, 20, steps="sub mul", float8=torch.float8_e5m2),
    "float8, blocks of both": lambda: Layer(512, 48, group=128, columns=16, float8=torch.float8_e4m3fn),
    "blocks of columns": lambda: Layer(256, 36, columns=12, steps="sub mul"),
    "4 bits, shifts": lambda: Layer(2048, 17, 4, 64, "mul add", signed=False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.sweep(over="dtype")
def test_one_row(made: Callable[[], Layer], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = made().eval().to(dtype)
    x = torch.randn(1, module.codes.shape[1]).to(dtype)
    compiled = on_gpu(module, (x,))
    assert len(by_codes(compiled)) == 1
    (got,) = compiled(x)
    assert_near(got, module, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
@pytest.mark.sweep(over="dtype")
def test_few_rows(made: Callable[[], Layer], dtype: torch.dtype) -> None:
    """By fragments, whose codes have 16 bits beside them, or by tiles, where groups are long enough: as eager rounds
    weights."""
    torch.manual_seed(0)
    module = made().eval().to(dtype)
    x = torch.randn(2, 3, module.codes.shape[1]).to(dtype)
    compiled = on_gpu(module, (x,))
    assert fragmented(compiled) == (dtype is not torch.float32 and in_fragments(module))
    assert fragmented(compiled) or tiled(compiled) == (module.group % 32 == 0)
    (got,) = compiled(x)
    assert_near(got, module, x)


def in_fragments(module: Layer) -> bool:
    """Whether four lanes can have a run of one number's codes, which 16 bits hold."""
    dtype, k = module.codes.dtype, module.codes.shape[1]
    if dtype.is_floating_point or (dtype is torch.uint8 and module.bits == 8):
        return False
    per_word = 32 // module.bits
    return k % per_word == 0 and (module.group == k or module.group % (4 * per_word) == 0)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("made", [Layer(512, 40, 4, 128), Layer(2304, 17, 8, 256, "sub mul add")], ids=["4", "8"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_fragments(made: Layer, rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows, one, columns that end within sixteen, and K in parts."""
    monkeypatch.setattr(code_plan, "FEWEST_COLUMNS_OF_ONE_ROW", 0)
    torch.manual_seed(0)
    module = made.eval().to(dtype)
    x = torch.randn(rows, module.codes.shape[1]).to(dtype)
    compiled = on_gpu(module, (x,))
    assert fragmented(compiled) == (rows > 1 or made.group == 128)
    assert_near(compiled(x)[0], module, x)


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_every_float8_stands_for_its_number(float8: torch.dtype, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Layer(32, 256, steps="mul", float8=float8).eval().to(dtype)
    module.codes[:, 3] = torch.arange(256, dtype=torch.uint8).view(float8)
    module.mul.fill_(1)
    x = torch.zeros(rows, 32, dtype=dtype)
    x[:, 3] = 1
    module.codes[:, :3], module.codes[:, 4:] = torch.ones(()).to(float8), torch.ones(()).to(float8)
    (got,) = on_gpu(module, (x,))(x)
    torch.testing.assert_close(got, module(x), equal_nan=True)


@pytest.mark.parametrize("example", [6, 40])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_dynamic_number_of_rows(monkeypatch: pytest.MonkeyPatch, bits: int, example: int) -> None:
    """Several tiles of rows, the last one cut: by fragments for a few in the example, else by tiles."""
    monkeypatch.setattr(code_plan, "MOST_TILE_ROWS", 1 << 20)
    monkeypatch.setattr(code_plan, "_splits", lambda programs, k, block_k, machine: 2)
    torch.manual_seed(0)
    module = Layer(320, 72, bits, 64, "sub mul").eval().bfloat16()
    monkeypatch.setattr(gpu_few_rows, "hint", lambda low, rows: example)
    compiled = on_gpu(module, (torch.randn(2, 3, 320).bfloat16(),), ({1: Dim.AUTO},))
    assert (fragmented(compiled), tiled(compiled)) == (example == 6, example != 6)
    for rows in (3, 50):
        x = torch.randn(2, rows, 320).bfloat16()
        (got,) = compiled(x)
        assert_near(got, module, x)
        module.bfloat16()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_many_rows_have_numbers_made(dtype: torch.dtype, bits: int) -> None:
    torch.manual_seed(0)
    module = Layer(128, 40, bits, 32, "sub mul").eval().to(dtype)
    x = torch.randn(70, 128).to(dtype)
    compiled = on_gpu(module, (x,))
    assert sum("tl.dot" in text or "tile_product(" in text for text in compiled.entry.sources.values()) == 1
    assert len(compiled.entry.sources) == 2
    (got,) = compiled(x)
    assert_near(got, module, x)


def test_codes_that_are_no_whole_words() -> None:
    """Groups of two are too short for the kernel of one row."""
    torch.manual_seed(0)
    module = Layer(64, 24, group=2).eval().bfloat16()
    x = torch.randn(1, 64).bfloat16()
    compiled = on_gpu(module, (x,))
    assert not by_codes(compiled)
    (got,) = compiled(x)
    assert_near(got, module, x)


class Tied(nn.Module):
    """A weight that is an embedding's and a head's."""

    def __init__(self) -> None:
        super().__init__()
        self.head = Layer(64, 50, 4, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(F.embedding(ids, self.head.weight(self.head.mul.dtype)))  # type: ignore[no-any-return]


def test_a_head_that_is_an_embedding() -> None:
    torch.manual_seed(0)
    module = Tied().eval().bfloat16()
    ids = torch.tensor([7])
    compiled = on_gpu(module, (ids,))
    assert len(by_codes(compiled)) == 1
    assert all("codes" in name or "mul" in name for name in compiled.entry.prepacks), "its numbers are in the bundle"
    assert_near(compiled(ids)[0], module, ids)


@pytest.mark.parametrize("bits", [4, 8])
def test_plans_leave_every_multiprocessor_something(bits: int) -> None:
    for n in (1, 8, 1000, 4096, 28672, 128256):
        for k in (32, 768, 2048, 14336):
            plan = code_plan.plan_code_row(n, k, bits, (k,), H200)
            assert plan is not None
            warps = -(-n // plan.block_n) * plan.splits * plan.warps
            of_one = plan.lanes * code_plan.QUAD * code_plan.WORD_BITS // bits
            assert warps >= min(4 * H200.multiprocessors, n * -(-k // of_one)) // 2
            assert plan.splits * plan.block_k <= max(k, plan.block_k)


class Siblings(nn.Module):
    """Three layers of one activation, of which one has a bias of its own kind; steps: as Layer has them."""

    def __init__(self, bits: int, steps: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(128, n, bits, 32, steps, spread=n != 16) for n in (40, 16, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(F.linear(x, layer.weight(x.dtype)) for layer in self.layers)  # type: ignore[operator]


@pytest.mark.sweep(over="rows")
@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize(("bits", "steps"), [(4, "sub mul"), (8, "mul"), (8, "")])
def test_products_of_one_row_are_joined(bits: int, steps: str, rows: int) -> None:
    torch.manual_seed(0)
    module = Siblings(bits, steps).eval().bfloat16()
    x = torch.randn(rows, 128).bfloat16()
    compiled = on_gpu(module, (x,))
    products = [name for name in compiled.entry.sources if name.startswith("gemm")]
    assert len(products) == 1
    assert all("codes" in name or "mul" in name or "sub" in name for name in compiled.entry.prepacks)
    got = compiled(x)
    module.double()
    for found, want in zip(got, module(x.double()), strict=True):
        tol = 2 * torch.finfo(torch.bfloat16).eps * (1 + want.abs().max().item())
        torch.testing.assert_close(found.double(), want, rtol=0, atol=tol)


class Halves(nn.Module):
    """Two layers of one activation, whose rows of codes end within a byte."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Layer(33, 40, 4), Layer(33, 24, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.left(x), self.right(x)


@pytest.mark.parametrize("rows", [1, 5, 70])
def test_joined_codes_that_end_within_a_byte(rows: int) -> None:
    torch.manual_seed(0)
    module = Halves().eval()
    x = torch.randn(rows, 33)
    got = on_gpu(module, (x,))(x)
    for found, want in zip(got, module(x), strict=True):
        torch.testing.assert_close(found, want)
