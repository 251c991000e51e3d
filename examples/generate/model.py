"""A small language model over words, with a cache of keys and values that lives in buffers.

Prefill and Decode are the two entry points of its bundle. Both wrap the same Decoder, so that weights and cache are
shared: what prefill writes into the cache, decode reads and continues.
"""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, LAYERS, CONTEXT = 96, 4, 2, 128


class Block(nn.Module):
    """Attention over the cache, then two linear layers; both with norms before and sums around."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, CONTEXT, WIDTH // HEADS), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
        """x: f32 [n, t, WIDTH]. positions: i64 [t], where x lies in the sequence; None: all, without the cache."""
        n, t, _ = x.shape
        q, k, v = (h.view(n, t, HEADS, -1).transpose(1, 2) for h in self.project(self.norm(x)).split(WIDTH, dim=-1))
        if positions is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            self.keys[:, :, positions] = k
            self.values[:, :, positions] = v
            seen = torch.arange(CONTEXT)[None, :] <= positions[:, None]
            mixed = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))


class Decoder(nn.Module):
    """Numbers of words to the logits of the next word."""

    length: torch.Tensor

    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(num_words, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, num_words, bias=False)
        self.register_buffer("length", torch.zeros(1, dtype=torch.int64), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Whole sequences without the cache, for training: i64 [n, t] to f32 [n, t, words]."""
        x = self.embed(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, None)
        out: torch.Tensor = self.head(self.norm(x))
        return out

    def extend(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """i64 [1, t] at `positions` to f32 [words], the logits after the last; the cache takes them in."""
        x = self.embed(ids) + self.place(positions)
        for block in self.blocks:
            x = block(x, positions)
        self.length.copy_(positions[-1:] + 1)
        out: torch.Tensor = self.head(self.norm(x[0, -1]))
        return out


class Prefill(nn.Module):
    """A whole prompt, i64 [1, t]: starts a sequence anew."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.decoder.extend(ids, torch.arange(ids.shape[1]))


class Decode(nn.Module):
    """One more word, i64 [1, 1], after what the cache holds."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.decoder.extend(ids, self.decoder.length.clone())


def words_of(text: str) -> list[str]:
    """Runs of letters, digits and underscores, and signs, each by itself; blanks only separate."""
    return re.findall(r"\w+|[^\w\s]", text, re.ASCII)


def train(words: list[str], vocabulary: list[str], steps: int = 150) -> Decoder:
    """A Decoder that has learned a text of a few pages more or less by heart: seconds on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the work of a step is too small to be shared
    torch.manual_seed(0)
    numbers = {word: i for i, word in enumerate(vocabulary)}
    decoder, data = Decoder(len(vocabulary)), torch.tensor([numbers[w] for w in words])
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    rows, span = 16, 32
    for _ in range(steps):
        starts = torch.randint(0, len(data) - span - 1, (rows, 1))
        windows = data[starts + torch.arange(span + 1)]
        loss = F.cross_entropy(decoder(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    torch.set_num_threads(threads)
    return decoder.eval()
