"""Decoders with caches of keys and values, and states beside them that look like caches and are none.

A decoder is put together of spellings: how many layers share a buffer, where tokens and heads lie in it, how rows are
written, what reads them and when. What is written to a cache goes through `stored`, which eager has as what codes of
Options.cache stand for (program.py); nothing else does, so that a state which wrongly becomes a cache, or a cache that
is left as it is, gives other numbers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fuzz.families.forms import rows
from tests.fuzz.program import Line, Program, Weight
from tests.fuzz.tensors import TensorSpec

WORDS = ("int8", "int8", "fp8", "fp8", "")
"""Options.cache; "" leaves all as it is."""
ORDERS = ("bgsd", "bgsd", "bsgd", "bsgd", "sbgd", "gbsd")
"""Batch, heads, tokens and elements of a row, as a cache has them."""
SHARED = {"each": "", "stacked": "{i}", "joined": "{i}, {kv}", "sides": "{kv}, {i}", "flat": "{flat}"}
"""Which part of a buffer is the keys or values of a layer."""

WRITES = rows("""
    {c}.index_copy_({s}, {pos}, {w})  *3
    {c}[{at}{pos}] = {w}  *3
    {c}.index_put_(({at_all}{pos},), {w_all})
    {c}[{at}:{t}] = {w}
    {c}.narrow({s}, 0, {t}).copy_({w})
    {c}[{at}{S} - {t}:] = {w}
    {c}.transpose(0, {s}).index_copy_(0, {pos}, {w}.transpose(0, {s}))
    {c}.movedim({s}, 0)[{pos}] = {w}.movedim({s}, 0)
    {c}.unbind({s})[1].copy_({w}.select({s}, 0)); {c}[{at}{pos}] = {w}
    {c}.copy_({c}.index_copy({s}, {pos}, {w}))
    {c}.copy_(torch.index_put({c}, ({at_all}{pos},), {w_all}))
    {c}[{at}1:] = 0; {c}[{at}{pos}] = {w}
    {c}.select({s}, 1).copy_({w}.select({s}, 0)); {c}.index_copy_({s}, {pos}, {w})
    {c}[{at}{pos}] = {w}; {c}[{at}:1] = 0
""")
"""{c}: the cache; {s}: where its tokens are; {at}: colons up to there; {w}: what is written, as the cache lies."""
READS = rows("""
    F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={seen}, enable_gqa=True)  *4
    F.scaled_dot_product_attention({q}, {k_many}, {v_many}, attn_mask={seen})  *3
    (({q} @ {k_many}.mT) * 0.3).masked_fill(~{seen}, -1e4).softmax(-1) @ {v_many}  *2
    torch.einsum("bhts,bhsd->bhtd", torch.einsum("bhtd,bhsd->bhts", {q}, {k_many}).softmax(-1), {v_many})
    F.scaled_dot_product_attention({q}, {k}[:, :, 2:], {v}[:, :, 2:], enable_gqa=True)
    F.scaled_dot_product_attention({q}, {k}.flip(2), {v}.flip(2), enable_gqa=True)
    F.scaled_dot_product_attention({q}, {k}.index_select(2, {picks}), {v}[:, :, {picks}], enable_gqa=True)
    F.scaled_dot_product_attention({q}[..., :4], {k}[..., :4], {v}, attn_mask={seen}, enable_gqa=True)
    F.scaled_dot_product_attention({q}, {k} * 2, {v}, enable_gqa=True) + {q} @ {k_many}.mT @ {v_many}.relu() * 0.1
    F.scaled_dot_product_attention({q}, {k}, {k}, attn_mask={seen}, enable_gqa=True) + ({q} @ {v_many}.mT).sum() * 0.1
    F.scaled_dot_product_attention({q}, {v}, {k}, attn_mask={seen}, enable_gqa=True)
""")
"""{q}, {k}, {v}: [batch, heads, tokens, elements]; {k_many}: with the heads of q."""
MANY = rows("""
    {x}[:, :, None].expand({B}, {G}, {R}, {S}, {D}).reshape({B}, {H}, {S}, {D})
    {x}.repeat_interleave({R}, 1)
    {x}[:, {heads}]
    {x}.unsqueeze(2).repeat(1, 1, {R}, 1, 1).flatten(1, 2)
""")
BESIDE = rows("""
    {c}.sum()
    {c}[..., :3].square().mean()
    {c}.amax(-1)
    {c}.flatten(-2)
    {c}.select({s}, 2)
    {c}.float()
    {c}.mT
    {c}.permute(1, 3, 0, 2) * 2
    {c}.reshape(-1)[5:9]
    {c} + 1
