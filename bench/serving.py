"""What serving costs and carries, on this machine over the loopback.

    python -m bench.serving                 overhead, throughput beside Triton, latency at half load
    python -m bench.serving --sentences     MiniLM: sentences a second, by length and limit of the batch
    python -m bench.serving --soak 600      64 clients at saturation, mixed sizes, the bundle replaced every 5 s
    python -m bench.serving --beside PROGRAM --starts 21 --rounds 7 --seconds 0.2
                                            another build of the server in turn with this one: ratios, with intervals;
                                            with --their-bundle where it reads older bundles only

One load generator (bench/serving_load), on one thread, drives all systems and checks every answer against eager
PyTorch. They take turns, so that all meet the same weather; figures are medians over the turns. Stops with exit status
1 when an answer was wrong, lost or doubled.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import torch

from bench import machine, serving_models
from bench.serving_beside import TITLES, Build, beside
from bench.serving_cases import Case
from bench.serving_soak import soak
from bench.serving_systems import TRITON_MODELS, Endpoint, Load, Result, middle, triton
from tests.support.served import Server, build_program
from tests.support.triton_server import MISSING, build_backend, is_there

AS_IT_COMES = "hardtack-server"
BATCHED = "hardtack-server --max-batch 64"
"""The batches of Triton's models: of what waits, up to 64 rows, without a delay."""
CANNED = "a loop that sends prepared bytes"

