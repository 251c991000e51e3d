"""Programs from seeds: line by line, each run in eager while it is drawn, and left out where eager refuses it.

A family (families/) proposes a line; the Drawer gives it operands that fit. What a program is like as a whole (its main
dtype, how large its sizes are, whether some of them are dynamic) is drawn first, as its Regime.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from tests.fuzz.numbers import Number, NumberSpec
from tests.fuzz.program import NAMES, Inner, Line, Program, Weight, space
from tests.fuzz.tensors import DTYPES, FLOATS, INTS, TensorSpec

MOST_NUMEL = 300_000
SYMBOLS = {"n": 11, "m": 19}
EVEN_SYMBOLS = {"n": 12, "m": 20}
"""Symbol -> its size in the example: sizes that no static dimension has, so that a size says whether it is dynamic.
What halves a size wants an even one.
"""
LENGTHS = (1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12, 16, 20)
SIZES = {
    "small": (1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 13, 16, 17),
    "tails": (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129),
    "empty": (0, 1, 2, 3, 4, 5, 8, 17),
    "long": (1, 2, 3, 8, 17, 64, 257, 1000, 1025, 4097),
}


WITH_NUMBERS = 0.2
"""How many programs are given Python numbers."""
NUMBER_SIZES = (23, 29, 26, 46)
"""Dynamic ints that are the size of a tensor: as no static dimension is, and no symbol."""
DYNAMIC_INTS = (2, 3, 3, 4, 5, 7, 9, 12, 0, 1, 50, 1000)
CONSTANTS: tuple[Number, ...] = (0, 1, 2, 3, 7, -1, -3, 100, True, False, 0.5, 0.1, -1.25, 1 / 3, 2.0, 0.0, -0.0)
CONSTANTS += (1.0, math.inf, math.nan, 1e-3, 2**31 + 1, 2**53 + 1)


@dataclass(frozen=True)
class Draft:
    """A statement that a family proposes: an expression whose value gets a name, or a write in place."""

    text: str
    writes: bool = False


Drawn = str | Draft | Iterable[Draft] | None
"""Of a generator's drafts each is kept before the next is asked for, so that it can look at their values."""


@dataclass(frozen=True)
class Family:
    """Lines of one kind. weight: how often it is asked. numbers: they read Python numbers that forward is given, which
    one program of five is.
    """

    name: str
    weight: float
    draw: Callable[[Drawer], Drawn]
    numbers: bool = False


@dataclass(frozen=True)
class Regime:
    """What a program is like. main: the dtype of most of its tensors; dynamic: "" or as Program has it; even: dynamic
    sizes are even in the example.
    """

    main: str
    sizes: str
    dynamic: str
    two_symbols: bool
    most_numel: int
    even: bool

    def symbols(self) -> dict[str, int]:
        """Each symbol's size in the example; {} for a program of fixed sizes."""
        if not self.dynamic:
            return {}
        sizes = EVEN_SYMBOLS if self.even else SYMBOLS
        return dict(sizes) if self.two_symbols else {"n": sizes["n"]}


class Unfit(Exception):
    """A proposal that does not fit the program so far."""


def regime(r: random.Random) -> Regime:
    main = r.choices(FLOATS, (64, 13, 13, 10))[0]
    sizes = r.choices(tuple(SIZES), (60, 22, 6, 12))[0]
    dynamic = r.choices(("", "named", "open", "auto"), (70, 10, 8, 12))[0]
    two, even = dynamic != "" and r.random() < 0.3, dynamic != "" and r.random() < 0.4
    return Regime(main, sizes, dynamic, two, 120_000 if sizes == "long" else 30_000, even)


@dataclass
class _State:
    """What is undone where a proposal fails."""

    inputs: list[TensorSpec] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    inners: list[Inner] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    numbers: list[NumberSpec] = field(default_factory=list)

    def copy(self) -> _State:
        lists = (list(x) for x in (self.inputs, self.weights, self.inners, self.lines))
        return _State(*lists, dict(self.values), set(self.frozen), list(self.numbers))


