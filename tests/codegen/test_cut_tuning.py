"""Tuning of CPU kernels: keys, candidates, what is legal, that a plan is in the text, and which CPU takes a table."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.cpu_matmul import PackedGemm
from hardtack.codegen.machine.data import X86_64_V3, X86_64_V4
from hardtack.codegen.machine.host import host_kind, native_cpu
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.codegen.targets import TargetError, backends_for
from hardtack.codegen.tune.candidates import candidates, plan_by_cost, problem
from hardtack.codegen.tune.choice import KIND, Tuning, key_of, plan_fields, shape_of
from hardtack.codegen.tune.cut_plan import RIGHTS, ConvCutShape, CutPlan, CutShape, cut_by_cost
from hardtack.codegen.tune.table import TableEntry, Tables, TuningTable, parse_table
from hardtack.codegen.tune.trial import make_trial
from tests.codegen.template_nests import lowered

F32, BF16 = DType.F32, DType.BF16
PRODUCT = CutShape(1, 40, 96, 2000, F32, constant=True, rows_dense=True)
VALUES = replace(PRODUCT, batch=3, constant=False)
CONV = ConvCutShape(49, 16, 32, 1, 9, 1, F32)
SHAPES = (
    PRODUCT,
    replace(PRODUCT, dtype=BF16),
    VALUES,
    replace(VALUES, rows_dense=False),
    CONV,
    replace(CONV, taps=1),
    replace(CONV, groups=2, step=2, dtype=BF16),
)
PLAN = CutPlan(1024, "by_size", "")
KIND_OF_CPU = "AuthenticAMD 26 2, caches of 48K and 1024K"


def table_of(shape: CutShape | ConvCutShape, plan: CutPlan, arch: str = "x86-64-v4", **changed: Any) -> TuningTable:
    entry = TableEntry({**plan_fields(plan), **changed}, 1_500)
    return TuningTable(arch, "zig 1", {key_of(shape): entry}, KIND_OF_CPU, "t.json")


def compiled(shape: CutShape | ConvCutShape, table: TuningTable | None = None) -> CompiledEntry:
    trial = make_trial(shape)
    (backend,) = backends_for(["cpu:x86-64-v4"], Tables(table))
    return compile_entry(trial.graph, trial.hints, backend)


@pytest.mark.parametrize("shape", SHAPES, ids=key_of)
def test_a_trial_is_the_op_of_its_key(shape: CutShape | ConvCutShape) -> None:
    assert shape_of(key_of(shape)) == shape
    assert {d.subject for d in compiled(shape).decisions if d.kind == KIND} == {key_of(shape)}


@pytest.mark.parametrize("cpu", [X86_64_V4, X86_64_V3], ids=lambda c: c.name)
def test_candidates_are_different_legal_and_led_by_the_machines_own(cpu: Any) -> None:
    for shape in SHAPES:
        found = candidates(shape, cpu)
        assert found[0] == plan_by_cost(shape, cpu) == cut_by_cost(shape, cpu)
        assert [problem(p, shape, cpu) for p in found] == [""] * len(found)
        assert len({tuple(sorted(plan_fields(p).items())) for p in found}) == len(found)
    assert {p.right for p in candidates(VALUES, cpu)} == set(RIGHTS)  # type: ignore[union-attr]
    assert {p.depth for p in candidates(replace(PRODUCT, k=300), cpu)} == {  # type: ignore[union-attr]
        cut_by_cost(PRODUCT, cpu).depth
    }, "a longer block than the product is deep changes nothing"


def test_a_tables_plan_is_in_the_text_and_without_one_there_is_none() -> None:
    for shape, call in ((PRODUCT, "gemm_packed"), (VALUES, "gemm_dynamic"), (CONV, "conv2d")):
        plain, tuned = compiled(shape), compiled(shape, table_of(shape, PLAN))
        assert all(f"ht::{call}(" in text for text in plain.sources.values())
        wanted = f"ht::{call}<ht::TunedBlocks<float, 1024, ht::Right::kBySize>>("
        assert all(wanted in text for text in tuned.sources.values())
        assert {d.reason for d in tuned.decisions if d.kind == KIND} == {
            f"user table: 1.50 us, measured with zig 1 on {KIND_OF_CPU}"
        }
        assert compiled(shape, table_of(shape, PLAN)).texts == tuned.texts
    kept = compiled(VALUES, table_of(VALUES, replace(PLAN, right="in_place")))
    assert all("ht::Right::kInPlace" in text for text in kept.sources.values())


@pytest.mark.parametrize(
    ("shape", "changed", "why"),
    [
        (PRODUCT, {"depth": 1000}, ".plan: depth is 1000; it must be a multiple of 32 from 32 to 2048"),
        (CONV, {"depth": 4096}, ".plan: depth is 4096; it must be a multiple of 32 from 32 to 2048"),
        (VALUES, {"right": "left"}, ".plan: right is 'left'; it must be one of by_size, packed, in_place"),
        (
            PRODUCT,
            {"right": "packed"},
            ".plan: right is 'packed'; only f32 products of two values with dense rows have that choice",
        ),
        (PRODUCT, {"rows": 96}, ".plan: plans have no field 'rows'"),
        (PRODUCT, {"depth": "deep"}, ".plan: depth is 'deep'; it must be of type int"),
    ],
)
def test_an_entry_that_is_no_candidate_is_refused(
    shape: CutShape | ConvCutShape, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(LoadError) as caught:
        backends_for(["cpu:x86-64-v4"], Tables(table_of(shape, PLAN, **changed)))
    assert str(caught.value) == f"t.json: entries[{key_of(shape)!r}]{why}"


def test_a_key_that_is_none_of_a_cpu_is_refused() -> None:
    gpu = "conv points=64 channels_in=8 channels_out=8 groups=1 taps=9 dtype=f32"
    for key, why in (
        (gpu, "this is a key of GPUs, in a table of a CPU"),
        ("cpu_gem", "no template family 'cpu_gem'; there are gemm, conv, attention, cpu_gemm, cpu_conv"),
    ):
        table = TuningTable("x86-64-v4", "zig 1", {key: TableEntry(plan_fields(PLAN), 1)}, KIND_OF_CPU, "t.json")
        with pytest.raises(LoadError) as caught:
            backends_for(["cpu:x86-64-v4"], Tables(table))
        assert str(caught.value) == f"t.json: entries[{key!r}]: {why}"


def test_a_nest_with_a_plan_that_is_not_legal_is_refused() -> None:
    low = lowered(torch.nn.Linear(7, 64).eval(), torch.ones(5, 7), backend=CppBackend())
    (nest,) = (n for n in low.nests if isinstance(n, TemplateNest))
    broken = replace(nest, template=PackedGemm(plan=replace(PLAN, depth=100)))
    with pytest.raises(LoopError, match="its plan is not legal: depth is 100; it must be a multiple of 32"):
        verify_nest(broken, low.buffers)


def test_a_table_is_read_as_it_was_written() -> None:
    table = table_of(PRODUCT, PLAN)
    data = table.to_json()
    assert data.startswith(b'{"arch":"x86-64-v4","compiler":"zig 1","cpu":"AuthenticAMD 26 2, caches of ')
    assert parse_table(data, "t.json") == table
    with pytest.raises(LoadError) as caught:
        parse_table(data.replace(b"x86-64-v4", b"x86-64-v9"), "t.json")
    assert str(caught.value) == (
        "t.json: arch is 'x86-64-v9'; it must be one of amx, x86-64-v4-bf16, x86-64-v4, x86-64-v3, aarch64-bf16, "
        "aarch64"
    )


def test_a_cpu_with_a_table_is_compiled_apart() -> None:
    table = table_of(PRODUCT, PLAN)
    first, second = backends_for(["cpu"], Tables(table))
    assert (first.key, [m.name for m in first.machines]) == ("cpu:x86-64-v4", ["x86-64-v4"])
    assert first.tuning == Tuning((("user", table),))
    assert (second.key, [m.name for m in second.machines], second.tuning) == ("cpu", ["x86-64-v3"], Tuning())


def test_a_table_of_another_cpu_is_refused() -> None:
    with pytest.raises(TargetError) as caught:
        backends_for(["cpu:x86-64-v3"], Tables(table_of(PRODUCT, PLAN)))
    assert str(caught.value) == "the tuning table is for cpu:x86-64-v4; the targets are cpu:x86-64-v3"
    other = replace(table_of(PRODUCT, PLAN, native_cpu().level), cpu="GenuineIntel 6 143, caches of 48K and 2048K")
    with pytest.raises(TargetError) as caught:
        backends_for(["cpu:native"], Tables(other))
    assert str(caught.value) == (
        f"the tuning table was measured on GenuineIntel 6 143, caches of 48K and 2048K; cpu:native is {host_kind()}"
    )
    (own,) = backends_for(["cpu:native"], Tables(replace(other, cpu=host_kind())))
    assert (own.key, len(own.tuning.levels)) == ("cpu:native", 1)


def test_kinds_of_cpus_are_told_apart_by_design_and_caches() -> None:
    amd = "processor : 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\n"
    arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
    kinds = [host_kind(text, caches) for text, caches in itertools.product((amd, arm, ""), ({1: 48 << 10}, {}))]
    assert kinds[0] == "AuthenticAMD 26 2, caches of 48K and 0K"
    assert kinds[2] == "0x41 0xd40, caches of 48K and 0K"
    assert kinds[4] == "a CPU that does not name itself, caches of 48K and 0K"
    assert len(set(kinds)) == len(kinds)
