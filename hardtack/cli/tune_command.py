"""hardtack tune"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hardtack.cli.common import (
    WrongUse,
    activations_option,
    calibration_option,
    check_few_bits,
    check_target_path,
    chosen_plugins,
    console,
    few_bits_option,
    json_option,
    keep_activations_option,
    keep_weights_option,
    plugin_options,
    print_json,
    table,
)
from hardtack.cli.spec import HELP, load_calibration, load_spec
from hardtack.options import COMPUTES, Options

if TYPE_CHECKING:
    from hardtack.codegen.tune.table import TuningTable
    from hardtack.tuning import AnyTuner, Tuned


_HELP = f"""Time the kernels that a model could have on this machine; keep the fastest in a table.

\b
hardtack tune model.pt2 --target cpu:native -o cpu.json      this machine's CPU
hardtack tune model.pt2 -o gpu.json                          the GPU cuda:0
hardtack export model.pt2 --target cpu:native --tuning cpu.json -o model.pkg

Without a table a cost model chooses. A table is for one target, and was measured on one kind of GPU or CPU: an export
for cpu:native refuses that of another.

{HELP}"""


@click.command(name="tune", help=_HELP)
@click.argument("spec")
@click.option("--device", help='Where to time: "cuda", "cuda:1" or "cpu"; default: cpu for a CPU target, else cuda:0.')
@click.option(
    "-o", "--output", required=True, help="The table, such as table.json; keys that it has are kept as they are."
)
@click.option(
    "--target",
    help="cpu:native, cpu:x86-64-v4, ..., cuda:sm_80, cuda:sm_90 or cuda:sm_100; default: what the device is.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="On a CPU: time with one thread and with so many; default: as many as this process may use.",
)
@click.option("--budget", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin no further key after that time.")
@click.option(
    "--compute",
    type=click.Choice(COMPUTES),
    default="f32",
    show_default=True,
    help="What the model will be exported with.",
)
@few_bits_option
@keep_weights_option
@activations_option
@keep_activations_option
@calibration_option
@plugin_options
@click.option("--again", is_flag=True, help="Time keys that the table has already, too.")
@json_option
def command(
    spec: str,
    device: str | None,
    output: str,
    target: str | None,
    threads: int | None,
    budget: float | None,
    compute: str,
    weights: str | None,
    keep_weights: tuple[str, ...],
    activations: str | None,
    keep_activations: tuple[str, ...],
    calibration: str | None,
    plugins: tuple[str, ...],
    no_plugins: bool,
    again: bool,
    as_json: bool,
) -> None:
    on_cpu = device == "cpu" if device is not None else (target or "").partition(":")[0] == "cpu"
    device = device or ("cpu" if on_cpu else "cuda:0")
    _check_device(device, target, threads, on_cpu)
    check_few_bits(
        {"--weights": weights}, keep_weights, compute, "nearest", activations, calibration is not None, keep_activations
    )
    chosen = chosen_plugins(plugins, no_plugins)
    check_target_path(output)
    found_target, tuner, begun = (
        _on_cpu(target or "cpu:native", threads, output) if on_cpu else _on_gpu(device, target, output)
    )
    from hardtack import tuning
    from hardtack.codegen.package.output import write_files
    from hardtack.progress import stages

    found = load_spec(spec, chosen)
    from hardtack.api import tuning_keys

    def keep(made: TuningTable, tuned: Tuned | None = None) -> None:
        write_files([(Path(output), lambda file: file.write(made.to_json()))])

    with stages() as stage:
        stage.report("capture", 0, 0)
        keys = tuning_keys(
            found.module,
            found.args,
            found.kwargs,
            dynamic_shapes=found.dynamic_shapes,
            target=found_target,
            options=Options(
                compute=compute,
                weights=weights,
                keep_weights=keep_weights,
                activations=activations,
                keep_activations=keep_activations,
                calibration=load_calibration(calibration) if calibration is not None else None,
                plugins=chosen,
            ),
        )
        made, done, left = tuning.tune(
            keys, tuner, begun, again=again, budget_s=budget, keep=keep, progress=stage.report
        )
    keep(made)
    kept = len(keys) - len(done) - len(left)
    if as_json:
        entries = [tuning.as_document(t) for t in done]
        print_json({"table": output, "target": found_target, "entries": entries, "kept": kept, "left": left})
        return
    _print(output, found_target, done, kept, left)


def _check_device(device: str, target: str | None, threads: int | None, on_cpu: bool) -> None:
    """WrongUse for a device that nothing is tuned on, or one that is not the target's."""
    if not on_cpu and device.partition(":")[0] != "cuda":
        raise WrongUse(f"--device {device}: only kernels of CUDA devices and of this CPU are tuned: cuda:0, or cpu")
    if target is not None and (target.partition(":")[0] == "cpu") != on_cpu:
        raise WrongUse(f"--device {device} cannot time kernels for --target {target}")
    if threads is not None and not on_cpu:
        raise WrongUse("--threads is for CPUs; a GPU has no such number")


