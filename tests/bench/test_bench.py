"""Outputs are compared, ratios are taken round by round, and the summary names who is ahead."""

from __future__ import annotations

import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from bench import gpu_report, models, report, shares, vision
from bench import measure as measuring
from bench.__main__ import main
from bench.measure import Measured, Result, Settings, geometric_mean
from bench.serving_beside import interval
from bench.systems import BY_DTYPE, SYSTEMS, check_precision
from bench.work import Work, work_of
from bench.worker import Failed, difference, timed


@pytest.fixture(scope="module")
def imported_once() -> None:
    """Processes of systems begin as copies of one that has imported what a model and its export take: ten seconds for
    each process, of which a measurement has two and more."""
    needed = ("bench.worker", "bench.systems", "bench.models", "hardtack.api", "torch._dynamo", "torch.export._trace")
    multiprocessing.set_forkserver_preload([*needed])


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
        "1 thread: Hardtack is 1.22 times as fast as the best of all others on each model, geometric mean of 2.",
        "1 thread: Hardtack fails on 1 of 3: broken.",
        "1 thread: a peer is ahead on 1 of 2: slow (ONNX Runtime, 2.00 times as fast).",
    ]


def test_the_best_peer_is_chosen_row_by_row() -> None:
    rows = [
        measured("a", eager=[9.0], aoti=[4.0], ort=[6.0], openvino=[5.0], hardtack=[2.0]),
        measured("b", eager=[9.0], aoti=[6.0], ort=[5.0], openvino=[4.0], hardtack=[2.0]),
        measured("c", eager=[9.0], aoti=[6.0], ort=[1.0], openvino=[4.0], hardtack=[2.0]),
        measured("tied", eager=[9.0], openvino=[1.95], hardtack=[2.0]),
    ]
    assert [report.against_best(m) for m in rows] == [
        ("aoti", 2.0),
        ("openvino", 2.0),
        ("ort", 0.5),
        ("openvino", 0.975),
    ]
    lines = report.summary(rows, ("aoti", "ort", "openvino", "hardtack"))
    assert lines[-2:] == [
        "1 thread: Hardtack is 1.18 times as fast as the best of all others on each model, geometric mean of 4.",
        "1 thread: a peer is ahead on 1 of 4: c (ONNX Runtime, 2.00 times as fast).",
    ]


def test_another_system_of_hardtack_is_no_peer() -> None:
    m = measured("m", eager=[9.0], openvino=[8.0], hardtack=[4.0])
    m.results["hardtack-f32"] = Result([2.0], 2.0)
    assert report.against_best(m) == ("openvino", 2.0)
    m.dtype = "bfloat16"
    grid = report.grid([m], ("openvino", "hardtack-f32", "hardtack"), 1)
    assert grid.title == "bfloat16 (eager: float32), 1 thread: ms, and the other's time over Hardtack's"
    assert grid.columns[-1] == "Hardtack f32 / H"
    assert grid.rows == (("m", "9.00", "8.00", "2.00", "4.00", "2.25", "2.00", "0.50"),)


def test_shares_of_peaks() -> None:
    peaks = {"fma": 100e9, "dot": 300e9, "read": 20e9}
    dense, streamed = measured("resnet50", hardtack=[100.0]), measured("gpt2_decode", hardtack=[50.0])
    assert shares.share(dense, "hardtack", peaks) is None  # nobody counted
    dense.work = streamed.work = Work(flops=9_000_000_000, weights=200_000_000)
    assert shares.share(dense, "hardtack", peaks) == pytest.approx(("fma", 0.9))
    assert shares.text(shares.share(streamed, "hardtack", peaks)) == "80% of read"
    dense.dtype = streamed.dtype = "bfloat16"
    assert shares.text(shares.share(dense, "hardtack", peaks)) == "30% of AVX512-BF16"
    assert shares.text(shares.share(dense, "hardtack", {**peaks, "tile": 900e9})) == "10% of AMX bf16"
    assert shares.text(shares.share(streamed, "hardtack", peaks)) == "40% of read"
    assert shares.text(shares.share(measured("mlp_b1", hardtack=[1.0]), "hardtack", peaks)) == ""
    dense.results["hardtack"] = Result(failure="no such op")
    assert shares.share(dense, "hardtack", peaks) is None


