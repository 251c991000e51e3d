"""The soak of bench/serving.py: saturation while the bundle is replaced, answers and the server's counts checked."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.serving_cases import Case
from bench.serving_systems import Endpoint, Load
from tests.support.served import Server

CLIENTS = 64
REPLACE_EVERY_S = 5
SETTLED_S = 2
"""After a bundle was replaced: before, its predecessor may still be in memory beside it."""


def soak(server: Server, load: Load, bundle: Path, place: Path, cases: Sequence[Case], seconds: float) -> None:
    """The server must serve `place` as the model mlp. Stops the program where its counts are not the clients'."""
    resident: list[tuple[float, float]] = []  # seconds since the start, MB
    stop = threading.Event()
    start = time.monotonic()

    def disturb() -> None:
        while not stop.wait(REPLACE_EVERY_S - SETTLED_S):
            fresh = place.with_suffix(".new")
            shutil.copy(bundle, fresh)
            fresh.rename(place)
            stop.wait(SETTLED_S)
            resident.append((time.monotonic() - start, server.metric("process_resident_memory_bytes") / 1e6))

    thread = threading.Thread(target=disturb)
    thread.start()
    found = load.run(Endpoint("http", server.port, "mlp"), cases, CLIENTS, seconds)
    stop.set()
    thread.join()
    statistics = server.statistics("mlp")["inference_stats"]
    failed, counted = statistics["fail"]["count"], statistics["success"]["count"]
    print(
        f"{found.answers} answers in {seconds:.0f} s, {found.per_second:.0f} a second, none wrong; {failed} failed, "
        f"{counted - found.answers} doubled or lost; {len(server.events('model reloaded'))} reloads; "
        f"p50 {found.p50_us:.0f} us, p99 {found.p99_us:.0f} us"
    )
    window = min(60.0, seconds / 5)
    early = [megabytes for at, megabytes in resident if window <= at < 2 * window]
    late = [megabytes for at, megabytes in resident if at >= seconds - window]
    if early and late:
        first, last = median(early), median(late)
        print(
            f"resident memory, medians of {window:.0f} s: {first:.1f} MB after the first, {last:.1f} MB at the end "
            f"({last / first - 1:+.1%})"
        )
    if failed or counted != found.answers:
        sys.exit(1)
