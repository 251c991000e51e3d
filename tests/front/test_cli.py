"""The command `hardtack`: what it prints, its exit statuses, its exact errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hardtack.cli import main

MODEL = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.layer(x)) + {bias}

def small():
    batch = torch.export.Dim("batch", max=16)
    return Small().eval(), (torch.ones(2, 4),), {{}}, ({{0: batch}},)

def wrong():
    return "a model"
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")


def good(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def document(*arguments: str | Path) -> Any:
    return json.loads(good(*arguments, "--json"))


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small_model.py"
    path.write_text(MODEL.format(bias=1))
    return path


@pytest.fixture(scope="module")
def exported(model_file: Path) -> Path:
    path = model_file.with_name("small.pkg")
    good("export", f"{model_file}:small", "-o", path, "--target", "cpu:x86-64-v3", "--debug")
    return path


@pytest.mark.parametrize(
    "command", ["export", "tune", "inspect", "verify", "run", "bench", "compare", "diff", "weights", "keygen", "sign"]
)
def test_help_of_every_command(command: str) -> None:
    text = good(command, "--help")
    assert text.startswith(f"Usage: hardtack {command} ")
    assert "--json" in text
    assert command in good("--help")


def test_export_reports(model_file: Path, tmp_path: Path) -> None:
    found = document("export", f"{model_file}:small", "-o", tmp_path / "m.pkg", "--target", "cpu:x86-64-v3")
    assert found["entries"] == ["forward"]
    assert found["targets"] == ["cpu:x86-64-v3"]
    assert found["nbytes"] == (tmp_path / "m.pkg").stat().st_size
    assert found["num_kernels"] >= 1
    assert set(found["seconds"]) == {"capture", "generate", "compile", "write"}


def test_inspect(bundle: Path) -> None:
    text = good("inspect", bundle, "--members", "--constants")
    assert "entry point forward" in text
    assert "x: f32" not in text
    assert "f32[n, 4]" in text
    assert "where 0 <= n <= 64" in text
    assert "calls  i64[]  start" in text
    assert "debug/note.txt" in text
    assert "f32[2, 2]     16  layer.scale" in text
    assert document("inspect", bundle)["entries"][0]["name"] == "forward"


def test_inspect_lists_a_plan(bundle: Path) -> None:
    text = good("inspect", bundle, "--plan", "forward")
    assert text.startswith("plan forward for cpu:x86-64-v3, arena 1088 bytes\n")
    assert "  launch k_scale(x, scale, t; n, 4)   # aten.mul.Tensor model.py:12\n" in text


def test_verify_says_what_was_proved(bundle: Path) -> None:
    assert "is sound: 6 members" in good("verify", bundle)
    found = document("verify", bundle)
    assert (found["ok"], found["num_plans"], found["num_instructions"]) == (True, 2, 4)


def test_verify_refuses(bundle: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkg"
    bad.write_bytes(bundle.read_bytes()[:-1])
    problem = f"{bad}: container: no end record in the last 22 bytes: not a bundle, or cut short"
    result = run("verify", bad)
    assert (result.exit_code, result.stderr) == (1, f"error: {problem}\n")
    result = run("verify", bad, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"ok": False, "problem": problem})


def test_run_writes_outputs(bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    out = tmp_path / "results"
    text = good("run", bundle, "--entry", "forward", "-i", f"x={tmp_path}/x.npy", "-o", out)
    assert "y      float32  2x4" in text
    np.testing.assert_array_equal(np.load(out / "y.npy"), [[1, 4, 9, 0.25]] * 2)
    assert np.load(out / "calls.npy") == 5
    found = document("run", bundle, "--entry", "forward", "-i", f"x={tmp_path}/x.npy")
    assert found["outputs"][0] == {
        "name": "y",
        "dtype": "float32",
        "shape": [2, 4],
        "min": 0.25,
        "mean": 3.5625,
        "max": 9.0,
    }


def test_bench(bundle: Path) -> None:
    found = document("bench", bundle, "--entry", "forward", "--size", "n=8", "--seconds", "0.02", "--threads", "1")
    assert found["inputs"] == {"x": [8, 4]}
    assert found["runs"] >= 5
    assert found["p10_ms"] <= found["median_ms"] <= found["p90_ms"]
    assert "median of" in good("bench", bundle, "--entry", "copy", "--seconds", "0.02")


def test_compare(exported: Path, model_file: Path) -> None:
    found = document("compare", exported, f"{model_file}:small", "--steps")
    assert found["ok"]
    assert [o["name"] for o in found["outputs"]] == ["output"]
    assert len(found["steps"]) >= 1
    assert "small_model.py" in found["steps"][-1]["where"]
    assert "BAD" not in good("compare", exported, f"{model_file}:small", "--steps")


COUNTER = """
import torch

