"""From a fresh process to its first result on EfficientNet-Lite0: python -m bench.cold.

Wall time from the start of the process to its exit, which follows the first result at once, less one warm run; and the
largest resident memory, also less the weights. Processes start in turns, file caches are warm, the model's files were
made before. Hardtack is its native program; the peers are Python with what they need to run and no more, and
AOTInductor also a C++ program on libtorch.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.models import Case, build
from bench.worker import realtime_threads

MODEL = "efficientnet_lite0"
_EAGER = """
import os, sys, time
import numpy as np, torch
torch.set_num_threads(int(sys.argv[3])); torch.set_grad_enabled(False)
model = torch.load(sys.argv[1], weights_only=False)
x = torch.from_numpy(np.load(sys.argv[2]))
run = lambda: model(x)
"""
_ORT = """
import os, sys, time
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feed = {session.get_inputs()[0].name: np.load(sys.argv[2])}
run = lambda: session.run(None, feed)
"""
_AOTI = """
import os, sys, time
import numpy as np, torch
torch.set_num_threads(int(sys.argv[3])); torch.set_grad_enabled(False)
model = torch._inductor.aoti_load_package(sys.argv[1])
x = torch.from_numpy(np.load(sys.argv[2]))
run = lambda: model(x)
"""
_HARDTACK = """
import os, sys, time
import numpy as np, hardtack
session = hardtack.load(sys.argv[1], threads=int(sys.argv[3])).session()
x = np.load(sys.argv[2])
run = lambda: session(x)
"""
# A child's largest memory counts that of the process which started it, so a small one has to.
_LAUNCH = """
import os, sys, time
if sys.argv[1] == "realtime":
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
begin = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(pid, 0)
print((time.perf_counter() - begin) * 1e3, usage.ru_maxrss * 1024)
sys.exit(status != 0)
"""
_FINISH = """
run()
if sys.argv[4] == "warm":
    times = []
    for _ in range(30):
        begin = time.perf_counter(); run(); times.append(time.perf_counter() - begin)
    print(sorted(times)[15] * 1e3, flush=True)
