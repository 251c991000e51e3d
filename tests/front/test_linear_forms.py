"""Linear layers of other classes than nn.Linear, found by what they compute, from the front door."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hardtack
from hardtack.comparison import compare
from hardtack.linear_forms import LinearForm, linear_form
from hardtack.quantisation import KeptLayer, Quantisation, quantise

TARGETS = ("cpu:x86-64-v3",)


class Columns(nn.Module):
    """A linear layer whose weight is (inputs, outputs), with names of its own; `compute` is its forward."""

    def __init__(self, compute: Callable[[Any, torch.Tensor], torch.Tensor], inputs: int = 32, outputs: int = 32):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(inputs, outputs) / 8)
        self.offset = nn.Parameter(torch.randn(outputs))
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, x)


def addmm(m: Any, x: torch.Tensor) -> torch.Tensor:
    """As Conv1D of transformers has it."""
    rows = torch.addmm(m.offset, x.view(-1, x.size(-1)), m.kernel)
    return rows.view((*x.size()[:-1], m.kernel.shape[1]))


LINEAR: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "addmm": addmm,
    "matmul": lambda m, x: x @ m.kernel + m.offset,
    "einsum": lambda m, x: torch.einsum("...i,io->...o", x, m.kernel) + m.offset,
    "sum": lambda m, x: (x.unsqueeze(-1) * m.kernel).sum(-2) + m.offset,
    "functional": lambda m, x: F.linear(x, m.kernel.t(), m.offset),
}
OTHERS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "of more": lambda m, x: torch.relu(x @ m.kernel + m.offset),
    "twice": lambda m, x: 2 * (x @ m.kernel + m.offset),
    "without its bias": lambda m, x: x @ m.kernel,
    "a residual": lambda m, x: x + x @ m.kernel + m.offset,
    "of rounded numbers": lambda m, x: (x.bfloat16() @ m.kernel.bfloat16()).float() + m.offset,
    "of two products": lambda m, x: x @ m.kernel @ m.kernel.t() + m.offset,
    "of other numbers for one row": lambda m, x: (x if x.shape[0] > 1 else x + 1) @ m.kernel + m.offset,
    "of all rows": lambda m, x: x.flatten(0, -2) @ m.kernel + m.offset,
    "scattered": lambda m, x: m.kernel[x.long()] + m.offset,
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_forms_that_are_linear(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for sizes in ((32, 32), (32, 8), (8, 32)):
        module = Columns(LINEAR[name], *sizes).to(dtype)
        before = copy.deepcopy(module.state_dict())
        assert linear_form(module) == LinearForm("kernel", "offset", is_transposed=True)
        assert all(torch.equal(t, before[key]) for key, t in module.state_dict().items())


@pytest.mark.parametrize("name", OTHERS)
def test_forms_that_are_something_else(name: str) -> None:
    torch.manual_seed(0)
    assert linear_form(Columns(OTHERS[name])) is None


class Own(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Scaled(nn.Linear):
    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) * scale


def test_classes_of_torch_with_a_forward_of_their_own() -> None:
    assert linear_form(Own(8, 8)) == LinearForm("weight", "bias", is_transposed=False)
    assert linear_form(Own(8, 4, bias=False)) == LinearForm("weight", None, is_transposed=False)
    assert linear_form(Scaled(8, 8)) is None  # who calls it may give another scale
    assert linear_form(nn.Embedding(8, 8)) is None
    assert linear_form(nn.BatchNorm1d(8)) is None
    lent = nn.Linear(8, 8)
    borrower = nn.Linear(8, 8)
    borrower.forward = lent.forward  # type: ignore[method-assign]
    assert linear_form(borrower) is None  # its own weight decides over nothing


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Columns(addmm, 32, 64), Columns(LINEAR["matmul"], 64, 32)
        self.own, self.plain = Own(32, 32), nn.Linear(32, 32)
        self.other = Columns(OTHERS["of more"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.plain(self.own(input_of(self.second, torch.tanh(self.first(x)))))
        made: torch.Tensor = self.other(x) + self.second.offset.sum()  # a bias may be read
        return made


def input_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Called by the name of its parameter."""
    made: torch.Tensor = module(x=x)
    return made


def mixed() -> tuple[Mixed, torch.Tensor]:
    torch.manual_seed(0)
    return Mixed().eval(), torch.randn(8, 32)


