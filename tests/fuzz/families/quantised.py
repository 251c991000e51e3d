"""What quantised models are made of: numbers of few bits, what they stand for, and products of them."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed  # registers the ops

from tests.fuzz.draw import Drawer, Drawn, Family
from tests.fuzz.families.forms import filled, rows

COLUMNS = (1, 2, 8, 16, 17, 33)
_Q = "torch.ops.quantized_decomposed."
FORMS = rows("""
    Q.quantize_per_tensor({a}, 0.05, 3, -128, 127, torch.int8)
    Q.quantize_per_tensor({a}, 0.037, 128, 0, 255, torch.uint8)
    Q.quantize_per_tensor({a}, 0.3, 0, -8, 7, torch.int8)
    Q.quantize_per_tensor({a}, 1e-3, 0, -32768, 32767, torch.int16)
    Q.dequantize_per_tensor(Q.quantize_per_tensor({a}, 0.05, 3, -128, 127, torch.int8), 0.05, 3, -128, 127, torch.int8)  *4
    Q.dequantize_per_tensor(Q.quantize_per_tensor({a}, 0.1, 9, 0, 255, torch.uint8), 0.1, 9, 0, 255, torch.uint8, out_dtype={main})
    Q.quantize_per_tensor.tensor({a}, *Q.choose_qparams.tensor({a}, -128, 127, 1e-5, torch.int8), -128, 127, torch.int8)  *2
    Q.quantize_per_tensor.tensor({a}, *Q.choose_qparams_symmetric.tensor({a}, -127, 127, 1e-5, torch.int8), -127, 127, torch.int8)
    Q.choose_qparams.tensor({a}, 0, 255, 1e-5, torch.uint8)[0]
    Q.choose_qparams.tensor({a}, 0, 255, 1e-5, torch.uint8)[1]
    Q.quantize_per_token({a}, *Q.choose_qparams_per_token_asymmetric({a}, torch.int8), -128, 127, torch.int8)  *2
    Q.choose_qparams_per_token_asymmetric({a}, torch.int8)[1]
    Q.choose_qparams_per_token({a}, torch.int8)[0]
    Q.convert_element_type.no_fuse({a}, torch.bfloat16)
    torch.fake_quantize_per_tensor_affine({a}, 0.037, 3, -128, 127)
    torch.fake_quantize_per_tensor_affine({a}, 0.2, 0, -8, 7)
