"""Options.calibration: what data may be, which files are read, and what is refused, with the layer or the example."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hardtack
from hardtack.calibration import calibration_of
from hardtack.exporter import InputSpecError
from hardtack.quantisation import Quantised, quantise

LIKE = "give it as the example inputs are; only sizes that dynamic_shapes names may differ"
LOOK = "look for what made it so, or leave the example out"


class Two(nn.Module):
    """A branch for each sign, chosen in Python, and a layer for both."""

    def __init__(self) -> None:
        super().__init__()
        self.plus, self.minus, self.last = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor, is_plus: bool = True) -> torch.Tensor:
        return self.last(torch.relu(self.plus(x) if is_plus else self.minus(x)))


def two() -> tuple[nn.Module, tuple[torch.Tensor, bool]]:
    torch.manual_seed(0)
    return Two().eval(), (torch.randn(4, 32), True)


def data(count: int = 3) -> list[tuple[torch.Tensor, bool]]:
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 32, generator=g), k % 2 == 0) for k in range(count)]


def options(calibration: Any, **others: Any) -> hardtack.Options:
    return hardtack.Options(**({"weights": "int8", "activations": "int8", "calibration": calibration} | others))


def report(module: Any, args: Any, calibration: Any, **others: Any) -> Quantised:
    found = quantise(module, options(calibration, **others), args).report
    assert found is not None
    return found


def refusal(calibration: Any, module: Any = None, args: Any = None, dynamic: Any = None, **others: Any) -> str:
    if module is None:
        module, args = two()
    with pytest.raises(InputSpecError) as caught:
        quantise(module, options(calibration, **others), args, dynamic_shapes=dynamic)
    return str(caught.value)


def test_examples_are_called_as_they_are_given() -> None:
    """Tuples, lists, dicts and tensors are one and the same, and an iterable is read once."""
    module, args = two()
    given: list[Callable[[torch.Tensor, bool], Any]] = [
        lambda x, plus: (x, plus),
        lambda x, plus: [x, plus],
        lambda x, plus: {"is_plus": plus, "x": x},
    ]
    reports = [report(module, args, (f(*x) for x in data())) for f in given]
    assert reports[0] == reports[1] == reports[2]
    assert reports[0].num_examples == 3
    largest = [data()[k][0].abs().max() for k in range(3)]
    scales = {x.name: x.activation_scale for x in reports[0].layers}
    assert scales["plus"] == pytest.approx(float(max(largest[0], largest[2])) / 127.5)
    assert scales["minus"] == pytest.approx(float(largest[1]) / 127.5)
    linear, x = nn.Linear(32, 8).eval(), torch.randn(4, 32)
    alone = report(linear, (x,), [x])
    assert alone.layers[0].activation_scale == pytest.approx(float(x.abs().max()) / 127.5)


def test_sizes_may_be_others_where_they_are_dynamic() -> None:
    module, x = nn.Linear(32, 8).eval(), torch.randn(4, 32)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    found = quantise(module, options([torch.randn(n, 32) for n in (1, 9)]), (x,), dynamic_shapes=dynamic)
    assert found.report is not None
    assert found.report.num_examples == 2


def test_the_model_and_its_states_are_not_changed() -> None:
    module = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32)).eval()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    report(module, (torch.randn(4, 32),), [torch.randn(4, 32)], weights_method="gptq")
    assert all(torch.equal(t, before[name]) for name, t in module.state_dict().items())
    assert not any(m._forward_pre_hooks for m in module.modules())


class Entry(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.own = inner, nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(self.inner(x))


def test_several_entry_points_have_data_of_their_own() -> None:
    """What they share sees the data of both."""
    torch.manual_seed(0)
    inner = nn.Linear(32, 32)
    entries = {"a": Entry(inner).eval(), "b": Entry(inner).eval()}
    x, small, large = torch.randn(4, 32), torch.rand(4, 32), torch.full((4, 32), 12.75)
    args = dict.fromkeys(entries, (x,))
    found = quantise(entries, options({"a": [small], "b": [large, small]}), args).report
    assert found is not None
    assert [layer.name for layer in found.layers] == ["a inner", "a own", "b own"]
    assert found.layers[0].activation_scale == pytest.approx(0.1)
    assert found.num_examples == 3
    assert refusal({"a": [small]}, entries, args) == (
        "no calibration example reaches the linear layer 'own'\n"
        "  To fix: add examples for which the model calls them, or name them in keep_weights"
    )
    names = "name any of a, b, each with an iterable of inputs"
    assert refusal([small], entries, args) == (
        f"the calibration of several entry points is a dict by entry point\n  To fix: {names}"
    )
    assert refusal({"c": [small]}, entries, args) == (
        f"the calibration of several entry points is a dict by entry point, not with 'c'\n  To fix: {names}"
    )
    assert refusal({"a": [small], "b": []}, entries, args) == (
        "the calibration of b has no examples\n  To fix: give a few inputs that are like those the model will see"
    )


def test_data_that_say_nothing_of_a_layer() -> None:
    x = torch.randn(4, 32)
    assert refusal([(x, False)], keep_weights=("last",)) == (
        "no calibration example reaches the linear layer 'plus'\n"
        "  To fix: add examples for which the model calls them, or name them in keep_weights"
    )
    module, args = two()
    assert [layer.name for layer in report(module, args, [(x, True)], keep_weights=("minus",)).layers] == [
        "plus",
        "last",
    ]
    many = nn.ModuleList(nn.Linear(32, 32) for _ in range(7)).eval()
    many.forward = lambda x: x  # type: ignore[method-assign, assignment, misc]
    assert refusal([x], many, (x,), weights_method="gptq", activations=None) == (
        "no calibration example reaches the linear layers '0', '1', '2', '3', '4' and 2 more\n"
        "  To fix: add examples for which the model calls them, or name them in keep_weights"
    )
    assert refusal([(torch.zeros(4, 32), True)], keep_weights=("minus",)) == (
        "the linear layer 'plus' is given nothing but zeros by the calibration, of which no scale can be made\n"
        "  To fix: add examples for which it is given other numbers, or name it in keep_activations"
    )


def test_rows_come_with_one_number_of_dimensions() -> None:
    class Ranks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(32, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + self.inner(x[None])

    x = torch.randn(4, 32)
    assert refusal([x], Ranks().eval(), (x,)) == (
        "the linear layer 'inner' is given activations of 2 and of 3 dimensions, for which torchao has no one static "
        'scale\n  To fix: take activations "int8:dynamic", or name it in keep_activations'
    )
    assert report(Ranks().eval(), (x,), [x], activations="int8:dynamic").activations == "int8:dynamic"


def test_numbers_that_are_none() -> None:
    x = torch.randn(4, 32)
    wrong = x.clone()
    wrong[1, 2] = math.nan
    assert refusal([(x, True), (wrong, True)]) == f"calibration example 1 has NaN in 'x'\n  To fix: {LOOK}"
    wrong[1, 2] = math.inf
    assert refusal([(wrong, True)]) == (
        f"the linear layer 'plus' is given infinite numbers by calibration example 0\n  To fix: {LOOK}"
    )
    module = nn.Sequential(nn.ReLU(), nn.Linear(32, 32)).eval()
    module[0].forward = lambda x: x / 0.0 - x / 0.0  # type: ignore[method-assign]
    assert refusal([x], module, (x,)) == (
        f"the linear layer '1' is given NaN by calibration example 0\n  To fix: {LOOK}"
    )


def test_examples_that_are_not_like_the_example_inputs() -> None:
    x = torch.randn(4, 32)
    cases: list[tuple[Any, str, str]] = [
        ([], "the calibration has no examples", "give a few inputs that are like those the model will see"),
        (iter(()), "the calibration has no examples", "give a few inputs that are like those the model will see"),
        (x, "the calibration is a tensor, not an iterable of inputs", "put it into a list, as one example"),
        ({"x": x}, "the calibration is a dict, not an iterable of inputs", "put it into a list, as one example"),
        ([3], "calibration example 0 is of type int", "make it a tensor, a tuple of args or a dict of kwargs"),
        ([(x, True), (x,)], "calibration example 1 has no 'is_plus'", LIKE),
        (
            [(x.double(), True)],
            "calibration example 0 has 'x' as float64 [4, 32], where the example inputs have float32 [4, 32]",
            LIKE,
        ),
        (
            [(x[:2], True)],
            "calibration example 0 has 'x' as float32 [2, 32], where the example inputs have float32 [4, 32]",
            LIKE,
        ),
        (
            [(x, 1)],
            "calibration example 0 has 'is_plus' as 1 (int), where the example inputs have True (bool)",
            LIKE,
        ),
        ([{"y": x}], "calibration example 0 is not what the model takes: missing a required argument: 'x'", LIKE),
        ([(x, True, x)], "calibration example 0 is not what the model takes: too many positional arguments", LIKE),
    ]
    for given, said, fix in cases:
        assert refusal(given) == f"{said}\n  To fix: {fix}"
    linear = nn.Linear(32, 8).eval()
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    assert refusal([x[None]], linear, (x,), dynamic) == (
        "calibration example 0 has 'input' as float32 [1, 4, 32], where the example inputs have float32 [4, 32]\n"
        f"  To fix: {LIKE}"
    )
    assert refusal([torch.randn(4, 31)], linear, (x,), dynamic) == (
        "the model cannot run calibration example 0: mat1 and mat2 shapes cannot be multiplied (4x31 and 32x8)\n"
        "  To fix: give inputs that the model takes"
    )


def write(folder: Path, count: int = 3) -> dict[str, Path]:
    """The same data in each kind of file: x of `count` examples."""
    x = torch.stack([x for x, _ in data(count)])
    paths = {s: folder / f"data{s}" for s in (".npz", ".pt", ".safetensors")}
    np.savez(paths[".npz"], input=x.numpy())
    torch.save([{"input": t} for t in x], paths[".pt"])
    header = f'{{"input":{{"dtype":"F32","shape":{list(x.shape)},"data_offsets":[0,{4 * x.numel()}]}}}}'.encode()
    paths[".safetensors"].write_bytes(len(header).to_bytes(8, "little") + header + x.numpy().tobytes())
    return paths


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".safetensors"])
def test_files(suffix: str, tmp_path: Path) -> None:
    module, x = nn.Linear(32, 8).eval(), torch.randn(4, 32)
    path = write(tmp_path)[suffix]
    found = calibration_of(path, module, (x,), None, None)
    for example, (wanted, _) in zip(found.of("forward"), data(), strict=True):
        assert example.args == ()
        assert torch.equal(example.kwargs["input"], wanted)
    assert report(module, (x,), str(path)) == report(module, (x,), [x for x, _ in data()])


def test_wrong_files(tmp_path: Path) -> None:
    module, x = nn.Linear(32, 8).eval(), torch.randn(4, 32)

    def said(name: str) -> str:
        return refusal(tmp_path / name, module, (x,)).replace(str(tmp_path), "DIR")

    assert said("a.csv") == (
        "calibration file 'DIR/a.csv' is of no kind that is known\n  To fix: make it .npz, .safetensors, .pt"
    )
    assert said("a.npz") == "there is no calibration file 'DIR/a.npz'\n  To fix: name one that is there"
    how = "write it with numpy.savez, safetensors or torch.save; of tensors, lists, tuples and dicts only"
    for name in ("b.npz", "b.pt", "b.safetensors"):
        (tmp_path / name).write_bytes(b"no such thing")
        first, second = said(name).split("\n")
        assert first.startswith(f"calibration file 'DIR/{name}' cannot be read as {name[1:]}: ")
        assert second == f"  To fix: {how}"
    np.savez(tmp_path / "c.npz", x=np.zeros((3, 4, 32), "f4"), y=np.zeros((2, 4), "f4"))
    counts = "the first dimension of each array of a .npz or .safetensors file counts the examples"
    assert said("c.npz") == (
        f"the arrays of calibration file 'DIR/c.npz' have different numbers of examples: x 3, y 2\n  To fix: {counts}"
    )
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 4, 32), "f4"), y=np.float32(1))
    assert said("d.npz") == (
        "the arrays of calibration file 'DIR/d.npz' have different numbers of examples: x 3, y none\n"
        f"  To fix: {counts}"
    )
    np.savez(tmp_path / "e.npz", x=np.zeros((0, 4, 32), "f4"))
    assert said("e.npz") == (
        "the calibration has no examples\n  To fix: give a few inputs that are like those the model will see"
    )