class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen += x.sum(0)
        return self.seen * 2

def counter():
    return Counter().eval(), (torch.ones(2, 3),)
"""


def test_compare_steps_that_write_states(tmp_path: Path) -> None:
    """A step that writes a state gives its new value; the graph's value of that name is the old one."""
    path, bundle = tmp_path / "counter_model.py", tmp_path / "counter.pkg"
    path.write_text(COUNTER)
    good("export", f"{path}:counter", "-o", bundle, "--target", "cpu:x86-64-v3")
    found = document("compare", bundle, f"{path}:counter", "--steps")
    assert (found["ok"], "seen" in [s["name"] for s in found["steps"]]) == (True, True)


def test_compare_finds_another_model(exported: Path, tmp_path: Path) -> None:
    other = tmp_path / "other_model.py"
    other.write_text(MODEL.format(bias=2))
    result = run("compare", exported, f"{other}:small", "--steps")
    assert result.exit_code == 1
    assert "the first step outside the tolerance is " in result.stdout
    assert "BAD" in result.stdout


def test_diff(bundle: Path, exported: Path) -> None:
    assert good("diff", bundle, bundle) == f"{bundle} and {bundle} are equal in every byte\n"
    result = run("diff", bundle, exported, "--json")
    assert result.exit_code == 1
    changes = json.loads(result.stdout)["changes"]
    assert {"what": "producer", "name": "compiler", "a": "none"}.items() <= next(
        c for c in changes if c["what"] == "producer" and c["name"] == "compiler"
    ).items()
    assert any(c["what"] == "kernel" and c["name"] == "k_scale" and c["a"] == "2 launches" for c in changes)


def test_debug_listings_are_kept(exported: Path) -> None:
    names = [m["name"] for m in document("inspect", exported)["members"]]
    assert "debug/forward.plan.txt" in names


