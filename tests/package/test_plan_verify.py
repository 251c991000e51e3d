"""What the bad bundles do not reach: loops, branches, lifetimes, expressions with open bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardtack.codegen.ir import expr, expr_walk
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.plan import Copy, Fill, If, Instr, Plan, Value, While, to_json
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import plan_read
from hardtack.codegen.package.content import Tree
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.manifest import EntrySpec, Manifest, TargetSpec, TensorSpec
from hardtack.codegen.package.plan_verify import Proof, verify

ONE = const(1)
TREE: Tree = {"kind": "none"}


def value(name: str, kind: str, at: int | Expr, dtype: DType = DType.F32, n: int = 16) -> Value:
    shape = () if dtype is DType.BOOL else (const(n),)
    return Value(name, dtype, shape, (ONE,) * len(shape), (kind, at))  # type: ignore[arg-type]


def plan(body: tuple[Instr, ...], arena: dict[str, int], nbytes: int = 4096) -> Plan:
    """x -> y with f32[16] values of the arena at the offsets given, and a bool `flag`."""
    placed = tuple(value(name, "arena", const(at)) for name, at in arena.items())
    values = (value("x", "input", 0), value("y", "output", 0), value("flag", "arena", const(2048), DType.BOOL), *placed)
    return Plan("f", "cpu:t", (), (), values, ("x",), ("y",), (), body, const(nbytes))


def prove(p: Plan) -> Proof:
    spec = TensorSpec("x", DType.F32, (16,), (1,))
    entry = EntrySpec("f", (), (spec,), (spec,), TREE, TREE, {})
    manifest = Manifest(1, {}, {}, (TargetSpec("cpu:t", "cpu", (), None),), (entry,), (), (), (), ())
    return verify(plan_read.parse(to_json(p), "plan"), manifest, entry, "cpu:t")


def refusal(p: Plan) -> str:
    with pytest.raises(LoadError) as caught:
        prove(p)
    return str(caught.value)


def test_places_may_be_used_again_once_a_value_is_dead() -> None:
    prove(plan((Copy("x", "a"), Copy("a", "b"), Copy("b", "c"), Copy("c", "y")), {"a": 0, "b": 64, "c": 0}))


def test_places_may_not_be_used_again_too_soon() -> None:
    body = (Copy("x", "a"), Copy("x", "b"), Copy("a", "y"))
    assert (
        refusal(plan(body, {"a": 0, "b": 0})) == "plan: values 'a' and 'b' are alive together and overlap in the arena"
    )


def test_source_and_destination_of_one_instruction_are_alive_together() -> None:
    body = (Copy("x", "a"), Copy("a", "b"), Copy("b", "y"))
    assert "'a' and 'b' are alive together" in refusal(plan(body, {"a": 0, "b": 0}))


def test_a_value_from_before_a_loop_lives_until_its_end() -> None:
    loop = While((Fill("flag", 0),), "flag", (Copy("a", "b"), Copy("x", "c"), Copy("c", "b")))
    body = (Copy("x", "a"), loop, Copy("x", "y"))
    prove(plan(body, {"a": 0, "b": 64, "c": 128}))
    # c is written after the last use of a in the body, but the next round reads a again
    assert "'a' and 'c' are alive together" in refusal(plan(body, {"a": 0, "b": 64, "c": 0}))


def test_values_inside_a_loop_may_share_a_place() -> None:
    loop = While((Fill("flag", 0),), "flag", (Copy("x", "b"), Copy("b", "a"), Copy("x", "c"), Copy("c", "a")))
    prove(plan((Copy("x", "a"), loop, Copy("a", "y")), {"a": 0, "b": 64, "c": 64}))


def test_what_a_loop_body_defines_is_not_defined_after_it() -> None:
    loop = While((Fill("flag", 0),), "flag", (Copy("x", "y"),))
    assert refusal(plan((loop,), {})) == "plan: output 'y' is not defined at the end"


def test_what_a_loop_test_defines_is_defined_after_it() -> None:
    prove(plan((While((Fill("flag", 0), Copy("x", "y")), "flag", ()),), {}))


def test_a_loop_test_may_not_use_what_only_the_body_defines() -> None:
    loop = While((Fill("flag", 0), Copy("a", "b")), "flag", (Copy("x", "a"),))
    found = refusal(plan((loop, Copy("x", "y")), {"a": 0, "b": 64}))
    assert found == "plan: body[0].cond_body[1]: value 'a' is used before it is defined"


def test_both_branches_define() -> None:
    branch = If("flag", (Copy("x", "y"),), (Fill("y", 0),))
    prove(plan((Fill("flag", 1), branch), {}))


def test_nesting_has_a_limit() -> None:
    body: tuple[Instr, ...] = (Copy("x", "y"),)
    for _ in range(20):
        body = (If("flag", body, body if len(body) > 1 else ()),)
    assert "deep" in refusal(plan((Fill("flag", 1), *body), {}))


SYMS = (sym("a", 0, 9), sym("b", 1, None), sym("c", 3, 3))


@st.composite
def expressions(draw: st.DrawFn) -> Expr:
    pool: list[Expr] = [*SYMS, *(const(n) for n in (-3, 0, 1, 2, 7))]
    for _ in range(draw(st.integers(1, 6))):
        one, two = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        divisor = draw(st.sampled_from([SYMS[1], SYMS[2], const(2), const(5)]))
        made = draw(
            st.sampled_from(
                [one + two, one * two, one // divisor, one % divisor, expr.minimum(one, two), expr.maximum(one, two)]
            )
        )
        pool.append(made)
    return pool[-1]


@given(expressions(), st.integers(0, 9), st.integers(1, 40))
def test_bounds_hold_whatever_the_symbols_are(e: Expr, a: int, b: int) -> None:
    from hardtack.codegen.ir.plan import PlanSym
    from hardtack.codegen.package.plan_verify import _ranges

    values = (Value("x", DType.F32, SYMS, (ONE,) * 3, ("input", 0)),)
    syms = tuple(PlanSym(s, 0, d) for d, s in enumerate(SYMS))
    raw = plan_read.parse(to_json(Plan("f", "t", syms, (), values, ("x",), (), (), (), e)), "plan")
    lo, hi = _ranges(raw)[raw.arena]
    found = expr_walk.evaluate(e, dict(zip(("a", "b", "c"), (a, b, 3), strict=True)))
    assert lo is None or lo <= found
    assert hi is None or found <= hi
