"""Eager under disturbance: every rounding a little different, as another order of additions or another exp makes it.

The result of each inexact op is changed by about an ulp of its dtype, and so are the operands of ops that add many
numbers up: what that does to a result is how much of it is not determined. Ops that move, compare or select values are
left alone: they are exact everywhere. The sum of k equal numbers errs the same way k times: results of such ops are
changed by sqrt(k) / 4 ulps. gelu is taken apart: where 1 + tanh(y) cancels, an ulp of tanh is many of the result.
So are logaddexp, whose two parts may cancel, addcmul, addcdiv, lerp and sums with alpha, whose product may be rounded
before it is added, and log_softmax, whose logarithm of about 1 is the rounding of a sum. Resizing reads at places that
are rounded: it has the ulps of its largest element, as many as the image is long. Prefix sums may err the same way at
each step. Fourier transforms err by ulps of their largest number, and batch norms have their moments as sums in pairs;
group norms of float64 are by their formula in every other run, and sorts keep equal numbers in their order.
Products of many numbers are taken in other orders, which decide whether they overflow. Every other run has norms as
float64 gives them: over one element, or equal ones, those are the bias, and eager's are noise; and a mean beside a
spread as NaN where it is infinite. Attention of half types has other operands: a GPU rounds its probabilities to their
type, as flash attention does, where eager on a CPU may keep all in f32. In every other run what is masked counts for
nothing: eager multiplies the values of keys behind a causal query by 0, which makes NaN of those that are not finite,
where kernels skip them; and a query whose scores are all NaN has NaN, where eager's flash attention takes them for
masked. Of zeros of both signs either may be the largest of many: eager has the first in a window of pooling, and
elsewhere one that its vectors decide; GPUs have +0 (docs/contract.md). Of either sign is a zero that is a product of
matrices, too: some begin with +0, others with their first product. Of the zeros of two tensors eager has the second as
maximum, minimum and limit where its loops go over vectors, and the first among the elements that are left: every other
run has the second everywhere, as ours. gelu of -inf in 16 bits is its limit or NaN. Convolutions of 16 bits are f32's
in every other run: oneDNN's multiply infinities by zeros that it puts beside a filter.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

HALF = (torch.float16, torch.bfloat16)
ULP = {torch.float32: 2.0**-23, torch.float64: 2.0**-52, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
"""What the number behind 1 is larger by."""

EXACT = frozenset(
    """
    _local_scalar_dense _reshape_alias _to_copy _unsafe_view abs alias amax amin aminmax arange as_strided broadcast_to
    cat ceil clamp clamp_max clamp_min clone contiguous copy copy_ copysign cummax cummin detach diagonal embedding
    empty empty_like expand eye fill fill_ flip floor fmax fmin frac full full_like gather hardtanh heaviside im2col
    index index_copy index_fill index_fill_ index_put index_put_ index_select isnan kthvalue lift_fresh masked_fill
    masked_fill_ masked_scatter max max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum
    adaptive_max_pool2d adaptive_max_pool3d nan_to_num neg neg_ new_empty new_full new_ones new_zeros nextafter
    one_hot ones ones_like permute pixel_shuffle pixel_unshuffle positive reflection_pad1d reflection_pad2d
    reflection_pad3d relu relu_ repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d reshape
    roll round round_ scalar_tensor scatter select select_scatter sgn sign slice slice_scatter sort split
    split_with_sizes squeeze stack t take threshold topk transpose tril triu trunc unbind unfold unsqueeze
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d view where zero_ zeros zeros_like clamp_ clamp_min_ clamp_max_ floor_ ceil_ trunc_
    channel_shuffle fractional_max_pool2d _pin_memory linalg_diagonal block_diag tril_ triu_ index_copy_
    """.split()
)
ADDING = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _embedding_bag _embedding_bag_forward_only _fft_r2c
    _fft_c2c _log_softmax _softmax _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu
    _trilinear adaptive_avg_pool1d addbmm addmm addmv avg_pool2d avg_pool3d baddbmm bmm col2im convolution cumsum
    cumprod dot gru index_add linalg_vector_norm linear logcumsumexp logsumexp lstm mean mkldnn_rnn_layer mm mv nansum
    native_batch_norm native_group_norm native_layer_norm prod rnn_relu rnn_tanh scatter_add scatter_reduce std std_mean
    sum upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_trilinear3d var var_mean
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa mkldnn_convolution mkldnn_linear _fused_rms_norm _weight_int4pack_mm
    _weight_int8pack_mm vdot
    """.split()
)


