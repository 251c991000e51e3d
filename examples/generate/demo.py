"""Text generation with a cache of keys and values: a C++ loop over two entry points, and eager PyTorch beside it.

No package brings a trained language model of a size that suits a demo, so this one trains its own in a few seconds,
on the text of the project's licence, which it then recites. ./dev demo generate runs it; what it makes lies under
build/demo/generate.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from examples.common import ROOT, build_example, console, folder_of, kept, run, step
from examples.generate.model import CONTEXT, Decode, Decoder, Prefill, train, words_of

PROMPTS = ("You may reproduce and distribute", "Licensor provides the Work")
COUNT = 24


def main() -> None:
    program = step("build the runtime and the C++ program", lambda: build_example("generate"))
    decoder = step("train a small language model", load_model)
    bundle = step("export prefill and decode", lambda: export(decoder), spinner=False)
    ours = step("generate with Hardtack, in C++", lambda: generate(program, bundle, PROMPTS, "--count", str(COUNT)))
    eager = step("generate with eager PyTorch, without a cache", lambda: [greedy(decoder, p, COUNT) for p in PROMPTS])
    for text in ours:
        console.print(f"\n{text}", markup=False, soft_wrap=True)
    console.print("\nfour of the likeliest, drawn:")
    for text in generate(program, bundle, PROMPTS, "--count", str(COUNT), "--top", "4", "--seed", "7"):
        console.print(text, markup=False, soft_wrap=True)
    if [words_of(text) for text in ours] != eager:
        sys.exit("error: eager PyTorch says something else: " + "; ".join(" ".join(words) for words in eager))
    console.print("\neager PyTorch says the same")


def corpus() -> list[str]:
    return words_of((ROOT / "LICENSE").read_text(encoding="ascii"))


def load_model() -> Decoder:
    """The trained model, from the last time if nothing has changed; its words go to words.txt."""
    vocabulary = sorted(set(corpus()))
    words_file().write_text("\n".join(vocabulary) + "\n", encoding="ascii")
    weights = kept(
        folder_of("generate") / "weights.pt",
        "generate",
        lambda p: torch.save(train(corpus(), vocabulary).state_dict(), p),
    )
    decoder = Decoder(len(vocabulary))
    decoder.load_state_dict(torch.load(weights))
    return decoder.eval()


def words_file() -> Path:
    return folder_of("generate") / "words.txt"


def export(decoder: Decoder) -> Path:
    """The bundle with two entry points: weights and cache are in it once, because both modules hold one Decoder."""
    import hardtack

    length = torch.export.Dim("length", max=CONTEXT)
    prompt, word = torch.arange(8)[None], torch.tensor([[1]])

    def make(path: Path) -> None:
        hardtack.export(
            {"prefill": Prefill(decoder).eval(), "decode": Decode(decoder).eval()},
            {"prefill": (prompt,), "decode": (word,)},
            path=path,
            dynamic_shapes={"prefill": ({1: length},), "decode": None},
            targets=("cpu:native",),
        )

    return kept(folder_of("generate") / "generate.pkg", "generate", make)


def generate(program: Path, bundle: Path, prompts: tuple[str, ...], *options: str) -> list[str]:
    """What the C++ program makes of the prompts."""
    return run(program, bundle, words_file(), *options, given="".join(f"{p}\n" for p in prompts)).splitlines()


def greedy(decoder: Decoder, prompt: str, count: int) -> list[str]:
    """The prompt's words and `count` more, each the likeliest; the whole sequence is computed for every one."""
    vocabulary = words_file().read_text(encoding="ascii").split()
    ids = [vocabulary.index(w) for w in words_of(prompt)]
    with torch.inference_mode():
        for _ in range(count):
            ids.append(int(decoder(torch.tensor([ids]))[0, -1].argmax()))
    return [vocabulary[i] for i in ids]


if __name__ == "__main__":
    main()
