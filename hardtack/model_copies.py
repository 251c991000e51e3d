"""Copies of models that share their weights: what is changed, run or watched is a copy, never what the user gave."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from hardtack.exporter import InputSpecError
from hardtack.narrowing import eager_outputs

OWN_WAY = "or quantise it before it is captured, with torchao's quantize_, and leave the option out"


def copied(roots: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Copies that share their parameters with the originals, and modules with each other as these do. Raises
    InputSpecError for what cannot be copied."""
    memo: dict[int, Any] = {}
    for root in roots.values():
        for m in root.modules():
            memo |= {id(p): p for p in m.parameters(recurse=False)}
            computed = (*vars(m).values(), *m._buffers.values())  # torch copies no tensor that autograd has made
            memo |= {id(t): t.detach().clone() for t in computed if isinstance(t, torch.Tensor) and not t.is_leaf}
    try:
        return copy.deepcopy(dict(roots), memo)
    except Exception as error:
        raise InputSpecError(
            f"the model cannot be copied, which quantising it takes: {error}",
            fix=f"let copy.deepcopy take it, {OWN_WAY}",
        ) from error


def outputs_of_copy(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """What a copy gives, so that no state changes; what is drawn at random is the same for all."""
    return outputs_of(copied({"": module})[""], args, kwargs)


def outputs_of(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that a module gives, its states changed; what is drawn at random is the same for all."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return eager_outputs(module, args, kwargs)
