"""The examples, built against the installed tree, beside eager PyTorch."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from examples.classify import demo as classify
from examples.common import build_example
from examples.embed import demo as embed
from examples.generate import demo as generate
from examples.generate.model import words_of
from examples.go import demo as go
from examples.plain_c import demo as plain_c
from examples.train import demo as train

pytestmark = pytest.mark.slow


def fails(*command: str | Path, given: str = "") -> str:
    """What a program says on standard error when it fails as it should."""
    result = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    return result.stderr


def test_classify() -> None:
    module, photo = classify.load_model(), classify.write_photo()
    ours = classify.run_program(build_example("classify"), classify.export(module), threads=1)
    eager = classify.run_eager(module, photo, threads=1)
    np.testing.assert_allclose(ours["probabilities"], eager["probabilities"], atol=1e-4)


@cache
def encoder() -> tuple[torch.nn.Module, Path, Path]:
    module = embed.load_model()
    return module, build_example("embed"), embed.export(module)


LINES = [
    *embed.LINES,
    "",
    "   Tabs\tand  no-break\u00a0blanks, (signs) [in] \"pairs\" -- 3.14% of $5!",
    "ÀÉÎÕÜ Ångström ĹļŇň ŊŋŹź ĴĵĸŸ Dvořák Łódź Ærø Straße ŽIŽKOV",
    "e\u0301tude nai\u0308f ¿qué? «oui» “quoted” … don’t",
    "Ω ΑΒΓ Ώρα καλημέρα ПРИВЕТ мир Ёлка й 東京に行く 你好,世界 안녕 שלום 😀",
    "x" * 101 + " " + "unbelievability" * 6 + " antidisestablishmentarianism",
    "control\u0007character zero\u200bwidth",
    "many words " * 200,
]  # fmt: skip


def test_embed_tokenises_as_transformers_does() -> None:
    _, program, bundle = encoder()
    text = "".join(f"{line}\n" for line in LINES)
    result = subprocess.run(
        [program, bundle, embed.vocabulary(), "--tokens"], input=text.encode(), capture_output=True, check=True
    )
    ours = [[int(x) for x in row.split()] for row in result.stdout.splitlines()]
    theirs = embed.tokenize(LINES)
    rows = zip(theirs["input_ids"].tolist(), theirs["attention_mask"].tolist(), strict=True)
    assert ours == [ids[: sum(mask)] for ids, mask in rows]


def test_embed_gives_what_eager_gives() -> None:
    """Batches are formed by the program: of lines of all lengths, and of more lines than a batch may have."""
    module, program, bundle = encoder()
    lines = (LINES * 5)[: embed.MAX_BATCH + 9]
    np.testing.assert_allclose(embed.embed(program, bundle, lines), embed.embed_eager(module, lines), atol=1e-5)


def test_embed_answers_a_line_before_the_next_comes() -> None:
    _, program, bundle = encoder()
    command = [program, bundle, embed.vocabulary()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in ("first", "second"):
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert len(process.stdout.readline().split()) == 384
        process.stdin.close()


@contextmanager
def listening() -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The port of the program as a service."""
    with subprocess.Popen(embed_command("--listen", "0"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", process.stdout.readline())
        assert said is not None
        yield int(said[1]), process
        assert process.poll() is None
        process.terminate()


def ask(port: int, text: str) -> npt.NDArray[np.float32]:
    """What a client gets that says all that it has and then listens."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as answers:
            return np.array([[float(x) for x in line.split()] for line in answers], np.float32)


def test_embed_serves_many_clients_at_once() -> None:
    """Each gets its own answers, in order; a last line needs no end."""
    _, program, bundle = encoder()
    texts = [[f"client {i} says {LINES[(i + k) % len(LINES)]}" for k in range(1 + i)] for i in range(12)]
    with listening() as (port, _), ThreadPoolExecutor(len(texts)) as pool:
        answers = list(pool.map(lambda lines: ask(port, "\n".join(lines)), texts))
    for lines, answer in zip(texts, answers, strict=True):
        np.testing.assert_allclose(answer, embed.embed(program, bundle, lines), atol=1e-5)


def test_embed_serves_on_whatever_single_clients_do() -> None:
    with listening() as (port, process):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as endless:
            endless.sendall(b"x" * 70_000)
            with endless.makefile() as answers:
                assert answers.readline() == "error: a line has more than 65536 bytes\n"
        with (
            socket.create_connection(("127.0.0.1", port)) as deaf,
            socket.create_connection(("127.0.0.1", port)) as slow,
        ):
            deaf.sendall(b"\n" * 10_000)  # 40 MB of answers, which it never takes
            slow.sendall(b"half of a li")
            socket.create_connection(("127.0.0.1", port)).close()
            assert ask(port, "one line\n").shape == (1, 384)
            slow.sendall(b"ne\n")
            with slow.makefile() as answers:
                assert len(answers.readline().split()) == 384
            resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            assert resident is not None
            assert int(resident[1]) < 400_000
        taken = fails(*embed_command("--listen", str(port)))
        assert taken == f"embed: 127.0.0.1:{port}: Address already in use\n"


def embed_command(*options: str) -> list[str | Path]:
    _, program, bundle = encoder()
    return [program, bundle, embed.vocabulary(), *options]


def test_embed_finds_neighbours() -> None:
    _, program, bundle = encoder()
    printed = embed.run(program, bundle, embed.vocabulary(), "--neighbours", "1", given="\n".join(embed.LINES) + "\n")
    rows = printed.splitlines()
    nearest = dict(zip(rows[::2], (row.split("  ")[-1] for row in rows[1::2]), strict=True))
    assert nearest["A man is eating food."] == "Someone has a meal."
    assert nearest["Shares lost much of their value at the start of the week."].startswith("The stock market")


@cache
def writer() -> tuple[generate.Decoder, Path, Path]:
    decoder = generate.load_model()
    return decoder, build_example("generate"), generate.export(decoder)


def test_generate_says_what_eager_says() -> None:
    """Several prompts, one after the other in a session: prefill starts anew; the cache is filled to its end."""
    decoder, program, bundle = writer()
    prompts = (*generate.PROMPTS, "Derivative Works", "the")
    for count in (1, 2, 20):
        ours = [words_of(t) for t in generate.generate(program, bundle, prompts, "--count", str(count))]
        assert ours == [generate.greedy(decoder, p, count) for p in prompts]
    (longest,) = generate.generate(program, bundle, ("the Work",), "--count", "1000")
    assert words_of(longest) == generate.greedy(decoder, "the Work", generate.CONTEXT - 2)


def test_generate_draws_among_the_likeliest() -> None:
    decoder, program, bundle = writer()
    options = ("--count", "40", "--top", "3", "--temperature", "1.5")
    texts = [generate.generate(program, bundle, ("You may",), *options, "--seed", s) for s in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    vocabulary = generate.words_file().read_text().split()
    ids = torch.tensor([[vocabulary.index(w) for w in words_of(texts[0][0])]])
    with torch.inference_mode():
        logits = decoder(ids)[0, 1:-1]
    third = logits.topk(3).values[:, -1]
    drawn = logits.gather(1, ids[0, 2:, None])[:, 0]
    assert bool((drawn >= third - 1e-4).all())
    assert bool((drawn < logits.max(1).values - 1e-4).any())


def test_generate_refuses_what_it_does_not_know() -> None:
    _, program, bundle = writer()
    command = (program, bundle, generate.words_file())
    assert fails(*command, given="hardtack\n") == "generate: the model does not know the word hardtack\n"
    assert fails(*command, given="the " * 128 + "\n") == "generate: a prompt has 128 words; it may have 1 to 127\n"


def test_training_in_cpp_learns_what_eager_learns(tmp_path: Path) -> None:
    program, samples, bundle = build_example("train"), train.write_samples(), train.export()
    losses, right = train.train(program, bundle)
    eager, theirs = train.train_eager(*samples)
    np.testing.assert_allclose(losses[:2], eager[:2], atol=2e-3)  # later ones have what rounding has become
    np.testing.assert_allclose(losses, eager, atol=0.05)
    assert losses[-1] < 0.2 < losses[0]
    assert min(right, theirs) > 0.95 * train.COUNT
    missing = tmp_path / "none.f32"
    assert fails(program, bundle, missing) == f"train: there are no samples in {missing}\n"


def test_the_same_face_from_c_from_go_and_from_eager() -> None:
    photo, module = plain_c.write_photo(), plain_c.load_model()
    bundle, program = plain_c.export(module), build_example("plain_c")
    eager = plain_c.find_eager(module, photo)
    assert eager[3] > 0.99
    for x, y, size, probability in (plain_c.find(program, bundle), go.find(go.build_program(), bundle)):
        assert (x, y, size) == eager[:3]
        assert abs(probability - eager[3]) < 1e-5


def test_c_and_go_say_what_went_wrong(bundle: Path, tmp_path: Path) -> None:
    missing = tmp_path / "none.pkg"
    c, photo = build_example("plain_c"), plain_c.photo_file()
    assert fails(c, missing, photo).startswith(f"plain_c: HT_IO: cannot open {missing}: ")
    assert fails(c, bundle, photo) == f"plain_c: {bundle} does not take pixels [height, width, 3]\n"
    png = plain_c.package_folder("skimage") / "data" / "astronaut.png"
    assert fails(go.build_program(), missing, png).startswith(f"findface: cannot open {missing}: ")
