"""Each change to torch's insides is still needed: what goes wrong without it, in every torch that is supported.

A failure here says that torch does something by itself now: the change goes, or `until` names the version.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.export.decomp_utils as decomp_utils
import torch.export.exported_program as exported_program
import torch.nn.functional as F
from torch import nn
from torch._decomp.decompositions_for_rng import PhiloxState
from torch._export import utils
from torch._higher_order_ops import triton_kernel_wrap
from torch.export import Dim, ExportedProgram

from hardtack.exporter.capture import torch_patches
from hardtack.exporter.capture.conditions import shape_env
from hardtack.exporter.capture.torch_patches.composite_ops import is_its_own
from hardtack.exporter.capture.torch_patches.dense_operands import dense_operands
from hardtack.exporter.capture.torch_patches.patch import SUPPORTED, Patch
from tests.export.checks import Called
from tests.support.torch_versions import TORCH

FILES = [
    importlib.import_module(f"{torch_patches.__name__}.{found.name}")
    for found in pkgutil.iter_modules(torch_patches.__path__)
    if found.name != "patch"
]
PATCHES: dict[str, Patch] = {patch.name: patch for file in FILES for patch in file.PATCHES}

ANY = Dim.AUTO


def _exported(function: Callable[..., Any], x: torch.Tensor, dims: tuple[int, ...]) -> ExportedProgram:
    """By torch.export alone."""
    shapes = ((dict.fromkeys(dims, ANY),),)
    with torch.no_grad():
        return torch.export.export(Called(function).eval(), (x,), dynamic_shapes=shapes, strict=False)


def _refuses(function: Callable[..., Any], x: torch.Tensor, dims: tuple[int, ...], other: torch.Tensor) -> bool:
    """True if a program that was exported for x does not take `other`, which the function itself takes."""
    function(other)
    program = _exported(function, x, dims).module()
    try:
        program(other)
    except AssertionError as error:
        return "Guard failed" in str(error)
    return False


def _conditions(ep: ExportedProgram) -> set[str]:
    env = shape_env(ep)
    return set() if env is None else {str(guard.expr) for guard in env.guards}


def _reshapes_of_parts() -> bool:
    return _refuses(lambda x: x[:, ::2].flatten(), torch.randn(3, 6), (0, 1), torch.randn(3, 5))


def _layouts_of_images() -> bool:
    def run(x: torch.Tensor) -> Any:
        return F.group_norm(x.permute(0, 3, 1, 2), 1)

    x = torch.randn(3, 4, 6, 8)
    without = _conditions(_exported(run, x, (0, 1, 2, 3)))
    with dense_operands(wanted=False):
        return bool(without - _conditions(_exported(run, x, (0, 1, 2, 3))))


def _float_arithmetic() -> bool:
    """0.1 * (0.7 * n) as one product with 0.07, or what that is rounded to."""
    ep = _exported(lambda x: x.sum() * (0.1 * (0.7 * x.shape[0])), torch.ones(50), (0,))
    values = [n.meta.get("val") for n in ep.graph.nodes]
    return any("0.06999" in str(v) or "0.07*" in str(v) for v in values if isinstance(v, torch.SymFloat))


def _lines_of_conditions() -> bool:
    env = shape_env(_exported(lambda x: x.reshape(2, -1), torch.randn(6, 3), (0,)))
    assert env is not None
    assert env.guards
    return all(__file__ not in str(guard.sloc) for guard in env.guards)


def _questions_about_layouts() -> bool:
    def run(x: torch.Tensor) -> Any:
        return x * 2 if x[:, : x.shape[1] // 2].is_contiguous() else x * 3

    env = shape_env(_exported(run, torch.randn(6, 4), (0, 1)))
    assert env is not None
    assert env.guards
    return all(__file__ not in str(guard.sloc) for guard in env.guards)


def _lines_of_ops() -> bool:
    def run(x: torch.Tensor) -> Any:
        return x.relu()

    (relu,) = (n for n in _exported(run, torch.randn(6), (0,)).graph.nodes if n.op == "call_function")
    return "return x.relu()" not in relu.meta["stack_trace"]


def _comparisons_of_sizes() -> bool:
    ep = _exported(lambda x: x * 2 if x.shape[0] > 1 else x * 3, torch.ones(4), (0,))
    return bool(ep.module()(torch.ones(1))[0] == 2)


def _recurrences() -> bool:
    return all(
        _refuses(recurrence, torch.randn(5, 2, 3), (0,), torch.randn(7, 2, 3))
        for recurrence in (nn.LSTM(3, 4), nn.GRU(3, 4), nn.RNN(3, 4), nn.RNN(3, 4, nonlinearity="relu"))
    )


def _pools_of_rows() -> bool:
    return _refuses(lambda x: F.max_pool1d(x, 2), torch.randn(1, 2, 8), (2,), torch.randn(1, 2, 11))


def _products_of_matrices() -> bool:
    weight = torch.randn(3, 4)
    return _refuses(lambda x: x[:, ::2] @ weight, torch.randn(2, 6, 3), (0, 1), torch.randn(2, 5, 3))


def _norms_over_the_last_dimension() -> bool:
    ep = _exported(lambda x: torch.linalg.vector_norm(x, dim=-1), torch.randn(4, 1), (0,))
    return ep.graph.output_node().args[0][0].meta["val"].dim() == 2


def _sizes_of_windows() -> bool:
    return _refuses(lambda x: F.max_pool2d(x, 2), torch.randn(1, 2, 14, 14), (2, 3), torch.randn(1, 2, 13, 13))


def _composite_ops_of_libraries() -> bool:
    """Whether one program asks the dispatcher many times for the same ops."""
    ep = _exported(lambda x: x + 1, torch.ones(3), ())
    with mock.patch.object(utils, "_materialize_cpp_cia_ops", wraps=utils._materialize_cpp_cia_ops) as asked:
        ep.run_decompositions()
    return asked.call_count > 2


def _composite_ops_as_they_are() -> bool:
    """Whether one program gives most composite ops their own kernels as decompositions."""
    ep = _exported(lambda x: x + 1, torch.ones(3), ())
    override = exported_program._override_composite_implicit_decomp
    with mock.patch.object(exported_program, override.__name__, wraps=override) as asked:
        ep.run_decompositions()
    (table,) = asked.call_args.args
    return sum(is_its_own(op, f) for op, f in table.items()) > len(table) // 2


def _composite_ops_that_there_are() -> bool:
    """Whether one program has them collected more than once, and asks of ops that were collected."""
    ep = _exported(lambda x: x + 1, torch.ones(3), ())
    collect, is_composite = exported_program._collect_all_valid_cia_ops, exported_program._is_preservable_cia_op
    with (
        mock.patch.object(decomp_utils, collect.__name__, wraps=collect) as first,
        mock.patch.object(exported_program, collect.__name__, wraps=collect) as second,
        mock.patch.object(exported_program, is_composite.__name__, wraps=is_composite) as asked,
    ):
        ep.run_decompositions()
    return first.call_count + second.call_count > 1 and asked.call_count > 100


def _states_of_random_numbers() -> bool:
    """Whether tracing makes them anew."""
    ep = _exported(lambda x: x + 1, torch.ones(3), ())
    reset = PhiloxState.reset
    with mock.patch.object(PhiloxState, "reset", autospec=True, side_effect=reset) as made:
        ep.run_decompositions()
    return made.call_count > 1


def _bools_beside_sizes() -> bool:
    try:
        _exported(lambda x: x * (x.shape[0] // True), torch.ones(3), (0,))
    except TypeError as error:
        return "BooleanAtom not allowed" in str(error)
    return False


class _Masked(torch.Tensor):
    """A tensor of a class of its own, which is made a number where it is read, as torchao's are."""

    @staticmethod
    def __new__(cls, codes: torch.Tensor) -> _Masked:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, codes: torch.Tensor) -> None:
        self.codes = codes

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], *_: Any) -> _Masked:
        return cls(inner["codes"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].codes)

        def numbers(x: Any) -> Any:
            if not isinstance(x, _Masked):
                return x
            made = x.codes.float()
            made[x.codes == 3] = 0.5
            return made

        return func(*map(numbers, args), **(kwargs or {}))


