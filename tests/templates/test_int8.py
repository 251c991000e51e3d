"""Products of int8 (int8.h) against int64: exact, by every instruction, and by models of those that this CPU lacks."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.prepack import PACKINGS
from tests.templates.conftest import Build, all_builds, build_name, by_gcc, portable
from tests.templates.cpu_kernels import Library, load_library, runnable_targets
from tests.templates.layouts import ceil_div, gemm_dynamic_workspace, gemm_packed_workspace
from tests.templates.test_half import DYNAMIC, PACKED, SIZES, SOURCE

I8 = torch.int8
OF_CODES7 = "<ht::MachineBlocks<int8_t>, ht::code7>"
"""The template arguments of products whose rows are codes from 0 to 127."""


def sources() -> dict[str, str]:
    """Both products, and the packed one of codes from 0 to 127."""
    head = SOURCE.replace('"gemm.h"', '"gemm.h"\n#include "int8.h"').replace("float", "int32_t")
    texts = {"packed_int8": PACKED, "dynamic_int8": DYNAMIC}
    names = {"name": "int8", "t": "int8_t"}
    found = {name: head + (text % names).replace("float", "int32_t") for name, text in texts.items()}
    seven = found["packed_int8"].replace("packed_int8", "packed_codes7")
    return {**found, "packed_codes7": seven.replace("ht::gemm_packed(", f"ht::gemm_packed{OF_CODES7}(")}


_MODELS = {
    "unsigned-quads": ("UNSIGNED_QUADS",),
    "signed-quads": ("SIGNED_QUADS",),
    "tiles": ("TILES", "PAIRS", "UNSIGNED_QUADS"),
}


def _modelled() -> list[Build]:
    """Instructions for four products, and tiles, in vectors of the best target that runs here and of the least."""
    known = runnable_targets()
    builds: list[Build] = []
    for cpu, width in {known[-1]: "least", known[0]: "best"}.items():
        for name, models in _MODELS.items():
            flags = tuple(f"-DHT_MODEL_{model}" for model in models)
            named = dataclasses.replace(
                cpu,
                name=f"{name}-{width}",
                flags_clang=(*cpu.flags_clang, *flags),
                flags_gcc=(*cpu.flags_gcc, *flags),
            )
            builds.append((named, None))
    return builds


def builds() -> list[Any]:
    """Every build: of each compiler and target, and the models of instructions."""
    return [*(pytest.param(b, id=build_name(b)) for b in _modelled()), *all_builds(by_gcc, portable)]


@functools.cache
def _library(build: Build) -> Library:
    return load_library(sources(), *build)


@pytest.fixture(scope="session", params=builds())
def library(request: pytest.FixtureRequest) -> Library:
    """Both products, for every build."""
    return _library(request.param)


def _quads(b: torch.Tensor) -> torch.Tensor:
    """[k, n] as int8.h documents it: [ceil(n / 32), ceil(k / 4), 32, 4]."""
    k, n = b.shape
    padded = torch.zeros(ceil_div(k, 4) * 4, ceil_div(n, 32) * 32, dtype=I8)
    padded[:k, :n] = b
    return padded.reshape(ceil_div(k, 4), 4, ceil_div(n, 32), 32).permute(2, 0, 3, 1).contiguous()


def _random(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=I8)


def _packed(
    library: Library, a: torch.Tensor, b: torch.Tensor, pad: int = 3, nworkers: int = 1, name: str = "packed_int8"
) -> torch.Tensor:
    """Rows of a stand `pad` further apart than they are long."""
    (m, k), n = a.shape, b.shape[1]
    wide = torch.full((m, k + pad), 99, dtype=I8)
    wide[:, :k] = a
    out = torch.zeros(m, n, dtype=torch.int32)
    workspace = gemm_packed_workspace(m, n, DType.I8)
    assert library.call(name, [wide, _quads(b), out], [m, n, k, k + pad], workspace, nworkers) == 0
    return out


def _check(library: Library, a: torch.Tensor, b: torch.Tensor, pad: int = 3, nworkers: int = 1) -> None:
    assert torch.equal(_packed(library, a, b, pad, nworkers).long(), a.long() @ b.long()), (a.shape, b.shape)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_packed(library: Library, size: tuple[int, int, int]) -> None:
    m, n, k = size
    _check(library, _random(m, k), _random(k, n), nworkers=2)


def test_every_height_and_width(library: Library) -> None:
    for m in range(1, 50):
        _check(library, _random(m, 11), _random(11, 40))
    for n in range(1, 70):
        _check(library, _random(7, 9), _random(9, n))


def test_every_depth(library: Library) -> None:
    for k in range(40):
        _check(library, _random(5, k), _random(k, 33), pad=k % 4)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("rows", [1, 3, 13])
@pytest.mark.parametrize("depth", [1, 2, 3, 768, 769, 5000])
def test_extremes(library: Library, rows: int, depth: int) -> None:
    """Where instructions saturate, sums that are too small or too large show."""
    for x in (-128, 127):
        for y in (-128, 127):
            _check(library, torch.full((rows, depth), x, dtype=I8), torch.full((depth, 37), y, dtype=I8))


def test_sums_as_large_as_int32_has(library: Library) -> None:
    """131071 products of -128 by itself are 2^31 - 2^14; one more is beyond, and wraps around."""
    for depth, last in ((131071, 2**31 - 2**14), (131072, -(2**31))):
        a, b = torch.full((2, depth), -128, dtype=I8), torch.full((depth, 3), -128, dtype=I8)
        assert _packed(library, a, b).eq(last).all()


def test_any_number_of_workers(library: Library) -> None:
    for m, n, k in ((200, 150, 1000), (3, 900, 1001), (1, 700, 64)):
        a, b = _random(m, k), _random(k, n)
        for nworkers in (1, 2, 5):
            _check(library, a, b, nworkers=nworkers)


def _check_codes7(library: Library, a: torch.Tensor, b: torch.Tensor, pad: int, nworkers: int = 1) -> None:
    found = _packed(library, a, b, pad, nworkers, "packed_codes7")
    assert torch.equal(found.long(), a.long() @ b.long()), (a.shape, b.shape, pad)


def test_codes_from_0_to_127(library: Library) -> None:
    """Rows are read where they lie where their lengths are whole fours."""
    for m in range(1, 20):
        _check_codes7(library, _random(m, 12).clamp(0), _random(12, 40), 0)
    for k in range(40):
        _check_codes7(library, _random(5, k).clamp(0), _random(k, 33), k % 4)
    for n in range(1, 70):
        _check_codes7(library, _random(7, 8).clamp(0), _random(8, n), 4)
    for m, n, k in ((200, 150, 1000), (70, 90, 4096), (3, 900, 1001), (1, 700, 64)):
        _check_codes7(library, _random(m, k).clamp(0), _random(k, n), 0, nworkers=2)


@pytest.mark.parametrize("rows", [1, 3, 13])
@pytest.mark.parametrize("depth", [1, 2, 3, 768, 769, 5000])
def test_extremes_from_0_to_127(library: Library, rows: int, depth: int) -> None:
    """Where pairs of products are beyond 16 bits, sums are too small."""
    for y in (-128, 127):
        a, b = torch.full((rows, depth), 127, dtype=I8), torch.full((depth, 37), y, dtype=I8)
        _check_codes7(library, a, b, 0)


def _laid(x: torch.Tensor, turned: bool, step: int) -> tuple[torch.Tensor, tuple[int, ...]]:
    """The memory of x [b, r, c] with its last dimensions turned, or elements `step` apart; and its strides."""
    b, r, c = x.shape
    if turned:
        return x.transpose(1, 2).contiguous(), (r * c, 1, r)
    wide = torch.full((b, r, c, step), 99, dtype=I8)
    wide[..., 0] = x
    return wide, (r * c * step, c * step, step)


def _dynamic(library: Library, x: torch.Tensor, y: torch.Tensor, how: tuple[Any, Any], nworkers: int = 2) -> None:
    (batch, m, k), n = x.shape, y.shape[2]
    (a, (a_batch, *a_steps)), (b, (b_batch, *b_steps)) = (_laid(t, *way) for t, way in zip((x, y), how, strict=True))
    out = torch.zeros(batch, m, n, dtype=torch.int32)
    ints = [1, batch, m, n, k, 0, a_batch, *a_steps, 0, b_batch, *b_steps]
    workspace = gemm_dynamic_workspace(m, n, k, DType.I8)
    assert library.call("dynamic_int8", [a, b, out], ints, workspace, nworkers) == 0
    assert torch.equal(out.long(), x.long() @ y.long()), (x.shape, y.shape, how)


@pytest.mark.sweep(over="library")
@pytest.mark.parametrize("right", [(False, 1), (True, 1), (False, 3)], ids=str)
@pytest.mark.parametrize("left", [(False, 1), (True, 1), (False, 2)], ids=str)
def test_of_two_values(library: Library, left: tuple[bool, int], right: tuple[bool, int]) -> None:
    for batch, m, n, k in ((1, 1, 1, 1), (3, 7, 33, 10), (2, 40, 70, 771), (1, 193, 64, 5), (2, 5, 31, 0)):
        _dynamic(library, _random(batch, m, k), _random(batch, k, n), (left, right))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_random_sizes(library: Library, data: st.DataObject) -> None:
    m, n, k = (data.draw(st.integers(1, most)) for most in (90, 200, 900))
    nworkers = data.draw(st.integers(1, 4))
    _check(library, _random(m, k), _random(k, n), data.draw(st.integers(0, 5)), nworkers)


def test_packed_at_export() -> None:
    for k, n in ((1, 1), (4, 32), (7, 33), (64, 70)):
        b = _random(k, n)
        made = PACKINGS["quads"](b.numpy(), ())
        assert torch.equal(torch.from_numpy(made), _quads(b))
