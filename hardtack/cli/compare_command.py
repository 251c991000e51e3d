"""hardtack compare"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from hardtack.cli.common import (
    BUNDLE,
    calibration_option,
    chosen_plugins,
    console,
    device_option,
    json_option,
    plugin_options,
    print_json,
    table,
    weights_option,
)
from hardtack.cli.spec import HELP, load_calibration, load_spec

if TYPE_CHECKING:
    from hardtack.comparison import Difference


@click.command(name="compare", help=f"Compare what a bundle computes with eager PyTorch.\n\n{HELP}")
@click.argument("bundle", type=BUNDLE)
@click.argument("spec")
@click.option("--steps", is_flag=True, help="Compare every step, and name the first that leaves the tolerance.")
@click.option("--entry", help="The entry point; may be left out when there is one.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    help="Largest |difference| / largest |eager| allowed; default by dtype: f32 1e-4, f16 1e-2, bf16 5e-2, f64 1e-9; "
    "for floats of a bundle that was exported with --compute at least that of its type. Of one that was exported with "
    "--weights or --embeddings eager's layers get the same weights first; with --activations int8 at least 0.031, fp8 "
    "0.125, since a number between two codes may get the other one.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of the runtime.")
@weights_option
@calibration_option
@plugin_options
@device_option
@json_option
def command(
    bundle: str,
    spec: str,
    steps: bool,
    entry: str | None,
    tolerance: float | None,
    threads: int | None,
    device: str,
    weights: str | None,
    calibration: str | None,
    plugins: tuple[str, ...],
    no_plugins: bool,
    as_json: bool,
) -> None:
    chosen = chosen_plugins(plugins, no_plugins)
    found = load_spec(spec, chosen)
    import hardtack
    from hardtack.cli.arrays import pick_entry
    from hardtack.comparison import compare

    model = hardtack.load(bundle, device, threads, weights=weights)
    name = pick_entry(model, entry).name
    data = load_calibration(calibration) if calibration is not None else None
    result = compare(
        model, found.module, found.args, found.kwargs, found.dynamic_shapes, name, steps, tolerance, data,
        plugins=chosen,
    )  # fmt: skip
    bad = [d for d in (*result.outputs, *result.steps) if not d.good]
    if as_json:
        print_json(
            {
                "ok": not bad,
                "outputs": [d.document() for d in result.outputs],
                "steps": [d.document() for d in result.steps],
            }
        )
        sys.exit(1 if bad else 0)
    shown = console()
    if steps:
        shown.print(_table("steps, in the order in which they ran", result.steps))
        shown.print()
    shown.print(_table("outputs", result.outputs))
    first = next((d for d in result.steps if not d.good), None)
    if first is not None:
        shown.print(f"\nthe first step outside the tolerance is {first.name}: {first.where}")
    if bad:
        shown.print(f"\n{len(bad)} of {len(result.outputs) + len(result.steps)} values differ more than they may")
        sys.exit(1)


def _table(title: str, differences: tuple[Difference, ...]) -> Any:
    made = table(title, "", "value", "type", ">largest difference", ">relative", ">allowed", "from")
    for d in differences:
        type_ = f"{d.dtype}[{', '.join(map(str, d.shape))}]"
        mark = "ok" if d.good else "BAD"
        made.add_row(mark, d.name, type_, f"{d.absolute:.3g}", f"{d.relative:.3g}", f"{d.allowed:.3g}", d.where)
    return made
