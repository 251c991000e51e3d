"""The command line: python -m bench."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench import machine, report
from bench.measure import Measured, Settings, measure
from bench.models import int8_names, names, other_names
from bench.peaks import PeakError, Peaks, larger, measure_peaks, sentence
from bench.systems import BY_DTYPE, SYSTEMS
from bench.worker import Failed

_MODULES = {
    "ort": ("onnxruntime", "onnx", "onnxscript"),
    "ort-f32": ("onnxruntime", "onnx", "onnxscript"),
    "openvino": ("openvino", "onnx", "onnxscript"),
    "openvino-f32": ("openvino", "onnx", "onnxscript"),
    "hardtack": ("hardtack",),
}
_QUANTISERS = {"openvino": "nncf", "hardtack": "torchao"}
"""What makes a model of int8 for a system, beside its own packages."""
_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.06, "float16": 0.01, "int8": 0.5}
"""The largest error over the largest value of an output: bfloat16 has 8 bits, and a deep model loses some of the last
ones, whatever computes it. What int8 costs is the tool's; the limit tells it from nonsense."""


def chosen(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Names separated by commas, all of `known` without any."""
    picked = tuple(text.split(",")) if text else known
    for name in picked:
        if name not in known:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint=option)
    return picked


def thread_counts(text: str | None) -> tuple[int, ...]:
    """Such as 1,2; None: one thread, and all the cores that this process may use."""
    if not text:
        return tuple(sorted({1, len(os.sched_getaffinity(0))}))
    if not all(t.isdecimal() and int(t) > 0 for t in text.split(",")):
        raise click.BadParameter(f"{text!r} is not numbers above 0 separated by commas", param_hint="--threads")
    return tuple(int(t) for t in text.split(","))


@click.command()
@click.option("--models", help="Names, separated by commas. Without it, all; --list shows them.")
@click.option("--others", is_flag=True, help="Models that no heuristic was made on, for our own.")
@click.option("--systems", help=f"Of {', '.join(SYSTEMS)}, separated by commas. Eager always takes part.")
@click.option(
    "--dtype",
    type=click.Choice(tuple(BY_DTYPE)),
    default="float32",
    show_default=True,
    help="What everybody but eager computes in. Eager stays in float32.",
)
@click.option("--threads", help="Numbers of threads, separated by commas. Without it, 1 and all cores.")
@click.option("--rounds", default=9, show_default=True, help="How often every system has its turn.")
@click.option("--seconds", default=0.2, show_default=True, help="How long a turn lasts.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Store everything measured here.")
@click.option("--markdown", type=click.Path(dir_okay=False), help="Store the tables here, as Markdown.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False),
    help="Keep exported files here, and use peers' files again; Hardtack's are made anew.",
)
@click.option("--realtime", is_flag=True, help="Take turns at real-time priority, on a busy machine; as root.")
@click.option("--list", "list_models", is_flag=True, help="List the models and stop.")
def main(
    models: str | None, others: bool, systems: str | None, dtype: str, threads: str | None, rounds: int,
    seconds: float, json_path: str | None, markdown: str | None, keep: str | None, realtime: bool, list_models: bool,
) -> None:  # fmt: skip
    """Times models under Hardtack and its peers in interleaved rounds, after checking their outputs against eager's."""
    known = int8_names() if dtype == "int8" else other_names() if others else names()
    if list_models:
        click.echo("\n".join(known))
        return
    picked = chosen(models, known, "--models")
    running = chosen(systems, tuple(SYSTEMS), "--systems") if systems else BY_DTYPE[dtype]
    for system in running:
        needed = _MODULES.get(system, ())
        if dtype == "int8" and system in _QUANTISERS:
            needed = (*needed, _QUANTISERS[system])
        for module in needed:
            if importlib.util.find_spec(module) is None:
                raise click.ClickException(f"{system} needs the package {module!r}, which is not installed")
    counts = thread_counts(threads)
    with ExitStack() as stack:
        # a folder for each dtype: a file's name does not tell of which a model is
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="hardtack-bench-"))) / dtype
        folder.mkdir(parents=True, exist_ok=True)
        if keep:
            os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder.resolve() / "inductor"))
        settings = Settings(
            folder.resolve(), rounds, seconds, realtime=realtime, tolerance=_TOLERANCE[dtype],
            dtype=dtype,
        )  # fmt: skip
        try:
            peaks = measure_peaks(counts, realtime)
        except PeakError as error:
            raise click.ClickException(str(error)) from None
        measured = run(picked, running, peaks, settings, json_path)
        peaks = larger(peaks, measure_peaks(counts, realtime))
    store(measured, peaks, json_path)
    show(measured, running, peaks)
    if markdown:
        page = report.markdown(measured, running, peaks, machine.sentence(machine.facts()), command())
        Path(markdown).write_text(page)


def command() -> str:
    """How this program was called."""
    return " ".join(["python -m bench", *sys.argv[1:]])


def run(
    models: tuple[str, ...],
    systems: tuple[str, ...],
    peaks: dict[int, Peaks],
    settings: Settings,
    json_path: str | None,
) -> list[Measured]:
    """All models one after the other, with as many threads as there are peaks of, with progress on standard error; the
    JSON file grows with every model."""
    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    measured: list[Measured] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(models))
        for model in models:
            try:
                measured += measure(
                    model, systems, tuple(peaks), settings, lambda text: progress.update(task, description=text)
                )
            except Failed as failed:
                console.print(f"{model} is left out: eager fails: {failed}", markup=False)
            progress.advance(task)
            store(measured, peaks, json_path)
    return measured


def store(measured: list[Measured], peaks: dict[int, Peaks], json_path: str | None) -> None:
    """Everything measured so far, where a path for it was given."""
    if json_path:
        document = report.document(measured, peaks, machine.facts(), command())
        Path(json_path).write_text(json.dumps(document, indent=1) + "\n")


def show(measured: list[Measured], systems: tuple[str, ...], peaks: dict[int, Peaks]) -> None:
    """Machine, its peaks, tables, and what they mean, on standard output."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    console.print(machine.sentence(machine.facts()), markup=False, highlight=False)
    console.print(sentence(peaks), markup=False, highlight=False)
    for count in peaks:
        console.print(report.grid(measured, systems, count, peaks).rich())
    for line in report.summary(measured, systems):
        console.print(line, markup=False, highlight=False)


if __name__ == "__main__":
    main()
