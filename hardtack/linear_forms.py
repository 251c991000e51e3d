"""Modules of any class that are linear layers by what they compute, and their copies as layers of torch's own.

A forward that moves numbers, adds and multiplies them is a polynomial in what it is given and in its parameters. Two
polynomials that agree at numbers drawn at random are one (Schwartz, Zippel): so a module is run once on random inputs
with random parameters, and compared with nn.Linear's formula.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from hardtack.exporter import InputSpecError
from hardtack.model_copies import copied

_LEADING = ((3,), (2, 3), (1,), (2, 1, 3))
"""The sizes in front of the last dimension that a module is tried with: Python may choose by them."""
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-5, torch.float16: 2**-8}
"""Of the largest result: sums in another order, and a result that is rounded once more before the bias is added."""
_MOVES = ("view", "_unsafe_view", "reshape", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", "alias",
          "clone", "contiguous", "detach", "slice", "select")  # fmt: skip
_POLYNOMIALS = frozenset((*_MOVES, "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "linear", "matmul",
                          "add", "sub", "mul", "sum"))  # fmt: skip
"""Of aten: what moves, adds and multiplies."""


@dataclass(frozen=True)
class LinearForm:
    """How a module has what nn.Linear has: the names of its parameters, the bias None where it has none. is_transposed:
    its weight is (inputs, outputs)."""

    weight: str = "weight"
    bias: str | None = "bias"
    is_transposed: bool = False


OF_TORCH = LinearForm()
"""nn.Linear's own."""


def linear_form(module: nn.Module) -> LinearForm | None:
    """How a module without modules and buffers in it is a linear layer whose forward takes one tensor; None for
    another one. It is run, on a copy."""
    if not _may_be(module):
        return None
    weight, bias = _parameters(module)
    taken = next((f for f in (True, False) if _computes(module, LinearForm(weight, bias, f))), None)
    return None if taken is None else LinearForm(weight, bias, taken)


def as_linear(module: nn.Module, form: LinearForm, said: str) -> nn.Linear:
    """Gives a module, a copy, an nn.Linear with its parameters, which its forward calls from now on. Whoever reads the
    weight where it was is told so: it is not what it was. said: the layer, in words."""
    weight = module._parameters.pop(form.weight)
    assert weight is not None
    bias = module._parameters[form.bias] if form.bias is not None else None
    rows = weight.detach().t().contiguous() if form.is_transposed else weight.detach()
    linear = nn.Linear(rows.shape[1], rows.shape[0], bias=bias is not None, device="meta")
    linear.weight, linear.bias = nn.Parameter(rows, requires_grad=False), bias  # type: ignore[assignment]
    linear.train(module.training)
    module.as_linear = linear
    cls = type(module)
    module.__dict__.pop("forward", None)
    changed = {"forward": _forward, "__module__": cls.__module__, form.weight: _gone(form.weight, said)}
    module.__class__ = type(cls.__name__, (cls,), changed)
    return linear


def _forward(self: Any, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
    (given,) = (*args, *kwargs.values())
    made: torch.Tensor = self.as_linear(given)
    return made


def _gone(name: str, said: str) -> property:
    """An attribute that says why it is not there."""

    def read(self: Any) -> torch.Tensor:
        raise InputSpecError(
            f"the model reads {name!r} of {said} itself, and not as that layer does",
            fix="name the layer in keep_weights",
        )

    return property(read)


def _may_be(module: nn.Module) -> bool:
    """True for parameters as a linear layer has them, and a forward that takes one tensor."""
    own = [p for p in module._parameters.values() if p is not None]
    if (
        isinstance(module, nn.Embedding)
        or any(True for _ in module.children())
        or len(module._buffers)
        or hasattr(module, "as_linear")
    ):
        return False
    if any(is_lazy(p) or type(p) is not nn.Parameter or p.dtype not in _TOLERANCE for p in own):
        return False
    if sorted(p.dim() for p in own) not in ([2], [1, 2]) or not all(p.numel() for p in own):
        return False
    try:
        taken = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return False
    return len(taken) == 1 and taken[0].kind in (taken[0].POSITIONAL_ONLY, taken[0].POSITIONAL_OR_KEYWORD)


def _parameters(module: nn.Module) -> tuple[str, str | None]:
    """The names of the one with two dimensions, and of the one with one."""
    named = {p.dim(): name for name, p in module._parameters.items() if p is not None}
    return named[2], named.get(1)


def _computes(module: nn.Module, form: LinearForm) -> bool:
    """True where the module is nn.Linear's formula of this form, for random parameters and inputs."""
    made: Any = copied({"": module})[""]
    g = torch.Generator().manual_seed(0)
    for name, p in module._parameters.items():
        if p is not None:
            made._parameters[name] = nn.Parameter(_drawn(p.shape, p, g), requires_grad=False)
    weight = made._parameters[form.weight]
    rows = weight.t() if form.is_transposed else weight
    bias = None if form.bias is None else made._parameters[form.bias]
    if bias is not None and bias.shape != rows.shape[:1]:
        return False
    for leading in _LEADING:
        x = _drawn((*leading, rows.shape[1]), rows, g)
        watch = _Watch()
        try:
            with torch.no_grad(), watch:
                got = made.forward(x.clone())
        except Exception:
            return False  # a module that cannot be run so is something else
        wanted = F.linear(x, rows, bias)
        if not watch.is_polynomial or not isinstance(got, torch.Tensor) or not _agree(got, wanted):
            return False
    return True


def _drawn(shape: tuple[int, ...], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator).to(like)


def _agree(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return False
    off = (got.double() - wanted.double()).abs().max()
    return bool(off <= _TOLERANCE[wanted.dtype] * wanted.double().abs().max())


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whether all that runs moves, adds and multiplies."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_polynomial = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.is_polynomial &= func.namespace == "aten" and func.overloadpacket.__name__ in _POLYNOMIALS
        return func(*args, **(kwargs or {}))
