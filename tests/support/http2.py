"""HTTP/2 by hand, for calls of gRPC that no client library would make. One call on a connection of its own."""

from __future__ import annotations

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: bytes) -> bytes:
    """A header field without index and without compression; names and values of at most 126 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value


def call_headers(method: str, **more: bytes) -> bytes:
    """What a call of gRPC begins with; `_` in names of `more` stands for `-`."""
    fields = {":method": b"POST", ":scheme": b"http", ":path": method.encode(), ":authority": b"a", "te": b"trailers"}
    fields |= {"content-type": b"application/grpc", **{k.replace("_", "-"): v for k, v in more.items()}}
    return b"".join(literal(name, value) for name, value in fields.items())


def message(payload: bytes, flag: int = 0, nbytes: int | None = None) -> bytes:
    """A message as gRPC frames it; `nbytes` is what the prefix says instead of the truth."""
    return struct.pack(">BI", flag, len(payload) if nbytes is None else nbytes) + payload


def ask(port: int, headers: bytes, body: bytes, more: bytes = b"", seconds: float = 120) -> tuple[int | None, str]:
    """Makes a call and gives its status and sentence; None when the server ended the connection or the stream instead.

    `more` is sent before the call: frames, or bytes that are none. Raises TimeoutError when nothing comes
    for so many seconds.
    """
    sent = PREFACE + frame(SETTINGS, 0, 0, b"") + more + frame(HEADERS, END_HEADERS, 1, headers)
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            connection.sendall(sent + frame(DATA, END_STREAM, 1, body))
            return _status(connection)
        except (ConnectionResetError, BrokenPipeError):
            return None, ""


def _status(connection: socket.socket) -> tuple[int | None, str]:
    found = b""
    while True:
        head = _exactly(connection, 9)
        if head is None:
            return None, ""
        kind, flags, nbytes = head[3], head[4], int.from_bytes(head[:3], "big")
        payload = _exactly(connection, nbytes)
        if payload is None or kind in (GOAWAY, RST_STREAM):
            return None, ""
        if kind == SETTINGS and not flags & ACK:
            connection.sendall(frame(SETTINGS, ACK, 0, b""))
        if kind == HEADERS:
            found += payload
            if flags & END_STREAM:
                return int(_field(found, b"grpc-status") or -1), _field(found, b"grpc-message").decode()


def _exactly(connection: socket.socket, nbytes: int) -> bytes | None:
    data = b""
    while len(data) < nbytes:
        part = connection.recv(nbytes - len(data))
        if not part:
            return None
        data += part
    return data


def _field(block: bytes, name: bytes) -> bytes:
    """A field that came as a literal, as the first of its name on a connection does; servers of gRPC compress none."""
    at = block.find(name)
    if at < 0:
        return b""
    at += len(name)
    nbytes = block[at]
    if nbytes == 127:  # more bytes of the length follow, the least significant first
        shift, at = 0, at + 1
        while block[at] & 128:
            nbytes, shift, at = nbytes + ((block[at] & 127) << shift), shift + 7, at + 1
        nbytes += block[at] << shift
    return block[at + 1 : at + 1 + nbytes]