""")
"""What else reads a cache."""
ALIKE = rows("""
    {p}.mul_(0.9).add_({row} * 0.1)
    {p}.lerp_({row}, 0.1)
    {p}[0].mul_(0.5).add_({row}[0])
    {p}[:1] = ({p}[:1] @ {square}).tanh() + {row}[:1]
    {p}[1] = {p}[1] * 0.5 + {row}[0]
    {p}.add_(1)
    {p}.copy_({row} * 0.5)
    {p}.copy_(torch.cat([{p}[1:], {row}[:1]]))
    {p}.copy_({p}.roll(1, 0)); {p}[0] = {row}[0]
    {p}[:, :2] = {row}[:, :2]
    {p}[2] += {row}[0]
    {p}.copy_({p}[{order}])
    {p}.index_add_(0, {order}[:1], {row}[:1])
    {p}[0].copy_({p}[1]); {p}[1].copy_({row}[0])
    {p}.clamp_(-0.5, 0.5)
    {p}.scatter_(0, {order}[:1, None].expand(1, 3), {row}[:1])
""")
"""Writes to a state [4, elements] that is no cache, though a product reads it."""


@dataclass
class _Sizes:
    """Of a decoder: batch, heads of keys, queries to each, tokens that a cache has, elements of a row, layers."""

    B: int
    G: int
    R: int
    S: int
    D: int
    layers: int

    @property
    def H(self) -> int:
        return self.G * self.R

    def of(self, letters: str) -> tuple[int, ...]:
        return tuple({"b": self.B, "g": self.G, "s": self.S, "d": self.D}[x] for x in letters)


@dataclass
class _Decoder:
    """A program in the making."""

    r: random.Random
    n: _Sizes
    dtype: str
    tokens: int | str
    order: str
    weights: list[Weight] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    inputs: list[TensorSpec] = field(default_factory=list)
    values: int = 0

    def add(self, text: str) -> str:
        """A line; the name of its value."""
        self.lines.append(Line(text, (f"v{self.values}",), "caches"))
        self.values += 1
        return f"v{self.values - 1}"

    def write(self, text: str) -> None:
        self.lines += [Line(part.strip(), (), "caches") for part in text.split(";")]

    def weight(self, shape: Sequence[int], fill: str = "", dtype: str = "", limits: tuple[int, ...] = ()) -> str:
        fill = fill or self.r.choice(("zeros", "zeros", "normal"))
        name = f"p{len(self.weights)}"
        spec = TensorSpec(name, tuple(shape), dtype or self.dtype, fill, self.r.randrange(10**6), limits=limits)
        self.weights.append(Weight(spec, "buffer"))
        return f"self.{name}"

    def input(self, shape: Sequence[int | str], dtype: str = "", fill: str = "normal", *limits: int) -> str:
        name = f"x{len(self.inputs)}"
        layouts = ("dense", "dense", "dense", "permuted", "offset") if fill == "normal" else ("dense",)
        seed, layout = self.r.randrange(10**6), self.r.choice(layouts)
        self.inputs.append(TensorSpec(name, tuple(shape), dtype or self.dtype, fill, seed, layout, limits))
        return name


def cache_form(seed: int) -> Program:
    """The program of a seed."""
    r = random.Random(f"{seed} caches")
    n = _Sizes(
        r.choice((1, 1, 2)), r.choice((1, 2, 3)), r.choice((1, 2, 3)), r.choice((9, 16, 24)),
        r.choice((5, 8, 16, 16, 17, 32)), r.choice((1, 1, 1, 2)),
    )  # fmt: skip
    dynamic = r.choice(("", "auto"))
    d = _Decoder(
        r, n, r.choice(("float32", "float32", "bfloat16", "float16")), "n" if dynamic else r.choice((1, 2, 3)),
        r.choice(ORDERS),
    )  # fmt: skip
    caches, outputs = _decoded(d)
    for _ in range(r.choice((0, 1, 1, 2))):
        outputs.append(_alike(d))
    return Program(
        seed, tuple(d.inputs), tuple(d.weights), (), tuple(d.lines), tuple(outputs),
        (("n", 3),) if dynamic else (), dynamic, tuple("caches" for _ in d.lines),
        rows=tuple((("n", k),) for k in (1, n.S)) if dynamic else (),
        cache=r.choice(WORDS), caches=tuple(c.removeprefix("self.") for c in caches),
    )  # fmt: skip


def _decoded(d: _Decoder) -> tuple[list[str], list[str]]:
    """The layers: the buffers that are caches, and the outputs."""
    r, n = d.r, d.n
    q, k, v = (d.input((n.B, d.tokens, heads, n.D)) for heads in (n.H, n.G, n.G))
    pos = d.add(f"({d.input((d.tokens,), 'int64', 'permutation', n.S)} + {d.input((), 'int64')}) % {n.S}")
    shared = r.choice(tuple(SHARED))
    buffers = _buffers(d, shared)
    write, q = r.choice(WRITES), d.add(f"{q}.transpose(1, 2)")
    outputs: list[str] = []
    for i in range(n.layers):
        parts = [_part(shared, buffers, i, kv, n.layers) for kv in (0, 1)]
        if r.random() < 0.3:
            k = d.add(r.choice((f"{k} * 0.7", f"{k}.flip(-1)", f"{k} @ {d.weight((n.D, n.D), 'normal')} * 0.3")))
        when = r.choice(("before", "before", "before", "behind", "both"))
        if when != "before":
            outputs.append(_read(d, parts, q, pos))
        for part, x in zip(parts, (k, v), strict=True):
            d.write(_written(d, write if r.random() < 0.7 else r.choice(WRITES), part, x, pos))
        if when != "behind":
            outputs.append(_read(d, parts, q, pos))
        if r.random() < 0.6:
            q = d.add(f"{q} + {outputs[-1]}")
        if r.random() < 0.4:
            outputs.append(d.add(r.choice(BESIDE).format(c=r.choice(parts), s=d.order.index("s"))))
    return list(dict.fromkeys(buffers)), outputs


def _buffers(d: _Decoder, shared: str) -> list[str]:
    """The buffer of each layer's keys and values: keys, values, keys, ..."""
    shape, layers = d.n.of(d.order), d.n.layers
    if shared == "each":
        return [d.weight(shape) for _ in range(2 * layers)]
    if shared == "stacked":
        return [d.weight((layers, *shape)), d.weight((layers, *shape))] * layers
    lead = {"joined": (layers, 2), "sides": (2, layers), "flat": (2 * layers,)}[shared]
    return [d.weight((*lead, *shape))] * (2 * layers)


def _part(shared: str, buffers: Sequence[str], i: int, kv: int, layers: int) -> str:
    at = SHARED[shared].format(i=i, kv=kv, flat=kv * layers + i)
    return f"{buffers[2 * i + kv]}[{at}]" if at else buffers[2 * i + kv]


def _lying(order: str, x: str) -> str:
    """What is given as [batch, tokens, heads, elements], as a cache lies."""
    if order == "bsgd":
        return x
    if order == "bgsd":
        return f"{x}.transpose(1, 2)"
    return f"{x}.permute({', '.join(str('bsgd'.index(a)) for a in order)})"


def _written(d: _Decoder, form: str, part: str, x: str, pos: str) -> str:
    s, n, r = d.order.index("s"), d.n, d.r
    tokens = f"{x}.shape[1]" if isinstance(d.tokens, str) else str(d.tokens)
    outer = [f"torch.arange({size})" for size in n.of(d.order[:s])]
    spread = [f"{a}{'[:, None, None]' if s - k > 1 else '[:, None]'}" for k, a in enumerate(outer)]
    stored = f"stored({_lying(d.order, x)})" if r.random() < 0.6 else _lying(d.order, f"stored({x})")
    return form.format(
        c=part, s=s, S=n.S, pos=pos, t=tokens, at=":, " * s, w=stored,
        at_all="".join(f"{a}, " for a in spread), w_all=stored,
    )  # fmt: skip


def _read(d: _Decoder, parts: Sequence[str], q: str, pos: str) -> str:
    n, r = d.n, d.r
    back = ", ".join(str(d.order.index(a)) for a in "bgsd")
    k, v = (x if d.order == "bgsd" else f"{x}.permute({back})" for x in parts)
    heads = [h // n.R for h in range(n.H)]
    many = r.choice(MANY)
    wide = [many.format(x=x, B=n.B, G=n.G, R=n.R, S=n.S, D=n.D, H=n.H, heads=heads) for x in (k, v)]
    seen = r.choice((f"(torch.arange({n.S}) <= {pos}[:, None])", f"((torch.arange({n.S}) - {pos}[:, None]).abs() < 4)"))
    form = r.choice(READS)
    picks = d.input((6,), "int64", "index", 0, n.S) if "{picks}" in form else ""
    return d.add(form.format(q=q, k=k, v=v, k_many=wide[0], v_many=wide[1], seen=seen, picks=picks))


def _alike(d: _Decoder) -> str:
    """A state that is no cache, and a product that reads it."""
    r, form = d.r, d.r.choice(ALIKE)
    state = d.weight((4, d.n.D), "normal")
    row = d.input((4, d.n.D))
    square = d.weight((d.n.D, d.n.D), "normal") if "{square}" in form else ""
    order = d.input((4,), "int64", "permutation", 4) if "{order}" in form else ""
    first = r.random() < 0.3
    read = f"{row} @ {state}.t()"
    early = d.add(read) if first else ""
    d.write(form.format(p=state, row=row, square=square, order=order))
    late = d.add(read)
    return d.add(f"{early} + {late}") if first else late