""")


def _form(g: Drawer) -> Drawn:
    return filled(g, g.r.choice(FORMS).replace("Q.", _Q), g.floats())


def _by_channel(g: Drawer) -> Drawn:
    a = g.floats(least=1)
    shape = g.value(a).shape
    axis = g.r.randrange(len(shape))
    if g.is_symbolic(shape[axis]):
        return None
    scales = f"({g.weight((shape[axis],), torch.float32)}.abs() + 0.01)"
    zeros = g.weight((shape[axis],), torch.int64, "index", (0, 9), "buffer")
    rest = f"{scales}, {zeros}, {axis}, -128, 127"
    small = f"{_Q}quantize_per_channel({a}, {rest}, torch.int8)"
    forms = (
        small,
        f"{_Q}dequantize_per_channel({small}, {rest}, torch.int8)",
        f"{_Q}dequantize_per_channel({small}, {scales}, None, {axis}, -128, 127, torch.int8)",
        f"torch.fake_quantize_per_channel_affine({a}, {scales}, {zeros}.int(), {axis}, -128, 127)",
    )
    return g.r.choice(forms)


def _product(g: Drawer) -> Drawn:
    """Of bytes, in int32; of what they stand for, in f32. Eager's own of a depth of 1 is what memory held."""
    r, a = g.r, g.floats(least=1)
    depth = g.value(a).shape[-1]
    if g.is_symbolic(depth) or depth < 2:
        return None
    n = r.choice(COLUMNS)
    small = f"{_Q}quantize_per_tensor({a}, 0.05, 3, -128, 127, torch.int8)"
    weight = g.weight((n, depth), torch.int8, kind="buffer")
    scales = g.weight((n,), torch.float32)
    floats = f"{g.weight((n, depth), torch.float32)}.to(torch.{r.choice(('float8_e4m3fn', 'float8_e5m2'))})"
    floats8 = f"{g.weight((n, depth), torch.float32)}.to(torch.float8_e4m3fn)"
    eight = f"{a}.reshape(-1, {depth}).to(torch.float8_e4m3fn)"
    back = f"{_Q}dequantize_per_tensor({small}, 0.05, 3, -128, 127, torch.int8)"
    wide = f"{_Q}dequantize_per_channel({weight}, {scales}, None, 0, -128, 127, torch.int8)"
    above = f"{_Q}quantize_per_tensor({a}, 0.04, 130, 0, 255, torch.uint8)"
    above = f"{_Q}dequantize_per_tensor({above}, 0.04, 130, 0, 255, torch.uint8)"
    exact = f"torch._int_mm({small}.reshape(-1, {depth}), {weight}.t())"
    forms = (
        exact,
        f"{exact} * 0.01 * {scales}",
        f"{exact} * 3 + 1",
        f"F.gelu({exact}.float() * {scales} + {scales})",
        f"{exact}.clamp(-900, 2000).to(torch.int8)",
        f"torch._int_mm({small}.reshape(-1, {depth}), {small}.reshape(-1, {depth}).t())",
        f"F.linear({back}, {wide})",
        f"F.linear({back}, {wide}, {scales})",
        f"F.linear({above}, {wide}, {scales})",
        f"F.linear(({small}.float() - 3) * {g.weight((depth,), torch.float32)}, {wide})",
        f"torch.matmul({above}.reshape(-1, {depth}), {back}.reshape(-1, {depth}).t())",
        f"{_Q}quantize_per_tensor(F.relu(F.linear({back}, {wide})), 0.1, 0, 0, 255, torch.uint8)",
        f"F.linear({a}, {weight}.to({a}.dtype)) * {scales}",
        f"F.linear({a}, {floats}.to({a}.dtype) * {scales}[:, None].to({a}.dtype))",
        f"torch._scaled_mm({eight}, {floats8}.t(), {scales}[0], {scales}[1 % {n}], out_dtype=torch.float32)",
        f"F.relu(torch._scaled_mm({eight}, {floats8}.t(), {scales}[0], {scales}[0], out_dtype=torch.bfloat16))",
        f"torch._weight_int8pack_mm({a}.float().reshape(-1, {depth}), {weight}, {scales})",
    )
    return r.choice(forms)


