"""hardtack tune on this machine's CPU: the whole command, and what it refuses. No test asserts which candidate wins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from hardtack import cpu_tuning
from hardtack.codegen.machine import host
from hardtack.codegen.machine.data import X86_64_V3
from hardtack.codegen.machine.host import host_kind, native_cpu
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.tune.choice import plan_fields, shape_of
from hardtack.codegen.tune.cut_plan import cut_candidates
from hardtack.codegen.tune.table import TableEntry, TuningTable, read_table
from hardtack.codegen.tune.trial import Trial
from hardtack.cpu_tuning import CpuTuner
from hardtack.timing import Sample
from tests.support.commands import good, refused

MODEL = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3000, 96), torch.nn.ReLU(), torch.nn.Linear(96, 32)).eval(), (torch.ones(40, 3000),)
"""  # noqa: E501
KEYS = [f"cpu_gemm batch=1 m=40 n={n} k={k} dtype=f32 constant=1 rows_dense=1" for n, k in ((96, 3000), (32, 96))]
PLAN = {"depth": 512, "right": "by_size"}


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "two.py").write_text(MODEL)
    return f"{tmp_path}/two.py:make"


def test_the_whole_command(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_tuning, "ROUND_SECONDS", 1e-4)
    out = tmp_path / "table.json"
    text = good("tune", spec, "--target", "cpu:native", "-o", out, "--threads", 2)
    assert "2 keys timed, 0 kept as they were" in text
    table = read_table(out)
    assert (table.arch, table.cpu, sorted(table.entries)) == (native_cpu().level, host_kind(), sorted(KEYS))
    found = json.loads(good("tune", spec, "--device", "cpu", "-o", out, "--json"))
    assert found == {"table": str(out), "target": "cpu:native", "entries": [], "kept": 2, "left": []}
    again = json.loads(good("tune", spec, "--target", "cpu:native", "-o", out, "--json", "--again"))
    for entry in again["entries"]:
        assert [c["problem"] for c in entry["candidates"]] == [""] * len(entry["candidates"])
        assert len(entry["candidates"]) == len(cut_candidates(shape_of(entry["key"]), native_cpu()))  # type: ignore[arg-type]
    model = tmp_path / "m.pkg"
    shown = good("export", spec, "--target", "cpu:native", "--tuning", out, "-o", model)
    assert "shapes: 2, of which a tuning table has 2" in shown