class Plain(nn.Module):
    """The same model of nn.Linear."""

    def __init__(self, module: Mixed) -> None:
        super().__init__()
        self.first, self.second = columns_of_torch(module.first), columns_of_torch(module.second)
        self.own, self.plain, self.other = nn.Linear(32, 32), module.plain, module.other
        self.own.load_state_dict(module.own.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.plain(self.own(self.second(torch.tanh(self.first(x)))))
        made: torch.Tensor = self.other(x) + self.second.bias.sum()
        return made


def columns_of_torch(module: Columns) -> nn.Linear:
    made = nn.Linear(*module.kernel.shape)
    made.weight, made.bias = nn.Parameter(module.kernel.detach().t().contiguous()), module.offset
    return made


def made_of(module: nn.Module, x: torch.Tensor, **options: Any) -> Quantisation:
    return quantise(module, hardtack.Options(**options), (x,))


CASES: list[dict[str, Any]] = [
    {"weights": "int8"},
    {"weights": "int4:32", "weights_method": "hqq"},
    {"weights": "int8", "activations": "int8:dynamic"},
    {"weights": "int8", "activations": "int8:static"},
    {"weights": "int4:32", "weights_method": "gptq"},
    {"weights": "fp8", "activations": "fp8"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(c.values()))
def test_numbers_are_those_of_nn_linear(case: dict[str, Any]) -> None:
    """By each scheme, data included; and the model that was given stays as it is."""
    module, x = mixed()
    before = copy.deepcopy(module.state_dict())
    case = case | {"calibration": [torch.randn(64, 32) for _ in range(2)]}
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    found = quantise(module, hardtack.Options(**case), (x,), None, dynamic)
    assert found.report is not None
    assert [layer.name for layer in found.report.layers] == ["first", "second", "own", "plain"]
    assert [layer.shape for layer in found.report.layers] == [(64, 32), (32, 64), (32, 32), (32, 32)]
    assert found.report.kept == (KeptLayer("other", "Columns is no linear layer"),)
    plain = quantise(Plain(module).eval(), hardtack.Options(**case), (x,), None, dynamic)
    with torch.no_grad():
        torch.testing.assert_close(found.model(x), plain.model(x), rtol=0, atol=0)
    assert all(torch.equal(t, before[key]) for key, t in module.state_dict().items())
    assert not torch.equal(found.model(x), module(x))


def test_bundles_hold_codes(tmp_path: Path) -> None:
    module, x = mixed()
    options = hardtack.Options(weights="int8", keep_weights=("plain",))
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS, options=options)
    assert info.widened == ()
    made = quantise(module, options, (x,)).model
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x), made(x))
    assert all(d.good for d in compare(hardtack.load(info.path), module, (x,), steps=True).steps)


def test_a_weight_that_two_layers_share() -> None:
    module, x = mixed()
    module.other = Columns(addmm, 64, 32)
    module.other.kernel = module.second.kernel
    found = made_of(nn.Sequential(module.first, module.second), x, weights="int8")
    assert found.report is not None
    assert [layer.name for layer in found.report.layers] == ["0", "1"]
    both = nn.ModuleDict({"a": module.second, "b": module.other, "rows": nn.Linear(32, 64)})
    both["rows"].weight = module.second.kernel
    made = made_of(both, x, weights="int8").model
    codes = [made[name].as_linear.weight.qdata for name in ("a", "b")]
    assert torch.equal(*codes)
    assert codes[0].shape == (32, 64)
    assert made["rows"].weight.qdata.shape == (64, 32)


def test_transformers_gpt2() -> None:
    pytest.importorskip("transformers")
    from transformers.pytorch_utils import Conv1D

    assert linear_form(Conv1D(8, 8)) == LinearForm("weight", "bias", is_transposed=True)


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Columns(addmm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) @ self.inner.kernel


def test_a_model_that_reads_such_a_weight(tmp_path: Path) -> None:
    with pytest.raises(hardtack.ExportError) as caught:
        hardtack.export(
            Reads().eval(), (torch.randn(2, 32),), path=tmp_path / "m.pkg", targets=TARGETS,
            options=hardtack.Options(weights="int8"),
        )  # fmt: skip
    assert str(caught.value) == (
        "the model reads 'kernel' of the linear layer 'inner' itself, and not as that layer does\n"
        "  To fix: name the layer in keep_weights"
    )
