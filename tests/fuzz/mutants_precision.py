"""Mutants of what stores few bits: caches as codes with a scale for each row, weights in blocks of 4 or 8 bits."""

from __future__ import annotations

from tests.fuzz.mutant import Mutant

PRECISION: tuple[Mutant, ...] = (
    Mutant(
        "scales of the rows before",
        "codes that are written to a cache are read with the scales of what was there before",
        "graph",
        "export/precision/cache_codes.py",
        (("return _Pair(made[0], made[1], source.row", "return _Pair(made[0], source.scales, source.row"),),
        sweep="caches",
    ),
    Mutant(
        "scales by the largest number",
        "the scale of a row is that of its largest number, whatever is below zero",
        "graph",
        "export/precision/cache_codes.py",
        (('made("reduce", made("abs", wide), kind', 'made("reduce", wide, kind'),),
        sweep="caches",
    ),
    Mutant(
        "a cache as it was before the run",
        "a session goes on with what a cache had before the run",
        "graph",
        "export/precision/cache_codes.py",
        (("None if s.final is None else self._pairs[s.final]", "None if s.final is None else self._pairs[s.name]"),),
        sweep="caches",
    ),
    Mutant(
        "rows behind a permutation",
        "the dimension of a row is looked for in a permutation the wrong way round",
        "graph",
        "export/precision/cache_codes.py",
        (('return op.tuple_attr("dims").index(row)', 'return op.tuple_attr("dims")[row]'),),
        sweep="caches",
    ),
    Mutant(
        "scales of keys for values",
        "attention reads values with the scales of keys",
        "graph",
        "export/precision/cache_codes.py",
        (
            (
                "for p, x in zip(pairs, (given.k, given.v), strict=True)",
                "for p, x in zip(pairs[:1] * 2, (given.k, given.v))",
            ),
        ),
        sweep="caches",
    ),
    Mutant(
        "windows and averages as caches",
        "a state to which what is computed of its own rows is written is a cache",
        "graph",
        "export/precision/caches.py",
        (("        if op.inputs[1] in own:\n", "        if False:\n"),),
        sweep="caches",
    ),
    Mutant(
        "recurrent states as caches",
        "a product of a state's rows with a weight is none of its own rows",
        "graph",
        "export/precision/caches.py",
        (("(op.kind in _PRODUCTS and fixed.isdisjoint(read))", "(op.kind in _PRODUCTS)"),),
        sweep="caches",
    ),
    Mutant(
        "sums as caches",
        "a state to which rows are added is a cache",
        "graph",
        "export/precision/caches.py",
        (('        if op.bool_attr("accumulate"):\n', "        if False:\n"),),
        sweep="caches",
    ),
    Mutant(
        "written one position further",
        "rows that a slice writes stand one further than the slice begins",
        "graph",
        "export/rewrite/part_writes.py",
        (
            (
                'index = edit.emit("add", index, _place(part.begin), like=op)',
                'index = edit.emit("add", index, _place(part.begin + ONE), like=op)',
            ),
        ),
        sweep="caches",
    ),
    Mutant(
        "written through a view as it lies",
        "what is written to a transposed view of a state is written along the state's own dimensions",
        "graph",
        "export/rewrite/part_writes.py",
        (("            found[point.index(i)] = e\n", "            found[e] = e\n"),),
        sweep="caches",
    ),
    Mutant(
        "halves of a byte swapped",
        "of two codes of 4 bits in a byte the first is in the high half",
        "cpu",
        "codegen/plan/prepack.py",
        (
            ("out = np.ascontiguousarray(panels[:, ::2])\n", "out = np.ascontiguousarray(panels[:, ::2]) << 4\n"),
            ("|= panels[:, 1::2] << 4\n", "|= panels[:, 1::2]\n"),
        ),
        sweep="blocks",
    ),
    Mutant(
        "the other half of a byte",
        "a code of 4 bits that is picked is its neighbour's",
        "cpu",
        "codegen/lower/code_matrix.py",
        (("b.index(mod(at[-1], 2) * 4)", "b.index(mod(at[-1] + 1, 2) * 4)"),),
        sweep="blocks",
    ),
    Mutant(
        "a product without the factor",
        "a product leaves out the number that all scales of a weight are multiplied with",
        "cpu",
        "codegen/lower/cpu_quantized.py",
        (("CodeStep(s.kind, s.result, s.factor is not None)", "CodeStep(s.kind, s.result, False)"),),
        sweep="blocks",
    ),
    Mutant(
        "scales of the other dimension",
        "the scale of a block is read as if blocks lay along the other dimension",
        "cpu",
        "codegen/lower/code_matrix.py",
        (("        along_k, along_n = (math", "        along_n, along_k = (math"),),
        sweep="blocks",
    ),
)