def test_an_export_takes_a_table_and_records_it(spec: str, tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    made = TuningTable("x86-64-v3", "zig 1", {KEYS[0]: TableEntry(PLAN, 1000)}, "another machine")
    table.write_bytes(made.to_json())
    paths = [tmp_path / f"{k}.pkg" for k in range(2)]
    for path in paths:
        good("export", spec, "-o", path, "--target", "cpu", "--tuning", table)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with open_bundle(paths[0]) as opened:
        assert opened.manifest.producer["tuning"] == f"cpu:x86-64-v3 user {made.sha256}"
    text = good("export", spec, "--stop-after", "render", "--target", "cpu:x86-64-v3", "--tuning", table)
    assert "ht::TunedBlocks<float, 512, ht::Right::kBySize>" in text
    made = TuningTable("x86-64-v3", "zig 1", {KEYS[0]: TableEntry({**PLAN, "depth": 7}, 1000)}, "another machine")
    table.write_bytes(made.to_json())
    assert refused("export", spec, "-o", paths[0], "--target", "cpu", "--tuning", table, status=1) == (
        f"{table}: entries[{KEYS[0]!r}].plan: depth is 7; it must be a multiple of 32 from 32 to 2048"
    )


def test_the_command_refuses(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "t.json"
    assert refused("tune", spec, "-o", out, "--target", "cpu") == (
        "cannot tune for target 'cpu': it stands for cpu:x86-64-v4, cpu:x86-64-v3; name one, or cpu:native"
    )
    assert refused("tune", spec, "-o", out, "--target", "cpu:z80").startswith(
        "cannot tune: unknown target 'cpu:z80'; known targets: cpu, "
    )
    assert refused("tune", spec, "-o", out, "--target", "cpu:native", "--device", "cuda:0") == (
        "--device cuda:0 cannot time kernels for --target cpu:native"
    )
    assert refused("tune", spec, "-o", out, "--target", "cuda:sm_90", "--threads", 2) == (
        "--threads is for CPUs; a GPU has no such number"
    )
    assert refused("tune", spec, "-o", out, "--device", "tpu") == (
        "--device tpu: only kernels of CUDA devices and of this CPU are tuned: cuda:0, or cpu"
    )
    other = TuningTable("x86-64-v3", "zig 1", {}, "another machine")
    out.write_bytes(other.to_json())
    cpu = native_cpu()
    told = refused("tune", spec, "-o", out, "--target", "cpu:native")
    assert told.startswith(f"{out} was measured on x86-64-v3 with zig 1 on another machine; this is {cpu.level} with ")
    assert told.endswith(f" on {host_kind()}: name another file")
    monkeypatch.setattr(cpu_tuning, "native_cpu", lambda: X86_64_V3)
    assert refused("tune", spec, "-o", out, "--target", "cpu:x86-64-v4") == (
        "cannot tune for target 'cpu:x86-64-v4': this machine's CPU lacks avx512f, avx512bw, avx512cd, avx512dq, "
        "avx512vl"
    )
    assert refused("tune", spec, "-o", out, "--target", "cpu:aarch64") == (
        "cannot tune for target 'cpu:aarch64': this machine is x86_64"
    )
    assert host.host_kind is host_kind


def answering(*answers: Sample) -> cpu_tuning.Timer:
    """A timer that gives these for the first candidates, and for the others what the first has."""

    def timer(trial: Trial, bundle: Path, names: Sequence[str], threads: Sequence[int]) -> list[Sample]:
        assert bundle.is_file()
        assert len(names) == len(set(names)) > len(answers)
        return [*answers, *(answers[0] for _ in range(len(names) - len(answers)))]

    return timer


def sample(us: float, *result: float) -> Sample:
    return Sample(us * 1e-6, np.array(result or (1.0, 2.0)))


def test_the_fastest_right_candidate_is_chosen_where_it_is_more_than_noise() -> None:
    def chosen(*answers: Sample) -> tuple[int, str]:
        tuned = CpuTuner("cpu:native", (1,), answering(*answers)).timed(KEYS[0])
        assert tuned.chosen is not None
        return tuned.timed.index(tuned.chosen), tuned.timed[1].problem

    assert chosen(sample(3.0), sample(2.5)) == (1, "")
    assert chosen(sample(3.0), sample(2.97)) == (0, "")
    wrong = "its result is 4.5e-02 off the cost model's choice, allowed are 1e-05"
    assert chosen(sample(3.0), sample(1.0, 1.0, 2.1)) == (0, wrong)


@pytest.mark.parametrize(
    "key",
    [
        "cpu_gemm batch=2 m=100 n=70 k=3000 dtype=f32 constant=0 rows_dense=1",
        "cpu_conv points=100 channels_in=100 channels_out=40 groups=1 taps=9 step=2 dtype=bf16",
        *(
            pytest.param(key, marks=pytest.mark.sweep(only=True))
            for key in (
                "cpu_gemm batch=1 m=30 n=70 k=3000 dtype=bf16 constant=0 rows_dense=0",
                "cpu_gemm batch=1 m=60 n=70 k=2500 dtype=bf16 constant=1 rows_dense=1",
                "cpu_gemm batch=1 m=60 n=70 k=2500 dtype=f16 constant=1 rows_dense=1",
                "cpu_conv points=100 channels_in=300 channels_out=40 groups=1 taps=9 step=1 dtype=f32",
            )
        ),
    ],
)
def test_all_candidates_compute_the_same(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_tuning, "ROUND_SECONDS", 1e-4)
    tuned = CpuTuner("cpu:native", (1, 2), cpu_tuning.time_entries, 2).timed(key)
    assert tuned.chosen is not None, tuned.problem
    assert len(tuned.timed) >= 3
    assert [t.problem for t in tuned.timed] == [""] * len(tuned.timed)


def test_plans_of_tables_are_those_of_candidates() -> None:
    shape = shape_of(KEYS[0])
    assert set(plan_fields(cut_candidates(shape, X86_64_V3)[0])) == set(PLAN)  # type: ignore[arg-type]
