"""Bad bundles, each made from a good one by one change. expected.json has the exact error of both readers.

python tests/bad_bundles/corpus.py --update     writes expected.json anew; read what has changed before you commit it
python tests/bad_bundles/corpus.py FOLDER       writes them and the good one into FOLDER, as seeds for fuzzers
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import corpus_cuda
import corpus_hip
import corpus_libraries
import corpus_reads
import sample
from manifest_edits import DELETE, MANIFEST_EDITS

from hardtack.codegen.package import canonical
from hardtack.codegen.package.container import Member, read_archive, write_archive
from hardtack.codegen.package.writer import parts_of

EXPECTED = Path(__file__).with_name("expected.json")
PLAN = "plans/forward.cpu:x86-64-v3.json"
LIBRARY = "lib/x86-64-v3.so"
Document = dict[str, Any]
Files = dict[str, bytes]


def good_files(target: str = "x86-64-v3") -> Files:
    """The members of the good bundle by name, in archive order."""
    return {m.name: b"".join(bytes(c) for c in m.chunks) for m in parts_of(sample.content((target,))).members}


def pack(files: Files) -> bytes:
    """An archive of `files`, which must be in archive order."""
    out = io.BytesIO()
    write_archive(out, [Member(name, [data]) for name, data in files.items()])
    return out.getvalue()


def with_manifest(edit: Callable[[Document], None]) -> bytes:
    """The good bundle with its manifest edited."""
    files = good_files()
    document = json.loads(files["manifest.json"])
    edit(document)
    files["manifest.json"] = canonical.dumps(document)
    return pack(files)


def with_member(name: str, data: bytes) -> bytes:
    """The good bundle with a member replaced, size and hash in the manifest set right."""
    files = good_files()
    files[name] = data
    document = json.loads(files["manifest.json"])
    for m in document["members"]:
        if m["name"] == name:
            m.update(nbytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    files["manifest.json"] = canonical.dumps(document)
    return pack(files)


def with_constant(change: Document) -> bytes:
    """The good bundle with keys of its first constant changed."""
    return with_manifest(lambda m: m["constants"][0].update(change))


def with_external_weights(name: str = "outside.safetensors") -> bytes:
    """The good bundle with its weights outside; the file is not written."""
    files = good_files()
    del files["weights.safetensors"]
    document = json.loads(files["manifest.json"])
    *document["members"], document["external"] = document["members"]
    document["external"]["name"] = name
    for c in document["constants"]:
        c["file"] = name
    files["manifest.json"] = canonical.dumps(document)
    return pack(files)


def with_plan(edit: Callable[[Document], None]) -> bytes:
    """The good bundle with the plan of `forward` edited."""
    document = json.loads(good_files()[PLAN])
    edit(document)
    return with_member(PLAN, canonical.dumps(document))


def with_weights(edit: Callable[[Document], None], payload: Callable[[bytes], bytes] = lambda data: data) -> bytes:
    """The good bundle with the weights' header and data edited."""
    data = good_files()["weights.safetensors"]
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    edit(header)
    text = canonical.dumps(header)
    text += b" " * (-(len(text) + 8) % 256)
    return with_member("weights.safetensors", struct.pack("<Q", len(text)) + text + payload(data[8 + length :]))


def setter(path: str, value: object) -> Callable[[Document], None]:
    """An edit that sets the item at a path such as "entries/0/name"; value DELETE removes it."""

    def edit(document: Document) -> None:
        *parents, last = [int(p) if p.isdecimal() else p for p in path.split("/")]
        item: Any = document
        for p in parents:
            item = item[p]
        if value is DELETE:
            del item[last]
        else:
            item[last] = deepcopy(value)

    return edit