class Drawer:
    """A program in the making. `r` decides everything but what numbers are given, so that programs without any are what
    they were before there were such; `values` has each tensor's value in eager.
    """

    def __init__(self, seed: int, families: Sequence[Family]) -> None:
        self.seed = seed
        self.r = random.Random(seed)
        self.regime = regime(self.r)
        self._own = random.Random(f"{seed} numbers")
        self.numbered = self._own.random() < WITH_NUMBERS or all(f.numbers for f in families)
        self._families = [f for f in families if self.numbered or not f.numbers]
        self._module = nn.Module()
        self._state = _State()
        self._count = 0

    # --- the program as it is ---------------------------------------------------------------------------------------

    @property
    def values(self) -> dict[str, torch.Tensor]:
        return self._state.values

    @property
    def main(self) -> torch.dtype:
        return DTYPES[self.regime.main]

    @property
    def dynamic(self) -> bool:
        return self.regime.dynamic != ""

    def value(self, name: str) -> torch.Tensor:
        return self.values[name]

    def symbol(self) -> int:
        """The first dynamic size."""
        return self.regime.symbols()["n"]

    def is_symbolic(self, size: int) -> bool:
        sized = (k.value for k in self._state.numbers if k.sized and k.dynamic and k.value > 1)
        return size in self.regime.symbols().values() or size in sized

    def has_symbols(self, t: torch.Tensor) -> bool:
        return any(self.is_symbolic(n) for n in t.shape)

    def writable(self, t: torch.Tensor) -> bool:
        return t.untyped_storage().data_ptr() not in self._state.frozen

    # --- sizes and new tensors ----------------------------------------------------------------------------------------

    def size(self) -> int:
        if self.dynamic and self.r.random() < 0.35:
            sizes = self.regime.symbols()
            return sizes["m"] if "m" in sizes and self.r.random() < 0.4 else sizes["n"]
        n = self.r.choice(SIZES[self.regime.sizes])
        return n if not self.is_symbolic(n) else n + 1

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.r.choice((1, 2, 2, 3, 3, 4)) if rank is None else rank
        for _ in range(50):
            found = tuple(self.size() for _ in range(rank))
            if math.prod(found) <= self.regime.most_numel:
                return found
        return (2,) * rank

    def input(
        self,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        fill: str = "",
        limits: tuple[int, ...] = (),
    ) -> str:
        """A new input; its name."""
        r = self.r
        if dtype is None:
            dtype = self.main if r.random() < 0.75 else DTYPES[r.choice(tuple(DTYPES))]
        sizes = self.shape() if shape is None else tuple(shape)
        fills = ["normal"] * 8 + (["quarters", "quarters", "positive", "special"] if dtype.is_floating_point else [])
        symbols = {n: s for s, n in self.regime.symbols().items()}
        spec = TensorSpec(
            f"x{len(self._state.inputs)}",
            tuple(symbols.get(n, n) for n in sizes),
            str(dtype).removeprefix("torch."),
            fill or r.choice(fills),
            r.randrange(10**6),
            r.choice(("dense", "dense", "dense", "permuted", "strided", "expanded", "offset", "channels_last")),
            limits,
        )
        made = spec.make(self.regime.symbols())
        self._state.inputs.append(spec)
        self.values[spec.name] = made
        self._state.frozen.add(made.untyped_storage().data_ptr())
        return spec.name

    def python_number(self, sized: bool) -> str:
        """A Python number among the inputs, there already or new; its name. sized: for the size of a tensor."""
        r, numbers = self._own, self._state.numbers
        fit = [k.name for k in numbers if k.sized is sized]
        if fit and (len(numbers) > 3 or r.random() < 0.6):
            return r.choice(fit)
        dynamic = r.choice(("named", "open", "dynamic", "dynamic", "auto", "auto")) if r.random() < 0.75 else ""
        if sized:
            taken = {k.value for k in numbers}
            choice = [n for n in NUMBER_SIZES if n not in taken] if dynamic and r.random() < 0.85 else (0, 1, 3, 6)
            value: Number = r.choice(choice)
        else:
            value = r.choice(DYNAMIC_INTS if dynamic else CONSTANTS)
        numbers.append(NumberSpec(f"k{len(numbers)}", value, dynamic, sized))
        return numbers[-1].name

    def weight(
        self,
        shape: Sequence[int],
        dtype: torch.dtype | None = None,
        fill: str = "normal",
        limits: tuple[int, ...] = (),
        kind: str = "",
    ) -> str:
        """A new parameter or buffer; how the text names it. A dynamic size cannot be one's: 1 takes its place."""
        dtype = dtype or self.main
        fixed = tuple(1 if self.is_symbolic(n) else n for n in shape)
        if not kind:
            kind = "parameter" if dtype.is_floating_point and self.r.random() < 0.7 else "buffer"
        name, kind_of = f"p{len(self._state.weights)}", str(dtype).removeprefix("torch.")
        spec = TensorSpec(name, fixed, kind_of, fill, self.r.randrange(10**6), limits=limits)
        weight = Weight(spec, kind)
        setattr(self._module, spec.name, spec.make({}))
        self._state.weights.append(weight)
        if kind == "parameter" or dtype.is_floating_point:
            self._state.frozen.add(getattr(self._module, spec.name).untyped_storage().data_ptr())
        return weight.name

    def state(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        """A buffer that the program may write to."""
        name = self.weight(shape, dtype, kind="buffer")
        self._state.frozen.discard(self.buffer(name).untyped_storage().data_ptr())
        return name

    def buffer(self, name: str) -> torch.Tensor:
        found = getattr(self._module, name.removeprefix("self."))
        assert isinstance(found, torch.Tensor)
        return found

    def inner(self, text: str) -> str:
        """A module inside, by its constructor's text; how forward names it."""
        inner = Inner(f"m{len(self._state.inners)}", text, len(self._state.inners) + 1)
        torch.manual_seed(inner.seed)
        module = eval(text, space()).eval().requires_grad_(False)
        setattr(self._module, inner.name, module)
        self._state.inners.append(inner)
        return f"self.{inner.name}"

    # --- operands -----------------------------------------------------------------------------------------------------

    def pick(self, fits: Callable[[torch.Tensor], bool], recent: float = 0.6) -> str | None:
        """A value that fits, one of the last few with probability `recent`; None if there is none."""
        names = [n for n, t in self.values.items() if fits(t)]
        if not names:
            return None
        return self.r.choice(names[-4:] if self.r.random() < recent else names)

    def operand(self, fits: Callable[[torch.Tensor], bool], make: Callable[[], str]) -> str:
        """A value that fits, or now and then a new input."""
        found = self.pick(fits) if self.r.random() < 0.88 else None
        return found or make()

    def floats(self, rank: int | None = None, least: int = 0) -> str:
        def fits(t: torch.Tensor) -> bool:
            return t.is_floating_point() and t.dim() >= least and (rank is None or t.dim() == rank)

        wanted = rank or max(least, self.r.choice((1, 2, 3)))
        return self.operand(fits, lambda: self.input(self.shape(wanted), self.main))

    def ints(self, least: int = 0) -> str:
        def fits(t: torch.Tensor) -> bool:
            return not t.is_floating_point() and t.dtype is not torch.bool and t.dim() >= least

        return self.operand(fits, lambda: self.input(dtype=DTYPES[self.r.choice(INTS)]))

    def bools(self, least: int = 0) -> str:
        return self.operand(lambda t: t.dtype is torch.bool and t.dim() >= least, lambda: self.input(dtype=torch.bool))

    def anything(self, least: int = 1) -> str:
        return self.operand(lambda t: t.dim() >= least, lambda: self.input(self.shape(max(1, least))))

    def dim(self, name: str) -> int:
        rank = self.value(name).dim()
        if not rank:
            return 0
        d = self.r.randrange(rank)
        return d - rank if self.r.random() < 0.4 else d

    def dims(self, name: str) -> tuple[int, ...]:
        """Some dimensions, each once."""
        rank = self.value(name).dim()
        if not rank:
            return ()
        found = sorted(self.r.sample(range(rank), self.r.randint(1, rank)))
        return tuple(d - rank if self.r.random() < 0.3 else d for d in found)

    def partner(self, name: str, dtype: torch.dtype | None = None) -> str:
        """Something that broadcasts with a value: another value, a number, a mean, a new weight."""
        r, t = self.r, self.value(name)
        dtype = dtype or t.dtype

        def fits(u: torch.Tensor) -> bool:
            try:
                torch.broadcast_shapes(u.shape, t.shape)
            except RuntimeError:
                return False
            return u.dtype == dtype or r.random() < 0.15

        found = self.pick(fits, 0.0) if r.random() < 0.6 else None
        if found:
            return found
        if r.random() < 0.2:
            return self.number(dtype)
        if t.dim() and t.is_floating_point() and r.random() < 0.2:
            return f"{name}.mean({self.dim(name)}, keepdim=True)"
        shape = [n if r.random() < 0.7 else 1 for n in t.shape]
        start = r.randrange(len(shape) + 1) if shape and r.random() < 0.3 else 0
        fill = "quarters" if dtype.is_floating_point and r.random() < 0.3 else "normal"
        return self.weight(shape[start:], dtype, fill)

    def number(self, dtype: torch.dtype) -> str:
        """A number; of the floats some are none of a half type, or of any."""
        floats = (2, 0.5, -1.25, 3, 1, 0.1, 0.1, 0.7, -1.7, 1 / 3, 1 / 3, 1001)
        return repr(self.r.choice(floats if dtype.is_floating_point else (1, 2, 3, -2)))

    def alike(self, name: str, dtype: torch.dtype | None = None) -> str:
        """A value of the same shape and dtype; itself if there is no other."""
        t = self.value(name)
        return self.pick(lambda u: u.shape == t.shape and u.dtype == (dtype or t.dtype), 0.3) or name

    def condition(self, name: str) -> str:
        """A boolean tensor that broadcasts with a value."""
        t = self.value(name)
        found = self.pick(lambda u: u.dtype is torch.bool and u.shape == t.shape)
        return found or f"({name} > 0)"

    def next_name(self, k: int = 0) -> str:
        """What the value of the next line will be called, or of the k-th behind it."""
        return f"v{self._count + k}"

    # --- lines --------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Asks a family for a line and keeps it if eager takes it."""
        family = self.r.choices(self._families, [f.weight for f in self._families])[0]
        before, count = self._state, self._count
        self._state = before.copy()
        try:
            drawn = family.draw(self)
            if drawn is None:
                raise Unfit
            for draft in [Draft(drawn)] if isinstance(drawn, str) else [drawn] if isinstance(drawn, Draft) else drawn:
                self._add(draft, family.name)
        except Exception:  # whatever eager says against a line
            self._state, self._count = before, count
            return False
        return True

    def _add(self, draft: Draft, family: str) -> None:
        names = {**space(), "self": self._module, **self.values, **{k.name: k.value for k in self._state.numbers}}
        if draft.writes:
            base = NAMES.match(draft.text)
            if base is None:
                raise Unfit
            written = self.buffer(base[0]) if base[0].startswith("self.") else self.value(base[0])
            if not self.writable(written):
                raise Unfit
            exec(draft.text, names)
            self._state.lines.append(Line(draft.text, (), family))
            return
        found = eval(draft.text, names)
        several = isinstance(found, (tuple, list))
        results = list(found) if several else [found]
        if not results or len(results) > 6:
            raise Unfit
        for t in results:
            _check_value(t)
        targets = tuple(f"v{self._count + k}" for k in range(len(results)))
        self._count += len(targets)
        self.values.update(zip(targets, results, strict=True))
        self._state.lines.append(Line(draft.text, targets, family, several))

    def program(self) -> Program:
        r = self.r
        for _ in range(r.choice((1, 1, 2, 2, 3))):
            self.input()
        want, tries = r.choice(LENGTHS), 0
        while len(self._state.lines) < want and tries < 12 * want:
            self.step()
            tries += 1
        s, outputs = self._state, self._outputs()
        read = set(outputs).union(*(line.names() for line in s.lines))
        inputs = tuple(i for i in s.inputs if i.name in read or r.random() < 0.2) or (s.inputs[0],)
        used = {symbol for i in inputs for symbol in i.symbols().values()}
        return Program(
            self.seed,
            inputs,
            tuple(w for w in s.weights if w.name in read),
            tuple(i for i in s.inners if f"self.{i.name}" in read),
            tuple(s.lines),
            outputs,
            tuple((name, n) for name, n in self.regime.symbols().items() if name in used),
            self.regime.dynamic if used else "",
            tuple(line.family for line in s.lines),
            strict=r.random() < 0.08,
            numbers=tuple(k for k in s.numbers if k.name in read or self._own.random() < 0.2),
            packed=self._own.choice(("", "", "", "tuple", "dict")) if s.numbers else "",
        )

    def _outputs(self) -> tuple[str, ...]:
        """The last few values, those that nothing reads, and now and then something given twice or as it came."""
        r, s = self.r, self._state
        made = [n for n in self.values if n.startswith("v")]
        outputs = made[-r.choice((1, 2, 3, 4)) :]
        read = set().union(*(line.names() for line in s.lines), set())
        outputs += [n for n in made if n not in read and n not in outputs][:10]
        if r.random() < 0.1 and outputs:
            outputs.append(outputs[0])
        if r.random() < 0.1 or not outputs:
            outputs.append(s.inputs[0].name)
        if r.random() < 0.05 and s.weights:
            outputs.append(s.weights[0].name)
        return tuple(outputs)


def _check_value(t: object) -> None:
    """Unfit for what a program should not go on with: no tensor, too large, mostly NaN, near overflow."""
    if not isinstance(t, torch.Tensor) or t.numel() > MOST_NUMEL or t.dim() > 6 or t.dtype not in DTYPES.values():
        raise Unfit
    if t.is_floating_point() and t.numel():
        most = 3e3 if t.dtype is torch.float16 else 1e6
        if float(t.nan_to_num(0, 0, 0).abs().max()) > most:
            raise Unfit
        if t.numel() > 3 and float(t.isnan().double().mean()) > 0.5:
            raise Unfit


def draw(seed: int, families: Sequence[Family] | None = None) -> Program:
    """The program of a seed. families: those to draw from; None: all."""
    if families is None:
        from tests.fuzz.families import FAMILIES

        families = FAMILIES
    with torch.no_grad():
        return Drawer(seed, families).program()
