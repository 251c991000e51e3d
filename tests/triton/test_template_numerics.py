"""Every template against torch, in Triton's interpreter, over odd shapes, dtypes and layouts."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep import num_examples

from hardtack.codegen.ir.graph_infer_nn import CODES
from hardtack.codegen.ir.types import DType
from hardtack.codegen.tune import attention_plan as attention_plans
from hardtack.codegen.tune import gemm_plan as gemm_plans
from hardtack.codegen.tune import row_plan as row_plans
from tests.triton import template_cases as cases
from tests.triton.template_runs import kernels, lowered, run

ARCHS = st.sampled_from(("sm_80", "sm_90", "sm_100"))
FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F64)
HALF_AND_F32 = (DType.F32, DType.F16, DType.BF16)


def check(case: cases.Case, arch: str = "sm_90") -> None:
    got = run(case.graph, case.tensors, case.sizes, arch)
    cases.close(case, got, case.want(case.tensors))


def choices(case: cases.Case, arch: str = "sm_90") -> list[str]:
    """Which kernels were chosen."""
    return [d.partner for d in lowered(case.graph, arch, case.sizes).decisions if d.kind == "template"]


@settings(max_examples=num_examples(40))
@given(
    m=st.integers(0, 40),
    n=st.integers(1, 70),
    k=st.integers(0, 70),
    dtype=st.sampled_from(FLOATS),
    batch=st.sampled_from(((), (2,), (2, 3))),
    transposed=st.booleans(),
    constant=st.booleans(),
    epilogue=st.booleans(),
    dynamic=st.booleans(),
    left=st.sampled_from(("rows", "columns", "heads")),
    arch=ARCHS,
)
def test_products(m, n, k, dtype, batch, transposed, constant, epilogue, dynamic, left, arch) -> None:  # type: ignore[no-untyped-def]
    check(cases.gemm(m, n, k, dtype, batch, transposed, constant, epilogue, dynamic, left), arch)


@pytest.mark.sweep(over="left")
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("left", ["rows", "columns"])
@pytest.mark.parametrize(("rows", "programs"), [(128, 132), (128, 0), (192, 0)])
def test_streams(monkeypatch: pytest.MonkeyPatch, transposed: bool, left: str, rows: int, programs: int) -> None:
    """Bulk copies are for products too large for an interpreter: here they are preferred at any size."""
    estimate = gemm_plans.estimate

    def preferred(p: gemm_plans.GemmPlan, *rest: object) -> float:
        wanted = p.variant == "stream" and (p.block_m, p.block_n, p.programs) == (rows, 128, programs)
        return 0.0 if wanted else estimate(p, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(gemm_plans, "estimate", preferred)
    monkeypatch.setattr(gemm_plans, "PAIRS_BY_COST", True)
    case = cases.gemm(136, 264, 200, DType.F16, transposed=transposed, epilogue=True, left=left)
    assert choices(case) == [f"gemm stream {rows}x128x64"]
    check(case)
    check(cases.gemm(144, 264, 136, DType.BF16, transposed=transposed, dynamic=True))


@pytest.mark.parametrize(
    ("seen", "visible", "causal"),
    [(0, 0, False), (1, 0, False), (100, 77, True), (511, 300, False), (640, 77, False), (640, 300, True)],
)
def test_masks_are_scanned(monkeypatch: pytest.MonkeyPatch, seen: int, visible: int, causal: bool) -> None:
    """Blocks that nobody sees are left out, of blocks that everybody sees the mask is not read."""
    monkeypatch.setattr(attention_plans, "MOST_SPLITS", 1)
    case = cases.attention((1, 2, 2, 40, 640, 16, 16), DType.BF16, causal=causal, mask="keep")
    mask = case.tensors["mask"]
    mask[..., :visible] = True
    mask[..., seen:] = False
    assert any("visible" in k.text for _, k in kernels(lowered(case.graph, "sm_90", {}), "sm_90", {}))
    check(case)


def test_convolutions_of_few_channels() -> None:
    """As products of copied patches where taps do not overlap, else with rows of a window as runs of elements."""
    for case, wanted in (
        (cases.convolution([1, 3, 20, 22], 24, [7, 7], DType.BF16, stride=2, padding=3), "conv taps"),
        (cases.convolution([2, 4, 9, 9], 24, [3, 3], DType.F16, padding=1), "conv taps"),
        (cases.convolution([2, 3, 17, 17], 24, [3, 3], DType.F32, padding=1, stride=2, dynamic=True), "conv taps"),
        (cases.convolution([2, 3, 30], 24, [5], DType.BF16, padding=2), "conv taps"),
        (cases.convolution([1, 3, 6, 7, 8], 24, [3, 3, 3], DType.BF16, padding=1), "conv taps"),
        (cases.convolution([2, 3, 16, 16], 24, [4, 4], DType.BF16, stride=4), "gemm tile"),
        (cases.convolution([2, 3, 16, 16], 24, [4, 4], DType.BF16, stride=4, bias=False, dynamic=True), "gemm tile"),
        (cases.convolution([2, 24, 9, 9], 40, [1, 1], DType.BF16), "gemm tile"),
        (cases.convolution([2, 1, 9, 9], 24, [3, 3], DType.F16, padding=1), "conv flat"),
    ):
        assert [c[: len(wanted)] for c in choices(case)] == [wanted], case.name
        check(case)


@settings(max_examples=num_examples(12))
@given(
    n=st.integers(1, 200),
    k=st.integers(0, 300),
    dtype=st.sampled_from(HALF_AND_F32),
    transposed=st.booleans(),
    epilogue=st.booleans(),
    batch=st.sampled_from(((), (3,))),
    constant=st.booleans(),
)
def test_one_row(n, k, dtype, transposed, epilogue, batch, constant) -> None:  # type: ignore[no-untyped-def]
    check(cases.gemm(1, n, k, dtype, batch, transposed, constant, epilogue))


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("m", [1, 20])
def test_long_sums_of_few_results_are_split(m: int, transposed: bool) -> None:
    case = cases.gemm(m, 24, 2100, DType.F32, transposed=transposed, epilogue=True)
    (plan,) = [n.template.plan for n in lowered(case.graph, "sm_90", {}).nests if hasattr(n, "template")]
    assert plan.splits > 1  # type: ignore[attr-defined]
    check(case)


def test_a_row_against_one_column_is_no_vector() -> None:
    check(cases.gemm(1, 1, 40, DType.F32))


@settings(max_examples=num_examples(30))
@given(
    batch=st.integers(1, 2),
    kv=st.integers(1, 2),
    group=st.integers(1, 3),
    t=st.integers(0, 40),
    s=st.integers(0, 150),
    d=st.integers(1, 40),
    e=st.integers(1, 40),
    dtype=st.sampled_from(HALF_AND_F32),
    causal=st.booleans(),
    mask=st.sampled_from(("", "keep", "add")),
    inside=st.booleans(),
    dynamic=st.booleans(),
    codes=st.sampled_from((None, *CODES)),
    arch=ARCHS,
)
def test_attention(batch, kv, group, t, s, d, e, dtype, causal, mask, inside, dynamic, codes, arch) -> None:  # type: ignore[no-untyped-def]
    check(cases.attention((batch, kv * group, kv, t, s, d, e), dtype, causal, mask, inside, dynamic, codes), arch)


@pytest.mark.parametrize("codes", CODES)
def test_attention_of_codes_and_heads_too_large_for_the_template(codes: DType) -> None:
    case = cases.attention((1, 2, 1, 2, 5, 8, 300), DType.BF16, mask="keep", codes=codes)
    assert choices(case) == ["reductions"]
    check(case)


@pytest.mark.parametrize("codes", [None, *CODES])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries_attend_to_parts_of_the_keys(queries: int, causal: bool, codes: DType | None) -> None:
    case = cases.attention((1, 4, 1, queries, 300, 16, 24), DType.F32, causal, mask="keep", codes=codes)
    assert "parts" in choices(case)[0]
    assert not choices(case)[0].endswith(" 1 parts")
    check(case)


def test_rows_that_see_no_key_are_zero() -> None:
    case = cases.attention((1, 1, 1, 5, 70, 16, 16), DType.F32, mask="keep")
    tensors = {**case.tensors, "mask": torch.zeros(1, 1, 5, 70, dtype=torch.bool)}
    (got,) = run(case.graph, tensors)
    assert torch.equal(got, torch.zeros_like(got))


@settings(max_examples=num_examples(12))
@given(
    images=st.integers(0, 2),
    channels=st.integers(1, 20),
    out=st.integers(1, 20),
    groups=st.integers(1, 3),
    sizes=st.lists(st.integers(5, 9), min_size=1, max_size=3),
    taps=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
    transposed=st.booleans(),
    constant=st.booleans(),
    dtype=st.sampled_from(FLOATS),
    dynamic=st.booleans(),
)
def test_convolutions(  # type: ignore[no-untyped-def]
    images, channels, out, groups, sizes, taps, stride, padding, dilation, transposed, constant, dtype, dynamic
) -> None:
    sizes = sizes if len(sizes) < 3 else [5, 5, 5]
    channels, out = (channels, out) if len(sizes) < 3 else (channels % 5 + 1, out % 5 + 1)
    case = cases.convolution(
        [images, channels * groups, *sizes],
        out * groups,
        taps[: len(sizes)],
        dtype,
        groups,
        stride,
        padding,
        dilation,
        transposed,
        constant,
        dynamic=dynamic,
    )
    check(case)


def test_deep_convolutions_of_few_points_are_split() -> None:
    case = cases.convolution([1, 128, 4, 4], 20, [3, 3], DType.F32, padding=1)
    assert not choices(case)[0].endswith(" 1 parts")
    check(case)


SORTED = tuple(d for d in DType if not d.is_float8)


@settings(max_examples=num_examples(25))
@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    dim=st.integers(0, 2),
    dtype=st.sampled_from(SORTED),
    k=st.integers(0, 14),
    descending=st.booleans(),
)
def test_sorts(shape, dim, dtype, k, descending) -> None:  # type: ignore[no-untyped-def]
    dim %= len(shape)
    kept = k if k <= shape[dim] else None
    check(cases.sort(shape, dim, dtype, kept, descending))


@pytest.mark.parametrize("length", [0, 1, 64, 65, 300, 511])
@pytest.mark.parametrize("longest", [-1, 700])
def test_long_rows_are_merged(monkeypatch: pytest.MonkeyPatch, length: int, longest: int) -> None:
    monkeypatch.setattr(row_plans, "LONGEST_SORT", 64)
    monkeypatch.setattr(row_plans, "COUNTED", 0)
    case = cases.sort([2, length, 2], 1, DType.F32, descending=True, longest=longest)
    if length > 64:
        assert choices(case) == ["sort by merge"]
    check(case)


def test_rows_of_unknown_length_are_counted() -> None:
    case = cases.sort([2, 150], 1, DType.F16, longest=None)
    assert choices(case) == ["sort by count"]
    check(case)


@settings(max_examples=num_examples(20))
@given(
    shape=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    dim=st.integers(0, 2),
    kind=st.sampled_from(("sum", "prod", "max", "min")),
    dtypes=st.sampled_from([*((d, d) for d in FLOATS), (DType.I32, DType.I64), (DType.I8, DType.I64)]),
)
def test_scans(shape, dim, kind, dtypes) -> None:  # type: ignore[no-untyped-def]
    dtype, out = dtypes if kind in ("sum", "prod") else (dtypes[0], dtypes[0])
    check(cases.scan(shape, dim % len(shape), dtype, kind, out))


def test_long_scans_carry_over() -> None:
    check(cases.scan([2, 5000], 1, DType.F32, "sum"))
    check(cases.scan([3, 300, 9], 1, DType.F32, "max"))


@settings(max_examples=num_examples(12))
@given(
    kind=st.sampled_from(("lstm", "gru", "rnn_tanh", "rnn_relu")),
    steps=st.integers(0, 4),
    batch=st.integers(0, 18),
    width=st.integers(1, 20),
    hidden=st.integers(1, 70),
    dtype=st.sampled_from(FLOATS),
    bias=st.booleans(),
    reverse=st.booleans(),
    dynamic=st.booleans(),
)
def test_recurrences(kind, steps, batch, width, hidden, dtype, bias, reverse, dynamic) -> None:  # type: ignore[no-untyped-def]
    check(cases.recurrent(kind, steps, batch, width, hidden, dtype, bias, reverse, dynamic))