def _on_cpu(target: str, threads: int | None, output: str) -> tuple[str, AnyTuner, TuningTable]:
    """The target, what times keys for it, and the table so far."""
    from hardtack.codegen.machine.host import host_kind
    from hardtack.codegen.targets import TargetError, backends_for
    from hardtack.codegen.tune.table import TuningTable
    from hardtack.cpu_tuning import CpuTuner, time_entries, tuned_cpu

    try:
        cpu = tuned_cpu(target)
    except TargetError as error:
        raise WrongUse(str(error)) from None
    (backend,) = backends_for([target])
    cores = len(os.sched_getaffinity(0))
    new = TuningTable(cpu.level or cpu.name, ", ".join(backend.tools().values()), cpu=host_kind())
    counts = tuple(dict.fromkeys((1, threads or cores)))
    return target, CpuTuner(target, counts, time_entries, cores), _begun(Path(output), new)


def _on_gpu(device: str, target: str | None, output: str) -> tuple[str, AnyTuner, TuningTable]:
    """The same of a CUDA device."""
    _check_target(target)
    from hardtack import timing, tuning
    from hardtack.codegen.targets import backends_for
    from hardtack.codegen.tune.table import TuningTable

    found = tuning.device_target(device, target)
    (backend,) = backends_for([found])
    begun = _begun(Path(output), TuningTable(backend.machines[0].name, backend.tools()["triton"]))
    timer = timing.GuardedTimer(timing.DeviceTimer(device))
    return found, tuning.Tuner(found, timer, len(os.sched_getaffinity(0))), begun


def _check_target(target: str | None) -> None:
    """WrongUse for a target that is not a GPU's, or where Triton is missing."""
    from hardtack.codegen.backends.triton.compile import TritonError
    from hardtack.codegen.targets import GPU_TARGETS, backends_for

    known = [name for name, gpu in GPU_TARGETS.items() if gpu.device == "cuda"]
    if target is not None and target.startswith("hip:"):
        raise WrongUse(
            f"cannot tune for target {target!r}: kernels are timed on a device, and Hardtack runs none for hip"
        )
    if target is not None and target not in known:
        raise WrongUse(f"cannot tune for target {target!r}; known targets: {', '.join(known)}")
    try:
        for backend in backends_for([target or known[0]]):
            backend.tools()
    except TritonError as error:
        raise WrongUse(str(error)) from None


def _begun(path: Path, new: TuningTable) -> TuningTable:
    """The table as it is so far. WrongUse where it is for another device or from another compiler."""
    from hardtack.codegen.tune.table import read_table

    if not path.exists():
        return new
    begun = read_table(path)
    if (begun.arch, begun.compiler, begun.cpu) != (new.arch, new.compiler, new.cpu):
        raise WrongUse(
            f"{path} was measured on {begun.arch} with {begun.measured_with}; this is {new.arch} with "
            f"{new.measured_with}: name another file"
        )
    return begun


def _print(output: str, target: str, done: Sequence[Tuned], kept: int, left: Sequence[str]) -> None:
    from hardtack.codegen.tune.choice import plan_text

    made = table(f"{output}, {target}", "key", "chosen", ">before us", ">after us")
    for t in done:
        if t.chosen is None:
            made.add_row(t.key, t.problem, "", "")
        else:
            made.add_row(
                t.key, plan_text(t.chosen.plan), f"{t.timed[0].seconds * 1e6:.2f}", f"{t.chosen.seconds * 1e6:.2f}"
            )
    shown = console()
    shown.print(made)
    text = f"{len(done)} keys timed, {kept} kept as they were"
    shown.print(text + (f"; {len(left)} left when the time was over: run it again to go on" if left else ""))
