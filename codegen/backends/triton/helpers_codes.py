"""Functions that kernels call for weights of few bits, and for floats of 8 bits: Triton text, as in helpers.py."""

from __future__ import annotations

CODE_HELPERS: dict[str, str] = {
    "float_of_e4m3": '''
@triton.jit
def float_of_e4m3(a):
    """The number of a code of float8_e4m3fn."""
    code = a.to(tl.int32)
    size = code & 0x7F
    number = (size << 20).to(tl.float32, bitcast=True) * 1.329227995784916e36  # 2^120, the difference of exponents
    bits = tl.where(size == 0x7F, 0x7FF00000, number.to(tl.int32, bitcast=True))
    return (bits | ((code & 0x80) << 24)).to(tl.float32, bitcast=True)
''',
    "float_of_e5m2": '''
@triton.jit
def float_of_e5m2(a):
    """The number of a code of float8_e5m2."""
    code = a.to(tl.int32)
    size = code & 0x7F
    number = (size << 21).to(tl.float32, bitcast=True) * 5.192296858534828e33  # 2^112
    bits = number.to(tl.int32, bitcast=True)
    bits = tl.where(size < 0x7C, bits, tl.where(size == 0x7C, 0x7F800000, 0x7FC00000))
    return (bits | ((code & 0x80) << 24)).to(tl.float32, bitcast=True)
''',
    "float_of_e8m0": '''
@triton.jit
def float_of_e8m0(a):
    """The number of a code of float8_e8m0fnu, 2^(code - 127); 255 is NaN."""
    code = a.to(tl.int32)
    bits = tl.where(code == 0, 0x00400000, tl.where(code == 0xFF, 0x7FC00000, code << 23))
    return bits.to(tl.float32, bitcast=True)
''',
    "e8m0_of_float": '''
@triton.jit
def e8m0_of_float(a):
    """The code of the nearest float8_e8m0fnu, ties to the larger; that of 0 is the least, of infinity NaN."""
    bits = a.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    up = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
    return tl.where(exponent == 0xFF, 0xFF, exponent + up.to(tl.int32)).to(tl.uint8)
''',
    "e4m3_of_float": '''
@triton.jit
def e4m3_of_float(a):
    """The code of the nearest float8_e4m3fn, ties to even; what lies beyond the largest gives that."""
    bits = a.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    code = (size + (0x7FFFF - (120 << 23)) + ((size >> 20) & 1)) >> 20
    code = tl.where(code < 0x7E, code, 0x7E)
    # beside 2^14 a float has steps of 2^-9, as the smallest numbers of float8: the sum is rounded to these
    tiny = (size.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True) - (141 << 23)
    code = tl.where(size < (121 << 23), tiny, code)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
''',
    "e5m2_of_float": '''
@triton.jit
def e5m2_of_float(a):
    """The code of the nearest float8_e5m2, ties to even."""
    bits = a.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    code = (size + (0xFFFFF - (112 << 23)) + ((size >> 21) & 1)) >> 21
    code = tl.where(code < 0x7C, code, 0x7C)
    # beside 2^7 a float has steps of 2^-16
    tiny = (size.to(tl.float32, bitcast=True) + 128.0).to(tl.int32, bitcast=True) - (134 << 23)
    code = tl.where(size < (113 << 23), tiny, code)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
''',
    "quarters": '''
@triton.jit
def quarters(a):
    """The four of a's last dimension, without it."""
    even, odd = tl.split(tl.reshape(a, a.shape[:-1] + (2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth
''',
    "eighths": '''
@triton.jit
def eighths(a):
    """The eight of a's last dimension, without it."""
    even, odd = tl.split(tl.reshape(a, a.shape[:-1] + (4, 2)))
    a0, a2, a4, a6 = quarters(even)
    a1, a3, a5, a7 = quarters(odd)
    return a0, a1, a2, a3, a4, a5, a6, a7
''',
    "sum_of_parts": '''
@triton.jit
def sum_of_parts(a):
    """a [lanes, warps along K, N, C, quads] -> [N, C]: the quads of a lane first, then those of all lanes and warps."""
    return tl.sum(tl.sum(tl.sum(a, axis=4), axis=0), axis=0)
''',
    "code_at": '''
@triton.jit
def code_at(words, hidden, BITS: tl.constexpr, PLACE: tl.constexpr, FLIPPED: tl.constexpr, BIAS: tl.constexpr):
    """The code less BIAS that lies PLACE bits up in each word, as f32, 2^PLACE too large; FLIPPED: its sign bit, or 0.

    A code becomes float where it lies: below the exponent of 2^23 its bits count so much as their place says, for one
    instruction that combines three numbers and a subtraction. Conversions of integers take four times as long.
    `hidden` is zero, of which the compiler does not know: it would take two instructions for two known numbers."""
    bits = (words & (((1 << BITS) - 1) << PLACE)) ^ (0x4B000000 + (FLIPPED << PLACE) + hidden)
    return bits.to(tl.float32, bitcast=True) - (8388608.0 + (BIAS << PLACE))
''',
    "e4m3_at": '''
@triton.jit
def e4m3_at(words, PLACE: tl.constexpr):
    """The number of the float8_e4m3fn that lies PLACE bits up in each word."""
    top = (words << (24 - PLACE)).to(tl.int32, bitcast=True)
    number = ((top >> 4) & -0x78100000).to(tl.float32, bitcast=True) * 1.329227995784916e36
    return tl.where(tl.abs(number) == 480.0, float("nan"), number)
''',
    "e5m2_at": '''
@triton.jit
def e5m2_at(words, PLACE: tl.constexpr):
    """The number of the float8_e5m2 that lies PLACE bits up in each word."""
    top = (words << (24 - PLACE)).to(tl.int32, bitcast=True)
    number = ((top >> 3) & -0x70200000).to(tl.float32, bitcast=True) * 5.192296858534828e33
    special = tl.where(tl.abs(number) == 65536.0, number * float("inf"), float("nan"))
    return tl.where(tl.abs(number) < 65536.0, number, special)
''',
    "fours_of_e4m3": '''
@triton.jit
def fours_of_e4m3(words):
    """The numbers of the four float8_e4m3fn in each word, as f32."""
    return e4m3_at(words, 0), e4m3_at(words, 8), e4m3_at(words, 16), e4m3_at(words, 24)
''',
    "fours_of_e5m2": '''
@triton.jit
def fours_of_e5m2(words):
    """The numbers of the four float8_e5m2 in each word, as f32."""
    return e5m2_at(words, 0), e5m2_at(words, 8), e5m2_at(words, 16), e5m2_at(words, 24)
''',
    "e2m1_at": '''
@triton.jit
def e2m1_at(words, PLACE: tl.constexpr):
    """The number of the float4_e2m1 that lies PLACE bits up in each word."""
    top = (words << (28 - PLACE)).to(tl.int32, bitcast=True)
    return ((top >> 6) & -0x7E400000).to(tl.float32, bitcast=True) * 8.507059173023462e37
''',
    "float4_of_bytes": '''
@triton.jit
def float4_of_bytes(bytes):
    """The float4_e2m1 of bytes [N, W], as f32 [N, 2 W]: the low half of a byte comes first."""
    both = tl.join(bytes & 15, (bytes >> 4) & 15)
    return e2m1_at(tl.reshape(both, (bytes.shape[0], 2 * bytes.shape[1])).to(tl.uint32), 0)
''',
    "halves_of_bytes": '''
@triton.jit
def halves_of_bytes(bytes, BIAS: tl.constexpr):
    """The codes of 4 bits less BIAS of bytes [N, W], as f32 [N, 2 W]: the low half of a byte comes first."""
    both = tl.join(bytes & 15, (bytes >> 4) & 15)
    return tl.reshape(both, (bytes.shape[0], 2 * bytes.shape[1])).to(tl.float32) - BIAS
''',
}
"""name -> definition."""

