"""Kernels that walk a row several times ask for the next row, and for what they will write: those and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.codegen.graphs import compiled

Function = Callable[..., torch.Tensor]
REQUEST = re.compile(r"__builtin_prefetch\((\w+) \+ (.+)\);")
STORE = re.compile(r"ht::st\((\w+) \+ (.+), n\w+, cnt\)")
LOAD = re.compile(r"ht::ld\((\w+) \+ (.+), cnt\)")


class Called(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def _source(function: Function, *args: torch.Tensor, dynamic: Any = None) -> str:
    """Of all kernels."""
    shapes = None if dynamic is None else (dynamic,)
    return "\n".join(compiled(Called(function), *args, dynamic=shapes).sources.values())


def _places(pattern: re.Pattern[str], source: str) -> list[tuple[str, str]]:
    """(pointer, offset) of each place that the pattern finds in memory."""
    return [(pointer, offset) for pointer, offset in pattern.findall(source) if pointer.startswith("b")]


def _value(offset: str, point: int, walked: int, **sizes: int) -> int:
    """The offset at a point of the outer axis and of the walk, whatever that is named."""
    names = dict.fromkeys(re.findall(r"[a-z]\w*", offset), walked) | {"o0": point} | sizes
    return int(eval(offset.replace("/", "//"), {}, names))


def test_a_softmax_asks_for_what_its_first_walk_reads_at_the_next_point() -> None:
    source = _source(lambda x: torch.softmax(x, -1), torch.randn(40, 1000))
    (asked, request), _ = _places(REQUEST, source)
    first, load = _places(LOAD, source)[0]
    assert asked == first
    for point, walked in ((0, 0), (0, 16), (7, 984), (39, 500)):
        assert _value(request, point, walked) == _value(load, point + 1, walked)


def test_a_softmax_asks_for_what_its_last_walk_writes_at_this_point() -> None:
    source = _source(lambda x: torch.softmax(x, -1), torch.randn(40, 1000))
    _, (asked, request) = _places(REQUEST, source)
    written, store = _places(STORE, source)[-1]
    assert asked == written
    for point, walked in ((0, 0), (7, 984), (39, 500)):
        assert _value(request, point, walked) == _value(store, point, walked)


def test_it_asks_while_it_computes_exponentials() -> None:
    source = _source(lambda x: torch.softmax(x, -1), torch.randn(40, 1000))
    order = [source.index(word) for word in ("vmax", "__builtin_prefetch", "vexp", "div_uniform")]
    assert order == sorted(order)


def test_of_two_walks_the_last_asks_for_the_next_row_alone() -> None:
    source = _source(lambda x: F.rms_norm(x, (1000,)), torch.randn(40, 1000))
    ((asked, _),) = _places(REQUEST, source)
    assert asked == _places(LOAD, source)[0][0]
    assert source.index("hsum") < source.index("__builtin_prefetch")


def test_a_norm_of_a_sum_asks_for_both_addends() -> None:
    x, y = torch.randn(40, 1000), torch.randn(40, 1000)
    source = _source(lambda a, b: F.layer_norm(a + b, (1000,)), x, y)
    written = _places(STORE, source)[-1][0]
    assert sorted(pointer for pointer, _ in _places(REQUEST, source)) == ["b0", "b1", written]


def test_rows_of_a_size_that_is_known_at_run_time() -> None:
    rows = Dim("rows", min=2, max=500)
    source = _source(lambda x: torch.softmax(x, -1), torch.randn(40, 1000), dynamic={0: rows})
    assert len(_places(REQUEST, source)) == 2
    columns = Dim("columns", min=2, max=4000)
    source = _source(lambda x: torch.softmax(x, -1), torch.randn(40, 1000), dynamic={1: columns})
    (_, request), _ = _places(REQUEST, source)
    _, load = _places(LOAD, source)[0]
    (size,) = set(re.findall(r"\bs\w+", request))
    assert _value(request, 3, 32, **{size: 700}) == _value(load, 4, 32, **{size: 700}) == 4 * 700 + 32


@pytest.mark.parametrize(
    ("function", "x"),
    [
        pytest.param(lambda x: torch.softmax(x, -1), torch.randn(40, 200), id="short rows: the next is in the page"),
        pytest.param(lambda x: torch.softmax(x, -1), torch.randn(4, 20000), id="rows that fill the cache"),
        pytest.param(lambda x: torch.softmax(x.T, -1), torch.randn(1000, 40), id="columns"),
        pytest.param(lambda x: torch.softmax(x, 0), torch.randn(300, 40), id="sums across rows"),
        pytest.param(lambda x: x.sum(-1), torch.randn(40, 1000), id="one walk"),
        pytest.param(lambda x: torch.softmax(x, -1), torch.randn(1000), id="one row"),
    ],
)
def test_others_ask_for_nothing(function: Function, x: torch.Tensor) -> None:
    assert "__builtin_prefetch" not in _source(function, x)


def test_a_row_with_a_dimension_of_any_size_is_not_asked_for() -> None:
    assert "__builtin_prefetch" not in _source(
        lambda x: torch.softmax(x, -1), torch.randn(40, 1000), dynamic={1: Dim("columns")}
    )


def test_pointers_are_the_tasks_own() -> None:
    """Those around it would be read again behind each store."""
    source = _source(lambda x: torch.softmax(x * 2, -1), torch.randn(40, 1000))
    assert source.index("ht::ranges(") < source.index("args->buffers[0]")
    assert source.count("args->buffers[0]") == 1
