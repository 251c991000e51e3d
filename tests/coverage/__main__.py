"""`python -m tests.coverage`: see the package."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tests.coverage import exportdb, features, opinfo, timm_models, transformers_models
from tests.coverage.cases import Case, Verdict
from tests.coverage.check import check_cases
from tests.coverage.report import SUITES, page
from tests.coverage.whole import check_whole
from tests.fuzz.children import Ended, Pool

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
TOGETHER = 24
"""Cases in a file, at least: those of a group stay together."""
_SECONDS = 300
"""Without a word of a child, in which it hangs."""


def chosen(suites: Sequence[str], dtypes: Sequence[str], only: str) -> list[Case]:
    """The cases of suites whose names have `only` in them."""
    by_suite = {
        "opinfo": lambda: opinfo.cases(dtypes),
        "exportdb": exportdb.cases,
        "features": features.cases,
        "transformers": transformers_models.cases,
        "timm": timm_models.cases,
    }
    return [c for suite in suites for c in by_suite[suite]() if only in c.name]


def verdicts(cases: Sequence[Case], jobs: int, say: Callable[[Verdict, int], None]) -> list[Verdict]:
    """Of all cases, in their order; children check them, TOGETHER at a time."""
    found: dict[tuple[str, str], Verdict] = {}

    def heard(v: Verdict) -> None:
        found[v.suite, v.name] = v
        say(v, len(found))

    def ended(child: Ended) -> None:
        """Of a child that dies the first case without a verdict is guilty if it is alone; else each is tried alone."""
        left = [k for k in child.task if (cases[k].suite, cases[k].name) not in found]
        if left and len(child.task) > 1:
            pool.add([(k,) for k in left], first=True)
        elif left:
            heard(Verdict(cases[left[0]].suite, cases[left[0]].name, "crashed", child.how or "no verdict"))

    def work(task: Sequence[int], send: Callable[[Verdict], None]) -> None:
        together = [cases[k] for k in task if not cases[k].whole]
        check_cases(together, send)
        for k in task:
            if cases[k].whole:
                check_whole(cases[k], send)

    pool = Pool(work, jobs, _SECONDS)
    pool.add(_files(cases))
    pool.run(ended, on_sent=heard)
    return [found[c.suite, c.name] for c in cases]


def _files(cases: Sequence[Case]) -> list[tuple[int, ...]]:
    """The numbers of the cases of each file."""
    files: list[list[int]] = [[]]
    for k, case in enumerate(cases):
        full = len(files[-1]) >= TOGETHER and (not case.group or case.group != cases[k - 1].group)
        if files[-1] and (full or case.whole):
            files.append([])
        files[-1].append(k)
    return [tuple(f) for f in files]


def main() -> int:
    """Prints what is not as eager as it is found, then the figures; 1 where a case is different or crashed."""
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("suites", nargs="*", default=SUITES, metavar="SUITE",
                        help=f"{', '.join(SUITES[:-1])} or {SUITES[-1]}; all of them without")  # fmt: skip
    parser.add_argument("--dtype", action="append", choices=opinfo.DTYPES, help="of opinfo; may be given again")
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    options = parser.parse_args()
    cases = chosen(options.suites, options.dtype or opinfo.DTYPES, options.only)
    started = time.monotonic()

    def say(v: Verdict, done: int) -> None:
        if v.what != "equal":
            print(f"{done}/{len(cases)} {v.what:<10} {v.suite:<17} {v.name:<40} {v.detail[:300]}", flush=True)

    found = verdicts(cases, options.jobs, say)
    seconds = time.monotonic() - started
    where = f"{datetime.date.today()}, torch {torch.__version__}, {platform.machine()}, {seconds / 60:.0f} minutes"
    text = page(found, " ".join(("python -m tests.coverage", *sys.argv[1:])), where)
    print(text[text.index("| suite") :].partition("\n\n")[0])
    if options.json:
        options.json.write_text(json.dumps([asdict(v) for v in found], indent=1))
    if options.write:
        PAGE.write_text(text)
    return int(any(v.what in ("different", "crashed") for v in found))


if __name__ == "__main__":
    sys.exit(main())
