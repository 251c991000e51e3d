"""Is a result wrong? It is where it lies outside of what eager gives under disturbance and in float64, by element.

A result is eager's to the last bit where each op behind it is exact or rounds once (once.py). Elsewhere one within 4
ulps of eager's is right. For any other, the program is run again in eager: ten times disturbed by an ulp, six times by
four ulps, once in float64. The numbers found span an interval, which is widened by eight times what one ulp did and by
four times eager's own error. Integers and booleans must be among those found; the bits of floats are judged as those
are, since their steps are ulps. Where a NaN or an infinity comes and goes, anything is right. What is outside of all
this may be a choice that rounding makes once in fifty runs, such as a floor: before it counts as wrong, up to 150
more are run, whose results are possible, too, and widen nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from hardtack.exporter.sizes.strides import contract_order, is_dense, laid_out, otherwise_strided
from tests.fuzz.disturb import ULP, Disturbed
from tests.fuzz.once import Determined
from tests.fuzz.program import Program, behind, build, widened
from tests.fuzz.tensors import Sizes

NEAR_RUNS, FAR_RUNS, FAR_ULPS, WIDER, OWN = 10, 6, 4.0, 8.0, 4.0
MORE_RUNS, MOST_RUNS = 30, 150
CLOSE_ULPS = 4.0
STEADY = 2
"""By how much an integer changes that is one or the other of two or three, such as one that was rounded."""
BITS, VIEW = frozenset({torch.int16, torch.int32, torch.int64}), ".view(torch.int"

Results = list[list[torch.Tensor]]
"""By call, by output."""


@dataclass(frozen=True)
class Call:
    """One call's inputs, by sizes (None: the example's), among which numbers are by their names, and salt.

    layout: how eager has them. "taken": as a program takes them, of transposed ones copies in row-major order
    (docs/contract.md). "other": with the other strides that callers may give dimensions of size 1. "given": as they
    lie in the example. The result is the same, or the model is refused.
    """

    sizes: tuple[tuple[str, int], ...] | None = None
    salt: int = 0
    layout: Literal["taken", "other", "given"] = "taken"

    def arguments(self, program: Program) -> tuple[Any, ...]:
        given = program.arguments(self._sizes(), self.salt)
        if self.layout != "other":
            return given
        return tuple(otherwise_strided(x) if isinstance(x, torch.Tensor) else x for x in self._taken(program, given))

    def oracle_arguments(self, program: Program) -> tuple[Any, ...]:
        """The same for eager."""
        given = self.arguments(program)
        return self._taken(program, given) if self.layout == "taken" else given

    def _taken(self, program: Program, given: Sequence[Any]) -> tuple[Any, ...]:
        pairs = zip(given, program.arguments(), strict=True)
        return tuple(_laid_out(x, contract_order(e)) if isinstance(x, torch.Tensor) else x for x, e in pairs)

    def _sizes(self) -> Sizes | None:
        return None if self.sizes is None else dict(self.sizes)

    def __str__(self) -> str:
        at = "the example's sizes" if self.sizes is None else ", ".join(f"{s} = {n}" for s, n in self.sizes)
        layout = "" if self.layout == "taken" else f", {self.layout} strides"
        return f"{at}, inputs {self.salt}{layout}"


def _laid_out(x: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Dimensions of size 1 keep their strides only where these make it row-major or channels_last, which is tried."""
    whole = laid_out(x, order)
    return x if is_dense(x, order) and (x.stride() == whole.stride() or otherwise_strided(x) is not x) else whole


@dataclass(frozen=True)
class Fault:
    """What is wrong: at which call, which output."""

    call: int
    output: int
    text: str


def eager(program: Program, calls: Sequence[Call], disturbed: Disturbed | None = None) -> Results:
    """What the module gives for these calls, in order, on one instance."""
    module = build(program, plain=True)
    found: Results = []
    with torch.no_grad():
        for call in calls:
            arguments = call.oracle_arguments(program)
            if disturbed is None:
                out = module(*arguments)
            else:
                with disturbed:
                    out = module(*arguments)
            found.append([o.clone() for o in out])
    return found


