"""The perplexity of language models, before they are quantised and after: from how many tokens the next one seems to be
drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from hardtack.calibration import Example, leaves_of
from hardtack.model_copies import copied, outputs_of, outputs_of_copy

_SAME = 1e-4
"""How far, of the largest, logits may move that do not depend on what was changed."""


@dataclass(frozen=True)
class Perplexity:
    """exp of the mean of -log p(next token), over num_tokens tokens that have one before them: by the logits of an
    output of the model as it was (exact), and as it is quantised (found)."""

    output: str
    num_tokens: int
    exact: float
    found: float


@dataclass
class PerplexityMeter:
    """Of the output `output`, at `index`, the logits for the tokens of the input `tokens`."""

    module: nn.Module
    output: str
    index: int
    tokens: str
    num_tokens: int = 0
    exact: float = 0.0
    found: float = 0.0

    def add(self, example: Example, found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> None:
        """Counts an example. found, exact: all outputs for it."""
        tokens = leaves_of(self.module, example)[self.tokens]
        self.num_tokens += tokens[..., 1:].numel()
        self.found += _loss(found[self.index], tokens)
        self.exact += _loss(exact[self.index], tokens)

    def result(self) -> Perplexity:
        exact, found = (_exp(x / self.num_tokens) for x in (self.exact, self.found))
        return Perplexity(self.output, self.num_tokens, exact, found)


def perplexity_meter(
    module: nn.Module, example: Example, names: Sequence[str], outputs: Sequence[torch.Tensor]
) -> PerplexityMeter | None:
    """A meter for a model that gives logits for the next of the tokens that it takes; None for any other. outputs: of
    the example, by names. Logits are numbers (.., T, V) for whole numbers (.., T), T at least 2, that an embedding of V
    rows picks; and those of no place but the last change where the last token is another.
    """
    leaves = leaves_of(module, example)
    picked = _picked(module, example)
    for index, (name, logits) in enumerate(zip(names, outputs, strict=True)):
        if not logits.is_floating_point() or logits.dim() < 2 or logits.shape[-2] < 2:
            continue
        for rows, ids in picked:
            inputs = [n for n, x in leaves.items() if isinstance(x, torch.Tensor) and torch.equal(x, ids)]
            fits = rows == logits.shape[-1] and ids.shape == logits.shape[:-1]
            if fits and inputs and _is_causal(module, example, leaves[inputs[0]], rows, index, logits):
                return PerplexityMeter(module, name, index, inputs[0])
    return None


def _picked(module: nn.Module, example: Example) -> list[tuple[int, torch.Tensor]]:
    """Of each call of an embedding the number of its rows, and which of them it picked."""
    made, found = copied({"": module})[""], []
    for m in made.modules():
        if isinstance(m, nn.Embedding):

            def note(embedding: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                found.append((embedding.num_embeddings, args[0] if args else kwargs["input"]))

            m.register_forward_pre_hook(note, with_kwargs=True)
    outputs_of(made, example.args, example.kwargs)
    return found


def _is_causal(
    module: nn.Module, example: Example, tokens: torch.Tensor, rows: int, index: int, logits: torch.Tensor
) -> bool:
    """True where only the last place's logits change with the last token."""
    changed = tokens.clone()
    changed[..., -1] = (changed[..., -1] + 1) % rows
    args, kwargs = pytree.tree_map(lambda x: changed if x is tokens else x, (example.args, dict(example.kwargs)))
    other = outputs_of_copy(module, args, kwargs)[index]
    before, after = (x[..., :-1, :].double() for x in (logits, other))
    return bool((before - after).abs().max() <= _SAME * before.abs().max())


def _loss(logits: torch.Tensor, tokens: torch.Tensor) -> float:
    """The sum of -log p over all tokens but the first of each row."""
    wide = logits[..., :-1, :].reshape(-1, logits.shape[-1]).double()
    return float(F.cross_entropy(wide, tokens[..., 1:].reshape(-1).long(), reduction="sum"))


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf
