"""Forms in which a wrong number was found and mended, each with other numbers, sizes and ops in its slots.

Such programs are too rare among random ones to say that a mend still holds; mutants*.py take mends out, and these find
it. A form stands for what it had in common with the program that was found: a view read behind a write, a sum that
overflows before it is rounded. New forms come with new mends.
"""

from __future__ import annotations

import random
from dataclasses import replace
from string import Formatter

from tests.fuzz.cases import case
from tests.fuzz.combinations import in_turn
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

VIEWS = rows("""
    x0[{n},{m},{k}] : x0 * 2; v0[:, :, {c}:].reshape(-1); !v0[:1].{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0[:, {c}:].flatten(0, 1); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0[:, {c}:].transpose(0, 1).reshape(-1); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0.permute(2, 1, 0).contiguous(); !v0.split({c}, 0)[0].{in_place} -> v0, x0 * 1
    x0[{n},{m},{k}] : x0 * 2; v0.transpose(0, 1); v1.split({c}, 1)[0].reshape(-1); !v2.{in_place} -> v0, v2
    x0[{n},{m},{k}] : x0 * 2; v0[{c}:, :, {c}:].contiguous(); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0.chunk(2, 1)[0].reshape(-1); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : (x0 * 2).transpose(0, 1); v0[{c}:].reshape_as(v0[{c}:]); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : (x0 * 2).transpose(0, 1); v0.reshape(-1); !v0.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0.permute(0, 2, 1).reshape(-1, v0.shape[1]); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0.movedim(2, 0).flatten({d}); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0.permute(1, 0, 2)[:, :{c}].contiguous(); !v1.{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0.mT.clone(); v0.tensor_split(2, -1)[0].mT.reshape(-1); !v1.{in_place} -> v1, v0
    x0[{n},{m},{k}] : x0 * 2; v0.swapaxes(0, 2).ravel(); !v0[..., {c}:].{in_place} -> v0, v1
    x0[{n},{m},{k}] : x0 * 2; v0[::2].flatten(); !v0[:{c}].{in_place} -> v0, v1
    x0[{k},{n},1] : x0.mT.contiguous() + 1; v0.permute(2, 1, 0).movedim(0, -1); !v1.{in_place} -> v0, v1
    x0[{n},{k}] : x0.clone(); !v0.t().reshape(-1)[:{c}].{in_place} -> v0
    x0[{n},{k}] : x0.clone(); !v0.t().reshape(-1)[:1].relu_() -> v0
""")
"""One memory or two: what is written through, and what is read behind it."""

IMAGES = rows("""
    x0[{n},{m},{k},{one}] : torch.cat([x0, x0 * 2, torch.relu(x0)], {d}); !v0.contiguous().{in_place} -> v0
    x0[{n},{m},{k},{one}] : torch.cat([x0, x0.flip(0)], -1); !v0.reshape(-1).{in_place} -> v0
    x0[{n},{m},{k},{one}] : torch.cat([x0, x0.roll(1, 0)], {d}); !v0.flatten(1).{in_place} -> v0
    x0[{n},{m},{k},{one}] : x0.mT.clone(); v0.tensor_split(2, -1)[0].mT.reshape(-1); !v1.{in_place} -> v1, v0
    x0[{n},{m},{k},{one}] : x0.mT.clone(); v0.chunk(2, -1)[0].mT.reshape(-1); !v1.{in_place} -> v1, v0
    x0[{n},{m},{k},{one}] : F.avg_pool2d(x0, 1); !v0.ravel().{in_place} -> v0
    x0[{n},{m},{k},{one}] : x0.relu(); !v0.contiguous().{in_place} -> v0
    x0[{n},{m},{k},{one}] : x0 + x0.flip(2); !v0.view(-1).{in_place} -> v0
    x0[{one},2,{n},1] : x0.mT.clone(); v0.tensor_split(2, -1)[0].mT.reshape(-1); !v1.{in_place} -> v1, v0
    x0[{one},{m},{n},1] : x0.mT.clone(); v0.chunk(2, -1)[0].mT.flatten(); !v1.{in_place} -> v1, v0
    x0[{one},2,{n},1] : torch.cat([x0, x0.flip(0)], -1); !v0.reshape(-1).{in_place} -> v0
    x0[{b},{m},{n},{one}] : torch.cat([x0, x0.roll(1, 0)], -1); !v0.ravel().{in_place} -> v0
    x0[{n},{m},{k},{one}] : x0 * 2 if x0.is_contiguous() else x0 * 3
    x0[{n},{m},1,{one}] : x0 + x0.stride(2)
    x0[{n},{m},{k},{one}] : x0 + x0.stride({d})
    x0[{n},{m},{k},{one}] : x0.relu(); v0 + v0.stride({d})
    x0[{n},{m},{k},{one}] : x0 * 2; v0 * 2 if v0.is_contiguous(memory_format=torch.channels_last) else v0 * 3
""")
"""Images of few pixels: row-major and channels_last at once."""

WINDOWS = rows("""
    x0[{n}] : x0.unfold(0, {w}, 1); v0.diagonal_scatter(v0.diagonal() + 1)
    x0[{n}] : x0.unfold(0, {w}, 1); v0.select_scatter(v0[0] + 1, 0, 0)
    x0[{n}] : x0.unfold(0, {w}, {c}); v0.slice_scatter(v0[:1] + 1, 0, 0, 1)
    x0[{n}] : (x0 * 2).unfold(0, {w}, 1); v0.diagonal_scatter(v0.diagonal() * 3)
    x0[{n},{m}] : x0.unfold(1, 2, 1); v0.select_scatter(v0[:, 0] + 1, 1, 0)
""")
SLICES = rows("""
    x0[{n},3] : x0[{at}:{at_b}] * 2
    x0[{n},3] : x0[{at}:{at_b}:{c}] * 2
    x0[3,{n}] : x0[:, {at}:{at_b}] * 2
    x0[3,{n}] : x0[:, {at}:{at_b}].sum(1)
    x0[{n},3] : torch.cat([x0[{at}:{at_b}], x0[:1]])
    x0[{n},3] : x0 * 2; !v0[{at}:{at_b}].{in_place} -> v0
""")
CONDITIONS = rows("""
    x0[{n},3] x1[{m},3] : x0 * 2 if x0.shape[0] - x1.shape[0] {relation} {at} else x0 * 3
    x0[{n},3] x1[{m},3] : x0 * 2 if x0.shape[0] - {c} {relation} x1.shape[0] - {d} else x0 * 3
    x0[{n},3] x1[{m},3] : x1[:x1.shape[0] - {c}]; x0 * 2 if v0.shape[0] - x0.shape[0] {relation} 0 else x0 * 3
    x0[{n},3] x1[{m},3] : x0[{c}:]; x1[{d}:]; x0 * 2 if v0.shape[0] - v1.shape[0] {relation} 1 else x0 * 3
    x0[{n},3] x1[{m},3] : torch.cat([x0, x1]); v0 * 2 if v0.shape[0] - x1.shape[0] {relation} {w} else v0 * 3
    x0[{n},3] : x0 * 2 if x0.shape[0] {relation} {w} else x0 * 3
    x0[{n},3] : x0[{c}:]; x0 * 2 if v0.shape[0] {relation} 1 else x0 * 3
    x0[{n},3] : x0 * 2 if x0.shape[0] % 2 {relation} {d} else x0 * 3
    x0[{n},3] : x0[::2]; v0 + 1 if v0.shape[0] {relation} {c} else v0 - 1
""")
STRIDES = rows("""
    x0[{n},{k}] : x0 * 2 if x0.is_contiguous() else x0 * 3
    x0[{n},{k}] : x0 + x0.stride({d})
    x0[{n},{k}] : x0 + (x0.stride(0) > x0.stride(1))
    x0[{k},1,5] : x0.mT.contiguous(); v0 + v0[:{c}].sum(0); v1 + sum(v1.stride())
    x0[{n},{k}] : (x0 * 2).t(); v0 * 2 if v0.is_contiguous() else v0 * 3
    x0[{n},{k}] : x0.relu(); v0 + v0.stride({d})
    x0[{n},{k}] : x0.exp(); v0 * 2 if v0.is_contiguous() else v0 * 3
    x0[{n},{k}] : x0.t() * 2; v0 + sum(v0.stride())
    x0[{n},{k}] : x0 * 2; !v0.t().reshape(-1).{in_place} -> v0
    x0[{b},{t},3] p0[1,{b},4] p1[4,3] p2[4,4] p3[4] p4[4] : \
torch.rnn_tanh(x0, p0, [p1, p2, p3, p4], True, 1, 0., False, False, True)[0]; !v0.reshape(-1).{in_place} -> v0
    x0[{b},{t},3] p0[1,{b},4] p1[12,3] p2[12,4] p3[12] p4[12] : \
torch.gru(x0, p0, [p1, p2, p3, p4], True, 1, 0., False, False, True)[0]; !v0.contiguous().{in_place} -> v0
    x0[{b},{t},3] p0[1,{b},4] p1[12,3] p2[12,4] p3[12] p4[12] : \
torch.gru(x0, p0, [p1, p2, p3, p4], True, 1, 0., False, False, True)[0]; v0 * 2 if v0.is_contiguous() else v0 * 3
    x0[{b},{t},3] x1[24] p0[1,{b},4] p1[12,3] p2[12,4] : \
torch.gru(x0, p0, [p1, p2, x1[::2], x1[1::2]], True, 1, 0., False, False, True)[0] * 2
    x0[{b},{t},3] p0[1,{b},4] p1[4,3] p2[4,4] p3[4] p4[4] : \
torch.rnn_relu(x0, p0, [p1, p2, p3, p4], True, 1, 0., False, False, True)[0]; v0 + v0.stride({d})
""")
ROUNDINGS = rows("""
    x0[{b},{k}]f64 : x0.masked_fill(x0 > 0, {digits}) {relation} {digits}
    x0[{b},{k}]f64 : torch.histc(torch.where(x0 > 0, {digits}, x0), 5, 0., {digits})
    x0[{b},{k}]f16 x1[{b},{k}]f16 p0[3,{k},{k}]f16 : F.bilinear(x0 * {large}, x1 * {tiny}, p0)
    x0[{b},{k}]f16 x1[{b},3]f16 p0[2,{k},3]f16 p1[2]f16 : F.bilinear(x0 * {large}, x1 * {tiny}, p0, p1)
    x0[{b},{k}]f16 : x0 * {hundreds}; torch.view_as_real(torch.complex(v0, v0 * 0.5) * torch.complex(v0, v0))
    x0[{b},{k}]f16 : x0 * {hundreds}; torch.view_as_real(torch.complex(v0, v0.flip(0)) * torch.complex(v0.flip(0), v0))
    x0[{b},1] : (x0 * {vanishing}).norm({p}, -1)
    x0[{b},1] : (x0 * {vanishing}).norm({p}, -1, keepdim=True)
    x0[1,{k}] : torch.linalg.vector_norm(x0 * {vanishing}, {p}, 0)
    x0[{b},{k}]f16 x1[] : x1 * {overflow}; v0 * (x0 * {tiny})
    x0[{b},{k}]f16 x1[]f64 : x1 * {overflow}; v0 / (x0 * {large})
    x0[{b},{k}]f16 x1[1] : x1.squeeze() * {overflow}; torch.mul(v0, x0 * {tiny})
    x0[{b},{k}]f16 x1[] : x1.abs() * {overflow}; torch.sub(v0, x0) * 0.001
    x0[{b},{k}]{half} x1[]{half} : torch.div(x0 * {hundreds}, x1, rounding_mode="{cut}")
    x0[{b},{k}]{half} x1[]{half} : (x0 * {hundreds}) // (x1.abs() + 0.5)
    x0[{b},{k}]{half} x1[]f64 : torch.floor_divide(x0 * {large}, x1 * 7)
    x0[{b},{k}]{half} : torch.div(x0 * {hundreds}, 0.37, rounding_mode="{cut}")
    x0[{b},8]f16 p0[{k},8]f16 : F.linear(x0 * {large}, p0) * 0.
    x0[{b},8]f16 p0[{k},8]f16 p1[{k}]f16 : F.linear(x0 * {large}, p0, p1) * 0.
    x0[{b},8] p0[{k},8] : F.linear(x0 * 1e25, p0 * 1e15) * 0.
    x0[{b},8] p0[{k},8] : F.linear(x0 * 1e10, p0 * 1e-20) * 1e-30 * 1e30
    x0[{b},4,6] p0[{k},4,3] : F.conv1d(x0 * 1e25, p0 * 1e15) * 0.
    x0[{b},8] p0[{k},8] p1[{k}] : F.linear(x0, p0 * 1e30) * (p1 * 1e10)
    x0[{b},8] p0[{k},8] p1[{k}] : F.linear(x0 * 1e20, p0 * 1e-30) * (p1 * 1e-20)
    x0[{b},4,6] p0[{k},4,3] p1[{k},1] : F.conv1d(x0 * 1e-30, p0 * 1e30) * (p1 * 1e10)
    x0[{b},{k}] : torch.angle(x0.round() * -0.)
""")
"""Steps that are rounded in eager show where one of them is infinite or vanishes, beyond what an ulp may change."""

