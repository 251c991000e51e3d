"""The dump: which files, which lines belong together, and that the page needs nothing but itself."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.dump.folder import VARIABLE, dump_folder, origins_of, write_dump
from hardtack.codegen.dump.links import Column, Line, link
from hardtack.codegen.dump.page import page
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.graph import Constant, Graph, Input, Lit, Op, Origin, SymBinding, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.codegen.pipeline import CompiledEntry, compile_entry

LAYERS = 2
WIDTH = 64
LINEAR = Origin("net.py", 7, "h = self.linear(x) <raw>", "aten.linear", "")
RELU = Origin("net.py", 8, "x = relu(h)", "aten.relu", "")


def two_layers() -> Graph:
    """relu(x @ w + b) twice; both layers come from the same two lines, as in a loop over blocks."""
    n = sym("s0", 0)
    rows = TensorType(DType.F32, (n, const(WIDTH)))
    types = {"x": rows}
    ops: list[Op] = []
    constants: list[Constant] = []
    value = "x"
    for k in range(LAYERS):
        types |= {f"w{k}": TensorType(DType.F32, (const(WIDTH), const(WIDTH)))}
        types |= {f"b{k}": TensorType(DType.F32, (const(WIDTH),))}
        types |= {f"mm{k}": rows, f"add{k}": rows, f"relu{k}": rows}
        constants += [Constant(f"w{k}", "aa"), Constant(f"b{k}", "bb")]
        ops += [
            Op("matmul", (value, f"w{k}"), make_attrs(), (f"mm{k}",), LINEAR),
            Op("add", (f"mm{k}", f"b{k}"), make_attrs(), (f"add{k}",), LINEAR),
            Op("max", (f"add{k}", Lit(0.0, DType.F32)), make_attrs(), (f"relu{k}",), RELU),
        ]
        value = f"relu{k}"
    inputs = (Input("x", (const(WIDTH), const(1))),)
    syms = (SymBinding(n, "x", 0),)
    return Graph("forward", inputs, (value,), ("y",), tuple(constants), (), tuple(ops), syms, (), types)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return two_layers()


@pytest.fixture(scope="module")
def compiled(graph: Graph) -> CompiledEntry:
    return compile_entry(graph, {}, CppBackend())


def dump(folder: Path, graph: Graph, compiled: CompiledEntry, name: str = "forward") -> Path:
    return write_dump(folder, name, compiled.texts, compiled.decisions, compiled.sources, origins_of(graph))


def test_files(tmp_path: Path, graph: Graph, compiled: CompiledEntry) -> None:
    out = dump(tmp_path, graph, compiled).parent
    stages = [f"{k:02d}-{stage}.txt" for k, stage in enumerate(CppBackend().passes().stages, start=1)]
    found = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    kernels = [f"kernels/{name}.cpp" for name in compiled.sources]
    assert found == sorted([*stages, *kernels, "decisions.txt", "index.html"])
    (lowered,) = out.glob("*-lower.txt")
    assert lowered.read_text() == compiled.texts["lower"]
    assert (out / "decisions.txt").read_text().splitlines() == [str(d) for d in compiled.decisions]
    assert all((out / "kernels" / f"{n}.cpp").read_text() == text for n, text in compiled.sources.items())


def test_a_second_dump_replaces_the_first(tmp_path: Path, graph: Graph, compiled: CompiledEntry) -> None:
    out = dump(tmp_path, graph, compiled).parent
    first = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    (out / "kernels" / "gone.cpp").write_text("")
    (out / "09-gone.txt").write_text("")
    dump(tmp_path, graph, compiled)
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == first


def test_an_entry_cannot_leave_the_folder(tmp_path: Path, graph: Graph, compiled: CompiledEntry) -> None:
    assert dump(tmp_path, graph, compiled, "../a/b").parent.parent == tmp_path


def test_folder_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert dump_folder() is None
    monkeypatch.setenv(VARIABLE, "")
    assert dump_folder() is None
    monkeypatch.setenv(VARIABLE, "stages")
    assert dump_folder() == Path("stages")


def columns(graph: Graph, compiled: CompiledEntry) -> dict[str, Column]:
    return {c.title: c for c in link(compiled.texts, compiled.decisions, origins_of(graph)).columns}


def only(column: Column, start: str) -> Line:
    (found,) = (line for line in column.lines if line.text.strip().startswith(start))
    return found


def test_layers_from_the_same_lines_are_told_apart(graph: Graph, compiled: CompiledEntry) -> None:
    found = columns(graph, compiled)
    for k in range(LAYERS):
        linear, relu = only(found["graph"], f"mm{k}:").links, only(found["graph"], f"relu{k}:").links
        assert len(linear) == len(relu) == 1
        assert only(found["graph"], f"add{k}:").links == linear
        assert only(found["lower"], f"nest relu{k} ").links == relu
        # the bias was computed in place in relu's nest, which from then on stands for both lines
        both = tuple(sorted(linear + relu))
        assert only(found["inline"], f"nest relu{k} ").links == both
        assert only(found["fuse"], f"nest relu{k} ").links == both
        assert only(found["tile"], f"nest relu{k} ").links == both
    launches = [line for line in found["plan"].lines if line.text.strip().startswith("launch ")]
    assert [line.links for line in launches] == [(0, 1), (2, 3)]


def test_a_shared_kernel_belongs_to_all_its_launches(graph: Graph, compiled: CompiledEntry) -> None:
    assert len(compiled.sources) == 1, "both layers are the same kernel"
    found = columns(graph, compiled)
    assert {line.links for line in found["render"].lines if line.text.strip()} == {(0, 1, 2, 3)}


def test_source_column(graph: Graph, compiled: CompiledEntry) -> None:
    lines = columns(graph, compiled)["source"].lines
    assert lines == (
        Line("net.py"),
        Line("     7  h = self.linear(x) <raw>", (0, 2)),
        Line("     8  x = relu(h)", (1, 3)),
    )


class _Page(HTMLParser):
    """What the page refers to, and the text of its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.lines: list[str] = []
        self.links: set[str] = set()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "action")]
        self._inside = self._inside if tag in ("i", "b") else tag == "div" and not dict(attrs).keys() - {"data-o"}
        if self._inside and tag == "div":
            self.lines.append("")
            self.links |= set((dict(attrs).get("data-o") or "").split())

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "div"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.lines[-1] += data


