"""Cases through a file: many compiled together, then each beside eager."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hardtack
from hardtack.api import size_hints
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.package.writer import write_bundle
from hardtack.codegen.targets import backends_for
from hardtack.exporter import (
    EntryGraph,
    Exported,
    ExportError,
    InternalError,
    MutationError,
    UnsupportedOpError,
    to_graphs,
)
from tests.coverage.cases import Case, Made, Verdict
from tests.coverage.judge import copied, difference, eager, inputs_of, tensors

Tell = Callable[[Verdict], None]
SECONDS = 30
"""That a case may take to be captured."""
_TARGET = "cpu:native"


@dataclass(frozen=True)
class Part:
    """A case, with what eager gives for each call."""

    case: Case
    made: Made
    calls: tuple[tuple[tuple[Any, ...], list[torch.Tensor]], ...]


@dataclass(frozen=True)
class Ready:
    """Cases that are captured as one module; several have one call each, and their arguments stand side by side."""

    parts: tuple[Part, ...]
    entry: EntryGraph
    store: ConstantStore

    @property
    def args(self) -> tuple[Any, ...]:
        return tuple(a for p in self.parts for a in p.made.args)


class Joined(nn.Module):
    """Modules side by side."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(p.made.module for p in parts)
        self.counts = [len(p.made.args) for p in parts]
        self.eval()

    def forward(self, *args: Any) -> Any:
        given = iter(args)
        return [part(*itertools.islice(given, n)) for part, n in zip(self.parts, self.counts, strict=True)]


def check_cases(cases: Sequence[Case], tell: Tell) -> None:
    """A verdict for each, as it is known; what cannot be captured is told first, the others share a file."""
    warnings.simplefilter("ignore")
    ready: list[Ready] = []
    for group, alike in itertools.groupby(cases, key=lambda c: c.group):
        several = list(alike)
        ready += _together(several, tell) if group else _alone(several, tell)
    with tempfile.TemporaryDirectory(prefix="hardtack_coverage_") as folder:
        path = Path(folder) / "cases.pkg"
        _check([r for r in ready if not r.entry.graph.states], path, tell)
        for r in ready:
            if r.entry.graph.states:  # whose names are those of its module, and of others'
                _check([r], path, tell)


def _together(cases: Sequence[Case], tell: Tell) -> list[Ready]:
    """Cases of one group as one graph; where that fails those of each kind, and then each alone: what is refused of
    complex numbers is often all that is.
    """
    if len(cases) > 1 and (joined := _joined(cases)) is not None:
        return [joined]
    kinds = [list(alike) for _, alike in itertools.groupby(cases, key=lambda c: c.kind)]
    if len(kinds) < 2:
        return _alone(cases, tell)
    return [r for alike in kinds for r in _together(alike, tell)]


def _alone(cases: Iterable[Case], tell: Tell) -> list[Ready]:
    return [r for c in cases if (r := _ready(c, tell)) is not None]


def _joined(cases: Sequence[Case]) -> Ready | None:
    """Cases as one graph; None where one of them is in the way."""
    try:
        with _alarm(SECONDS):
            parts = tuple(_part(c) for c in cases)
        with _alarm(2 * SECONDS):
            args = tuple(a for p in parts for a in p.made.args)
            exported = to_graphs(Joined(parts), args)
    except Exception:  # each is tried alone, and tells what it is
        return None
    return Ready(parts, exported.entries["forward"], exported.store)


def _part(case: Case) -> Part:
    made = case.make()
    return Part(case, made, tuple((args, eager(made, args)) for args in (made.args, *made.calls)))


def _ready(case: Case, tell: Tell) -> Ready | None:
    """The case as a graph; None where it has a verdict already."""
    try:
        with _alarm(SECONDS):
            part = _part(case)
            made = part.made
            try:
                exported = _exported(made)
            except InternalError:
                raise
            except ExportError as error:
                tell(_verdict(case, "refused" if torch_captures(made) else "uncaptured", error))
                return None
    except Exception as error:  # whatever goes wrong is what is looked for
        tell(_verdict(case, "crashed", error))
        return None
    return Ready((part,), exported.entries["forward"], exported.store)


