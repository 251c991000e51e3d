"""C++ kernels of users: what they are given, and what they give."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hardtack
from hardtack import CppKernel, Plugin
from hardtack.codegen.backends.cpp.toolchain import ToolchainError
from hardtack.codegen.package.bundle import verify_bundle
from hardtack.comparison import compare
from hardtack.options import Options
from tests.codegen.template_nests import lowered
from tests.front.kernel_ops import CLIP, COUNT, HEAD, KERNEL, ROWS, Clips, clip, count, exported, graph_of, rows, user


def holds(model: hardtack.Model, module: Any, *args: Any) -> None:
    """The bundle gives what eager gives."""
    wanted = module(*(a.clone() if isinstance(a, Tensor) else a for a in args))
    found = model(*args)
    wanted, found = (x if isinstance(x, tuple) else (x,) for x in (wanted, found))
    for want, got in zip(wanted, found, strict=True):
        torch.testing.assert_close(torch.as_tensor(got), want, rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("size", [0, 1, 7, 64])
def test_a_kernel_takes_each_size_of_a_dynamic_dimension(tmp_path: Path, size: int) -> None:
    model = exported(
        tmp_path, Clips(), (torch.randn(5, 8),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), kernels={clip: KERNEL}
    )
    holds(model, Clips(), torch.randn(size, 8))


def test_a_kernel_comes_from_a_file_and_from_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "ops.cpp").write_text(CLIP)
    plugin = Plugin("clips", "1.2", kernels={"hardtack_kernels::clip": CppKernel("clip", path=tmp_path / "ops.cpp")})
    x = torch.randn(4, 8)
    model = exported(tmp_path, Clips(), (x,), options=Options(plugins=(plugin,)))
    holds(model, Clips(), x)
    assert model.producer["plugin clips"] == "1.2"
    model = exported(tmp_path, Clips(), (x,), kernels={clip: KERNEL})
    assert model.producer["kernel hardtack_kernels.clip.default"].startswith("clip of clip.cpp ")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_a_kernel_is_compiled_by_gcc_too(tmp_path: Path) -> None:
    x = torch.randn(4, 8)
    holds(exported(tmp_path, Clips(), (x,), kernels={clip: KERNEL}, options=Options(compiler="g++")), Clips(), x)
    bad = CppKernel("clip", "int32_t clip(const ht_kernel_call*) { return clap; }\n")
    with pytest.raises(ToolchainError) as caught:
        exported(tmp_path, Clips(), (x,), kernels={clip: bad}, options=Options(compiler="g++"))
    assert "clip.cpp:1:" in str(caught.value)
    with pytest.raises(ToolchainError) as caught:
        exported(tmp_path, Clips(), (x,), kernels={clip: CppKernel("clip", "\n")}, options=Options(compiler="g++"))
    assert "clip.cpp defines no function clip" in str(caught.value)


def test_a_kernel_is_compiled_for_each_cpu(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    targets = ("cpu", "cpu:aarch64")
    hardtack.export(Clips(), (torch.randn(4, 8),), path=path, targets=targets, kernels={clip: KERNEL})
    verify_bundle(path)


def test_products_of_16_bits_stand_beside_a_kernel(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), Clips(), nn.Linear(16, 4)).eval()
    x = torch.randn(5, 8)
    made = exported(tmp_path, model, (x,), kernels={clip: KERNEL}, options=Options(compute="bf16"))
    torch.testing.assert_close(torch.as_tensor(made(x)), model(x), rtol=0.05, atol=0.05)


def test_layers_of_other_sizes_share_a_kernel(tmp_path: Path) -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return clip(x), clip(y)

    args = (torch.randn(4, 8), torch.randn(3, 6))
    info = hardtack.export(function, args, path=tmp_path / "m.pkg", targets=("cpu:native",), kernels={clip: KERNEL})
    assert info.num_kernels == 1
    holds(hardtack.load(tmp_path / "m.pkg"), function, *args)


EVERYTHING = (
    HEAD
    + """
