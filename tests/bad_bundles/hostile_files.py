"""Files that would cost a reader much: some grow with n, some are sparse and only say that they are large."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import corpus
import corpus_cuda
import corpus_hip
from corpus import LIBRARY, PLAN, Document, pack
from cubin import cubin
from hsaco import hsaco

from hardtack.codegen.package import canonical, container
from hardtack.codegen.package.container import Entry, Member, central_header, end_records, lay_out, local_header

LONG = "n" * 200
"""Names that differ behind a long beginning."""


def _spec(name: str, data: bytes) -> Document:
    return {"name": name, "nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _edited(edit: Callable[[Document], object]) -> bytes:
    files = corpus.good_files()
    document = json.loads(files["manifest.json"])
    edit(document)
    return pack({**files, "manifest.json": canonical.dumps(document)})


def targets(n: int) -> bytes:
    """n targets, and n plans of each entry, all in one member."""

    def edit(m: Document) -> None:
        names = [f"cuda:{i:07}" for i in range(n)]
        m["targets"] = [{"name": x, "device": "cuda", "requires": ["sm_90"], "library": None} for x in names]
        for e in m["entries"]:
            e["plans"] = dict.fromkeys(names, PLAN)

    return _edited(edit)


def _rows(key: str, change: Callable[[Document, int], object]) -> Callable[[int], bytes]:
    """n rows more of a list of the manifest, made of its last one."""

    def make(n: int) -> bytes:
        def edit(m: Document) -> None:
            last = m[key][-1]
            rows = [deepcopy(last) for _ in range(n)]
            for i, row in enumerate(rows):
                row["name"] = f"{last['name']}{LONG}{i:07}"
                change(row, i)
            m[key] += rows

        return _edited(edit)

    return make


def weights_files(n: int) -> bytes:
    """n / 40 weights files and n constants, each of which names the last file."""
    files = corpus.good_files()
    document = json.loads(files["manifest.json"])
    header = b"{" + b'"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    header += b" " * (-(len(header) + 8) % 256)
    data = struct.pack("<Q", len(header)) + header
    names = [f"x{LONG}{i:05}.safetensors" for i in range(n // 40)]
    files |= dict.fromkeys(names, data)
    document["members"] += [_spec(name, data) for name in names]
    row = {"dtype": "u8", "shape": [0], "file": names[-1], "tensor": "t", "recipe": None}
    document["constants"] += [{**row, "name": f"z{LONG}{i:07}"} for i in range(n)]
    files["manifest.json"] = canonical.dumps(document)
    return pack(files)


def tensors(n: int) -> bytes:
    """A weights file with n tensors of nothing."""

    def edit(header: Document) -> None:
        end = max(t["data_offsets"][1] for t in header.values())
        row = {"dtype": "F32", "shape": [0], "data_offsets": [end, end]}
        header.update({f"z{LONG}{i:07}": row for i in range(n)})

    return corpus.with_weights(edit)


def dimensions(n: int) -> bytes:
    """A tensor of n dimensions of 2^48."""
    return corpus.with_weights(lambda h: h["start"].update(shape=[2**48] * n))


def texts(n: int) -> bytes:
    """A manifest that is one text without an end, full of quotes."""
    return pack({**corpus.good_files(), "manifest.json": b'"' + b'\\"' * n + b"\\"})


def brackets(n: int) -> bytes:
    """A manifest of n objects and texts."""
    return _edited(lambda m: m.update(producer={f"{i:07}": "[{\\" for i in range(n)}))


def debug_members(n: int) -> bytes:
    """n members that nobody reads."""
    files = corpus.good_files()
    document = json.loads(files["manifest.json"])
    more = {f"debug/x{LONG}{i:06}": b"" for i in range(n)}
    files = dict(sorted((files | more).items(), key=lambda item: container.sort_key(item[0])))
    document["members"] = [_spec(name, data) for name, data in files.items() if name != "manifest.json"]
    return pack({**files, "manifest.json": canonical.dumps(document)})


def kernels(n: int) -> bytes:
    """n kernels in one piece of code that grows with n, too."""
    code = corpus_cuda.sample_cuda.CODE + bytes(200 * n)
    files = corpus_cuda.with_member(corpus_cuda.CODE, code)
    plan = json.loads(files[corpus_cuda.PLAN])
    first = plan["kernels"][0]
    plan["kernels"] += [{**deepcopy(first), "name": f"z{i:07}"} for i in range(n)]
    return pack(corpus_cuda.changed_member(files, corpus_cuda.PLAN, canonical.dumps(plan)))


def sections(n: int) -> bytes:
    """Code of n sections whose names are the ends of one long text."""
    code = bytearray(cubin("f", ()))
    (table,) = struct.unpack_from("<Q", code, 40)
    header = bytes(code[table + 64 : table + 128])
    names = b"a" * (8 * n) + b"\0"
    code += b"\0" * (-len(code) % 8)
    text_at, table_at = len(code), len(code) + len(names)
    rows = [struct.pack("<II", i, 3) + header[8:24] + struct.pack("<QQ", text_at, len(names)) + header[40:]
            for i in range(n)]  # fmt: skip
    code += names + b"".join(rows)
    struct.pack_into("<Q", code, 40, table_at)
    struct.pack_into("<HHH", code, 58, 64, n, 1)
    return pack(corpus_cuda.with_member(corpus_cuda.CODE, bytes(code)))


def symbol_tables(n: int) -> bytes:
    """Code of n symbols that n tables have, all in one place."""
    code = hsaco("scale_kernel", num_symbols=n)
    return pack(corpus_hip.with_member(corpus_hip.CODE, corpus_hip.with_symbol_tables(code, n)))


def shared_library(n: int) -> bytes:
    """n targets of one library that grows with n, too."""

    def edit(m: Document) -> None:
        (first,) = (t for t in m["targets"] if t["library"] == LIBRARY)
        m["targets"] += [{**first, "name": f"{first['name']}{i:05}"} for i in range(n)]
        for e in m["entries"]:
            e["plans"] |= {t["name"]: e["plans"][first["name"]] for t in m["targets"]}

    files = corpus.good_files()
    member = {**files, LIBRARY: files[LIBRARY] + bytes(4000 * n)}
    document = json.loads(files["manifest.json"])
    (spec,) = (s for s in document["members"] if s["name"] == LIBRARY)
    spec.update(_spec(LIBRARY, member[LIBRARY]))
    edit(document)
    return pack({**member, "manifest.json": canonical.dumps(document)})


def relocations(n: int) -> bytes:
    """A library that ends in n headers of segments, as far as its header says: there are at most 64."""
    library = bytearray(corpus.good_files()[LIBRARY])
    library += bytes(-len(library) % 8)
    first = bytes(library[64:120])
    struct.pack_into("<Q", library, 32, len(library))
    struct.pack_into("<H", library, 56, min(n, 65535))
    return corpus.with_member(LIBRARY, bytes(library) + first * n)


class _Body:
    """A plan to which values of the arena, calls and instructions are added."""

    def __init__(self, plan: Document) -> None:
        self.plan = plan
        self.numbers: dict[int, int] = {}
        self.flag = self.value("flag", "bool", ())
        plan["body"].insert(0, self.fill(self.flag))
        plan["arena"] = self.number(2**40)

    def number(self, n: int) -> int:
        """The expression of a number."""
        if n not in self.numbers:
            self.plan["exprs"].append(["const", n])
            self.numbers[n] = len(self.plan["exprs"]) - 1
        return self.numbers[n]

    def value(self, name: str, dtype: str, shape: tuple[int, ...], nbytes: int = 64) -> int:
        """A value at the next offset, row-major if it has one dimension."""
        values = self.plan["values"]
        offset = self.number(2**20 + nbytes * len(values))
        sizes, strides = [self.number(n) for n in shape], [self.number(1)] * len(shape)
        values.append({"name": name, "dtype": dtype, "shape": sizes, "strides": strides, "storage": ["arena", offset]})
        return len(values) - 1

    def fill(self, value: int) -> Document:
        return {"op": "fill", "dst": value, "bits": 1, "origin": 0}

    def branch(self, *then: Document) -> Document:
        return {"op": "if", "cond": self.flag, "then": list(then), "else": [], "origin": 0}

    def kernel(self, access: str, *calls: list[Any]) -> int:
        """A kernel of as many buffers as there are accesses in a call; its int is the number of the call."""
        nothing = self.number(0)
        records = [
            {"ints": [self.number(n)], "shared": nothing, "per_worker": nothing, "accesses": [[a] for a in accesses]}
            for n, accesses in enumerate(calls)
        ]
        params = [["buffer", "f32", access]] * len(calls[0]) + [["int"]]
        self.plan["kernels"].append({"name": f"z{len(self.plan['kernels'])}", "params": params, "calls": records})
        return len(self.plan["kernels"]) - 1

    def launch(self, kernel: int, buffers: list[int], call: int) -> Document:
        nothing = self.number(0)
        launch = {"op": "launch", "kernel": kernel, "buffers": buffers, "ints": [self.number(call)], "origin": 0}
        return {**launch, "shared": nothing, "per_worker": nothing}

    def parts(self) -> list[Document]:
        """Launches that fill as many parts of one value as are kept, of 40 dimensions, none where another ends, and one
        that fills another.
        """
        shape = [self.number(2)] * 40
        strides = [self.number(101 + 2 * d) for d in range(40)]
        calls = [[["fill", self.number(n * 2**14), shape, strides]] for n in range(65)]
        kernel, value = self.kernel("write", *calls), self.value("parts", "f32", (2**24,), 2**26)
        return [self.launch(kernel, [value], n) for n in range(65)]


def _body(edit: Callable[[_Body, int], list[Document]]) -> Callable[[int], bytes]:
    """The good bundle with the instructions that `edit` gives for n."""

    def change(plan: Document, n: int) -> None:
        plan["body"][1:1] = edit(_Body(plan), n)

    return lambda n: corpus.with_plan(lambda plan: change(plan, n))


def _parts(b: _Body, n: int) -> list[Document]:
    *first, last = b.parts()
    return first + [last] * n


def _parts_in_branches(b: _Body, n: int) -> list[Document]:
    *first, last = b.parts()
    return [*first, b.branch(*[b.branch(last), last] * n)]


def _branches(b: _Body, n: int) -> list[Document]:
    values = [b.value(f"w{i}", "f32", ()) for i in range(n)]
    return [b.fill(v) for v in values] + [b.branch(b.fill(values[0]))] * n


def _alive(b: _Body, n: int) -> list[Document]:
    values = [b.value(f"w{i}", "f32", ()) for i in range(n)]
    return [b.fill(v) for v in values] * 2


def _buffers(b: _Body, n: int) -> list[Document]:
    values = [b.value(f"w{i}", "f32", (1,)) for i in range(n)]
    one = ["fill", b.number(0), [b.number(1)], [b.number(1)]]
    return [b.launch(b.kernel("write", [one] * n), values, 0)]


parts = _body(_parts)


def filled_by(numel: int, boxes: Sequence[tuple[int, Sequence[tuple[int, int]]]], in_branch: int) -> bytes:
    """A value that launches fill, each a box (offset; sizes and strides), and that is read then. The last `in_branch`
    of them stand in both branches of an `if`, in the one from first to last, in the other from last to first.
    """

    def edit(b: _Body, n: int) -> list[Document]:
        calls = [
            [["fill", b.number(at), [b.number(size) for size, _ in dims], [b.number(stride) for _, stride in dims]]]
            for at, dims in boxes
        ]
        kernel, value, other = b.kernel("write", *calls), b.value("w", "f32", (n,)), b.value("v", "f32", (n,))
        launches = [b.launch(kernel, [value], n) for n in range(len(boxes))]
        split = max(0, len(launches) - in_branch)
        both = {**b.branch(*launches[split:]), "else": launches[split:][::-1]}
        return [*launches[:split], both, {"op": "copy", "src": value, "dst": other, "origin": 0}]

    return _body(edit)(numel)


GROWING: dict[str, tuple[Callable[[int], bytes], int]] = {
    "targets": (targets, 5000),
    "entries": (_rows("entries", lambda row, i: None), 500),
    "states": (_rows("states", lambda row, i: None), 1500),
    "constants": (_rows("constants", lambda row, i: None), 1200),
    "parameters": (_rows("parameters", lambda row, i: None), 1500),
    "aliases": (
        lambda n: _edited(lambda m: m["parameters"][-1].update(aliases=[f"{LONG}{i:07}" for i in range(n)])),
        3000,
    ),
    "inputs": (lambda n: _edited(lambda m: _tensors(m, "inputs", n)), 1500),
    "outputs": (lambda n: _edited(lambda m: _tensors(m, "outputs", n)), 1500),
    "symbols": (lambda n: _edited(lambda m: _symbols(m, n)), 2000),
    "requirements": (lambda n: _edited(lambda m: m["targets"][0].update(requires=["avx2"] * n)), 20000),
    "recipes": (lambda n: _edited(lambda m: m["constants"][3].update(recipe=m["constants"][3]["recipe"] * n)), 1000),
    "weights files": (weights_files, 10000),
    "tensors": (tensors, 2000),
    "dimensions": (dimensions, 20000),
    "texts": (texts, 50000),
    "brackets": (brackets, 15000),
    "debug members": (debug_members, 1000),
    "kernels": (kernels, 400),
    "sections": (sections, 10000),
    "tables of symbols": (symbol_tables, 1000),
    "targets of one library": (shared_library, 250),
    "program headers": (relocations, 16000),
    "parts of a value": (parts, 1500),
    "parts of a value in branches": (_body(_parts_in_branches), 750),
    "branches": (_body(_branches), 2000),
    "values that are alive together": (_body(_alive), 2000),
    "buffers of a launch": (_body(_buffers), 2000),
}
"""What grows -> how it is made, and the n to begin with."""


def _tensors(m: Document, key: str, n: int) -> None:
    row = m["entries"][0][key][0]
    m["entries"][0][key] += [{**row, "name": f"z{LONG}{i:07}"} for i in range(n)]


def _symbols(m: Document, n: int) -> None:
    m["entries"][0]["syms"] += [{"name": f"z{LONG}{i:07}", "lo": 0, "hi": None} for i in range(n)]


def _write(path: Path, *pieces: tuple[int, bytes]) -> None:
    """A sparse file of pieces at their offsets."""
    with path.open("wb") as file:
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)


def _sparse(path: Path, name: str, nbytes: int, head: bytes = b"") -> None:
    """The good bundle whose member `name` begins with `head`, has `nbytes` bytes, and is a hole but for that."""
    files = corpus.good_files()
    document = json.loads(files["manifest.json"])
    for row in document["members"]:
        if row["name"] == name:
            row.update(nbytes=nbytes, sha256="0" * 64)
    files["manifest.json"] = canonical.dumps(document)
    members = [Member(n, [d]) for n, d in files.items()]
    at, offset = 0, 0
    pieces: list[tuple[int, bytes]] = []
    records = b""
    for member in members:
        size = nbytes if member.name == name else member.nbytes
        data = head if member.name == name else b"".join(bytes(c) for c in member.chunks)
        crc = 0 if member.name == name else container.zlib.crc32(data)
        header = local_header(member.name, size, crc, at)
        offset = at + len(header)
        pieces += [(at, header), (offset, data)]
        records += central_header(Entry(member.name, size, crc, at, offset))
        at = offset + size
    _write(path, *pieces, (at, records + end_records(len(members), len(records), at)))


def sparse_directory(path: Path) -> None:
    """A directory of 3 GiB of nothing."""
    nbytes = 3 << 30
    _write(path, (nbytes, end_records(60000, nbytes, 0)))


def sparse_zip64_directory(path: Path) -> None:
    """A directory of 1 TiB with as many members as may be."""
    nbytes = 1 << 40
    _write(path, (nbytes, end_records(2**20, nbytes, 0)))


def sparse_local_header(path: Path) -> None:
    """A directory that begins well, with one member, and then is a hole of 3 GiB."""
    entry = lay_out([Member("manifest.json", [b"{}"])])[0]
    record = central_header(entry)
    nbytes = 3 << 30
    start = entry.offset + entry.nbytes
    header = local_header(entry.name, entry.nbytes, entry.crc32, 0)
    _write(path, (0, header + b"{}" + record), (start + nbytes, end_records(10**6, nbytes, start)))


SPARSE: dict[str, Callable[[Path], None]] = {
    "directory": sparse_directory,
    "ZIP64 directory": sparse_zip64_directory,
    "directory behind a member": sparse_local_header,
    "manifest": lambda path: _sparse(path, "manifest.json", 2**28),
    "plan": lambda path: _sparse(path, PLAN, 2**28),
    "library": lambda path: _sparse(path, LIBRARY, 2**36),
    "debug member": lambda path: _sparse(path, "debug/note.txt", 2**40),
    "weights": lambda path: _sparse(path, "weights.safetensors", 2**42),
    "weights header": lambda path: _sparse(path, "weights.safetensors", 2**30, struct.pack("<Q", 99_999_992)),
}
"""What is not there -> a writer of such a file."""


def room_nbytes(path: Path) -> int:
    """What a file takes on its disk."""
    return os.stat(path).st_blocks * 512
