"""The conversion table: which function serves an op, and that it is told which op it serves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hardtack.exporter.convert.table as table
from hardtack.exporter.convert.table import CONVERTERS, converts

EXPORT = Path(__file__).resolve().parents[2] / "export"


def test_one_function_is_told_which_of_its_ops_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "CONVERTERS", found := {})

    @converts("aten.lower.default", "aten.lower.Scalar", kind="min")
    @converts("aten.upper.default", kind="max")
    def limit(b: object, x: str, *, kind: str) -> str:
        return f"{kind}({x})"

    assert {name: convert(None, "x") for name, convert in found.items()} == {
        "aten.upper.default": "max(x)",
        "aten.lower.default": "min(x)",
        "aten.lower.Scalar": "min(x)",
    }
    assert limit(None, "x", kind="any") == "any(x)"


CHOICE = EXPORT / "precision" / "choice.py"
"""Takes products in 16 bits by the op that asked for them, as autocast does: a user's linear, not the steps of a
Fourier transform."""


@pytest.mark.parametrize(
    "path", sorted({*EXPORT.rglob("*.py")} - {CHOICE}), ids=lambda p: p.relative_to(EXPORT).with_suffix("").as_posix()
)
def test_provenance_decides_nothing(path: Path) -> None:
    """Where an op comes from is text for people: a converter that reads it would do something else when another calls
    it.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    in_texts = {id(node) for text in texts for node in ast.walk(text)}
    read = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n).endswith("origin.op")]
    assert [ast.unparse(n) for n in read if id(n) not in in_texts] == []


def test_every_op_has_one_function() -> None:
    with pytest.raises(AssertionError, match=r"aten\.relu\.default"):
        converts("aten.relu.default")(CONVERTERS["aten.relu.default"])
