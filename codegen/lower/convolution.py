"""What the convolution templates of CPUs and GPUs have in common: the geometry of windows, and its attributes."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer import window_size
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.roles import Extent, Sizes, differ, exceeds, need
from hardtack.codegen.lower.layout import channels_last


@dataclass(frozen=True)
class Convolution(Template):
    """A convolution of x [N, C, *S]; its result [N, O, *P] is channels-last. Each field has a number a spatial
    dimension, padding a pair (before, after)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]

    takes_epilogue = True

    @property
    def spreads(self) -> bool:
        """True if each element of x is spread over a window of the result: a transposed convolution."""
        return False

    def extents(self, nest: TemplateNest) -> dict[str, Extent]:
        rank = len(self.kernel)
        fields = (self.stride, self.padding, self.dilation)
        need(all(len(f) == rank for f in fields), "its fields are of different ranks")
        need(min((*self.kernel, *self.stride, *self.dilation)) > 0, "its windows or steps are empty")
        need(len(nest.axes) > rank, f"it has {len(nest.axes)} axes for {rank} spatial dimensions")
        return {"*kernel": tuple(map(const, self.kernel))}

    def verify_order(self, order: tuple[int, ...]) -> None:
        _verify_channels_last(order)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        """The windows of P are those of S: for a transposed convolution, with up to a step more."""
        spatial, points = sizes.many("S"), sizes.many("P")
        need(len(spatial) == len(points) == len(self.kernel), f"it has {len(self.kernel)} spatial dimensions")
        for k, (s, p) in enumerate(zip(spatial, points, strict=True)):
            kernel, stride, dilation = self.kernel[k], self.stride[k], self.dilation[k]
            if self.spreads:
                least = (s - 1) * stride - sum(self.padding[k]) + dilation * (kernel - 1) + 1
                outside = exceeds(least, p) or exceeds(p, least + max(stride, dilation) - 1)
            else:
                least = window_size(s, kernel, stride, self.padding[k], dilation)
                outside = differ(least, p)
            if outside:
                raise LoopError(f"its result has {p} points along dimension {k}, expected {least}")


def _verify_channels_last(order: tuple[int, ...]) -> None:
    need(order == channels_last(len(order)), f"its result is in the order {order}, expected channels last")


def verify_parts_channels_last(order: tuple[int, ...]) -> None:
    """Raise LoopError unless each part of a sum, which the first dimension numbers, is channels-last."""
    need(order[:1] == (0,), f"its result is in the order {order}, expected its parts outside")
    _verify_channels_last(tuple(d - 1 for d in order[1:]))


def group_size(channels: Expr, groups: int) -> Expr:
    """Channels of one group of `groups`. LoopError where there is none."""
    need(groups > 0, f"it has {groups} groups")
    return channels // groups


@dataclass(frozen=True)
class Geometry:
    """The attributes of a graph's convolution: a number a spatial dimension, of padding a pair (before, after); fill:
    the number that padding adds."""

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    fill: int


def geometry(op: Op) -> Geometry:
    """The attributes of a convolution."""
    pairs = tuple((int(before), int(after)) for before, after in op.tuple_attr("padding"))
    fill = op.int_attr("fill") if "fill" in dict(op.attrs) else 0
    transposed = op.bool_attr("transposed")
    return Geometry(op.tuple_attr("stride"), pairs, op.tuple_attr("dilation"), op.int_attr("groups"), transposed, fill)
