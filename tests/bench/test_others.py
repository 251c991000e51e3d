"""The models that no heuristic was made on: they build, run, and have no product or convolution of the own models."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from bench import __main__ as command
from bench import models, shares

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("transformers", "timm"))), reason="transformers or timm is not there"
)
_PRODUCTS = {"mm": "mm", "addmm": "mm", "bmm": "bmm", "baddbmm": "bmm", "convolution": "conv"}


class _Products(TorchDispatchMode):
    """found: every product, convolution and attention that runs, with the sizes of its operands, less the bias's."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        kind = "attention" if "scaled_dot_product" in name else _PRODUCTS.get(name)
        if kind is not None:
            sizes = (tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
            self.found.add((kind, *(s for s in sizes if len(s) > 1)))
        return func(*args, **(kwargs or {}))


def _products(name: str) -> set[tuple[Any, ...]]:
    """Of the model called `name`, of which nothing is computed."""
    case = models.build(name)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, _Products() as products:
        case.module(*(fake.from_tensor(a) for a in case.args))
    return products.found


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Other tests run at once; more threads than cores wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def own() -> set[tuple[Any, ...]]:
    """What the architectures among the own models compute; the trained ones are of the same families."""
    return set().union(*(_products(name) for name in models.ARCHITECTURES))


def test_there_are_about_as_many_as_architectures() -> None:
    assert len(models.other_names()) >= 18
    assert not set(models.other_names()) & set(models.names())
    assert set(models.names()) | set(models.other_names()) >= shares.DENSE | shares.STREAMED
    for bound in (shares.DENSE, shares.STREAMED):
        assert bound & set(models.names())
        assert bound & set(models.other_names())


@pytest.mark.sweep(share=3)
@pytest.mark.parametrize("name", models.other_names())
def test_no_size_is_one_of_the_own_models(name: str, own: set[tuple[Any, ...]]) -> None:
    found = _products(name)
    assert found
    assert not found & own


def test_the_command_names_its_sets() -> None:
    listed = CliRunner().invoke(command.main, ["--list"]).stdout.split()
    others = CliRunner().invoke(command.main, ["--others", "--list"]).stdout.split()
    assert (tuple(listed), tuple(others)) == (models.names(), models.other_names())
    wrong = CliRunner().invoke(command.main, ["--others", "--models", "mlp_b1"])
    assert wrong.exit_code == 2
    assert "'mlp_b1' is not one of mlp_900_b5, " in wrong.stderr
