"""Whole models on the GPU against eager on the same GPU: transformers from small configs, and the benchmark's."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

import hardtack
from bench import gpu_models, language, vision
from tests.gpu.support import assert_close, check, eager, exported, leaves
from tests.models import zoo
from tests.models.test_bundles import load
from tests.models.trained_audio_text import VoiceDetector

HALF = torch.bfloat16


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [n for n in zoo.SMALL if "static_cache" not in n])
def test_small_transformers(name: str, dynamic: bool, tmp_path: Path, target: str) -> None:
    pytest.importorskip("transformers")
    model = zoo.load(name)
    if dynamic and not model.dynamic:
        pytest.skip("no dynamic dimensions")
    inputs = [tuple(a.cuda() for a in args) for args in (model.args, *(model.others if dynamic else ()))]
    check(model.module.cuda(), inputs, tmp_path, target, model.dynamic[0] if dynamic else None)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", list(zoo.TRAINED))
def test_trained_models(name: str, dynamic: bool, tmp_path: Path, target: str) -> None:
    """Where their packages are. Deep nets of f32 convolutions: cuDNN's own sums differ from ours by more than 1e-5."""
    model = load(name)
    inputs = [tuple(a.cuda() for a in args) for args in (model.args, *(model.others if dynamic else ()))]
    declared = model.dynamic[0] if dynamic else None
    check(copy.deepcopy(model.module).cuda(), inputs, tmp_path, target, declared, scale=4)
    if dynamic and model.golden is not None:
        model.golden(hardtack.load(tmp_path / "m.pkg", device="cuda:0"))


def minilm(batch: int, length: int) -> tuple[torch.Tensor, ...]:
    mask = torch.ones(batch, length, dtype=torch.int64, device="cuda")
    mask[-1, length // 2 + 1 :] = 0
    return torch.randint(0, 30000, (batch, length), device="cuda"), mask


def test_the_shape_of_minilm(tmp_path: Path, target: str) -> None:
    """As the trained model, with seeded weights."""
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    module = language.minilm().eval().cuda()
    check(
        module, [minilm(3, 9), minilm(1, 4), minilm(2, 128)], tmp_path, target, ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},) * 2
    )


def test_the_shape_of_silero(tmp_path: Path, target: str) -> None:
    """As the trained model, with seeded weights."""
    torch.manual_seed(0)
    inputs = [(torch.randn(b, 576, device="cuda"), torch.randn(2, b, 128, device="cuda")) for b in (2, 1, 5)]
    check(VoiceDetector().eval().cuda(), inputs, tmp_path, target, ({0: Dim.DYNAMIC}, {1: Dim.DYNAMIC}))


@pytest.mark.parametrize(
    "name", ["mlp_b64", "bert_base_s128_b1", "vit_b16_b1", "resnet50_b1", "convnext_tiny_b1", "unet_b2"]
)
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_models_of_the_benchmark(name: str, dtype: torch.dtype, tmp_path: Path, target: str) -> None:
    case = gpu_models.build(name, dtype=dtype)
    check(case.module, [case.args], tmp_path, target)


def test_convolutions_with_dynamic_batch_and_size(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    model = vision.MobileNetV2().eval().cuda()
    inputs = [(torch.randn(b, 3, h, w, device="cuda"),) for b, h, w in ((2, 64, 96), (1, 96, 64), (5, 33, 47))]
    check(model, inputs, tmp_path, target, ({0: Dim("b", max=64), 2: Dim.AUTO, 3: Dim.AUTO},))


def small_decoder() -> nn.Module:
    torch.manual_seed(0)
    with torch.device("cuda"):
        decoder = gpu_models.Decoder(256, 2, 8, 2, 512, 1000, 64)
    return decoder.eval().requires_grad_(False)


def test_a_cache_is_state_of_the_session(tmp_path: Path, target: str) -> None:
    decoder = small_decoder()
    fresh = copy.deepcopy(decoder)
    tokens, position = torch.randint(0, 1000, (1, 1), device="cuda"), torch.tensor([0], device="cuda")
    model = exported(decoder, (tokens, position), tmp_path, target)
    one, other = model.session(), model.session()
    first = []
    for step in range(12):
        place = torch.tensor([step], device="cuda")
        want = eager(fresh, (tokens, place))
        got = leaves(one(tokens, place))
        assert_close(got, want)
        first.append(got[0].clone())
        tokens = got[0].argmax(-1)
    assert_close(
        leaves(other(torch.full_like(tokens, 7), position)),
        eager(small_decoder(), (torch.full_like(tokens, 7), position)),
    )
    one.reset()
    tokens = torch.full_like(tokens, 7)
    assert_close(leaves(one(tokens, position)), leaves(other(tokens, position)))


def test_inputs_and_outputs_on_the_host(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 10)).eval()
    x = torch.randn(5, 64)
    model = exported(module, (x,), tmp_path, target, ({0: Dim("b", max=64)},))
    got = model(x.numpy())
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_sizes_zero_and_one(tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 10)).eval().cuda()
    inputs = [(torch.randn(n, 64, device="cuda"),) for n in (4, 1, 0, 33, 1000)]
    check(module, inputs, tmp_path, target, ({0: Dim("b", max=1024)},))


def test_threads_and_streams_at_once(tmp_path: Path, target: str) -> None:
    """Eight threads, each with a session and a stream of its own, share a model."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.Softmax(-1)).eval().cuda()
    model = exported(module, (torch.randn(4, 256, device="cuda"),), tmp_path, target, ({0: Dim("b", max=256)},))
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator("cuda").manual_seed(seed)
            with torch.cuda.stream(torch.cuda.Stream()):
                session = model.session()
                for step in range(30):
                    x = torch.randn(1 + (seed * 7 + step) % 40, 256, device="cuda", generator=generator)
                    assert_close(leaves(session(x)), eager(module, (x,)))
        except Exception as error:
            failures.append(f"thread {seed}: {error!r}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, "\n".join(failures)


class Gather(nn.Module):
    def forward(self, table: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return table[rows] * 2


def test_an_index_out_of_range_is_an_error_with_its_origin(tmp_path: Path, target: str) -> None:
    table, rows = torch.randn(10, 4, device="cuda"), torch.tensor([1, 2, 9], device="cuda")
    model = exported(Gather().eval(), (table, rows), tmp_path, target)
    with pytest.raises(hardtack.RunError, match=r"test_models_gpu.py.*index is out of range"):
        model(table, torch.tensor([1, 10, 0], device="cuda"))
    assert_close(leaves(model(table, rows)), eager(Gather(), (table, rows)))  # the session's next run is sound