def test_page_holds_everything_and_refers_to_nothing(graph: Graph, compiled: CompiledEntry) -> None:
    linked = link(compiled.texts, compiled.decisions, origins_of(graph))
    text = page("forward", linked)
    parsed = _Page()
    parsed.feed(text)
    assert parsed.references == []
    assert "url(" not in text
    assert "@import" not in text
    assert parsed.lines == [line.text for c in linked.columns for line in c.lines]
    known = re.search(r"^const origins = (.*);$", text, re.MULTILINE)
    assert known is not None
    assert len(json.loads(known[1])) == len(linked.occurrences) == 2 * LAYERS
    assert parsed.links == {str(k) for k in range(2 * LAYERS)}


def test_page_escapes_what_comes_from_the_model(graph: Graph, compiled: CompiledEntry) -> None:
    evil = Origin("</script><b>.py", 1, "<img>", "aten.relu", "")
    texts = {"graph": f"v: f32[1] = neg(x)  # {evil}\n"}
    text = page("<title>", link(texts, (), (evil,)))
    assert text.count("</script>") == 1
    assert "<img" not in text
    assert "<title>&lt;title&gt;: stages</title>" in text


def test_a_compilation_that_fails_leaves_the_stages_before(
    tmp_path: Path, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise AssertionError("no tiles")

    monkeypatch.setattr("hardtack.codegen.backends.cpp.cpp_backend.tile_template", broken)
    tree = {"kind": "tuple", "items": []}
    with pytest.raises(AssertionError, match="no tiles"):
        build_content({"forward": Source(graph, tree, tree)}, ConstantStore(), [CppBackend()], dump=tmp_path)
    found = sorted(p.name for p in (tmp_path / "forward").glob("0*.txt"))
    stages = CppBackend().passes().stages
    assert found == [f"{k:02}-{s}.txt" for k, s in enumerate(stages[: stages.index("tile")], 1)]
    assert (tmp_path / "forward" / "index.html").exists()
