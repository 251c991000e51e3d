"""Random numbers in bundles: seeds, streams that go on, the same numbers on every target, and what says that they are
not eager's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

import hardtack
from hardtack.comparison import compare
from hardtack.errors import InputError, RunError
from hardtack.exporter import to_graphs
from hardtack.exporter.reference import results_and_states

DYNAMIC = ({0: Dim("n", min=1, max=3000)},)
STATE = "hardtack.rng"


class Draws(torch.nn.Module):
    """Words alone in the first ones, functions of them in the last two."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.rand(1000),
            torch.rand(7, dtype=torch.float64),
            torch.randint(0, 1000, (x.shape[0],)),
            torch.randperm(x.shape[0]),
            F.dropout(x, 0.3, True),
            torch.bernoulli(x.sigmoid()),
            torch.multinomial(x.abs(), 3),
            torch.multinomial(x.abs(), 5, replacement=True),
            torch.randn_like(x),
            torch.empty_like(x).exponential_(),
        )


EXACT = 8
X = torch.randn(100, 7, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("random") / "draws.pkg"
    targets = ("cpu:x86-64-v3", "cpu:native")
    hardtack.export(Draws().eval(), (X,), path=out, dynamic_shapes=DYNAMIC, targets=targets)
    return out


def reference(seed: int, runs: int) -> list[list[torch.Tensor]]:
    exported = to_graphs(Draws().eval(), (X,), dynamic_shapes=DYNAMIC)
    graph, states = exported.entries["forward"].graph, {STATE: torch.tensor([seed, 0])}
    found: list[list[torch.Tensor]] = []
    for _ in range(runs):
        outputs, states = results_and_states(graph, exported.store, {"x": X}, states)
        found.append(outputs)
    return found


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:native"])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_numbers_on_every_target_and_thread(path: Path, target: str, threads: int) -> None:
    session = hardtack.load(path, threads=threads, target=target).session()
    session.seed(11)
    for want in reference(11, 3):
        found = session(X)
        for ours, other in zip(found[:EXACT], want[:EXACT], strict=True):
            assert torch.equal(ours, other)
        for ours, other in zip(found[EXACT:], want[EXACT:], strict=True):
            torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-5)


def test_runs_differ_and_seeds_repeat(path: Path) -> None:
    model = hardtack.load(path, threads=1)
    one, other = model.session(), model.session()
    first, second = one(X), one(X)
    assert not torch.equal(first[0], second[0])
    assert all(torch.equal(a, b) for a, b in zip(first, other(X), strict=True))  # seed 0 in a new session
    one.seed(0)
    assert all(torch.equal(a, b) for a, b in zip(first, one(X), strict=True))
    one.seed(1)
    assert not torch.equal(first[0], one(X)[0])
    one.reset()
    assert torch.equal(first[0], one(X)[0])


def test_a_saved_state_resumes(path: Path) -> None:
    model = hardtack.load(path, threads=1)
    session, other = model.session(), model.session()
    session.seed(-5)
    session(X)
    saved = session.read_state(STATE)
    assert saved.tolist() == [-5, 1000 + 7 + 100 + 100 + 700 + 700 + 700 + 500 + 700 + 700]
    other.write_state(STATE, saved)
    assert all(torch.equal(a, b) for a, b in zip(session(X), other(X), strict=True))


def test_seeds_that_are_refused(path: Path, tmp_path: Path) -> None:
    session = hardtack.load(path).session()
    with pytest.raises(InputError, match=r"the seed 9223372036854775808 is not from -2\^63 to 2\^63 - 1"):
        session.seed(2**63)
    plain = tmp_path / "plain.pkg"
    hardtack.export(torch.nn.ReLU().eval(), (X,), path=plain, targets=("cpu:native",))
    with pytest.raises(InputError, match="the model draws no random numbers: there is nothing to seed"):
        hardtack.load(plain).session().seed(1)


def test_comparison_with_eager_is_refused_in_words(path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        compare(hardtack.load(path), Draws().eval(), (X,), dynamic_shapes=DYNAMIC)
    assert str(refusal.value) == (
        "forward draws random numbers, and eager draws others: there is nothing to compare; compare the parts of the "
        "model that draw none, or pass the numbers in as an input"
    )


def test_probabilities_that_are_none_fail_as_in_eager(path: Path) -> None:
    session = hardtack.load(path, threads=1).session()
    for bad in (torch.zeros(3, 7), torch.full((3, 7), torch.inf)):
        with pytest.raises(RunError, match=r"aten.multinomial\): an assertion of the model failed"):
            session(bad)


def test_hardtack_rt_takes_a_seed(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.numpy())
    line = ["hardtack-rt", "run", str(path), "-i", f"x={tmp_path}/x.npy", "--target", "cpu:x86-64-v3"]
    for seed in (None, 11):
        out = tmp_path / f"out{seed}"
        seeded = [] if seed is None else ["--seed", str(seed)]
        subprocess.run([*line, "-o", str(out), *seeded], check=True, capture_output=True)
        found = np.load(out / "output_0.npy")
        np.testing.assert_array_equal(found, reference(seed or 0, 1)[0][0].numpy())
    plain = tmp_path / "plain.pkg"
    hardtack.export(torch.nn.ReLU().eval(), (X,), path=plain, targets=("cpu:native",))
    bad = subprocess.run(
        ["hardtack-rt", "run", str(plain), "-i", f"x={tmp_path}/x.npy", "--seed", "1"], capture_output=True, text=True
    )
    assert bad.returncode == 2
    assert "--seed: the model draws no random numbers" in bad.stderr


def test_entry_points_share_the_stream(tmp_path: Path) -> None:
    class One(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(5)

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - torch.rand(3)

    out, x = tmp_path / "two.pkg", torch.zeros(1)
    modules = {"one": One().eval(), "two": Two().eval()}
    hardtack.export(modules, {"one": (x,), "two": (x,)}, path=out, targets=("cpu:native",))
    session = hardtack.load(out).session("one")
    stream = torch.cat([session(x), -session.run("two", x), session(x)])
    session.seed(0)
    again = torch.cat([session(x), session(x), session(x)])
    assert torch.equal(stream, again[:13])