def container_cases() -> Iterator[tuple[str, bytes]]:
    """Damage to the archive itself."""
    good = pack(good_files())
    yield "empty file", b""
    yield "one byte", b"P"
    yield "last byte missing", good[:-1]
    yield "first half only", good[: len(good) // 2]
    yield "byte before it", b"\0" + good
    yield "byte after it", good + b"\0"
    yield "zeros of its size", bytes(len(good))
    for e in read_archive(memoryview(good)):
        flipped = bytearray(good)
        flipped[e.offset + e.nbytes // 2] ^= 0x20
        yield f"flipped byte in {e.name}", bytes(flipped)
    directory = good.index(b"PK\1\2")
    for what, offset, form, value in (
        ("compression in the directory", 10, "<H", 8),
        ("flags in the directory", 8, "<H", 1),
        ("a date in the directory", 14, "<H", 0x5A21),
        ("a comment length in the directory", 32, "<H", 5),
        ("a size beyond the file", 24, "<I", 0x7FFFFFFF),
        ("a header offset beyond the file", 42, "<I", 0x7FFFFFFF),
        ("a header offset that wraps", 42, "<I", 0xFFFFFFFE),
        ("a ZIP64 size without its field", 24, "<I", 0xFFFFFFFF),
        ("a name beyond the directory", 28, "<H", 0xFFFF),
    ):
        changed = bytearray(good)
        struct.pack_into(form, changed, directory + offset, value)
        yield what, bytes(changed)
    local = bytearray(good)
    struct.pack_into("<H", local, 8, 8)
    yield "compression in a local header", bytes(local)
    end = len(good) - 22
    for what, offset, form, value in (
        ("a member count of 0", 10, "<H", 0),
        ("a directory offset beyond the file", 16, "<I", 0x7FFFFFFF),
        ("a directory size that wraps", 12, "<I", 0xFFFFFFFE),
        ("a disk number", 4, "<H", 1),
    ):
        changed = bytearray(good)
        struct.pack_into(form, changed, end + offset, value)
        yield what, bytes(changed)


def member_cases() -> Iterator[tuple[str, bytes]]:
    """Members that do not fit the manifest."""
    files = good_files()
    without = {n: d for n, d in files.items() if n != LIBRARY}
    yield "a listed member that is missing", pack(without)
    yield (
        "a member that is not listed",
        pack({**files, "weights.safetensors": files["weights.safetensors"], "x.safetensors": b""}),
    )
    first = dict(files)
    del first["manifest.json"]
    yield "no manifest", pack(first)
    renamed = pack(files).replace(b"debug/note.txt", b"debug/../e.txt")
    yield "a name that leaves its folder", renamed
    two = pack({"manifest.json": b"{}", "debug/note.txt": b"", "debug/notf.txt": b""})
    yield "a member twice", two.replace(b"debug/notf.txt", b"debug/note.txt")
    yield "a library that is no ELF file", with_member(LIBRARY, b"not an ELF file" * 8)
    yield "a library for another machine", with_member(LIBRARY, sample.library("aarch64"))
    yield "a library that is cut short", with_member(LIBRARY, files[LIBRARY][:200])
    resealed = dict(files)
    resealed[LIBRARY] = files[LIBRARY][:-1] + b"\1"
    yield "a library whose hash is wrong", pack(resealed)


def manifest_cases() -> Iterator[tuple[str, bytes]]:
    """Damage to the manifest."""
    for what, (path, value) in MANIFEST_EDITS.items():
        yield f"manifest: {what}", with_manifest(setter(path, value))

    def twice(key: str) -> Callable[[Document], None]:
        return lambda m: m[key].append(deepcopy(m[key][-1]))

    for key in ("targets", "entries", "states", "constants", "members"):
        yield f"manifest: {key} twice", with_manifest(twice(key))
    for what, change in (("size", {"shape": [5]}), ("dtype", {"dtype": "i32"})):
        edit = {"recipe": None, **change}
        yield f"manifest: a constant of another {what} than its tensor", with_constant(edit)
    yield "manifest: external weights that are missing", with_external_weights()
    text = good_files()["manifest.json"]
    for what, changed in (
        ("whitespace", text.replace(b",", b", ", 1)),
        ("keys out of order", b'{"z":1,"a":2}'),
        ("a key twice", text.replace(b'"format":1', b'"format":1,"format":1', 1)),
        ("a floating-point number", text.replace(b'"format":1', b'"format":1.0', 1)),
        ("a number of 65 bits", text.replace(b'"format":1', b'"format":18446744073709551616', 1)),
        ("text that is not ASCII", text.replace(b'"compiler"', '"compilé"'.encode(), 1)),
        ("half a surrogate pair", text.replace(b'"compiler"', b'"\\ud800"', 1)),
        ("cut short", text[:-1]),
        ("a list", b"[]"),
        ("nothing", b""),
    ):
        yield f"manifest: {what}", pack({**good_files(), "manifest.json": changed})


SIXTY_FIVE = {"name": "t", "dtype": "f32", "shape": [3] * 65, "strides": [3] * 65, "storage": ["arena", 4]}
PLAN_EDITS: dict[str, tuple[str, object]] = {
    "format 1": ("format", 1),
    "format 3": ("format", 3),
    "another entry": ("entry", "copy"),
    "another target": ("target", "cpu:x86-64-v4"),
    "a key missing": ("guards", DELETE),
    "an unknown key": ("surprise", 1),
    "an unknown instruction": ("body/0/op", "jump"),
    "a kernel out of range": ("body/0/kernel", 9),
    "a buffer out of range": ("body/0/buffers/0", 99),
    "a buffer of -1": ("body/0/buffers/0", -1),
    "a buffer too few": ("body/0/buffers", [0, 1]),
    "a buffer of another dtype": ("body/0/buffers/0", 2),
    "an int too many": ("body/0/ints", [0, 0, 0]),
    "an origin out of range": ("body/0/origin", 99),
    "an expression of itself": ("exprs/0", ["add", [0, 0]]),
    "an expression of one term": ("exprs/1", ["add", [0]]),
    "an unknown expression": ("exprs/0", ["sub", 0, 0]),
    "a symbol out of range": ("exprs/0", ["sym", 7]),
    "a symbol with other bounds": ("syms/0/hi", 65),
    "a symbol that nothing binds": ("syms/0/dim", 1),
    "a symbol of a dimension too many": ("syms/0/dim", 2),
    "a symbol of no input": ("syms/0/input", 3),
    "an input too few": ("inputs", []),
    "an output too few": ("outputs", [4]),
    "two values of one name": ("values/3/name", "x"),
    "two kernels of one name": ("kernels/1/name", "k_scale"),
    "an unknown storage": ("values/3/storage", ["stack", 0]),
    "a constant that does not exist": ("values/1/storage", ["constant", "nothing"]),
    "a state that does not exist": ("values/2/storage", ["state", "nothing"]),
    "a constant of another dtype": ("values/1/dtype", "i32"),
    "an unknown dtype": ("values/3/dtype", "f31"),
    "a dtype of a later format": ("values/3/dtype", "u32"),
    "a value of complex numbers": ("values/3/dtype", "c64"),
    "a buffer of complex numbers": ("kernels/0/params/0", ["buffer", "c128", "read"]),
    "an unknown access": ("kernels/0/params/0", ["buffer", "f32", "look"]),
    "a buffer after an int": ("kernels/0/params", [["int"], ["buffer", "f32", "read"]]),
    "a launch with other ints": ("body/0/ints", [2, 2]),
    "a launch with ints that are 0": ("body/0/ints", [4, 2]),
    "a launch with more shared workspace than declared": ("body/0/shared", 2),
    "a launch with more workspace of workers than declared": ("body/0/per_worker", 2),
    "a kernel without calls": ("kernels/0/calls", []),
    "a kernel that says nothing of calls": ("kernels/0/calls", DELETE),
    "a call with an int too few": ("kernels/0/calls/0/ints", [0]),
    "a call with a buffer too few": ("kernels/0/calls/0/accesses", []),
    "a call with an int of no expression": ("kernels/0/calls/0/ints/0", 99),
    "a call with a workspace of no expression": ("kernels/0/calls/0/shared", 99),
    "an access of no kind": ("kernels/0/calls/0/accesses/0/0/0", "look"),
    "an access without strides": ("kernels/0/calls/0/accesses/0/0", ["touch", 4, [3]]),
    "an access with a stride too few": ("kernels/0/calls/0/accesses/0/0/3", []),
    "an access at no expression": ("kernels/0/calls/0/accesses/0/0/1", 99),
    "an access of a size of no expression": ("kernels/0/calls/0/accesses/0/0/2/0", 99),
    "a fill of what is only read": ("kernels/0/calls/0/accesses/0/0/0", "fill"),
    "a value of 65 dimensions": ("values/3", SIXTY_FIVE),
    "an access that leaves its value": ("kernels/1/calls/0/accesses/1/0/2/0", 2),
    "an access behind its value": ("kernels/1/calls/0/accesses/1", [["touch", 4, [3], [3]], ["fill", 3, [3], [3]]]),
    "an output that is only touched": ("kernels/1/calls/0/accesses/1/0/0", "touch"),
    "an output of which nothing is filled": ("kernels/1/calls/0/accesses/1/0/2/0", 4),
    "an output that is not accessed": ("kernels/1/calls/0/accesses/1", []),
    "a write to an input": ("body/0/buffers", [0, 1, 0]),
    "a write to a constant": ("body/0/buffers", [0, 1, 1]),
    "one value read and written": ("body/1/buffers", [3, 3, 3]),
    "an unknown relation": ("guards/0/relation", "gt"),
    "a guard of no expression": ("guards/0/a", 77),
}


USERS = [{"op": "a.b", "function": "f", "host": True}, {"op": "a.c", "function": "g", "host": False}]


def with_users(edit: Callable[[list[Document]], Any], calls: str | None = None) -> bytes:
    """The good bundle in format 3, with users' kernels, edited; its first kernel calls a function of the host."""
    files = good_files()
    if calls is not None:
        plan = json.loads(files[PLAN])
        plan["kernels"][0]["host"] = calls
        files[PLAN] = canonical.dumps(plan)
    document, users = json.loads(files["manifest.json"]), deepcopy(USERS)
    edit(users)
    document.update(format=3, user_kernels=users)
    for m in document["members"]:
        m.update(nbytes=len(files[m["name"]]), sha256=hashlib.sha256(files[m["name"]]).hexdigest())
    files["manifest.json"] = canonical.dumps(document)
    return pack(files)


def user_kernel_cases() -> Iterator[tuple[str, bytes]]:
    """Users' kernels of which the manifest says something wrong, or not what the plans say."""
    for what, edit in (
        ("out of order", lambda users: users.reverse()),
        ("twice", lambda users: users.append(deepcopy(users[-1]))),
        ("without a function", lambda users: users[0].pop("function")),
        ("of a number", lambda users: users[0].update(host=1)),
        ("with an unknown key", lambda users: users[0].update(surprise=1)),
    ):
        yield f"manifest: users' kernels {what}", with_users(edit)  # type: ignore[no-untyped-call]
    yield "plan: a function of the host that the manifest lacks", with_users(lambda users: None, "h")
    yield "plan: a function of the host that the bundle has", with_users(lambda users: None, "g")
    yield "plan: a function of the host in format 1", with_plan(setter("kernels/0/host", "f"))
    yield "plan: a function of the host that is no text", with_plan(setter("kernels/0/host", 1))


def plan_cases() -> Iterator[tuple[str, bytes]]:
    """Plans that cannot be proved sound."""
    for what, (path, value) in PLAN_EDITS.items():
        yield f"plan: {what}", with_plan(setter(path, value))

    def more_calls(kernel: int, **change: object) -> bytes:
        def edit(plan: Document) -> None:
            calls = plan["kernels"][kernel]["calls"]
            calls.append({**deepcopy(calls[0]), **change})

        return with_plan(edit)

    yield "plan: a call of a kernel twice", more_calls(1)
    yield "plan: a call that differs in its accesses only", more_calls(1, accesses=[[], []])
    fills_input = [[["fill", 4, [3], [3]]], [], []]
    yield (
        "plan: a fill of what is only read in a call that nothing launches",
        more_calls(0, ints=[4, 4], accesses=fills_input),
    )
    yield "plan: a launch that passes a symbol for a number", symbol_for_a_number()
    yield "plan: an arena of -1", with_exprs(_set_arena, ["const", -1])
    yield "plan: an arena of 2^48", with_exprs(_set_arena, ["const", 2**48])
    yield "plan: an arena too small", with_exprs(_small_arena, ["const", 4], ["const", 8])
    yield "plan: an offset of -64", with_exprs(_set_offset, ["const", -64])
    yield "plan: an offset of 32", with_exprs(_set_offset, ["const", 32])
    yield "plan: values that overlap while both are alive", with_exprs(_second_value, ["const", 4], ["const", 0])
    yield "plan: a sum that overflows", with_exprs(_set_arena, ["const", 2**63 - 1], ["add", (0, 0)])
    yield "plan: a product that overflows", with_exprs(_set_arena, ["const", 2**62], ["mul", (0, 0)])
    yield "plan: a division by 0", with_exprs(_set_arena, ["const", 0], ["div", 0, 0])
    yield "plan: a use before definition", with_plan(lambda p: p["body"].pop(0))
    yield "plan: an output that is not written", with_plan(lambda p: p["body"].pop(1))
    condition = {"op": "if", "cond": 3, "then": [], "else": [], "origin": 0}
    yield "plan: a condition that is no bool", with_plan(lambda p: p["body"].insert(1, condition))
    yield "plan: an output written in one branch only", with_exprs(_define_in_one_branch, ["const", 1024])
    yield (
        "plan: a copy between different shapes",
        with_plan(lambda p: p["body"].append({"op": "copy", "src": 1, "dst": 4, "origin": 0})),
    )
    yield "plan: an output whose stride is a sum of 2", with_stride(["add", [3, 3]])
    yield "plan: an output whose stride is a product of 0", with_stride(["mul", [3, 4]])
    yield "plan: a value with gaps", with_exprs(_set_strides, ["const", 8])
    yield "plan: a value whose rows overlap", with_exprs(_set_strides, ["const", 2])
    yield "plan: cut short", with_member(PLAN, good_files()[PLAN][:-1])


def with_exprs(change: Callable[[Document, int], None], *nodes: Any) -> bytes:
    """The plan with expressions added and then changed; `change` gets the number of the first of them.

    Arguments of an added expression count from the first added; a tuple is a list of them.
    """

    def edit(plan: Document) -> None:
        base = len(plan["exprs"])
        for kind, *arguments in nodes:
            moved = arguments
            if kind not in ("const", "sym"):
                moved = [[base + i for i in a] if isinstance(a, tuple) else base + a for a in arguments]
            plan["exprs"].append([kind, *moved])
        change(plan, base)

    return with_plan(edit)


def with_both(edit_plan: Callable[[Document], None], edit_manifest: Callable[[Document], None]) -> bytes:
    """The good bundle with the plan of `forward` and the manifest edited."""
    files = good_files()
    document = json.loads(files[PLAN])
    edit_plan(document)
    manifest = json.loads(files["manifest.json"])
    edit_manifest(manifest)
    files[PLAN] = canonical.dumps(document)
    for m in manifest["members"]:
        if m["name"] == PLAN:
            m.update(nbytes=len(files[PLAN]), sha256=hashlib.sha256(files[PLAN]).hexdigest())
    files["manifest.json"] = canonical.dumps(manifest)
    return pack(files)


def with_stride(stride: Any) -> bytes:
    """The good bundle with another last stride of its output y, of which the manifest says only a text."""

    def edit(plan: Document) -> None:
        plan["values"][4]["strides"][1] = len(plan["exprs"])
        plan["exprs"].append(stride)

    return with_both(edit, setter("entries/0/outputs/0/strides/1", "step"))


def symbol_for_a_number() -> bytes:
    """A launch passes n, which can only be 4, where its kernel's call has a 4."""

    def edit(plan: Document) -> None:
        plan["syms"][0].update(lo=4, hi=4)
        plan["kernels"][0]["calls"][0]["ints"][0] = 2

    return with_both(edit, lambda m: m["entries"][0]["syms"][0].update(lo=4, hi=4))


def _set_strides(plan: Document, first: int) -> None:
    """t has 4 rows, as far apart as the first expression added says."""
    plan["values"][3] |= {"shape": [2, 2], "strides": [first, 3]}


def _set_arena(plan: Document, first: int) -> None:
    """The arena's size is the last expression added."""
    plan["arena"] = len(plan["exprs"]) - 1


def _small_arena(plan: Document, first: int) -> None:
    """t has 4 rows of 16 bytes, the arena 8 bytes."""
    plan["values"][3]["shape"][0] = first
    plan["arena"] = first + 1


def _set_offset(plan: Document, first: int) -> None:
    """t lies at the first expression added."""
    plan["values"][3]["storage"] = ["arena", first]


def _second_value(plan: Document, first: int) -> None:
    """u, as large as t, in the same place and written while t is still needed."""
    t = plan["values"][3]
    t["shape"][0] = first
    plan["values"].append({**deepcopy(t), "name": "u", "storage": ["arena", first + 1]})
    launch = deepcopy(plan["body"][0])
    launch["buffers"][2] = len(plan["values"]) - 1
    plan["body"].insert(1, launch)


def _define_in_one_branch(plan: Document, first: int) -> None:
    """y is written only if a flag is true."""
    flag = {"name": "flag", "dtype": "bool", "shape": [], "strides": [], "storage": ["arena", first]}
    plan["values"].append(flag)
    number = len(plan["values"]) - 1
    launch = plan["body"].pop(1)
    plan["body"] += [
        {"op": "fill", "dst": number, "bits": 1, "origin": 0},
        {"op": "if", "cond": number, "then": [launch], "else": [], "origin": 0},
    ]


def weights_cases() -> Iterator[tuple[str, bytes]]:
    """Weights that the constants do not fit, or that overlap."""

    def edit(path: str, value: object) -> bytes:
        return with_weights(setter(path, value))

    yield "weights: overlapping tensors", edit("start/data_offsets", [0, 8])
    yield "weights: offsets that wrap", edit("start/data_offsets", [-8, 0])
    yield "weights: offsets beyond the end", edit("start/data_offsets", [2**62, 2**62 + 8])
    yield "weights: a shape that overflows", edit("start/shape", [2**40, 2**40])
    yield "weights: an unknown dtype", edit("start/dtype", "F4")
    yield "weights: a tensor renamed", with_weights(lambda h: h.update(other=h.pop("start")))
    yield "weights: a byte too many", with_weights(lambda h: None, lambda data: data + b"\0")
    yield "weights: a byte too few", with_weights(lambda h: None, lambda data: data[:-1])
    yield "weights: a header longer than the file", with_member("weights.safetensors", struct.pack("<Q", 2**40) + b"{}")


def library_cases() -> Iterator[tuple[str, bytes]]:
    """Libraries that would run when they are loaded, or that the dynamic linker would read or write past."""
    for name, data in corpus_libraries.cases(good_files()[LIBRARY]):
        yield name, with_member(LIBRARY, data)


def cases() -> dict[str, bytes]:
    """Every bad bundle by name."""
    written = (container_cases, member_cases, manifest_cases, plan_cases, weights_cases, library_cases)
    parts = (*written, user_kernel_cases, corpus_reads.cases)
    out: dict[str, bytes] = {}
    for part in parts:
        for name, data in part():
            assert name not in out, name
            out[name] = data
    return out | {name: pack(files) for name, files in (*corpus_cuda.cases(), *corpus_hip.cases())}


def stable(text: str, path: Path) -> str:
    """An error without what depends on the place of the bundle and on the bytes that a compiler made."""
    text = text.replace(str(path), "<path>").replace(str(path.parent), "<folder>")
    text = re.sub(r"\b[0-9a-f]{64}\b", "<sha256>", text)
    text = re.sub(
        r"CRC-32 is [0-9a-f]{8}; the container says [0-9a-f]{8}", "CRC-32 is <a>; the container says <b>", text
    )
    text = re.sub(r"\b(?!0{32})[0-9a-f]{32}\.(cubin|hsaco)", r"<code>.\1", text)
    text = re.sub(r"relocation 0 writes to address 0x[0-9a-f]{4,5}$", "relocation 0 writes to address <a>", text)
    return re.sub(r"segment \d+ ends at byte \d+", "segment <n> ends at byte <n>", text)


def python_error(path: Path) -> str:
    """What Python's reader says of the bundle at `path`, which it calls <path>; "" when it finds no fault."""
    from hardtack.codegen.package.bundle import verify_bundle
    from hardtack.codegen.package.errors import LoadError

    try:
        verify_bundle(path)
    except LoadError as error:
        return stable(str(error), path)
    return ""


def runtime_error(path: Path) -> str:
    """What the runtime's reader says: code and sentence; "" when it finds no fault."""
    from hardtack import _native

    try:
        _native.verify_file(str(path))
    except _native.NativeError as error:
        code, message = error.args
        return stable(f"{code}: {message}", path)
    return ""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] != "--update":
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "good.pkg").write_bytes(pack(good_files()))
        for name, data in cases().items():
            (folder / f"{name.replace('/', '_').replace(' ', '_')}.pkg").write_bytes(data)
        return
    import tempfile

    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "bad.pkg"
        for name, data in cases().items():
            path.write_bytes(data)
            found[name] = {"python": python_error(path), "runtime": runtime_error(path)}
    EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    main()
