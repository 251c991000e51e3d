"""hardtack run"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

import hardtack
from hardtack.cli.arrays import load_arrays, parse_pairs, pick_entry
from hardtack.cli.common import (
    BUNDLE,
    WrongUse,
    console,
    device_option,
    json_option,
    print_json,
    table,
    weights_option,
)


@click.command(name="run")
@click.argument("bundle", type=BUNDLE)
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input; repeat for each.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Write each output there as NAME.npy, and each input that the model writes to in its folder written; made if "
    "it does not exist.",
)
@click.option("--entry", help="The entry point; may be left out when there is one.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads; default: as many as may be used.")
@weights_option
@device_option
@json_option
def command(
    bundle: str,
    inputs: tuple[str, ...],
    output: str | None,
    entry: str | None,
    threads: int | None,
    device: str,
    weights: str | None,
    as_json: bool,
) -> None:
    """Run a bundle once on arrays from .npy files, and show what comes out.

    \b
    hardtack run model.pkg -i x=x.npy -o out
    """
    folder = Path(output) if output is not None else None
    if folder is not None and folder.exists() and not folder.is_dir():
        raise WrongUse(f"cannot write outputs to {folder}: it is a file")
    arrays = load_arrays(parse_pairs(inputs, "-i"))
    model = hardtack.load(bundle, device, threads, weights=weights)
    chosen = pick_entry(model, entry)
    results = model.session(chosen.name).run_tensors(arrays)
    written = {t.name: arrays[t.name] for t in chosen.inputs if t.written}
    for where, values in ((folder, results), (folder and folder / "written", written)):
        if where is not None and values:
            where.mkdir(parents=True, exist_ok=True)
            for name, value in values.items():
                np.save(where / f"{name.replace('/', '_')}.npy", value)
    parts = {"outputs": results, **({"written": written} if written else {})}
    found = {what: [_facts(n, np.asarray(v)) for n, v in values.items()] for what, values in parts.items()}
    if as_json:
        print_json(found)
        return
    for what, rows in found.items():
        made = table(
            "inputs behind the run" if what == "written" else what, "name", "dtype", "shape", ">min", ">mean", ">max"
        )
        for r in rows:
            shape = "x".join(map(str, r["shape"])) or "scalar"
            made.add_row(r["name"], r["dtype"], shape, *(_number(r[k]) for k in ("min", "mean", "max")))
        console().print(made)


def _facts(name: str, value: np.ndarray[Any, Any]) -> dict[str, Any]:
    known = value.size > 0
    return {
        "name": name,
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "min": value.min().item() if known else None,
        "mean": float(value.mean(dtype=np.float64)) if known else None,
        "max": value.max().item() if known else None,
    }


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