static double sum(const ht_argument& a) {
  double total = 1000 * a.kind;
  if (a.kind == HT_ARGUMENT_INT || a.kind == HT_ARGUMENT_BOOL) total += a.value.integer;
  if (a.kind == HT_ARGUMENT_FLOAT) total += a.value.real > 1e300 ? 5 : a.value.real != a.value.real ? 6 : a.value.real;
  if (a.kind == HT_ARGUMENT_DTYPE) total += 100 * a.value.dtype.code + a.value.dtype.bits;
  if (a.kind == HT_ARGUMENT_TEXT) {
    for (const char* c = a.value.text; *c; ++c) total = 2 * total + static_cast<unsigned char>(*c);
  }
  if (a.kind == HT_ARGUMENT_TENSOR) total += static_cast<const float*>(a.value.tensor->data)[0];
  for (int32_t k = 0; k < a.count; ++k) total += (k + 2) * sum(a.value.items[k]);
  return total;
}
int32_t everything(const ht_kernel_call* call) {
  double* to = static_cast<double*>(call->results[0].data);
  if (call->results[0].shape[0] != call->num_arguments) return ht_fail(call, "another number of arguments");
  for (int32_t k = 0; k < call->num_arguments; ++k) to[k] = sum(call->arguments[k]);
  return call->abi_version == HT_CALL_ABI_VERSION && call->user_data == nullptr && call->stream == nullptr ? 0 : 1;
}
"""
)
KINDS = ("none", "tensor", "int", "float", "bool", "text", "dtype", "list")


@torch.library.custom_op(
    "hardtack_kernels::everything",
    mutates_args=(),
    schema="(Tensor x, int n, float a, float b, float c, bool yes, str t, ScalarType d, SymInt[] ns, Tensor[] xs, "
    "Tensor? none, Scalar s, float f=3, *, float[] fs=[], SymInt m, bool[] flags=[True, False]) -> Tensor",
)
def everything(
    x: Any, n: Any, a: Any, b: Any, c: Any, yes: Any, t: Any, d: Any, ns: Any, xs: Any, none: Any, s: Any, f: Any = 3.0,
    *, fs: Any = (), m: Any, flags: Any = (True, False),
) -> Tensor:  # fmt: skip
    def total(v: Any, kind: str | None = None) -> float:
        name = kind or (
            "none" if v is None else "tensor" if isinstance(v, Tensor) else "list" if isinstance(v, (list, tuple))
            else "dtype" if isinstance(v, torch.dtype)
            else {bool: "bool", int: "int", float: "float", str: "text"}[type(v)]
        )  # fmt: skip
        out = 1000.0 * KINDS.index(name)
        if name in ("int", "bool"):
            out += int(v)
        elif name == "float":
            out += 5 if v > 1e300 else 6 if v != v else v
        elif name == "dtype":
            out += 100 * 4 + 16
        elif name == "tensor":
            out += float(v.flatten()[0])
        elif name == "text":
            for byte in v.encode():
                out = 2 * out + byte
        elif name == "list":
            out += sum((k + 2) * total(i) for k, i in enumerate(v))
        return out

    values = (x, n, a, b, c, yes, t, d, ns, xs, none, s, float(f), fs, m, flags)
    return torch.tensor([total(v) for v in values], dtype=torch.float64)


@everything.register_fake
def _(*args: Any, **kwargs: Any) -> Tensor:
    return torch.empty(16, dtype=torch.float64)


TEXT = 'RESULT of "EXTRA0"? \\ b0\n\t\u00e9 100%d'


def test_a_kernel_gets_every_kind_of_argument(tmp_path: Path) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return everything(
            x, -3, float("inf"), float("nan"), -2.5, True, TEXT, torch.bfloat16, [4, x.shape[0], 5],
            [y, x[1:2] * 3], None, 7, fs=[0.5, 0.25], m=y.shape[0] + 2,
        )  # fmt: skip

    args = (torch.randn(3, 2), torch.randn(6))
    dynamic = ({0: torch.export.Dim.DYNAMIC}, {0: torch.export.Dim.DYNAMIC})
    kernels = {everything: CppKernel("everything", EVERYTHING)}
    model = exported(tmp_path, function, args, dynamic_shapes=dynamic, kernels=kernels)
    for n in (3, 5):
        holds(model, function, torch.randn(n, 2), torch.randn(n + 4))


MINMAX = (
    HEAD
    + """
