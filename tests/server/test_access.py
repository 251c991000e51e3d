"""Who may do what: tokens, their roles and rates; signed bundles; certificates that are replaced."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import sample
import serving_bundles
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from served import HANG, Answer, Server, speaks_grpc, wait_for
from serving_bundles import put

from hardtack.codegen.package.signing import Release, sign_bundle

APP, OPS, OTHER = "app-secret-0123456789", "ops-secret-0123456789", "other-secret-012345678"
TOKENS = f"""\
# name   token   roles   requests a second
app      {APP}   infer
ops      {OPS}   control,metrics   # and no inference
other    {OTHER} infer,metrics
"""
X = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 0]}]}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def replace(path: Path, text: str | bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(text.encode() if isinstance(text, str) else text)
    fresh.rename(path)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "tokens").write_text(TOKENS)
    return tmp_path / "tokens"


@pytest.fixture
def guarded(program: Path, spin_folder: Path, tokens: Path) -> Iterator[Server]:
    put(sample.content(("x86-64-v3",)), spin_folder / "count.pkg")
    with Server(program, spin_folder, "--tokens", str(tokens)) as started:
        yield started


def test_roles(guarded: Server) -> None:
    infer, load, metrics = "/v2/models/spin/infer", "/v2/repository/models/spin/load", "/metrics"
    region = "/v2/systemsharedmemory/region/r/unregister"
    wanted = {
        APP: {infer: 200, load: 403, metrics: 403, region: 200},
        OPS: {infer: 403, load: 200, metrics: 200, region: 403},
        OTHER: {infer: 200, load: 403, metrics: 200, region: 200},
        "unknown-secret-0123456": dict.fromkeys((infer, load, metrics, region), 401),
    }
    for token, statuses in wanted.items():
        for path, status in statuses.items():
            if path == metrics:
                answer = guarded.request("GET", path, b"", bearer(token))
            else:
                answer = guarded.post(path, X if path == infer else None, bearer(token))
            assert answer.status == status, (token, path, answer.body)
    refused = guarded.post(infer, X, bearer(OPS))
    assert (refused.status, refused.error) == (403, 'token "ops" has not the role infer')
    for path in ("/v2", "/v2/models/spin", "/v2/models/spin/stats", "/v2/repository/index"):
        assert guarded.request("GET", path, b"", bearer(OPS)).status == 200
        none = guarded.get(path)
        assert (none.status, none.headers["www-authenticate"]) == (401, "Bearer")
        assert none.error == "this server asks for a token: send the header Authorization: Bearer TOKEN"
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert guarded.get(path).status == 200
    wrong = guarded.request("GET", "/v2", b"", {"Authorization": "Basic " + APP})
    assert (wrong.status, wrong.error) == (401, "the token in the header Authorization is not known to this server")
    page = guarded.request("GET", "/metrics", b"", bearer(OPS)).body.decode()
    assert 'hardtack_token_requests_total{token="app"} ' in page
    assert 'hardtack_access_refused_total{reason="forbidden"} ' in page
    assert APP not in "".join(guarded.raw_log)


def test_a_refused_body_is_not_read(guarded: Server) -> None:
    head = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"
    (answer,) = guarded.raw(head)
    assert (answer.status, answer.headers["connection"]) == (401, "close")
    asked = b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"
    assert [a.status for a in guarded.raw(asked + asked)] == [401, 401]  # the connection goes on


def test_who_shows_no_token_sends_nothing_to_be_kept(guarded: Server) -> None:
    """Not even where no token is asked for."""
    head = b"POST /v2/health/live HTTP/1.1\r\nHost: a\r\n%s\r\n"
    for body in (b"Content-Length: 100000000\r\n", b"Transfer-Encoding: chunked\r\n"):
        (answer,) = guarded.raw(head % body)
        assert (answer.status, answer.headers["connection"]) == (401, "close")
    assert guarded.get("/v2/health/live").status == 200


def count(server: Server, token: str, start: bool = False) -> Answer:
    item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}
    request = {"inputs": [item], "parameters": {"sequence_id": 7, "sequence_start": start}}
    return server.post("/v2/models/count/infer", request, bearer(token))


def test_sequences_are_each_tokens_own(guarded: Server) -> None:
    def calls(answer: Answer) -> int:
        assert answer.status == 200, answer.body
        return int(answer.json()["outputs"][1]["data"][0])

    assert calls(count(guarded, APP, start=True)) == 5
    stolen = count(guarded, OTHER)
    assert (stolen.status, stolen.error[:27]) == (400, 'sequence "7" is not known t')
    assert calls(count(guarded, OTHER, start=True)) == 5
    assert [calls(count(guarded, APP)), calls(count(guarded, APP)), calls(count(guarded, OTHER))] == [6, 7, 6]


def test_no_token_takes_all_places_for_sequences(program: Path, tmp_path: Path, tokens: Path) -> None:
    folder = tmp_path / "states"
    put(sample.content(("x86-64-v3",)), folder / "count.pkg")

    def start(server: Server, token: str, number: int) -> Answer:
        item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}
        request = {"inputs": [item], "parameters": {"sequence_id": 1 + number, "sequence_start": True}}
        return server.post("/v2/models/count/infer", request, bearer(token))

    with Server(program, folder, "--tokens", str(tokens), "--max-sequences", "4") as server:
        answers = [start(server, APP, k) for k in range(3)]
        assert [a.status for a in answers] == [200, 200, 503]
        assert answers[2].error == (
            'token "app" has 2 sequences of model "count" open, and the places that are left are for others; '
            "end some, or try again later"
        )
        assert [start(server, APP, k).status for k in range(2)] == [200, 200]  # it has these
        assert [start(server, OTHER, k).status for k in range(2)] == [200, 503]


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Callable[[str, float], str]]:
    """Makes a shared memory object of four equal floats; its key."""
    made: list[Path] = []

    def make(name: str, value: float) -> str:
        path = Path("/dev/shm") / f"{tmp_path.name}_{os.getpid()}_{name}"
        path.write_bytes(np.full(4, value, np.float32).tobytes())
        made.append(path)
        return f"/{path.name}"

    yield make
    for path in made:
        path.unlink()


PLACE = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
PLACED = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": PLACE}]}
MEMORY = "/v2/systemsharedmemory"


def test_regions_are_each_tokens_own(guarded: Server, region: Callable[[str, float], str]) -> None:
    def registered(token: str) -> list[str]:
        answer = guarded.request("GET", f"{MEMORY}/status", b"", bearer(token))
        return [r["key"] for r in json.loads(answer.body)]

    keys = {APP: region("app", 3), OTHER: region("other", 5)}
    for token, key in keys.items():
        stolen = guarded.post("/v2/models/spin/infer", PLACED, bearer(token))
        assert (stolen.status, stolen.error) == (400, 'shared memory region "r" is not registered')
        made = guarded.post(f"{MEMORY}/region/r/register", {"key": key, "byte_size": 16}, bearer(token))
        assert made.status == 200, made.body
    for token, value in ((APP, 3), (OTHER, 5)):
        answer = guarded.post("/v2/models/spin/infer", PLACED, bearer(token))
        assert answer.json()["outputs"][0]["data"] == [2 * value] * 4
        assert registered(token) == [keys[token]]
    missing = guarded.request("GET", f"{MEMORY}/region/x/status", b"", bearer(APP))
    assert (missing.status, missing.error) == (404, 'shared memory region "x" is not registered')
    assert guarded.post(f"{MEMORY}/unregister", None, bearer(OTHER)).status == 200
    assert (registered(APP), registered(OTHER)) == ([keys[APP]], [])
    answer = guarded.post("/v2/models/spin/infer", PLACED, bearer(APP))
    assert answer.json()["outputs"][0]["data"] == [6] * 4


def test_no_token_takes_all_regions(guarded: Server, region: Callable[[str, float], str]) -> None:
    body = {"key": region("many", 1), "byte_size": 16}

    def register(name: int, token: str) -> Answer:
        return guarded.post(f"{MEMORY}/region/r{name}/register", body, bearer(token))

    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 5000:
        pytest.skip("a process may not open so many files here")
    last = next(a for k in range(4096) if (a := register(k, APP)).status != 200)
    assert (last.status, last.error) == (
        413,
        'token "app" has registered 2048 shared memory regions; the 2048 that are left are for others',
    )
    assert register(0, OTHER).status == 200
    assert guarded.post(f"{MEMORY}/unregister", None, bearer(APP)).status == 200
    assert register(0, APP).status == 200


def test_regions_are_each_tokens_own_over_grpc(
    program: Path, guarded: Server, region: Callable[[str, float], str]
) -> None:
    if not speaks_grpc(program):
        pytest.skip("the server is built without gRPC")
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    with triton.InferenceServerClient(f"127.0.0.1:{guarded.grpc_port}") as client:

        def said(token: str) -> dict[str, str]:
            return {"authorization": f"Bearer {token}"}

        keys = {APP: region("app", 3), OTHER: region("other", 5)}
        for token, key in keys.items():
            client.register_system_shared_memory("r", key, 16, headers=said(token))
        client.unregister_system_shared_memory(headers=said(OTHER))
        assert not client.get_system_shared_memory_status(headers=said(OTHER)).regions
        assert [*client.get_system_shared_memory_status(headers=said(APP)).regions] == ["r"]
        placed = triton.InferInput("x", [1, 4], "FP32")
        placed.set_shared_memory("r", 16)
        got = client.infer("spin", [placed], headers=said(APP)).as_numpy("y")
        np.testing.assert_array_equal(got, np.full((1, 4), 6, np.float32))
        with pytest.raises(InferenceServerException, match='region "r" is not registered'):
            client.infer("spin", [placed], headers=said(OTHER))


def test_the_file_is_read_again(guarded: Server, tokens: Path) -> None:
    fresh = "fresh-secret-0123456789"
    assert guarded.post("/v2/models/spin/infer", X, bearer(fresh)).status == 401
    replace(tokens, TOKENS.replace(APP, fresh))
    wait_for(lambda: guarded.post("/v2/models/spin/infer", X, bearer(fresh)).status == 200, "the new token")
    assert guarded.post("/v2/models/spin/infer", X, bearer(APP)).status == 401
    replace(tokens, "app short infer\n")
    (told,) = guarded.told("the file of tokens was not taken; those known before go on")
    assert told["reason"] == f"{tokens}, line 1: a token has from 16 to 512 characters"
    assert guarded.post("/v2/models/spin/infer", X, bearer(fresh)).status == 200


def test_a_rate(program: Path, spin_folder: Path, tokens: Path) -> None:
    tokens.write_text(f"app {APP} infer 4\nother {OTHER} infer,metrics\n")
    with Server(program, spin_folder, "--tokens", str(tokens)) as server:
        answers = [server.post("/v2/models/spin/infer", X, bearer(APP)) for _ in range(40)]
        refused = [a for a in answers if a.status != 200]
        assert {a.status for a in refused} == {429}
        assert refused[0].error == 'token "app" may send 4 requests a second; try again later'
        assert refused[0].headers["retry-after"] == "1"
        assert server.post("/v2/models/spin/infer", X, bearer(OTHER)).status == 200
        time.sleep(0.6)
        assert server.post("/v2/models/spin/infer", X, bearer(APP)).status == 200


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("app", "expected a name, a token, and roles separated by commas"),
        ("a/b 0123456789abcdef infer", "a name has at most 64 letters, digits, '.', '_' and '-'"),
        ("app 0123456789abcde infer", "a token has from 16 to 512 characters"),
        ("app 0123456789abcdef infer,admin", "the roles are infer, control and metrics, separated by commas"),
        ("app 0123456789abcdef infer 0", "the requests a second must be a number above 0"),
        ("app 0123456789abcdef infer 5x", "the requests a second must be a number above 0"),
        ("app 0123456789abcdef infer 5 6", "there is more behind the requests a second"),
        ("app 0123456789abcdef infer\napp 1123456789abcdef infer", 'the name "app" is there twice'),
        ("app 0123456789abcdef infer\nops 0123456789abcdef infer", 'the token of "ops" is there twice'),
    ],
)
def test_lines_that_are_no_tokens(program: Path, spin_folder: Path, tokens: Path, line: str, why: str) -> None:
    tokens.write_text(line + "\n")
    command = [program, spin_folder, "--http-port", "0", "--tokens", tokens]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    number = 2 if "\n" in line else 1
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"hardtack-server: {tokens}, line {number}: {why}",
    )


def test_grpc(guarded: Server, program: Path) -> None:
    if not speaks_grpc(program):
        pytest.skip("the server is built without gRPC")
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    client = triton.InferenceServerClient(f"127.0.0.1:{guarded.grpc_port}")
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 2, 3, 0]], np.float32))
    app, ops = ({"authorization": f"Bearer {token}"} for token in (APP, OPS))
    assert client.is_server_live()
    assert np.array_equal(client.infer("spin", [tensor], headers=app).as_numpy("y"), [[2, 4, 6, 0]])
    client.load_model("spin", headers=ops)
    for call, status in (
        (lambda: client.infer("spin", [tensor]), "UNAUTHENTICATED"),
        (lambda: client.infer("spin", [tensor], headers=ops), "PERMISSION_DENIED"),
        (lambda: client.load_model("spin", headers=app), "PERMISSION_DENIED"),
        (lambda: client.get_model_metadata("spin"), "UNAUTHENTICATED"),
    ):
        with pytest.raises(InferenceServerException) as refused:
            call()
        assert status in refused.value.status()
    answers: list[object] = []
    client.start_stream(lambda result, error: answers.append(error or result), headers=ops)
    with suppress(InferenceServerException):  # it may have been told already
        client.async_stream_infer("spin", [tensor])
    wait_for(lambda: bool(answers), "the stream to end")
    assert "has not the role infer" in str(answers[0])
    client.stop_stream()
    client.close()


# --- turns ---


def test_a_token_is_one_client_on_however_many_connections(program: Path, spin_folder: Path, tokens: Path) -> None:
    """Large bodies are read by few threads. Who comes behind twelve of another token's waits for those that are being
    read, and not for all."""
    large = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [' + b"0," * (4 << 20) + b"0]}]}"
    small = large[: large.index(b"0,")] + b"0," * (64 << 10) + b"0]}]}"
    with Server(program, spin_folder, "--tokens", str(tokens), "--no-grpc") as server:
        heads = {
            token: f"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
            for token in (APP, OTHER)
        }

        def open_with(token: str, body: bytes, keep: int) -> socket.socket:
            connection = server.socket()
            connection.sendall(heads[token].encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-keep])
            return connection

        many = [open_with(APP, large, 1) for _ in range(12)]
        for connection in many:
            connection.sendall(large[-1:])
        time.sleep(0.1)  # they wait to be read
        one = open_with(OTHER, small, 1)
        one.sendall(small[-1:])
        assert one.recv(12) == b"HTTP/1.1 400"
        unread = [connection for connection in many if not select.select([connection], [], [], 0)[0]]
        assert len(unread) > 4
        for connection in many:
            assert connection.recv(12) == b"HTTP/1.1 400"
            connection.close()
        one.close()


# --- signed bundles ---


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Ed25519PrivateKey, Path]:
    key = Ed25519PrivateKey.generate()
    (tmp_path / "keys").write_text(key.public_key().public_bytes_raw().hex() + "\n")
    return key, tmp_path / "keys"


def test_only_signed_bundles_serve(program: Path, tmp_path: Path, keys: tuple[Ed25519PrivateKey, Path]) -> None:
    key, file = keys
    models = tmp_path / "models"
    for name in ("good", "unsigned", "stranger", "renamed"):
        put(serving_bundles.spin(), models / f"{name}.pkg")
    sign_bundle(models / "good.pkg", key, release=Release("good", 3))
    sign_bundle(models / "stranger.pkg", Ed25519PrivateKey.generate(), release=Release("stranger", 1))
    sign_bundle(models / "renamed.pkg", key, release=Release("good", 3))
    arguments = ("--trusted-keys", str(file), "--poll", "50", "--max-queue", "good=8")
    with Server(program, models, *arguments, ready=False) as server:
        server.told("load failed", 3)
        server.told("model loaded")
        assert server.post("/v2/models/good/infer", X).status == 200
        for name in ("unsigned", "stranger", "renamed"):
            assert server.post(f"/v2/models/{name}/infer", X).status == 400
            assert server.post(f"/v2/repository/models/{name}/load").status == 400
        file.write_text(file.read_text() + "good 4\n")
        os.utime(models / "good.pkg")
        wait_for(lambda: bool(server.events("reload failed, the old bundle serves on")), "the older version's refusal")
        sign_bundle(models / "good.pkg", key, models / ".good.new", release=Release("good", 4))
        (models / ".good.new").rename(models / "good.pkg")
        wait_for(lambda: bool(server.events("model reloaded")), "the newer version")


def test_trusted_keys_that_cannot_be_used(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("abc\n")
    command = [program, spin_folder, "--http-port", "0", "--trusted-keys", tmp_path / "keys"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, "line 1" in done.stderr) == (1, True), done.stderr
    both = subprocess.run([*command, "--no-verify"], capture_output=True, text=True, timeout=HANG, check=False)
    assert (both.returncode, "--no-verify excludes --trusted-keys" in both.stderr) == (2, True), both.stderr


# --- certificates ---


def certify(folder: Path, name: str) -> None:
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-days", "2", *subject, *files], check=True, capture_output=True)


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=HANG)


def test_certificates_are_read_again(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    for name in ("used", "first", "second"):
        certify(tmp_path, name)
    used = [tmp_path / "used.pem", tmp_path / "used.key"]

    def use(name: str) -> str:
        for file in used:
            replace(file, (tmp_path / f"{name}{file.suffix}").read_bytes())
        return (tmp_path / f"{name}.pem").read_text()

    use("first")
    arguments = ("--tls-certificate", str(used[0]), "--tls-key", str(used[1]))
    with Server(program, spin_folder, *arguments, ready=False) as server:
        ports = [server.port, *([server.grpc_port] if server.grpc_port else [])]
        first = (tmp_path / "first.pem").read_text()
        assert all(shown(port) == first for port in ports)
        second = use("second")
        wait_for(lambda: all(shown(port) == second for port in ports), "the new certificate")
        replace(used[0], "no certificate")
        server.told("the files of TLS were not taken; those before go on")
        assert shown(server.port) == second
