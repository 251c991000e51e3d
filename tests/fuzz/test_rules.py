"""Each rewrite and each kind of fusion with the first of its programs; ./dev fuzz rules has them all."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest

from hardtack.exporter.rewrite.rules import RULES
from tests.fuzz.cases import case
from tests.fuzz.program import source
from tests.fuzz.rule_fusions import FUSIONS, Fusion
from tests.fuzz.rule_rewrites import REWRITES, Rewrite
from tests.fuzz.rules import checking_rewrite, try_rule


@pytest.mark.parametrize("rule", REWRITES, ids=lambda r: r.name)
def test_a_rewrite_changes_what_it_should_and_no_result(rule: Rewrite) -> None:
    tried = try_rule(rule, 2)
    assert tried.triggered
    assert not tried.problems, str(tried)


@pytest.mark.parametrize("fusion", FUSIONS, ids=lambda f: f.name)
def test_a_fusion_changes_what_it_should_and_no_result(fusion: Fusion) -> None:
    tried = try_rule(fusion, 1)
    assert tried.triggered
    assert not tried.problems, str(tried)


def test_every_rewrite_has_programs() -> None:
    assert {r.name for r in REWRITES} == {r.name for r in RULES}


def test_a_rewrite_must_exist() -> None:
    with pytest.raises(ValueError, match="there is no rewrite none; there are: remove_dead, common_subexpressions"):
        checking_rewrite(Rewrite("none", "", ""))


def test_a_case_is_a_line() -> None:
    p = case("x0[5,n]f16 p0[3]i64<5 : x0[p0] * 2; !v0.relu_(); v0 + 1 -> v0, v1")
    assert source(p).endswith(
        """        self.p0 = nn.Buffer(index((3,), torch.int64, 2, 0, 5))

    def forward(self, x0):
        v0 = x0[self.p0] * 2
        v0.relu_()
        v1 = v0 + 1
        return (v0, v1,)
"""
    )
    assert p.dynamic == "auto"
    assert p.inputs[0].shape == (5, "n")