GAMMAS = frozenset("digamma polygamma lgamma mvlgamma".split())
"""Functions that are zero between numbers, by the difference of parts of about 1."""
PRODUCTS = frozenset(
    "addbmm addmm addmv baddbmm bmm convolution dot linear mkldnn_convolution mkldnn_linear mm mv vdot".split()
)
NARROWED = PRODUCTS | frozenset(
    """
    _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _grouped_mm lstm gru rnn_tanh
    rnn_relu mkldnn_rnn_layer
    """.split()
)
"""What Options.compute may compute in 16 bits, or parts of it."""
LARGEST = frozenset(
    """
    amax amin aminmax max min max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    """.split()
)
"""Functions that choose one of many numbers, of zeros of both signs any."""
LIMITS = frozenset(
    """
    maximum.default minimum.default clamp.Tensor clamp_min.Tensor clamp_max.Tensor clamp_.Tensor clamp_min_.Tensor
    clamp_max_.Tensor
    """.split()
)
"""Functions that choose between the numbers of tensors, of zeros of both signs either."""
ONCE = frozenset("convolution floor_divide div".split())
"""Functions of 16 bits that are f32's, rounded once, in every other run."""
PREFIXES = frozenset("cumsum cumprod logcumsumexp".split())
RESIZED = ("upsample_bi", "_upsample_bi", "upsample_linear", "upsample_trilinear")
WIDER = frozenset("native_layer_norm native_group_norm std std_mean var var_mean _fused_rms_norm".split())


def chooses_between_zeros(func: Any, args: Any, kwargs: Any = None) -> bool:
    """True if an op chooses the largest or smallest of numbers among which are zeros of both signs."""
    given = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
    if not any(x.is_floating_point() for x in given):
        return False
    if str(func).removeprefix("aten.") in LIMITS:
        first, second = (_limited(func, args, kwargs or {}, second=second).signbit() for second in (False, True))
        return not torch.equal(first, second)
    if func.overloadpacket.__name__ not in LARGEST or len(given) != 1:
        return False
    zeros = given[0][given[0] == 0]
    return 0 < int(zeros.signbit().sum()) < zeros.numel()


def _limited(func: Any, args: Any, kwargs: Any, *, second: bool) -> torch.Tensor:
    """What a function of LIMITS gives if of two zeros it has the first everywhere, or the second."""
    given = dict(zip([a.name for a in func._schema.arguments], args, strict=False)) | kwargs
    name, out = func.overloadpacket.__name__, given["self"]
    above = given["other"] if name == "maximum" else given.get("min")
    below = given["other"] if name == "minimum" else given.get("max")
    for choice, limit in ((torch.maximum, above), (torch.minimum, below)):
        if limit is not None:
            zeros = (out == 0) & (limit == 0)
            out = torch.where(zeros, limit if second else out, choice(out, limit))
    return out


