"""hardtack bench"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

import hardtack
from hardtack.cli.arrays import load_arrays, made_up, parse_pairs, pick_entry
from hardtack.cli.common import (
    BUNDLE,
    WrongUse,
    console,
    device_option,
    json_option,
    print_json,
    size_text,
    table,
    weights_option,
)

_PERCENTILES = {"p10": 10, "median": 50, "p90": 90}


@click.command(name="bench")
@click.argument("bundle", type=BUNDLE)
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; others are made up.")
@click.option("--size", "sizes", multiple=True, metavar="SYMBOL=N", help="A size for inputs that are made up.")
@click.option("--entry", help="The entry point; may be left out when there is one.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads; default: as many as may be used.")
@click.option("--seconds", type=click.FloatRange(min=0.01), default=2.0, show_default=True, help="How long to measure.")
@weights_option
@device_option
@json_option
def command(
    bundle: str,
    inputs: tuple[str, ...],
    sizes: tuple[str, ...],
    entry: str | None,
    threads: int | None,
    device: str,
    seconds: float,
    weights: str | None,
    as_json: bool,
) -> None:
    """Measure how long a bundle takes to load, to run first, and to run again.

    Inputs that are not given are made up: random floats; integers and bools 0 or 1; sizes 1, or as --size says.
    """
    begin = time.perf_counter()
    model = hardtack.load(bundle, device, threads, weights=weights)
    load_s = time.perf_counter() - begin
    chosen = pick_entry(model, entry)
    session = model.session(chosen.name)
    arrays = made_up(chosen, _sizes(sizes), load_arrays(parse_pairs(inputs, "-i")))
    begin = time.perf_counter()
    session.run_tensors(arrays)
    first_s = time.perf_counter() - begin
    times = measure(lambda: session.run_tensors(arrays), seconds)
    report = {
        "bundle": bundle,
        "target": model.target,
        "entry": chosen.name,
        "inputs": {name: list(np.shape(a)) for name, a in arrays.items()},
        "threads": threads,
        "load_ms": load_s * 1e3,
        "first_run_ms": first_s * 1e3,
        "runs": len(times),
        **{f"{name}_ms": float(np.percentile(times, q)) * 1e3 for name, q in _PERCENTILES.items()},
        "memory": dict(session.memory),
    }
    if as_json:
        print_json(report)
        return
    _print(report, model)


def _sizes(texts: tuple[str, ...]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, text in parse_pairs(texts, "--size").items():
        if not text.isdecimal():
            raise WrongUse(f"--size {name}={text}: {text!r} is not a number")
        out[name] = int(text)
    return out


def measure(call: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of each call, for about `seconds` and at least 5 calls."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return times


def _print(report: dict[str, Any], model: hardtack.Model) -> None:
    shown = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in report["inputs"].items())
    made = table(f"{report['bundle']}, {report['entry']}({shown}), {report['target']}", "what", ">value")
    made.add_row("load", f"{report['load_ms']:.2f} ms")
    made.add_row("first run", f"{report['first_run_ms']:.3f} ms")
    made.add_row(f"median of {report['runs']} runs", f"{report['median_ms']:.4f} ms")
    made.add_row("10th to 90th percentile", f"{report['p10_ms']:.4f} to {report['p90_ms']:.4f} ms")
    made.add_row("weights", size_text(model.weights_nbytes))
    made.add_row("arena", size_text(report["memory"]["arena_nbytes"]))
    made.add_row("threads", str(report["threads"] or "all"))
    console().print(made)
