"""What is wrong and what is not: the judge, on faults of known size."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.fuzz.bundle_cuda import with_tiny_of
from tests.fuzz.judge import Call, Oracle
from tests.fuzz.program import Line, Program
from tests.fuzz.tensors import TensorSpec
from tests.fuzz.ways import same_bits

CALLS = [Call()]


def program(*lines: str, fill: str = "normal", dtype: str = "float32", shape: tuple[int, ...] = (5, 300)) -> Program:
    """x0 and lines; the last line's value is the result."""
    named = tuple(Line(text, (f"v{k}",)) for k, text in enumerate(lines))
    return Program(0, (TensorSpec("x0", shape, dtype, fill, 1),), (), (), named, (f"v{len(lines) - 1}",))


def verdict(p: Program, change: object) -> str | None:
    """What the judge says of eager's result after `change`."""
    oracle = Oracle(p, CALLS)
    changed = change(oracle.want[0][0].clone())  # type: ignore[operator]
    fault = oracle.fault([[changed]])
    return None if fault is None else fault.text


def test_eager_itself_is_right() -> None:
    assert verdict(program("x0.softmax(-1)", "v0 @ v0.mT"), lambda t: t) is None


def test_moments_that_are_more_exact_than_eagers_are_right() -> None:
    """Of float64, eager's batch norm adds the squares up one behind the other, and is 20 ulps off."""
    p = program("x0.floor()", "F.instance_norm(v0)", dtype="float64", shape=(1, 1, 29, 29))
    x = p.arguments()[0].floor()
    apart = x - x.mean()
    assert verdict(p, lambda _: apart / (apart.square().mean() + 1e-5).sqrt()) is None
    assert verdict(p, lambda _: apart / (apart.square().mean() + torch.tensor(1e-5).double()).sqrt()) is not None


def test_a_group_norm_of_one_number_is_the_bias() -> None:
    """Of float64, eager is some ulps of x * scale off."""
    p = program("x0.reshape(5, 300, 1) + 1", "F.group_norm(v0, 300, v0[0, :, 0], v0[1, :, 0])", dtype="float64")
    (x,) = p.arguments()
    bias = (x[1] + 1).reshape(1, 300, 1).expand(5, 300, 1)
    assert verdict(p, lambda _: bias) is None
    assert verdict(p, lambda _: bias + 1e-9) is not None


def test_a_product_may_be_rounded_before_it_is_added() -> None:
    p = program("x0 * 0.1", "torch.add(-v0, x0, alpha=0.1)", dtype="float64")
    x = p.arguments()[0]
    assert verdict(p, lambda _: x * 0.1 - x * 0.1) is None
    assert verdict(p, lambda t: t + 1e-15) is not None


def test_places_that_rounding_decides_may_be_any() -> None:
    """The rows' frequencies but the first are 0, or what rounding makes of that."""
    p = program("torch.fft.rfft(x0[:, :1].expand(65, 32)).abs()", "v0.sort(dim=0)[1][:, 1]", shape=(65, 4))
    assert verdict(p, lambda t: t.flip(0)) is None
    assert verdict(p, lambda t: t + 1000) is not None


def test_a_transform_is_as_exact_as_its_largest_number() -> None:
    """sin(pi), which is no 0 in eager's transform."""
    p = program("torch.view_as_real(torch.fft.rfft(torch.eye(66).reshape(33, 132)))", "v0 + x0[0, 0] * 0")
    assert verdict(p, lambda t: t + 5e-8) is None
    assert verdict(p, lambda t: t + 1e-5) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_another_order_of_additions_is_right(dtype: str) -> None:
    p = program("x0.sum(-1)", dtype=dtype)
    x = p.arguments()[0]
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3))
    assert verdict(p, lambda _: x[:, order].sum(-1)) is None


def test_eager_gets_the_inputs_as_a_program_takes_them() -> None:
    """A transposed example counts as row-major, so contiguous() gives the tensor itself."""
    x = TensorSpec("x0", (5, 7), "float32", "normal", 2, "permuted")
    lines = (Line("x0.clone()", ("v0",)), Line("v0.contiguous().zero_()", ()))
    oracle = Oracle(Program(0, (x,), (), (), lines, ("v0",)), CALLS)
    assert not x.make({}).is_contiguous()
    assert oracle.want[0][0].count_nonzero() == 0


