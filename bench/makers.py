"""What the sets of models that no table or heuristic was made on are built of: classes of transformers and timm, with
random weights, in sizes that are given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.models.small_transformers import Picked
from tests.models.stubs import imported_timm

Made = tuple[nn.Module, tuple[Tensor, ...]]
VOCABULARY = 24000
"""What timm imports and does not use here; PIL, too."""


def token_ids(batch: int, length: int) -> Tensor:
    return torch.randint(1, VOCABULARY - 1, (batch, length))


def sizes_of(width: int, layers: int, inner: int, head: int = 64, **more: Any) -> dict[str, Any]:
    """The fields that most configurations share."""
    return {
        "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // head,
        "intermediate_size": inner, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, **more,
    }  # fmt: skip


def encoder(model: str, config: str, sizes: dict[str, Any], batch: int, length: int, **more: Any) -> Made:
    """ids and a mask that leaves out the end of the last text."""
    import transformers as t

    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length * 2 // 3 :] = 0
    inner = getattr(t, model)(getattr(t, config)(**sizes), **more)
    return Picked(inner, ("input_ids", "attention_mask"), "last_hidden_state"), (token_ids(batch, length), mask)


def causal(model: str, config: str, sizes: dict[str, Any]) -> Any:
    import transformers as t

    return getattr(t, model)(getattr(t, config)(**sizes))


def image(batch: int, size: int) -> Tensor:
    return torch.randn(batch, 3, size, size)


def settled(module: nn.Module, args: tuple[Tensor, ...]) -> nn.Module:
    """Batch norms with the statistics of these inputs, without which values would grow from block to block."""
    for norm in (m for m in module.modules() if isinstance(m, nn.BatchNorm2d)):
        norm.momentum = 1.0
    with torch.no_grad():
        module.train()(*args)
    return module


def timm_model(name: str, batch: int, size: int, **more: Any) -> Made:
    """A model of timm; `more` are its own arguments."""
    return imported_timm().create_model(name, pretrained=False, **more), (image(batch, size),)
