"""Philox4x32-10, the counter-based generator of random numbers, in integer ops of the Graph (ADR 0066).

J. K. Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Words are of i64 and from 0 to
2^32 - 1: a product of two has 64 bits, of which wrapping arithmetic keeps all.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.ir.expr import Expr, const, int_value, product
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Value
from hardtack.exporter.errors import Refusal

RNG_STATE = "hardtack.rng"
"""The state of sessions that draw random numbers: i64[2], the seed and how many were drawn."""
_WORD = 0xFFFFFFFF
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def _low(b: Builder, x: Value) -> Value:
    return b.pw("and", x, _WORD)


def _high(b: Builder, x: Value) -> Value:
    return _low(b, b.pw("shr", x, 32))


def philox(b: Builder, counter: Sequence[Value], key: Sequence[Value]) -> tuple[Value, Value, Value, Value]:
    """Four random words for each counter of four words, under a key of two; shapes are broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for n in range(_ROUNDS):
        if n:
            k0, k1 = (_low(b, b.pw("add", k, step)) for k, step in zip((k0, k1), _STEPS, strict=True))
        p, q = b.pw("mul", c0, _FACTORS[0]), b.pw("mul", c2, _FACTORS[1])
        c0, c1 = b.pw("xor", b.pw("xor", _high(b, q), c1), k0), _low(b, q)
        c2, c3 = b.pw("xor", b.pw("xor", _high(b, p), c3), k1), _low(b, p)
    return c0, c1, c2, c3


def words(b: Builder, shape: Sequence[Expr]) -> tuple[Value, Value, Value, Value]:
    """Four random words for each element of a new draw: the counter is how many elements were drawn before, in earlier
    runs and in front of it. Refusal inside of a branch or loop, whose graphs have no states.
    """
    if b.inside:
        raise Refusal("random numbers inside of a branch or loop: draw them in front of it and pass them in")
    if b.rng is None:
        b.rng = b.declare(RNG_STATE, TensorType(DType.I64, (const(2),)))
        if b.rng.name != RNG_STATE:
            raise Refusal(f"the module has a buffer {RNG_STATE}, the name of the state of its seed: rename it")
    seed, before = b.select(b.rng, 0, 0), b.select(b.rng, 0, 1)
    numel = product(tuple(shape))
    # the state is added first: of an index alone the first round would be constants, as large as the draw
    index = b.pw("add", b.iota(numel), b.pw("add", before, plain(b.num_drawn)))
    index = b.reshape(index, tuple(shape))
    b.num_drawn += numel
    none = b.full((), 0, DType.I64)
    return philox(b, (_low(b, index), _high(b, index), none, none), (_low(b, seed), _high(b, seed)))


def state_behind(b: Builder) -> Value:
    """The state when the program has run: the seed, and how many elements were drawn."""
    assert b.rng is not None
    drawn = b.pw("add", b.select(b.rng, 0, 1), plain(b.num_drawn))
    return b.cat([b.slice(b.rng, 0, 0, 1), b.unsqueeze(drawn, 0)], 0)


def plain(e: Expr) -> int | Expr:
    """A number where the expression is one."""
    value = int_value(e)
    return e if value is None else value
