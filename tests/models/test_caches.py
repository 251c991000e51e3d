"""Decoders of transformers whose static cache is stored as codes, beside eager ones that round what they write."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hardtack
from tests.models.small_transformers import gpt2_static_cache, llama_static_cache
from tests.models.zoo_types import ZooModel
from tests.support.cached_decoders import Stored, stored_as

FLIPPED = {"int8": 2.0**-7, "fp8": 2.0**-4}
"""Of the largest logit: a number between two codes gets the other one where what it is made of is added in another
order."""
STEPS = 5


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> Callable[[Stored], None]:
    """Static caches of transformers store what a function makes of keys and values, once it is called."""
    from transformers.cache_utils import StaticLayer

    def patch(stored: Stored) -> None:
        own = StaticLayer.update

        def update(self: Any, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return own(self, stored(keys), stored(values), *args, **kwargs)

        monkeypatch.setattr(StaticLayer, "update", update)

    return patch


@torch.no_grad()
@pytest.mark.parametrize(
    ("make", "dtype", "word"),
    [
        (llama_static_cache, torch.float32, "int8"),
        (llama_static_cache, torch.bfloat16, "int8"),
        (gpt2_static_cache, torch.float32, "fp8"),
    ],
)
def test_decoding(
    make: Callable[[torch.dtype], ZooModel],
    dtype: torch.dtype,
    word: str,
    rounding: Callable[[Stored], None],
    tmp_path: Path,
) -> None:
    """A prompt, and then tokens, by logits; keys and values of all layers are stored as codes, and nothing else is."""
    torch.manual_seed(0)
    found = make(dtype)
    module = found.module
    info = hardtack.export(
        module, found.args, path=tmp_path / "m.pkg", dynamic_shapes=found.dynamic[0], targets=["cpu:x86-64-v3"],
        progress=False, options=hardtack.Options(cache=word, strict=found.strict),
    )  # fmt: skip
    assert info.cached is not None
    names = [n for n, b in module.named_buffers() if "_cache_" in n]
    assert sorted(s.name for s in info.cached.states) == sorted(names)
    assert {k.reason for k in info.cached.kept} <= {"it is i64; there are codes of f32, bf16, f16"}
    assert (info.cached.num_attentions, info.cached.widened) == (len(names) // 2, ())
    session, exact = hardtack.load(tmp_path / "m.pkg").session(), copy.deepcopy(module)
    wide = [exact(*x) for x in _inputs(found)]
    rounding(stored_as(word))
    largest = float(torch.stack([w.abs().max() for w in wide]).max())
    lost = 0.0
    for x, w in zip(_inputs(found), wide, strict=True):
        got, want = session(*x), module(*x)
        assert float((got - want).abs().max()) <= max(FLIPPED[word], 8 * torch.finfo(dtype).eps) * largest
        lost = max(lost, float((want - w).abs().max()))
    assert lost > 0  # eager did round


def _inputs(found: ZooModel) -> list[tuple[torch.Tensor, ...]]:
    """The prompt, and tokens behind it."""
    ids, positions = found.args
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(int(ids.max()) + 1, (STEPS, 1, 1), generator=g)
    return [(ids, positions), *((t, torch.tensor([len(positions) + k])) for k, t in enumerate(tokens))]