class Disturbed(TorchDispatchMode):
    """Runs ops with their roundings changed at random by up to `ulps`; with `compute` of 16 bits (Options.compute) also
    with what products of f32 read rounded to that, or changed by as much."""

    def __init__(self, seed: int, ulps: float = 1.0, compute: str = "f32") -> None:
        super().__init__()
        self._narrow = {"bf16": torch.bfloat16, "f16": torch.float16}.get(compute)
        self._generator, self._wider = torch.Generator().manual_seed(seed), seed % 2 == 1
        self._ulps = ulps
        self._attention = _Attention(self._changed, self._wider)

    def __enter__(self) -> Disturbed:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._attention.__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name.removesuffix("_") in PARTS:
            with self:
                out = PARTS[name.removesuffix("_")](*args, **(kwargs or {}))
            if name == "gelu" and out.dtype in HALF and self._wider:
                out = torch.where(args[0] == -math.inf, 0.0, out)
            return args[0].copy_(out) if name.endswith("_") else out
        if (kwargs or {}).get("alpha", 1) != 1 and name.removesuffix("_") in ("add", "sub", "rsub"):
            with self:
                out = _scaled_sum(name.removesuffix("_"), *args, **(kwargs or {}))
            return args[0].copy_(out) if name.endswith("_") else out
        if self._wider and func in (torch.ops.aten.pow.Tensor_Tensor, torch.ops.aten.pow.Scalar):
            args = (args[0], _whole_exponents(*args))
        if name == "prod":
            args = (self._reordered(*args[:2]), *args[1:])
            if self._wider and len(args) == 1 and not kwargs and args[0].dtype in (torch.float32, torch.float64):
                args = (self._product_of_rows(args[0]),)
        if name in IN_PAIRS and self._wider and args[0].dtype is torch.float64 and args[0].numel():
            with self:
                return IN_PAIRS[name](*args, **(kwargs or {}))
        if func is torch.ops.aten.sort.default and self._wider:
            return _stable_sort(*args, **(kwargs or {}))
        if name == "native_group_norm" and self._wider and args[0].dtype is torch.float64 and args[0].numel():
            return _group_norm(*args)
        if self._wider and str(func).removeprefix("aten.") in LIMITS:
            out = _limited(func, args, kwargs or {}, second=True)
            return args[0].copy_(out) if name.endswith("_") else out
        if name in WIDER and self._wider:
            out = _in_double(func, args, kwargs or {})
            return (out[0], _other_mean(out[1])) if name in ("std_mean", "var_mean") else out
        if name == "native_batch_norm" and self._wider and args[3] is None and args[5]:
            return _batch_norm(*args)
        if self._narrow is not None and name in NARROWED:
            args = tree_map_only(torch.Tensor, self._narrowed, args)
        in_place = name.endswith("_") and not name.endswith("__")
        if name in ADDING and not in_place:
            args = tree_map_only(torch.Tensor, self._changed, args)
        if self._wider and name in ONCE and getattr(args[0], "dtype", None) in HALF:
            wide, more = tree_map_only(torch.Tensor, torch.Tensor.float, (args, kwargs or {}))
            out = func(*wide, **more).to(args[0].dtype)
        else:
            out = func(*args, **(kwargs or {}))
        if chooses_between_zeros(func, args):
            return tree_map_only(torch.Tensor, self._other_zeros, out)
        if name in EXACT:
            return out
        if in_place:
            return self._changed_in_place(out)
        if name == "linspace" and out.numel():
            return self._line(out)
        if name.startswith(RESIZED) and out.numel() and out.dtype not in HALF:  # those are resized in f32
            largest = args[0].nan_to_num(0, 0, 0).abs().amax()
            out = out + largest * (self._factor(out, max(args[0].shape)) - 1)
        if name.startswith("_fft") and out.numel():  # each result adds up all that there is
            return self._transformed(out)
        if name in GAMMAS and out.numel():
            out = out + (self._factor(out) - 1)
        if name in PRODUCTS:
            out = tree_map_only(torch.Tensor, self._other_zeros, out)
        terms = _terms(args, out) if name in ADDING else 0
        more = terms / 4 if name in PREFIXES else terms**0.5 / 4
        return tree_map_only(torch.Tensor, lambda x: x if x._is_view() else self._changed(x, max(1.0, more)), out)

    def _changed(self, x: torch.Tensor, more: float = 1.0) -> torch.Tensor:
        return x * self._factor(x, more) if x.dtype in ULP and x.numel() else x

    def _narrowed(self, x: torch.Tensor) -> torch.Tensor:
        """What a product of 16 bits reads for x: in every other run just that."""
        assert self._narrow is not None
        if x.dtype is not torch.float32 or not x.numel():
            return x
        if self._wider:
            return x.to(self._narrow).float()
        part = torch.rand(x.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        return (x * (1 + part * ULP[self._narrow])).float()

    def _other_zeros(self, x: torch.Tensor) -> torch.Tensor:
        """x with zeros of any sign."""
        if not x.is_floating_point():
            return x
        return torch.where((x == 0) & (torch.rand(x.shape, generator=self._generator) < 0.5), -x, x)

    def _line(self, x: torch.Tensor) -> torch.Tensor:
        """A `linspace`: one that begins and ends far from zero is near it by cancellation, or just there."""
        largest = x.abs().amax()
        zero = (x.abs() <= largest * ULP.get(x.dtype, 0.0)) & (torch.rand(x.shape, generator=self._generator) < 0.25)
        return torch.where(zero, 0.0, x + largest * (self._factor(x) - 1)) if x.dtype in ULP else x

    def _transformed(self, x: torch.Tensor) -> torch.Tensor:
        """A Fourier transform that errs by ulps of its largest number."""
        parts = torch.view_as_real(x) if x.is_complex() else x
        changed = parts + parts.nan_to_num(0, 0, 0).abs().amax() * (self._factor(parts) - 1)
        return torch.view_as_complex(changed) if x.is_complex() else changed

    def _reordered(self, x: torch.Tensor, dim: int | None = None) -> torch.Tensor:
        """With what a product over `dim`, or over all dimensions, takes in another order."""
        for d in range(x.dim()) if dim is None else [dim] * (x.dim() > 0):
            x = x.index_select(d, torch.randperm(x.shape[d], generator=self._generator))
        return x

    def _product_of_rows(self, x: torch.Tensor) -> torch.Tensor:
        """With rows along some of the dimensions multiplied each by itself: of parts, one overflows, another is 0."""
        for d in range(x.dim()):
            if bool(torch.rand((), generator=self._generator) < 0.5):
                x = x.prod(d, keepdim=True)
        return x

    def _changed_in_place(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor) and x.dtype in ULP and x.numel():
            with contextlib.suppress(RuntimeError):  # several elements at one place: it stays as it is
                x.mul_(self._factor(x))
        return x

    def _factor(self, x: torch.Tensor, more: float = 1.0) -> torch.Tensor:
        """1 and a little: whole ulps for half types, which are added up in f32, any part of one for the others."""
        if x.dtype in HALF:
            most = max(1, round(self._ulps))
            steps = torch.randint(-most, most + 1, x.shape, generator=self._generator)
            return (1 + steps.double() * ULP[x.dtype]).to(x.dtype)
        part = torch.rand(x.shape, generator=self._generator, dtype=torch.float64) * 2 - 1
        return (1 + part * (self._ulps * more * 1.5 * ULP[x.dtype])).to(x.dtype)


def _in_double(func: Any, args: Any, kwargs: Any) -> Any:
    given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
    out = func(*tree_map_only(torch.Tensor, torch.Tensor.double, args), **kwargs)
    return tree_map_only(torch.Tensor, lambda x: x.to(given[0].dtype), out)


def _whole_exponents(base: Any, exponent: torch.Tensor) -> torch.Tensor:
    """The exponents of negative numbers, whole where they are within 64 ulps of it."""
    if exponent.dtype not in ULP:
        return exponent
    near = (exponent - exponent.round()).abs() <= 64 * ULP[exponent.dtype] * exponent.abs()
    return torch.where(near & torch.as_tensor(base < 0), exponent.round(), exponent)


def _other_mean(mean: torch.Tensor) -> torch.Tensor:
    """The mean beside a spread, of which that of infinities is infinite or NaN by eager's way through the numbers."""
    return torch.where(mean.isinf(), math.nan, mean)


def _batch_norm(
    x: torch.Tensor, weight: Any, bias: Any, mean: None, var: None, training: bool, momentum: float, eps: float
) -> tuple[torch.Tensor, ...]:
    """By moments that are added up in pairs: of float64 eager adds the squares up one behind the other."""
    dims, shape = [d for d in range(x.dim()) if d != 1], [-1 if d == 1 else 1 for d in range(x.dim())]
    wide = x.float() if x.dtype in HALF else x
    middle = wide.mean(dims)
    apart = wide - middle.view(shape)
    inverse = (apart.square().mean(dims) + eps).rsqrt()
    out = apart * inverse.view(shape)
    out = out if weight is None else out * weight.view(shape)
    out = out if bias is None else out + bias.view(shape)
    return out.to(x.dtype), middle, inverse


def _stable_sort(x: torch.Tensor, dim: int = -1, descending: bool = False) -> Any:
    """Which of two zeros, or of two equal numbers, comes first is not determined unless it is asked for."""
    return torch.ops.aten.sort.stable(x, stable=True, dim=dim, descending=descending)


def _group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    """By its formula: eager has x * scale + shift, which of one number, or of equal ones, is not the bias."""
    rows = x.reshape(n, groups, -1)
    middle = rows.mean(-1, keepdim=True)
    apart = rows - middle
    inverse = (apart.square().mean(-1, keepdim=True) + eps).rsqrt()
    out = (apart * inverse).reshape(n, c, hw)
    out = out if weight is None else out * weight.reshape(1, c, 1)
    out = out if bias is None else out + bias.reshape(1, c, 1)
    return out.reshape(x.shape), middle.reshape(n, groups), inverse.reshape(n, groups)


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """By its formula; of half types in f32, as eager has it."""
    y = x.float() if x.dtype in HALF else x
    if approximate == "none":
        part = (y * math.sqrt(0.5)).erf()
    else:
        part = (math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y)).tanh()
    part = torch.where(y.isinf(), y.sign(), part)  # exactly: gelu of -inf is NaN each time
    return (y * 0.5 * (part + 1)).to(x.dtype)


