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
    back = f"{_Q}dequantize_per_tensor({small}, 0.05, 3, -128, 127, torch.int8)"
    wide = f"{_Q}dequantize_per_channel({weight}, {scales}, None, 0, -128, 127, torch.int8)"
    exact = f"torch._int_mm({small}.reshape(-1, {depth}), {weight}.t())"
    forms = (
        exact,
        f"{exact} * 0.01 * {scales}",
        f"F.linear({back}, {wide})",
        f"F.linear({back}, {wide}, {scales})",
        f"{_Q}quantize_per_tensor(F.relu(F.linear({back}, {wide})), 0.1, 0, 0, 255, torch.uint8)",
        f"F.linear({a}, {weight}.to({a}.dtype)) * {scales}",
        f"torch._weight_int8pack_mm({a}.float().reshape(-1, {depth}), {weight}, {scales})",
    )
    return r.choice(forms)


FAMILIES = (
    Family("few bits", 9.0, _form),
    Family("few bits by channel", 5.0, _by_channel),
    Family("products of few bits", 9.0, _product),
)
