"""hardtack tune and tables in exports: the whole command on the null driver, and with timers of tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from null_driver import NullDriver

import hardtack
from hardtack import timing, tuning
from hardtack.codegen.backends.triton.compile import toolchain
from hardtack.codegen.lower.rules import rules_on
from hardtack.codegen.machine.data import H200
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.targets import TargetError
from hardtack.codegen.tune import candidates as candidate_lists
from hardtack.codegen.tune.choice import plan_fields, shape_of
from hardtack.codegen.tune.table import TableEntry, TuningTable, read_table
from hardtack.codegen.tune.trial import Trial
from hardtack.timing import Sample, Timer
from hardtack.tuning import Tuner
from tests.support.commands import good, refused, run

MODEL = """
import torch

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(64, 96, bias=False)
        self.second = torch.nn.Linear(96, 32, bias=False)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

def make():
    return Two().eval(), (torch.ones(40, 64),)
"""
KEYS = [
    f"gemm batch=1 m=40 n={n} k={k} dtype=f32 depth_first=1 one_row=0 streamable=1 splittable=1"
    for n, k in ((96, 64), (32, 96))
]
TRITON = toolchain(H200).triton


@pytest.fixture(autouse=True)
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates a key: every one is compiled."""
    monkeypatch.setattr(tuning, "candidates", lambda s, machine: candidate_lists.candidates(s, machine)[:2])


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "two_products.py"
    path.write_text(MODEL)
    return path


def answering(*answers: Sample) -> Timer:
    """A timer that gives these for the candidates of every key."""

    def timer(trial: Trial, bundles: Sequence[Path]) -> list[Sample]:
        assert all(path.is_file() for path in bundles)
        assert len({path.read_bytes() for path in bundles}) == len(bundles) == len(answers)
        return list(answers)

    return timer


def good_sample(us: float, *result: float) -> Sample:
    return Sample(us * 1e-6, np.array(result or (1.0, 2.0)))


@pytest.fixture
def on_the_null_driver(driver: NullDriver, monkeypatch: pytest.MonkeyPatch) -> NullDriver:
    monkeypatch.setattr(tuning, "device_target", partial(tuning.device_target, cuda_driver=driver.path))
    monkeypatch.setattr(timing, "DeviceTimer", partial(timing.DeviceTimer, cuda_driver=driver.path))
    monkeypatch.setattr(timing, "GuardedTimer", lambda inner: inner)  # the driver's log is that of this process
    return driver


def test_the_whole_command(on_the_null_driver: NullDriver, model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    text = good("tune", f"{model_file}:make", "-o", out)
    assert f"{out}, cuda:sm_90" in text
    assert all(key in text for key in KEYS)
    assert "2 keys timed, 0 kept as they were" in text
    table = read_table(out)
    assert (table.arch, table.compiler, sorted(table.entries)) == ("sm_90", TRITON, sorted(KEYS))
    log = on_the_null_driver.log()
    assert log.count("graph of 20") > 100, [line for line in log if line.startswith("graph")][:3]
    before = out.read_bytes()
    found = json.loads(good("tune", f"{model_file}:make", "-o", out, "--target", "cuda:sm_90", "--json"))
    assert found == {"table": str(out), "target": "cuda:sm_90", "entries": [], "kept": 2, "left": []}
    assert out.read_bytes() == before
    found = json.loads(good("tune", f"{model_file}:make", "-o", out, "--again", "--json"))
    assert [e["key"] for e in found["entries"]] == KEYS
    for entry in found["entries"]:
        assert [c["problem"] for c in entry["candidates"]] == ["", ""]
        assert entry["after_us"] <= entry["before_us"] == entry["candidates"][0]["us"]
    none_begun = json.loads(good("tune", f"{model_file}:make", "-o", tmp_path / "t.json", "--budget", 0, "--json"))
    assert none_begun["left"] == KEYS
    assert read_table(tmp_path / "t.json") == TuningTable("sm_90", TRITON)


def test_the_command_refuses(on_the_null_driver: NullDriver, model_file: Path, tmp_path: Path) -> None:
    spec, out = f"{model_file}:make", tmp_path / "t.json"
    assert refused("tune", spec, "-o", out, "--target", "cuda:sm_70") == (
        "cannot tune for target 'cuda:sm_70'; known targets: cuda:sm_80, cuda:sm_90, cuda:sm_100"
    )
    assert refused("tune", spec, "-o", out, "--target", "hip:gfx942") == (
        "cannot tune for target 'hip:gfx942': kernels are timed on a device, and Hardtack runs none for hip"
    )
    assert refused("tune", spec, "-o", tmp_path / "a" / "b") == (
        f"cannot write {tmp_path}/a/b: the directory {tmp_path}/a does not exist"
    )
    assert "Missing option '-o'" in run("tune", spec).stderr
    other = refused("tune", spec, "-o", out, "--target", "cuda:sm_80", status=1)
    assert other.startswith("device cuda:0: ")
    assert "sm_80" in other
    out.write_bytes(TuningTable("sm_80", TRITON).to_json())
    assert refused("tune", spec, "-o", out) == (
        f"{out} was measured on sm_80 with Triton {TRITON}; this is sm_90 with Triton {TRITON}: name another file"
    )
    out.write_text("no table")
    assert refused("tune", spec, "-o", out, status=1).startswith(f"{out}: not JSON: ")


def test_without_a_driver(model_file: Path, tmp_path: Path) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a device")
    text = refused("tune", f"{model_file}:make", "-o", tmp_path / "t.json", status=1)
    assert text.startswith("device cuda:0: there is no CUDA driver: libcuda.so.1: ")
    assert not (tmp_path / "t.json").exists()


def test_the_fastest_right_candidate_is_chosen() -> None:
    tuned = Tuner("cuda:sm_90", answering(good_sample(3.0), good_sample(2.5))).tune(KEYS[0])
    assert tuned.chosen == tuned.timed[1]
    same = Tuner("cuda:sm_90", answering(good_sample(2.5), good_sample(2.5))).tune(KEYS[0])
    assert same.chosen == same.timed[0]


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (good_sample(1.0, 1.0, 2.1), "its result is 4.5e-02 off the cost model's choice, allowed are 1e-05"),
        (good_sample(1.0, 1.0, np.nan), "its result is inf off the cost model's choice, allowed are 1e-05"),
        (Sample(problem="out of registers"), "out of registers"),
    ],
)
def test_wrong_candidates_are_excluded(sample: Sample, problem: str) -> None:
    tuned = Tuner("cuda:sm_90", answering(good_sample(3.0), sample)).tune(KEYS[0])
    assert tuned.timed[1].problem == problem
    assert tuned.chosen == tuned.timed[0]
    assert tuning.as_document(tuned)["after_us"] == pytest.approx(3.0)


