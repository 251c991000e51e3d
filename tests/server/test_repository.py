"""Models found, loaded, replaced, unloaded, while they serve."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import sample
import torch
from served import Answer, Server, wait_for
from serving_bundles import put, spin, types
from torch import nn

import hardtack
from hardtack.codegen.ir.types import DType

X = np.array([[1, 2, 3, 0]], np.float32)
FAST = ("--poll", "30")


def factor(answer: Answer) -> float:
    assert answer.status == 200, answer.body
    return float(answer.json()["outputs"][0]["data"][0])


def index(server: Server, ready: bool = False) -> list[tuple[str, str, str]]:
    rows = server.post("/v2/repository/index", {"ready": ready} if ready else None).json()
    return [(r["name"], r["version"], r["state"]) for r in rows]


def test_layouts_and_versions(program: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    put(spin(2), folder / "a" / "2" / "m.pkg")
    put(spin(10), folder / "a" / "10" / "m.pkg")
    put(spin(3), folder / "b" / "only.pkg")
    put(spin(4), folder / "c.pkg")
    (folder / "empty").mkdir()
    (folder / ".hidden").mkdir()
    (folder / "a" / "notes").mkdir()
    with Server(program, folder) as server:
        assert index(server) == [("a", "2", "READY"), ("a", "10", "READY"), ("b", "1", "READY"), ("c", "1", "READY")]
        assert server.get("/v2/models/a").json()["versions"] == ["2", "10"]
        reply = server.infer("a", X)
        assert (factor(reply), reply.json()["model_version"]) == (10, "10")
        item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 0]}
        assert factor(server.post("/v2/models/a/versions/2/infer", {"inputs": [item]})) == 2
        assert [factor(server.infer(m, X)) for m in "bc"] == [3, 4]
    with Server(program, folder, "--versions", "1") as server:
        assert index(server) == [("a", "10", "READY"), ("b", "1", "READY"), ("c", "1", "READY")]
    with Server(program, folder / "c.pkg") as server:
        assert index(server) == [("c", "1", "READY")]


def test_a_file_is_replaced_without_a_gap(program: Path, spin_folder: Path) -> None:
    path = spin_folder / "spin" / "1" / "model.pkg"
    failed: list[Answer] = []
    seen: set[float] = set()
    stop = threading.Event()

    def ask(server: Server) -> None:
        while not stop.is_set():
            reply = server.infer("spin", X)
            seen.add(factor(reply)) if reply.status == 200 else failed.append(reply)

    with Server(program, spin_folder, *FAST) as server:
        threads = [threading.Thread(target=ask, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for value in (3.0, 4.0, 5.0):
            put(spin(value), path)
            wait_for(lambda value=value: value in seen, f"the bundle with factor {value}")  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join()
        assert failed == []
        assert len(server.told("model reloaded", 3)) == 3
        assert server.statistics("spin")["inference_count"] > 3  # the numbers go on over reloads
        assert factor(server.infer("spin", X)) == 5


def test_a_request_in_flight_ends_on_the_model_it_began_with(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, *FAST, "--sessions", "1") as server:
        replies: list[Answer] = []
        slow = X.copy()
        slow[0, 3] = 600
        threads = [threading.Thread(target=lambda: replies.append(server.infer("spin", slow))) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_for(
            lambda: server.metric("hardtack_waiting_requests", 'model="spin",version="1"') == 1, "one runs, one waits"
        )
        put(spin(7), spin_folder / "spin" / "1" / "model.pkg")
        wait_for(lambda: len(server.events("model reloaded")) == 1, "the new bundle")
        assert factor(server.infer("spin", X)) == 7
        assert replies == []
        for thread in threads:
            thread.join()
        assert [factor(r) for r in replies] == [2, 2]


@pytest.mark.parametrize("fault", ["cut", "noise", "flipped", "two", "gone"])
def test_a_bad_replacement_leaves_the_old_bundle_serving(program: Path, spin_folder: Path, fault: str) -> None:
    path = spin_folder / "spin" / "1" / "model.pkg"
    with Server(program, spin_folder, *FAST) as server:
        good = path.read_bytes()
        if fault == "cut":
            path.write_bytes(good[:-100])  # in place, as cp does it
        elif fault == "noise":
            path.write_bytes(b"this is no bundle")
        elif fault == "flipped":
            place = len(good) // 2
            path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        elif fault == "two":
            put(spin(3), path.with_name("other.pkg"))
        if fault == "gone":
            path.unlink()
            wait_for(lambda: index(server) == [], "the version to go")
            assert (server.infer("spin", X).status, server.infer("spin", X).error) == (404, 'there is no model "spin"')
        else:
            wait_for(lambda: server.metric("hardtack_model_loads_total", 'result="failed"') == 1, "the load to fail")
            assert factor(server.infer("spin", X)) == 2
            (row,) = server.post("/v2/repository/index").json()
            assert row["state"] == "READY"
            assert row["reason"] != ""
            assert server.told("reload failed, the old bundle serves on")[0]["reason"] == row["reason"]
            assert server.get("/v2/health/ready").status == 200
            path.with_name("other.pkg").unlink(missing_ok=True)
        put(spin(9), path)
        wait_for(lambda: server.infer("spin", X).status == 200 and factor(server.infer("spin", X)) == 9, "the good one")
        assert server.post("/v2/repository/index").json()[0]["reason"] == ""


def test_a_server_with_a_bad_model_is_not_ready_and_says_why(program: Path, spin_folder: Path) -> None:
    (spin_folder / "bad").mkdir()
    (spin_folder / "bad" / "m.pkg").write_bytes(b"no bundle")
    with Server(program, spin_folder, *FAST, ready=False) as server:
        wait_for(lambda: len(server.events("load failed")) == 1, "the load to fail")
        wait_for(lambda: server.infer("spin", X).status == 200, "the good model")
        health = server.get("/v2/health/ready")
        assert (health.status, health.json()["ready"]) == (503, False)
        assert health.json()["error"].startswith('model "bad" is not ready: ')
        assert server.get("/v2/health/live").status == 200
        reply = server.infer("bad", X)
        assert (reply.status, reply.error.startswith('model "bad" is not ready: ')) == (400, True)
        assert server.get("/v2/models/bad/ready").status == 400
        shutil.rmtree(spin_folder / "bad")
        wait_for(lambda: server.get("/v2/health/ready").status == 200, "the bad model to be forgotten")


def test_a_model_of_float8_is_not_loaded(program: Path, spin_folder: Path) -> None:
    put(types((DType.F8E4M3,)), spin_folder / "spin" / "1" / "model.pkg")
    why = (
        'input "x_f8e4m3fn" of entry "forward" is f8e4m3fn, for which the protocol has no name; convert it in the model'
    )
    with Server(program, spin_folder, ready=False) as server:
        wait_for(lambda: len(server.events("load failed")) == 1, "the load to fail")
        assert server.get("/v2/health/ready").json()["error"].endswith(why)


def test_a_model_that_writes_to_its_inputs_is_not_loaded(program: Path, spin_folder: Path) -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1)

    path = spin_folder / "spin" / "1" / "model.pkg"
    options = hardtack.Options(written_inputs=("x",))
    hardtack.export(
        Writes().eval(), (torch.ones(3),), path=path, targets=["cpu:x86-64-v3"], options=options, progress=False
    )
    why = (
        'input "x" of entry "forward" is written in place, and requests hold copies; have the model return the new '
        "value instead"
    )
    with Server(program, spin_folder, ready=False) as server:
        wait_for(lambda: len(server.events("load failed")) == 1, "the load to fail")
        assert server.get("/v2/health/ready").json()["error"].endswith(why)


def test_load_and_unload_by_request(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--load", "none", "--poll", "0") as server:
        assert index(server) == [("spin", "1", "UNAVAILABLE")]
        assert index(server, ready=True) == []
        refused = server.infer("spin", X)
        assert (refused.status, refused.error) == (
            400,
            'model "spin" is not ready: it is not loaded; load it with a request to the repository',
        )
        assert server.post("/v2/repository/models/spin/load", {}).status == 200
        assert factor(server.infer("spin", X)) == 2
        put(spin(6), spin_folder / "spin" / "1" / "model.pkg")
        assert factor(server.infer("spin", X)) == 2  # nobody looks at the files
        assert server.post("/v2/repository/models/spin/load").status == 200
        assert factor(server.infer("spin", X)) == 6
        (spin_folder / "spin" / "1" / "model.pkg").write_bytes(b"bad")
        bad = server.post("/v2/repository/models/spin/load")
        assert (bad.status, bad.error.startswith('model "spin", version 1, was not loaded: ')) == (400, True)
        assert factor(server.infer("spin", X)) == 6
        unloaded = server.post("/v2/repository/models/spin/unload", {"parameters": {"unload_dependents": False}})
        assert unloaded.status == 200
        assert index(server) == [("spin", "1", "UNAVAILABLE")]
        assert server.infer("spin", X).status == 400
        given = server.post("/v2/repository/models/spin/load", {"parameters": {"file:1/model.pkg": "AAAA"}})
        assert (given.status, given.error) == (
            400,
            'parameter "file:1/model.pkg" is not supported: this server loads the bundle that lies in its repository, '
            "as it is",
        )
    with Server(program, spin_folder, "--no-control", ready=False) as server:
        refused = server.post("/v2/repository/models/spin/unload")
        assert (refused.status, refused.error) == (
            400,
            "this server does not load or unload models by request (--no-control)",
        )


def test_states_belong_to_sequences(program: Path, tmp_path: Path) -> None:
    """The model counts its runs, from 5 on. Two sequences, one session: each finds its own count."""
    put(sample.content(("x86-64-v3",)), tmp_path / "count.pkg")
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}

    def counted(server: Server, **parameters: object) -> int | str:
        reply = server.post("/v2/models/count/infer", {"inputs": [x], "parameters": parameters})
        return int(reply.json()["outputs"][1]["data"][0]) if reply.status == 200 else reply.error

    with Server(program, tmp_path, "--sessions", "1", "--max-sequences", "3") as server:
        assert [counted(server) for _ in range(3)] == [5, 5, 5]  # alone: from the start
        assert counted(server, sequence_id=1, sequence_start=True) == 5
        assert counted(server, sequence_id="b", sequence_start=True) == 5
        assert [counted(server, sequence_id=i) for i in (1, 1, "b", 1, "b")] == [6, 7, 6, 8, 7]
        assert counted(server) == 5
        assert [counted(server, sequence_id=i) for i in ("b", 1)] == [8, 9]
        assert counted(server, sequence_id=1, sequence_end=True) == 10
        unknown = (
            'sequence "1" is not known to model "count": it was not started, has ended, was idle for too long, or the '
            "model was replaced; start it with sequence_start"
        )
        assert counted(server, sequence_id=1) == unknown
        assert counted(server, sequence_id="b", sequence_start=True) == 5  # starting again is starting anew
        assert [counted(server, sequence_id=i, sequence_start=True) for i in (3, 4)] == [5, 5]
        assert counted(server, sequence_id=5, sequence_start=True) == (
            'model "count" has 3 sequences open, and no more may; end some, or try again later'
        )


def test_a_folder_that_cannot_be_read_takes_nothing_away(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:  # root reads everything, but for this
        bounded = tmp_path / "bounded"
        caps = "-dac_override,-dac_read_search"
        bounded.write_text(f'#!/bin/sh\nexec setpriv --bounding-set {caps} "{program.resolve()}" "$@"\n')
        bounded.chmod(0o755)
        program = bounded
    put(spin(3), spin_folder / "other" / "1" / "m.pkg")
    with Server(program, spin_folder, *FAST) as server:

        def reasons() -> list[str]:
            return [e["reason"] for e in server.events("a model's files cannot be read; what serves goes on")]

        for number, folder in enumerate((spin_folder / "spin", spin_folder / "spin" / "1")):
            folder.chmod(0o000)
            try:
                wait_for(lambda number=number: len(reasons()) > number, "the server to see it")  # type: ignore[misc]
                why = f"{folder} cannot be read: Permission denied"
                assert reasons()[-1] == why
                put(spin(4 + number), spin_folder / "other" / "1" / "m.pkg")
                wait_for(lambda number=number: factor(server.infer("other", X)) == 4 + number, "the other's reload")  # type: ignore[misc]
                assert factor(server.infer("spin", X)) == 2
                refused = server.post("/v2/repository/models/spin/load")
                assert (refused.status, refused.error) == (400, f'model "spin" was not loaded: {why}')
            finally:
                folder.chmod(0o755)
        put(spin(7), spin_folder / "spin" / "1" / "model.pkg")
        wait_for(lambda: factor(server.infer("spin", X)) == 7, "the new bundle")
        assert len(reasons()) == 2
        assert server.events("version unloaded") == []


def test_options_for_a_model_that_is_not_there(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--max-batch", "spim=4", "--max-batch", "spin=4") as server:
        (told,) = server.told("options name a model that is not there")
        assert (told["level"], told["model"]) == ("warning", "spim")