_FOURS = """
@triton.jit
def fours_of_{0}(words):
    \"\"\"The numbers of the four {1} in each word, as f32: two become f16 at once, which loses nothing.\"\"\"
    return tl.inline_asm_elementwise(
        "{{ .reg .b16 low, high, a, b, c, d; .reg .b32 first, second; mov.b32 {{low, high}}, $4; "
        "cvt.rn.f16x2.{0}x2 first, low; cvt.rn.f16x2.{0}x2 second, high; "
        "mov.b32 {{a, b}}, first; mov.b32 {{c, d}}, second; "
        "cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; cvt.f32.f16 $2, c; cvt.f32.f16 $3, d; }}",
        "=f,=f,=f,=f,r", [words], (tl.float32, tl.float32, tl.float32, tl.float32), True, 1
    )
"""
_NUMBER = """
@triton.jit
def float_of_{0}(a):
    \"\"\"The number of a code of {1}.\"\"\"
    return a.to(tl.uint8).to(tl.{2}, bitcast=True).to(tl.float16).to(tl.float32)
"""
FLOAT8_HELPERS: dict[str, str] = {
    "e4m3_of_float": """
@triton.jit
def e4m3_of_float(a):
    \"\"\"The code of the nearest float8_e4m3fn, ties to even; what lies beyond the largest gives that.\"\"\"
    return a.to(tl.float32).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
""",
    "float_of_e4m3": _NUMBER.format("e4m3", "float8_e4m3fn", "float8e4nv"),
    "float_of_e5m2": _NUMBER.format("e5m2", "float8_e5m2", "float8e5"),
    "fours_of_e4m3": _FOURS.format("e4m3", "float8_e4m3fn"),
    "fours_of_e5m2": _FOURS.format("e5m2", "float8_e5m2"),
}
"""Those that have another definition where NVIDIA's tensor cores multiply float8: instructions convert it there."""
