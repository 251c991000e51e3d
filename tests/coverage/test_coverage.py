"""A fixed part of the suites, and in sweeps torch's own ops, too: each case does what docs/coverage.md says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.coverage import opinfo
from tests.coverage.__main__ import PAGE, chosen, verdicts
from tests.coverage.cases import Case, Verdict
from tests.coverage.report import listed, page, reason

PARTS, MODEL_PARTS = 10, 40
KEPT = 33
"""The part of the models that runs in every test: two of words, one of pictures, two of timm."""


@pytest.mark.sweep(share=PARTS)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_page_says_what_is_so(part: int) -> None:
    assert not unlike_the_page(chosen(("features", "exportdb"), (), "")[part::PARTS])


@pytest.mark.parametrize(
    "part", [pytest.param(k, marks=() if k == KEPT else pytest.mark.sweep(only=True)) for k in range(MODEL_PARTS)]
)
def test_the_page_says_what_is_so_of_models(part: int) -> None:
    assert not unlike_the_page(chosen(("transformers", "timm"), (), "")[part::MODEL_PARTS])


@pytest.mark.sweep(only=True)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_page_says_what_is_so_of_torchs_ops(part: int) -> None:
    """Entry by entry, all dtypes of one together."""
    cases = list(opinfo.cases())
    names = {*list(dict.fromkeys(c.name for c in cases))[part::PARTS]}
    assert not unlike_the_page([c for c in cases if c.name in names])


def unlike_the_page(cases: Sequence[Case]) -> list[Verdict]:
    """Verdicts that are not on it: python -m tests.coverage --write makes it anew."""
    expected = listed(PAGE.read_text())
    found = verdicts(cases, 1, lambda v, done: None)
    return [v for v in found if v.what != expected.get((v.suite, v.name), "equal")]


def test_every_case_has_a_name_of_its_own() -> None:
    names = [(c.suite, c.name) for c in chosen(("features", "exportdb"), (), "")]
    assert len(set(names)) == len(names)


def test_a_page_is_read_as_it_is_written() -> None:
    found = [
        Verdict("features", "a", "equal"),
        Verdict(
            "features", "b", "refused", "1 op of this model cannot be exported: aten.x at /home/me/m.py:3 y = x(y)"
        ),
        Verdict(
            "exportdb", "b", "refused", "1 op of this model cannot be exported: aten.x at /home/me/m.py:3 y = x(y)"
        ),
        Verdict("opinfo float16", "c.d", "different", "result 0: torch.int8 [2], eager gives torch.int64 [2]"),
    ]
    text = page(found, "a command", "a place")
    assert "/home" not in text
    assert "| features | 2 | 2 | 1 | 50.0% | 1 | 0 | 0 |" in text
    assert listed(text) == {(v.suite, v.name): v.what for v in found if v.what != "equal"}


def test_reasons_have_no_folders() -> None:
    assert reason("no file /a/b.py | `x`") == "no file b.py / 'x'"
    assert len(reason("x" * 500)) == 160
