"""The models and seeds of server/fuzz: what the fuzz targets begin with reaches what it is meant to reach."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Server

FUZZ = Path(__file__).resolve().parents[2] / "server" / "fuzz"
RUN = ["plain", "entry", "binary", "compressed", "shared-in", "start", "next", "end", "number", "alone"]
PAGES = ["metrics", "health", "index", "statistics", "all", "config", "ready", "model", "server", "status"]


def test_the_models_are_what_their_script_makes(tmp_path: Path) -> None:
    """After a change of the format: python server/fuzz/make_models.py server/fuzz/models"""
    runpy.run_path(str(FUZZ / "make_models.py"))["write"](tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in (FUZZ / "models").iterdir()}


@pytest.fixture(scope="module")
def fuzzed(program: Path) -> Iterator[Server]:
    shm = Path("/dev/shm/hardtack_fuzz_seeds")
    shm.write_bytes(bytes(256))
    with Server(program, FUZZ / "models", "--sessions", "1", "--no-grpc") as server:
        region = {"key": f"/{shm.name}", "byte_size": 256}
        assert server.post("/v2/systemsharedmemory/region/in/register", region).status == 200
        yield server
    shm.unlink()


@pytest.mark.parametrize("name", [*RUN, *PAGES])
def test_a_seed_is_answered_well(fuzzed: Server, name: str) -> None:
    (answer,) = fuzzed.raw((FUZZ / "corpus" / "http" / name).read_bytes())
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("guard", "n must not be 13"),
        ("shared-bad", "8 bytes were set aside for an output of 32"),
        ("json", 'has no entry point "f"'),
    ],
)
def test_a_seed_is_refused_late(fuzzed: Server, name: str, why: str) -> None:
    (answer,) = fuzzed.raw((FUZZ / "corpus" / "http" / name).read_bytes())
    assert answer.status == 400
    assert why in answer.error
