"""A bundle behind Ray Serve: replicas of one deployment, photographs in over HTTP, classes out as JSON.

    python app.py efficientnet-lite0.pkg --replicas 2 --port 8000
    curl --data-binary @photo.rgb http://127.0.0.1:8000/     a body is 224 x 224 pixels, a byte each of red, green, blue

Needs ray[serve] and Hardtack's wheel, no torch. Each replica is a process that loads the bundle in a millisecond.
Weights are mapped from the file, so that all replicas of a machine share one copy of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import hardtack

SHAPE = (224, 224, 3)
MAX_BATCH, MAX_WAIT_S = 8, 0.01
BEST = 5


@serve.deployment(max_ongoing_requests=4 * MAX_BATCH, ray_actor_options={"num_cpus": 0.5})
class Classifier:
    """One replica: a model, and a session that one batch at a time uses."""

    def __init__(self, path: str, threads: int) -> None:
        self._session = hardtack.load(path, threads=threads).session()

    @serve.batch(max_batch_size=MAX_BATCH, batch_wait_timeout_s=MAX_WAIT_S)
    async def classify(self, photos: list[np.ndarray[Any, Any]]) -> list[tuple[np.ndarray[Any, Any], int]]:
        """u8 [224, 224, 3] each; gives (probabilities f32 [1000], size of the batch) each."""
        rows = await asyncio.to_thread(self._session, np.stack(photos))  # other requests come in meanwhile
        return [(row.copy(), len(photos)) for row in rows]

    async def __call__(self, request: Request) -> JSONResponse:
        body = await request.body()
        wanted = int(np.prod(SHAPE))
        if len(body) != wanted:
            text = f"the body has {len(body)} bytes; a photograph of 224 x 224 pixels has {wanted}"
            return JSONResponse({"error": text}, status_code=400)
        probabilities, batch = await self.classify(np.frombuffer(body, np.uint8).reshape(SHAPE))
        best = np.argsort(-probabilities)[:BEST]
        classes = [{"class": int(i), "probability": float(probabilities[i])} for i in best]
        return JSONResponse({"classes": classes, "batch": batch, "pid": os.getpid()})


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a bundle of examples/classify with Ray Serve.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each replica")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    stop = {signal.SIGTERM, signal.SIGINT}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with tempfile.TemporaryDirectory(prefix="ray-") as scratch:
        ray.init(
            num_cpus=max(2, args.replicas),
            include_dashboard=False,
            object_store_memory=100 << 20,
            _node_ip_address="127.0.0.1",
            _temp_dir=scratch,
        )
        serve.start(http_options={"host": "127.0.0.1", "port": args.port})
        bundle = str(args.bundle.resolve())
        serve.run(Classifier.options(num_replicas=args.replicas).bind(bundle, args.threads), name="classify")  # type: ignore[attr-defined]
        signal.pthread_sigmask(signal.SIG_BLOCK, stop)
        print(f"ready: http://127.0.0.1:{args.port}/", flush=True)
        signal.sigwait(stop)
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