os._exit(0)
"""
_AOTI_CPP = r"""
#include <torch/torch.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
// PACKAGE INPUT.bin THREADS once|warm; the input is raw float32 of 1x3x224x224.
int main(int, char** argv) {
  torch::InferenceMode inference;
  torch::set_num_threads(std::atoi(argv[3]));
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  at::Tensor x = torch::from_file(argv[2], false, 3 * 224 * 224).view({1, 3, 224, 224});
  model.run({x});
  if (std::strcmp(argv[4], "warm") == 0) {
    std::vector<double> ms;
    for (int i = 0; i < 30; ++i) {
      auto begin = std::chrono::steady_clock::now();
      model.run({x});
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(ms.begin(), ms.end());
    std::printf("%f\n", ms[15]);
  }
  std::fflush(stdout);
  std::_Exit(0);
}
"""


@dataclass
class Program:
    """A command that ends after its first result; `warm` prints the ms of a warm run. Memory in bytes."""

    name: str
    once: list[str]
    warm: list[str]
    walls_ms: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    warm_ms: float = 0.0


def python_program(name: str, source: str, file: Path, data: Path, threads: int) -> Program:
    command = [sys.executable, "-c", source + _FINISH, str(file), str(data), str(threads)]
    return Program(name, [*command, "once"], [*command, "warm"])


def programs(case: Case, folder: Path, threads: int, native: str, cpp: bool) -> list[Program]:
    """Exports the model for every system, and gives the programs that run it."""
    import hardtack

    data = folder / "x.npy"
    np.save(data, case.args[0].numpy())
    bundle, onnx, package, module = (folder / n for n in ("model.pkg", "model.onnx", "model.pt2", "module.pt"))
    hardtack.export(case.module, case.args, path=bundle, targets=("cpu:native",))
    torch.onnx.export(case.module, case.args, str(onnx), dynamo=True, verbose=False)
    torch.set_num_threads(threads)
    exported = torch.export.export(case.module, case.args, strict=False)
    torch._inductor.aoti_compile_and_package(exported, package_path=str(package), inductor_configs={"freezing": True})
    torch.save(case.module, module)
    name = hardtack.load(bundle).entries["forward"].inputs[0].name
    common = [str(bundle), "--input", f"{name}={data}", "--threads", str(threads)]
    found = [
        Program("Hardtack, native program", [native, "run", *common], [native, "bench", *common, "--json"]),
        python_program("Hardtack, Python", _HARDTACK, bundle, data, threads),
        python_program("ONNX Runtime, Python", _ORT, onnx, data, threads),
        python_program("AOTInductor, Python", _AOTI, package, data, threads),
        python_program("eager, Python", _EAGER, module, data, threads),
    ]
    if cpp:
        raw = folder / "x.bin"
        case.args[0].numpy().tofile(raw)
        command = [str(build_aoti(folder)), str(package), str(raw), str(threads)]
        found.insert(1, Program("AOTInductor, C++", [*command, "once"], [*command, "warm"]))
    return found


def build_aoti(folder: Path) -> Path:
    """Compiles the C++ program that runs an AOTInductor package on libtorch."""
    from torch.utils.cpp_extension import include_paths, library_paths

    source, program = folder / "aoti.cpp", folder / "aoti"
    source.write_text(_AOTI_CPP)
    libraries = library_paths()
    command = ["g++", "-std=c++20", "-O1", str(source), "-o", str(program), *(f"-isystem{p}" for p in include_paths())]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    command += [*(f"-L{p}" for p in libraries), *(f"-Wl,-rpath,{p}" for p in libraries)]
    subprocess.run([*command, "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"], check=True)
    return program


def launch(command: list[str], realtime: bool) -> tuple[float, int]:
    """Wall ms of a process from its start to its exit, and its largest resident memory in bytes."""
    launcher = [sys.executable, "-IS", "-c", _LAUNCH, "realtime" if realtime else "ordinary"]
    done = subprocess.run([*launcher, *command], capture_output=True, text=True)
    if done.returncode != 0:
        raise click.ClickException(f"{' '.join(command)[:200]} failed: {done.stderr.strip()[-500:]}")
    wall_ms, peak_nbytes = done.stdout.split()[-2:]
    return float(wall_ms), int(peak_nbytes)


def warm(program: Program, realtime: bool) -> float:
    """Median ms of a warm run in a process of its own."""
    with realtime_threads() if realtime else nullcontext():
        out = subprocess.run(program.warm, capture_output=True, check=True, text=True).stdout.strip()
    return float(json.loads(out)["median_s"]) * 1e3 if out.startswith("{") else float(out.splitlines()[-1])


def native_program(given: str | None) -> str:
    """The path of hardtack-rt: as given, in PATH, or where `./dev test` builds it."""
    built = Path(__file__).resolve().parents[1] / "build/release/runtime_cpp/tools/hardtack-rt"
    found = Path(given or shutil.which("hardtack-rt") or built)
    if not found.exists():
        raise click.ClickException(f"there is no {found}; ./dev test builds hardtack-rt, --native says where it is")
    return str(found.resolve())


def report(found: Sequence[Program], weights_nbytes: int, threads: int, launches: int) -> Table:
    title = f"{MODEL}, {threads} threads: fresh process to first result, median of {launches}"
    table = Table(title=title, title_justify="left")
    table.add_column("program")
    for name in ("to first result, ms", "warm run, ms", "peak memory, MB", "less weights, MB"):
        table.add_column(name, justify="right")
    for p in found:
        start_ms, peak = median(p.walls_ms) - p.warm_ms, median(p.peaks)
        cells = (f"{start_ms:.1f}", f"{p.warm_ms:.2f}", f"{peak / 1e6:.1f}", f"{(peak - weights_nbytes) / 1e6:.1f}")
        table.add_row(p.name, *cells)
    return table


@click.command()
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--launches", default=9, show_default=True, type=click.IntRange(1))
@click.option("--realtime", is_flag=True, help="Run at real-time priority, on a busy machine; as root.")
@click.option("--native", help="Where hardtack-rt is; without it, in PATH or build/release.")
@click.option("--cpp/--no-cpp", default=True, help="Also AOTInductor from C++, which takes a g++ and a minute.")
def main(threads: int, launches: int, realtime: bool, native: str | None, cpp: bool) -> None:
    """Times fresh processes up to the first result of EfficientNet-Lite0."""
    program = native_program(native)
    torch.set_grad_enabled(False)
    case = build(MODEL)
    case = Case(MODEL, case.module, tuple(a.contiguous() for a in case.args))
    weights_nbytes = sum(t.nbytes for t in case.module.state_dict().values())
    with tempfile.TemporaryDirectory(prefix="hardtack-bench-") as folder:
        found = programs(case, Path(folder), threads, program, cpp)
        for p in found:
            p.warm_ms = warm(p, realtime)
        for _ in range(launches):
            for p in found:
                wall_ms, peak = launch(p.once, realtime)
                p.walls_ms.append(wall_ms)
                p.peaks.append(peak)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(machine.sentence(machine.facts()), markup=False, highlight=False)
    console.print(report(found, weights_nbytes, threads, launches))


if __name__ == "__main__":
    main()
