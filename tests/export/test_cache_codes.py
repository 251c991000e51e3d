"""Caches as codes: however rows are written and read, the graph gives what eager does that rounds what it writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.exporter import InputSpecError, to_graphs, with_caches
from hardtack.exporter.reference import results_and_states
from tests.support.cached_decoders import Stored, as_given, stored_as

Write = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Stored], None]
Read = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Cache(nn.Module):
    """rows [4, 6, 8], to which `write` puts some of x [2, 4, 8] at positions pos [2], and x times what `read` gives."""

    def __init__(self, write: Write, read: Read) -> None:
        super().__init__()
        self.register_buffer("rows", torch.linspace(-1, 2, 192).reshape(4, 6, 8))
        self.write, self.read = write, read
        self.stored: Stored = as_given

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        self.write(self.rows, x, pos, self.stored)
        return self.read(self.rows, pos) @ x.flatten()[:8]


def _copied(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows.index_copy_(1, pos, stored(x.transpose(0, 1)))


def _sliced(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, 2:4] = stored(x.transpose(0, 1))


def _one(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[2, 5] = stored(x[1, 3])


def _broadcast(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    """A row for all heads, and a number for all of a row."""
    rows[:, pos] = stored(x[0, 0])
    rows[3, 4] = stored(x[:1, 0, 0].expand(8))


def _number(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, 3] = 448.0 * 127.0  # which both kinds of codes have


def _pairs(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    """Two indices at once, and twice."""
    rows[pos, pos + 1] = stored(x[:, 0])
    rows[pos + 1, pos] = stored(x[:, 1].neg())


WRITES: list[Write] = [_copied, _sliced, _one, _broadcast, _number, _pairs]
READS: dict[str, Read] = {
    "as it is": lambda rows, pos: rows,
    "permuted": lambda rows, pos: rows.permute(1, 0, 2),
    "permuted inside": lambda rows, pos: rows.permute(2, 1, 0).flip(0).permute(2, 1, 0),
    "tokens": lambda rows, pos: rows[:, 1:5:2],
    "parts of rows": lambda rows, pos: rows[..., :4].reshape(4, 3, 8),
    "joined": lambda rows, pos: rows.reshape(24, 8),
    "split": lambda rows, pos: rows.reshape(2, 2, 3, 2, 8)[1],
    "rows are lost": lambda rows, pos: rows.reshape(4, 3, 16)[..., :8],
    "repeated": lambda rows, pos: rows[:, None].expand(4, 3, 6, 8).reshape(12, 6, 8),
    "picked": lambda rows, pos: rows[:, pos],
    "picked by two": lambda rows, pos: rows[pos, pos],
    "picked first": lambda rows, pos: rows[pos[:, None], :, :],
    "picked elements": lambda rows, pos: rows[..., torch.arange(7, -1, -1)],
    "of another type": lambda rows, pos: rows.double().float(),
}


def _check(write: Write, read: Read, word: str) -> list[str]:
    """Two runs, the second on the states of the first; what was made numbers."""
    module = Cache(write, read).eval()
    g = torch.Generator().manual_seed(1)
    inputs = [(torch.randn(2, 4, 8, generator=g), pos) for pos in (torch.tensor([1, 2]), torch.tensor([0, 2]))]
    exported, choice, reads = with_caches(to_graphs(module, inputs[0]), word, ())
    assert [c.name for c in choice.caches] == ["rows"]
    graph, states = exported.entries["forward"].graph, dict[str, torch.Tensor]()
    module.stored = stored_as(word)
    module.rows.copy_(module.stored(module.rows))
    for x, pos in inputs:
        (got,), states = results_and_states(graph, exported.store, {"x": x, "pos": pos}, states)
        torch.testing.assert_close(got, module(x, pos), rtol=1e-5, atol=1e-5)
        assert torch.equal(states["rows"].float() * states["rows.scales"], module.rows)
    return reads.widened


@pytest.mark.parametrize("word", ["int8", "fp8"])
@pytest.mark.parametrize("write", WRITES)
def test_writes(write: Write, word: str) -> None:
    assert len(_check(write, READS["as it is"], word)) == 1


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    assert len(_check(_copied, READS[name], "int8")) >= 1


def _parts(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[1:3, 2:4] = stored(x[:, :2])  # joined to the rows beside them, which are written, too


def _shifted(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, :-1] = rows[:, 1:].clone()
    rows[:, 5] = stored(x[0])


def _where(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, pos] = torch.where(x.transpose(0, 1) > 0, x.transpose(0, 1), rows[:, pos])


def _averaged(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, pos] = rows[:, pos] * 0.5 + x.transpose(0, 1)


def _recurrent(rows: torch.Tensor, x: torch.Tensor, pos: torch.Tensor, stored: Stored) -> None:
    rows[:, pos] = torch.tanh(rows[:, pos] @ torch.eye(8) + x.transpose(0, 1))


@pytest.mark.parametrize("write", [_parts, _shifted, _where, _averaged, _recurrent])
def test_rows_that_are_written_again_would_be_rounded_again(write: Write) -> None:
    module = Cache(write, READS["as it is"]).eval()
    with pytest.raises(InputSpecError) as caught:
        with_caches(to_graphs(module, (torch.randn(2, 4, 8), torch.tensor([1, 2]))), "int8", ())
    assert " writes what is computed of its own rows\n  To fix: " in str(caught.value)


def test_an_output_is_numbers() -> None:
    class Shown(Cache):
        def forward(self, x: torch.Tensor, pos: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
            return super().forward(x, pos), self.rows.transpose(0, 1)

    module, x = Shown(_copied, READS["as it is"]).eval(), (torch.randn(2, 4, 8), torch.tensor([1, 2]))
    exported, _, _ = with_caches(to_graphs(module, x), "int8", ())
    graph = exported.entries["forward"].graph
    (_, shown), states = results_and_states(graph, exported.store, dict(zip(("x", "pos"), x, strict=True)), {})
    assert torch.equal(shown, (states["rows"] * states["rows.scales"]).transpose(0, 1))


class Layers(nn.Module):
    """Two layers with one buffer: rows of the second are computed of what attention makes of the first's."""

    def __init__(self, product: bool) -> None:
        super().__init__()
        self.product, self.keys = product, nn.Buffer(torch.zeros(2, 1, 1, 6, 8))

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        for i in range(2):
            self.keys[i, :, :, pos] = x
            rows = self.keys[i]
            weights = (x @ rows.mT).softmax(-1)
            mixed = weights @ rows if self.product else F.scaled_dot_product_attention(x, rows, rows)
            x = x + mixed
        return x


