"""Models with states: each sequence of requests has states of its own.

Every test ends its sequences: a server that goes waits for those that are open.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from triton_server import Array, TritonServer, infer, infer_grpc
from tritonclient.utils import InferenceServerException, shared_memory

DIRECT = """
    max_batch_size: 0
    sequence_batching { direct { } max_sequence_idle_microseconds: 60000000 }
    instance_group { count: 3 kind: KIND_CPU }"""
CONTROLS = """
    sequence_batching {
      oldest { max_candidate_sequences: 4 }
      max_sequence_idle_microseconds: 60000000
      control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
      control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
      control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
    }"""


def step(
    ask: Any,
    server: TritonServer,
    model: str,
    sequence: int | str,
    value: float,
    flags: str = "",
    at: int = 0,
    **more: Any,
) -> Array:
    """One request of a sequence; `flags` has s where it starts and e where it ends."""
    inputs = {"x": np.full(3, value, np.float32), "index": np.array([at])}
    more |= {"sequence_id": sequence, "sequence_start": "s" in flags, "sequence_end": "e" in flags}
    out: Array = ask(server, model, inputs, **more)["output_0"]
    return out


@pytest.mark.parametrize("config", ["", DIRECT, CONTROLS], ids=["completed", "direct", "controls"])
@pytest.mark.parametrize("ask", [infer, infer_grpc], ids=["http", "grpc"])
def test_interleaved_sequences(server: TritonServer, bundles: dict[str, Path], config: str, ask: Any) -> None:
    name = f"sequences_{len(config)}_{ask.__name__}"
    server.add(name, bundles["counter"], config)
    for turn in range(2):  # ids may be used again
        for i, flags in enumerate(("s", "", "", "e")):
            for sequence in (7, 8, "7"):
                value = 10 if sequence == 7 else 1 if sequence == 8 else 0.5
                out = step(ask, server, name, sequence, value, flags)
                np.testing.assert_array_equal(out, np.full(3, 100 + value * (i + 1)), f"turn {turn} of {sequence}")
    counted = server.metrics(name)
    assert (counted["request_success"], counted["count"], counted["exec_count"]) == (24, 24, 24)


def test_slots_of_the_direct_strategy(server: TritonServer, bundles: dict[str, Path]) -> None:
    """Triton fills the slots in front of a busy one with requests that nobody sent."""
    direct = "sequence_batching { direct { } max_sequence_idle_microseconds: 10000000 }"
    server.add("slots", bundles["tally"], f"max_batch_size: 4 {direct}")
    lengths = {21: 1, 22: 6, 23: 3, 24: 6, 25: 2, 26: 5}

    def whole(sequence: int) -> None:
        total, length = np.zeros(3, np.float32), lengths[sequence]
        for i in range(length):
            x = np.full((1, 3), sequence + i, np.float32)
            total += x[0]
            more = {"sequence_id": sequence, "sequence_start": i == 0, "sequence_end": i == length - 1}
            np.testing.assert_array_equal(infer_grpc(server, "slots", {"x": x}, **more)["output"], x + total)

    with ThreadPoolExecutor(len(lengths)) as pool:
        list(pool.map(whole, lengths))
    counted = server.metrics("slots")
    assert (counted["request_success"], counted["count"]) == (23, 23)


def test_completed_configuration(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("completed", bundles["counter"], "")
    config = server.http.get_model_config("completed")
    assert config["max_batch_size"] == 0
    assert config["sequence_batching"]["oldest"]["max_candidate_sequences"] == 32
    assert config["sequence_batching"]["max_sequence_idle_microseconds"] == 10_000_000


def test_many_sequences_at_once(server: TritonServer, bundles: dict[str, Path]) -> None:
    """More than there is room for: the others wait until one ends."""
    small = "sequence_batching { oldest { max_candidate_sequences: 2 } max_sequence_idle_microseconds: 60000000 }"
    server.add("crowd", bundles["counter"], f"{small} instance_group {{ count: 2 kind: KIND_CPU }}")

    def whole(sequence: int) -> list[float]:
        outs = []
        for i in range(5):
            flags = "s" if i == 0 else "e" if i == 4 else ""
            outs.append(float(step(infer_grpc, server, "crowd", sequence, sequence, flags)[0]))
        return outs

    with ThreadPoolExecutor(10) as pool:
        results = list(pool.map(whole, range(1, 11)))
    assert results == [[100.0 + n * (i + 1) for i in range(5)] for n in range(1, 11)]


def test_a_sequence_must_start(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("unstarted", bundles["counter"], "")
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(infer, server, "unstarted", 5, 1)
    with pytest.raises(InferenceServerException, match="correlation ID"):
        step(infer, server, "unstarted", 0, 1, "s")


def test_silent_sequences_make_room(server: TritonServer, bundles: dict[str, Path]) -> None:
    """One slot; Triton gives up a sequence that is silent for 0.1 s, and the next one starts from the first values."""
    short = "sequence_batching { oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 100000 }"
    server.add("silent", bundles["counter"], short)
    assert step(infer, server, "silent", 1, 5, "s")[0] == 105
    assert step(infer, server, "silent", 2, 7, "s")[0] == 107
    time.sleep(0.5)
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(infer, server, "silent", 1, 5)


def test_a_failed_sequence_must_start_again(server: TritonServer, bundles: dict[str, Path]) -> None:
    """A run that fails in a kernel may have changed half of the states: the sequence does not go on with them."""
    server.add("failing", bundles["counter"], "")
    assert step(infer, server, "failing", 3, 1, "s")[0] == 101
    assert step(infer, server, "failing", 4, 2, "s")[0] == 102
    with pytest.raises(InferenceServerException, match="index"):
        step(infer, server, "failing", 3, 1, at=9)
    with pytest.raises(
        InferenceServerException, match="sequence 3 is not running here: it ended, failed or was silent"
    ):
        step(infer, server, "failing", 3, 1)
    assert step(infer, server, "failing", 4, 2, "e")[0] == 104
    assert step(infer, server, "failing", 3, 1, "se")[0] == 101


def test_a_sequence_whose_answer_is_lost_must_start_again(server: TritonServer, bundles: dict[str, Path]) -> None:
    """The states moved on, but the client got an error: it cannot know."""
    server.add("lost", bundles["counter"], "")
    key = f"/hardtack_{os.getpid()}_lost"
    region = shared_memory.create_shared_memory_region("lost", key, 12)
    try:
        server.http.register_system_shared_memory("lost", key, 12)
        small = triton_http.InferRequestedOutput("output_0")
        small.set_shared_memory("lost", 4)
        assert step(infer, server, "lost", 5, 1, "s")[0] == 101
        with pytest.raises(InferenceServerException, match="should be at least 12 bytes to hold the results"):
            step(infer, server, "lost", 5, 1, outputs=[small])
        with pytest.raises(InferenceServerException, match="sequence 5 is not running here: it ended, failed"):
            step(infer, server, "lost", 5, 1)
        assert step(infer, server, "lost", 5, 1, "se")[0] == 101
    finally:
        server.http.unregister_system_shared_memory("lost")
        shared_memory.destroy_shared_memory_region(region)


def test_a_reload_ends_open_sequences(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("reloaded", bundles["counter"], "")
    assert step(infer, server, "reloaded", 1, 1, "s")[0] == 101
    server.add("reloaded", bundles["counter"])
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        step(infer, server, "reloaded", 1, 1)
    assert step(infer, server, "reloaded", 1, 1, "se")[0] == 101


def test_a_malformed_request_leaves_its_sequence_alone(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("malformed", bundles["counter"], "")
    assert step(infer, server, "malformed", 1, 1, "s")[0] == 101
    with pytest.raises(InferenceServerException, match="unexpected shape"):
        infer(server, "malformed", {"x": np.zeros(4, np.float32), "index": np.array([0])}, sequence_id=1)
    assert step(infer, server, "malformed", 1, 1, "e")[0] == 102
