"""Options.cache: caches of keys and values as codes, beside eager modules that round what they write to them."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.export import Dim

import hardtack
from hardtack.caches import Cached
from hardtack.cli import main
from hardtack.comparison import compare
from tests.codegen.compare import leaves
from tests.support.cached_decoders import CODES, Decoder, Stacked, WrittenOut, quantised, step, stored_as

TARGETS = ["cpu:x86-64-v3"]
TOKENS = Dim("t", max=24)
DYNAMIC = ({1: TOKENS}, {1: TOKENS}, {1: TOKENS}, {0: TOKENS})
STEPS = ((3, 0), (1, 3), (1, 4), (2, 5))
"""(tokens, the first one's position) of the runs of a session."""
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-10}
"""Of the largest result: sums in another order, and a rounding of half types."""


def export(module: Any, args: Any, path: Path, word: str, **options: Any) -> Cached:
    """The report of an export with caches of `word`."""
    dynamic = DYNAMIC if isinstance(module, (Decoder, Stacked, WrittenOut)) else None
    info = hardtack.export(
        module, args, path=path, dynamic_shapes=dynamic, targets=TARGETS, progress=False,
        options=hardtack.Options(cache=word, **options),
    )  # fmt: skip
    assert info.cached is not None
    return info.cached


def run(*arguments: str | Path) -> tuple[int, str]:
    """The command's status, and what it prints."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.stdout + result.stderr


def rounding(module: nn.Module, word: str) -> nn.Module:
    """A copy of a decoder, that reads of its cache what codes stand for."""
    made = copy.deepcopy(module)
    made.stored = stored_as(word)  # type: ignore[assignment]
    for buffer in made.buffers():
        buffer.copy_(made.stored(buffer))  # type: ignore[operator]
    return made


def agree(got: Any, want: Any) -> None:
    """Fails where results differ by more than sums in another order."""
    for a, b in zip(leaves(got), leaves(want), strict=True):
        assert a.dtype is b.dtype
        assert float((a.double() - b.double()).abs().max()) <= TOLERANCE[b.dtype] * float(b.double().abs().max())


CASES = [
    (Decoder, torch.float32, "int8"),
    (Decoder, torch.bfloat16, "fp8"),
    (Decoder, torch.float32, "fp8"),
    (Stacked, torch.float32, "fp8"),
    (Stacked, torch.bfloat16, "int8"),
    (WrittenOut, torch.float32, "int8"),
    (WrittenOut, torch.float16, "fp8"),
]


@pytest.mark.parametrize(("model", "dtype", "word"), CASES)
def test_decoding_is_that_of_what_codes_stand_for(
    model: type[Decoder], dtype: torch.dtype, word: str, tmp_path: Path
) -> None:
    """In two sessions, turn by turn, and after a reset; codes and scales themselves are eager's."""
    module, path = model(dtype).eval(), tmp_path / "m.pkg"
    report = export(module, step(3, 0, dtype), path, word)
    assert [s.name for s in report.states] == [n for n, _ in module.named_buffers()]
    assert report.nbytes == sum(b.numel() * b.element_size() for b in module.buffers())
    assert report.stored_nbytes == sum(b.numel() + b.numel() // b.shape[-1] * 4 for b in module.buffers())
    assert report.kept == ()
    assert (report.num_attentions, len(report.widened)) == {Decoder: (1, 0), Stacked: (3, 0), WrittenOut: (0, 2)}[model]
    loaded = hardtack.load(path)
    sessions = [(loaded.session(), rounding(module, word), seed) for seed in (0, 100)]
    for t, at in STEPS:
        for session, eager, seed in sessions:
            x = step(t, at, dtype, seed)
            agree(session(*x), eager(*x))
    session, eager, _ = sessions[0]
    for name, buffer in eager.named_buffers():
        codes, scales = (session.read_state(n) for n in (name, f"{name}.scales"))
        assert codes.dtype == (np.int8 if word == "int8" else np.uint8)
        assert (codes.shape, scales.shape) == (tuple(buffer.shape), (*buffer.shape[:-1], 1))
        wide = torch.from_numpy(codes).view(CODES[word][0]).float() * torch.from_numpy(scales)
        assert torch.equal(wide.to(dtype), buffer)
    session.reset()
    x = step(2, 0, dtype, 7)
    agree(session(*x), rounding(module, word)(*x))


def test_a_stacked_buffer_of_one_layer_is_a_cache(tmp_path: Path) -> None:
    """Its part is all of it: there is nothing in front of the layer or behind it that is joined again."""
    module, path = Stacked(layers=1).eval(), tmp_path / "m.pkg"
    report = export(module, step(3, 0), path, "int8")
    assert [s.name for s in report.states] == ["cache"]
    assert (report.num_attentions, report.widened) == (1, ())
    session, eager = hardtack.load(path).session(), rounding(module, "int8")
    for t, at in STEPS:
        agree(session(*step(t, at)), eager(*step(t, at)))


def test_rows_of_zeros_and_tiny_rows_are_numbers_and_others_are_nan(tmp_path: Path) -> None:
    module, path = Decoder().eval(), tmp_path / "m.pkg"
    export(module, step(3, 0), path, "int8")
    session, eager = hardtack.load(path).session(), rounding(module, "int8")
    q, k, v, pos = step(4, 0)
    k[0, 1], v[0, 2], k[0, 2], k[0, 3, 0] = 0, 0, 1e-44, 1e30
    agree(session(q, k, v, pos), eager(q, k, v, pos))
    codes, scales = quantised(k.transpose(1, 2), "int8")
    assert np.array_equal(session.read_state("keys")[:, :, :4], codes.numpy())
    assert np.array_equal(session.read_state("keys.scales")[:, :, :4], scales.numpy())
    q, k, v, pos = step(2, 9)
    v[0, 0, :, 3], v[0, 1, :, 5] = torch.inf, torch.nan
    session(q, k, v, pos)
    wide = torch.from_numpy(session.read_state("values")) * torch.from_numpy(session.read_state("values.scales"))
    lost = wide.isnan()
    assert lost[:, :, 9:11].all()
    assert int(lost.sum()) == 2 * 2 * 16


def test_first_contents_are_quantised_and_states_can_be_written(tmp_path: Path) -> None:
    module, path = Decoder().eval(), tmp_path / "m.pkg"
    g = torch.Generator().manual_seed(3)
    for buffer in module.buffers():
        buffer.copy_(torch.randn(buffer.shape, generator=g))
    export(module, step(3, 0), path, "fp8")
    session, eager = hardtack.load(path).session(), rounding(module, "fp8")
    agree(session(*step(1, 20)), eager(*step(1, 20)))
    codes, scales = quantised(torch.randn(module.keys.shape, generator=g), "fp8")
    session.write_state("keys", codes.view(torch.uint8).numpy())
    session.write_state("keys.scales", scales.numpy())
    eager.keys.copy_(codes.float() * scales)
    agree(session(*step(1, 21)), eager(*step(1, 21)))
    with pytest.raises(hardtack.InputError) as caught:
        session.write_state("keys", np.zeros(module.keys.shape, np.float32))
    assert str(caught.value) == "state keys: f8e4m3fn[1, 2, 24, 16] cannot take an array float32[1, 2, 24, 16]"


class Both(nn.Module):
    """A cache, a buffer that is one but for its dtype, and states that are none."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Decoder()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", torch.zeros(3, 16))
        self.register_buffer("sums", torch.zeros(4, 16))
        self.register_buffer("wide", torch.zeros(8, 16, dtype=torch.float64))
        self.register_buffer("columns", torch.zeros(16, 8))
        self.register_buffer("read", torch.zeros(8, 16))
        self.register_buffer("short", torch.zeros(8, 4, dtype=torch.bfloat16))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        row, y = k[0, :1, 0], self.inner(q, k, v, pos)
        self.count.add_(1)
        self.mean.mul_(0.9)
        self.last.copy_(self.last + row)
        self.sums.index_add_(0, pos[:1], row)
        self.wide.index_copy_(0, pos[:1], row.double())
        self.columns.index_copy_(1, pos[:1], row.T)
        self.read.index_copy_(0, pos[:1], row)
        self.short.index_copy_(0, pos[:1], row[:, :4].bfloat16())
        products = (row @ x.T for x in (self.last, self.sums, self.columns.T, self.wide.float()))
        return (
            y
            + sum(p.sum() for p in products)
            + self.read.sum()
            + (row[:, :4].bfloat16() @ self.short.T).sum()
            + self.mean.sum()
        )


def test_which_states_are_none(tmp_path: Path) -> None:
    """The report names each with its reason, the command prints them, and the manifest has what was asked for."""
    report = export(Both().eval(), step(1, 2), tmp_path / "m.pkg", "int8", keep_cache=("inner.v*",))
    assert [s.name for s in report.states] == ["inner.keys"]
    reasons = {k.name: re.sub(r" at \S+:\d+( in \w+)?", " at ..", k.reason) for k in report.kept}
    assert reasons == {
        "inner.values": "keep_cache has 'inner.v*'",
        "count": "it is i64; there are codes of f32, bf16, f16",
        "mean": "it has no rows: its rank is below 2",
        "last": "aten.add.Tensor at .. makes all of it anew",
        "sums": "aten.index_add at .. adds to it",
        "wide": "it is f64; there are codes of f32, bf16, f16",
        "columns": "aten.index_copy at .. writes parts of its rows",
        "read": "no product or attention reads its rows as they are",
        "short": "codes and scales of rows of 4 would take no fewer bytes",
    }
    session, x = hardtack.load(tmp_path / "m.pkg").session(), step(1, 2)
    eager = Both().eval()
    assert session.read_state("inner.values").dtype == np.float32
    got, want = session(*x), eager(*x)
    assert float((got - want).abs().max()) < 0.05 * float(want.abs().max())
    shown = run("inspect", tmp_path / "m.pkg")[1]
    assert 'caches are stored as int8, but for ["inner.v*"]' in shown
    rows = [line.split() for line in shown.splitlines() if "inner.keys" in line]
    codes, scales = ["inner.keys", "i8[1,", "2,", "24,", "16]"], ["inner.keys.scales", "f32[1,", "2,", "24,", "1]"]
    assert rows == [[*codes, "zeros", "inner.keys", "*", "inner.keys.scales"], [*scales, "zeros"]]
    document = json.loads(run("inspect", "--json", tmp_path / "m.pkg")[1])
    assert (document["numerics"]["cache"], document["numerics"]["keep_cache"]) == ("int8", '["inner.v*"]')


def test_entry_points_share_a_cache_and_the_report_goes_on_from_one_to_the_next(tmp_path: Path) -> None:
    module = Decoder().eval()
    info = hardtack.export(
        {"prefill": module, "decode": module}, {"prefill": step(5, 0), "decode": step(1, 5)}, path=tmp_path / "m.pkg",
        targets=TARGETS, progress=False, options=hardtack.Options(cache="int8"),
    )  # fmt: skip
    assert info.cached is not None
    assert [s.name for s in info.cached.states] == ["keys", "values"]
    session, eager = hardtack.load(tmp_path / "m.pkg").session("prefill"), rounding(module, "int8")
    agree(session(*step(5, 0)), eager(*step(5, 0)))
    want = eager(*step(1, 5))
    agree(session.run("decode", *step(1, 5)), want)
    # what the report says of decode is what one run behind prefill is off
    exact = copy.deepcopy(module)
    exact(*step(5, 0))
    wide = exact(*step(1, 5))
    (found,) = info.cached.accuracy["decode"]
    assert found.absolute == pytest.approx(float((want - wide).abs().max()), rel=1e-2)


class Language(nn.Module):
    """Logits for the next token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(50, 64)
        self.cache = Decoder()
        self.head = nn.Linear(64, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens).unflatten(-1, (4, 16))
        y: torch.Tensor = self.head(self.cache(x, x[:, :, :2], x[:, :, 2:], torch.arange(8)).flatten(2))
        return y


def test_the_report_has_perplexity_and_takes_calibration_data(tmp_path: Path) -> None:
    data = [torch.randint(50, (1, 8)) for _ in range(3)]
    report = export(Language().eval(), (data[0],), tmp_path / "m.pkg", "fp8", calibration=data)
    assert report.num_examples == 3
    found = report.perplexity["forward"]
    assert found.num_tokens == 21
    assert found.exact != found.found == pytest.approx(found.exact, rel=0.02)
    (accuracy,) = report.accuracy["forward"]
    assert 0 < accuracy.relative < 0.1
    assert accuracy.cosine > 0.999


def test_compare_takes_the_option_from_the_manifest(tmp_path: Path) -> None:
    module = Decoder().eval()
    export(module, step(3, 0), tmp_path / "m.pkg", "int8")
    found = compare(hardtack.load(tmp_path / "m.pkg"), module, step(3, 0), dynamic_shapes=DYNAMIC, steps=True)
    assert all(d.good for d in (*found.outputs, *found.steps)), found
    assert {"i8" if d.dtype == "int8" else d.dtype for d in found.steps} >= {"i8", "float32"}


def test_the_command(tmp_path: Path) -> None:
    spec = tmp_path / "model.py"
    spec.write_text(
        "from tests.support.cached_decoders import Decoder, step\n"
        "def make():\n    return Decoder().eval(), step(3, 0)\n"
    )
    common = ("export", f"{spec}:make", "-o", tmp_path / "m.pkg", "--target", TARGETS[0])
    shown = run(*common, "--cache", "int8", "--keep-cache", "values")[1]
    assert (
        "1 cache as int8: 3.07 kB -> 960 B a session; 0 attentions read codes; numbers are made for aten.scaled_dot_"
        in shown
    )
    assert "values  keep_cache has 'values'" in shown
    text = run(*common[:2], "--cache", "fp8", "--stop-after", "graph")[1]
    assert "state keys.scales: f32[1, 2, 24, 1] zeros" in text


def test_wrong_options() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cache": "int4"}, 'Options.cache is \'int4\'; it may be "int8" or "fp8"'),
        ({"cache": 8}, 'Options.cache is 8; it may be "int8" or "fp8"'),
        ({"keep_cache": ("a",)}, "Options.keep_cache leaves states out of Options.cache, which is not there"),
        ({"cache": "int8", "keep_cache": "a"}, "Options.keep_cache is 'a'; it must be a tuple of patterns"),
        (
            {"cache": "int8", "compute": "bf16"},
            "Options.cache is 'int8' and Options.compute 'bf16'; caches of few bits are there with compute \"f32\" "
            "only so far",
        ),
    ]
    for options, said in cases:
        with pytest.raises(ValueError, match=r"^Options") as caught:
            hardtack.Options(**options)
        assert str(caught.value) == said
    command = run("export", "m.py:make", "-o", "m.pkg", "--cache", "int4")
    assert command == (2, 'error: --cache is \'int4\'; it may be "int8" or "fp8"\n')


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 16, dtype=torch.float64))

    def forward(self, x: torch.Tensor, pos: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, pos, x)
        return x @ self.rows.T


