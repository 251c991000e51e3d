"""Tensors of torch on a CUDA device, with a stand-in for torch on the null driver.

Each test is a program of its own, as the runtime looks at one torch in a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sample_cuda

from hardtack.codegen.package.writer import write_bundle

HEAD = """
import sys
sys.path.insert(0, {support!r})
import fake_torch
torch = fake_torch.use({driver!r}, **{options!r})
import hardtack
from null_driver import NullDriver
driver = NullDriver({driver!r})
model = hardtack.load({bundle!r}, device="cuda", cuda_driver={driver!r})
Tensor = torch.Tensor
x = Tensor((3, 4), (4, 1))
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "model.pkg"
    write_bundle(path, sample_cuda.content())
    return path


def run(program: str, bundle: Path, library: Path, **options: object) -> str:
    support = str(Path(sample_cuda.__file__).parent)
    head = HEAD.format(support=support, driver=str(library), bundle=str(bundle), options=options)
    environment = {**os.environ, "HARDTACK_NULL_STRICT": ""}
    done = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_results_are_made_by_torch_and_nothing_is_copied(bundle: Path, null_library: Path) -> None:
    program = """
session = model.session(asynchronous=True)
driver.log()
for _ in range(3):
    y = session(x)
    assert y is Tensor.made[-1] and list(y.shape) == [3, 4] and list(y.strides) == [4, 1], y
log = driver.log()
assert not [line for line in log if line.startswith("copy")], log
print(log.count("launch scale_kernel grid 6x1x1 block 128 shared 65536"), x.done)
"""
    assert run(program, bundle, null_library).splitlines() == ["6 []"]


def test_a_session_follows_torch_from_stream_to_stream(bundle: Path, null_library: Path) -> None:
    program = """
import ctypes
session = model.session(asynchronous=True)
stream = ctypes.c_void_p()
assert Tensor.driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
seen = []
for now in (0, 0, stream.value, stream.value, 0):
    Tensor.stream = now
    driver.log()
    y = session(x)
    seen.append(sum(line == "wait for an event" for line in driver.log()))
print(seen)
"""
    assert run(program, bundle, null_library).splitlines() == ["[1, 0, 1, 0, 1]"]


def test_other_strides_are_made_contiguous_by_torch(bundle: Path, null_library: Path) -> None:
    program = """
t = Tensor((3, 4), (1, 3))
model(t)
print(t.done)
"""
    assert run(program, bundle, null_library).splitlines() == ["['detach', 'contiguous']"]


def test_a_torch_without_the_exchange_is_refused_in_words(bundle: Path, null_library: Path) -> None:
    program = """
import numpy as np
print(model(np.ones((3, 4), np.float32)).shape)  # numpy needs nothing of torch
try:
    model(x)
except hardtack.InputError as error:
    print(error)
"""
    assert run(program, bundle, null_library, version="2.9.1", exchange=False).splitlines() == [
        "(3, 4)",
        "input 'x': it is a tensor of torch 2.9.1, which lacks DLPack's C exchange API: use torch 2.11 or later, or "
        "pass numpy arrays",
    ]
