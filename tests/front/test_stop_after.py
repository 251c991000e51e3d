"""hardtack export --stop-after: the text of one stage, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hardtack.cli import main
from hardtack.codegen.targets import STAGES

MODEL = """
import torch

class Small(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def small():
    return Small().eval(), (torch.ones(2, 4),)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "stop_after_model.py"
    path.write_text(MODEL)
    return f"{path}:small"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", *arguments], prog_name="hardtack")


def test_prints_the_stage_and_stops(spec: str) -> None:
    graph = run(spec, "--stop-after", "graph")
    assert graph.exit_code == 0, graph.output
    assert "relu: f32[2, 4] = max(0.0:f32, x)" in graph.stdout
    lower = run(spec, "--stop-after", "lower")
    assert "nest relu (parallel i0<2, parallel i1<4)   # aten.relu at " in lower.stdout


def test_json_is_by_entry(spec: str) -> None:
    found = json.loads(run(spec, "--stop-after", "plan", "--json").stdout)
    assert list(found) == ["forward"]
    assert found["forward"].startswith("plan forward for ")


def test_wrong_use(spec: str, tmp_path: Path) -> None:
    unknown = run(spec, "--stop-after", "guess")
    assert unknown.exit_code == 2
    assert all(f"'{stage}'" in unknown.output for stage in STAGES)
    neither = run(spec)
    assert neither.exit_code == 2
    assert neither.output == "error: name the bundle to write with -o, or a stage with --stop-after\n"
