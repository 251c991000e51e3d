"""Faults put in on purpose: a few words of one file changed.

Half of the mutants take out a mend of a fault that was found here. The words must be in the file exactly once, so that
a mutant follows the code or is noticed. mutant_hunt.py counts the programs until the fuzzer finds each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"hardtack": "hardtack", "export": "hardtack/exporter", "codegen": "hardtack/codegen"}
"""Folder in the project -> where a package of them has it."""


@dataclass(frozen=True)
class Mutant:
    """what: the fault in words. way: how programs are run. edits: words of the file, and what replaces them.

    calls: of a kernel template, what a kernel has in its text that may run the changed words. captures: the words run
    while a program is captured. sweep: whose programs are drawn, one of SWEEPS; random ones if there is none.
    """

    name: str
    what: str
    way: str
    file: str
    edits: tuple[tuple[str, str], ...]
    calls: str = ""
    captures: bool = False
    sweep: str = ""


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "row by an index that is data",
        "an index that is data is taken for a product's row axis",
        "cpu",
        "codegen/schedule/fuse.py",
        (
            ("if isinstance(read, Sym) and read in own and read.extent", "if isinstance(read, Sym) and read.extent"),
            (
                "    if any(s.extent is not None and s not in own for e in load.index for s in free_syms(e)):\n",
                "    if False:\n",
            ),
        ),
    ),
    Mutant(
        "epilogue at another point",
        "an epilogue reads the result at another point than the one just computed",
        "cpu",
        "codegen/schedule/fuse.py",
        (("if buffers[s.buffer].offset(s.index) is not _written_offset(group, s.buffer, buffers):", "if False:"),),
    ),
    Mutant(
        "outer axes that do not agree",
        "a loop reads what another outer point writes",
        "cpu",
        "codegen/schedule/fuse.py",
        (("        if not same:\n            return k\n    return len(outer)", "    return len(outer)"),),
    ),
    Mutant(
        "passes over different places",
        "two passes over a row are joined though the second reads elsewhere",
        "cpu",
        "codegen/schedule/cpu_row_walks.py",
        (
            (
                "together = bool(read) and all(written.get(s.buffer) is s.index[0] for s in read)",
                "together = bool(read)",
            ),
        ),
    ),
    Mutant(
        "part of a buffer inlined",
        "a nest that writes a part of its buffer is computed inside its reader",
        "cpu",
        "codegen/passes/shared/inline.py",
        (
            ('            return "it writes a part of its buffer"\n', "            seen.add(Sym)  # type: ignore\n"),
            ("if len(writers[target]) > 1 else None", "if False else None"),
        ),
    ),
    Mutant(
        "divisor under a mask",
        "an integer is divided by what a pad does not read",
        "cpu",
        "codegen/passes/shared/inline.py",
        (("if isinstance(s, Compute) and s.op in INT_DIVISIONS and", "if False and isinstance(s, Compute) and"),),
    ),
    Mutant(
        "half sums in half",
        "sums of half types are accumulated in the half type",
        "cpu",
        "codegen/lower/builder.py",
        (('if dtype.is_half and kind in ("sum", "prod"):', "if False:"),),
    ),
    Mutant(
        "scratch that is too small",
        "a kernel's scratch is an element short",
        "cpu",
        "codegen/schedule/cpu_tile.py",
        (
            ("        sizes.add(top + 1)\n", "        sizes.add(top)\n"),
            ("return numel if all(within(e, numel) for e in offsets) else None", "return numel"),
        ),
    ),
    Mutant(
        "memory shared while alive",
        "a value's memory is given away one step early",
        "cpu",
        "codegen/plan/memory.py",
        (
            (
                "return self.first <= other.last and other.first <= self.last",
                "return self.first < other.last and other.first < self.last",
            ),
        ),
    ),
    Mutant(
        "slice off by one",
        "a slice with a step begins one element late",
        "cpu",
        "codegen/lower/views.py",
        (
            (
                "i * step + start if d == dim else i",
                "i * step + start + (step > 1) if d == dim else i",
            ),
        ),
    ),
    Mutant(
        "shift by the width",
        "a shift by its width or more shifts by the low bits",
        "cpu",
        "codegen/templates/cpp/simd_math.h",
        (
            (
                "const U moved = bit_copy<U>(a) << (count & static_cast<lane<U>>(width - 1));\n  return bit_copy<V>((count < width) ? moved : U{});",
                "return bit_copy<V>(bit_copy<U>(a) << (count & static_cast<lane<U>>(width - 1)));",
            ),
        ),
        "ht::shl",
    ),
    Mutant(
        "running sums in float",
        "running sums of f32 are kept in f32",
        "cpu",
        "codegen/templates/cpp/scan.h",
        (("  using type = double;", "  using type = float;"),),
        '"scan.h"',
    ),
    Mutant(
        "last bytes of a row",
        "a product of int8 leaves out the last of an uneven number of columns",
        "cpu",
        "codegen/templates/cpp/int8.h",
        (("for (int64_t i = k; i < kc; i++) last", "for (int64_t i = k; i + 1 < kc; i++) last"),),
        '"int8.h"',
        sweep="quantised",
    ),
    Mutant(
        "bytes without a sign",
        "the odd columns of a product of int8 are taken for numbers without a sign",
        "cpu",
        "codegen/templates/cpp/int8.h",
        (("(words << 8) >> 8 : words >> 8)", "(words << 8) >> 8 : (words >> 8) & 255)"),),
        '"int8.h"',
        sweep="quantised",
    ),
    Mutant(
        "zero points of codes",
        "the zero point of an activation is left out of a product of what codes stand for",
        "cpu",
        "codegen/passes/shared/integer_products.py",
        (
            (
                "        total = _less(edit, op, total, _sum(edit, op, b, given.summed[1], keepdim=True), za)\n",
                "        pass\n",
            ),
        ),
        sweep="quantised",
    ),
    Mutant(
        "zero points of bytes without a sign",
        "codes of uint8 become 128 less, and their zero point does not",
        "cpu",
        "codegen/passes/shared/code_values.py",
        (("    less = FROM_U8 if x.dtype is DType.U8 else 0\n", "    less = 0\n"),),
        sweep="quantised",
    ),
    Mutant(
        "scales along a sum",
        "a scale that differs along what a product of codes adds up is taken behind it",
        "cpu",
        "codegen/passes/shared/integer_products.py",
        (("    return any(index[d] in used for d in dims)\n", "    return False\n"),),
        sweep="quantised",
    ),
    Mutant(
        "factors folded into bytes",
        "a whole factor of a product of int8 is multiplied into its weights",
        "cpu",
        "export/rewrite/affine.py",
        (("    if weight.is_half or not weight.is_float:\n", "    if weight.is_half:\n"),),
        captures=True,
        sweep="quantised",
    ),
    Mutant(
        "sizes for the factor",
        "interpolate takes the ratio of sizes where a factor was given",
        "cpu",
        "codegen/lower/resize.py",
        (("        if d.scale is not None\n        else b.compute", "        if False\n        else b.compute"),),
    ),
    Mutant(
        "scale along any dimension",
        "a scale is folded into a product along whatever dimension it varies",
        "graph",
        "export/rewrite/affine.py",
        (
            (
                "return len(shape) <= rank and all(int_value(s) == 1 for i, s in enumerate(padded) if i != dim)",
                "return len(shape) <= rank",
            ),
        ),
    ),
    Mutant(
        "scale that one channel is broadcast to",
        "a product of one channel times a vector takes one number of it into its weights",
        "graph",
        "export/rewrite/affine.py",
        (("if facts.shape(op.outputs[0]) != facts.shape(target.outputs[0]):", "if False:"),),
    ),
    Mutant(
        "permutations the wrong way",
        "two permutations are merged in the wrong order",
        "graph",
        "export/rewrite/basic.py",
        (("make_attrs(dims=[inner[d] for d in outer])", "make_attrs(dims=[outer[d] for d in inner])"),),
    ),
    Mutant(
        "equal but for attributes",
        "ops on equal operands are taken for equal whatever their attributes",
        "graph",
        "export/rewrite/basic.py",
        (("tuple(map(repr, inputs)), repr(op.attrs), tuple", "tuple(map(repr, inputs)), tuple"),),
    ),
    Mutant(
        "padding of any value",
        "what is padded with other numbers than zero becomes a convolution's padding",
        "graph",
        "export/rewrite/affine.py",
        (("isinstance(value, Lit) and value.value == 0", "isinstance(value, Lit)"),),
    ),
    Mutant(
        "numbers rounded to half first",
        "a number beside a half tensor is rounded before it multiplies",
        "graph",
        "export/convert/pointwise.py",
        (("if not dtype.is_half or all(_of_half(a, dtype) for a in (x, y)):", "if True:"),),
    ),
    Mutant(
        "views of other strides",
        "flatten is a view or a copy by the strides of the functional program",
        "graph",
        "export/decompose/decompositions.py",
        (("    settled = with_written_reshapes(traced)\n", "    settled = traced\n"),),
        captures=True,
    ),
    Mutant(
        "products rounded before their sum",
        "bilinear rounds the products that it adds up",
        "graph",
        "export/convert/linalg.py",
        (("        parts.append(b.wide(t))\n", "        parts.append(t)\n"),),
    ),
    Mutant(
        "complex halves rounded early",
        "complex numbers of half types are multiplied in half types",
        "graph",
        "export/convert/complex.py",
        (("(b.wide(t) if isinstance(t, Value) else t for t in (a, p, c, q))", "(a, p, c, q)"),),
        sweep="mends",
    ),
    Mutant(
        "views as traced",
        "what torch.export makes a copy of is one, although eager has a view",
        "graph",
        "export/eager_views.py",
        (("    if is_composite(node) and x in node.args:\n", "    if False:\n"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "views read behind a write",
        "a view matters only if it is written through, not if it is read behind a write",
        "graph",
        "export/aliases.py",
        (("    behind = [n for n in nodes if any(", "    behind = [n for n in nodes if False and any("),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "parts of lists",
        "a write to one of split's parts is none to what was split",
        "graph",
        "export/aliases.py",
        (("    if node.target is operator.getitem and", "    if False and"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "one small size at a time",
        "a view that two sizes of 1 make is not tried",
        "graph",
        "export/capture/small/small_views.py",
        (("range(1, _AT_ONCE + 1)", "range(1, 2)"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "layouts as traced",
        "a view is one, or a copy, by the strides that torch.export traced",
        "graph",
        "export/capture/eager_layouts.py",
        (("    if not traced:\n", "    if True:\n"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "scatters into windows",
        "diagonal_scatter of windows that overlap replaces single elements",
        "graph",
        "export/capture/expanded_writes.py",
        (("return not _is_expanded(x) and _overlaps(x)", "return False"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "questions at a prompt",
        "conditions of a model without a file are torch's own",
        "graph",
        "export/capture/torch_patches/guard_lines.py",
        (("not file.startswith((_TORCH, *GENERATED))", 'not file.startswith((_TORCH, "<"))'),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "slices that begin before the start",
        "a slice that begins before the start is as long as others",
        "graph",
        "export/convert/views.py",
        (
            ("else _SliceBound(at, limited, None)", "else _SliceBound(limited, limited, None)"),
            ('    b.require("eq", count, length, f"{b.origin.op} has the size that torch traced")\n', ""),
        ),
        sweep="mends",
    ),
    Mutant(
        "power of one number",
        "the norm of one number is the root of its power",
        "graph",
        "export/convert/reductions.py",
        (("    if p not in (0.0, 1.0, math.inf, -math.inf):\n", "    if False:\n"),),
        sweep="mends",
    ),
    Mutant(
        "GPU: one rounding for two",
        "float64 becomes a half type at once",
        "interpreter",
        "codegen/backends/triton/triton_spelling.py",
        (("a if source in (DType.F32, *HALF) else", "a if source in (DType.F32, DType.F64, *HALF) else"),),
    ),
    Mutant(
        "GPU: float64 compared as float32 has it",
        "a number that float32 has not is compared as what float32 has of it",
        "interpreter",
        "codegen/backends/triton/triton_spelling.py",
        (("takes_type = single == value or math.isnan(value)", "takes_type = True"),),
        sweep="mends",
    ),
    Mutant(
        "GPU: another walk's value",
        "a nest that joins another's walk reads before the store",
        "interpreter",
        "codegen/schedule/gpu_values.py",
        (
            (
                "if s.buffer in stored and (reduces or s.index[0] is not value_offset.get(s.buffer)):",
                "if s.buffer in stored and reduces:",
            ),
        ),
    ),
    Mutant(
        "small sizes laid out otherwise",
        "small sizes are tried in row-major order, whatever the layout of the example",
        "graph",
        "export/capture/small/runs.py",
        (("order = contract_order(leaf)\n", "order = tuple(range(leaf.dim()))\n"),),
        captures=True,
        sweep="writes",
    ),
    Mutant(
        "views by schemas alone",
        "what an op gives back is a view only if torch's schema says so",
        "graph",
        "export/aliases.py",
        (("[x for x in operands if _memory(x) & _memory(node)]", "[]"),),
        captures=True,
        sweep="writes",
    ),
    Mutant(
        "sizes fixed by a condition as literals",
        "a size that a condition fixes for the example is taken for a number of the model",
        "graph",
        "export/sizes/literals.py",
        ((" and not expression.is_number and _stays(made, given):", " and not expression.is_number:"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "transposed examples",
        "a model that asks for strides is not tried with those of the example",
        "graph",
        "export/capture/capture.py",
        (("if laid_out is not None and differs_as_laid_out(found.ep, module, laid_out):", "if False:"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "one of two layouts",
        "a tensor that is row-major and channels_last at once is tried with the strides of one of them",
        "graph",
        "export/capture/small/runs.py",
        (("if others else inputs", "if False else inputs"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "moved dimensions as reshapes",
        "a permuted tensor without elements is asked whether a moved dimension is a reshape",
        "graph",
        "export/decompose/reshape_writes.py",
        (('        torch.empty_strided(sizes, strides, device="meta").view(wanted)  # type: ignore[arg-type]\n', ""),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "one number first as it is",
        "a number of another type before a half tensor is not rounded to the half type",
        "graph",
        "export/convert/pointwise.py",
        (("    if isinstance(x, Value) and dtype.is_half:\n", "    if False:\n"),),
        sweep="mends",
    ),
    Mutant(
        "the angle of minus zero",
        "the angle of a real number is that of a complex one, which is pi for -0",
        "graph",
        "export/convert/powers.py",
        (
            (
                'angle = b.where(b.pw("lt", x, 0), math.pi, 0.0, dtype)',
                'angle = b.pw("atan2", b.full(x.shape, 0, dtype), b.to(x, dtype))',
            ),
        ),
        sweep="mends",
    ),
    Mutant(
        "division by one number rounded twice",
        "a quotient of half types by one number is rounded before its fraction is cut",
        "graph",
        "export/convert/pointwise.py",
        (("if result.is_half and _is_one(y):", "if False:"),),
        sweep="mends",
    ),
    Mutant(
        "ldexp as a product",
        "ldexp of floats and integers is a product with a power in float32",
        "graph",
        "export/decompose/decompositions.py",
        (
            (
                "    if x.is_floating_point() and not exponent.is_floating_point() and exponent.dtype",
                "    if exponent.dtype is None and exponent.dtype",
            ),
        ),
        captures=True,
        sweep="dtypes",
    ),
    Mutant(
        "questions about strides unheard",
        "a model that asks for strides is not run with others that callers may give",
        "graph",
        "export/capture/capture.py",
        (("    if differs_by_strides(found.ep, module, prepared):", "    if False:"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "recurrences row-major",
        "with batch_first the result of a recurrence is traced as row-major, and is transposed in eager",
        "graph",
        "export/capture/torch_patches/whole_shapes.py",
        (
            (
                "return found.transpose(0, 1) if batch_first",
                "return x.new_empty((batch, steps, found.shape[-1])) if batch_first",
            ),
        ),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "strides asked as traced",
        "what a model asks of strides is answered by those that torch traced",
        "graph",
        "export/capture/capture.py",
        (
            ("    apart = differs_on_example(found.ep, module, prepared)\n", "    apart = False\n"),
            ("    if other is not None and (apart", "    if False and (apart"),
        ),
        captures=True,
        sweep="strides",
    ),
    Mutant(
        "states untried",
        "what a size does to states is not compared",
        "graph",
        "export/capture/small/runs.py",
        (("        for name in {**found.states, **want.states}:\n", "        for name in ():\n"),),
        captures=True,
        sweep="sizes",
    ),
    Mutant(
        "noise of one sign",
        "small sizes are tried with a few numbers near zero",
        "graph",
        "export/capture/small/runs.py",
        (("        for factor in _NOISE:\n", "        for factor in _NOISE[:1]:\n"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "any factor in weights",
        "a factor of zero, or one that weights cannot take, is folded into them",
        "graph",
        "export/rewrite/affine.py",
        (("target, scale) if plain else None", "target, scale)"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "images laid out once",
        "sizes of 1 at which an image is row-major and channels_last are not tried, where a view is written",
        "graph",
        "export/capture/capture.py",
        ((", *layout_decisions(ep)]", "]"),),
        captures=True,
        sweep="mends",
    ),
    Mutant(
        "inner bias as it lies",
        "the part of a GRU's bias that stands inside its reset is read as if its elements were adjacent",
        "cpu",
        "codegen/lower/recurrence.py",
        (("    if bias.strides[0] is not ONE:\n", "    if False:\n"),),
        sweep="mends",
    ),
    Mutant(
        "products beyond 64 bits",
        "products with an int that a call gives are what is left of them in 64 bits",
        "cpu",
        "export/sizes/shapes.py",
        ((" and size.free_symbols & self._ints:", " and False:"),),
        sweep="mends",
    ),
    Mutant(
        "ints beyond floats",
        "an int that a call gives may be one that floating point has not",
        "cpu",
        "export/interface.py",
        (("        hi = LARGEST_INT if hi is None else min(hi, LARGEST_INT)\n", "        pass\n"),),
        sweep="numbers",
    ),
    Mutant(
        "memory taken while it is read",
        "a write takes the memory of a value that is read behind it",
        "cpu",
        "codegen/lower/in_place.py",
        (("    return next((name for k, name in readers if k > place), None)\n", "    return None\n"),),
    ),
    Mutant(
        "read behind a write",
        "what reads a state is computed behind a write to it",
        "cpu",
        "codegen/passes/shared/inline.py",
        (
            (
                "        if old in producer.reads() and any(at < k <= last for k in writers[new]):\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "part at another place",
        "a part that is joined with other parts of a value is written to it, wherever these lie",
        "cpu",
        "export/rewrite/part_writes.py",
        ((' and piece.expr_attr("start") is at', ""),),
        captures=True,
    ),
    Mutant(
        "matrices picked by another dimension",
        "a product is taken to have its batch from an index along another of its dimensions",
        "cpu",
        "codegen/lower/picked_products.py",
        (("index[first] is not at[0] or any(axes[0] in free_syms(e) for e in rest)", "False"),),
    ),
    Mutant(
        "a matrix below zero",
        "an index below zero picks what lies in front of the matrices",
        "cpu",
        "codegen/templates/cpp/picked.h",
        (("(pick < 0 ? pick + count : pick)", "pick"),),
        calls="ht::gemm_picked",
    ),
)


def text_of(mutant: Mutant) -> str:
    """The mutant's file as it is."""
    return (ROOT / mutant.file).read_text(encoding="utf-8")


def changed(mutant: Mutant) -> str:
    """The mutant's file with its words. ValueError where those that they replace are not there once."""
    text = text_of(mutant)
    for words, others in mutant.edits:
        if text.count(words) != 1:
            raise ValueError(f"mutant {mutant.name!r}: {mutant.file} has {words!r} {text.count(words)} times, not once")
        text = text.replace(words, others)
    return text


def module_of(mutant: Mutant) -> str | None:
    """The Python module that the mutant changes; None for a kernel template."""
    if not mutant.file.endswith(".py"):
        return None
    room, _, rest = mutant.file.removesuffix(".py").partition("/")
    return f"{ROOMS[room]}/{rest}".replace("/", ".")