def determined(program: Program, calls: Sequence[Call]) -> list[list[bool]]:
    """By call, by output: True if eager's result is the only right one, to the last bit. One behind an einsum is not:
    over a dimension of one element eager multiplies, where a kernel for any size may split numbers for tensor cores.
    """
    module, found = build(program, plain=True), []
    loose = [any("einsum" in line.text for line in behind(program, o)) for o in range(len(program.outputs))]
    mode = Determined()
    with torch.no_grad():
        for call in calls:
            arguments = call.oracle_arguments(program)
            with mode:
                out = module(*arguments)
            found.append([mode.holds(o) and not free for o, free in zip(out, loose, strict=True)])
    return found


class Undecided(Exception):
    """A result differs from eager's, and how far it may cannot be found out."""


class Oracle:
    """Eager's results of one program for some calls; disturbed ones are made when they are asked for."""

    def __init__(self, program: Program, calls: Sequence[Call]) -> None:
        self.program, self.calls = program, tuple(calls)
        self.want = eager(program, calls)
        self._determined: list[list[bool]] | None = None
        self._near: list[Results] | None = None
        self._far: list[Results] = []
        self._more = 0
        self._exact: Results | None = None

    def _run(self) -> None:
        self._near = self._disturbed(range(1, NEAR_RUNS + 1), 1.0)
        self._far = self._disturbed(range(101, FAR_RUNS + 101), FAR_ULPS)
        try:
            self._exact = eager(widened(self.program), self.calls)
        except Exception:  # a line that holds for one dtype only, such as a view of its bits
            self._exact = None

    def _run_more(self) -> bool:
        """Some runs more, half of them by one ulp; False if there have been enough."""
        if self._more == MOST_RUNS:
            return False
        first, middle = 1001 + self._more, 1001 + self._more + MORE_RUNS // 2
        self._more += MORE_RUNS
        self._far += self._disturbed(range(first, middle), 1.0)
        self._far += self._disturbed(range(middle, first + MORE_RUNS), FAR_ULPS)
        return True

    def _disturbed(self, seeds: range, ulps: float) -> list[Results]:
        found: list[Results] = []
        why: Exception | None = None
        for seed in seeds:
            try:
                found.append(eager(self.program, self.calls, Disturbed(seed, ulps, self.program.compute)))
            except Exception as error:  # a condition of the program on a disturbed number
                why = error
        if 2 * len(found) < len(seeds):
            raise Undecided(f"eager does not run disturbed: {why}")
        return found

    def fault(self, got: Results) -> Fault | None:
        """The first wrong result; None if all are right."""
        for c, (ours, theirs) in enumerate(zip(got, self.want, strict=True)):
            if len(ours) != len(theirs):
                return Fault(c, 0, f"{len(ours)} results, eager gives {len(theirs)}")
            for o, (g, w) in enumerate(zip(ours, theirs, strict=True)):
                text = self._compare(c, o, g, w)
                if text is not None:
                    return Fault(c, o, text)
        return None

    def _compare(self, c: int, o: int, g: torch.Tensor, w: torch.Tensor) -> str | None:
        if g.dtype != w.dtype:
            return f"dtype {g.dtype}, eager {w.dtype}"
        if g.shape != w.shape:
            if not g.numel() and not w.numel() and any("pixel_unshuffle" in n.text for n in behind(self.program, o)):
                return None  # eager gives the shape that it was given, if that has no elements
            return f"shape {list(g.shape)}, eager {list(w.shape)}"
        apart = _apart(g, w)
        if not bool(apart.any()):
            return None
        if self._determined is None:
            self._determined = determined(self.program, self.calls)
        if self._determined[c][o]:
            return f"{_told(g, w, [w], [], None, apart)}, where each op rounds once at most"
        far = _not_close(g, w)
        if not bool(far.any()):
            return None
        if self._near is None:
            self._run()
        assert self._near is not None
        wrong = far & self._outside(c, o, g, w)
        while bool(wrong.any()) and self._run_more():
            wrong = far & self._outside(c, o, g, w)
        return _told(g, w, *self._found(c, o, w), wrong) if bool(wrong.any()) else None

    def _outside(self, c: int, o: int, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        near, wide, exact = self._found(c, o, w)
        if w.dtype in BITS and any(VIEW in line.text for line in behind(self.program, o)):
            return _outside_bits(g, near, wide)
        return _outside(g, w, near, wide, exact)

    def _found(
        self, c: int, o: int, w: torch.Tensor
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor | None]:
        """What eager gave for an output at a call: itself and by an ulp, by more and in further runs, in float64."""
        assert self._near is not None
        near = [w, *(r[c][o] for r in self._near if r[c][o].shape == w.shape)]
        wide = [r[c][o] for r in self._far if r[c][o].shape == w.shape]
        exact = None if self._exact is None else self._exact[c][o]
        return near, wide, exact if exact is not None and exact.shape == w.shape else None


def _apart(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Where they differ; a NaN is like another, and so is a zero."""
    return (g != w) & ~(g.isnan() & w.isnan())


def _not_close(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    if not w.is_floating_point():
        return g != w
    a, b = g.double(), w.double()
    same = ~_apart(g, w)
    step = CLOSE_ULPS * (ULP[w.dtype] * b.abs()).clamp(min=torch.finfo(w.dtype).smallest_normal * ULP[w.dtype])
    return ~(same | (b.isfinite() & ((a - b).abs() <= step)))


def _outside(
    g: torch.Tensor,
    w: torch.Tensor,
    near: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor],
    exact: torch.Tensor | None,
) -> torch.Tensor:
    """Where g lies outside of all that eager may give. `near` begins with w."""
    if w.dtype is torch.bool:
        return (torch.stack([*near, *wide]) == w).all(0)
    if not w.is_floating_point():
        found = torch.stack([*near, *wide])
        least, most = found.amin(0), found.amax(0)
        spread = most.double() - least.double()  # in the integers' own dtype it may overflow
        gap = torch.maximum(least.double() - g.double(), g.double() - most.double())
        near_by = (spread > STEADY) & (gap <= spread)  # of places that rounding decides, a few runs show a part
        return ((g < least) | (g > most)) & ~near_by
    others = [*wide, exact.to(w.dtype)] if exact is not None else [*wide]
    found = torch.stack([*near, *others]).double()
    nan, infinite = found.isnan(), found.isinf()
    steady = (nan == nan[0]).all(0) & (infinite == infinite[0]).all(0)
    close = torch.stack(list(near)).double().nan_to_num(0, 0, 0)
    spread = close.amax(0) - close.amin(0)
    finite = found.nan_to_num(0, 0, 0)
    margin = WIDER * spread + CLOSE_ULPS * ULP[w.dtype] * finite.abs().amax(0)
    if exact is not None:
        margin = margin + OWN * _own_error(w, exact)
    ours = g.double()
    off = (ours < finite.amin(0) - margin) | (ours > finite.amax(0) + margin) | ~ours.isfinite()
    special = torch.where(nan[0], ~ours.isnan(), ours != found[0])
    return steady & torch.where(nan[0] | infinite[0], special, off)


def _outside_bits(g: torch.Tensor, near: Sequence[torch.Tensor], wide: Sequence[torch.Tensor]) -> torch.Tensor:
    """The same of floats that are seen as integers; anything where the sign of a float comes and goes."""
    found, ours = torch.stack([*near, *wide]).long(), g.long()
    close = found[: len(near)]
    steady = ((found < 0) == (found[0] < 0)).all(0)
    margin = int(WIDER) * (close.amax(0) - close.amin(0)).clamp(0, 2**56) + int(CLOSE_ULPS)
    return steady & ((found.amin(0) - ours > margin) | (ours - found.amax(0) > margin) | ((ours < 0) != (found[0] < 0)))


def _own_error(w: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """How far eager is off by itself: at each element, and as is usual in the tensor.

    Some ops round inside where no disturbance reaches, such as the places between pixels. Elements at which the two
    have taken different ways say nothing about that.
    """
    own = (exact.double() - w.double()).abs().nan_to_num(0, 0, 0)
    largest = exact.double().abs().nan_to_num(0, 0, 0).amax()
    usual = own[own <= 1e-3 * largest]
    rms = usual.square().mean().sqrt() if usual.numel() else own.new_zeros(())
    return own.clamp(max=float(1e-3 * largest)) + rms


def _told(
    g: torch.Tensor,
    w: torch.Tensor,
    near: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor],
    exact: torch.Tensor | None,
    wrong: torch.Tensor,
) -> str:
    at = tuple(wrong.nonzero()[0].tolist())
    text = f"{int(wrong.sum())} of {g.numel()} elements of {w.dtype} {list(g.shape)}, the first at {list(at)}: "
    text += f"{g[at].item()!r}, eager {w[at].item()!r}"
    if w.is_floating_point():
        values = sorted(x[at].item() for x in (*near, *wide))
        text += f", disturbed from {values[0]!r} to {values[-1]!r}"
        text += f", in float64 {exact[at].item()!r}" if exact is not None else ""
    return text
