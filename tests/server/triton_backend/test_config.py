"""A model's configuration: completed from the bundle, refused where the two disagree; parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn
from triton_server import TRITON as SERVER
from triton_server import TritonServer, infer
from tritonclient.utils import InferenceServerException

import hardtack
from hardtack.codegen.package.signing import sign_bundle
from hardtack.codegen.package.writer import write_bundle

MLP = "f32[batch, 16], that is TYPE_FP32 [16]"


def ports(config: dict[str, Any], key: str) -> list[tuple[str, str, list[int]]]:
    return [(p["name"], p["data_type"], p["dims"]) for p in config[key]]


def test_no_configuration_at_all(server: TritonServer, bundles: dict[str, Path]) -> None:
    """The folder's name says which backend: NAME.hardtack. Any name of the bundle will do if it is the only one."""
    server.put("plain.hardtack", bundles["mlp"])
    (server.repository / "plain.hardtack" / "1" / "model.pkg").rename(server.repository / "plain.hardtack/1/mine.pkg")
    server.http.load_model("plain.hardtack")
    config = server.http.get_model_config("plain.hardtack")
    assert config["max_batch_size"] == 4
    assert ports(config, "input") == [("x", "TYPE_FP32", [16])]
    assert ports(config, "output") == [("output", "TYPE_FP32", [4])]
    assert config["dynamic_batching"]["preferred_batch_size"] == [4]
    assert [(g["kind"], g["count"]) for g in config["instance_group"]] == [("KIND_CPU", 1)]
    assert infer(server, "plain.hardtack", {"x": np.zeros((2, 16), np.float32)})["output"].shape == (2, 4)
    said = (
        "does not say max_batch_size; requests may be joined along batch, up to 4 rows. If the model mixes rows, give"
    )
    assert f"plain.hardtack version 1: the configuration {said} all dimensions of its inputs" in server.log()