def test_a_key_whose_first_candidate_fails_is_told() -> None:
    tuned = Tuner("cuda:sm_90", answering(Sample(problem="no memory"), good_sample(1.0))).tune(KEYS[0])
    assert (tuned.chosen, tuned.problem) == (None, "the cost model's choice cannot be timed: no memory")


def test_a_bug_of_the_compiler_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a key, so that the others are timed all the same; of the device's probe at once."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setitem(rules_on(Gpu), "matmul", broken)
    table = TuningTable("sm_90", TRITON)
    made, (tuned,), left = tuning.tune(KEYS[:1], Tuner("cuda:sm_90", answering()), table)
    assert (made, left, tuned.chosen) == (table, [], None)
    what, where, *_, last = tuned.problem.split("; ")
    assert what == "the code generation failed with ZeroDivisionError: of all things"
    assert where.startswith("in the lowering of ")
    assert last == "this is a bug of Hardtack, please report it"
    monkeypatch.setattr(tuning, "build_content", broken)
    with pytest.raises(hardtack.InternalError, match="the code generation failed with ZeroDivisionError"):
        tuning.device_target("cuda:0", "cuda:sm_90")


def test_what_a_device_refuses_is_told(driver: NullDriver) -> None:
    driver.set("FAIL", "cuLaunchKernelEx=701")
    tuned = Tuner("cuda:sm_90", timing.DeviceTimer("cuda:0", driver.path)).tune(KEYS[0])
    assert tuned.chosen is None
    assert tuned.problem.startswith("the cost model's choice cannot be timed: ")
    assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in tuned.problem


def test_a_timer_in_a_process_of_its_own(driver: NullDriver) -> None:
    inner = timing.DeviceTimer("cuda:0", driver.path)
    tuned = Tuner("cuda:sm_90", timing.GuardedTimer(inner)).tune(KEYS[0])
    assert [t.problem for t in tuned.timed] == ["", ""]
    assert tuned.chosen is not None
    impatient = Tuner("cuda:sm_90", timing.GuardedTimer(inner, limit_s=0.0)).tune(KEYS[0])
    assert impatient.chosen is None
    assert impatient.problem == "the cost model's choice cannot be timed: it did not end within 0 s"
    timing.close_servers()