NUMBERS = rows("""
    x0[{b},{k}]i64 k0=5 : x0 + (k0 * k0) % {prime}
    x0[{b},{k}]i64 k0=3 : x0 * (k0 ** {w} // {prime})
    x0[{b},{n}]i64 k0=4 : x0 - (k0 * k0 * x0.shape[1] + {c}) % {prime}
    x0[{b},{k}]i64 k0=2 k1=7 : x0 + (k0 * k1 + 2) // {prime} % {prime}
    x0[{b},{k}] k0=4 : x0 > (k0 * k0) % {prime}
    x0[{b},{k}]i64 k0=5 : x0 + math.ceil(k0 * 0.5) % {prime}
    x0[{b},{k}]i64 k0=8 : x0 * (math.floor(k0 / 3) % {prime})
""")
"""Ints that a call gives, beyond what 64 bits hold of their products, and floating point of themselves."""

CODES = rows("""
    x0[{b},{k}]u8 x1[{t},{k}]u8 : F.linear((x0.float() * 0.1).to(torch.{whole}).float(), x1.float() * 0.1)
    x0[{b},{k}]u8 x1[{k},{t}]u8 : (((x0.float() - 3) * 0.3).to(torch.{whole}).float() * 0.5) @ (x1.float() * 0.1)
    x0[{b},{k}]u8 x1[{t},{k}]u8 : (x0.float() * 0.3).to(torch.{whole}).float() - 2; F.linear(v0, x1.float() * 0.1)
    x0[{b},8] p0[{k},8] p1[{k}] p2[{k},8] p3[{k}] : F.linear(x0, p0, p1) - F.linear(x0, p2, p3)
    x0[{b},8]i8 p0[8,{k}]i8 p1[8,{k}]i8 x1[{b},1] x2[{b},1] : torch._int_mm(x0, p0) * x1 - torch._int_mm(x0, p1) * x2
    x0[{b},8]i8 p0[8,{k}]i8 p1[8,{k}]i8 p2[{k}] : torch._int_mm(x0, p0) % 7 + (torch._int_mm(x0, p1).float() + p2)
    x0[1,8] p0[{k},8]u8 p1[{k},1] : F.linear(x0, (p0.float() - 3) * p1)
    x0[1,8] p0[{k},8]i8 p1[{k},1] p2[{k},1] : F.linear(x0, p0.float() * p1 + p2)
""")
"""Products of what codes stand for, and of what is rounded on its way from codes; of one activation, which are joined,
with what their columns and their rows have."""