int32_t minmax(const ht_kernel_call* call) {
  const ht_tensor& x = *call->arguments[0].value.tensor;
  if (x.ndim != 2 || call->num_results != 3 || call->results[0].ndim != 1) return 2;
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    int64_t at = 0;
    float low = __builtin_inff();
    for (int64_t j = 0; j < x.shape[1]; ++j) {
      const float v = static_cast<const float*>(x.data)[i * x.strides[0] + j * x.strides[1]];
      if (v < low) low = v, at = j;
    }
    static_cast<float*>(call->results[0].data)[i] = low;
    static_cast<int64_t*>(call->results[1].data)[i] = at;
    static_cast<bool*>(call->results[2].data)[i] = low < 0;
  }
  return 0;
}
"""
)


@torch.library.custom_op("hardtack_kernels::minmax", mutates_args=())
def minmax(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low = x.min(1)
    return low.values.clone(), low.indices.clone(), low.values < 0


@minmax.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.shape[0]
    return x.new_empty(rows), x.new_empty(rows, dtype=torch.int64), x.new_empty(rows, dtype=torch.bool)


class Turned(nn.Module):
    """Of three results one is not used, and one is an output as it is; the argument is a view with strides."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, at, _ = minmax(x.T[1:])
        return low * 2, at


@pytest.mark.parametrize("strided", [(), ("x",)])
def test_several_results_of_a_view(tmp_path: Path, strided: tuple[str, ...]) -> None:
    kernels = {minmax: CppKernel("minmax", MINMAX, strided=strided)}
    rows = torch.export.Dim.DYNAMIC
    model = exported(
        tmp_path, Turned().eval(), (torch.randn(5, 4),), dynamic_shapes=({0: rows, 1: rows},), kernels=kernels
    )
    for shape in ((5, 4), (3, 9)):
        holds(model, Turned(), torch.randn(*shape))
    (copies,) = {step["op"] for step in steps(model, torch.randn(5, 4))}
    assert copies == "launch"
    assert len(steps(model, torch.randn(5, 4))) == (2 if strided else 3)


def steps(model: hardtack.Model, *args: Any) -> list[Any]:
    """The steps of a run."""
    session = model.session()
    seen: list[Any] = []
    session.observe(seen.append)
    session(*args)
    return seen


@torch.library.custom_op("hardtack_kernels::count_", mutates_args={"total"})
def count_(total: Tensor, x: Tensor) -> None:
    total += x


