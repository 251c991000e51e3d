"""attention.h with keys and values of codes: the bits that it gives for the numbers that these stand for."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates import attention_kernels
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.half_builds import DTYPES, Kind, on_builds
from tests.templates.test_attention import SHAPES, tensors

ALL = (torch.float32, *DTYPES)


@functools.cache
def _library(cpu: Cpu, dtype: torch.dtype, codes: torch.dtype) -> Library:
    return load_library(dict(attention_kernels.source(dtype, c) for c in (None, codes)), cpu)


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Library:
    """Attention of a type, of codes and of numbers."""
    return _library(*request.param)


def _few(place: int) -> tuple[Kind, ...]:
    """bfloat16, for whose products builds have instructions of their own, with each of the codes in turn."""
    return ((torch.bfloat16, tuple(attention_kernels.CODES)[place % 2]),)


with_codes = on_builds(itertools.product(ALL, attention_kernels.CODES), _few)


def rows(x: torch.Tensor, codes: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of x, and a scale for each row; some rows of zeros."""
    largest = 127.0 if codes is torch.int8 else 448.0
    scales = x.abs().amax(-1) / largest
    found = x / scales[..., None]
    found = found.round() if codes is torch.int8 else found
    scales[..., 3::50] = 0
    return found.to(codes), scales


SIZES = [*SHAPES, (1, 2, 1, 7, 65, 1, 33), (1, 1, 1, 33, 259, 65, 31), (2, 8, 2, 1, 300, 128, 128)]


@pytest.mark.sweep(over="library")
@with_codes
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("mode", ["plain", "causal", "bool"])
def test_codes_give_the_bits_of_their_numbers(
    library: Library, dtype: torch.dtype, codes: torch.dtype, shape: tuple[int, ...], mode: str
) -> None:
    q, k, v = tensors(*shape)
    mask = torch.rand(shape[0], 1, shape[3], shape[4]) > 0.3 if mode == "bool" else None
    (k, k_scales), (v, v_scales) = (rows(x, codes) for x in (k, v))
    wide = [(c.float() * s[..., None]).to(dtype) for c, s in ((k, k_scales), (v, v_scales))]
    causal, q = mode == "causal", q.to(dtype)
    want = attention_kernels.attend(library, q, *wide, mask, causal=causal)
    # heads behind keys, as caches may have them, and scales with gaps
    k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v))
    spread = torch.full((*k_scales.shape, 2), torch.nan)
    spread[..., 0] = k_scales
    for nworkers in (1, 2):
        got = attention_kernels.attend(
            library, q, k, v, mask, causal=causal, nworkers=nworkers, scales=(spread[..., 0], v_scales)
        )
        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))


@with_codes
def test_every_code_is_its_number(library: Library, dtype: torch.dtype, codes: torch.dtype) -> None:
    """One key has all the weight: the result is its value."""
    every = torch.arange(256).to(torch.uint8).view(codes).reshape(1, 1, 1, 256)
    if codes is not torch.int8:
        every = every[..., ~every[0, 0, 0].float().isnan()].contiguous()
    scale = torch.full((1, 1, 1), 0.37)
    key = torch.zeros(1, 1, 1, 8).to(codes)
    got = attention_kernels.attend(library, torch.zeros(1, 1, 1, 8).to(dtype), key, every, scales=(scale, scale))
    assert torch.equal(got, (every.float() * 0.37).to(dtype))