def test_a_table_holds_the_peaks_and_what_hardtack_refuses() -> None:
    peaks = {1: {"fma": 1.2e12, "read": 1.5e10}}
    ran, refused = measured("gemm_1024", eager=[8.0], hardtack=[2.0]), measured("resnet50", eager=[8.0])
    ran.work = refused.work = Work(1_200_000_000, 1)
    refused.results["hardtack"] = Result(failure="no such op")
    page = report.markdown([ran, refused], ("hardtack",), peaks, "A CPU.", "bench")
    assert "Peaks, 1 thread: FMA f32 1200 GFLOP/s, AVX512-BF16 absent, AMX bf16 absent, read 15.0 GB/s." in page
    assert "| gemm_1024 | 8.00 | **2.00** | 4.00 | 50% of FMA f32 |" in page
    assert "| resnet50 | **8.00** | fails | - |  |" in page
    assert "- 1 thread: Hardtack fails on 1 of 2: resnet50." in page
    stored = report.document([ran, refused], peaks, {"cpu": "A CPU"}, "bench")
    assert stored["peaks"] == {"1": peaks[1]}
    assert stored["measured"][0]["share_of_peak"] == {"peak": "fma", "share": pytest.approx(0.5)}
    assert stored["measured"][0]["work"] == {"flops": 1_200_000_000, "weights": 1}
    assert stored["measured"][1]["share_of_peak"] is None
    assert stored["measured"][1]["best_peer_ratio"] is None


def test_every_dtype_has_its_systems() -> None:
    assert all(set(systems) <= set(SYSTEMS) and "hardtack" in systems for systems in BY_DTYPE.values())
    assert "ort" not in BY_DTYPE["bfloat16"]


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


@pytest.mark.usefixtures("imported_once")
def test_hardtack_is_measured_beside_eager(tmp_path: Path) -> None:
    pytest.importorskip("hardtack._native")
    (found,) = measuring.measure("mlp_b1", ("hardtack",), (1,), Settings(tmp_path, 2, 0.01), lambda text: None)
    assert set(found.results) == {"eager", "hardtack"}
    hardtack = found.results["hardtack"]
    assert hardtack.failure is None
    assert hardtack.error < 1e-5
    assert len(hardtack.rounds) == 2
    assert hardtack.export_seconds is not None