def _exported(made: Made) -> Exported:
    """The module's graph; inputs that it writes to are declared, as the refusal without that asks for."""
    try:
        return to_graphs(made.module, made.args, made.kwargs, made.dynamic_shapes)
    except MutationError as error:
        if "written_inputs=(" not in error.fix:
            raise
        names = re.findall(r"'([^']+)'", error.fix.partition("written_inputs=(")[2].partition(")")[0])
        return to_graphs(made.module, made.args, made.kwargs, made.dynamic_shapes, written=tuple(names))


@contextlib.contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    """TimeoutError behind so many."""
    signal.signal(signal.SIGALRM, _over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _over(*_: Any) -> None:
    raise TimeoutError(f"not captured within {SECONDS} s")


def torch_captures(made: Made) -> bool:
    """Whether torch.export captures the module by itself, and takes it apart."""
    try:
        torch.export.export(
            made.module, made.args, dict(made.kwargs), dynamic_shapes=made.dynamic_shapes
        ).run_decompositions()
    except TimeoutError:
        raise
    except Exception:  # torch raises its own and others'
        return False
    return True


def _verdict(case: Case, what: str, error: BaseException) -> Verdict:
    if isinstance(error, UnsupportedOpError):
        said = "; ".join(f"{op.op}: {op.reason}" for op in error.ops)
    else:
        said = error.what if isinstance(error, ExportError) else f"{type(error).__name__}: {error}"
    return Verdict(case.suite, case.name, what, " ".join(said.split()))


def _check(ready: Sequence[Ready], path: Path, tell: Tell) -> None:
    """One file of all, or, where it cannot be made, of each half."""
    if not ready:
        return
    try:
        _export(ready, path)
    except Exception as error:  # as above
        parts = ready[0].parts
        if len(ready) > 1:
            half = len(ready) // 2
            _check(ready[:half], path, tell)
            _check(ready[half:], path, tell)
        elif len(parts) > 1:
            _check(_alone((p.case for p in parts), tell), path, tell)
        else:
            refusal = isinstance(error, (ExportError, UnsupportedOp)) and not isinstance(error, InternalError)
            tell(_verdict(parts[0].case, "refused" if refusal else "crashed", error))
        return
    model = hardtack.load(path, threads=1)
    for k, r in enumerate(ready):
        if len(r.parts) == 1:
            tell(_judged(r.parts[0], model, _name(k)))
        else:
            _judge_joined(r, model, _name(k), path, tell)


def _name(k: int) -> str:
    return f"e{k}"


def _export(ready: Sequence[Ready], path: Path) -> None:
    """The graphs as entry points of one file: constants are named by their content."""
    store, sources = ConstantStore(), dict[str, Source]()
    for k, r in enumerate(ready):
        store.data.update(r.store.data)
        graph = dataclasses.replace(r.entry.graph, name=_name(k))
        hints = size_hints(r.entry, r.args, r.parts[0].made.kwargs)
        sources[_name(k)] = Source(graph, r.entry.in_tree, r.entry.out_tree, hints, complex=r.entry.complex)
    built = build_content(sources, store, backends_for([_TARGET]), jobs=1)
    write_bundle(path, built.content)


def _judged(part: Part, model: hardtack.Model, entry: str) -> Verdict:
    case = part.case
    try:
        for args, want in part.calls:
            own, named = copied(args), copied(dict(part.made.kwargs))
            got = tensors(model.session(entry)(*own, **named))
            if said := difference(part.made, args, [*got, *inputs_of(own, named)], want):
                return Verdict(case.suite, case.name, "different", said)
    except Exception as error:  # as above
        return _verdict(case, "crashed", error)
    return Verdict(case.suite, case.name, "equal")


def _judge_joined(r: Ready, model: hardtack.Model, entry: str, path: Path, tell: Tell) -> None:
    """Each case's part of the results; where the run fails, each case runs alone."""
    given = copied(r.args)
    try:
        got = tensors(model.session(entry)(*given))
    except Exception:  # which case it is of is not known
        _check(_alone((p.case for p in r.parts), tell), path.with_suffix(".alone.pkg"), tell)
        return
    for part in r.parts:
        ((args, want),) = part.calls
        own, given = given[: len(args)], given[len(args) :]
        behind = inputs_of(own, {})
        count = len(want) - len(behind)
        mine, got = [*got[:count], *behind], got[count:]
        said = difference(part.made, args, mine, want)
        tell(Verdict(part.case.suite, part.case.name, "different" if said else "equal", said))
