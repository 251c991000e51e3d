"""docs/coverage.md: figures by suite, and what is left, one reason a line."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence
from statistics import median

from tests.coverage.cases import WHAT, Verdict

_HEAD = """# What torch.export captures, and what of it has a bundle

`{command}` wrote this page ({where}). Suites are torch's own op
suite (OpInfo: the first three samples of each entry in float32, int64 and complex64, one of them in every other dtype
that eager takes on a CPU), PyTorch's examples of torch.export (exportdb), a list of features that models use, and
models of transformers and of timm, one a class, in small sizes, whose batch varies, and whose length, too. Each
case is exported, run through a file on this CPU and compared with eager: types, shapes, values. "Captured" counts what
torch.export itself captures and takes apart.
`./dev test` runs a fixed tenth of the features and of exportdb and a few models, `./dev test --sweep` all suites; they
fail where a case does not do what this page says.

"""
SUITES = ("opinfo", "exportdb", "features", "transformers", "timm")


def page(verdicts: Sequence[Verdict], command: str, where: str) -> str:
    """The page as markdown."""
    lines = (*_table(verdicts), "", *_absent(verdicts), *_times(verdicts), *_rest(verdicts))
    return _HEAD.format(command=command, where=where) + "\n".join(lines) + "\n"


def _absent(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """Which suites the command left out."""
    there = {v.suite.partition(" ")[0] for v in verdicts}
    if left_out := [s for s in SUITES if s not in there]:
        yield from (f"Not on this page, for the command left it out: {', '.join(left_out)}.", "")


def _table(verdicts: Sequence[Verdict]) -> Iterable[str]:
    yield "| suite | cases | captured | as eager | | refused | different | crashed |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for suite in dict.fromkeys(v.suite for v in verdicts):
        count = collections.Counter(v.what for v in verdicts if v.suite == suite)
        captured = sum(count.values()) - count["uncaptured"]
        share = f"{count['equal'] / captured:.1%}" if captured else ""
        numbers = (sum(count.values()), captured, count["equal"], share)
        last = (count["refused"], count["different"], count["crashed"])
        yield f"| {suite} | " + " | ".join(map(str, (*numbers, *last))) + " |"


def _times(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """How long the exports took that were timed."""
    timed = [v for v in verdicts if v.seconds]
    if timed:
        yield from ("## Seconds of an export, from the module to the file, with an empty cache of kernels", "")
    for suite in dict.fromkeys(v.suite for v in timed):
        own = sorted((v for v in timed if v.suite == suite), key=lambda v: -v.seconds)
        yield f"{suite}, {len(own)} models, median {median(v.seconds for v in own):.1f}, from the longest:"
        yield from (", ".join(f"{v.name} {v.seconds:.1f}" for v in own) + ".", "")


def _rest(verdicts: Sequence[Verdict]) -> Iterable[str]:
    """What is not as eager, cases and suites of one reason together."""
    for what in ("different", "crashed", "refused", "uncaptured"):
        by_name: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for v in verdicts:
            if v.what == what:
                by_name[v.name, reason(v.detail)].append(v.suite)
        if by_name:
            yield from (f"## {what.capitalize()}: {WHAT[what]}", "")
            yield from (f"- `{name}` ({', '.join(_short(suites))}): {why}" for (name, why), suites in by_name.items())
            yield ""


def _short(suites: Sequence[str]) -> list[str]:
    return [s.removeprefix("opinfo ") for s in suites]


_PLACES = re.compile(r"/\S*/")
_LONGEST = 160


def reason(detail: str) -> str:
    """A detail in one line of markdown, without folders of this machine."""
    plain = _PLACES.sub("", detail).translate(str.maketrans("`|<>", "'/()"))
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 3] + "..."


_LINE = re.compile(r"- `([^`]+)` \(([^)]*)\): ")


def listed(text: str) -> dict[tuple[str, str], str]:
    """(suite, name) -> verdict, of what a page says is not as eager."""
    found, what = dict[tuple[str, str], str](), ""
    for line in text.splitlines():
        if line.startswith("## "):
            what = line[3:].partition(":")[0].lower()
        elif m := _LINE.match(line):
            for suite in m[2].split(", "):
                found[suite if suite in SUITES else f"opinfo {suite}", m[1]] = what
    return found
