"""The container: canonical form, alignment, ZIP64, and Python's zipfile as a second reader."""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardtack.codegen.package import container
from hardtack.codegen.package.container import Member, read_archive, write_archive
from hardtack.codegen.package.errors import LoadError

NAMES = ("plans/a.json", "plans/b.json", "lib/x.so", "kernels/k.cubin", "debug/n.txt", "a.safetensors", "w.safetensors")


def archive(*members: tuple[str, bytes]) -> bytes:
    """An archive with an empty manifest before `members`."""
    file = io.BytesIO()
    found = [Member("manifest.json", [b"{}"]), *(Member(name, [data]) for name, data in members)]
    size = write_archive(file, sorted(found, key=lambda m: container.sort_key(m.name)))
    assert size == len(file.getvalue())
    return file.getvalue()


def refusal(data: bytes) -> str:
    with pytest.raises(LoadError) as caught:
        read_archive(memoryview(data))
    return str(caught.value)


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=300), max_size=6))
def test_round_trip_by_both_readers(members: dict[str, bytes]) -> None:
    data = archive(*members.items())
    entries = {e.name: e for e in read_archive(memoryview(data))}
    assert {n: data[e.offset : e.offset + e.nbytes] for n, e in entries.items()} == {"manifest.json": b"{}", **members}
    with zipfile.ZipFile(io.BytesIO(data)) as second:
        assert second.testzip() is None
        assert {i.filename: second.read(i) for i in second.infolist()} == {"manifest.json": b"{}", **members}
        assert {i.date_time for i in second.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=300), max_size=6))
def test_data_is_aligned(members: dict[str, bytes]) -> None:
    for e in read_archive(memoryview(archive(*members.items()))):
        assert e.offset % (65536 if e.name.endswith(".safetensors") else 64) == 0


@given(st.binary(min_size=1, max_size=40), st.data())
def test_no_byte_can_change_but_those_of_members(payload: bytes, draw: st.DataObject) -> None:
    data = bytearray(archive(("lib/x.so", payload)))
    inside = {i for e in read_archive(memoryview(data)) for i in range(e.offset, e.offset + e.nbytes)}
    at = draw.draw(st.sampled_from([i for i in range(len(data)) if i not in inside]))
    data[at] ^= draw.draw(st.integers(1, 255))
    refusal(bytes(data))


@given(st.integers(0, 400))
def test_truncation_is_refused(kept: int) -> None:
    data = archive(("lib/x.so", b"code"))
    refusal(data[: min(kept, len(data) - 1)])


def test_padding_that_no_extra_field_can_hold_is_halved() -> None:
    # the weights' header ends 1 to 4 bytes after a multiple of 65536: an extra field has 16 bits for its length
    first = len(archive(("debug/n.txt", b""))) - len(archive())
    assert first > 0
    for filler in range(65536 - 400, 65536):
        entries = container.lay_out([Member("manifest.json", [bytes(filler)]), Member("w.safetensors", [b""])])
        header = container.local_header("w.safetensors", 0, 0, entries[1].header_offset)
        (extra_nbytes,) = struct.unpack_from("<H", header, 28)
        assert len(header) == 30 + len("w.safetensors") + extra_nbytes
        if entries[1].offset % 65536:
            assert entries[1].offset % 32768 == 0
            return
    pytest.fail("no filler gave a header that cannot be padded")


@pytest.mark.parametrize("nbytes", [0xFFFFFFFE, 0xFFFFFFFF, 2**32 + 5])
def test_zip64_on_a_sparse_file(nbytes: int, tmp_path: Path) -> None:
    sizes = {"manifest.json": 2, "debug/big": nbytes, "w.safetensors": 4}
    path = tmp_path / "big.pkg"
    directory = b""
    end = 0
    with open(path, "wb") as file:
        for name, size in sizes.items():
            header = container.local_header(name, size, 0, end)
            file.seek(end)
            file.write(header)
            directory += container.central_header(container.Entry(name, size, 0, end, end + len(header)))
            end += len(header) + size
        file.seek(end)
        file.write(directory + container.end_records(len(sizes), len(directory), end))
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        found = [(e.name, e.nbytes, e.header_offset) for e in read_archive(view)]
        view.release()
    assert [(name, size) for name, size, _ in found] == list(sizes.items())
    with zipfile.ZipFile(path) as second:
        assert [(i.filename, i.file_size, i.header_offset) for i in second.infolist()] == found
        assert [i.extract_version for i in second.infolist()] == [20, 45 if nbytes >= 0xFFFFFFFF else 20, 45]


def test_many_members_need_zip64_end_records() -> None:
    data = archive(*((f"debug/{i:05}", b"") for i in range(65535)))
    assert len(read_archive(memoryview(data))) == 65536
    with zipfile.ZipFile(io.BytesIO(data)) as second:
        assert len(second.infolist()) == 65536


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must be 1 to 255 of the characters A-Z a-z 0-9 . _ - / :"),
        ("debug/" + "x" * 250, "must be 1 to 255 of the characters A-Z a-z 0-9 . _ - / :"),
        ("debug/a b", "must be 1 to 255 of the characters A-Z a-z 0-9 . _ - / :"),
        ("debug/../x", "has an empty, '.' or '..' component"),
        ("/debug/x", "has an empty, '.' or '..' component"),
        ("debug//x", "has an empty, '.' or '..' component"),
        ("readme.txt", "is not manifest.json, *.safetensors or under plans/, lib/, kernels/ or debug/"),
    ],
)
def test_names_that_no_member_may_have(name: str, problem: str) -> None:
    assert container.name_problem(name) == problem
    with pytest.raises(ValueError, match="member name"):
        write_archive(io.BytesIO(), [Member("manifest.json", [b"{}"]), Member(name, [b""])])


def test_writer_refuses_disorder() -> None:
    with pytest.raises(ValueError, match="members are not in archive order, or one stands twice"):
        write_archive(io.BytesIO(), [Member("manifest.json", [b""]), Member("lib/x", [b""]), Member("lib/x", [b""])])


def test_not_an_archive() -> None:
    assert refusal(b"") == "container: the file has 0 bytes; a bundle has at least 22"
    assert refusal(bytes(100)) == "container: no end record in the last 22 bytes: not a bundle, or cut short"
    assert refusal(archive()[:-1]) == "container: no end record in the last 22 bytes: not a bundle, or cut short"
    ordinary = io.BytesIO()
    with zipfile.ZipFile(ordinary, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("manifest.json", "{}")
    assert refusal(ordinary.getvalue()) == "manifest.json: its directory record is not in canonical form"
    file = io.BytesIO()
    write_archive(file, [Member("lib/x.so", [b""])])
    assert refusal(file.getvalue()) == "container: the first member must be manifest.json"