def test_work_is_counted_without_tables_of_rows() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 4)
            self.tied = torch.nn.Linear(8, 100, bias=False)
            self.tied.weight = self.table.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.table(ids)
            heads = x[:, None]
            x = x + torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)[:, 0]
            return self.layer(x).sum() + self.tied(x).sum()

    ids = torch.zeros(1, 3, dtype=torch.int64)
    found = work_of(Model().eval().requires_grad_(False), (ids,))
    assert found.weights == 8 * 4 + 4 + 100 * 8  # the table, for the layer that it is tied to
    assert found.flops == 2 * (3 * 8 * 4 + 3 * 8 * 100 + 2 * 3 * 3 * 8)
    assert work_of(torch.nn.Embedding(100, 8), (ids,)).weights == 0
    assert found.weight_nbytes(torch.bfloat16) == 2 * found.weights


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_case_is_cast_whole(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    unet = vision.UNet(32, (1,), 1).eval().requires_grad_(False)
    case = models.Case("unet", unet, (torch.randn(1, 4, 8, 8), torch.tensor([500.0])), dtype)
    before = case.module(*case.args)
    assert before.dtype is torch.float32  # until it is cast
    cast = case.cast()
    assert {t.dtype for t in (*cast.module.parameters(), *cast.args)} == {dtype}
    assert difference([cast.module(*cast.args).float().numpy()], [before.numpy()]) < 0.06


@pytest.mark.usefixtures("imported_once")
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-5), ("bfloat16", 0.06)])
def test_openvino_computes_in_the_dtype(dtype: str, error: float, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    settings = Settings(tmp_path, 2, 0.01, tolerance=0.06, dtype=dtype)
    (found,) = measuring.measure("mlp_b1", ("openvino",), (1,), settings, lambda text: None)
    openvino = found.results["openvino"]
    if openvino.failure is not None:
        assert openvino.failure == "RuntimeError: OpenVINO computes in f32 on this CPU, not in bf16"
        pytest.skip("OpenVINO has no bfloat16 for this CPU")
    assert openvino.error < error
    assert (openvino.error > 1e-4) == (dtype == "bfloat16")
    assert len(openvino.rounds) == 2
    assert found.work is not None
    assert found.work.flops == 2 * (784 * 512 + 512 * 512 + 512 * 10)


def test_another_precision_than_asked_for_is_no_result() -> None:
    check_precision("bf16", "bf16")
    with pytest.raises(RuntimeError, match=r"\AOpenVINO computes in f32 on this CPU, not in bf16\Z"):
        check_precision("bf16", "f32")


@pytest.mark.usefixtures("imported_once")
def test_hardtack_takes_16_bits_beside_float32(tmp_path: Path) -> None:
    pytest.importorskip("hardtack._native")
    settings = Settings(tmp_path, 2, 0.01, tolerance=0.06, dtype="bfloat16")
    systems = ("hardtack-f32", "hardtack-compute", "hardtack")
    (found,) = measuring.measure("mlp_b64", systems, (1,), settings, lambda text: None)
    assert found.dtype == "bfloat16"
    assert found.results["hardtack-f32"].error < 1e-5
    assert 1e-4 < found.results["hardtack-compute"].error < 0.06
    assert 1e-4 < found.results["hardtack"].error < 0.06


def test_models_of_int8_are_of_both_sets() -> None:
    picked = set(models.int8_names())
    assert len(picked) >= 8
    assert picked & set(models.names())
    assert picked & set(models.other_names())
    assert picked <= {*models.names(), *models.other_names()}


def test_losses_of_int8_are_told() -> None:
    m = measured("m", eager=[9.0], ort=[3.0], openvino=[4.0], hardtack=[2.0])
    m.dtype = "int8"
    m.results["ort"].error, m.results["hardtack"].error = 0.02, 0.01
    m.results["openvino"] = Result(failure="no such op")
    lines = report.summary([m], ("ort", "openvino", "hardtack"))
    assert lines[:2] == [
        "m, 1 threads: OpenVINO fails: no such op",
        "m: off by ONNX Runtime 2.0e-02, Hardtack 1.0e-02 of the largest value.",
    ]


@pytest.mark.sweep(over=("system", "package"))
@pytest.mark.usefixtures("imported_once")
@pytest.mark.parametrize(("system", "package"), [("ort", "onnxruntime"), ("openvino", "nncf"), ("hardtack", "torchao")])
def test_each_system_is_quantised_by_its_own_tool(system: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    settings = Settings(tmp_path, 2, 0.01, tolerance=0.5, dtype="int8")
    (found,) = measuring.measure("mlp_b64", (f"{system}-f32", system), (1,), settings, lambda text: None)
    assert found.results[system].failure is None
    assert 1e-3 < found.results[system].error < 0.5
    assert found.results[f"{system}-f32"].error < 1e-5
    assert len(found.results[system].rounds) == 2
    files = {"ort": {"float32.onnx", "ort.onnx"}, "openvino": {"float32.onnx"}, "hardtack": set[str]()}
    assert {f.name.removeprefix("mlp_b64.") for f in tmp_path.glob("*.onnx")} == files[system], "one serves for both"


@pytest.mark.usefixtures("imported_once")
def test_kept_files_of_two_dtypes_are_two(tmp_path: Path) -> None:
    """The bundle of the one served for the other."""
    for dtype in ("float32", "bfloat16"):
        asked = ["--models", "mlp_b1", "--systems", "hardtack", "--dtype", dtype, "--threads", "1", "--rounds", "1"]
        ended = CliRunner().invoke(main, [*asked, "--seconds", "0.01", "--keep", str(tmp_path)])
        assert ended.exit_code == 0, ended.output
    sizes = [(tmp_path / d / "mlp_b1.hardtack.pkg").stat().st_size for d in ("float32", "bfloat16")]
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.usefixtures("imported_once")
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


@pytest.mark.usefixtures("imported_once")
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
    assert [settings.allowed("m", "a"), settings.allowed("m_f32", "a")] == [0.06, 0.01]
    rounding = replace(settings, rounding=frozenset({"b"}))
    assert [rounding.allowed("m", "a"), rounding.allowed("m", "b")] == [0.06, math.inf]


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
