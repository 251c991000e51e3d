"""hardtack tune"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hardtack.cli.common import WrongUse, check_target_path, console, json_option, print_json, table
from hardtack.cli.spec import HELP, load_spec
from hardtack.options import COMPUTES

if TYPE_CHECKING:
    from hardtack.codegen.tune.table import TuningTable
    from hardtack.tuning import Tuned


@click.command(
    name="tune", help=f"Time the kernels that a model could have on a GPU; keep the fastest in a table.\n\n{HELP}"
)
@click.argument("spec")
@click.option("--device", default="cuda:0", show_default=True, help='Where to time: "cuda" or "cuda:1".')
@click.option(
    "-o", "--output", required=True, help="The table, such as table.json; keys that it has are kept as they are."
)
@click.option("--target", help="cuda:sm_80, cuda:sm_90 or cuda:sm_100; default: what the device is.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin no further key after that time.")
@click.option(
    "--compute",
    type=click.Choice(COMPUTES),
    default="f32",
    show_default=True,
    help="What the model will be exported with.",
)
@click.option("--again", is_flag=True, help="Time keys that the table has already, too.")
@json_option
def command(
    spec: str,
    device: str,
    output: str,
    target: str | None,
    budget: float | None,
    compute: str,
    again: bool,
    as_json: bool,
) -> None:
    if device.partition(":")[0] != "cuda":
        raise WrongUse(f"--device {device}: only kernels of CUDA devices are tuned; name one, such as cuda:0")
    check_target_path(output)
    _check_target(target)
    from hardtack import timing, tuning
    from hardtack.codegen.package.output import write_files
    from hardtack.codegen.targets import backends_for
    from hardtack.progress import stages

    found_target = tuning.device_target(device, target)
    (backend,) = backends_for([found_target])
    begun = _begun(Path(output), backend.machines[0].name, backend.tools()["triton"])
    found = load_spec(spec)
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
            compute=compute,
        )
        timer = timing.GuardedTimer(timing.DeviceTimer(device))
        tuner = tuning.Tuner(found_target, timer, len(os.sched_getaffinity(0)))
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


def _begun(path: Path, arch: str, triton: str) -> TuningTable:
    """The table as it is so far. WrongUse where it is for another device or from another Triton."""
    from hardtack.codegen.tune.table import TuningTable, read_table

    if not path.exists():
        return TuningTable(arch, triton)
    begun = read_table(path)
    if (begun.arch, begun.triton) != (arch, triton):
        raise WrongUse(
            f"{path} was measured on {begun.arch} with Triton {begun.triton}; this is {arch} with Triton {triton}: "
            "name another file"
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