@pytest.mark.parametrize("product", [False, True])
def test_layers_in_one_buffer_are_a_cache(product: bool) -> None:
    exported = to_graphs(Layers(product).eval(), (torch.randn(1, 1, 1, 8), torch.tensor([1])))
    _, choice, _ = with_caches(exported, "int8", ())
    assert [c.name for c in choice.caches] == ["keys"]


class Copies(nn.Module):
    """A state that becomes what a cache was before a run."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.old = nn.Buffer(torch.zeros(4, 8)), nn.Buffer(torch.zeros(8, 4))

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        self.old.copy_(self.rows.mT)
        self.rows[pos] = x
        return x @ self.rows.mT


def test_a_state_that_a_cache_is_copied_to_has_numbers() -> None:
    exported = to_graphs(Copies().eval(), (torch.randn(1, 8), torch.tensor([1])))
    exported, choice, reads = with_caches(exported, "int8", ())
    assert [k.name for k in choice.kept] == ["old"]
    assert "state old" in reads.widened
    graph, states = exported.entries["forward"].graph, dict[str, torch.Tensor]()
    for k in range(2):
        _, states = results_and_states(
            graph, exported.store, {"x": torch.full((1, 8), 1.0 + k), "pos": torch.tensor([k])}, states
        )
    assert torch.equal(states["old"].mT[0], torch.ones(8))
    assert not states["old"].mT[1].any()


class Scaled(nn.Module):
    """A state that is called as a cache's scales would be."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Buffer(torch.zeros(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scales.add_(x)
        return self.scales * 1


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows = Scaled()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rows(x)  # type: ignore[no-any-return]


def test_a_cache_whose_scales_have_the_name_of_another_state_stays() -> None:
    args = {"cache": (torch.randn(2, 4, 8), torch.tensor([1, 2])), "other": (torch.ones(()),)}
    modules = {"cache": Cache(_copied, READS["as it is"]).eval(), "other": Named().eval()}
    with pytest.raises(InputSpecError) as caught:
        with_caches(to_graphs(modules, args), "int8", ())
    assert ": rows: there is another state rows.scales, as its scales would be called; " in str(caught.value)
