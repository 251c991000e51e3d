"""What bench/llama_beside.py says where llama.cpp is not there, and what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.llama_beside import Llama, LlamaError, Products, nbytes_of


def _python(folder: Path, text: str) -> str:
    """A program in Python's place that says `text`."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_where_llama_cpp_is_missing_it_says_how_to_install_it(tmp_path: Path) -> None:
    python = _python(tmp_path, "echo absent: llama_cpp, gguf")
    with pytest.raises(LlamaError) as e:
        Llama(python, 1, "products", "32", "32", "1")
    assert e.value.message == (
        f"{python} has not all of llama.cpp (absent: llama_cpp, gguf): python -m venv DIR && "
        "DIR/bin/pip install llama-cpp-python gguf (a quarter of an hour of compiling), then "
        "--llama-python DIR/bin/python"
    )


def test_a_process_that_ends_is_told_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(LlamaError) as e:
        Llama(_python(tmp_path, "exit 3"), 1, "products", "32", "32", "1")
    assert e.value.message == "llama.cpp's process ended with status 3"


def test_seconds_are_what_the_process_says_for_a_kind(tmp_path: Path) -> None:
    llama = Llama(_python(tmp_path, 'echo ready; read kind; [ "$kind" = q8_0 ] && echo 0.5'), 1, "decode", "{}")
    assert llama.seconds("q8_0") == 0.5
    llama.close()


@pytest.mark.parametrize(
    ("weights", "dtype", "bits"),
    [
        ("int4:32", torch.float32, 5), ("int4", torch.float32, 4.25), ("int4", torch.bfloat16, 4.125),
        ("int8", torch.bfloat16, 8 + 16 / 512), ("fp8", torch.float32, 8 + 32 / 512),
    ],
)  # fmt: skip
def test_bytes_are_those_of_codes_and_scales(weights: str, dtype: torch.dtype, bits: float) -> None:
    assert nbytes_of(weights, 8 * 512, dtype, 512) == 8 * 512 * bits / 8


def test_a_call_has_as_many_products_as_it_says() -> None:
    found = Products(32, 8, 3)(torch.ones(1, 32))
    assert [tuple(y.shape) for y in found] == [(1, 8)] * 3