def test_what_is_refused(tmp_path: Path) -> None:
    rows = (torch.randn(1, 16, dtype=torch.float64), torch.tensor([2]))
    fix = "write whole rows along the last dimension to the cache, in place, or leave the option cache out"
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (
            nn.Linear(4, 4).eval(), (torch.randn(1, 4),), {},
            "the model has no states, and so no cache of keys and values that could be stored as int8\n  To fix: keep "
            "the cache in buffers that forward writes in place, or leave the option cache out",
        ),
        (
            Wide().eval(), rows, {},
            "no state of the model is a cache of keys and values that could be stored as int8: rows: it is f64; there "
            f"are codes of f32, bf16, f16\n  To fix: {fix}",
        ),
        (
            Decoder().eval(), step(1, 0), {"keep_cache": ("keys", "valves")},
            "keep_cache has 'valves', but no cache has such a name\n  To fix: name a buffer as named_buffers() does, "
            "or a module that has it; * stands for any part of a path",
        ),
        (
            Decoder().eval(), step(1, 0), {"keep_cache": ("*",)},
            "no state of the model is a cache of keys and values that could be stored as int8: keys: keep_cache has "
            f"'*'; values: keep_cache has '*'\n  To fix: {fix}",
        ),
    ]  # fmt: skip
    for module, args, options, said in cases:
        with pytest.raises(hardtack.ExportError) as caught:
            export(module, args, tmp_path / "m.pkg", "int8", **options)
        assert str(caught.value) == said


def test_calibration_is_for_modules(tmp_path: Path) -> None:
    program = torch.export.export(Decoder().eval(), step(3, 0))
    with pytest.raises(hardtack.ExportError) as caught:
        export(program, (), tmp_path / "m.pkg", "int8", calibration=[step(3, 0)])
    assert str(caught.value) == (
        "there are calibration data, and what is to be exported is an ExportedProgram, which is not run on them\n"
        "  To fix: pass the nn.Module, or leave the data out: the example inputs are measured at then"
    )
    report = export(program, (), tmp_path / "m.pkg", "int8")
    assert [s.name for s in report.states] == ["keys", "values"]
    assert 0 < report.accuracy["forward"][0].relative < 0.02