LENGTHS, BATCHES = (8, 16, 32, 64), (8, 16, 32)
SESSIONS = (1, 2)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Markdown on standard output."""
    print(f"\n| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    sys.stdout.flush()


def put_model(models: Path, name: str, bundle: Path) -> Path:
    """A folder of models with one; gives the place of its bundle."""
    place = models / name / "1" / "model.pkg"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(bundle, place)
    return place


class Bench:
    """Servers with the perceptron, one row a request."""

    def __init__(self, folder: Path, sizes: Sequence[int], seconds: float, rounds: int) -> None:
        self.folder, self.sizes, self.seconds, self.rounds = folder, sizes, seconds, rounds
        self.program = build_program()
        self.load = Load(self.program, folder)
        self.bundle = folder / "mlp.pkg"
        self.module = serving_models.export_mlp(self.bundle, sizes)
        self.place = put_model(folder / "models", "mlp", self.bundle)
        self.cases = self.cases_of([1])

    def cases_of(self, rows: Sequence[int]) -> list[Case]:
        return serving_models.mlp_cases(self.module, self.sizes[0], rows)

    def server(self, *arguments: str) -> Server:
        return Server(self.program, self.folder / "models", *arguments)

    def turns(self, systems: dict[str, Callable[[], Result]]) -> dict[str, list[Result]]:
        """Results of each system, turn by turn; a first turn of each is thrown away."""
        results: dict[str, list[Result]] = {title: [] for title in systems}
        for turn in range(self.rounds + 1):
            for title, measure in systems.items():
                result = measure()
                if turn > 0:
                    results[title].append(result)
        return results

    def overhead(self) -> None:
        """One client beside direct calls."""
        with self.server() as server:
            ends = {"HTTP": Endpoint("http", server.port, "mlp"), "gRPC": Endpoint("grpc", server.grpc_port, "mlp")}
            direct: list[float] = []
            results: dict[str, list[Result]] = {name: [] for name in ends}
            for _ in range(2 * self.rounds):
                direct.append(self.load.direct(self.bundle, self.cases, self.seconds / 4))
                for name, end in ends.items():
                    results[name].append(self.load.run(end, self.cases, 1, self.seconds / 4))
        rows = []
        for name, found in results.items():
            added = median(result.p50_us - us for result, us in zip(found, direct, strict=True))
            p50, p99 = middle(found, "p50_us"), middle(found, "p99_us")
            rows.append((name, f"{median(direct):.0f} us", f"{p50:.0f} us", f"{added:.0f} us", f"{p99:.0f} us"))
        table(("one client", "direct call, p50", "request, p50", "the server adds", "request, p99"), rows)

    def throughput(self) -> None:
        """As fast as answers come, with 8 and with 64 clients; then ours at half of what 64 got, beside a server that
        computes nothing."""
        with ExitStack() as stack:
            ends: dict[str, Endpoint] = {}
            for title in (AS_IT_COMES, BATCHED):
                server = stack.enter_context(self.server(*title.split()[1:]))
                ends[title] = Endpoint("http", server.port, "mlp")
            if is_there():
                script = self.folder / "mlp.pt"
                traced = torch.jit.trace(self.module, torch.from_numpy(self.cases[0].inputs["x"]))  # type: ignore[no-untyped-call]
                traced.save(str(script))
                other = stack.enter_context(triton(self.folder, build_backend(), self.bundle, script, self.sizes))
                ends |= {title: Endpoint("http", other.http_port, name) for name, title in TRITON_MODELS.items()}
            else:
                print(MISSING)
            for clients in (8, 64):
                found = self.turns({title: self._saturate(end, clients) for title, end in ends.items()})
                self._compare(clients, found)
            ours = [title for title in (AS_IT_COMES, BATCHED, TRITON_MODELS["hardtack"]) if title in ends]
            rates = {title: middle(found[title], "per_second") / 2 for title in ours}
            ends[CANNED] = stack.enter_context(self.load.canned(self.cases))
            self._half_load({title: (ends[title], rates.get(title, rates[AS_IT_COMES])) for title in (*ours, CANNED)})

    def _saturate(self, end: Endpoint, clients: int) -> Callable[[], Result]:
        return lambda: self.load.run(end, self.cases, clients, self.seconds)

    def _compare(self, clients: int, found: dict[str, list[Result]]) -> None:
        rows = []
        base = found.get(TRITON_MODELS["hardtack"], found[AS_IT_COMES])
        for title, results in found.items():
            pairs = zip(results, base, strict=True)
            times = median(result.per_second / other.per_second for result, other in pairs)
            us = [f"{middle(results, field):.0f} us" for field in ("p50_us", "p99_us")]
            rows.append((title, f"{middle(results, 'per_second'):.0f}", f"{times:.2f}", *us))
        table((f"{clients} clients, HTTP", "requests/s", "to Triton's with ours", "p50", "p99"), rows)

    def _half_load(self, systems: dict[str, tuple[Endpoint, float]]) -> None:
        def measure(end: Endpoint, rate: float) -> Callable[[], Result]:
            return lambda: self.load.run(end, self.cases, 64, self.seconds, rate)

        found = self.turns({title: measure(end, rate) for title, (end, rate) in systems.items()})
        rows = []
        for title, results in found.items():
            times = median(result.p99_us / result.p50_us for result in results)
            us = [f"{middle(results, field):.0f} us" for field in ("p50_us", "p90_us", "p99_us")]
            best = f"{min(result.p99_us for result in results):.0f} us"
            rows.append((title, f"{middle(results, 'per_second'):.0f}", *us, f"{times:.1f}", best))
        titles = ("64 clients, half the load", "requests/s", "p50", "p90", "p99", "p99 / p50", "p99 of the best turn")
        table(titles, rows)


def sentences(bench: Bench) -> None:
    """MiniLM with 64 clients, a sentence a request."""
    bundle, folder = bench.folder / "minilm.pkg", bench.folder / "sentences"
    module = serving_models.export_sentences(bundle)
    put_model(folder, "minilm", bundle)
    settings = [(sessions, batch) for batch in (1, *BATCHES) for sessions in SESSIONS]
    with ExitStack() as stack:
        ends = {}
        for sessions, batch in settings:
            arguments = ["--sessions", str(sessions)] + (["--max-batch", str(batch)] if batch > 1 else [])
            server = stack.enter_context(Server(bench.program, folder, *arguments))
            ends[sessions, batch] = Endpoint("http", server.port, "minilm")
        rows = []
        for length in LENGTHS:
            cases = serving_models.sentence_cases(module, length)
            measures = {f"{s} {b}": _measure(bench, ends[s, b], cases) for s, b in settings}
            rates = {name: middle(results, "per_second") for name, results in bench.turns(measures).items()}
            alone = max(rates[f"{sessions} 1"] for sessions in SESSIONS)
            cells = [f"{rates[f'{s} {b}']:.0f} ({rates[f'{s} {b}'] / alone:.2f})" for s, b in settings]
            rows.append((str(length), *cells))
    titles = [f"{'batch ' + str(b) if b > 1 else 'alone'}, {s} session{'s' if s > 1 else ''}" for s, b in settings]
    table(("tokens", *titles), rows)


def _measure(bench: Bench, end: Endpoint, cases: Sequence[Case]) -> Callable[[], Result]:
    return lambda: bench.load.run(end, cases, 64, bench.seconds)


def compare_builds(bench: Bench, program: Path, bundle: Path | None, starts: int) -> None:
    """This tree's server beside another program, each with its own bundle of the same perceptron."""
    put_model(bench.folder / "theirs", "mlp", bundle or bench.bundle)
    ours, other = Build(bench.program, bench.folder / "models"), Build(program, bench.folder / "theirs")
    table(TITLES, beside(bench.load, bench.cases, (ours, other), starts, bench.rounds, bench.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", action="store_true", help="only the sentence embeddings")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="only the soak")
    parser.add_argument("--beside", type=Path, metavar="PROGRAM", help="only this server beside another build of it")
    parser.add_argument(
        "--their-bundle", type=Path, metavar="BUNDLE", help="the perceptron as the other build reads it"
    )
    parser.add_argument("--starts", type=int, default=21, help="of both builds, with the rounds in each [21]")
    parser.add_argument("--mlp", default="784,512,512,10", help="sizes of the perceptron's layers [784,512,512,10]")
    parser.add_argument("--seconds", type=float, default=2, help="of a turn of one system [2]")
    parser.add_argument("--rounds", type=int, default=5, help="turns that count [5]")
    chosen = parser.parse_args()
    print(machine.sentence(machine.facts()))
    with tempfile.TemporaryDirectory(prefix="hardtack-serving-") as folder:
        bench = Bench(Path(folder), [int(size) for size in chosen.mlp.split(",")], chosen.seconds, chosen.rounds)
        if chosen.soak:
            with bench.server("--max-batch", "64", "--max-queue", "1024", "--poll", "200") as server:
                cases = bench.cases_of([1, 2, 3, 5, 8, 13, 21, 34, 64])
                soak(server, bench.load, bench.bundle, bench.place, cases, chosen.soak)
        elif chosen.beside:
            compare_builds(bench, chosen.beside, chosen.their_bundle, chosen.starts)
        elif chosen.sentences:
            sentences(bench)
        else:
            bench.overhead()
            bench.throughput()


if __name__ == "__main__":
    main()
