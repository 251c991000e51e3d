"""Functions that products of codes on tensor cores call: Triton text, as in helpers.py.

A fragment is what a lane holds of an operand of `mma.m16n8k16` (PTX ISA, "Matrix Fragments for mma.m16n8k16 with
floating point type"): of the left one rows l/4 and l/4 + 8, of the right one column l/4, of the result rows l/4 and
l/4 + 8 of columns 2 (l % 4) and the next, for lane l. Which of the 16 terms of a sum a lane holds is free, as long as
both operands agree. Values are [threads], 32 for each warp, so that each lane holds its own; a value of two numbers of
16 bits is a u32. HALF: they are f16, else bf16.
"""

from __future__ import annotations

FRAGMENT_HELPERS: dict[str, str] = {
    "pair_of": '''
@triton.jit
def pair_of(low, high):
    """Two numbers of 16 bits in a u32."""
    bits = high.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
    return bits | low.to(tl.uint16, bitcast=True).to(tl.uint32)
''',
    "pair_of_floats": '''
@triton.jit
def pair_of_floats(low, high, HALF: tl.constexpr):
    """Two f32, which 16 bits hold, likewise."""
    if HALF:
        return pair_of(low.to(tl.float16), high.to(tl.float16))
    else:
        return pair_of(low.to(tl.bfloat16), high.to(tl.bfloat16))
''',
    "floats_of_pair": '''
@triton.jit
def floats_of_pair(pair, HALF: tl.constexpr):
    """The two numbers, as f32."""
    if HALF:
        low = pair.to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
        return low, (pair >> 16).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        return (pair << 16).to(tl.float32, bitcast=True), (pair & 0xFFFF0000).to(tl.float32, bitcast=True)
''',
    "pairs_of_halves": '''
@triton.jit
def pairs_of_halves(words, BIAS: tl.constexpr, HALF: tl.constexpr):
    """The eight codes of 4 bits less BIAS of each word, in pairs: 0 and 4, 1 and 5, 2 and 6, 3 and 7."""
    a = pair_of_floats((words & 15).to(tl.float32) - BIAS, ((words >> 16) & 15).to(tl.float32) - BIAS, HALF)
    b = pair_of_floats(((words >> 4) & 15).to(tl.float32) - BIAS, ((words >> 20) & 15).to(tl.float32) - BIAS, HALF)
    c = pair_of_floats(((words >> 8) & 15).to(tl.float32) - BIAS, ((words >> 24) & 15).to(tl.float32) - BIAS, HALF)
    d = pair_of_floats(((words >> 12) & 15).to(tl.float32) - BIAS, (words >> 28).to(tl.float32) - BIAS, HALF)
    return a, b, c, d
''',
    "pairs_of_bytes": '''
@triton.jit
def pairs_of_bytes(words, HALF: tl.constexpr):
    """The four i8 of each word, in pairs: 0 and 1, 2 and 3."""
    signed = words.to(tl.int32, bitcast=True)
    a = pair_of_floats(((signed << 24) >> 24).to(tl.float32), ((signed << 16) >> 24).to(tl.float32), HALF)
    return a, pair_of_floats(((signed << 8) >> 24).to(tl.float32), (signed >> 24).to(tl.float32), HALF)
''',
    "terms_of_sums": '''
@triton.jit
def terms_of_sums(left, right, HALF: tl.constexpr):
    """The products of two fragments' pairs, added up over a row's lanes: [threads] -> [warps, 8 rows, 8 columns]."""
    low, high = floats_of_pair(left, HALF)
    low_right, high_right = floats_of_pair(right, HALF)
    warps: tl.constexpr = left.shape[0] // 32
    products = tl.reshape(low, (warps, 8, 1, 4)) * tl.reshape(low_right, (warps, 1, 8, 4))
    products += tl.reshape(high, (warps, 8, 1, 4)) * tl.reshape(high_right, (warps, 1, 8, 4))
    return tl.sum(products, axis=3)
''',
    "of_lanes": '''
@triton.jit
def of_lanes(sums):
    """[warps, 8 rows, 8 columns] -> two fragments' numbers [threads]: of even and of odd columns."""
    warps: tl.constexpr = sums.shape[0]
    even, odd = tl.split(tl.reshape(sums, (warps, 8, 4, 2)))
    return tl.reshape(even, (32 * warps,)), tl.reshape(odd, (32 * warps,))
''',
    "add_products": '''
@triton.jit
def add_products(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, HALF: tl.constexpr):
    """d + a b of a warp's fragments: a of codes [16 columns, 16 terms], b of rows [16 terms, 8 rows], d of results."""
    low = of_lanes(terms_of_sums(a0, b0, HALF) + terms_of_sums(a2, b1, HALF))
    high = of_lanes(terms_of_sums(a1, b0, HALF) + terms_of_sums(a3, b1, HALF))
    return d0 + low[0], d1 + low[1], d2 + high[0], d3 + high[1]
''',
    "tile_of_fragments": '''
@triton.jit
def tile_of_fragments(d0, d1, d2, d3, WARPS_K: tl.constexpr, WARPS_N: tl.constexpr):
    """Results [threads] -> [8 rows, columns], warps along K added up."""
    parts = tl.reshape(tl.join(tl.join(d0, d2), tl.join(d1, d3)), (WARPS_N, WARPS_K, 8, 4, 2, 2))
    by_place = tl.permute(tl.sum(parts, axis=1), (2, 4, 0, 3, 1))
    return tl.reshape(by_place, (8, 16 * WARPS_N))
''',
}
"""name -> definition, which says what the one below computes, and which Triton's interpreter runs."""