HALVES = rows("""
    x0[{b},8] p0[24,8] p1[24] : F.linear(x0, p0, p1); F.silu(v0[:, :12]) * v0[:, 12:]
    x0[{b},{k}]{half} p0[{even},{k}]{half} : F.glu(F.linear(x0, p0), -1)
    x0[{b},{t},{k}] p0[{even},{k}] p1[{even}] : F.glu(F.linear(x0, p0, p1), -1) - 1
    x0[{b},8] p0[{k},8] p1[{k}] p2[{k},8] p3[{k}] : F.linear(x0, p0, p1).exp() - F.linear(x0, p2, p3)
    x0[1,8] p0[1072,8]i8 p1[1072,1] : F.glu(F.linear(x0, p0.float() * p1), -1)
    x0[1,{k}] p0[1056,{k}]i8 p1[1056,1] : F.linear(x0, p0.float() * p1); F.silu(v0[:, :528]) * v0[:, 528:]
    x0[1,16] p0[1088,16]i8 p1[1088,1] p2[1088] : F.linear(x0, p0.float() * p1, p2); v0[:, :544].exp() + v0[:, 544:]
""")
"""Both halves of a product's columns at once."""

FORMS = {
    "views": VIEWS,
    "images": IMAGES,
    "windows": WINDOWS,
    "slices": SLICES,
    "conditions": CONDITIONS,
    "strides": STRIDES,
    "roundings": ROUNDINGS,
    "numbers": NUMBERS,
    "codes": CODES,
    "halves": HALVES,
}
_ALL = [(family, form) for family, forms in FORMS.items() for form in forms]

