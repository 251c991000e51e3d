"""C++ kernels of users: what goes wrong in them, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hardtack
from hardtack import CppKernel, Plugin
from hardtack.codegen.backends.cpp.toolchain import ToolchainError
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.exporter import InputSpecError, MutationError, PluginError, UnsupportedOpError
from hardtack.exporter.extensions import Contribution, UserKernel, extensions
from tests.front import kernel_ops
from tests.front.kernel_ops import CLIP, COUNT, HEAD, KERNEL, ROWS, Clips, clip, count, exported, graph_of, rows, user


def test_a_failure_names_the_users_line(tmp_path: Path) -> None:
    line = next(
        n
        for n, t in enumerate(Path(str(kernel_ops.__file__)).read_text().splitlines(), 1)
        if "return clip(x * 1.5, self.scale)" in t
    )
    for scale, why in ((-1.0, "the scale is negative"), (500.0, "it returned -7")):
        model = exported(tmp_path, Clips(scale), (torch.ones(2),), kernels={clip: KERNEL})
        with pytest.raises(hardtack.RunError) as caught:
            model(torch.ones(2))
        place = f'entry "forward", instruction 1 (tests/front/kernel_ops.py:{line}, hardtack_kernels.clip)'
        words = str(caught.value)
        assert words.startswith(f"{place} [clip_hardtack_kernels_"), words
        assert words.endswith(f"]: {why}"), words


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "int32_t clip(const ht_kernel_call* call) {\n  return cal->x;\n}\n",
            "clip.cpp:2:10: error: use of undeclared",
        ),
        (
            HEAD + "double clip(const ht_kernel_call*) { return 0; }\n",
            "clip.cpp:2:8: error: functions that differ only",
        ),
        ("#include <cmath>\n", "clip.cpp:1:10: fatal error: 'cmath' file not found"),
    ],
)
def test_a_text_that_does_not_compile_is_told(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        exported(tmp_path, Clips(), (torch.ones(2),), kernels={clip: CppKernel("clip", source)})
    first_line, second_line, *_ = str(caught.value).splitlines()
    assert first_line.startswith("the C++ kernel clip of clip.cpp does not compile for native with ziglang ")
    assert second_line.startswith(words)
    assert str(caught.value).endswith(f"\n{FREESTANDING}")
    assert not (tmp_path / "m.pkg").exists()


DECLARED = HEAD + 'extern "C" float expf(float);\n'
FREESTANDING = (
    "a bundle's library needs no other: C++ text may include hardtack/kernel.h, the compiler's own headers (stdint.h, "
    "immintrin.h) and what it defines itself (docs/extending.md)"
)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "int32_t clip(float* x) { return 0; }\n",
            "the users' kernels do not link for native: clip.cpp defines no function clip: it must be "
            "int32_t(const ht_kernel_call*), in no namespace, and not static",
        ),
        (
            HEAD + "namespace mine { int32_t clip(const ht_kernel_call*) { return 0; } }\n",
            "the users' kernels do not link for native: clip.cpp defines no function clip: it must be "
            "int32_t(const ht_kernel_call*), in no namespace, and not static",
        ),
        (
            DECLARED + "int32_t clip(const ht_kernel_call* c) { return expf(c->arguments[1].value.real) > 2; }\n",
            f"the users' kernels do not link for native: the text calls expf, which nothing defines: {FREESTANDING}",
        ),
        (
            HEAD + "static thread_local volatile int x;\nint32_t clip(const ht_kernel_call*) { return x; }\n",
            "the users' kernels do not link for native: the text calls __tls_get_addr, which nothing defines: "
            f"{FREESTANDING}",
        ),
    ],
)
def test_a_text_that_lacks_a_function_is_told(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        exported(tmp_path, Clips(), (torch.ones(2),), kernels={clip: CppKernel("clip", source)})
    assert str(caught.value) == words


def test_a_text_that_runs_something_at_load_is_told(tmp_path: Path) -> None:
    made = "static volatile long seed = 1;\nstatic long made = seed;"
    source = f"{HEAD}{made}\nint32_t clip(const ht_kernel_call*) {{ return made == 2; }}\n"
    with pytest.raises(ToolchainError) as caught:
        exported(tmp_path, Clips(), (torch.ones(2),), kernels={clip: CppKernel("clip", source)})
    assert str(caught.value).endswith(
        ", for native: a library runs nothing when it is loaded; leave out thread_local variables, and global "
        "objects that are made by code"
    )


def test_two_ways_for_one_op_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputSpecError) as caught:
        exported(tmp_path, Clips(), (torch.ones(2),), kernels={clip: KERNEL}, decompositions={clip: torch.clamp})
    assert caught.value.what == (
        "there are two functions for one op: the decomposition of hardtack_kernels.clip.default of the argument "
        "decompositions, and the kernel of hardtack_kernels.clip.default of the argument kernels"
    )


def test_gpu_targets_are_told_that_they_have_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp) as caught:
        hardtack.export(
            Clips(),
            (torch.ones(2),),
            path=tmp_path / "m.pkg",
            targets=("cpu", "cuda:sm_80", "cuda:sm_90"),
            kernels={clip: KERNEL},
        )
    assert str(caught.value).startswith("hardtack_kernels.clip at tests/front/kernel_ops.py:")
    assert str(caught.value).endswith(
        ": its kernel, clip, is C++ for CPUs; give the op a decomposition or a lowering, which all targets take, or "
        "leave these targets out: there is no kernel of it on cuda:sm_80, cuda:sm_90"
    )


@pytest.mark.parametrize(
    ("second", "told"),
    [(lambda b: b[0], True), (lambda b: b, True), (lambda b: b[:, 0:1], True), (lambda b: b[1], False)],
)
def test_memory_that_is_written_and_an_argument_besides_is_told(second: Any, told: bool) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.zeros(2, 3))
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            return count(self.b[0], second(self.b)) + x

    if not told:
        assert graph_of(Both(), torch.ones(()), count=user("count", COUNT)).ops
        return
    with pytest.raises(PluginError) as caught:
        graph_of(Both(), torch.ones(()), count=user("count", COUNT))
    assert caught.value.what == (
        "hardtack_kernels.count.default writes to argument 0 among its tensors, whose memory argument 1 has, too"
    )


def test_a_kernel_that_writes_to_an_input_is_told() -> None:
    with pytest.raises(MutationError) as caught:
        graph_of(lambda x, y: count(x, y), torch.ones(3), torch.ones(3), count=user("count", COUNT))
    assert caught.value.what == "the module writes to its input x"


def test_a_program_that_was_decomposed_before_is_told() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("b", torch.zeros(3))
            self.eval()

        def forward(self, x: Tensor) -> Tensor:
            return count(self.b, x)

    program = torch.export.export(Sums(), (torch.ones(3),))
    with pytest.raises(UnsupportedOpError) as caught:
        graph_of(program.run_decompositions(), count=user("count", COUNT))
    (found,) = caught.value.ops
    assert found.op == "hardtack_kernels.count.default"
    assert found.reason == "the program was decomposed before: export the module, or what torch.export.export gave"
    assert graph_of(program, count=user("count", COUNT)).ops


VIEW = "gives an argument, or a view of one"


@torch.library.custom_op("hardtack_kernels::listed", mutates_args=())
def listed(x: Tensor) -> list[Tensor]:
    return [x + 1]


@pytest.mark.parametrize(
    ("op", "kernel", "words"),
    [
        ("aten::relu_", user("f"), f"a test has a kernel of aten.relu_.default, which {VIEW}"),
        ("aten::view.dtype", user("f"), f"a test has a kernel of aten.view.dtype, which {VIEW}"),
        (
            listed,
            user("f"),
            "a test has a kernel of hardtack_kernels.listed.default, which gives List[Tensor], not tensors",
        ),
        (
            clip,
            user("f", strided=("y",)),
            "the kernel of hardtack_kernels.clip.default of a test takes any strides of y, which the op does not have",
        ),
        (
            count,
            user("f", strided=("total",)),
            "the kernel of hardtack_kernels.count.default of a test takes any strides of total, which the op writes to",
        ),
    ],
)  # fmt: skip
def test_ops_that_no_kernel_computes_are_told(op: Any, kernel: UserKernel, words: str) -> None:
    with pytest.raises(InputSpecError) as caught:
        extensions([Contribution("a test", kernels={op: kernel})])
    assert caught.value.what == words


def divided(x: Any) -> Any:
    return 1 // 0


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        (divided, "raised ZeroDivisionError: integer division or modulo by zero"),
        (lambda x: "4", "gives a str, not a number of bytes"),
        (lambda x: -4, "gives -4 bytes"),
    ],
)
def test_a_workspace_that_is_no_size_is_told(workspace: Any, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        graph_of(lambda x: rows(x), torch.randn(2, 3), rows=user("rows", ROWS, workspace=workspace))
    assert caught.value.what == f"the workspace of the kernel of hardtack_kernels.rows.default of a test {words}"
    assert caught.value.where is not None


@torch.library.custom_op("hardtack_kernels::times", mutates_args=())
def times(x: Tensor, n: int) -> Tensor:
    return x * n


times.register_fake(lambda x, n: torch.empty_like(x))


def test_a_number_of_the_run_is_no_argument() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        graph_of(lambda x: times(x, x.sum().item()), torch.ones(2, 3, dtype=torch.int64), times=user("times"))
    assert "its argument n depends on values of tensors, and is no tensor" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CppKernel("a b", CLIP), "CppKernel.function is 'a b'; it must be the name of a C++ function"),
        (lambda: CppKernel("clip"), "CppKernel of clip has neither source nor path; give one of source and path"),
        (
            lambda: CppKernel("clip", CLIP, "clip.cpp"),
            "CppKernel of clip has both source and path; give one of source and path",
        ),
        (
            lambda: CppKernel("clip", path="/no/such/clip.cpp"),
            "CppKernel.path of clip cannot be read: /no/such/clip.cpp: No such file or directory",
        ),
        (
            lambda: CppKernel("clip", CLIP, workspace=-1),
            "CppKernel.workspace of clip is -1; it must be bytes, or a function",
        ),
        (
            lambda: CppKernel("clip", CLIP, strided="x"),  # type: ignore[arg-type]
            "CppKernel.strided of clip is 'x'; it must be a tuple of names of arguments",
        ),
        (
            lambda: CppKernel("clip", CLIP, abi=2),
            "the kernel clip is written for version 2 of hardtack/kernel.h, and this Hardtack has 1: use a kernel for "
            "it, or a newer Hardtack",
        ),
        (
            lambda: Plugin("clips", "1", kernels=[KERNEL]),  # type: ignore[arg-type]
            "Plugin.kernels of clips is a list; it must be a dict by op",
        ),
    ],
)
def test_what_is_no_kernel_is_told(make: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value) == words


def test_what_the_argument_kernels_has_beside_kernels_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputSpecError) as caught:
        exported(tmp_path, Clips(), (torch.ones(2),), kernels={"hardtack_kernels::clip": CLIP})
    assert caught.value.what == (
        "the kernel of hardtack_kernels::clip of the argument kernels is a str, not a hardtack.CppKernel, "
        "HostKernel or CudaKernel"
    )
