"""Tuning without a device: keys, tables, what is legal, which level chooses, and that the plan chosen is built."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import A100, CUDA_ARCHITECTURES, GPUS, H200, gpu_of
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.codegen.targets import TargetError, backends_for
from hardtack.codegen.tune import choice, table
from hardtack.codegen.tune.attention_plan import AttentionShape
from hardtack.codegen.tune.candidates import MOST, Shape, candidates, plan_by_cost, problem
from hardtack.codegen.tune.choice import KIND, Tuning, key_of, plan_fields, shape_of, shapes_in_tables, tuning_for
from hardtack.codegen.tune.conv_plan import ConvShape
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape
from hardtack.codegen.tune.table import TableEntry, Tables, TuningTable, parse_table, read_table
from hardtack.codegen.tune.trial import make_trial

BF16 = DType.BF16
GEMM = GemmShape(1, 256, 512, 1024, BF16, depth_first=True, streamable=True)
KEY = "gemm batch=1 m=256 n=512 k=1024 dtype=bf16 depth_first=1 one_row=0 streamable=1 splittable=1"
OTHER = GemmPlan("tile", 32, 64, 64, 4, 3, 2, "")

DTYPES = st.sampled_from([DType.F16, BF16, DType.F32, DType.F64])
SIZES = st.one_of(st.integers(1, 300), st.sampled_from([768, 1024, 4096, 8192, 12288]))
GEMMS = st.builds(GemmShape, st.integers(1, 64), SIZES, SIZES, SIZES, DTYPES, *[st.booleans()] * 5).map(
    lambda s: replace(s, m=1) if s.one_row else s
)
NO_F64 = DTYPES.filter(lambda d: d is not DType.F64)
CONVS = st.builds(ConvShape, SIZES, SIZES, SIZES, st.integers(1, 8), st.sampled_from([1, 3, 4, 9, 27, 49]), NO_F64)
HEADS = st.integers(1, 256)
ATTENTIONS = st.builds(
    lambda b, kv, group, tq, tk, d, e, dtype, c: AttentionShape(b, kv * group, kv, tq, tk, d, e, dtype, c),
    *(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), SIZES, SIZES, HEADS, HEADS, NO_F64, st.booleans()),
)
SHAPES = st.one_of(GEMMS, CONVS, ATTENTIONS)


def table_of(entries: dict[str, TableEntry], arch: str = "sm_90") -> TuningTable:
    return TuningTable(arch, "3.6.0", entries)


def user(shape: Shape, plan: Any, **changed: Any) -> Tuning:
    given = {**plan_fields(plan), **changed}
    return Tuning((("user", table_of({key_of(shape): TableEntry(given, 12_340)})),))


@settings(max_examples=300)
@given(SHAPES, st.sampled_from([GPUS[arch] for arch in CUDA_ARCHITECTURES]))
def test_candidates_are_few_different_legal_and_led_by_the_cost_model(shape: Shape, machine: Gpu) -> None:
    found = candidates(shape, machine)
    assert found == candidates(shape, machine)
    assert found[0] == plan_by_cost(shape, machine)
    assert 1 <= len(found) <= MOST
    assert [problem(p, shape, machine) for p in found] == [""] * len(found)
    assert len({tuple(sorted(plan_fields(p).items())) for p in found}) == len(found)


def test_large_shapes_have_choices() -> None:
    shapes: list[Shape] = [
        GEMM,
        replace(GEMM, m=1, one_row=True),
        ConvShape(3136, 64, 64, 1, 9, BF16),
        AttentionShape(1, 32, 8, 1024, 1024, 128, 128, BF16, True),
    ]
    for shape in shapes:
        assert len(candidates(shape, H200)) >= 6, shape


@given(SHAPES)
def test_a_key_is_its_shape(shape: Shape) -> None:
    assert shape_of(key_of(shape)) == shape


def test_keys_are_readable() -> None:
    assert key_of(GEMM) == KEY
    with pytest.raises(
        ValueError, match=r"^no template family 'gem'; there are gemm, conv, attention, cpu_gemm, cpu_conv$"
    ):
        shape_of("gem m=1")
    with pytest.raises(ValueError, match=r"is no key of conv; its fields are points, channels_in, "):
        shape_of("conv points=1")


def test_a_table_has_the_same_bytes_whatever_order_it_was_made_in(tmp_path: Path) -> None:
    one, two = TableEntry(plan_fields(OTHER), 5), TableEntry(plan_fields(replace(OTHER, splits=1)), 7)
    made = table_of({"b": one, "a": two})
    assert made.to_json() == table_of({"a": two, "b": one}).to_json()
    assert made.to_json().startswith(
        b'{"arch":"sm_90","entries":{"a":{"measured_ns":7,"plan":{"block_k":64,"block_m":32,'
    )
    path = tmp_path / "t.json"
    path.write_bytes(made.to_json())
    assert read_table(path) == made
    assert read_table(path).sha256 == made.sha256


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "t.json: is a list, not an object"),
        (b'{"arch":"sm_90","entries":{},"format":2,"triton":"3.6.0"}',
         "t.json: format is 2; this version reads tuning tables of format 1"),
        (b'{"arch":"sm_70","entries":{},"format":1,"triton":"3.6.0"}',
         "t.json: arch is 'sm_70'; it must be one of sm_80, sm_90, sm_100"),
        (b'{"arch":"sm_90","entries":{"k":{"measured_ns":-1,"plan":{}}},"format":1,"triton":"3.6.0"}',
         "t.json: entries['k'].measured_ns is -1; it must be at least 0"),
        (b'{"arch":"sm_90","entries":{"k":{"measured_ns":1,"plan":{"a":[]}}},"format":1,"triton":"3.6.0"}',
         "t.json: entries['k'].plan has a = a list; it must be a number, a string or a bool"),
    ],
)  # fmt: skip
def test_other_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_table(data, "t.json")
    assert str(caught.value) == message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        read_table(tmp_path / "none.json")
    assert str(caught.value) == f"{tmp_path}/none.json: cannot read the tuning table: No such file or directory"


def test_shipped_tables_are_canonical_and_legal() -> None:
    found = sorted(table.SHIPPED.glob("*.json"))
    assert "sm_90.json" in {p.name for p in found}
    for path in found:
        shipped = read_table(path)
        assert path.name == f"{shipped.arch}.json"
        for key in shipped.entries:
            _, decisions = Tuning((("shipped", shipped),)).choose(shape_of(key), gpu_of(shipped.arch))
            assert [d.accepted for d in decisions] == [True], decisions[0]


def test_the_users_table_comes_before_the_shipped_one_and_that_before_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = replace(OTHER, block_m=64), OTHER
    shipped = table_of({KEY: TableEntry(plan_fields(theirs), 2_000)})
    monkeypatch.setattr(choice, "shipped_table", lambda arch: shipped if arch == "sm_90" else None)
    given_table = table_of({KEY: TableEntry(plan_fields(mine), 1_500)})
    costed = plan_by_cost(GEMM, A100)
    reasons = {
        "user table: 1.50 us, measured with Triton 3.6.0": (tuning_for(H200, Tables(given_table)), mine),
        "shipped table: 2.00 us, measured with Triton 3.6.0": (tuning_for(H200, Tables()), theirs),
        f"cost model: {costed.reason}": (tuning_for(A100, Tables(given_table)), costed),
    }
    assert tuning_for(H200, Tables(shipped=False)) == Tuning()
    for reason, (tuning, plan) in reasons.items():
        machine = A100 if reason.startswith("cost") else H200
        got, (decision,) = tuning.choose(GEMM, machine)
        assert got == replace(plan, reason=reason)
        assert (decision.kind, decision.subject, decision.accepted, decision.reason) == (KIND, KEY, True, reason)
        assert shapes_in_tables([decision]) == {KEY: machine is H200}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"block_m": 48}, "block_m is 48; it must be a power of two of at least 16"),
        ({"warps": 16}, "warps is 16; there are at most 8"),
        ({"stages": 13}, "stages is 13; it must be from 1 to 12"),
        ({"splits": 33}, "splits is 33; it must be from 1 to 32"),
        ({"variant": "vector"}, "the variant vector takes one row and several columns"),
        ({"variant": "outer"}, "bf16 products have no variant 'outer'"),
        ({"variant": "spiral"}, "products have no variant 'spiral'"),
        ({"variant": "stream", "programs": 132}, "a persistent grid is not split"),
        ({"block_m": 256, "block_n": 256}, "65536 sums do not fit in the registers of 4 warps"),
        ({"block_k": 512}, "it takes 294912 bytes of shared memory; sm_90 has 230400"),
        ({"block_m": True}, "block_m is True; it must be of type int"),
        ({"depth": 3}, "plans have no field 'depth'"),
    ],
)
def test_an_entry_that_is_not_legal_is_passed_over(changed: dict[str, Any], why: str) -> None:
    plan, (refused, taken) = user(GEMM, OTHER, **changed).choose(GEMM, H200)
    assert (refused.accepted, refused.reason) == (False, f"user table: not legal any more: {why}")
    assert refused.subject == taken.subject == KEY
    assert taken.reason == plan.reason == f"cost model: {plan_by_cost(GEMM, H200).reason}"


def test_a_costly_epilogue_has_an_entry_of_its_own_or_takes_the_plain_one() -> None:
    heavy = replace(GEMM, heavy=True)
    assert key_of(heavy) == f"{KEY} heavy=1"
    assert (shape_of(KEY), shape_of(f"{KEY} heavy=1")) == (GEMM, heavy)
    plain, own = replace(OTHER, block_m=64), OTHER
    entry = TableEntry(plan_fields(plain), 1_000)
    plan, (decision,) = Tuning((("user", table_of({KEY: entry})),)).choose(heavy, H200)
    told = "user table: 1.00 us, measured with Triton 3.6.0, without what is computed behind it here"
    assert (plan, decision.subject, decision.reason) == (replace(plain, reason=told), key_of(heavy), told)
    both = table_of({KEY: entry, key_of(heavy): TableEntry(plan_fields(own), 2_000)})
    for shape, wanted in ((GEMM, plain), (heavy, own)):
        plan, _ = Tuning((("user", both),)).choose(shape, H200)
        assert replace(plan, reason="") == wanted


def test_a_row_that_can_be_held_is_held() -> None:
    row = GemmShape(1, 1, 3072, 2048, BF16, depth_first=True, one_row=True)
    plan = plan_by_cost(row, H200)
    assert isinstance(plan, GemmPlan)
    assert plan.block_k >= row.k
    assert plan.programs > 0
    why = "a row of 2048 elements is held whole, by a persistent grid"
    for change in ({"block_k": 1024}, {"programs": 0}, {"splits": 2}):
        assert problem(replace(plan, **change), row, H200) == why  # type: ignore[arg-type]
    for other in (replace(row, k=9000), replace(row, dtype=DType.F32), replace(row, depth_first=False)):
        assert plan_by_cost(other, H200).programs == 0  # type: ignore[union-attr]


def test_illegal_plans_of_other_families() -> None:
    attention = AttentionShape(1, 8, 8, 64, 64, 64, 64, BF16, False)
    plan = plan_by_cost(attention, H200)
    why = [
        problem(replace(plan, **change), attention, H200)  # type: ignore[arg-type]
        for change in ({"block_d": 32}, {"packed": True}, {"splits": 4}, {"block_n": 8})
    ]
    assert why == [
        "heads of 64 and 64 elements need blocks of 64 and 64",
        "no heads share keys",
        "64 keys are not split in 4",
        "block_n is 8; it must be a power of two of at least 16",
    ]
    conv = ConvShape(64, 3, 32, 1, 9, BF16)
    flat = plan_by_cost(conv, H200)
    assert isinstance(flat, GemmPlan)
    assert problem(replace(flat, splits=2), conv, H200) == "the variant flat is not split"
    assert problem(replace(flat, variant="tile"), conv, H200) == "convolutions have no variant 'tile'"
    assert problem(flat, attention, H200) == "not a plan of attention"
    assert problem(plan, conv, H200) == "not a plan of products"


def compiled(shape: Shape, tuning: Tuning) -> CompiledEntry:
    trial = make_trial(shape)
    return compile_entry(trial.graph, trial.hints, TritonBackend(H200, tuning=tuning))


def test_a_forced_plan_reaches_the_kernel() -> None:
    entry = compiled(GEMM, user(GEMM, replace(OTHER, splits=1)))
    kernels = [k.detail for k in entry.kernels.values() if isinstance(k.detail, TritonKernel)]
    (kernel,) = kernels  # all repetitions are one kernel
    blocks = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}
    assert (kernel.constexprs, kernel.num_warps, kernel.num_stages) == (blocks, 4, 3)
    decisions = [d for d in entry.decisions if d.kind == KIND]
    assert {(d.subject, d.reason) for d in decisions} == {(KEY, "user table: 12.34 us, measured with Triton 3.6.0")}
    assert len(entry.plan.body) == make_trial(GEMM).repeats


@pytest.mark.parametrize(
    "shape",
    [
        GEMM,
        replace(GEMM, heavy=True),
        replace(GEMM, batch=3, depth_first=False),
        replace(GEMM, m=1, one_row=True),
        ConvShape(64, 32, 48, 2, 9, BF16),
        ConvShape(60, 16, 48, 1, 4, DType.F32),
        AttentionShape(2, 8, 2, 1, 512, 64, 64, BF16, False),
        AttentionShape(1, 4, 4, 100, 100, 80, 64, DType.F16, True),
    ],
    ids=key_of,
)  # fmt: skip
def test_a_trial_is_the_op_of_its_key(shape: Shape) -> None:
    entry = compiled(shape, Tuning())
    assert {d.subject for d in entry.decisions if d.kind == KIND} == {key_of(shape)}
    for plan in candidates(shape, H200)[:3]:
        forced = compiled(shape, user(shape, plan))
        assert all(d.accepted for d in forced.decisions if d.kind == KIND)


def test_rows_that_vary_stay_so_in_a_trial() -> None:
    shape = GemmShape(1, 1, 512, 256, BF16, depth_first=True)
    keys = {d.subject for d in compiled(shape, Tuning()).decisions if d.kind == KIND}
    assert keys == {key_of(replace(shape, streamable=True))}


def test_a_table_for_none_of_the_targets_is_refused() -> None:
    with pytest.raises(TargetError) as caught:
        backends_for(["cpu:x86-64-v3", "cuda:sm_80"], Tables(table_of({})))
    assert str(caught.value) == (
        "the tuning table is for cuda:sm_90; the targets are cpu:x86-64-v3, cuda:sm_80"
    )  # fmt: skip


def test_no_table_is_asked_for_where_there_are_none() -> None:
    with pytest.raises(TargetError) as caught:
        backends_for(["cpu:x86-64-v3"], Tables(shipped=False))
    assert str(caught.value) == (
        'the tuning "none" is for GPU targets, none are shipped for others; the targets are cpu:x86-64-v3'
    )
    found = backends_for(["cpu:x86-64-v3", "cuda:sm_90"], Tables(shipped=False))
    assert [b.tuning.levels for b in found] == [(), ()]


def test_plans_have_the_fields_that_tables_can_hold() -> None:
    for _, plan in choice.FAMILIES.values():
        assert {str(f.type) for f in fields(plan)} <= {"int", "str", "bool"}
