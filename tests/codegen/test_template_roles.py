"""Each template refuses nests whose operands, results and parameters do not fit: those that the lowering emits are
broken in one thing at a time. What goes through all the same is legal, and says here why."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
import torch
from torch.export import Dim

from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.roles import Memory, Role, Sizes, differ, only, verify_inside, verify_memory
from hardtack.codegen.ir.types import DType
from tests.codegen.template_nests import PROGRAMS, broken, classes, lowered, nest_of, ones

MASKED, TILED = ("attention", "tiled attention"), ("tiled attention", "attention in parts")
FUSED = ("attention", *TILED)
PRODUCTS = ("gemm", "gemm in a batch", "gemm in parts")
CONVS = ("tiled conv", "tiled conv in parts", "tiled transposed")
TURNED = ("transposed", "paired transposed", "tiled transposed")
PAIRED = ("paired conv", "taps side by side", "paired transposed")
RECURRENT = ("lstm", "gru", "rnn", "tiled gru", "tiled lstm")
SORTS = ("sort", "topk", "rows", "runs", "first merge", "last merge", "count")
STEPS = ("runs", "first merge")
PLANNED = (*PRODUCTS, *CONVS, "grouped")
CODE_PLANS = ("row of codes", "tiles of codes", "fragments of codes")


@dataclass(frozen=True)
class Legal:
    """A change that makes another nest, and no wrong one, of these programs."""

    change: str
    why: str
    programs: tuple[str, ...]


CODED = ("quantized", "quantized half", "row of codes", "tiles of codes", "fragments of codes")
ALL_CODES = CODED[:-1]
OTHERS = (("bf16", "f16"), ("f32", "f16"), ("f32", "f16"), ("f32", "bf16"), ("f32", "f16"))
"""Types of numbers that CODED do not have."""
USERS = ("custom", "custom in place")
ANY_ORDER = "results are written through strides; the elements of a head stay side by side"
KEY = "items are keys of 32 bits, whatever they are of"
LEGAL = (
    Legal("scale larger", "any scale is one", FUSED),
    Legal("causal turned", "another attention", FUSED),
    Legal("reverse turned", "another recurrence", RECURRENT),
    Legal("descending turned", "another sort", SORTS),
    Legal("top turned", "what is complete is the first elements, too", ("sort",)),
    Legal("dim larger", "there is one more dimension, of as many results", ("sort", "scan", "count", "block scan")),
    Legal("operand 3 left out", "a mask or a bias may be left out", (*MASKED, "gru", "tiled gru")),
    Legal("operand 3 without dim 0", "a mask is broadcast", MASKED),
    Legal("operand 3 of bool", "a mask that says which keys are seen", ("attention",)),
    Legal("operand 3 of bf16", "a mask that is added", ("tiled attention",)),
    Legal("operand 3 of f32", "a mask that is added, of what scores are summed in", ("tiled attention",)),
    Legal("result of f32", "attention of half types may be left as it is summed", ("tiled attention",)),
    Legal("operand 1 of u8", "codes are of either", ALL_CODES),
    Legal("operand 1 of f8e4m3fn", "or floats", ALL_CODES),
    Legal("operand 1 of f8e5m2", "or floats", ALL_CODES),
    *(Legal(f"operand {k} of {dtype}", "numbers of steps are of any", (program,))
      for k in (2, 3) for program, others in zip(CODED, OTHERS, strict=True)
      for dtype in others),
    *(Legal(f"operand {k} of {dtype}", "or floats of 8 bits", CODED)
      for k in (2, 3) for dtype in ("f8e4m3fn", "f8e8m0fnu")),
    Legal("operand 2 of i64", "ends are of either integer", ("grouped", "cpu_grouped")),
    Legal("operand 2 of i32", "so are numbers of matrices", ("picked",)),
    Legal("operand 1 shorter in dim 0", "how many matrices there are, nothing else says", ("picked",)),
    Legal("result longer in dim 1", "the last panel has as many columns", ("cpu_grouped",)),
    Legal("constant turned", "what is known at export, no buffer says", PRODUCTS),
    Legal("result of f32", "a product of half types may be left as it is summed",
          ("gemm in a batch", "grouped", "cpu_grouped")),
    Legal("result of f32", "and one with codes, too", ("quantized half", "tiles of codes", "fragments of codes")),
    Legal("operand 0 of f32", "numbers that were rounded to a half type are f32's, too", ("row of codes",)),
    Legal("result of f32", "a convolution of half types may be left as it is summed", PAIRED),
    Legal("result of bf16", "what is summed in f32 may be rounded", ("paired",)),
    Legal("result of f32", "parts are rounded to what is asked for", ("combine",)),
    Legal("result of f16", "parts are rounded to what is asked for", ("combine",)),
    Legal("result longer in dim 2", "output_padding: as many points are possible", TURNED),
    Legal("dilation larger in 1", "windows grow by less than output_padding may add", TURNED),
    *(Legal(f"fill {change}", "padding adds any code", ("conv of bytes",)) for change in ("larger", "far smaller")),
    Legal("seven_bits turned", "what codes may be, no buffer says", ("quads", "quads of seven bits", "conv of bytes")),
    Legal("plan.reason misspelt", "words for people", (*PLANNED, *CODE_PLANS, *TILED, "tiled depthwise")),
    Legal("plan.stages larger", "how far copies run ahead", (*PLANNED, *CODE_PLANS, *TILED)),
    Legal("plan.packed turned", "which rows a tile has", TILED),
    Legal("plan.group_m larger", "in which order tiles are computed", (*PLANNED, *CODE_PLANS)),
    Legal("plan.programs larger", "how many programs share the tiles", PLANNED),
    Legal("plan.variant misspelt", "there is one kernel", ("grouped",)),
    Legal("plan.runs larger", "how much a program computes", ("tiled depthwise",)),
    Legal("plan.warps larger", "how many threads compute it", ("tiled depthwise",)),
    Legal("block_r larger", "how many rows a program sorts", ("runs",)),
    *(Legal(f"result with dims {d} and {e} exchanged in memory", ANY_ORDER, ("tiled attention", "combine"))
      for d, e in ((0, 1), (0, 2), (1, 2))),
    *(Legal(f"result with dims {d} and {e} exchanged in memory", ANY_ORDER, ("attention in parts",))
      for e in range(4) for d in range(e)),
    Legal("in_place shorter", "there is nothing in place", ("custom",)),
    *(Legal(f"{change} misspelt", "another kernel, of a user", USERS)
      for change in ("op", "code.function", "code.source", "code.file")),
    Legal("arguments shorter", "what a user's op takes besides, no nest says", USERS),
    Legal("written shorter", "nor which results have an operand's content", ("custom",)),
    *(Legal(f"{change} larger", "a kernel may ask for any memory", USERS) for change in ("shared", "per_worker")),
    *(Legal(f"{change} misspelt", "another Triton kernel of a user", ("launch",))
      for change in ("op", "code.function", "code.text", "code.file")),
    *(Legal(f"code.parameters larger in {k}", "whose parameters have other names", ("launch",)) for k in range(5)),
    *(Legal(f"{change} shorter", "there is nothing in it", ("launch",))
      for change in ("strided", "code.constexprs", "code.options")),
    *(Legal(f"{change} misspelt", "another CUDA kernel of a user", ("cuda",))
      for change in ("op", "code.function", "code.source", "code.file")),
    *(Legal(f"code.shared_nbytes {change}", "a kernel may ask for any memory", ("cuda",))
      for change in ("larger", "far smaller")),
    Legal("strided shorter", "there is nothing in it", ("cuda",)),
    *(Legal(f"grid larger in {k}", "on any number of blocks", ("cuda",)) for k in range(3)),
    *(Legal(f"{change} larger", "as its user says", ("launch",))
      for change in ("code.num_stages", "code.num_ctas", "code.configs")),
    *(Legal(f"grid larger in {k}", "on any number of programs", ("launch",)) for k in range(3)),
    *(Legal(f"operand 0 of {dtype}", KEY, STEPS)
      for dtype in ("f16", "bf16", "i8", "i16", "i32", "u8", "u16", "u32", "bool")),
)  # fmt: skip


def test_only_products_on_tensor_cores_compute_with_codes_of_float8() -> None:
    """They are no numbers: sorted or added up as bytes, they would be wrong in silence."""
    users = ("custom", "triton_call", "cuda_call")
    assert [t.kind for t in classes() if any(d.is_float8 for d in t.dtypes) and t.kind not in users] == ["gemm"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_does_not_fit_is_refused(name: str) -> None:
    nest, buffers = nest_of(name)
    verify_nest(nest, buffers)
    changes = list(broken(nest, buffers))
    assert len(changes) == len({what for what, _, _ in changes}) > 40
    accepted: set[str] = set()
    for what, changed, given in changes:
        try:
            verify_nest(changed, given)
        except LoopError:
            continue
        accepted.add(what)
    assert accepted == {legal.change for legal in LEGAL if name in legal.programs}


def test_every_template_is_broken() -> None:
    assert {of for of, _ in PROGRAMS.values()} == set(classes())
    assert all(set(legal.programs) <= set(PROGRAMS) for legal in LEGAL)


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("dynamic", "operand 1 longer in dim 1", "its operand b has K = 8, expected 7"),
        ("dynamic", "operand 0 without dim 0", "its operand b has *batch = [2], expected []"),
        ("packed", "operand 1 of f64", "its operand panels is f64, expected f32"),
        ("packed", "operand 1 without dim 0", "its operand panels has 2 dimensions, expected [N/32 K 32]"),
        ("attention", "operand 2 longer in dim 2", "its operand v has S = 11, expected 10"),
        ("attention", "operand 3 of i64", "its operand mask is i64, expected bool, f32"),
        ("attention", "operand 3 longer in dim 0", "its operand mask has T = 6, expected 5"),
        ("lstm", "operand 3 shorter in dim 0", "its operand c0 has B = 2, expected 3"),
        ("lstm", "operand 3 left out", "it has 3 operands, expected projected, w, h0, c0"),
        ("gru", "result 1 left out", "it has 1 results, expected y, last h"),
        ("rnn", "one operand more", "it has 4 operands, expected projected, w, h0"),
        ("winograd", "stride larger in 0", "its filter moves or reaches by more than 1"),
        ("winograd", "dilation larger in 1", "its filter moves or reaches by more than 1"),
        ("winograd", "groups larger", "it has 2 groups, expected 1"),
        ("winograd", "kernel larger in 0", "its filter is (4, 3), expected (3, 3)"),
        ("conv", "groups larger", "its operand weights has groups = 2, expected 3"),
        ("conv", "stride larger in 0", "its result has 5 points along dimension 0, expected 3"),
        ("conv", "kernel shorter", "its fields are of different ranks"),
        ("conv", "result with dims 1 and 3 exchanged in memory", "in the order (0, 2, 1, 3), expected channels last"),
        ("sort", "dim far smaller", "its dimension -99 is none of 3"),
        ("topk", "result longer in dim 0", "its places has *kept = [3, 4, 2], expected [4, 4, 2]"),
        ("topk", "top turned", "its result has 4 along dimension 1, x has 5"),
        ("scan", "operand 0 of bool", "its first operand is bool, expected f32"),
        ("scan", "scan misspelt", "it knows no nonsense"),
        ("gemm in parts", "plan.splits larger", "parts on"),
        ("gemm", "operand 0 behind its buffer", "its operand a ends at 69, its buffer has 35 elements"),
        ("gemm", "operand 0 before its buffer", "its operand a starts at -1"),
        ("gemm", "plan.block_n larger", "no power of two"),
        ("grouped", "operand 2 of f32", "its operand ends is f32, expected i32, i64"),
        ("tiled attention", "plan.block_d far smaller", "its plan has block_d"),
        ("last merge", "operand 1 of i32", "its operand items is i32, expected i64"),
        ("rows", "operand 0 of f64", "its first operand is f64, expected"),
        ("count", "result 1 of i32", "its places is i32, expected i64"),
    ],
)  # fmt: skip
def test_why_it_is_refused(name: str, change: str, sentence: str) -> None:
    nest, buffers = nest_of(name)
    ((changed, given),) = [(n, b) for what, n, b in broken(nest, buffers) if what == change]
    with pytest.raises(LoopError, match=re.escape(sentence)):
        verify_nest(changed, given)


def test_sizes_of_a_run_are_compared_as_far_as_they_are_known() -> None:
    """Two symbols may be equal, by a guard that the nest does not know; a multiple and one less cannot."""
    rows = Dim("rows", min=2)
    low = lowered(torch.nn.Linear(7, 64).eval(), ones(5, 7), dynamic=({0: rows},))
    (nest,) = [n for n in low.nests if isinstance(n, TemplateNest)]
    verify_nest(nest, low.buffers)
    a, panels = nest.operands
    for size, fits in ((sym("other"), True), (a.shape[0] + 1, False), (const(1), False)):
        changed = replace(nest, operands=(replace(a, shape=(size, a.shape[1])), panels))
        if fits:
            verify_nest(changed, low.buffers)
        else:
            with pytest.raises(LoopError, match=r"its operand a .*(M = |expected |ends at)"):
                verify_nest(changed, low.buffers)


def test_extents_that_are_known_to_differ() -> None:
    s, t = sym("s", 2), sym("t", 2)
    assert differ(const(3), const(4))
    assert differ(s, const(1))
    assert differ(2 * s + 1, 2 * s)
    assert not differ(s, t)
    assert not differ(s, const(7))
    assert not differ(s * t, t * s)


def test_the_grammar_of_sizes() -> None:
    sizes = Sizes({"N": const(40)})
    sizes.take(Role("panels", "N/32 K 32"), (const(2), const(7), const(32)), "it")
    sizes.take(Role("rows", "*lead A*B K"), (const(9), const(9), const(12), const(7)), "it")
    sizes.take(Role("a", "A B"), (const(3), const(4)), "it")
    sizes.take(Role("mask", "A K", broadcast=True), (const(1),), "it")
    sizes.agree()
    assert sizes.many("lead") == (const(9), const(9))
    assert sizes["K"] is const(7)
    with pytest.raises(LoopError, match=r"it has K = 3, expected 7"):
        sizes.take(Role("mask", "A K", broadcast=True), (const(3),), "it")
    with pytest.raises(LoopError, match=r"it has 1 dimensions, expected \[\*lead A K\]"):
        sizes.take(Role("rows", "*lead A K"), (const(3),), "it")
    with pytest.raises(LoopError, match=r"it has \*lead = \[9\], expected \[9, 9\]"):
        sizes.take(Role("rows", "*lead A K"), (const(9), const(3), const(7)), "it")
    sizes.take(Role("rows", "A*B"), (const(13),), "it")
    with pytest.raises(LoopError, match=r"it has A\*B = 13, expected 12"):
        sizes.agree()


def test_how_elements_lie() -> None:
    rows, whole = (Role("x", "M N", memory=memory) for memory in (Memory.ROWS, Memory.WHOLE))
    shape, n = (const(3), const(4)), const(5)
    verify_memory(rows, shape, (n, const(1)), "it")
    verify_memory(whole, shape, (const(4), const(1)), "it")
    verify_memory(whole, (const(1), const(4)), (n, const(1)), "it")
    with pytest.raises(LoopError, match="it has rows with gaps"):
        verify_memory(rows, shape, (n, const(2)), "it")
    with pytest.raises(LoopError, match="it is not row-major"):
        verify_memory(whole, shape, (n, const(1)), "it")


def test_views_stay_in_their_buffers() -> None:
    """A flipped view starts at the end; one of no element is nowhere."""
    shape, n = (sym("s", 0), const(4)), sym("s", 0)
    verify_inside(shape, (const(4), const(-1)), const(3), shape, "it")
    verify_inside((const(0), const(4)), (const(4), const(1)), const(99), shape, "it")
    with pytest.raises(LoopError, match=r"it starts at -1"):
        verify_inside(shape, (const(4), const(-1)), const(2), shape, "it")
    with pytest.raises(LoopError, match=r"it ends at 4\*s, its buffer has 4\*s elements"):
        verify_inside(shape, (const(4), const(1)), const(1), (n, const(4)), "it")


def test_dtypes_of_a_role() -> None:
    assert only(DType.I64)(DType.F32) == (DType.I64,)
