"""The command line `python -m bench.gpu_steps MODEL`: where the time of a model goes on the GPU, kernel by kernel."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench import gpu_models, gpu_others


@click.command()
@click.argument("model", type=click.Choice((*gpu_models.names(), *gpu_others.names())))
@click.option("--top", default=25, show_default=True, help="How many kernels to list.")
@click.option("--runs", default=10, show_default=True, help="How many runs are summed up.")
@click.option("--weights", help="As in hardtack.Options.")
@click.option("--activations", help="As in hardtack.Options.")
def main(model: str, top: int, runs: int, weights: str | None, activations: str | None) -> None:
    """Exports MODEL, runs it and lists its kernels by the time that the device spends in them."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    import hardtack

    torch.set_grad_enabled(False)
    case = gpu_others.build_any(model)
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.pkg"
        options = hardtack.Options(weights=weights, activations=activations)
        hardtack.export(case.module, case.args, path=path, targets=(f"cuda:sm_{major}{minor}",), options=options)
        session = hardtack.load(path, device="cuda:0").session(asynchronous=True)
    for _ in range(3):
        session(*case.args)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        for _ in range(runs):
            session(*case.args)
        torch.cuda.synchronize()
    spent: dict[str, list[float]] = defaultdict(list)
    begins, ends = [], []
    for event in found.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            spent[event.name].append(event.time_range.elapsed_us())
            begins.append(event.time_range.start)
            ends.append(event.time_range.end)
    total = sum(map(sum, spent.values())) / runs
    console = Console(width=None if Console().is_terminal else 140)
    table = Table(
        title=f"{model}: {total:.1f} us in kernels a run, {(max(ends) - min(begins)) / runs:.1f} us from end to end"
    )
    for k, column in enumerate(("us a run", "%", "launches", "us each", "kernel")):
        table.add_column(column, justify="left" if k == 4 else "right")
    for name, times in sorted(spent.items(), key=lambda item: -sum(item[1]))[:top]:
        us, count = sum(times) / runs, len(times) / runs
        table.add_row(f"{us:.1f}", f"{us / total:.1%}", f"{count:g}", f"{us / count:.2f}", name)
    console.print(table)


if __name__ == "__main__":
    main()
