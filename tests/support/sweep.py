"""Products of parameters, thinned: `./dev test` runs a fixed part of each, `./dev test --sweep` runs all.

`@pytest.mark.sweep(over="target")` keeps, for every combination of the other parameters, one value of `target` (or of
several parameters: `over=("target", "dtype")`): no row goes untested, and over the rows every value has its turn.
`@pytest.mark.sweep(share=4)` keeps a quarter of the combinations. `@pytest.mark.sweep(only=True)`, of a test or of one
value of a parameter, leaves it to sweeps. Which ones run depends on the test's name and parameters alone, so that a
failure is there again on the next run and on any machine.

`@settings(max_examples=num_examples(40))` runs half of as many random examples, and a sweep all 40.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

runs_all = False
"""Whether this is a sweep: tests/conftest.py says so before any test is read."""


def num_examples(in_a_sweep: int) -> int:
    """How many random examples a test has that has so many in a sweep."""
    return in_a_sweep if runs_all else (in_a_sweep + 1) // 2


def thin(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """(those that run, those that only a sweep runs), each in the order given."""
    chosen: set[pytest.Item] = set()
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        marks = list(item.iter_markers("sweep"))
        if any(map(_only, marks)):
            continue
        mark = marks[0] if marks else None
        if mark is None or ((share := _share(mark)) and _number(item.nodeid) % share == 0):
            chosen.add(item)
        elif "over" in mark.kwargs:
            groups[_others(item, _names(mark))].append(item)
    for group in groups.values():  # not by the values, of which a function's has its address
        chosen.add(group[_number(group[0].nodeid) % len(group)])
    return [item for item in items if item in chosen], [item for item in items if item not in chosen]


def _only(mark: pytest.Mark) -> bool:
    """Whether what it marks runs in sweeps alone."""
    return mark.kwargs == {"only": True}


def _share(mark: pytest.Mark) -> int:
    """One of how many combinations runs; 0 for a mark that thins over parameters."""
    if set(mark.kwargs) not in ({"share"}, {"over"}) or mark.args:
        raise pytest.UsageError(f"a sweep mark takes share=N, over=NAMES or only=True, not {mark.args} {mark.kwargs}")
    return int(mark.kwargs.get("share", 0))


def _names(mark: pytest.Mark) -> Iterable[str]:
    over: str | Sequence[str] = mark.kwargs["over"]
    return (over,) if isinstance(over, str) else over


def _others(item: pytest.Item, over: Iterable[str]) -> str:
    """What the combinations that differ in `over` alone have in common."""
    parameters: dict[str, object] = dict(item.callspec.params) if isinstance(item, pytest.Function) else {}
    for name in over:
        if name not in parameters:
            raise pytest.UsageError(f"{item.nodeid} is to be thinned over {name!r}, which is none of its parameters")
        del parameters[name]
    return f"{item.nodeid.split('[')[0]} {sorted((name, str(value)) for name, value in parameters.items())}"


def _number(text: str) -> int:
    return zlib.crc32(text.encode())
