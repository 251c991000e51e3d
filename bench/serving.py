"""What hardtack-server costs and carries, on this machine over the loopback.

    python -m bench.serving                 overhead of one client, throughput by clients, latency at half load
    python -m bench.serving --soak 600      64 clients at saturation, mixed sizes, the bundle replaced every 5 s

Clients are native (bench/serving_load.cpp) and check every answer against a direct call. Direct calls and requests take
turns in one process, so that both meet the same weather. Stops with exit status 1 when an answer was lost or wrong.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.served import Server, build_program

ROOT = Path(__file__).resolve().parents[1]

NUM_FEATURES = 784


def export_mlp(path: Path) -> None:
    """784-512-512-10 with a symbolic batch."""
    import torch
    from torch import nn
    from torch.export import Dim

    import hardtack

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).eval()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = mlp

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mlp(x)  # type: ignore[no-any-return]

    example = (torch.randn(2, NUM_FEATURES),)
    hardtack.export(Model().eval(), example, path=path, dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}})


def build_load(program: Path, folder: Path) -> Path:
    """The load generator, linked to the runtime of the server's build."""
    library = program.resolve().parents[1] / "runtime_cpp"
    made = folder / "serving_load"
    source = ROOT / "bench" / "serving_load.cpp"
    include = ROOT / "runtime_cpp" / "include"
    options = ["-std=c++17", "-O2", "-pthread", f"-I{include}", f"-L{library}", f"-Wl,-rpath,{library}"]
    subprocess.run(["g++", *options, source, "-o", made, "-lhardtack"], check=True)
    return made


class Bench:
    def __init__(self, folder: Path) -> None:
        self.program = build_program()
        self.load_program = build_load(self.program, folder)
        self.models = folder / "models"
        self.bundle = folder / "mlp.pkg"
        export_mlp(self.bundle)
        self.place = self.models / "mlp" / "1" / "model.pkg"
        self.place.parent.mkdir(parents=True)
        shutil.copy(self.bundle, self.place)

    def replace(self) -> None:
        fresh = self.place.with_suffix(".new")
        shutil.copy(self.bundle, fresh)
        fresh.rename(self.place)

    def run(self, kind: str, server: Server, *arguments: object) -> dict[str, Any]:
        where = [str(server.port), "mlp", str(self.bundle), str(NUM_FEATURES)]
        command = [str(self.load_program), kind, *where, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{done.stderr}")
        return dict(json.loads(done.stdout))

    def overhead(self) -> None:
        with Server(self.program, self.models) as server:
            self.run("overhead", server, 500, 2)
            found = self.run("overhead", server, 500, 20)
        print(
            f"one client, one row: direct {found['direct_us']} us, HTTP {found['http_us']} us, "
            f"the server adds {found['added_us']} us at the median (p99 of HTTP {found['http_p99_us']} us)"
        )

    def throughput(self, seconds: float) -> None:
        for title, arguments in (
            ("requests as they come", ()),
            ("--max-batch 64 --sessions 1", ("--max-batch", "64", "--sessions", "1")),
        ):
            with Server(self.program, self.models, *arguments) as server:
                for clients in (1, 8, 64):
                    found = self.run("load", server, clients, seconds, 0, 1)
                    latency = f"p50 {found['p50_us']} us, p99 {found['p99_us']} us"
                    print(f"{title}: {clients:2} clients: {found['per_second']} requests/s, {latency}")
                half = self.run("load", server, 64, seconds, found["per_second"] / 2, 1)
                times = half["p99_us"] / half["p50_us"]
                print(
                    f"{title}: at half of that: p50 {half['p50_us']} us, p99 {half['p99_us']} us, {times:.1f} times p50"
                )

    def soak(self, seconds: float) -> None:
        arguments = ("--max-batch", "64", "--max-queue", "1024", "--poll", "200")
        with Server(self.program, self.models, *arguments) as server:
            resident: list[tuple[float, float]] = []
            stop = threading.Event()
            start = time.monotonic()

            def disturb() -> None:
                while not stop.wait(5):
                    self.replace()
                    resident.append((time.monotonic() - start, server.metric("process_resident_memory_bytes")))

            thread = threading.Thread(target=disturb)
            thread.start()
            found = self.run("load", server, 64, seconds, 0, "1,2,3,5,8,13,21,34,64")
            stop.set()
            thread.join()
            statistics = server.statistics("mlp")
            reloads = len(server.events("model reloaded"))
            failed = statistics["inference_stats"]["fail"]["count"]
            counted = statistics["inference_stats"]["success"]["count"]
        early = [r for t, r in resident if t <= max(60.0, seconds / 10)]
        print(
            f"{found['answers']} answers in {seconds:.0f} s, {found['per_second']} a second, {found['errors']} wrong, "
            f"{failed} failed, {counted - found['answers']} doubled or lost; {reloads} reloads; "
            f"p50 {found['p50_us']} us, p99 {found['p99_us']} us"
        )
        if early:
            first, last = early[-1] / 1e6, resident[-1][1] / 1e6
            grown = f"{last / first - 1:+.1%}"
            print(f"resident memory: {first:.1f} MB after the first minute, {last:.1f} MB at the end ({grown})")
        if failed or counted != found["answers"]:
            sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="only the soak")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement of throughput [5]")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        if chosen.soak:
            bench.soak(chosen.soak)
        else:
            bench.overhead()
            bench.throughput(chosen.seconds)


if __name__ == "__main__":
    main()
