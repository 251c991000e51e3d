"""The command line of the fuzzer."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.program import Program

EPILOG = """
examples
  ./dev fuzz models                          600 programs on this CPU, seeds never tried before
  ./dev fuzz models --graph --count 20000    the captured graph alone: no kernel is compiled, a hundred times as many
  ./dev fuzz models --device cuda --jobs 14  on this machine's GPU, 14 processes at once
  ./dev fuzz models --sizes --graph          each number that models make of sizes, used in each way, at sizes from 0
  ./dev fuzz models --writes --graph         writes in place through views of views, of tensors laid out in each way
  ./dev fuzz models --strides --graph        what a model asks of strides, of each op's result in each layout
  ./dev fuzz models --indices --graph        reads and writes by index, each form of one with each value
  ./dev fuzz models --reductions --graph     reductions, scans and sorts over each dimension, in each dtype
  ./dev fuzz models --functions              functions of one tensor in each dtype, of infinities, NaN and zeros, too
  ./dev fuzz models --dtypes --graph         ops of two operands in each pair of dtypes
  ./dev fuzz models --numbers --graph        Python numbers among the inputs, as constants and as dynamic ints
  ./dev fuzz models --quantised --graph      what quantised models are made of, among other lines
  ./dev fuzz models --blocks                 weights of MXFP4, MXFP8 and NVFP4, however numbers are made of their bits
  ./dev fuzz models --caches --graph         caches of keys and values as codes, in the spellings of decoders
  ./dev fuzz models --mends --graph          forms in which wrong numbers were found, with other numbers around them
  ./dev fuzz models --interpreter            the GPU's kernels without a GPU
  ./dev fuzz models --compute bf16 --graph   products of f32 with operands of 16 bits
  ./dev fuzz models --show 17                the program of seed 17
  ./dev fuzz models --seeds 17,23            these programs, in one file
  ./dev fuzz models --shrink 17              what fails in it, as small as it gets, as a script
  ./dev fuzz rules                           each rewrite and each kind of fusion: triggered, nearly triggered, off
  ./dev fuzz mutants                         faults put in on purpose: how many programs until each is found

How it judges: eager runs each program seventeen times more, with every rounding changed by about an ulp and once in
float64; a result is wrong where it lies outside of all that, element by element. docs/trust.md says more.

