"""Which lines of a dump belong together: the texts of the stages, each line with the origins behind it.

Lines are read as people read them: a line ends with `# origin`, or stands in the block of a nest or kernel that has
one. A nest that took others in carries their origins, too, and a kernel those of all its nests. One line of the user's
may run many times, in repeated layers: each run of graph ops with the same origin is an occurrence of its own, and
lines are linked by occurrence wherever a value's name tells which.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.graph import Origin
from hardtack.codegen.ir.group import Decision

_NEST = re.compile(r"\s*(?:nest|control|template(?= \S+: )) (\S+?):? ")
_ANCHOR = re.compile(r"\s*template \S+ (\S+), epilogue:")
_GROUP = re.compile(r"(?:group|kernel) (\S+) (?:over|grid) ")
_LAUNCH = re.compile(r"\s*launch (\w+)\(")
_VALUE = re.compile(r"\s*(\S+): \w+\[")
_DECISION = re.compile(r"(?:inline|fuse|prologue|sibling) (\S+) into ")
_KERNEL_SOURCE = re.compile(r"// (\w+)$")
_NOTHING: frozenset[int] = frozenset()
Links = frozenset[int]


@dataclass(frozen=True)
class Line:
    """A line of a column and the occurrences behind it."""

    text: str
    links: tuple[int, ...] = ()


@dataclass(frozen=True)
class Column:
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Linked:
    """`occurrences[k]` is what the link k means: an origin, as text."""

    columns: tuple[Column, ...]
    occurrences: tuple[str, ...]


def link(texts: Mapping[str, str], decisions: Sequence[Decision], origins: Sequence[Origin]) -> Linked:
    """The user's lines, then a column for each stage of `texts`, in order. What stands in front of
    the graph, users' passes, has no links."""
    linker = _Linker(decisions, origins)
    stages = [Column(stage, linker.column(stage, text)) for stage, text in texts.items()]
    source = Column("source", _source_lines(origins, linker.of_origin))
    return Linked((source, *stages), tuple(linker.occurrences))


def _source_lines(origins: Sequence[Origin], of_origin: Mapping[str, Links]) -> tuple[Line, ...]:
    """The user's lines that the model ran through, by file."""
    found: dict[tuple[str, int], tuple[str, set[int]]] = {}
    for o in origins:
        if o.file:
            found.setdefault((o.file, o.line), (o.source, set()))[1].update(of_origin[str(o)])
    lines: list[Line] = []
    file = ""
    for (name, number), (text, links) in sorted(found.items()):
        if name != file:
            lines += [Line("")] if lines else []
            lines.append(Line(name))
            file = name
        lines.append(Line(f"{number:6d}  {text.strip()}", tuple(sorted(links))))
    return tuple(lines)


