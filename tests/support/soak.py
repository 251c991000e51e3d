"""hardtack-server for an hour under clients that behave and clients that do not: soak.py [--minutes N] [--json].

The server runs in a memory cgroup where root may make one. Clients that behave check every answer; others break off in
the middle of a request, send nonsense, inflate, ask for what does not fit; bundles are replaced and loaded meanwhile.
It fails when an answer is wrong, when a request gets none, when the server ends, or when its memory grows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import sample
import served
import serving_bundles
from serving_bundles import put

CGROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),  # version 1
    (Path("/sys/fs/cgroup"), "memory.max"),  # version 2
)
BUSY = (408, 413, 429, 503, 504)
"""What a server may say to a sound request when it has too much to do."""
MOST_GROWTH = 1.10
"""Of the memory in the last quarter over that in the second one; the first is for warming up."""


@dataclass
class Tally:
    """What became of the requests; the threads share one."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    rss_nbytes: list[int] = field(default_factory=list)
    slowest_live_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1

    def fault(self, kind: str, text: str) -> None:
        with self.lock:
            self.counts[kind] += 1
            if len(self.faults) < 20:
                self.faults.append(f"{kind}: {text}")


@dataclass(frozen=True)
class Report:
    """The outcome of a soak: sizes in bytes, times in seconds."""

    seconds: float
    counts: dict[str, int]
    faults: list[str]
    rss_second_quarter: float
    rss_last_quarter: float
    slowest_live_s: float
    exit_code: int

    @property
    def good(self) -> bool:
        lost = sum(self.counts.get(kind, 0) for kind in ("wrong", "lost"))
        steady = self.rss_last_quarter <= MOST_GROWTH * self.rss_second_quarter
        return lost == 0 and self.exit_code == 0 and steady and self.counts.get("right", 0) > 0


@contextmanager
def memory_group(nbytes: int) -> Iterator[Path | None]:
    """A cgroup of so much memory; None where none can be made."""
    for root, limit in CGROUPS:
        if not (root / limit).exists() and not (root / "cgroup.controllers").exists():
            continue
        group = root / f"hardtack_soak_{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(nbytes), encoding="ascii")
        except OSError:
            continue
        try:
            yield group
        finally:
            time.sleep(0.2)
            group.rmdir()
        return
    yield None


def honest(server: served.Server, tally: Tally, random_: random.Random) -> None:
    """A sound request, whose answer is checked element by element."""
    x = np.round(np.random.default_rng(random_.randrange(2**32)).uniform(1, 9, (random_.randint(1, 12), 4)), 3)
    x[:, 3] = random_.choice((0.0, 0.01, 0.2))  # milliseconds that a row takes
    answer = server.infer("spin", x.astype(np.float32))
    if answer.status in BUSY:
        return tally.count("refused")
    if answer.status != 200:
        return tally.fault("wrong", f"{answer.status} {answer.body[:200]!r}")
    y = np.array(answer.json()["outputs"][0]["data"], np.float32).reshape(x.shape)
    right = np.array_equal(y, x.astype(np.float32) * np.float32(2))
    return tally.count("right") if right else tally.fault("wrong", f"{y.tolist()} for {x.tolist()}")


def break_off(server: served.Server, tally: Tally, random_: random.Random) -> None:
    """A request that ends before its end, by a reset or in silence."""
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()
    head = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server.socket() as connection:
        connection.sendall((head + body)[: random_.randint(1, len(head + body))])
        if random_.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    tally.count("broken off")


def nonsense(server: served.Server, tally: Tally, random_: random.Random) -> None:
    """Requests that no client should send; each must be refused in words, and none may be answered with 200."""
    zeros = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0] * 4}
    bodies: list[tuple[bytes, dict[str, str]]] = [
        (b"{" * random_.randint(1, 5000), {}),
        (json.dumps({"inputs": [{**zeros, "shape": [0, 1 << 40]}]}).encode(), {}),
        (json.dumps({"inputs": [{**zeros, "shape": [1 << 31, 1 << 31]}]}).encode(), {}),
        (json.dumps({"inputs": [zeros] * 3000}).encode(), {}),
        (gzip.compress(bytes(4 << 20)), {"Content-Encoding": "gzip"}),
        (random_.randbytes(random_.randint(1, 3000)), {"Inference-Header-Content-Length": "17"}),
    ]
    body, headers = random_.choice(bodies)
    answer = server.request("POST", "/v2/models/spin/infer", body, headers)
    if answer.status == 200:
        tally.fault("wrong", f"200 for {body[:80]!r}")
    elif len(answer.error) < 10:
        tally.fault("wrong", f"{answer.status} without a sentence for {body[:80]!r}")
    else:
        tally.count("nonsense refused")