The exit code is 1 if anything failed.
"""


def _one_or_more(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is too few, give 1 or more")
    return number


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="./dev fuzz",
        description="Draws programs from seeds, compiles them, runs them in every way, and compares with eager.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True)
    models = commands.add_parser(
        "models", help="random programs", epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = models.add_mutually_exclusive_group()
    ways.add_argument("--graph", action="store_true", help="the captured graph alone, op by op; nothing is compiled")
    ways.add_argument("--interpreter", action="store_true", help="GPU kernels through Triton's interpreter")
    ways.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where compiled programs run")
    models.add_argument(
        "--compute",
        choices=("f32", "bf16", "f16"),
        default="f32",
        help="products of f32 with operands of so many bits, judged by eager with such operands",
    )
    sweeps = models.add_mutually_exclusive_group()
    for sweep, what in (
        ("sizes", "numbers made of sizes, by their uses"),
        ("writes", "writes in place, by their views"),
        ("strides", "questions and writes that strides decide, by op and layout"),
        ("indices", "reads and writes by index, by what is written"),
        ("reductions", "reductions, scans and sorts, by their dimensions"),
        ("functions", "functions of one tensor, by dtype, of special numbers"),
        ("dtypes", "ops of two, by the dtypes of their operands"),
        ("numbers", "random programs of lines that read Python numbers"),
        ("quantised", "random programs of lines of quantised models, and others"),
        ("blocks", "products with weights of MXFP4, MXFP8 and NVFP4"),
        ("caches", "decoders whose caches are stored as codes, and states that look like caches"),
        ("mends", "forms in which wrong numbers were found, with other numbers around them"),
    ):
        sweeps.add_argument(
            f"--{sweep}", dest="sweep", action="store_const", const=sweep, help=f"no random programs: {what}"
        )
    models.add_argument(
        "--count",
        type=_one_or_more,
        help="how many programs (600; with --graph 5000, 11716 sizes, 20000 writes and strides)",
    )
    models.add_argument("--seed", type=int, help="the first seed; without it, one at random")
    models.add_argument("--seeds", help="these seeds, with commas between, in one file")
    models.add_argument("--together", type=_one_or_more, help="programs in a file (6; 40 with --graph)")
    models.add_argument("--minutes", type=float, help="begin no program after so many minutes")
    models.add_argument("--stop", action="store_true", help="begin no program after the first failure")
    what = models.add_mutually_exclusive_group()
    what.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed")
    what.add_argument("--shrink", type=int, metavar="SEED", help="make a failing program small and print a script")
    rules = commands.add_parser("rules", help="rewrites and fusions, one at a time")
    rules.add_argument("names", nargs="*", help="these alone; without a name, all")
    mutants = commands.add_parser("mutants", help="whether faults put in on purpose are found")
    mutants.add_argument("names", nargs="*", help="these alone; without a name, all")
    mutants.add_argument(
        "--most", type=_one_or_more, default=600, help="programs after which a mutant counts as not found (600)"
    )
    mutants.add_argument("--seed", type=int, default=10**8, help="the first seed (100000000)")
    for command in (models, rules, mutants):
        command.add_argument(
            "--jobs", type=_one_or_more, default=os.cpu_count() or 1, help="processes at once (one a core)"
        )
        command.add_argument(
            "--seconds", type=float, default=400, help="a process that finishes nothing for so long hangs (400)"
        )
        command.add_argument("--json", type=Path, metavar="FILE", help="append one JSON object for each outcome")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    if chosen.command == "rules":
        from tests.fuzz.rules import run_rules

        return run_rules(chosen.names, sys.stdout)
    if chosen.command == "mutants":
        from tests.fuzz.mutant_hunt import run_mutants

        return run_mutants(
            chosen.names,
            most=chosen.most,
            jobs=chosen.jobs,
            seed=chosen.seed,
            seconds=chosen.seconds,
            out=sys.stdout,
            log=chosen.json,
        )
    return _models(chosen)


def _models(chosen: argparse.Namespace) -> int:
    from tests.fuzz.hunt import Hunt, way_named
    from tests.fuzz.outcome import Outcome
    from tests.fuzz.program import source
    from tests.fuzz.report import Summary
    from tests.fuzz.sweeps import SWEEPS

    sweep = SWEEPS.get(chosen.sweep)
    drawn = _draw if sweep is None else sweep.program
    compute: str = chosen.compute

    def draw(seed: int) -> Program:
        return replace(drawn(seed), compute=compute)

    if chosen.show is not None:
        print(source(draw(chosen.show)), end="")
        return 0
    name = "graph" if chosen.graph else "interpreter" if chosen.interpreter else chosen.device
    if chosen.shrink is not None:
        return _shrink(name, draw(chosen.shrink), chosen.seconds)
    if chosen.seeds:
        seeds = [int(s) for s in chosen.seeds.split(",")]
        together = chosen.together or len(seeds)
    else:
        first = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**6) * 1000
        count = chosen.count or ((5000 if sweep is None else sweep.usual) if name == "graph" else 600)
        seeds = list(range(first, first + count)) if sweep is None else sweep.sample(count, chosen.seed or 0)
        together = chosen.together or (40 if name == "graph" else 6)
    print(f"{len(seeds)} programs from seed {seeds[0]}, {name}, {chosen.jobs} at once")
    log = chosen.json.open("a", encoding="utf-8") if chosen.json else None
    summary = Summary(len(seeds), log=log)

    def on_outcome(outcome: Outcome) -> None:
        summary.add(outcome)
        if chosen.stop and outcome.failed:
            hunt.stop()

    hunt = Hunt(way_named(name), draw, jobs=chosen.jobs, seconds=chosen.seconds, on_outcome=on_outcome)
    hunt.run(seeds, together, chosen.minutes)
    flags = {"graph": " --graph", "interpreter": " --interpreter", "cuda": " --device cuda"}.get(name, "")
    flags += f" --compute {compute}" if compute != "f32" else ""
    summary.close(flags + (f" --{chosen.sweep}" if chosen.sweep else ""))
    return 1 if summary.failures else 0


def _draw(seed: int) -> Program:
    """The random program of a seed."""
    from tests.fuzz.draw import draw

    return draw(seed)


def _shrink(way: str, program: Program, seconds: float) -> int:
    from tests.fuzz.hunt import way_named
    from tests.fuzz.program import source
    from tests.fuzz.script import script
    from tests.fuzz.shrink import shrink

    found = shrink(program, way_named(way), seconds=seconds, say=lambda text: print(text, file=sys.stderr, flush=True))
    if not found.outcome.failed:
        print(f"seed {program.seed} is {found.outcome.kind} {found.outcome.text}")
        return 0
    if program.cache:  # a script would need what eager stores in caches
        print(f"{source(found.program)}\nseed {program.seed} is {found.outcome.kind} {found.outcome.text}")
    else:
        print(script(found.program, found.outcome, way), end="")
    return 1