def _stored(g: Drawer) -> Drawn:
    """A product with a weight that is stored in few bits, and how it becomes float: by steps with numbers of all of it,
    of its rows or of groups, in the spellings that people have, behind views or read by more than the product."""
    r, a = g.r, g.floats(least=1)
    depth = g.value(a).shape[-1]
    if g.is_symbolic(depth) or depth < 2:
        return None
    n = r.choice(COLUMNS)
    group = r.choice([d for d in range(1, depth + 1) if depth % d == 0])
    dtype, limits = r.choice(
        ((torch.int8, (-8, 8)), (torch.int8, (-128, 128)), (torch.uint8, (0, 16)), (torch.uint8, (0, 256)))
    )
    weight = g.weight((n, depth), dtype, "index", limits, "buffer")
    number = f"to({r.choice(('torch.float32', 'torch.float32', 'torch.bfloat16', 'torch.float16'))})"
    wide, is_float = (f"{weight}.int()", False) if r.random() < 0.3 else (f"{weight}.{number}", True)
    for kind in r.choice(("", "s", "m", "sm", "sm", "sm", "ma", "smm", "msm")):
        if kind != "s" and not is_float:
            wide, is_float = f"{wide}.{number}", True
        table = _table(g, n, depth // group, group, torch.float32 if kind != "s" or r.random() < 0.3 else torch.int8)
        table = f"{table}.{number}" if is_float else f"{table}.int()"
        wide = (
            f"({wide} {'-*+'['sma'.index(kind)]} {table})"
            if r.random() < 0.8 or kind == "s"
            else f"({table} {'*+'['ma'.index(kind)]} {wide})"
        )
    wide = wide if is_float else f"{wide}.{number}"
    first = r.randrange(n)
    wide, count = r.choice(
        (
            (wide, n),
            (wide, n),
            (f"{wide}.view({n}, {depth // group}, {group}).view({n}, {depth})", n),
            (f"{wide}[{first}:]", n - first),
            (f"{wide}.flip(0)", n),
        )
    )
    if r.random() < 0.3:
        return _picked(g, wide, count, depth)
    forms = (
        f"F.linear({a}.{number}, {wide})",
        f"{a}.{number} @ {wide}.t()",
        f"torch.einsum('...k,nk->...n', {a}.{number}, {wide})",
        f"F.linear({a}.{number}, {wide}) * {wide}.sum()",
        f"F.linear({a}, {wide}.to({a}.dtype))",
    )
    return r.choice(forms)


def _convolution(g: Drawer) -> Drawn:
    """Of what codes stand for, in groups or a channel at a time, with a zero point that padding adds: sizes are those
    for which integers are worth it."""
    r = g.r
    per, groups, outputs = r.choice(((1, 96, 96), (32, 1, 64), (32, 2, 128), (40, 1, 72), (64, 1, 33), (5, 1, 9)))
    kernel = (r.choice((1, 3, 5)), r.choice((1, 3, 3, 5)))
    height, width = r.choice((5, 9)), r.choice((5, 8, 14))
    if per == 1:  # an image that no core's own cache holds
        height, width = 44, r.choice((40, 57))
    sizes = (r.choice((1, 2)), per * groups, height, width)
    zero, low, high, dtype = r.choice(((3, -128, 127, "int8"), (-128, -128, 127, "int8"), (130, 0, 255, "uint8")))
    codes = f"0.05, {zero}, {low}, {high}, torch.{dtype}"
    x = f"{_Q}dequantize_per_tensor({_Q}quantize_per_tensor({g.input(sizes, torch.float32)}, {codes}), {codes})"
    weight = g.weight((outputs, per, *kernel), torch.int8, kind="buffer")
    scales = g.weight((outputs,), torch.float32)
    zeros = r.choice(("None", g.weight((outputs,), torch.int64, "index", (-9, 10), "buffer")))
    wide = f"{_Q}dequantize_per_channel({weight}, {scales}.abs(), {zeros}, 0, -128, 127, torch.int8)"
    padding = tuple(r.choice((0, k // 2, k - 1)) for k in kernel)
    how = f"stride={r.choice((1, 2, (2, 1)))}, padding={padding}, groups={groups}"
    made = f"F.conv2d({x}, {wide}, {r.choice(('None', scales))}, {how})"
    last = "0.4, 1, -128, 127, torch.int8"
    return r.choice((made, f"F.relu({made})", f"{_Q}quantize_per_tensor(F.relu({made}), {last})"))


def _picked(g: Drawer, wide: str, rows: int, depth: int) -> str:
    """Elements of a weight by places that are an input, since constant ones are folded, and what reads it beside them."""
    i = g.input(g.shape(2), torch.int64, "index", (0, rows))
    columns = f"{i} % {depth}"
    forms = (
        f"F.embedding({i}, {wide})",
        f"F.embedding({i}, {wide}) + 1",
        f"{wide}[{i}, {columns}]",
        f"{wide}.t()[{columns}]",
        f"{wide}.index_select(0, {i}.flatten())",
        f"torch.gather({wide}, 0, {i}[:, :1].expand(-1, {depth}))",
        f"F.linear(F.embedding({i}, {wide}), {wide})",
        f"F.embedding({i}, {wide}) * {wide}.sum(0)",
    )
    return g.r.choice(forms)


def _table(g: Drawer, rows: int, groups: int, group: int, dtype: torch.dtype) -> str:
    """Numbers of groups, of rows, or one for all, over [rows, groups * group]."""

    def made(shape: tuple[int, ...]) -> str:
        if dtype is torch.int8:
            return g.weight(shape, dtype, "index", g.r.choice(((-8, 8), (0, 1), (-128, 128))), "buffer")
        return g.weight(shape, dtype, g.r.choice(("normal", "quarters", "special")))

    whole, depth = (rows, groups), groups * group
    return g.r.choice(
        (
            lambda: f"{made(whole)}.repeat_interleave({group}, 1)",
            lambda: f"{made(whole)}[:, :, None].expand({rows}, {groups}, {group}).reshape({rows}, {depth})",
            lambda: f"{made(whole[::-1])}.t().repeat_interleave({group}, dim=-1)",
            lambda: made((rows, 1)),
            lambda: made((1, depth)),
            lambda: made((rows, depth)),
            lambda: made((1,)),
        )
    )()


FAMILIES = (
    Family("few bits", 9.0, _form),
    Family("few bits by channel", 5.0, _by_channel),
    Family("products of few bits", 9.0, _product),
    Family("weights of few bits", 9.0, _stored),
    Family("convolutions of few bits", 4.0, _convolution),
)
