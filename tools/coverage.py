"""What the C++ tests and fuzz seeds reach: coverage.py COVERAGE.json [--json], of `llvm-cov export`.

Prints lines and branches of each source file. The files that read or prove bundles must reach LEAST_LINES and
LEAST_BRANCHES; what they miss is listed, and the exit code is 1 where they reach less.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEAST_LINES, LEAST_BRANCHES = 95.0, 90.0
"""Per cent, of all files together that read or prove bundles."""
# fmt: off
PROOF = frozenset({
    "binding", "bundle", "contract", "crc32", "ed25519", "elf", "expr", "json", "library", "manifest", "native", "plan",
    "program", "safetensors", "sha256", "sha512", "source", "trust", "zip",
})
# fmt: on
"""First words of the names of files in runtime_cpp/src that read or prove bundles."""


@dataclass(frozen=True)
class FileCoverage:
    """One source file: counts, and the lines that nothing ran, as (first, last)."""

    path: str
    proof: bool
    lines: int
    lines_run: int
    branches: int
    branches_taken: int
    missing: tuple[tuple[int, int], ...]


def is_proof(path: str) -> bool:
    """Whether a file of the project reads or proves bundles."""
    folder, _, name = path.rpartition("/")
    return folder == "runtime_cpp/src" and Path(name).stem.split("_")[0] in PROOF


def lines_missing(segments: Sequence[Sequence[Any]]) -> tuple[tuple[int, int], ...]:
    """Ranges of lines whose code never ran, of llvm-cov's segments: line, column, count, has count, ..."""
    ranges: list[tuple[int, int]] = []
    for here, after in pairwise(segments):
        if here[3] and here[2] == 0 and not here[5]:
            first, last = here[0], max(here[0], after[0] - (after[1] == 1))
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
            else:
                ranges.append((first, last))
    return tuple(ranges)


def read(document: Any) -> Iterator[FileCoverage]:
    """The project's own files, in the order of their paths."""
    for row in sorted(document["data"][0]["files"], key=lambda row: str(row["filename"])):
        path = Path(row["filename"])
        if not path.is_relative_to(ROOT):
            continue
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(("runtime_cpp/src/", "server/")) or "/tests/" in name or "/fuzz/" in name:
            continue
        lines, branches = row["summary"]["lines"], row["summary"]["branches"]
        yield FileCoverage(
            name,
            is_proof(name),
            lines["count"],
            lines["covered"],
            branches["count"],
            branches["covered"],
            lines_missing(row["segments"]),
        )


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def summary(files: Sequence[FileCoverage]) -> tuple[float, float]:
    """Per cent of the lines and of the branches of several files together."""
    return (
        percent(sum(f.lines_run for f in files), sum(f.lines for f in files)),
        percent(sum(f.branches_taken for f in files), sum(f.branches for f in files)),
    )


def print_table(files: Sequence[FileCoverage]) -> None:
    for title, rows in (
        ("read or prove bundles", [f for f in files if f.proof]),
        ("the rest", [f for f in files if not f.proof]),
    ):
        lines, branches = summary(rows)
        print(f"\n{title}: {lines:.1f}% of the lines, {branches:.1f}% of the branches")
        for f in rows:
            ranges = ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in f.missing) if f.proof else ""
            print(
                f"  {f.path:44} {percent(f.lines_run, f.lines):6.1f}% {percent(f.branches_taken, f.branches):6.1f}%"
                + (f"  not run: {ranges}" if ranges else "")
            )


def main(arguments: Sequence[str]) -> int:
    names = [a for a in arguments if a != "--json"]
    if len(names) != 1:
        sys.exit(__doc__)
    files = list(read(json.loads(Path(names[0]).read_text(encoding="utf-8"))))
    if "--json" in arguments:
        print(json.dumps([asdict(f) for f in files]))
    else:
        print_table(files)
    lines, branches = summary([f for f in files if f.proof])
    return 0 if lines >= LEAST_LINES and branches >= LEAST_BRANCHES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
