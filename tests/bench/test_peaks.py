"""The kernels that measure what a machine can do: they compile for CPUs that have them, and count what they do."""

from __future__ import annotations

import pytest
import torch

from bench import peaks
from hardtack.codegen.machine.data import CPUS
from hardtack.codegen.machine.host import native_cpu
from tests.templates.cpu_kernels import compile_bytes, load_library


def test_a_cpu_has_the_kernels_of_its_instructions() -> None:
    found = {name: tuple(peaks.sources(cpu)) for name, cpu in CPUS.items()}
    assert found["amx"] == ("fma", "dot", "tile", "read")
    assert found["x86-64-v4-bf16"] == ("fma", "dot", "read")
    assert found["x86-64-v3"] == found["aarch64"] == ("fma", "read")


@pytest.mark.parametrize("target", ["amx", "x86-64-v3", "aarch64"])
def test_kernels_compile_where_they_cannot_run(target: str) -> None:
    assert compile_bytes(peaks.sources(CPUS[target]), CPUS[target])


def test_kernels_say_how_much_they_did() -> None:
    cpu = native_cpu()
    kernels = peaks.sources(cpu)
    kernels.pop("tile", None)  # whose registers this process has not asked for
    library = load_library(kernels, cpu)
    lanes = cpu.vector_nbytes // 4
    memory = torch.ones(8 * lanes * 5 + 3)
    done = {name: peaks.done(library, name, 7, memory) for name in kernels}
    assert done["fma"] == 7 * 2 * lanes * (12 if lanes == 8 else 16)
    assert done["read"] == 7 * 4 * (memory.numel() - 3)  # whole vectors, eight at a time
    if "dot" in done:
        assert done["dot"] == 7 * 4 * lanes * 16


def test_the_larger_of_two_measurements_counts() -> None:
    found = peaks.larger({1: {"fma": 2.0, "read": 1.0}}, {1: {"fma": 1.0, "read": 3.0}})
    assert found == {1: {"fma": 2.0, "read": 3.0}}


def test_a_machine_that_keeps_its_tiles_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def syscall(self, *_: int) -> int:
            return -1

    monkeypatch.setattr(peaks.ctypes, "CDLL", lambda *_, **__: Refusing())
    with pytest.raises(peaks.PeakError) as found:
        peaks.ask_for_tiles()
    assert str(found.value) == "this CPU has tile registers, and its operating system refuses them"
