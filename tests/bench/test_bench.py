"""Outputs are compared, ratios are taken round by round, and the summary names who is ahead."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from bench import gpu_report, models, report
from bench import measure as measuring
from bench.measure import Measured, Result, Settings, geometric_mean
from bench.serving_beside import interval
from bench.worker import Failed, difference, timed


def measured(model: str, threads: int = 1, **rounds: list[float]) -> Measured:
    return Measured(model, threads, {name: Result(times, min(times), 0.0) for name, times in rounds.items()})


def test_difference_is_relative_to_the_largest_value() -> None:
    expected = [np.array([4.0, -8.0], np.float32), np.array([1, 2])]
    assert difference([np.array([4.0, -7.0], np.float32), np.array([1, 2])], expected) == 0.125
    assert difference([np.array([4.0, np.nan], np.float32), np.array([1, 2])], expected) == math.inf
    with pytest.raises(Failed, match=r"gives shapes \[\(2,\)\], eager \[\(2,\), \(2,\)\]"):
        difference([np.zeros(2)], expected)


def test_ratio_is_the_median_over_rounds() -> None:
    m = measured("m", eager=[10.0, 40.0, 9.0], hardtack=[5.0, 4.0, 3.0])
    assert m.ratio("eager", "hardtack") == 3.0
    assert math.isnan(m.ratio("ort", "hardtack"))


def test_an_interval_is_the_median_and_the_order_statistics_around_it() -> None:
    values = [0.9, *(1 + i / 1000 for i in range(68)), 3.0]
    assert interval(values) == "1.034 (1.026 to 1.042)"
    assert interval([2.0]) == "2.000 (2.000 to 2.000)"


def test_best_ignores_what_failed() -> None:
    m = measured("m", eager=[3.0], ort=[2.0])
    m.results["aoti"] = Result(failure="no compiler")
    assert m.best(("eager", "aoti", "ort")) == "ort"


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_summary_says_where_a_peer_is_ahead() -> None:
    ahead = measured("slow", eager=[9.0], ort=[2.0], hardtack=[4.0])
    behind = measured("quick", eager=[8.0], ort=[6.0], hardtack=[2.0])
    failed = Measured("broken", 1, {"eager": Result([1.0], 1.0), "hardtack": Result(failure="no such op")})
    lines = report.summary([ahead, behind, failed], ("ort", "hardtack"))
    assert lines == [
        "broken, 1 threads: Hardtack fails: no such op",
        "1 thread: Hardtack is 3.00 times as fast as eager, geometric mean of 2.",
        "1 thread: Hardtack is 1.22 times as fast as ONNX Runtime, geometric mean of 2.",
        "1 thread: a peer is ahead on 1 of 2: slow (ONNX Runtime, 2.00 times as fast).",
    ]


def test_grid_marks_the_fastest() -> None:
    grid = report.grid([measured("m", eager=[9.0], ort=[20.0], hardtack=[4.0])], ("ort", "hardtack"), 1)
    assert grid.markdown().splitlines()[-1] == "| m | 9.00 | 20.0 | **4.00** | 2.25 | 5.00 |"


def test_timed_runs_at_least_three_times() -> None:
    calls: list[int] = []
    assert len(timed(lambda: calls.append(1), 0.0)) == 3
    assert len(calls) == 4  # the first one is not timed


def test_models_are_the_same_in_every_process() -> None:
    one, other = models.build("mlp_b1"), models.build("mlp_b1")
    assert all(np.array_equal(a, b) for a, b in zip(one.args, other.args, strict=True))
    weights = zip(one.module.parameters(), other.module.parameters(), strict=True)
    assert all(np.array_equal(a, b) for a, b in weights)


def test_hardtack_is_measured_beside_eager(tmp_path: Path) -> None:
    pytest.importorskip("hardtack._native")
    (found,) = measuring.measure("mlp_b1", ("hardtack",), (1,), Settings(tmp_path, 2, 0.01), lambda text: None)
    assert set(found.results) == {"eager", "hardtack"}
    hardtack = found.results["hardtack"]
    assert hardtack.failure is None
    assert hardtack.error < 1e-5
    assert len(hardtack.rounds) == 2
    assert hardtack.export_seconds is not None


def test_a_wrong_output_is_not_timed(tmp_path: Path) -> None:
    pytest.importorskip("hardtack._native")
    settings = Settings(tmp_path, 2, 0.01, tolerance=-1.0)
    (found,) = measuring.measure("mlp_b1", ("hardtack",), (1,), settings, lambda text: None)
    hardtack = found.results["hardtack"]
    assert hardtack.rounds == []
    assert hardtack.failure is not None
    assert hardtack.failure.startswith("differs from eager by ")


def test_gpu_models_are_what_they_say() -> None:
    from bench import gpu_models

    case = gpu_models.build("mlp_b64", device="cpu")
    assert case.module(*case.args).shape == (64, 10)
    assert {p.dtype for p in case.module.parameters()} == {torch.bfloat16}
    decoder = gpu_models.Decoder(64, 2, 4, 2, 128, 100, 16).requires_grad_(False)
    assert decoder(torch.tensor([[3]]), torch.tensor([5])).shape == (1, 1, 100)
    assert decoder.layers[1].keys[0, :, 5].abs().min() > 0
    assert decoder.layers[1].keys[0, :, 4].abs().max() == 0


def test_models_are_made_ready_together_and_then_timed(tmp_path: Path) -> None:
    pytest.importorskip("hardtack._native")
    told: list[str] = []
    settings = Settings(tmp_path, 2, 0.01)
    found = list(
        measuring.measure_together(("mlp_b1", "no such model", "mlp_b64"), ("hardtack",), 1, settings, told.append)
    )
    assert [(m.model, len(m.results["hardtack"].rounds)) for m in found] == [("mlp_b1", 2), ("mlp_b64", 2)]
    assert sorted(t.split(" after")[0] for t in told[:2]) == ["mlp_b1 is ready", "mlp_b64 is ready"]
    assert told[2:] == ["no such model is left out: eager fails: KeyError: 'no such model'"]


def on_gpu(model: str, shapes: tuple[int, int], **ms: float) -> Measured:
    """Two rounds of the same time; runs one behind the other take 1 ms less."""
    results = {name: Result([t, t], t - 1, 0.01) for name, t in ms.items()}
    results["hardtack"].shapes = shapes
    return Measured(model, 0, results)


def test_the_gpu_table_says_who_is_ahead() -> None:
    found, systems = [on_gpu("softmax", (0, 0), eager=4.0, hardtack=2.0)], ("eager", "hardtack")
    assert gpu_report.columns_of(systems) == (
        "model", "eager", "hardtack", "best peer / hardtack", "in the table", "of copy"
    )  # fmt: skip
    assert gpu_report.rows_of(found, systems, 4e12) == [
        ("softmax", "4.00 / 3.00", "2.00 / 1.00", "2.00 (eager)", "0 of 0", "13%")
    ]
    assert gpu_report.sentences(found, systems) == [
        "Hardtack is 2.00 times as fast as the best peer, geometric mean of 1; a peer is ahead on 0.",
        "The tuning table has 0 of 0 shapes, and none of 1 of 1 models.",
    ]


def test_the_gpu_table_says_what_the_tuning_table_did() -> None:
    systems = ("eager", "graph", "hardtack", "untuned")
    found = [
        on_gpu("known", (3, 4), eager=9.0, graph=8.0, hardtack=2.0, untuned=4.0),
        on_gpu("unknown", (0, 5), eager=3.0, graph=6.0, hardtack=4.0, untuned=4.0),
    ]
    assert gpu_report.rows_of(found, systems, 4e12)[0][5:] == ("4.00 (graph)", "2.00 (graph)", "3 of 4", "")
    assert gpu_report.line(found[1], systems) == (
        "unknown: eager 3.00 / 2.00; graph 6.00 / 5.00 (off by 1.0e-02); hardtack 4.00 / 3.00 (off by 1.0e-02); "
        "untuned 4.00 / 3.00 (off by 1.0e-02); in the table: 0 of 5"
    )
    assert gpu_report.sentences(found, systems) == [
        "Hardtack is 1.73 times as fast as the best peer, geometric mean of 2; a peer is ahead on 1.",
        "Without a tuning table it is 1.22 times as fast as the best peer, geometric mean of 2; a peer is ahead on 1.",
        "The tuning table has 3 of 9 shapes, and none of 1 of 2 models.",
        "Where it has some, it makes the model 2.00 times as fast, geometric mean of 1.",
    ]
    page = gpu_report.page(found, systems, 4e12, "A GPU.")
    assert page.startswith("A GPU.\n\nCopy: 4.00 TB/s.\n\n| model | eager | graph | hardtack | untuned |")
    assert (
        "| unknown | 3.00 / 2.00 | 6.00 / 5.00 | 4.00 / 3.00 | 4.00 / 3.00 | 0.75 (eager) | 0.75 (eager) | 0 of 5 |  |"
        in page
    )


def test_a_wrong_result_on_a_gpu_is_no_timing() -> None:
    found = on_gpu("m", (0, 1), eager=2.0, hardtack=1.0)
    found.results["hardtack"] = Result(error=0.5, failure="differs from eager by 5.0e-01 of the largest value")
    assert gpu_report.line(found, ("eager", "hardtack")).endswith(
        "hardtack FAILS: differs from eager by 5.0e-01 of the largest value; in the table: -"
    )
    assert gpu_report.rows_of([found], ("eager", "hardtack"), 4e12) == [("m", "2.00 / 1.00", "-", "- (eager)", "", "")]
    settings = Settings(Path(), tolerance=0.06, tolerance_f32=0.01)
    assert (settings.allowed("m"), settings.allowed("m_f32")) == (0.06, 0.01)


def test_the_gpu_command_names_its_sets() -> None:
    from bench import gpu, gpu_models, gpu_others

    listed = CliRunner().invoke(gpu.main, ["--list"]).stdout.split()
    others = CliRunner().invoke(gpu.main, ["--others", "--list"]).stdout.split()
    assert (tuple(listed), tuple(others)) == (gpu_models.names(), gpu_others.names())
    wrong = CliRunner().invoke(gpu.main, ["--others", "--models", "mlp_b1"])
    assert wrong.exit_code == 2
    assert "'mlp_b1' is not one of roberta_448_s77_b5, " in wrong.stderr
    alone = CliRunner().invoke(gpu.main, ["--together", "--systems", "max,hardtack"])
    assert alone.exit_code == 2
    assert "max times kernels, which takes the GPU alone" in alone.stderr
