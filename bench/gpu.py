"""The command line `python -m bench.gpu`: models under Hardtack and its peers on this machine's GPU."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench import gpu_models, gpu_others
from bench.__main__ import chosen
from bench.gpu_report import line, page, sentences, table
from bench.gpu_systems import ROUNDING, SYSTEMS
from bench.measure import Measured, Settings, measure, measure_together
from bench.worker import Failed

_DEFAULT = ("eager", "graph", "compile", "reduce", "hardtack", "untuned")
_TOLERANCE, _TOLERANCE_F32 = 0.06, 0.01
"""bfloat16 has 8 bits; a deep model's outputs differ by a few of the last ones, whatever computes them. In float32
torch rounds the operands of convolutions to TF32."""
_CHOOSING = frozenset({"max"})
"""Systems that time kernels while they prepare."""


def facts() -> str:
    """The GPU, its driver and the versions, in a sentence."""
    import torch
    import triton

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    return f"{gpu}; torch {torch.__version__}, triton {triton.__version__}."


def copy_bandwidth() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB: the roof of the memory-bound rows."""
    import torch

    a = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        b.copy_(a)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    moved = 2 * a.numel()
    del a, b
    torch.cuda.empty_cache()  # models want the memory
    return moved / sorted(times)[len(times) // 2]


@click.command()
@click.option("--models", help="Names, separated by commas. Without it, all; --list shows them.")
@click.option("--others", is_flag=True, help="Models of transformers and timm that no tuning table knows, for our own.")
@click.option(
    "--systems",
    help=f"Of {', '.join(SYSTEMS)}, separated by commas. Without it, {', '.join(_DEFAULT)}; with "
    "--others all of these but untuned, which then makes the same programs.",
)
@click.option("--rounds", default=5, show_default=True, help="How often every system has its turn.")
@click.option("--seconds", default=0.3, show_default=True, help="How long a turn lasts.")
@click.option(
    "--together",
    is_flag=True,
    help="Make all models ready at once, then time one after the other: on many "
    "cores, and on a GPU with memory for all of them.",
)
@click.option(
    "--timeout", default=400.0, show_default=True, help="Seconds that a system may take to make a model ready."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Store everything measured here.")
@click.option("--markdown", type=click.Path(dir_okay=False), help="Store the table here, as Markdown.")
@click.option("--keep", type=click.Path(file_okay=False), help="Keep exported files here, and use them again.")
@click.option("--list", "list_models", is_flag=True, help="List the models and stop.")
def main(
    models: str | None, others: bool, systems: str | None, rounds: int, seconds: float, together: bool, timeout: float,
    json_path: str | None, markdown: str | None, keep: str | None, list_models: bool,
) -> None:  # fmt: skip
    """Times models in interleaved rounds, after checking outputs against eager's.

    Two figures for each: a run that is waited for, and runs enqueued one behind the other. Hardtack runs twice: with
    the tuning table that comes with it, whose shapes are mostly those of our own models, and without any ("untuned").
    "in the table" says how many of a model's shapes the table has.
    """
    known = gpu_others.names() if others else gpu_models.names()
    if list_models:
        click.echo("\n".join(known))
        return
    picked = chosen(models, known, "--models")
    default = _DEFAULT[:-1] if others else _DEFAULT
    running = chosen(systems, tuple(SYSTEMS), "--systems") if systems else default
    if together and (alone := _CHOOSING & set(running)):
        raise click.BadParameter(
            f"{', '.join(alone)} times kernels, which takes the GPU alone", param_hint="--together"
        )
    console = Console(width=None if Console().is_terminal else 200)
    console.print(facts(), markup=False, highlight=False)
    bandwidth = copy_bandwidth()
    console.print(f"Copy: {bandwidth / 1e12:.2f} TB/s.", highlight=False)
    measured: list[Measured] = []
    with ExitStack() as stack:
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="hardtack-bench-"))).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            folder, rounds, seconds, timeout_s=timeout, gpu=True, choosing=_CHOOSING,
            rounding=frozenset(ROUNDING),
            tolerance=_TOLERANCE, tolerance_f32=_TOLERANCE_F32,
        )  # fmt: skip
        for found in _measured(picked, running, settings, together, console):
            measured.append(found)
            console.print(line(found, running), markup=False, highlight=False, soft_wrap=True)
            if json_path:
                Path(json_path).write_text(json.dumps(document(measured, bandwidth)) + "\n")
    console.print(table(measured, running, bandwidth))
    for text in sentences(measured, running):
        console.print(text, markup=False, highlight=False)
    if markdown:
        Path(markdown).write_text(page(measured, running, bandwidth, facts()))


def _measured(
    models: Sequence[str], systems: Sequence[str], settings: Settings, together: bool, console: Console
) -> Iterator[Measured]:
    """Models as they are measured; those that eager cannot run are told and left out."""

    def tell(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if together:
        yield from measure_together(models, systems, 0, settings, tell)
        return
    for model in models:
        try:
            yield from measure(model, systems, (0,), settings, lambda text: None)
        except Failed as failed:
            tell(f"{model} is left out: eager fails: {failed}")


def document(measured: Sequence[Measured], bandwidth: float) -> dict[str, Any]:
    """Everything that was measured, for --json. bandwidth: bytes a second of a copy."""
    rows = [{"model": m.model, "results": {n: asdict(r) for n, r in m.results.items()}} for m in measured]
    return {"facts": facts(), "copy": bandwidth, "rows": rows}


if __name__ == "__main__":
    main()