_ADD_PRODUCTS = """
@triton.jit
def add_products(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, HALF: tl.constexpr):
    \"\"\"d + a b of a warp's fragments, by its tensor cores; fragments.py verifies where lanes lie.\"\"\"
    if HALF:
        return tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$4, $5, $6, $7};",
            "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r", [d0, d1, d2, d3, a0, a1, a2, a3, b0, b1],
            (tl.float32, tl.float32, tl.float32, tl.float32), True, 1
        )
    else:
        return tl.inline_asm_elementwise(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$4, $5, $6, $7};",
            "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r", [d0, d1, d2, d3, a0, a1, a2, a3, b0, b1],
            (tl.float32, tl.float32, tl.float32, tl.float32), True, 1
        )
"""
_PAIRS_OF_HALVES = """
@triton.jit
def pairs_of_halves(words, BIAS: tl.constexpr, HALF: tl.constexpr):
    \"\"\"The eight codes of 4 bits less BIAS of each word, in pairs: below the exponent of 2^7 (bf16) or 2^10 (f16) a
    code is what a number has beyond that power, which a product with one and a sum take away.\"\"\"
    if HALF:
        one: tl.constexpr = "0x3c003c00"
        exponent: tl.constexpr = "0x64006400"
        less: tl.constexpr = "0xe408e408" if BIAS else "0xe400e400"
        fma: tl.constexpr = "fma.rn.f16x2"
    else:
        one: tl.constexpr = "0x3f803f80"
        exponent: tl.constexpr = "0x43004300"
        less: tl.constexpr = "0xc308c308" if BIAS else "0xc300c300"
        fma: tl.constexpr = "fma.rn.bf16x2"
    return tl.inline_asm_elementwise(
        "{ .reg .b32 a, b, c, d, one, less; mov.b32 one, " + one + "; mov.b32 less, " + less + "; "
        "lop3.b32 a, $4, 0x000f000f, " + exponent + ", 0xea; shr.u32 b, $4, 4; "
        "lop3.b32 b, b, 0x000f000f, " + exponent + ", 0xea; shr.u32 c, $4, 8; "
        "lop3.b32 c, c, 0x000f000f, " + exponent + ", 0xea; shr.u32 d, $4, 12; "
        "lop3.b32 d, d, 0x000f000f, " + exponent + ", 0xea; "
        + fma + " $0, a, one, less; " + fma + " $1, b, one, less; "
        + fma + " $2, c, one, less; " + fma + " $3, d, one, less; }",
        "=r,=r,=r,=r,r", [words], (tl.uint32, tl.uint32, tl.uint32, tl.uint32), True, 1
    )
"""
_PAIRS_OF_BYTES = """
@triton.jit
def pairs_of_bytes(words, HALF: tl.constexpr):
    \"\"\"The four i8 of each word, in pairs. f16 has places for all of a code's bits below an exponent; in bf16 a code
    is 128 more than its low seven bits, less 128 or, where it is negative, 256.\"\"\"
    if HALF:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t, a, b, one, less; mov.b32 one, 0x3c003c00; mov.b32 less, 0xe480e480; "
            "xor.b32 t, $2, 0x80808080; prmt.b32 a, t, 0x64646464, 0x4140; prmt.b32 b, t, 0x64646464, 0x4342; "
            "fma.rn.f16x2 $0, a, one, less; fma.rn.f16x2 $1, b, one, less; }",
            "=r,=r,r", [words], (tl.uint32, tl.uint32), True, 1
        )
    else:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t, u, a, b, c, d, minus; mov.b32 minus, 0xbf80bf80; "
            "prmt.b32 t, $2, 0, 0x4140; prmt.b32 u, $2, 0, 0x4342; "
            "lop3.b32 a, t, 0x007f007f, 0x43004300, 0xea; lop3.b32 b, t, 0x00800080, 0x43004300, 0xea; "
            "lop3.b32 c, u, 0x007f007f, 0x43004300, 0xea; lop3.b32 d, u, 0x00800080, 0x43004300, 0xea; "
            "fma.rn.bf16x2 $0, b, minus, a; fma.rn.bf16x2 $1, d, minus, c; }",
            "=r,=r,r", [words], (tl.uint32, tl.uint32), True, 1
        )
"""
MMA_HELPERS: dict[str, str] = {
    "add_products": _ADD_PRODUCTS,
    "pairs_of_halves": _PAIRS_OF_HALVES,
    "pairs_of_bytes": _PAIRS_OF_BYTES,
}
"""Those that have another definition on NVIDIA GPUs, in their assembly: what it computes the ones above say."""