def _scaled_sum(name: str, x: torch.Tensor, y: Any, *, alpha: float) -> torch.Tensor:
    """x and alpha * y, which is rounded before it is added, or is not."""
    dtype = torch.result_type(x, y)
    if dtype in HALF:
        x, y = (t.float() if isinstance(t, torch.Tensor) else t for t in (x, y))
    out = {"add": lambda: x + y * alpha, "sub": lambda: x - y * alpha, "rsub": lambda: y - x * alpha}[name]()
    return out.to(dtype)


def _addcmul(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + a * b * value


def _addcdiv(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return x + a / b * value


def _lerp(x: torch.Tensor, end: torch.Tensor, weight: Any) -> torch.Tensor:
    near = weight.abs() < 0.5 if isinstance(weight, torch.Tensor) else torch.tensor(abs(weight) < 0.5)
    return torch.where(near, x + weight * (end - x), end - (end - x) * (1 - weight))


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    y = x.float() if x.dtype in HALF else x
    shifted = y - y.amax(dim, keepdim=True) if y.numel() else y
    return (shifted - shifted.exp().sum(dim, keepdim=True).log()).to(torch.float32 if half_to_float else x.dtype)


def _logaddexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    largest = torch.maximum(x, y)
    wide = largest.float() if largest.dtype in HALF else largest
    rest = -(x - y).to(wide.dtype).abs()
    return torch.where(rest.isnan(), largest, wide + rest.exp().log1p()).to(largest.dtype)


def _spread(
    x: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean, in two passes."""
    dims = [d % x.dim() for d in dim] if dim else list(range(x.dim()))
    mean = x.mean(dims, True)
    mean = mean + (x - mean).mean(dims, True)
    count = math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction)
    var = (x - mean).square().sum(dims, keepdim) / max(count, 0.0)
    return var, mean if keepdim else mean.squeeze(dims)


def _vector_norm(x: torch.Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **dtype: Any) -> torch.Tensor:
    if ord != 2:
        return torch.linalg.vector_norm(x, ord, dim, keepdim, **dtype)
    return x.square().sum(dim, keepdim).sqrt().to(dtype.get("dtype"))


def _renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    rest = [d for d in range(x.dim()) if d != dim % x.dim()]
    norm = _vector_norm(x, p, rest, keepdim=True)
    return x * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


IN_PAIRS: dict[str, Callable[..., Any]] = {
    "var_mean": _spread,
    "var": lambda *args, **kwargs: _spread(*args, **kwargs)[0],
    "std": lambda *args, **kwargs: _spread(*args, **kwargs)[0].sqrt(),
    "linalg_vector_norm": _vector_norm,
    "renorm": _renorm,
}
"""Of f64, with sums in pairs: eager adds squares up one behind the other, or updates a mean number by number."""

PARTS = {
    "logaddexp": _logaddexp,
    "gelu": _gelu,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "_log_softmax": _log_softmax,
}


class _Attention(TorchFunctionMode):
    """Gives attention of half types other operands, before eager takes it apart into ops of f32; by_formula: with
    what follows of NaN and infinities from its formula over the keys that a query sees."""

    def __init__(self, changed: Callable[[torch.Tensor], torch.Tensor], by_formula: bool) -> None:
        super().__init__()
        self._changed, self._by_formula = changed, by_formula

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention:
            return func(*args, **kwargs)
        args = tuple(self._changed(a) if isinstance(a, torch.Tensor) and a.dtype in HALF else a for a in args)
        out = func(*args, **kwargs)
        if not self._by_formula or not out.numel():
            return out
        query, key, value = args[:3]
        if kwargs.get("is_causal") and not bool(value.isfinite().all()):
            out = torch.where(_reached(query, value), out, func(query, key, value.nan_to_num(0, 0, 0), **kwargs))
        return torch.where(_without_scores(query, key), math.nan, out)


def _reached(query: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Which results of causal attention have a value that is not finite at their key or before it."""
    found = _by_query_head((~value.isfinite()).float(), query)
    return torch.ones(query.shape[-2], value.shape[-2]).tril() @ found > 0


def _without_scores(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Queries whose products with all keys are NaN: shape [.., queries, 1]."""
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = query.to(wide) @ _by_query_head(key.to(wide), query).mT
    return scores.isnan().all(-1, keepdim=True) if key.shape[-2] else query.new_zeros((), dtype=torch.bool)


def _by_query_head(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """x of keys' heads repeated to the query's, where those are more."""
    few = x.dim() > 2 and x.shape[-3] not in (1, query.shape[-3])
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) if few else x


def _terms(args: Any, out: Any) -> int:
    """About how many numbers an op adds up for a result."""
    given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor) and a.numel()]
    results = [o.numel() for o in tree_leaves(out) if isinstance(o, torch.Tensor)]
    longest = max((n for a in given for n in a.shape), default=1)
    return max([longest, *(a.numel() // max(1, *results) for a in given if results)])