class Reloader:
    """The same bundle, put over the one that serves and loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, server: served.Server, tally: Tally, random_: random.Random) -> None:
        put(serving_bundles.spin(), self.path)
        status = server.post("/v2/repository/models/spin/load").status
        tally.count("reloaded" if status == 200 else "reload refused")
        time.sleep(0.5 + random_.random())


def probe(server: served.Server, tally: Tally, random_: random.Random) -> None:
    start = time.monotonic()
    status = server.get("/v2/health/live").status
    took = time.monotonic() - start
    with tally.lock:
        tally.slowest_live_s = max(tally.slowest_live_s, took)
    if status != 200:
        tally.fault("wrong", f"live is {status}")
    pages = Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii").split()[1]
    with tally.lock:
        tally.rss_nbytes.append(int(pages) * os.sysconf("SC_PAGESIZE"))
    time.sleep(0.2)


class Sequence:
    """One sequence of the model `count`, whose state counts its runs: no run is lost, and none counts twice."""

    def __init__(self, number: int) -> None:
        self.name, self.turn, self.expected = f"sequence-{number}", 0, 5

    def __call__(self, server: served.Server, tally: Tally, random_: random.Random) -> None:
        first = self.turn == 0
        parameters = {
            "sequence_id": self.name,
            "sequence_start": first,
            "sequence_end": self.turn == 30,
            "entry": "forward",
        }
        answer = server.infer("count", np.ones((1, 4), np.float32), parameters=parameters)
        if answer.status != 200:  # begin again: a refused turn has not moved the state, and a new start resets it
            self.turn = 0
            return tally.count("refused") if answer.status in BUSY else tally.fault("wrong", str(answer.body[:200]))
        calls = next(o["data"][0] for o in answer.json()["outputs"] if o["name"] == "calls")
        if not first and calls != self.expected:
            tally.fault("wrong", f"{self.name} turn {self.turn}: {calls}, not {self.expected}")
        else:
            tally.count("right")
        self.expected = calls + 1
        self.turn = (self.turn + 1) % 31
        return None


Client = Callable[[served.Server, Tally, random.Random], None]
BREAKS_OFF = (break_off, nonsense)
"""Clients whose connection the server may close on them."""


PAUSE_S = 0.02
"""The longest pause of a client between two requests: enough to leave other work on the machine its share."""


def keep_on(client: Client, server: served.Server, tally: Tally, seed: int, until: float) -> None:
    random_ = random.Random(seed)
    while time.monotonic() < until:
        time.sleep(random_.uniform(0, PAUSE_S))
        try:
            client(server, tally, random_)
        except (OSError, AssertionError, ValueError) as error:
            if client in BREAKS_OFF and isinstance(error, OSError):
                tally.count("closed by the server")
            else:
                tally.fault("lost", f"{getattr(client, '__name__', client)}: {type(error).__name__}: {error}")
                time.sleep(0.1)


def soak(seconds: float, memory_nbytes: int, log: Callable[[str], None] = lambda line: None) -> Report:
    """Runs server and clients for so long."""
    with tempfile.TemporaryDirectory() as folder, memory_group(memory_nbytes) as group:
        models = Path(folder)
        put(serving_bundles.spin(), models / "spin" / "1" / "model.pkg")
        put(sample.content(("x86-64-v3",)), models / "count" / "count.pkg")
        server = served.Server(served.build_program(), models)
        if group is None:
            log("no memory cgroup can be made here: the server runs without a limit")
        else:
            (group / "cgroup.procs").write_text(str(server.process.pid), encoding="ascii")
        clients: list[Client] = [*[honest] * 4, break_off, nonsense, nonsense, probe, Sequence(1), Sequence(2)]
        clients.append(Reloader(models / "spin" / "1" / "model.pkg"))
        tally, start_s = Tally(), time.monotonic()
        until = start_s + seconds
        threads = [threading.Thread(target=keep_on, args=(c, server, tally, i, until)) for i, c in enumerate(clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < until and server.process.poll() is None:
            time.sleep(min(10.0, max(0.1, until - time.monotonic())))
            log(
                f"{time.monotonic() - start_s:6.0f} s  "
                + ", ".join(f"{n} {k}" for k, n in sorted(tally.counts.items()))
            )
        for thread in threads:
            thread.join()
        code = server.stop() if server.process.poll() is None else server.process.returncode
    quarter = max(1, len(tally.rss_nbytes) // 4)
    return Report(
        time.monotonic() - start_s,
        dict(tally.counts),
        tally.faults,
        statistics.median(tally.rss_nbytes[quarter : 2 * quarter] or [0]),
        statistics.median(tally.rss_nbytes[-quarter:] or [0]),
        tally.slowest_live_s,
        code,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__.partition("\n\n")[2])
    parser.add_argument("--minutes", type=float, default=60, help="how long (60)")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="the limit of the cgroup (1024)")
    parser.add_argument("--json", action="store_true", help="the report as one JSON object")
    given = parser.parse_args()
    log = (lambda line: None) if given.json else (lambda line: print(line, flush=True))
    report = soak(60 * given.minutes, given.memory << 20, log)
    if given.json:
        print(json.dumps(asdict(report) | {"good": report.good}))
        return 0 if report.good else 1
    growth = report.rss_last_quarter / max(1.0, report.rss_second_quarter)
    early, late = report.rss_second_quarter / 2**20, report.rss_last_quarter / 2**20
    print(f"memory: {early:.1f} MiB early, {late:.1f} late ({growth:.2f})")
    print(f"live answered within {1000 * report.slowest_live_s:.0f} ms; the server ended with {report.exit_code}")
    for fault in report.faults:
        print(f"  {fault}")
    print("nothing wrong, nothing lost" if report.good else "NOT as promised")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
