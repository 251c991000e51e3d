"""ModelStreamInfer: one reply to each request, in order, whatever happens to the single one."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from grpc_calls import Calls, raw, request
from served import HANG, Server, wait_for

X = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)


class Sent:
    """The sending side of a stream: an iterator that waits for what is put."""

    def __init__(self) -> None:
        self.messages: queue.Queue[Any] = queue.Queue()

    def put(self, message: Any) -> None:
        self.messages.put(message)

    def end(self) -> None:
        self.messages.put(None)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        message = self.messages.get()
        if message is None:
            raise StopIteration
        return message


@pytest.fixture
def calls(server: Server) -> Iterator[Calls]:
    with Calls(server) as opened:
        yield opened


def rows(i: int, busy: float = 0) -> Any:
    return np.array([[i, 0, 0, busy]], np.float32)


def test_replies_come_in_the_order_of_requests(calls: Calls) -> None:
    """300 at once: more than are read ahead; every tenth takes longer than those after it."""
    asked = [request(x=rows(i, 3 if i % 10 == 0 else 0), id=f"job {i}") for i in range(300)]
    replies = list(calls.stream()(iter(asked), timeout=HANG))
    assert [r.error_message for r in replies] == [""] * 300
    assert [r.infer_response.id for r in replies] == [f"job {i}" for i in range(300)]
    assert [raw(r.infer_response)[0, 0] for r in replies] == [2.0 * i for i in range(300)]
    assert replies[0].infer_response.parameters["triton_final_response"].bool_param


def test_a_failed_request_does_not_end_the_stream(calls: Calls) -> None:
    asked = [
        request(x=X, id="a"),
        request("nobody", X, id="b"),
        b"\xff\xff",
        request(x=np.zeros((65, 4), np.float32), id="c"),
        request(x=np.array([[-1, 0, 0, 0]], np.float32), id="d"),
        request(x=X, id="e"),
    ]
    replies = list(calls.stream()(iter(asked), timeout=HANG))
    assert [r.infer_response.id for r in replies] == ["a", "b", "", "c", "d", "e"]
    sentences = [r.error_message for r in replies]
    assert sentences[:3] == [
        "",
        'there is no model "nobody"',
        "the request's bytes are no message inference.ModelInferRequest",
    ]
    assert sentences[3] == 'input "x" of model "spin" (version 1) has shape [65,4], expected [n from 0 to 64,4]'
    assert "k_spin" in sentences[4]
    np.testing.assert_array_equal(raw(replies[5].infer_response), X * 2)


def test_a_conversation(calls: Calls) -> None:
    sent = Sent()
    replies = calls.stream()(sent, timeout=HANG)
    for i in range(5):
        sent.put(request(x=rows(i)))
        assert raw(next(replies).infer_response)[0, 0] == 2 * i
    sent.end()
    assert list(replies) == []


def test_tritonclient_streams_a_sequence(server: Server) -> None:
    results: queue.Queue[Any] = queue.Queue()
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: results.put((result, error)))
        x = triton.InferInput("x", [1, 4], "FP32")
        x.set_data_from_numpy(rows(0))
        for i in range(10):
            client.async_stream_infer("count", [x], sequence_id=99, sequence_start=i == 0, sequence_end=i == 9)
        got = [results.get(timeout=HANG) for _ in range(10)]
        client.async_stream_infer("count", [x], sequence_id=99)
        _, error = results.get(timeout=HANG)
        client.stop_stream()
    assert [e for _, e in got] == [None] * 10
    counts = [int(r.as_numpy("calls")) for r, _ in got]
    assert counts == list(range(counts[0], counts[0] + 10))
    assert 'sequence "99" is not known to model "count"' in str(error)


def test_requests_of_one_stream_become_one_run(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--sessions", "1", "--max-batch", "16") as server, Calls(server) as calls:
        replies = list(
            calls.stream()(iter([request(x=rows(i, 100 if i == 0 else 0)) for i in range(17)]), timeout=HANG)
        )
        assert [raw(r.infer_response)[0, 0] for r in replies] == [2.0 * i for i in range(17)]
        assert server.statistics("spin")["execution_count"] < 17


def test_a_cancelled_stream_leaves_nothing_behind(program: Path, spin_folder: Path) -> None:
    label = 'model="spin",version="1"'
    with Server(program, spin_folder, "--sessions", "1") as server, Calls(server) as calls:
        sent = Sent()
        stream = calls.stream()(sent, timeout=HANG)
        for i in range(5):
            sent.put(request(x=rows(i, 800 if i == 0 else 0)))
        wait_for(lambda: server.metric("hardtack_waiting_requests", label) == 4, "requests that wait")
        stream.cancel()
        wait_for(lambda: server.metric("hardtack_waiting_requests", label) == 0, "the queue to be empty")
        wait_for(lambda: server.metric("hardtack_running_requests", label) == 1, "the four to be answered")
        wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="stream"') == 0, "the stream to end")
        assert server.statistics("spin")["execution_count"] == 1
        sent.end()


def test_sigterm_ends_streams_after_their_answers(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--sessions", "1") as server, Calls(server) as calls:
        sent, idle = Sent(), Sent()
        busy = calls.stream()(sent, timeout=HANG)
        silent = calls.stream()(idle, timeout=HANG)
        for i in range(3):
            sent.put(request(x=rows(i, 300)))
        wait_for(
            lambda: server.metric("hardtack_waiting_requests", 'model="spin",version="1"') == 2, "requests that wait"
        )
        wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="stream"') == 2, "both streams")
        assert server.stop() == 0
        assert [raw(next(busy).infer_response)[0, 0] for _ in range(3)] == [0, 2, 4]
        with pytest.raises(grpc.RpcError) as ended:
            next(busy)
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError) as ended:
            next(silent)
        assert (ended.value.code(), ended.value.details()) == (
            grpc.StatusCode.UNAVAILABLE,
            "the server is shutting down",
        )
        sent.end()
        idle.end()
