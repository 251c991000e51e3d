"""Every bad bundle is refused by both readers, with the exact words of expected.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corpus
import corpus_cuda
import corpus_hip
import corpus_reads
import hostile_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hardtack
from hardtack.codegen.package import canonical

CASES = corpus.cases()
EXPECTED: dict[str, dict[str, str]] = json.loads(corpus.EXPECTED.read_text(encoding="utf-8"))
NOT_THE_RUNTIMES = {
    "manifest: a leaf that does not exist": "trees are for callers, such as hardtack.load; the runtime passes them on",
    "manifest: an unknown tree kind": "likewise",
}
ONLY_VERIFIED = {
    "flipped byte in debug/note.txt": "debug members are not read at load",
    "flipped byte in weights.safetensors": "weights are hashed by verify, not at load",
}


def test_the_good_bundle_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.pkg"
    path.write_bytes(corpus.pack(corpus.good_files()))
    assert corpus.python_error(path) == ""
    assert corpus.runtime_error(path) == ""


def test_a_bundle_with_users_kernels_is_good(tmp_path: Path) -> None:
    path = tmp_path / "users.pkg"
    path.write_bytes(corpus.with_users(lambda users: None, "f"))
    assert corpus.python_error(path) == ""
    assert corpus.runtime_error(path) == ""


def test_the_corpus_and_its_table_agree() -> None:
    assert set(CASES) == set(EXPECTED)


@pytest.mark.parametrize("name", CASES)
def test_refusal(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pkg"
    path.write_bytes(CASES[name])
    assert corpus.python_error(path) == EXPECTED[name]["python"] != ""
    assert corpus.runtime_error(path) == EXPECTED[name]["runtime"]
    assert (EXPECTED[name]["runtime"] == "") == (name in NOT_THE_RUNTIMES)


LOADED = [
    n for n in CASES if n not in ONLY_VERIFIED and n not in NOT_THE_RUNTIMES and not n.startswith(("cuda: ", "hip: "))
]


@pytest.mark.parametrize("name", LOADED)
def test_load_refuses(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pkg"
    path.write_bytes(CASES[name])
    with pytest.raises(hardtack.LoadError):
        hardtack.load(path)


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "none.pkg"
    assert corpus.python_error(path) == "<path>: cannot open it: No such file or directory"
    assert corpus.runtime_error(path) == "HT_IO: cannot open <path>: No such file or directory"
    with pytest.raises(hardtack.LoadError, match=r"^cannot open .*none\.pkg: No such file or directory$"):
        hardtack.load(path)


def test_directory(tmp_path: Path) -> None:
    assert corpus.python_error(tmp_path) == "<path>: cannot open it: Is a directory"
    assert corpus.runtime_error(tmp_path) == "HT_IO: <path> is not a regular file"


def test_no_target_runs_here(tmp_path: Path) -> None:
    path = tmp_path / "arm.pkg"
    path.write_bytes(corpus.pack(corpus.good_files("aarch64")))
    assert corpus.python_error(path) == corpus.runtime_error(path) == ""
    with pytest.raises(hardtack.LoadError) as caught:
        hardtack.load(path)
    assert str(caught.value) == f"{path}: nothing in the bundle runs on this machine: cpu:aarch64 needs neon"


def test_a_target_that_is_not_in_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "good.pkg"
    path.write_bytes(corpus.pack(corpus.good_files()))
    with pytest.raises(hardtack.LoadError) as caught:
        hardtack.load(path, target="cpu:none")
    assert "cpu:none" in str(caught.value)
    assert "cpu:x86-64-v3" in str(caught.value)


SCALARS = st.one_of(st.integers(-2, 12), st.sampled_from([2**62, -(2**63), None, "x", "f32", "arena", "add", [], {}]))


def _paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all items of a document."""
    out: list[tuple[Any, ...]] = []
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        out.append((*path, key))
        if isinstance(value, (dict, list)):
            out += _paths(value, (*path, key))
    return out


def _item(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _changes(data: st.DataObject) -> Callable[[dict[str, Any]], None]:
    """Puts up to three items of a plan in the place of others."""

    def edit(plan: dict[str, Any]) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            paths = _paths(plan)
            at = data.draw(st.sampled_from(paths))
            other = data.draw(st.one_of(SCALARS, st.sampled_from(paths).map(lambda p: _item(plan, p))))
            _item(plan, at[:-1])[at[-1]] = json.loads(canonical.dumps(other))

    return edit


@pytest.mark.parametrize("good_files", [corpus_cuda.good_files, corpus_hip.good_files])
def test_the_good_bundles_for_gpus_are_good(good_files: Callable[[], dict[str, bytes]], tmp_path: Path) -> None:
    path = tmp_path / "good.pkg"
    path.write_bytes(corpus.pack(good_files()))
    assert corpus.python_error(path) == ""
    assert corpus.runtime_error(path) == ""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 646), st.integers(0, 255)), min_size=1, max_size=3))
def test_both_readers_judge_changed_code_objects_alike(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    path = tmp_path / "changed.pkg"
    code = bytearray(corpus_hip.good_files()[corpus_hip.CODE])
    for at, value in changes:
        code[at] = value
    path.write_bytes(corpus.pack(corpus_hip.with_member(corpus_hip.CODE, bytes(code))))
    python, runtime = corpus.python_error(path), corpus.runtime_error(path)
    assert (python == "") == (runtime == ""), f"python: {python or 'sound'}\nruntime: {runtime or 'sound'}"


WITH_PLAN: dict[str, Callable[..., bytes]] = {
    "cpu": corpus.with_plan,
    "reads": corpus_reads.with_plan,
    "cuda": lambda edit: corpus.pack(corpus_cuda.with_plan(edit)),
    "hip": lambda edit: corpus.pack(corpus_hip.with_plan(edit)),
}


@pytest.mark.parametrize("device", WITH_PLAN)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_both_readers_judge_changed_plans_alike(tmp_path: Path, device: str, data: st.DataObject) -> None:
    path = tmp_path / "changed.pkg"
    path.write_bytes(WITH_PLAN[device](_changes(data)))
    python, runtime = corpus.python_error(path), corpus.runtime_error(path)
    assert (python == "") == (runtime == ""), f"python: {python or 'sound'}\nruntime: {runtime or 'sound'}"


Part = tuple[int, list[tuple[int, int]]]


def _inside(part: Part) -> bool:
    """Whether a box of so many elements and strides lies inside a value of 12."""
    reaches = [(size - 1) * stride for size, stride in part[1]]
    ends = part[0] + sum(min(r, 0) for r in reaches), part[0] + sum(max(r, 0) for r in reaches)
    return 0 <= ends[0] <= ends[1] < 12


PARTS = st.lists(
    st.tuples(st.integers(0, 9), st.lists(st.tuples(st.integers(1, 6), st.integers(-2, 6)), max_size=3)).filter(
        _inside
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PARTS, st.integers(0, 2))
def test_both_readers_put_parts_together_alike(tmp_path: Path, parts: list[Part], in_branch: int) -> None:
    path = tmp_path / "parts.pkg"
    path.write_bytes(hostile_files.filled_by(12, parts, in_branch))
    python, runtime = corpus.python_error(path), corpus.runtime_error(path)
    assert (python == "") == (runtime == ""), f"python: {python or 'sound'}\nruntime: {runtime or 'sound'}"


def test_a_stride_of_a_size_of_one_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "good.pkg"
    path.write_bytes(hostile_files.filled_by(12, [(0, [(12, 1), (1, -(2**63))])], 0))
    assert corpus.python_error(path) == corpus.runtime_error(path) == ""