class Counts(nn.Module):
    """A state, a part of one, and a value of the run are written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, 2))
        self.register_buffer("parts", torch.ones(4, 3, 2))
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = count(self.total, x)
        count_(self.parts[1], x)
        y = x * 2
        count_(y, x)
        return first + y, self.parts.sum(0)


def test_what_a_kernel_writes_to_is_what_the_op_writes_to(tmp_path: Path) -> None:
    kernels = {"hardtack_kernels::count": CppKernel("count", COUNT), count_: CppKernel("count", COUNT)}
    model, module = exported(tmp_path, Counts(), (torch.randn(3, 2),), kernels=kernels), Counts()
    session = model.session()
    for _ in range(3):
        x = torch.randn(3, 2)
        given = x.clone()
        for want, got in zip(module(x), session(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want)
        assert torch.equal(x, given)
    torch.testing.assert_close(torch.as_tensor(session.read_state("total")), module.total)


def of_rows(workspace: Any = lambda x: x.shape[0] * x.shape[1] * 4) -> Mapping[Any, CppKernel]:
    return {rows: CppKernel("rows", ROWS, workspace=workspace, worker_workspace=lambda x: x.shape[1] * 8)}


def test_a_kernel_has_workspaces_and_threads(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return rows(x) + x

    both = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    model = exported(tmp_path, function, (torch.randn(6, 3),), dynamic_shapes=(both,), kernels=of_rows())
    for shape in ((6, 3), (40, 33)):
        holds(model, function, torch.randn(*shape))


class OneState(nn.Module):
    """A state that kernels and others write to and read."""

    def __init__(self, steps: str) -> None:
        super().__init__()
        self.steps = steps.split()
        self.register_buffer("total", torch.arange(6.0).reshape(3, 2))
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        seen = [x * 2]
        for step in self.steps:
            if step == "kernel":
                seen.append(count(self.total, x))
            elif step == "unread":
                count_(self.total, x * 3)
            elif step == "row":
                self.total[1] = x[0]
            elif step == "part":
                count_(self.total[1:], x[1:])
            elif step == "read":
                seen.append(self.total + 1)
            elif step == "given":
                seen.append(self.total)
            elif step == "itself":
                count_(self.total, self.total * 2)
        return tuple(seen)


@pytest.mark.parametrize(
    ("steps", "in_place"),
    [
        ("kernel", 1),
        ("unread", 1),
        ("kernel unread kernel", 3),
        ("kernel read unread read", 2),
        ("row kernel row", 3),
        ("itself kernel", 2),
        ("kernel unread given", 1),
        ("part", None),
        ("read kernel part read row unread itself kernel given read", None),
    ],
)
def test_a_state_is_changed_in_its_own_memory(tmp_path: Path, steps: str, in_place: int | None) -> None:
    kernels = {count: user("count", COUNT), count_: user("count", COUNT)}
    if in_place is not None:
        assert len(lowered(OneState(steps), torch.ones(3, 2), kernels=kernels).in_place) == in_place
    given = dict.fromkeys((count, count_), CppKernel("count", COUNT))
    model, module = exported(tmp_path, OneState(steps), (torch.ones(3, 2),), kernels=given), OneState(steps)
    session = model.session()
    for _ in range(3):
        x = torch.randn(3, 2)
        for want, got in zip(module(x), session(x), strict=True):
            torch.testing.assert_close(torch.as_tensor(got), want)
    torch.testing.assert_close(torch.as_tensor(session.read_state("total")), module.total)


def test_a_state_that_a_failed_kernel_may_have_written_is_half_written(tmp_path: Path) -> None:
    broken = COUNT.replace("  return 0;", '  return sums[0] > 5 ? ht_fail(call, "too much") : 0;')
    kernels = {count: CppKernel("count", broken)}
    session = exported(tmp_path, OneState("kernel"), (torch.ones(3, 2),), kernels=kernels).session()
    session(torch.ones(3, 2))
    with pytest.raises(hardtack.RunError, match="too much"):
        session(torch.full((3, 2), 9.0))
    with pytest.raises(hardtack.RunError, match='state "total" is half written'):
        session(torch.ones(3, 2))
    session.reset()
    session(torch.ones(3, 2))


@torch.library.custom_op("hardtack_kernels::ramp", mutates_args=())
def ramp(n: int) -> Tensor:
    return torch.arange(n, dtype=torch.int32) * 3


@ramp.register_fake
def _(n: int) -> Tensor:
    return torch.empty(n, dtype=torch.int32)


RAMP = (
    HEAD
    + """
int32_t ramp(const ht_kernel_call* call) {
  int32_t* const to = static_cast<int32_t*>(call->results[0].data);
  for (int64_t i = 0; i < call->arguments[0].value.integer; ++i) to[i] = 3 * i;
  return 0;
}
"""
)


def test_an_op_without_tensors_has_a_kernel_inside_of_a_branch(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + ramp(4), lambda x: clip(x), (x,))

    kernels = {ramp: CppKernel("ramp", RAMP), clip: KERNEL}
    model = exported(tmp_path, function, (torch.ones(2, 4),), kernels=kernels)
    for x in (torch.ones(2, 4), -torch.ones(2, 4) * 3):
        holds(model, function, x)


LINEAR = (
    HEAD
    + """