def error(*arguments: str | Path, status: int = 2) -> str:
    """The error line of a command that is refused."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def test_export_refuses_places_before_it_works(tmp_path: Path) -> None:
    assert error("export", "none:none", "-o", tmp_path) == (
        f"cannot write {tmp_path}: it is a directory; name a file, such as {tmp_path}/model.pkg"
    )
    assert error("export", "none:none", "-o", tmp_path / "a" / "b") == (
        f"cannot write {tmp_path}/a/b: the directory {tmp_path}/a does not exist"
    )


def test_export_refuses_specs(model_file: Path, tmp_path: Path) -> None:
    def refused(spec: str) -> str:
        return error("export", spec, "-o", tmp_path / "m.pkg")

    assert refused("model") == "SPEC 'model' is neither a .pt2 file nor MODULE:FUNCTION"
    assert refused("none.pt2") == "there is no file 'none.pt2'"
    assert refused("none.py:f") == "there is no file 'none.py'"
    assert refused("no_such_module:f") == "there is no module 'no_such_module' here or on the Python path"
    assert refused(f"{model_file}:large") == f"{model_file} has no function 'large'"
    assert refused(f"{model_file}:wrong") == (
        f"{model_file}:wrong must return (module, args[, kwargs[, dynamic_shapes]]); it returned a str"
    )
    assert not (tmp_path / "m.pkg").exists()


def test_export_refuses_targets(tmp_path: Path) -> None:
    assert error("export", "a:b", "-o", tmp_path / "m.pkg", "--target", "toaster") == (
        "unknown target 'toaster'; known targets: cpu, cpu:amx, cpu:x86-64-v4-bf16, cpu:x86-64-v4, cpu:x86-64-v3, "
        "cpu:aarch64-bf16, cpu:aarch64, cpu:native, cuda:sm_80, cuda:sm_90, cuda:sm_100, hip:gfx942"
    )


def test_export_says_what_a_model_does_wrong(tmp_path: Path) -> None:
    path = tmp_path / "training.py"
    path.write_text(MODEL.format(bias=1).replace(".eval()", ".train()"))
    text = error("export", f"{path}:small", "-o", tmp_path / "m.pkg", status=1)
    assert "training" in text
    assert not (tmp_path / "m.pkg").exists()


def test_run_refuses(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.ones((2, 5), np.float32))
    assert error("run", bundle, "-i", "x") == "-i 'x' is not NAME=VALUE"
    assert error("run", bundle, "-i", f"x={file}", "-i", f"x={file}") == "-i names 'x' twice"
    assert error("run", bundle, "-i", "x=none.npy") == "input 'x': there is no file 'none.npy'"
    text = tmp_path / "text.npy"
    text.write_text("no array")
    assert error("run", bundle, "-i", f"x={text}").startswith(f"input 'x': '{text}' is not a .npy file: ")
    assert error("run", bundle, "-i", f"x={bundle}").startswith(f"input 'x': '{bundle}' is an archive")
    assert error("run", bundle, "-o", file) == f"cannot write outputs to {file}: it is a file"
    assert error("run", bundle, "-i", f"x={file}") == (
        "the bundle has several entry points, name one with --entry: forward, copy"
    )
    assert error("run", bundle, "--entry", "forward", "-i", f"x={file}", status=1) == (
        'input "x" (0 of entry "forward"): dimension 1 is 5, expected 4'
    )
    assert error("run", bundle, "--entry", "forward", status=1) == "forward lacks the input 'x'; its inputs are: x"


def test_bench_refuses(bundle: Path) -> None:
    assert error("bench", bundle, "--entry", "copy", "--size", "n=3") == "copy has no symbol 'n'; it has: none"
    assert error("bench", bundle, "--entry", "forward", "--size", "n=x") == "--size n=x: 'x' is not a number"


def test_inspect_refuses(bundle: Path) -> None:
    assert error("inspect", bundle, "--plan", "back") == "the bundle has no entry point 'back'; it has: forward, copy"
    assert error("inspect", bundle, "--plan", "copy", "--target", "cpu:z") == (
        "the bundle has no target 'cpu:z'; it has: cpu:x86-64-v3"
    )


def test_missing_bundle() -> None:
    result = run("inspect", "none.pkg")
    assert result.exit_code == 2
    assert "File 'none.pkg' does not exist." in result.stderr
    assert run("toast").exit_code == 2


def test_weights_outside_of_the_bundle(exported: Path, model_file: Path, tmp_path: Path) -> None:
    bundle, weights = tmp_path / "m.pkg", tmp_path / "elsewhere"
    spec = f"{model_file}:small"
    printed = good("export", spec, "-o", bundle, "--target", "cpu:x86-64-v3", "--debug", "--external-weights")
    assert f"weights in {tmp_path / 'm.safetensors'}" in printed
    assert "in m.safetensors, which goes with it" in good("inspect", bundle)
    good("verify", bundle)
    assert "BAD" not in good("compare", bundle, spec)
    changes = json.loads(run("diff", exported, bundle, "--json").stdout)["changes"]
    assert {(c["what"], c["name"]) for c in changes} == {
        ("member", "m.safetensors"),
        ("member", "weights.safetensors"),
    }
    (tmp_path / "m.safetensors").rename(weights)
    good("inspect", bundle)
    x = tmp_path / "x.npy"
    np.save(x, np.ones((2, 4), np.float32))
    for command in (
        ("verify", bundle),
        ("run", bundle, "-i", f"x={x}"),
        ("bench", bundle, "--seconds", "0.01"),
        ("compare", bundle, spec),
    ):
        refused = run(*command)
        assert refused.exit_code == 1
        assert f"{tmp_path / 'm.safetensors'}" in refused.stderr
        good(*command, "--weights", weights)
    assert run("diff", exported, bundle, "--weights-b", weights).exit_code == 1
    assert run("diff", bundle, bundle, "--weights-a", weights, "--weights-b", weights).exit_code == 0