def test_completed_static_model(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("static", bundles["many"], "")
    config = server.http.get_model_config("static")
    assert config["max_batch_size"] == 0
    assert "dynamic_batching" not in config
    assert ports(config, "input") == [
        ("a", "TYPE_FP32", [2, 3]), ("b", "TYPE_BOOL", [4]), ("c", "TYPE_INT64", [3]), ("d", "TYPE_BF16", [2]),
        ("e", "TYPE_FP16", [2]), ("n", "TYPE_INT64", [1]),
    ]  # fmt: skip


def test_completed_where_requests_cannot_be_joined(server: TritonServer, bundles: dict[str, Path]) -> None:
    """The output (n, n) of a joined run would have the rows of all requests, each as long as their sum."""
    server.add("apart", bundles["outer"], "")
    config = server.http.get_model_config("apart")
    assert (config["max_batch_size"], ports(config, "output")) == (0, [("output", "TYPE_FP32", [-1, -1])])
    assert "dynamic_batching" not in config
    np.testing.assert_array_equal(
        infer(server, "apart", {"x": np.array([1, 2, 3], np.float32)})["output"], np.outer([1, 2, 3], [1, 2, 3])
    )


def test_dimensions_in_full_mean_no_batching(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("full", bundles["mlp"], 'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 16 ] }')
    config = server.http.get_model_config("full")
    assert (config["max_batch_size"], ports(config, "output")) == (0, [("output", "TYPE_FP32", [-1, 4])])
    assert infer(server, "full", {"x": np.zeros((40, 16), np.float32)})["output"].shape == (40, 4)


def test_a_configuration_may_narrow(server: TritonServer, bundles: dict[str, Path]) -> None:
    config = """
        max_batch_size: 2
        input { name: "ids" data_type: TYPE_INT64 dims: 6 }
        output { name: "output" data_type: TYPE_FP32 dims: [ -1, 3 ] }
        parameters { key: "dynamic_batching" value: { string_value: "false" } }
        parameters { key: "threads" value: { string_value: "1" } }"""
    server.add("narrow", bundles["words"], config)
    assert "dynamic_batching" not in server.http.get_model_config("narrow")
    assert infer(server, "narrow", {"ids": np.zeros((2, 6), np.int64)})["output"].shape == (2, 6, 3)
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'ids'"):
        infer(server, "narrow", {"ids": np.zeros((2, 5), np.int64)})


def test_reshape(server: TritonServer, bundles: dict[str, Path]) -> None:
    config = """
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [ 4, 4 ] reshape { shape: [ 16 ] } }
        output { name: "output" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }"""
    server.add("reshaped", bundles["mlp"], config)
    assert infer(server, "reshaped", {"x": np.zeros((3, 4, 4), np.float32)})["output"].shape == (3, 2, 2)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


WRONG = {
    "dtype": (
        "mlp", 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP64 dims: 16 }',
        "input 'x': the configuration says TYPE_FP64 [16] with max_batch_size 8, but in the bundle's entry point "
        f"forward it is {MLP}",
    ),
    "dims": (
        "mlp", 'max_batch_size: 8 output { name: "output" data_type: TYPE_FP32 dims: [ 5 ] }',
        "output 'output': the configuration says TYPE_FP32 [5] with max_batch_size 8, but in the bundle's entry point "
        "forward it is f32[batch, 4], that is TYPE_FP32 [4]",
    ),
    "reshape": (
        "mlp", 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 18 reshape { shape: [ 6, 3 ] } }',
        "says TYPE_FP32 [18] reshaped to [6, 3] with max_batch_size 8, but in the bundle's entry point forward it is "
        f"{MLP}",
    ),
    "half an input": (
        "mlp", 'max_batch_size: 8 input { name: "x" }',
        "input 'x': the configuration says TYPE_INVALID [] with max_batch_size 8",
    ),
    "strings": (
        "mlp", 'max_batch_size: 8 input { name: "x" data_type: TYPE_STRING dims: 16 }',
        "; Hardtack has no strings (BYTES): turn them into numbers in front of the model",
    ),
    "beyond the range": (
        "words", 'max_batch_size: 8 input { name: "ids" data_type: TYPE_INT64 dims: 33 }',
        "the configuration says TYPE_INT64 [33] with max_batch_size 8, but in the bundle's entry point forward it is "
        "i64[batch, length], that is TYPE_INT64 [-1]",
    ),
    "unknown input": (
        "mlp", 'max_batch_size: 8 input { name: "z" data_type: TYPE_FP32 dims: 16 }',
        "input 'z' is in the configuration, but the inputs of the bundle's entry point forward are x",
    ),
    "missing input": (
        "many", 'input { name: "b" data_type: TYPE_BOOL dims: 4 }',
        "input 'a', f32[2, 3], of the bundle's entry point forward is not in the configuration",
    ),
    "optional": (
        "mlp", 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 16 optional: true }',
        "input 'x': the configuration sets optional, but a bundle takes every input, as a plain tensor",
    ),
    "batch of a static model": (
        "many", "max_batch_size: 8",
        "the configuration says max_batch_size 8, but in the bundle's entry point forward the first dimension of input "
        "'a', f32[2, 3], is always 2: say max_batch_size: 0 and give all dimensions",
    ),
    "a batch that is not only rows": (
        "outer", "max_batch_size: 8",
        "the configuration says max_batch_size 8, but in the bundle's entry point forward output 'output' is f32[n, n]"
        ", where n is not only the first dimension: say max_batch_size: 0 and give all dimensions",
    ),
    "a batch of an even size": (
        "twice", "max_batch_size: 8",
        "the configuration says max_batch_size 8, but in the bundle's entry point forward the first dimension of input "
        "'x', f32[2*n, n], is 2*n and so not of any size: say max_batch_size: 0 and give all dimensions",
    ),
    "batch too large": (
        "mlp", "max_batch_size: 65",
        "the configuration says max_batch_size 65, but in the bundle the batch dimension batch goes from 0 to 64",
    ),
    "states": (
        "counter", "dynamic_batching { }",
        "the bundle has states, which live as long as a sequence of requests, but the configuration has no "
        "sequence_batching: add sequence_batching { oldest { max_candidate_sequences: 32 } }",
    ),
    "implicit states": (
        "counter",
        'sequence_batching { state { input_name: "x" output_name: "output_0" data_type: TYPE_FP32 dims: 3 } }',
        "the configuration has sequence_batching.state; a bundle's states are its own",
    ),
    "steps of one request": (
        "counter", "sequence_batching { oldest { max_candidate_sequences: 4 } iterative_sequence: true }",
        "the configuration sets sequence_batching.iterative_sequence, but a bundle answers a request in one run: leave "
        "it out",
    ),
    "an input twice": (
        "mlp", 'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: 16 } '
        'input { name: "x" data_type: TYPE_FP32 dims: 16 }',
        "input 'x' is twice in the configuration",
    ),
    "an output twice": (
        "mlp", 'max_batch_size: 8 output { name: "output" data_type: TYPE_FP32 dims: 4 } '
        'output { name: "output" data_type: TYPE_FP32 dims: 4 }',
        "output 'output' is twice in the configuration",
    ),
    "decoupled": (
        "mlp", "model_transaction_policy { decoupled: true }",
        "the configuration says decoupled, but a bundle gives one response to a request",
    ),
    "entry": ("mlp", parameter("entry", "backward"), "the bundle has no entry point 'backward', only forward"),
    "threads": ("mlp", parameter("threads", "many"), 'the parameter "threads" is "many"; expected a count from 0'),
    "more threads than there can be": (
        "mlp", parameter("threads", "2000"), 'the parameter "threads": num_threads is 2000, expected 0 to 1024'
    ),
    "almost a name": (
        "mlp", parameter("Trusted-Key", "00" * 32),
        'the parameter "Trusted-Key" is none of Hardtack\'s; did you mean "trusted_keys"?',
    ),
    "switch": ("mlp", parameter("copy_weights", "1"), 'the parameter "copy_weights" is "1"; expected true or false'),
    "target": ("mlp", parameter("target", "cpu:z80"), "cpu:z80"),
    "device": ("mlp", parameter("device", "tpu"), "tpu"),
    "key": ("mlp", parameter("trusted_keys", "12"), "expected ed25519 public keys of 64 hexadecimal digits"),
    "signature": ("mlp", parameter("trusted_keys", "00" * 32), "not signed"),
    "file": (
        "mlp", 'default_model_filename: "other.pkg"',
        "only model.pkg; put the bundle there as model.pkg, or name it: default_model_filename",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_configurations(server: TritonServer, bundles: dict[str, Path], case: str) -> None:
    bundle, config, message = WRONG[case]
    with pytest.raises(InferenceServerException, match=re.escape(message)) as caught:
        server.add("wrong", bundles[bundle], config)
    assert "wrong version 1: " in caught.value.message()
    assert not server.http.is_model_ready("wrong")


def test_what_is_ignored_is_said(server: TritonServer, bundles: dict[str, Path]) -> None:
    accelerator = 'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }'
    server.add("others", bundles["mlp"], parameter("intra_op", "1") + accelerator)
    assert r"others version 1: the parameter \"intra_op\" is none of Hardtack" in server.log()
    named = "others version 1: Hardtack does not use optimization.execution_accelerators of the configuration"
    assert named in server.log()


def test_a_bundle_for_another_processor(server: TritonServer, tmp_path: Path) -> None:
    write_bundle(tmp_path / "arm.pkg", sample.content(("aarch64",)))
    with pytest.raises(InferenceServerException) as caught:
        server.add("arm", tmp_path / "arm.pkg", parameter("entry", "copy"))
    assert "nothing in the bundle runs on this machine: cpu:aarch64 needs neon" in caught.value.message()
    assert "Unsupported: arm version 1: " in caught.value.message()


def test_signed_bundles_and_weights_elsewhere(
    server: TritonServer, modules: dict[str, nn.Module], tmp_path: Path
) -> None:
    options = hardtack.Options(external_weights=True)
    hardtack.export(
        modules["mlp"], (torch.zeros(2, 16),), path=tmp_path / "m.pkg", targets=("cpu:native",), options=options
    )
    key = Ed25519PrivateKey.generate()
    sign_bundle(tmp_path / "m.pkg", key)
    public = key.public_key().public_bytes_raw().hex()
    weights = tmp_path / "elsewhere.safetensors"
    (tmp_path / "m.safetensors").rename(weights)
    more = parameter("weights", str(weights)) + parameter("verify_weights", "true")
    with pytest.raises(InferenceServerException, match=r"m\.safetensors"):
        server.add("signed", tmp_path / "m.pkg", parameter("trusted_keys", public))
    server.add("signed", tmp_path / "m.pkg", parameter("trusted_keys", f"{'ab' * 32},{public}") + more)
    assert infer(server, "signed", {"x": np.zeros((2, 16), np.float32)})["output"].shape == (2, 4)


def test_keys_of_the_server_hold_for_every_model(backend: Path, bundles: dict[str, Path], tmp_path: Path) -> None:
    options = [f"--backend-config=hardtack,trusted-keys={'cd' * 32}", "--backend-config=default-max-batch-size=16"]
    options.append("--backend-config=hardtack,colour=red")
    with TritonServer(tmp_path / "triton", backend, options) as server:
        with pytest.raises(InferenceServerException, match="not signed"):
            server.add("unsigned", bundles["mlp"], "")
        with pytest.raises(InferenceServerException, match="trusted-keys of its own, which hold for every model"):
            server.add("unsigned", bundles["mlp"], parameter("trusted_keys", "00" * 32))
        unknown = [line for line in server.log().splitlines() if "none of Hardtack" in line]
        assert len(unknown) == 1
        assert r"--backend-config: the setting \"colour\" is none of Hardtack's; it is ignored" in unknown[0]


WRONG_SETTINGS = {
    f"trusted_keys={'cd' * 32}": '--backend-config: the setting "trusted_keys" is none of Hardtack\'s; did you mean '
    '"trusted-keys"?',
    "threads=2000": "--backend-config=hardtack,threads: num_threads is 2000, expected 0 to 1024",
}


@pytest.mark.parametrize("setting", WRONG_SETTINGS)
def test_wrong_settings_of_the_server(backend: Path, bundles: dict[str, Path], tmp_path: Path, setting: str) -> None:
    options = [f"--backend-config=hardtack,{setting}"]
    refused = pytest.raises(InferenceServerException, match=re.escape(WRONG_SETTINGS[setting]))
    with TritonServer(tmp_path / "triton", backend, options) as server, refused:
        server.add("model", bundles["mlp"], "")


def test_warmup_and_cache(backend: Path, bundles: dict[str, Path], tmp_path: Path) -> None:
    """What Triton does around a model works with bundles, too: requests of its own before the first, kept answers."""
    config = """
        max_batch_size: 8
        response_cache { enable: true }
        model_warmup {
          name: "two rows" batch_size: 2
          inputs { key: "x" value: { data_type: TYPE_FP32 dims: 16 random_data: true } }
        }"""
    caches = SERVER / "caches"
    options = [f"--cache-directory={caches}", "--cache-config=local,size=1048576"]
    with TritonServer(tmp_path / "triton", backend, options) as server:
        server.add("warm", bundles["mlp"], config)
        first = infer(server, "warm", {"x": np.ones((1, 16), np.float32)})["output"]
        np.testing.assert_array_equal(infer(server, "warm", {"x": np.ones((1, 16), np.float32)})["output"], first)
        stats = server.stats("warm")["inference_stats"]
        # Triton counts its own two requests, too: rows of a warm-up come one by one.
        assert (stats["success"]["count"], stats["cache_hit"]["count"]) == (4, 1)


def test_without_auto_complete(backend: Path, bundles: dict[str, Path], tmp_path: Path) -> None:
    options = ["--disable-auto-complete-config", "--backend-config=hardtack,threads=1"]
    complete = """
        max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: 16 }
        output { name: "output" data_type: TYPE_FP32 dims: 4 }"""
    with TritonServer(tmp_path / "triton", backend, options) as server:
        server.add("complete", bundles["mlp"], complete)
        assert "dynamic_batching" not in server.http.get_model_config("complete")
        assert infer(server, "complete", {"x": np.zeros((8, 16), np.float32)})["output"].shape == (8, 4)
        with pytest.raises(InferenceServerException, match=r"is not in the configuration|must specify"):
            server.add("incomplete", bundles["mlp"], "max_batch_size: 8")