int32_t linear(const ht_kernel_call* call) {
  const ht_tensor& x = *call->arguments[0].value.tensor;
  const ht_tensor& w = *call->arguments[1].value.tensor;
  const bool has_bias = call->arguments[2].kind == HT_ARGUMENT_TENSOR;
  const float* from = static_cast<const float*>(x.data);
  const float* by = static_cast<const float*>(w.data);
  float* to = static_cast<float*>(call->results[0].data);
  for (int64_t i = 0; i < x.shape[0]; ++i) {
    for (int64_t j = 0; j < w.shape[0]; ++j) {
      float sum = has_bias ? static_cast<const float*>(call->arguments[2].value.tensor->data)[j] : 0;
      for (int64_t k = 0; k < x.shape[1]; ++k) sum += from[i * x.shape[1] + k] * by[j * x.shape[1] + k];
      to[i * w.shape[0] + j] = sum;
    }
  }
  return 0;
}
"""
)


def test_an_op_of_torch_that_it_takes_apart_has_a_kernel(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8, bias=False)).eval()
    x, kernels = torch.randn(3, 64), {"aten::linear": CppKernel("linear", LINEAR)}
    model = exported(tmp_path, module, (x,), kernels=kernels)
    assert sum(k.startswith("linear_") for k in (str(s["kernel"]) for s in steps(model, x))) == 2
    assert all(d.good for d in compare(model, module, (x,), kernels=kernels, steps=True).steps)
    assert all(d.good for d in compare(model, module, (x,), kernels=kernels).outputs)


TWO = HEAD + (
    "int64_t twice(int64_t x) { return 2 * x; }\n"
    + "".join(
        f"int32_t {name}(const ht_kernel_call* call) {{\n  *static_cast<int64_t*>(call->results[0].data) = "
        f"{by} * twice(*static_cast<const int64_t*>(call->arguments[0].value.tensor->data));\n  return 0;\n}}\n"
        for name, by in (("first", 1), ("second", 10))
    )
)
OTHER = TWO.replace("2 * x", "3 * x").replace("twice", "times")


@torch.library.custom_op("hardtack_kernels::first", mutates_args=())
def first(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("hardtack_kernels::second", mutates_args=())
def second(x: Tensor) -> Tensor:
    return x * 20


@torch.library.custom_op("hardtack_kernels::third", mutates_args=())
def third(x: Tensor) -> Tensor:
    return x * 3


for each in (first, second, third):
    each.register_fake(torch.empty_like)


def test_functions_of_one_text_and_of_one_name(tmp_path: Path) -> None:
    """Two functions share a text with a helper; a third has the name of one of them in another text."""
    kernels = {first: CppKernel("first", TWO), second: CppKernel("second", TWO), third: CppKernel("first", OTHER)}
    (tmp_path / "two.cpp").write_text(TWO)
    for op in (first, second):
        kernels[op] = CppKernel(kernels[op].function, path=tmp_path / "two.cpp")

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return first(x), second(x), third(x)

    holds(exported(tmp_path, function, (torch.tensor(7),), kernels=kernels), function, torch.tensor(-4))


def test_equal_calls_stay_two_and_constants_are_not_computed_at_export() -> None:
    weight = torch.randn(4, 8)
    graph = graph_of(lambda x: clip(x) + clip(x) + clip(weight), torch.randn(4, 8), clip=user("clip"))
    assert [op.kind for op in graph.ops].count("custom") == 3


def test_compare_finds_a_kernel_that_computes_something_else(tmp_path: Path) -> None:
    for source, good in ((CLIP, True), (CLIP.replace("< -1 ? -1", "< -2 ? -2"), False)):
        kernels = {clip: CppKernel("clip", source)}
        args = (torch.full((3,), -5.0),)
        model = exported(tmp_path, Clips(), args, kernels=kernels)
        found = compare(model, Clips(), args, kernels=kernels, steps=True)
        assert all(d.good for d in found.outputs) is good
        assert all(d.good for d in found.steps) is good
        assert any(d.where.startswith("hardtack_kernels.clip ") for d in found.steps)


@torch.library.custom_op("hardtack_kernels::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return x[: x.shape[0] // 2].clone()


@halved.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)  # wrong: the real one gives half as many


def test_compare_finds_a_fake_kernel_that_states_other_sizes(tmp_path: Path) -> None:
    kernels = {halved: CppKernel("clip", CLIP.replace("call->arguments[1].value.real", "1"))}
    model = exported(tmp_path, lambda x: halved(x), (torch.ones(4),), kernels=kernels)
    (found,) = compare(model, lambda x: halved(x), (torch.ones(4),), kernels=kernels).outputs
    assert not found.good
    assert found.where == "(ours is torch.float32 [4])"
