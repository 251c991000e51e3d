"""Inputs that forward writes to in place: in the caller's memory, as eager leaves it, where they are declared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.export import Dim

import hardtack
from hardtack import InputError, Options
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.manifest import to_json
from hardtack.comparison import compare
from hardtack.exporter import InputSpecError, MutationError, to_graphs
from tests.codegen.test_in_place import LAYERS, ROWS, WIDTH, Steps

Tensor = torch.Tensor


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(x, y)


def _swap(x: Tensor, y: Tensor) -> None:
    old = x.clone()
    x.copy_(y)
    y.copy_(old)


def _branch(x: Tensor, y: Tensor) -> Tensor:
    x.copy_(torch.cond(y.sum() > 0, lambda a: a + 1, lambda a: a * 2, (x,)))
    return x * 1


FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "add": (lambda x, y: x.add_(1), "x"),
    "item": (lambda x, y: x.__setitem__(0, y[1]), "x"),
    "view": (lambda x, y: x.view(-1)[3:7].mul_(2), "x"),
    "transposed": (lambda x, y: x.t()[1:].copy_(y.t()[:-1]), "x"),
    "index copy": (lambda x, y: x.index_copy_(0, torch.tensor([2, 0]), y[:2]), "x"),
    "masked": (lambda x, y: x.masked_fill_(y > 0, -1.0), "x"),
    "accumulate": (lambda x, y: x.index_put_((torch.tensor([1, 1]),), y[:2], accumulate=True), "x"),
    "twice": (lambda x, y: (x[0].add_(y[0]), x[1].mul_(x[0]), x.sum()), "x"),
    "old value read later": (lambda x, y: (x.clone(), x[1].copy_(y[0]), x.sum())[::2], "x"),
    "the other input": (lambda x, y: x.copy_(y), "x"),
    "itself": (lambda x, y: (x.copy_(x), y + 1)[1], "x"),
    "swap": (_swap, "x y"),
    "both": (lambda x, y: (x.add_(y), y.mul_(x), x - y), "x y"),
    "whole and a view returned": (lambda x, y: (x.sigmoid_(), x[1:], x.t()), "x"),
    "branch": (_branch, "x"),
    "resized view": (lambda x, y: x.unsqueeze(0).squeeze(0)[:, ::2].zero_(), "x"),
}


def _args(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)


def _written(names: str) -> Options:
    return Options(written_inputs=tuple(names.split()))


def _export(path: Path, module: Any, args: Any, names: str, **more: Any) -> hardtack.Model:
    hardtack.export(module, args, path=path, targets=["cpu:x86-64-v3"], options=_written(names), progress=False, **more)
    return hardtack.load(path, device="cpu")


def _same(found: Any, want: Any) -> None:
    pairs = zip(*(torch.utils._pytree.tree_leaves(x) for x in (found, want)), strict=True)
    for a, b in (p for p in pairs if p[1] is not None):
        torch.testing.assert_close(torch.as_tensor(a), b, rtol=1e-5, atol=1e-6)


def test_each_form_leaves_what_eager_leaves(tmp_path: Path) -> None:
    modules = {name.replace(" ", "_"): Call(f) for name, (f, _) in FORMS.items()}
    model = _export(tmp_path / "m.pkg", modules, dict.fromkeys(modules, _args()), "x y")
    for name, module in modules.items():
        session = model.session(name)
        want = FORMS[name.replace("_", " ")][1].split() if name != "itself" else ["x"]
        assert [t.name for t in model.entries[name].inputs if t.written] in (want, []), name
        for turn in range(3):
            ours, eager = _args(turn), _args(turn)
            _same(session(*ours), module(*eager))
            _same(ours, eager)
            arrays = [x.numpy() for x in _args(turn)]
            session(*arrays)
            _same(arrays, eager)


def test_random_chains_of_writes_in_the_memory_of_an_input(tmp_path: Path) -> None:
    """The programs that states are tested with, where `s` is an input; most write in place, some copy."""

    class OfInput(nn.Module):
        def __init__(self, seed: int) -> None:
            super().__init__()
            self.steps = Steps(seed)
            del self.steps.s
            self.eval()

        def forward(self, s: Tensor, x: Tensor, at: Tensor) -> Any:
            self.steps.s = s
            result = self.steps(x, at)
            del self.steps.s
            return result

    def args(at: int) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(at)
        s = torch.arange(float(LAYERS * ROWS * WIDTH)).reshape(LAYERS, ROWS, WIDTH)
        return s, torch.randn(ROWS, WIDTH, generator=generator), torch.tensor([at])

    modules = {f"m{seed}": OfInput(seed) for seed in range(24)}
    model = _export(tmp_path / "m.pkg", modules, {name: args(1) for name in modules}, "s")
    in_place = 0
    for name, module in modules.items():
        session = model.session(name)
        in_place += not any(i.op == "copy" for i in _steps(session, args(1)))
        for at in (0, 2):
            ours, eager = args(at), args(at)
            _same(session(*ours), module(*eager))
            _same(ours, eager)
    assert in_place >= 8


class _Step:
    def __init__(self, op: str) -> None:
        self.op = op


def _steps(session: Any, args: Any) -> list[_Step]:
    seen: list[_Step] = []
    session.observe(lambda step: seen.append(_Step(step["op"])))
    session(*args)
    session.observe(None)
    return seen


def test_a_cache_that_is_an_input_is_written_where_it_lies(tmp_path: Path) -> None:
    """No launch copies it, whatever its size; sizes vary."""

    class Decoder(nn.Module):
        def forward(self, cache: Tensor, k: Tensor, at: Tensor) -> Tensor:
            cache.index_copy_(1, at, k)
            return cache.sum(-1)

    module, rows = Decoder().eval(), Dim("rows", max=512)
    args = torch.zeros(2, 64, 8), torch.randn(2, 1, 8), torch.tensor([3])
    model = _export(tmp_path / "m.pkg", module, args, "cache", dynamic_shapes=({1: rows}, None, None))
    session = model.session()
    assert [s.op for s in _steps(session, args)] == ["launch", "launch"]
    for n in (8, 300):
        ours, eager = torch.zeros(2, n, 8), torch.zeros(2, n, 8)
        for at in (0, n - 1, 5):
            given = torch.randn(2, 1, 8), torch.tensor([at])
            _same(session(ours, *given), module(eager, *given))
        _same(ours, eager)
        assert ours._version == 3  # autograd sees that it was written to


def test_layouts_and_dtypes(tmp_path: Path) -> None:
    """What an input becomes is laid out as the input, also where it is an output, which is row-major."""

    def write(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2).add_(nn.functional.max_pool2d(y, 3, 1, 1))
        return x

    def args(seed: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x, y = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(2))
        return x.to(memory_format=torch.channels_last), y

    def flip(x: Tensor, y: Tensor) -> None:
        x.copy_(x.flip(0))
        y.logical_not_()

    others = torch.randn(3, 2, dtype=torch.complex64), torch.tensor([True, False])
    modules = {"nhwc": Call(write), "others": Call(flip), "half": Call(lambda x, y: (x.mul_(y), y.neg_())[0])}
    halves = torch.randn(5).bfloat16(), torch.arange(5.0).bfloat16()
    given = {"nhwc": args(0), "others": others, "half": halves}
    model = _export(tmp_path / "m.pkg", modules, given, "x y")
    for name, module in modules.items():
        ours, eager = (tuple(t.clone() for t in given[name]) for _ in range(2))
        found, want = model.session(name)(*ours), module(*eager)
        _same(found, want)
        _same(ours, eager)


def test_what_a_call_cannot_write_to_is_told(tmp_path: Path) -> None:
    model = _export(tmp_path / "m.pkg", Call(lambda x, y: x.add_(y[0, 0])), _args(), "x")
    x, y = _args()
    read_only = x.clone().numpy()
    read_only.flags.writeable = False
    other = "its strides are not the contract's: pass a contiguous one, which can be written in place"
    first = 'input "x" (0 of entry "forward"), which the run writes to, shares memory with input "y"'
    wide = torch.randn(7, 6)
    for given, problem in (
        ((read_only, y.numpy()), "input 'x': the model writes to it, and it is a read-only array"),
        ((np.asfortranarray(x.numpy()), y.numpy()), f"input 'x': the model writes to it, and {other}"),
        ((x.t().contiguous().t(), y), f"input 'x': the model writes to it, and {other}"),
        ((x.requires_grad_(), y), "input 'x': the model writes to it, and it requires gradients: pass its detach()"),
        ((y, y), first),
        ((wide[:4], wide[3:]), first),
    ):
        with pytest.raises(InputError) as caught:
            model(*given)
        assert str(caught.value) == problem
    scalar = _export(tmp_path / "n.pkg", Call(lambda x, y: x.add_(y)), (torch.tensor(1.0), torch.tensor(2.0)), "x")
    for value, kind in ((1.0, "a number of Python"), (np.float32(1), "a scalar of numpy")):
        with pytest.raises(InputError) as caught:
            scalar(value, 2.0)
        assert str(caught.value) == f"input 'x': the model writes to it, and it is {kind}: pass an array"


def test_inputs_that_are_only_read_are_as_before(tmp_path: Path) -> None:
    """Another input may be read-only, strided or the same array twice."""
    model = _export(tmp_path / "m.pkg", Call(lambda x, y: x.add_(y)), _args(), "x")
    x, y = _args()
    ours, given = x.clone().numpy(), np.asfortranarray(y.numpy())
    given.flags.writeable = False
    model(ours, given)
    _same([ours], [x + y])


def test_a_failed_run_may_have_written(tmp_path: Path) -> None:
    """As in eager, what was written before the failure stays; the session goes on."""

    class Writes(nn.Module):
        def forward(self, x: Tensor, at: Tensor) -> Tensor:
            x.index_copy_(0, at, torch.ones(1, 3))
            return x[0]

    model = _export(tmp_path / "m.pkg", Writes().eval(), (torch.zeros(4, 3), torch.tensor([1])), "x")
    x = torch.zeros(4, 3)
    with pytest.raises(hardtack.RunError):
        model(x, torch.tensor([9]))
    model(x, torch.tensor([2]))
    assert x[2].eq(1).all()


def test_compare_has_written_inputs_and_steps(tmp_path: Path) -> None:
    module, args = Call(lambda x, y: (x[1].copy_(y[0]), x[2].tanh_(), x.sum())), _args()
    path = tmp_path / "m.pkg"
    _export(path, module, args, "x")
    found = compare(hardtack.load(path, device="cpu"), module, args, steps=True)
    assert [d.name for d in found.outputs][-1] == "x behind the run"
    assert "x" in [d.name for d in found.steps]
    assert all(d.good for d in (*found.outputs, *found.steps)), found
    assert [torch.equal(a, b) for a, b in zip(args, _args(), strict=True)] == [True, True]  # examples stay
    wrong = Call(lambda x, y: (x[1].copy_(y[0]), x[2].sin_(), x.sum()))
    bad = compare(hardtack.load(path, device="cpu"), wrong, args)
    assert [d.name for d in bad.outputs if not d.good][-1] == "x behind the run"


def test_the_manifest_says_which(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    _export(path, Call(FORMS["add"][0]), _args(), "x")
    with open_bundle(path) as bundle:
        assert bundle.manifest.format == 5
        assert [(t.name, t.written) for t in bundle.manifest.entries[0].inputs] == [("x", True), ("y", False)]
    hardtack.export(Call(lambda x, y: x + y), _args(), path=path, targets=["cpu:x86-64-v3"], progress=False)
    with open_bundle(path) as bundle:
        assert bundle.manifest.format == 1


def test_undeclared_and_wrongly_declared_inputs_are_told() -> None:
    with pytest.raises(MutationError) as caught:
        to_graphs(Call(_swap), _args())
    assert caught.value.what == "the module writes to its inputs x, y"
    assert caught.value.fix == (
        "declare it, with Options(written_inputs=('x', 'y')) or --written-input x --written-input y, and runs write to "
        "the caller's memory; or work on a clone of the input and return it, or make it a registered buffer"
    )
    with pytest.raises(MutationError) as caught:
        to_graphs(Call(_swap), _args(), written=("y",))
    assert caught.value.what == "the module writes to its input x"
    with pytest.raises(InputSpecError) as wrong:
        to_graphs(Call(FORMS["add"][0]), _args(), written=("x", "z"))
    assert wrong.value.what == "written_inputs has 'z', but the module does not write to such an input; it writes to x"
    with pytest.raises(InputSpecError) as wrong:
        to_graphs(Call(lambda x, y: x + y), _args(), written=("x",))
    assert wrong.value.what == (
        "written_inputs has 'x', but the module does not write to such an input; it writes to none of its inputs"
    )
    with pytest.raises(ValueError, match=r"Options.written_inputs is 'x'; it must be a tuple of names: \('x',\)"):
        Options(written_inputs="x")  # type: ignore[arg-type]


def test_both_readers_refuse_a_plan_that_writes_to_what_is_only_read(tmp_path: Path) -> None:
    path, bad = tmp_path / "m.pkg", tmp_path / "bad.pkg"
    _export(path, Call(FORMS["add"][0]), _args(), "x")
    with open_bundle(path) as bundle:
        files = {"manifest.json": b"", **{m.name: bytes(bundle.read(m.name)) for m in bundle.manifest.members}}
        manifest = replace(
            bundle.manifest,
            entries=tuple(
                replace(e, inputs=tuple(replace(t, written=not t.written) for t in e.inputs))
                for e in bundle.manifest.entries
            ),
        )
    files["manifest.json"] = to_json(manifest)
    bad.write_bytes(corpus.pack(files))
    assert corpus.python_error(bad).endswith("writes value 'x', which is stored in an input")
    assert corpus.runtime_error(bad).endswith('value "x" is written, but it is an input')


def test_the_commands_show_them(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    _export(path, Call(lambda x, y: x.add_(y).sum()), _args(), "x")
    x, y = _args()
    for name, array in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array.numpy())
    shown = CliRunner().invoke(main, ["inspect", str(path)])
    assert re.search(r"x +f32\[4, 6\] +\(6, 1\), written", shown.output)
    assert re.search(r"y +f32\[4, 6\] +\(6, 1\) *\n", shown.output)
    given = [f"{n}={tmp_path / n}.npy" for n in ("x", "y")]
    asked = ["run", str(path), "-i", given[0], "-i", given[1], "-o", str(tmp_path / "out"), "--json"]
    ran = CliRunner().invoke(main, asked)
    assert [r["name"] for r in json.loads(ran.output)["written"]] == ["x"]
    _same([np.load(tmp_path / "out" / "written" / "x.npy")], [x + y])