def test_the_bias_of_equal_addends_is_right() -> None:
    """One number added up 300 times errs the same way each time."""
    p = program("x0[:, :1].expand(5, 300).sum(-1)")
    first = p.arguments()[0][:, 0]

    def one_by_one(_: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(5)
        for _k in range(300):
            total = total + first
        return total

    assert verdict(p, one_by_one) is None


@pytest.mark.parametrize(
    ("line", "relative"),
    [("x0 * 3 + 1", 2e-5), ("x0.softmax(-1)", 1e-4), ("x0 @ x0.mT", 2e-3), ("x0.tanh()", 2e-5), ("x0.sum(-1)", 1e-2)],
)
def test_one_element_a_little_off_is_wrong(line: str, relative: float) -> None:
    def off(t: torch.Tensor) -> torch.Tensor:
        t.view(-1)[t.abs().argmax()] *= 1 + relative
        return t

    found = verdict(program(line), off)
    assert found is not None
    assert found.startswith("1 of ")


def test_a_row_of_another_place_is_wrong() -> None:
    assert verdict(program("x0.cumsum(0)"), lambda t: t.roll(1, 0)) is not None


def _next(t: torch.Tensor) -> torch.Tensor:
    """One element of the numbers around 1 is the next that its type has."""
    at = (t.abs() - 1).abs().argmin()
    t.view(-1)[at] = t.view(-1)[at].nextafter(torch.tensor(9.0, dtype=t.dtype))
    return t


@pytest.mark.parametrize(
    "lines",
    [
        ("x0 * 0.1",),
        ("x0 / 3 + 1",),
        ("2 - x0.flip(0)", "v0.t().contiguous() * v0.amax()"),
        ("x0.relu().clone()", "v0[1:].mul_(0.3)", "v0.masked_fill(v0 > 1, 0.7)"),
        ("torch.where((x0 * 0.3 > 0.1).any(0), x0, x0 * 0.7)",),
        ("(x0 * 1000).to(torch.int32)", "v0 % 7", "x0 * v1"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_what_rounds_once_is_eagers_to_the_last_bit(lines: tuple[str, ...], dtype: str) -> None:
    p = program(*lines, dtype=dtype)
    assert verdict(p, lambda t: t) is None
    assert verdict(p, _next) is not None


@pytest.mark.parametrize(
    "lines",
    [
        ("x0.exp()",),
        ("x0.sum(-1)", "x0 * v0[:, None]"),
        ("torch.add(x0, x0, alpha=0.3)",),
        ("x0 * 1", "v0.view(-1)[:9].sigmoid_()", "v0 + 1"),
        ("torch.where(x0.exp() > 1, x0, -x0)",),
        ("x0 * float(x0[0, 0].sin())",),
        ("torch.index_put(x0, (torch.zeros(300, dtype=torch.long),), x0[:1], accumulate=True)",),
        ("torch.round(x0, decimals=2)",),
        ("torch.complex(x0, x0) * torch.complex(x0, x0 + 1)", "torch.view_as_real(v0)"),
    ],
)
def test_what_may_round_otherwise_is_right_a_bit_off(lines: tuple[str, ...]) -> None:
    assert verdict(program(*lines), _next) is None


def test_a_number_rounded_to_a_half_type_first_is_wrong() -> None:
    """Off by half an ulp of the number: within a few ulps of the product, which is what other ops may be off by."""
    p = program("x0 * 0.1", dtype="bfloat16")
    x = p.arguments()[0]
    found = verdict(p, lambda t: x * torch.tensor(0.1, dtype=torch.bfloat16).expand(300))
    assert found is not None
    assert found.endswith("where each op rounds once at most")


def test_an_index_that_a_tie_decides_is_right() -> None:
    """The two largest differ by rounding only: which of them is first is not determined."""
    p = program("x0.exp()", "torch.cat([v0[:, :1], (x0[:, :1] * 0.5).exp().square()], 1)", "v1.argmax(1)")
    assert verdict(p, lambda t: 1 - t) is None


def test_an_index_that_nothing_decides_otherwise_is_wrong() -> None:
    assert verdict(program("x0.argmax(1)"), lambda t: (t + 1) % 300) is not None


def test_integers_are_compared_exactly() -> None:
    assert verdict(program("x0 + 1", dtype="int32"), lambda t: t + 1) is not None
    assert verdict(program("x0 > 0", dtype="float32"), lambda t: ~t) is not None


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "int32"), ("float64", "int64"), ("bfloat16", "int16")])
def test_the_bits_of_floats_are_judged_in_ulps(dtype: str, bits: str) -> None:
    """A sum of 300 numbers in another order has other bits: a few ulps away, not thousands, and not another sign."""
    p = program("x0.exp().sum(-1)", f"v0.view(torch.{bits})", dtype=dtype)
    assert verdict(p, lambda t: t + 3) is None
    assert verdict(p, lambda t: t + (2000 if dtype != "bfloat16" else 100)) is not None
    assert verdict(p, lambda t: t ^ torch.iinfo(t.dtype).min) is not None
    exact = program("x0 * 2", f"v0.view(torch.{bits})", "v1.bitwise_and(7)", "x0.argmax(1)", dtype=dtype)
    assert verdict(exact, lambda t: (t + 1) % 300) is not None, "an index beside them is not made of bits"


@pytest.mark.parametrize("formula", ["tanh", "none"])
def test_gelu_of_negative_numbers_keeps_few_digits(formula: str) -> None:
    """1 + tanh(y) for y near -2 is 0.04: an ulp of tanh is 28 of that. Eager has the same formula, another tanh."""
    p = program(f"F.gelu(x0 * 0.1 - 2.4, approximate='{formula}')", dtype="float64")
    assert verdict(p, lambda t: t * (1 + 5e-15)) is None
    assert verdict(p, lambda t: t * (1 + 1e-12)) is not None
    assert verdict(program("F.gelu(x0.abs() + 1)"), lambda t: t * (1 + 1e-5)) is not None


def test_a_norm_over_one_element_is_its_bias_or_eagers_noise() -> None:
    p = program("F.layer_norm(x0, (1,))", "torch.count_nonzero(v0)", dtype="float16", shape=(9, 1))
    assert verdict(p, lambda t: t * 0) is None
    assert verdict(p, lambda t: t * 0 + 100) is not None
    assert verdict(program("F.layer_norm(x0, (300,))"), lambda t: t * (1 + 1e-4)) is not None


def test_the_order_of_factors_decides_what_overflows() -> None:
    """Large factors first: infinity, then times 0 NaN; small ones first: 0."""
    p = program("torch.cat([x0.exp() * 1e3, x0.exp() * 1e-3], 1).flatten().prod()")
    assert verdict(p, lambda t: t * 0) is None
    assert verdict(program("x0.exp().prod(0)"), lambda t: t * 0) is not None


def test_denormal_numbers_have_steps_of_their_own() -> None:
    assert verdict(program("x0.cos() * 0 + 5e-324", dtype="float64"), lambda t: t * 0) is None
    assert verdict(program("x0.cos() * 0 + 1e-40"), lambda t: t * 0) is not None


def test_floor_of_a_number_that_rounding_moves_is_right() -> None:
    p = program("((x0.sqrt() * 0.1) / 0.1 - x0.sqrt()).floor()", fill="positive")
    assert verdict(p, lambda t: torch.where(t == 0, -1.0, t)) is None
    assert verdict(p, lambda t: t + 2) is not None


def test_a_line_through_zero_has_the_ulps_of_its_ends() -> None:
    """Eager has 1 - 6 * step in one rounding, -3e-8, where two give 0."""
    p = program("torch.linspace(-1, 1, 13) + x0[0, 0] * 0")
    assert verdict(p, lambda t: torch.where(t.abs() < 1e-6, 0.0, t)) is None
    assert verdict(p, lambda t: t + 1e-5) is not None


def test_nan_and_infinities_must_be_where_eager_has_them() -> None:
    p = program("x0.log()")
    assert verdict(p, lambda t: t.nan_to_num()) is not None
    assert verdict(program("1 / (x0 * 0)"), lambda t: -t) is not None
    assert verdict(program("x0 * 1"), lambda t: t * float("nan")) is not None


def test_dtype_and_shape_are_part_of_a_result() -> None:
    assert verdict(program("x0 + 1"), lambda t: t.double()) == "dtype torch.float64, eager torch.float32"
    assert verdict(program("x0 + 1"), lambda t: t[:2]) == "shape [2, 300], eager [5, 300]"


def test_cancellation_leaves_what_the_rounding_leaves() -> None:
    """(x + 1000) - 1000 keeps few digits: others of the same kind are right, much coarser ones are not."""
    p = program("(x0.exp() + 1000) - 1000")
    assert verdict(p, lambda t: t + 2.0**-14) is None
    assert verdict(p, lambda t: t + 2.0**-8) is not None


def test_attention_may_round_its_probabilities_to_their_half_type() -> None:
    """As flash attention does, where eager keeps all in f32."""
    p = program("F.scaled_dot_product_attention(x0, x0, x0)", "v0 * 3", dtype="bfloat16")
    (x,) = p.arguments()
    logits = (x.float() @ x.mT.float()) / x.shape[-1] ** 0.5
    rounded = (logits.softmax(-1).bfloat16().float() @ x.float()).bfloat16() * 3
    assert verdict(p, lambda _: rounded) is None
    assert verdict(p, lambda t: t + t.abs().amax() / 8)


def test_what_a_causal_query_does_not_see_may_count_for_nothing() -> None:
    """Eager multiplies values that are masked by 0, and makes NaN of infinities."""
    attention = "F.scaled_dot_product_attention(v0, v0, x0, is_causal=True)"
    p = program("x0.nan_to_num(0, 0, 0) / 9", attention, fill="special", shape=(1, 12, 4))
    (x,) = p.arguments()
    query, first = x.nan_to_num(0, 0, 0) / 9, int((~x.isfinite()).any(-1).nonzero()[0, 1])
    seen = F.scaled_dot_product_attention(query, query, x.nan_to_num(0, 0, 0), is_causal=True)
    assert first > 0
    assert verdict(p, lambda t: torch.cat([seen[:, :first], t[:, first:]], 1)) is None
    assert verdict(p, lambda _: seen) is not None


def test_a_query_without_scores_may_give_nan() -> None:
    """Eager's flash attention takes scores that are NaN for masked ones, and gives 0 where all are."""
    p = program(
        "torch.cat([x0[:, :1] * math.inf, x0[:, 1:]], 1)", "F.scaled_dot_product_attention(v0, x0, x0)", shape=(1, 9, 4)
    )
    assert verdict(p, lambda t: t * torch.where(torch.arange(9) == 0, math.nan, 1.0)[:, None]) is None
    assert verdict(p, lambda t: t * torch.where(torch.arange(9) == 3, math.nan, 1.0)[:, None]) is not None


def test_what_is_left_of_an_addend_and_a_product_is_their_rounding() -> None:
    p = program("x0 * x0 * -0.5", "torch.addcmul(v0, x0, x0, value=0.5)", "torch.addcdiv(v1, v0, x0)")
    assert verdict(p, lambda t: t + torch.finfo(t.dtype).eps / 2) is None
    assert verdict(p, lambda t: t + 1e-3)


def test_a_lerp_of_what_cancels_is_the_rounding_of_its_product() -> None:
    p = program("x0 * -3", "torch.lerp(x0, v0, 0.25)", dtype="float64")
    (x,) = p.arguments()
    assert verdict(p, lambda t: t + x * 2.0**-53) is None
    assert verdict(p, lambda t: t + x * 1e-10)


def test_the_logarithm_of_about_one_is_the_rounding_of_a_sum() -> None:
    p = program("(x0 * 8).log_softmax(-1)")
    assert verdict(p, lambda t: t - 2.0**-24) is None
    assert verdict(p, lambda t: t * (1 + 1e-3))


def test_a_place_between_elements_is_rounded() -> None:
    line = "F.interpolate(x0[None], size=7, mode='linear', align_corners=True)"
    p = program(line, "v0 - v0.mean()", dtype="float64")
    assert verdict(p, lambda t: t + 1e-14) is None
    assert verdict(p, lambda t: t + 1e-9)


def test_prefix_sums_may_err_the_same_way_at_each_step() -> None:
    p = program("(x0 * 0 + 0.1).cumsum(-1)", dtype="float64")
    exact = torch.arange(1, 301, dtype=torch.float64) * 0.1
    assert verdict(p, lambda t: exact.expand_as(t)) is None
    assert verdict(p, lambda t: t * (1 + 1e-12))


def test_a_product_over_one_element_is_not_determined() -> None:
    p = program("x0[:, :1]", "torch.einsum('ik,jk->ij', v0, v0)")
    assert verdict(p, lambda t: t * (1 + 2.0**-23)) is None
    assert verdict(p, lambda t: t * (1 + 1e-5))


def test_a_function_is_near_its_zero_by_cancellation() -> None:
    p = program("torch.digamma(x0 * 1e-3 + 1.4616321449683623)", "v0 * 3", dtype="float64")
    assert verdict(p, lambda t: t + 2.0**-51) is None
    assert verdict(p, lambda t: t + 1e-9)


def test_only_numbers_too_small_for_an_atomic_sum_are_taken_for_eagers() -> None:
    want, got = torch.tensor([2e-40, 2e-40, 2e-40, 1.0, 0.0]), torch.tensor([0.0, 1e-40, 1.0, 0.0, 1e-37])
    assert with_tiny_of(want, got).tolist() == [want[0].item(), want[1].item(), 1.0, 0.0, got[4].item()]
    assert with_tiny_of(want.double(), got.double()).tolist() == got.double().tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_runs_are_compared_by_bits_but_for_those_of_a_nan(dtype: torch.dtype) -> None:
    nan, zero = torch.tensor([float("nan"), 0.0], dtype=dtype).split(1)
    assert same_bits([nan], [-nan]) is None
    assert same_bits([zero], [-zero]) == 0
    assert same_bits([nan], [zero]) == 0


def test_a_choice_that_rounding_makes_once_in_many_runs_is_right() -> None:
    """Two exponentials five ulps apart: one disturbed run in forty."""
    p = program("x0.exp().view(torch.int32) - x0.exp().view(torch.int32)", "v0 == 5", shape=(1, 4))
    assert verdict(p, lambda t: t) is None
    assert verdict(p, lambda t: ~t) is None
    never = program("x0.exp().view(torch.int32) - x0.exp().view(torch.int32)", "v0 == 50", shape=(1, 4))
    assert verdict(never, lambda t: ~t) is not None


def test_spreads_of_float64_that_are_more_exact_than_eagers_are_right() -> None:
    level = program("x0.std(1)", dtype="float64", fill="level", shape=(1, 4096))
    assert float(Oracle(level, CALLS).want[0][0]) > 0
    assert verdict(level, lambda t: t * 0) is None
    assert verdict(level, lambda t: t + 1e-12) is not None
    long = program("x0.flatten().repeat(40)[None].renorm(2, 0, 1.0)", dtype="float64")
    y = long.arguments()[0].flatten().repeat(40)[None]
    assert verdict(long, lambda _: y / (y.square().sum().sqrt() + 1e-7)) is None
    assert verdict(long, lambda t: t * (1 + 1e-11)) is not None


def test_rows_of_factors_may_be_multiplied_first() -> None:
    """One row overflows, another is zero: NaN, where eager, which takes both by turns, has zero."""
    p = program("torch.cat([x0[:1].abs() + 1.5, x0[1:].abs() * 0.3])", "v0.prod()", shape=(6, 1200))
    assert float(Oracle(p, CALLS).want[0][0]) == 0
    assert verdict(p, lambda t: t * float("nan")) is None
    few = program("x0.abs() * 0.3", "v0.prod()", shape=(2, 3))
    assert verdict(few, lambda t: t * float("nan")) is not None


def test_gelu_of_an_infinity_is_one_thing_for_each_sign() -> None:
    """Infinity and NaN by its formula; in the lanes of a vector eager has NaN for both."""
    p = program(
        "F.gelu(torch.where(x0 > 1, math.inf, torch.where(x0 < -1, -math.inf, x0)))", "v0.sort(dim=1, stable=True)[1]"
    )
    (x,) = p.arguments()
    limits = torch.where(x > 1, torch.inf, torch.where(x < -1, torch.nan, torch.nn.functional.gelu(x)))
    assert verdict(p, lambda _: limits.sort(dim=1, stable=True)[1]) is None
    assert verdict(p, lambda t: t.flip(1)) is not None


def test_bytes_that_rounding_decides_are_between_what_eager_gives() -> None:
    """Less than the least by no more than that is above 0 was more than any byte."""
    p = program("F.gelu(torch.where(x0 > 1, math.inf, x0))", "v0.nan_to_num(0., 9., -9.).clamp(0, 100).to(torch.uint8)")
    (x,) = p.arguments()
    assert verdict(p, lambda t: torch.where(x > 1, 9, t)) is None
    assert verdict(p, lambda t: torch.where(x > 1, t, 9)) is not None
    assert verdict(p, lambda t: torch.where(x > 1, 30, t)) is not None


def test_a_count_of_zeros_in_a_line_through_zero_is_right() -> None:
    p = program("torch.linspace(-1, 1, 15)", "torch.linalg.vector_norm(v0, 0)")
    assert float(Oracle(p, CALLS).want[0][0]) == 15
    assert verdict(p, lambda t: t - 1) is None
    assert verdict(p, lambda t: t - 12) is not None


def test_either_of_two_zeros_may_be_the_largest_of_a_window() -> None:
    """The second of the window in bits: eager has the first, a GPU the positive one."""
    p = program("torch.where(x0 > 0, 0.0, -0.0)", "F.max_pool2d(v0[None], (1, 2))[0]", "v1.view(torch.int32)")
    (x,) = p.arguments()
    both = torch.where((x[:, ::2] > 0) | (x[:, 1::2] > 0), 0, -(2**31)).to(torch.int32)
    assert not torch.equal(Oracle(p, CALLS).want[0][0], both)
    assert verdict(p, lambda _: both) is None
    one = program("torch.where(x0 > 0, 0.0, 1.0)", "v0.amin(1)", "v1.view(torch.int32)")
    assert verdict(one, lambda t: torch.where(t == 0, -(2**31), t)) is not None, "no zero of the other sign is there"


@pytest.mark.parametrize(
    "limited",
    [
        "torch.minimum(v0, -v0)",
        "torch.maximum(v0, -v0)",
        "torch.clamp(v0, v0 - 1, max=-v0)",
        "torch.clamp(v0 - 1, v0, -v0)",
        "v0.clone().clamp_min_(-v0)",
        "torch.clamp_max(v0, -v0)",
    ],
)
def test_the_second_of_two_zeros_may_be_the_limit(limited: str) -> None:
    """Eager has the second in its loops over vectors, the first among the elements that are left."""
    p = program("torch.where(x0 > 0, 0.0, -0.0)", limited, "torch.atan2(v1, v1 * 0 - 1)", shape=(3, 1))
    (x,) = p.arguments()
    second = torch.where(x > 0, -math.pi, math.pi)
    assert not torch.equal(Oracle(p, CALLS).want[0][0], second)
    assert verdict(p, lambda _: second) is None
    assert verdict(p, lambda t: t + 100) is not None
    one = program("x0.abs() + 1", "torch.minimum(v0, v0 * 0)", "torch.atan2(v1, v1 * 0 - 1)", shape=(3, 1))
    assert verdict(one, torch.neg) is not None, "there is one zero alone"


def test_zeros_of_either_sign_may_come_first_where_a_sort_need_not_be_stable() -> None:
    p = program("torch.where(x0 > 0, 0.0, -0.0)", "torch.sort(v0, 0)[0]", "torch.atan2(v1, v1 - 1)", shape=(63, 17))
    (x,) = p.arguments()
    zeros = torch.where(x > 0, 0.0, -0.0)
    ordered = torch.sort(zeros, dim=0, stable=True)[0]
    assert verdict(p, lambda _: torch.atan2(ordered, ordered - 1)) is None
    assert verdict(p, lambda t: t + 1) is not None


def test_a_zero_that_is_a_product_of_matrices_has_either_sign() -> None:
    p = program("torch.where(x0[:, :1] > 0, 0.0, -0.0)", "v0 @ (x0[:1, :4].abs() + 1)", "torch.atan2(v1, v1 * 0 - 1)")
    assert verdict(p, torch.neg) is None
    assert verdict(p, lambda t: t + 100) is not None
    sums = program("torch.where(x0 > 0, 0.0, -0.0)", "v0 + v0", "torch.atan2(v1, v1 * 0 - 1)")
    assert verdict(sums, torch.neg) is not None, "of two numbers it is determined"


def test_gelu_of_minus_infinity_in_16_bits_is_its_limit_or_nan() -> None:
    """NaN in eager on CPUs, 0 on GPUs; in f32 it is NaN on both."""
    for dtype, right in (("bfloat16", True), ("float32", False)):
        p = program("torch.where(x0 > 2, -math.inf, x0)", "F.gelu(v0)", dtype=dtype)
        assert Oracle(p, CALLS).want[0][0].isnan().any()
        assert (verdict(p, lambda t: t.nan_to_num(0.0)) is None) is right


def test_infinities_in_convolutions_of_16_bits_are_not_multiplied_by_zeros_beside_a_filter() -> None:
    """oneDNN's are, which makes NaN of windows beside one; in float32 eager has what is right."""
    dtype = {"dtype": "bfloat16", "shape": (1, 1, 1, 7)}
    p = program(
        "torch.where(torch.arange(7) == 6, math.inf, x0)",
        "F.conv2d(v0, torch.ones((3, 1, 3, 5), dtype=torch.bfloat16), stride=3, padding=1)",
        **dtype,  # type: ignore[arg-type]
    )
    (x,) = p.arguments()
    x = torch.where(torch.arange(7) == 6, math.inf, x.float())
    right = F.conv2d(x, torch.ones(3, 1, 3, 5), stride=3, padding=1).to(torch.bfloat16)
    assert verdict(p, lambda _: right) is None
    assert verdict(p, lambda _: right + 9) is not None


def test_a_power_of_a_negative_number_by_what_rounding_makes_whole_is_infinite() -> None:
    """(-12) ** 43000.004 is NaN, and infinite where that is rounded to 43000."""
    p = program("(x0.abs() * 400).floor() + 30000", "v0 + 0.0078125", "torch.pow(-12, v1)", shape=(3, 5))
    assert bool(torch.isnan(Oracle(p, CALLS).want[0][0]).all())
    assert verdict(p, lambda t: torch.full_like(t, torch.inf)) is None
    half = program("(x0.abs() * 400).floor() + 30000", "v0 + 0.5", "torch.pow(-12, v1)", shape=(3, 5))
    assert verdict(half, lambda t: torch.full_like(t, torch.inf)) is not None


def test_quotients_of_16_bits_that_are_rounded_down_may_be_exact() -> None:
    """-2.25 / 0.025 is -89.9: eager's vectors have -91, since they round the remainder and what is left."""
    lines = "(x0 * 0 - 2.25).bfloat16()", "v0 * 0 + 0.0250244140625", 'torch.div(v0, v1, rounding_mode="floor")'
    p = program(*lines, shape=(64,))
    assert set(Oracle(p, CALLS).want[0][0].tolist()) == {-91.0}
    assert verdict(p, lambda t: torch.full_like(t, -90)) is None
    assert verdict(p, lambda t: torch.full_like(t, -40)) is not None


def test_pixel_unshuffle_of_nothing_has_another_shape() -> None:
    """Eager gives the shape that it was given."""
    p = program("F.pixel_unshuffle(x0, 2)", shape=(0, 4, 6, 16))
    assert verdict(p, lambda t: t.reshape(0, 16, 3, 8)) is None
    assert verdict(p, lambda t: torch.ones(1, 16, 3, 8)) is not None
    q = program("x0 + 1", shape=(0, 4, 6, 16))
    assert verdict(q, lambda t: t.reshape(0, 16, 3, 8)) is not None