class _Linker:
    """Reads the stages in order and remembers what stands behind values, nests and kernels."""

    def __init__(self, decisions: Sequence[Decision], origins: Sequence[Origin]) -> None:
        self.decisions = decisions
        self.occurrences: list[str] = []
        self.begun = False
        self.of_origin: dict[str, Links] = {str(o): _NOTHING for o in origins}
        self.nests: dict[str, Links] = {}
        self.values: dict[str, Links] = {}
        self.kernels: dict[str, list[Links]] = {}
        self.unlaunched: dict[str, list[Links]] = {}
        self.readers: dict[str, Callable[[list[str]], list[Links]]] = {
            "graph": self._graph,
            "lower": self._nests_as_made,
            "inline": self._nests_after_inlining,
            "render": self._sources,
            "plan": self._plan,
        }

    def column(self, stage: str, text: str) -> tuple[Line, ...]:
        lines = text.splitlines()
        links = self.readers.get(stage, self._blocks)(lines) if self._begun(stage) else [_NOTHING] * len(lines)
        return tuple(Line(t, tuple(sorted(x))) for t, x in zip(lines, links, strict=True))

    def _begun(self, stage: str) -> bool:
        self.begun |= stage == "graph"
        return self.begun

    def _own(self, line: str, name: str = "") -> Links:
        """The occurrences of the origin at the end of a line; where `name` tells which one, only that."""
        _, mark, origin = line.rpartition("# ")
        found = self.of_origin.get(origin, _NOTHING) if mark else _NOTHING
        while name:
            exact = self.values.get(name, _NOTHING) & found
            if exact:
                return exact
            # names that the compiler makes extend that of the graph's value: conv_1.r0.panels.3
            name = name.rpartition(".")[0]
        return found

    def _graph(self, lines: list[str]) -> list[Links]:
        out: list[Links] = []
        last = ""
        for line in lines:
            _, mark, origin = line.rpartition("# ")
            known = bool(mark) and origin in self.of_origin
            if known and origin != last:
                self.of_origin[origin] |= {len(self.occurrences)}
                self.occurrences.append(origin)
            last = origin if known else ""
            links = frozenset((len(self.occurrences) - 1,)) if known else _NOTHING
            out.append(links)
            results, is_op, _ = line.partition(" = ")
            for name in re.findall(r"(\S+): \w+\[", results) if is_op else ():
                self.values.setdefault(name, links)
        return out

    def _nests_as_made(self, lines: list[str]) -> list[Links]:
        for line in lines:
            found = _NEST.match(line)
            if found:
                name = found[1]
                self.nests[name] = self.nests.get(name, _NOTHING) | self._own(line, name)
        return self._blocks(lines)

    def _nests_after_inlining(self, lines: list[str]) -> list[Links]:
        for d in self.decisions:
            if d.kind == "inline" and d.accepted:
                for reader in d.partner.split(", "):
                    self.nests[reader] = self.nests.get(reader, _NOTHING) | self.nests.get(d.subject, _NOTHING)
        return self._blocks(lines)

    def _blocks(self, lines: list[str]) -> list[Links]:
        """Nests, groups and kernels: a line belongs to the nest it stands in, a group's head to all its nests."""
        out: list[Links] = []
        nest, whole = _NOTHING, _NOTHING
        head: tuple[int, str] | None = None

        def close() -> None:
            if head is None:
                return
            at, name = head
            for k in range(at, len(out)):
                out[k] = out[k] or (whole if lines[k].strip() else _NOTHING)
            if lines[at].startswith("kernel "):
                self.kernels.setdefault(name, []).append(whole)

        for line in lines:
            named = _NEST.match(line) or _ANCHOR.match(line)
            group, decision = _GROUP.match(line), _DECISION.match(line)
            if group or decision or line.startswith("-- "):
                close()
                head = (len(out), group[1]) if group else None
                nest, whole = _NOTHING, _NOTHING
            if decision:
                out.append(self.nests.get(decision[1], _NOTHING))
                continue
            if named:
                nest = self.nests.get(named[1]) or self._own(line, named[1])
                whole |= nest
            elif not line.strip():
                nest = _NOTHING
            out.append(nest if line.strip() else _NOTHING)
        close()
        return out

    def _sources(self, lines: list[str]) -> list[Links]:
        out: list[Links] = []
        current = _NOTHING
        for line in lines:
            found = _KERNEL_SOURCE.match(line)
            if found and found[1] in self.kernels:
                current = _NOTHING.union(*self.kernels[found[1]])
            out.append(current if line.strip() else _NOTHING)
        return out

    def _plan(self, lines: list[str]) -> list[Links]:
        self.unlaunched = {name: list(uses) for name, uses in self.kernels.items()}
        return [self._launch(line) or self._own(line) or self._value(line) for line in lines]

    def _launch(self, line: str) -> Links:
        """The nests of the kernel as this launch uses it: repeated layers share a kernel, and launch it in order."""
        found = _LAUNCH.match(line)
        if not found:
            return _NOTHING
        uses, own = self.unlaunched.get(found[1], []), self._own(line)
        for k, use in enumerate(uses):
            if own & use or not own:
                return uses.pop(k)
        return own

    def _value(self, line: str) -> Links:
        found = _VALUE.match(line)
        if not found:
            return _NOTHING
        return self.values.get(found[1]) or self.nests.get(found[1], _NOTHING)
