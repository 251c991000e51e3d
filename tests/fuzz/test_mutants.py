"""Mutants follow the code: each changes words that stand in its file once."""

from __future__ import annotations

import ast

import pytest

from tests.fuzz.mutants import MUTANTS, Mutant, changed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_mutant_changes_what_stands_there(mutant: Mutant) -> None:
    text = changed(mutant)
    if mutant.file.endswith(".py"):
        ast.parse(text)


def test_words_that_are_gone_are_noticed() -> None:
    lost = Mutant("lost", "", "cpu", "codegen/fuse.py", (("no such words", ""),))
    with pytest.raises(ValueError, match=r"codegen/fuse.py has .no such words. 0 times, not once"):
        changed(lost)
