"""What a process pays on a GPU besides its kernels: python -m bench.gpu_native [MODEL].

From a fresh process to the first result, against what no such process gets around: starting the driver, and sending as
many bytes as the bundle has. And the host's time for each step of a plan without CUDA graphs, against a bare
cuLaunchKernelEx of a kernel that does nothing. A native program measures both (gpu_native.cpp); processes take turns.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.gpu_models import build, names


def program(folder: Path) -> Path:
    """gpu_native, built against the installed Hardtack."""
    import hardtack

    (home,) = (Path(p) for p in hardtack.__path__ if (Path(p) / "lib" / "libhardtack.so.0.1").exists())
    built, library = folder / "gpu_native", home / "lib" / "libhardtack.so.0.1"
    source = Path(__file__).with_suffix(".cpp")
    subprocess.run(
        ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{home / 'include'}", str(source), str(library),
         "-ldl", f"-Wl,-rpath,{library.parent}", "-o", str(built)],
        check=True,
    )  # fmt: skip
    return built


def bundle(model: str, folder: Path) -> Path:
    """The model for this machine's GPU."""
    import torch

    import hardtack

    with torch.no_grad():
        case = build(model)
        major, minor = torch.cuda.get_device_capability()
        path = folder / f"{model}.pkg"
        hardtack.export(case.module, case.args, path=path, targets=(f"cuda:sm_{major}{minor}",))
    return path


def answer(command: list[str]) -> dict[str, Any]:
    """What a process prints, with the ms from its start to its end."""
    begin = time.perf_counter()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found | {"process_ms": (time.perf_counter() - begin) * 1e3}


@click.command()
@click.argument("model", type=click.Choice(names()), default="bert_base_s128_b1")
@click.option("--rounds", default=7, show_default=True, help="How many processes of each kind.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="A folder for the program and bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(model: str, rounds: int, keep: Path | None, as_json: bool) -> None:
    """Measures the start of MODEL in a fresh process, and the host's time a step."""
    with nullcontext(keep) if keep else tempfile.TemporaryDirectory(prefix="hardtack-bench-") as made:
        folder = Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        native, path = program(folder), bundle(model, folder)
        answer([str(native), "first", str(path)])  # the driver's and the file system's caches are warm from here on
        floors, firsts = [], []
        for _ in range(rounds):
            floors.append(answer([str(native), "floor", str(path)]))
            firsts.append(answer([str(native), "first", str(path)]))
        host = answer([str(native), "host", str(path)])
    figures = {
        "process_ms": median(f["process_ms"] for f in firsts),
        "load_ms": median(f["load_ms"] for f in firsts),
        "run_ms": median(f["run_ms"] for f in firsts),
        "start_ms": median(f["start_ms"] for f in floors),
        "upload_ms": median(f["upload_ms"] for f in floors),
        "upload_nbytes": floors[0]["nbytes"],
        "beyond_ms": median(
            a["process_ms"] - b["start_ms"] - b["upload_ms"] for a, b in zip(firsts, floors, strict=True)
        ),
        "step_us": host["run_us"],
        "bare_launch_us": host["bare_us"],
        "launches": host["launches"],
    }
    if as_json:
        click.echo(json.dumps({"model": model, **figures}))
    else:
        Console().print(table(model, figures))


def table(model: str, f: dict[str, Any]) -> Table:
    """For a terminal."""
    out = Table(title=model, title_justify="left", show_header=False)
    for name, value in (
        ("from the process's start to its end, after one result", f"{f['process_ms']:.0f} ms"),
        ("  of that: loading", f"{f['load_ms']:.0f} ms"),
        ("  of that: the first run", f"{f['run_ms']:.1f} ms"),
        ("starting the driver, bare", f"{f['start_ms']:.0f} ms"),
        (f"sending {f['upload_nbytes'] / 1e6:.0f} MB, bare", f"{f['upload_ms']:.0f} ms"),
        ("beyond these two", f"{f['beyond_ms']:.0f} ms"),
        (f"host time a step, {f['launches']} launches", f"{f['step_us']:.2f} us"),
        ("a bare cuLaunchKernelEx", f"{f['bare_launch_us']:.2f} us"),
        ("ratio", f"{f['step_us'] / f['bare_launch_us']:.2f}"),
    ):
        out.add_row(name, value)
    return out


if __name__ == "__main__":
    main()
