"""What holds along every path through a plan: definition before use, no forbidden write, no overlap in the arena."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_read import RawInstr, RawPlan
from hardtack.codegen.package.plan_written import Branching

Known = Callable[[int], int | None]


def accesses(plan: RawPlan, i: RawInstr) -> tuple[list[int], list[int]]:
    """(values read, values written) by the instruction itself, not by what it holds."""
    if i.op == "launch":
        pairs = list(zip(i.buffers, plan.kernels[i.kernel].buffers, strict=True))
        reads = [v for v, (_, access) in pairs if access != "write"]
        return reads, [v for v, (_, access) in pairs if access != "read"]
    if i.op == "copy":
        return [i.src], [i.dst]
    if i.op == "fill":
        return [], [i.dst]
    if i.op == "read":
        return [i.src], []
    return [i.cond], []


def check_flow(plan: RawPlan, read_only: frozenset[int]) -> None:
    """Raises LoadError for a use before definition, a write to what is read only, or an output left undefined."""
    defined = Branching({n for n, v in enumerate(plan.values) if v.storage in ("input", "constant", "state")})
    _check_body(plan, plan.body, defined, read_only)
    for v in plan.outputs:
        if v not in defined.members:
            raise LoadError(f"output {plan.values[v].name!r} is not defined at the end", plan.where)


def _check_body(plan: RawPlan, body: Iterable[RawInstr], defined: Branching, read_only: frozenset[int]) -> None:
    """Adds what `body` defines to what is defined before it."""
    for i in body:
        if i.op == "while":
            # the test runs at least once, the body perhaps never; a later round sees no less than the first
            _check_body(plan, i.cond_body, defined, read_only)
            _check_instr(plan, i, defined.members, read_only)
            _check_branch(plan, i.body, defined, read_only)
            continue
        _check_instr(plan, i, defined.members, read_only)
        if i.op == "if":
            new = _check_branch(plan, i.body, defined, read_only) & _check_branch(plan, i.orelse, defined, read_only)
        else:
            new = set(accesses(plan, i)[1])
        for v in new:
            defined.add(v)


def _check_branch(plan: RawPlan, body: Iterable[RawInstr], defined: Branching, read_only: frozenset[int]) -> set[int]:
    """What `body` defines, which is forgotten behind it."""
    entered = defined.enter()
    _check_body(plan, body, defined, read_only)
    return defined.leave(entered)


def _check_instr(plan: RawPlan, i: RawInstr, defined: set[int], read_only: frozenset[int]) -> None:
    reads, writes = accesses(plan, i)
    for v in reads:
        if v not in defined:
            raise LoadError(f"{i.path}: value {plan.values[v].name!r} is used before it is defined", plan.where)
    arguments = list(i.buffers) if i.op == "launch" else [*reads, *writes]
    times = Counter(arguments)
    states: dict[int | str, list[int]] = {}  # values of one state share its bytes
    for v in times:
        if plan.values[v].storage == "state":
            states.setdefault(plan.values[v].at, []).append(v)
    for v in writes:
        value = plan.values[v]
        if v in read_only:
            place = "a constant" if value.storage == "constant" else "an input"
            raise LoadError(f"{i.path}: writes value {value.name!r}, which is stored in {place}", plan.where)
        if times[v] > 1:
            raise LoadError(f"{i.path}: value {value.name!r} is written and given twice", plan.where)
        shared = states[value.at] if value.storage == "state" else [v]
        if len(shared) > 1:
            other = plan.values[shared[0] if shared[0] != v else shared[1]]
            raise LoadError(f"{i.path}: values {value.name!r} and {other.name!r} share state {value.at!r}", plan.where)


@dataclass
class _Lifetimes:
    """First write and last use of every value, counted in instructions; `while` bodies widen what crosses them."""

    plan: RawPlan
    clock: int = 0
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    loops: int = 0
    touched: list[int] = field(default_factory=list)
    """What is used inside the loops around the current place."""

    def walk(self, body: Iterable[RawInstr]) -> None:
        for i in body:
            self.clock += 1
            if i.op == "while":
                self._loop(i)
                continue
            self._touch(i)
            self.walk(i.body)
            self.walk(i.orelse)

    def _touch(self, i: RawInstr) -> None:
        reads, writes = accesses(self.plan, i)
        for v in writes:
            self.first.setdefault(v, self.clock)
        for v in (*reads, *writes):
            self.last[v] = self.clock
        if self.loops:
            self.touched += reads + writes

    def _loop(self, i: RawInstr) -> None:
        start, mark = self.clock, len(self.touched)
        self.loops += 1
        self.walk(i.cond_body)
        self.clock += 1
        self._touch(i)
        self.walk(i.body)
        self.clock += 1
        for v in self.touched[mark:]:
            # what was defined outside is needed by the next round until the loop ends
            if self.first.get(v, start + 1) <= start:
                self.last[v] = self.clock
        self.loops -= 1
        if not self.loops:
            self.touched.clear()


class _Places:
    """A set of numbers, in blocks of bits, that finds the neighbours of a number."""

    def __init__(self, count: int) -> None:
        self.blocks = [0] * (count // _BITS + 1)
        self.filled = 0  # a bit for each block that is not empty

    def flip(self, n: int) -> None:
        """Puts the number in, or takes it out."""
        block = n // _BITS
        self.blocks[block] ^= 1 << n % _BITS
        self.filled &= ~(1 << block)
        self.filled |= (self.blocks[block] != 0) << block

    def neighbours(self, n: int) -> list[int]:
        """The largest number below `n` and the smallest above, if there are any."""
        block, bit = divmod(n, _BITS)
        near: list[int] = []
        below, above = self.blocks[block] & ((1 << bit) - 1), self.blocks[block] >> bit + 1
        other = self.filled & ((1 << block) - 1)
        if below or other:
            at = block if below else other.bit_length() - 1
            near.append(at * _BITS + (below or self.blocks[at]).bit_length() - 1)
        other = self.filled >> block + 1
        if above:
            near.append(n + _lowest(above) + 1)
        elif other:
            at = block + 1 + _lowest(other)
            near.append(at * _BITS + _lowest(self.blocks[at]))
        return near


_BITS = 1024


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def check_arena(plan: RawPlan, nbytes: Known, constant: Known) -> None:
    """Raises LoadError where two values that are alive together overlap, as far as places are known at load.

    What is alive is apart so far, so a new value may only touch its neighbours.
    """
    lives = _Lifetimes(plan)
    lives.walk(plan.body)
    placed: list[tuple[int, int]] = []  # (offset, value)
    for v in lives.first:
        value = plan.values[v]
        offset = constant(value.at) if value.storage == "arena" and isinstance(value.at, int) else None
        if offset is not None and nbytes(v):
            placed.append((offset, v))
    placed.sort()
    alive, ends = _Places(len(placed)), sorted((lives.last[v], n) for n, (_, v) in enumerate(placed))
    ended = 0
    for first, v, n in sorted((lives.first[v], v, n) for n, (_, v) in enumerate(placed)):
        while ends[ended][0] < first:
            alive.flip(ends[ended][1])
            ended += 1
        for other in alive.neighbours(n):
            low, high = min(n, other), max(n, other)
            if placed[low][0] + (nbytes(placed[low][1]) or 0) > placed[high][0]:
                a, b = plan.values[placed[other][1]].name, plan.values[v].name
                raise LoadError(f"values {a!r} and {b!r} are alive together and overlap in the arena", plan.where)
        alive.flip(n)
