"""Mutants of the code generator: lowering, scheduling, templates. Half of them take out a mend."""

from __future__ import annotations

from tests.fuzz.mutant import Mutant

CODEGEN: tuple[Mutant, ...] = (
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
        "sizes for the factor",
        "interpolate takes the ratio of sizes where a factor was given",
        "cpu",
        "codegen/lower/resize.py",
        (("        if d.scale is not None\n        else b.compute", "        if False\n        else b.compute"),),
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
        "inner bias as it lies",
        "the part of a GRU's bias that stands inside its reset is read as if its elements were adjacent",
        "cpu",
        "codegen/lower/recurrence.py",
        (("    if bias.strides[0] is not ONE:\n", "    if False:\n"),),
        sweep="mends",
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
    Mutant(
        "a state that takes over another one's content",
        "what lies in one state's memory at the end is not copied to another state",
        "cpu",
        "codegen/plan/planner.py",
        (("if lowered.in_place.get(value) != s]", "if value not in lowered.in_place]"),),
    ),
    Mutant(
        "picked from what is overwritten",
        "a product reads the matrices that it picks behind a write to them",
        "cpu",
        "codegen/lower/picked_products.py",
        (("    if base_of(low.producers, source) in low.overwritten:\n", "    if False:\n"),),
    ),
    Mutant(
        "zero points of filters",
        "zero points of a convolution's weights are left out",
        "cpu",
        "codegen/passes/shared/integer_products.py",
        (('    if op.kind == "conv" and b.zero is not None and b.zeros != (0, 0):\n', "    if False:\n"),),
        sweep="quantised",
    ),
    Mutant(
        "codes that were rounded",
        "what rounds numbers on their way from codes to a product is left out",
        "cpu",
        "codegen/passes/shared/affine_codes.py",
        ((' and op.kind != "mul" and not rounds)', ' and op.kind != "mul")'),),
        sweep="mends",
    ),
    Mutant(
        "padding of codes",
        "a convolution of codes pads with 0, which is not what stands for zero",
        "cpu",
        "codegen/passes/shared/integer_products.py",
        (('attrs["fill"] = zero.value  # one', "pass  # one"),),
        sweep="quantised",
    ),
    Mutant(
        "GPU: columns of the first product",
        "products that are joined all get the biases and scales of the first one",
        "interpreter",
        "codegen/passes/gpu/join_products.py",
        (
            (
                'parts = [p.chain[k].vectors[at].constant if p.chain else "" for p in products]',
                'parts = [one.constant if p.chain else "" for p in products]',
            ),
        ),
        sweep="mends",
    ),
    Mutant(
        "GPU: rows of the first product",
        "products are joined though their rows have different scales",
        "interpreter",
        "codegen/passes/gpu/product_chains.py",
        (
            (
                "vectors.get(k, (x if not isinstance(x, Lit) else (repr(x.value), x.dtype)))",
                "vectors.get(k, ((repr(x.value), x.dtype) if isinstance(x, Lit) else None))",
            ),
        ),
        sweep="mends",
    ),
    Mutant(
        "GPU: a bias for sums that are integers",
        "a product of bytes whose sums stay integers is joined with one that has a bias",
        "interpreter",
        "codegen/passes/gpu/join_products.py",
        (("constants[w], result)", "constants[w])"),),
        sweep="mends",
    ),
    Mutant(
        "GPU: a shift without its row",
        "what is added to all codes of a column counts once, not for each number of the row",
        "interpreter",
        "codegen/backends/triton/triton_code_rows.py",
        (("tl.fma(sum_of_parts(whole), {shift}, total)", "total + {shift}"),),
        sweep="mends",
    ),
)