def _constants_of_decompositions() -> bool:
    layer = torch.nn.Linear(4, 3, bias=False)
    layer.weight = torch.nn.Parameter(_Masked(torch.randint(0, 5, (3, 4)).to(torch.uint8)), requires_grad=False)
    ep = torch.export.export(torch.nn.Sequential(layer).eval(), (torch.randn(2, 4),))
    try:
        ep.run_decompositions({})
    except Exception as error:  # torch's own classes differ between versions
        return "is not in the constants dictionary" in str(error)
    return False


def _selections_by_larger_masks() -> bool:
    class Select(torch.nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return x.masked_select(mask)

    x, mask = torch.randn(4), torch.ones(3, 4, dtype=torch.bool)
    try:
        torch.export.export(Select(), (x, mask)).module()(x, mask)
    except RuntimeError:
        return True
    return False


def _calls_of_triton_kernels() -> bool:
    """torch's analysis asks a GPU what it is, and without one takes what a kernel reads for written. Triton itself is
    left alone here: other tests interpret it (tests/triton/test_user_kernels.py has what comes of the change)."""
    return "active.get_current_target()" in inspect.getsource(triton_kernel_wrap.generate_ttir)


GOES_WRONG: dict[str, Callable[[], bool]] = {
    "reshapes of parts": _reshapes_of_parts,
    "layouts of images": _layouts_of_images,
    "bools beside sizes": _bools_beside_sizes,
    "composite ops of libraries": _composite_ops_of_libraries,
    "composite ops as they are": _composite_ops_as_they_are,
    "composite ops that there are": _composite_ops_that_there_are,
    "states of random numbers": _states_of_random_numbers,
    "float arithmetic": _float_arithmetic,
    "lines of conditions": _lines_of_conditions,
    "questions about layouts": _questions_about_layouts,
    "lines of ops": _lines_of_ops,
    "comparisons of sizes": _comparisons_of_sizes,
    "recurrences": _recurrences,
    "pools of rows": _pools_of_rows,
    "products of matrices": _products_of_matrices,
    "norms over the last dimension": _norms_over_the_last_dimension,
    "sizes of windows": _sizes_of_windows,
    "constants of decompositions": _constants_of_decompositions,
    "selections by larger masks": _selections_by_larger_masks,
    "calls of Triton kernels": _calls_of_triton_kernels,
}
"""By name of a change: whether torch alone goes wrong."""


@pytest.mark.parametrize("name", PATCHES)
def test_torch_still_goes_wrong_without(name: str) -> None:
    patch = PATCHES[name]
    if patch.is_needed(TORCH):
        assert GOES_WRONG[name](), f"torch {torch.__version__} does without {patch.replaces}: leave the change out"
    else:
        assert not GOES_WRONG[name](), f"torch {torch.__version__} needs {patch.replaces}, too: mend `until`"


@pytest.mark.parametrize("name", PATCHES)
def test_some_torch_that_is_supported_needs(name: str) -> None:
    patch = PATCHES[name]
    assert patch.is_needed(SUPPORTED[0]), f"no torch from {SUPPORTED[0]} on needs it: delete the change and its test"
    assert GOES_WRONG.keys() == PATCHES.keys()


def test_the_supported_versions_are_those_of_the_package() -> None:
    (major, oldest), (_, newest) = SUPPORTED
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"torch>={major}.{oldest},<{major}.{newest + 1}"' in pyproject
    assert SUPPORTED[0] <= TORCH <= SUPPORTED[1]