SLOTS = {
    "in_place": "mul_(3)|neg_()|add_(1)|zero_()|relu_()|clamp_(min=0.5)|clamp_(max=-0.5)|sigmoid_()|round_()|abs_()",
    "relation": "==|!=|<|<=|>|>=",
    "at": "-12|-5|-3|-2|-1|0|1|2|5",
    "at_b": "-5|-3|-2|-1|1|2|3|5|12",
    "m": "m|4|2|1|3",
    "k": "5|1|2|3|8",
    "one": "1|1|1|2",
    "even": "6|40|64|2",
    "b": "4|1|2|7",
    "t": "3|1|5",
    "c": "1|2|3",
    "d": "0|1",
    "w": "3|2|4",
    "p": "2|3|2.5|4",
    "half": "f16|bf16",
    "cut": "floor|trunc",
    "whole": "int32|int64",
    "prime": "7|11|13",
    "large": "3e4|2e4|5e4",
    "tiny": "1e-4|3e-4|1e-3",
    "hundreds": "200.|300.|900.",
    "digits": "0.1|1.1|0.7|16777217.",
    "vanishing": "1e-25|1e-30|1e22",
    "overflow": "1e6|3e5|1e8",
}
"""What each slot may stand for; {n}: a dynamic size or the example's."""

LAYOUTS = {"images": ("channels_last", "dense", "channels_last"), "strides": ("dense", "permuted", "strided")}
EXAMPLES = ((3, 4), (1, 2), (2, 3), (7, 5), (4, 1))
ROWS = ((1, 1), (0, 2), (2, 1), (3, 3), (4, 2), (1, 5), (5, 1), (2, 2), (7, 4))
KINDS = ("auto", "named", "", "open")

COUNT = len(_ALL) * 240
"""How many seeds a sweep is spread over: each form so many times. There are more."""


def mend_form(seed: int) -> Program:
    """The program of a seed: each form in its turn, with slots drawn anew."""
    family, form = _ALL[seed % len(_ALL)]
    g = random.Random(seed)
    kind, example = g.choice(KINDS), g.choice(EXAMPLES)
    found = case(_filled(form, g, example, dynamic=bool(kind)), seed)
    order = in_turn(LAYOUTS.get(family, ("dense",)), seed // len(_ALL))
    symbols = {s for i in found.inputs for s in i.symbols().values()}
    named = [s for s in ("n", "m") if s in symbols]
    return replace(
        found,
        inputs=tuple(replace(i, layout=order) if len(i.shape) > 1 else i for i in found.inputs),
        sizes=tuple((s, n) for s, n in zip(("n", "m"), example, strict=True) if s in symbols),
        dynamic=kind if symbols else "",
        rows=tuple(tuple((s, n) for s, n in zip(("n", "m"), row, strict=True) if s in symbols) for row in ROWS)
        if named
        else (),
    )


def _filled(form: str, g: random.Random, example: tuple[int, int], *, dynamic: bool) -> str:
    """A slot stands for one thing throughout a form."""
    chosen = {name: g.choice(SLOTS[name].split("|")) for _, name, _, _ in Formatter().parse(form) if name in SLOTS}
    chosen["n"] = "n" if dynamic else str(example[0] + g.choice((0, 4)))
    if chosen.get("m") == "m" and not dynamic:
        chosen["m"] = str(example[1])
    return form.format_map(chosen)
