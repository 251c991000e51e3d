"""Pooling and resampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir.expr import Expr, int_value, product
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.adaptive_windows import adaptive_windows
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.errors import Refusal


def _each(values: Sequence[int], count: int, default: Sequence[int] | None = None) -> tuple[int, ...]:
    chosen = list(values) if len(values) else list(default or ())
    return tuple(chosen) if len(chosen) == count else (chosen[0],) * count


def _batched(b: Builder, x: Value, spatial: int) -> tuple[Value, bool]:
    """x as [N, C, *S], and whether it was so."""
    return (x, True) if x.rank == spatial + 2 else (b.unsqueeze(x, 0), False)


def _unbatched(b: Builder, x: Value, was_batched: bool) -> Value:
    return x if was_batched else b.reshape(x, x.shape[1:])


def _paddings(
    b: Builder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> tuple[tuple[int, int], ...]:
    """(lo, hi) a spatial dim. Rounding up is a wider padding after the end, as long as the last window would begin
    inside the input or its padding before."""
    pairs: list[tuple[int, int]] = []
    for size, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        b.require("le", reach, size + 2 * p + (s - 1 if ceil else 0), "the pooling window fits into its padded input")
        pairs.append((p, p + (_ceil_extra(size, reach, s, p) if ceil else 0)))
    return tuple(pairs)


def _ceil_extra(size: Expr, reach: int, stride: int, pad: int) -> int:
    """The padding to add after the end so that rounding down gives what rounding up with torch's rule gives."""
    value = int_value(size)
    if value is None:
        if reach <= pad + stride - 1:
            raise Refusal("pooling with ceil_mode over a dynamic size where windows may start in the padding")
        return stride - 1
    count = -((value + 2 * pad - reach) // -stride) + 1
    if (count - 1) * stride >= value + pad:
        count -= 1
    return max(0, (count - 1) * stride + reach - value - 2 * pad)


def _max_pool(
    b: Builder, spatial: int, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> Any:
    image, batched = _batched(b, x, spatial)
    k = _each(kernel, spatial)
    s, p, d = _each(stride, spatial, k), _each(padding, spatial), _each(dilation, spatial)
    attrs: dict[str, object] = {
        "kind": "max",
        "kernel": k,
        "stride": s,
        "padding": _paddings(b, image, k, s, p, d, ceil),
        "dilation": d,
        "count": "kernel",
    }
    return image, batched, attrs


def _register_pools() -> None:
    for n in (1, 2, 3):
        converts(f"aten.max_pool{n}d_with_indices.default")(_max(n, indices=True))
        converts(f"aten.max_pool{n}d.default")(_max(n, indices=False))
        converts(f"aten.avg_pool{n}d.default")(_avg(n))
        converts(f"aten.adaptive_avg_pool{n}d.default", f"aten._adaptive_avg_pool{n}d.default")(_adaptive_avg(n))
        converts(f"aten.adaptive_max_pool{n}d.default")(_adaptive_max(n))


def _max(n: int, indices: bool) -> Any:
    """The conversion of max pooling over n dimensions, with the indices of the largest as a second result or not."""

    def convert(
        b: Builder,
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        dilation: Any = (1,),
        ceil: bool = False,
    ) -> Result:
        image, batched, attrs = _max_pool(b, n, x, kernel, stride, padding, dilation, ceil)
        values = _unbatched(b, b.op("pool", image, **attrs), batched)
        return (values, _unbatched(b, b.op("pool_index", image, **attrs), batched)) if indices else values

    return convert


def _avg(n: int) -> Any:
    def convert(
        b: Builder,
        x: Value,
        kernel: Any,
        stride: Any = (),
        padding: Any = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        image, batched = _batched(b, x, n)
        k = _each(kernel, n)
        s, p = _each(stride, n, k), _each(padding, n)
        pads = _paddings(b, image, k, s, p, (1,) * n, ceil_mode)
        count: str | int = "kernel"
        if divisor_override is not None:
            count = divisor_override
        elif any(q != (0, 0) for q in pads):
            count = "valid" if not count_include_pad else "padded" if ceil_mode else "kernel"
        if count == "padded" and any(hi != lo for lo, hi in pads):
            return _unbatched(b, _avg_with_ceil(b, image, k, s, p, pads), batched)
        out = b.op("pool", image, kind="avg", kernel=k, stride=s, padding=pads, dilation=(1,) * n, count=count)
        return _unbatched(b, out, batched)

    return convert


def _avg_with_ceil(b: Builder, x: Value, k: Any, s: Any, p: Any, pads: Any) -> Value:
    """Rounding up, padding counted: the real padding becomes part of the input, the rest does not count."""
    lo = (0, 0, *p)
    padded = b.pad(x, lo, lo)
    rest = tuple((0, hi - low) for low, hi in pads)
    return b.op("pool", padded, kind="avg", kernel=k, stride=s, padding=rest, dilation=(1,) * len(k), count="valid")


def _adaptive_avg(n: int) -> Any:
    def convert(b: Builder, x: Value, output_size: Any) -> Value:
        return _adaptive(b, n, x, "avg")

    return convert


def _adaptive(b: Builder, n: int, x: Value, kind: str) -> Value:
    """An output of size 1 is a mean or a maximum; other sizes keep their own op."""
    out = b.result.shape[x.rank - n :]
    image, batched = _batched(b, x, n)
    for size in image.shape[2:]:
        b.require("le", 1, size, "adaptive pooling needs an element")
    if all(int_value(s) == 1 for s in out):
        dims = list(range(2, 2 + n))
        wide = b.wide(image)
        small = b.mean(wide, dims, True) if kind == "avg" else b.reduce(wide, "max", dims, True)
        return _unbatched(b, b.to(small, x.dtype), batched)
    target = TensorType(x.dtype, (*image.shape[:2], *out))
    return _unbatched(b, b.op("adaptive_pool", image, stated=target, kind=kind), batched)


def _adaptive_max(n: int) -> Any:
    def convert(b: Builder, x: Value, output_size: Any) -> Result:
        """Of sizes that vary, the indices of outputs larger than 1 are left out, so that using them is refused."""
        values = _adaptive(b, n, x, "max")
        image, out = x.shape[x.rank - n :], values.shape[x.rank - n :]
        if all(int_value(s) == 1 for s in out):
            flat = b.reshape(x, (*x.shape[: x.rank - n], product(image)))
            return values, b.reshape(_largest(b, flat), values.shape)
        if any(int_value(s) == 0 for s in out):
            return values, b.full(values.shape, 0, DType.I64)
        if any(int_value(s) is None for s in (*image, *out)):
            return values, None
        windows = adaptive_windows(b, x, out)
        places = adaptive_windows(b, b.reshape(b.iota(product(image)), image), out)
        chosen = b.unsqueeze(_largest(b, windows), windows.rank - 1)
        found = b.op("gather", b.expand(places, windows.shape), chosen, dim=windows.rank - 1)
        return values, b.reshape(found, values.shape)

    return convert


def _largest(b: Builder, x: Value) -> Value:
    """Where the largest element of the last dimension is; each NaN takes over."""
    found = b.reduce(x, "argmax", [x.rank - 1], False)
    if not x.dtype.is_float:
        return found
    last = b.where(b.op("isnan", x), b.iota(x.shape[-1]), -1, DType.I64)
    last = b.reduce(last, "max", [x.rank - 1], False)
    return b.where(b.pw("ge", last, 0), last, found, DType.I64)


_register_pools()


def _resize(b: Builder, x: Value, mode: str, align: bool, scales: Sequence[float | None] | None) -> Value:
    spatial = x.rank - 2
    given = tuple(scales) if scales is not None else (None,) * spatial
    if any(isinstance(s, Value) for s in given):
        raise Refusal("resizing by a factor that depends on sizes: give sizes")
    if not x.dtype.is_float and not mode.startswith("nearest"):
        raise Refusal(
            f"resizing {x.dtype} by mode {mode}, which torch does in fixed point: convert to a float type first"
        )
    for size in (*x.shape[1:], *b.result.shape[2:]):
        b.require("le", 1, size, "resizing needs an element")
    attrs = {
        "mode": mode,
        "align_corners": bool(align),
        "scales": tuple(None if s is None else float(s) for s in given),
    }
    return b.op("resize", x, stated=TensorType(x.dtype, b.result.shape), **attrs)


def _register_resizes() -> None:
    for n, linear in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
        for torch_name, mode in (("upsample_nearest", "nearest"), ("_upsample_nearest_exact", "nearest-exact")):
            converts(f"aten.{torch_name}{n}d.vec")(_nearest_vec(mode))
            converts(f"aten.{torch_name}{n}d.default")(_nearest(mode))
        converts(f"aten.upsample_{linear}{n}d.vec")(_linear_vec("linear"))
        converts(f"aten.upsample_{linear}{n}d.default")(_linear("linear"))
    converts("aten.upsample_bicubic2d.vec")(_linear_vec("cubic"))
    converts("aten.upsample_bicubic2d.default")(_linear("cubic"))


def _nearest_vec(mode: str) -> Any:
    return lambda b, x, size=None, scale_factors=None: _resize(b, x, mode, False, scale_factors)


def _nearest(mode: str) -> Any:
    return lambda b, x, size, *scales, **kw: _resize(b, x, mode, False, _listed(x, scales, kw))


def _linear_vec(mode: str) -> Any:
    return lambda b, x, size=None, align_corners=False, scale_factors=None: _resize(
        b, x, mode, align_corners, scale_factors
    )


def _linear(mode: str) -> Any:
    return lambda b, x, size, align_corners, *scales, **kw: _resize(b, x, mode, align_corners, _listed(x, scales, kw))


def _listed(
    x: Value, scales: Sequence[float | None], keywords: dict[str, float | None]
) -> Sequence[float | None] | None:
    """scales_d, scales_h, scales_w as a list in the order of the dims."""
    given = list(scales) + [keywords[k] for k in ("scales", "scales_d", "scales_h", "scales_w") if k in keywords]
    return given if len(given) == x.rank - 2 else None


_register_resizes()