def test_tables_grow_key_by_key_and_do_not_depend_on_order() -> None:
    tuner = Tuner("cuda:sm_90", answering(good_sample(3.0), good_sample(2.5)))
    empty, kept = TuningTable("sm_90", TRITON), list[int]()
    one, done, left = tuning.tune(KEYS, tuner, empty, keep=lambda t, _: kept.append(len(t.entries)))
    other, _, _ = tuning.tune(KEYS[::-1], tuner, empty)
    assert one.to_json() == other.to_json()
    assert (kept, len(done), left) == ([1, 2], 2, [])
    assert {e.measured_ns for e in one.entries.values()} == {2500}
    slower = Tuner("cuda:sm_90", answering(good_sample(4.0), good_sample(5.0)))
    assert tuning.tune(KEYS, slower, one)[:2] == (one, [])
    again, _, _ = tuning.tune(KEYS[:1], slower, one, again=True)
    assert [again.entries[k].measured_ns for k in KEYS] == [4000, 2500]


@pytest.fixture
def table_file(tmp_path: Path) -> Path:
    """A table that chooses the second candidate of one key."""
    plan = candidate_lists.candidates(shape_of(KEYS[0]), H200)[1]
    made = TuningTable("sm_90", TRITON, {KEYS[0]: TableEntry(plan_fields(plan), 1000)})
    path = tmp_path / "mine.json"
    path.write_bytes(made.to_json())
    return path


def producer_of(path: Path) -> Any:
    with open_bundle(path) as opened:
        return opened.manifest.producer


def test_an_export_takes_a_table_and_records_it(model_file: Path, table_file: Path, tmp_path: Path) -> None:
    spec, mine = f"{model_file}:make", read_table(table_file)
    paths = [tmp_path / name for name in ("plain.pkg", "a.pkg", "b.pkg")]
    good("export", spec, "-o", paths[0], "--target", "cuda:sm_90")
    for path in paths[1:]:
        good("export", spec, "-o", path, "--target", "cuda:sm_90", "--tuning", table_file)
    assert paths[1].read_bytes() == paths[2].read_bytes()
    shipped = producer_of(paths[0])["tuning"].removeprefix("cuda:sm_90 ")
    assert shipped.startswith("shipped ")
    assert producer_of(paths[1])["tuning"] == f"cuda:sm_90 user {mine.sha256}, {shipped}"
    texts = [
        good("export", spec, "--stop-after", "lower", "--target", "cuda:sm_90", *more)
        for more in ((), ("--tuning", table_file))
    ]
    assert f"user table: 1.00 us, measured with Triton {TRITON}" in texts[1]
    assert "user table" not in texts[0]
    assert texts[0].count("cost model: ") > texts[1].count("cost model: ") > 0


def test_an_export_without_any_table(tmp_path: Path) -> None:
    """A shape that the shipped table has gets the cost model's plan, and no table is recorded."""
    module = torch.nn.Linear(512, 512, bias=False, dtype=torch.bfloat16).eval()
    args = (torch.ones(64, 512, dtype=torch.bfloat16),)
    infos = {
        tuning: hardtack.export(
            module,
            args,
            path=tmp_path / f"{tuning}.pkg",
            targets=("cuda:sm_90",),
            options=hardtack.Options(tuning=tuning),
        )
        for tuning in (None, "none")
    }
    assert {t: (i.num_shapes, i.num_tuned) for t, i in infos.items()} == {None: (1, 1), "none": (1, 0)}
    assert "tuning" in producer_of(infos[None].path)
    assert "tuning" not in producer_of(infos["none"].path)


def test_the_command_without_any_table(model_file: Path, table_file: Path, tmp_path: Path) -> None:
    spec, out = f"{model_file}:make", tmp_path / "m.pkg"
    arguments = ("export", spec, "--target", "cuda:sm_90", "--tuning")
    assert "\nshapes: 2, of which a tuning table has 1\n" in good(*arguments, table_file, "-o", out)
    assert "\nshapes: 2, of which a tuning table has 0\n" in good(*arguments, "none", "-o", out)
    assert "table: " not in good(*arguments, "none", "--stop-after", "lower")
    assert refused("export", spec, "-o", out, "--target", "cpu:x86-64-v3", "--tuning", "none") == (
        'the tuning "none" is for GPU targets, none are shipped for others; the targets are cpu:x86-64-v3'
    )
    with pytest.raises(TargetError, match='the tuning "none" is for GPU targets'):
        hardtack.export(torch.nn.ReLU(), (torch.ones(2),), path=out, options=hardtack.Options(tuning="none"))


def test_an_export_refuses_tables(model_file: Path, table_file: Path, tmp_path: Path) -> None:
    spec, out = f"{model_file}:make", tmp_path / "m.pkg"
    assert refused("export", spec, "-o", out, "--target", "cuda:sm_80", "--tuning", table_file) == (
        "the tuning table is for cuda:sm_90; the targets are cuda:sm_80"
    )
    assert "File 'none.json' does not exist" in refused("export", spec, "-o", out, "--tuning", "none.json")
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert refused("export", spec, "-o", out, "--target", "cuda:sm_90", "--tuning", bad, status=1) == (
        f"{bad}: the key 'format' is missing"
    )
