"""hardtack.load and what it gives: calls, states, threads, tensors of numpy and torch, errors."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hardtack

SCALE = np.array([1, 2, 3, 0.5], np.float32)


def rows(n: int) -> np.ndarray[Any, Any]:
    return np.arange(4 * n, dtype=np.float32).reshape(n, 4)


def test_description(model: hardtack.Model, bundle: Path) -> None:
    entry = model.entries["forward"]
    assert list(model.entries) == ["forward", "copy"]
    assert str(entry.inputs[0]) == "x: f32[n, 4]"
    n = entry.inputs[0].shape[0]
    assert isinstance(n, hardtack.Size)
    assert (n, n.lo, n.hi, entry.syms) == ("n", 0, 64, {"n": (0, 64)})
    assert entry.guards == ("n must not be 13",)
    assert (model.target, model.states["calls"].dtype) == ("cpu:x86-64-v3", "i64")
    assert (model.file_nbytes, model.producer["hardtack"]) == (bundle.stat().st_size, "0.1.0")


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_numpy_in_numpy_out(model: hardtack.Model, n: int) -> None:
    out = model.session("forward")(rows(n))
    assert list(out) == ["y", "calls"]
    assert type(out["y"]) is np.ndarray
    np.testing.assert_array_equal(out["y"], rows(n) * SCALE * SCALE)


def test_torch_in_torch_out(model: hardtack.Model) -> None:
    x = torch.from_numpy(rows(3)).requires_grad_()
    out = model.session("forward")(x)
    assert torch.equal(out["y"], x.detach() * torch.from_numpy(SCALE) ** 2)
    assert (out["calls"].dtype, out["calls"].shape) == (torch.int64, ())
    out["y"].add_(1)  # the caller's own memory


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * 2 + n


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> hardtack.Model:
    """f32[3], f16[] -> f32[3]: twice the first and the second."""
    path = tmp_path_factory.mktemp("doubling") / "doubling.pkg"
    hardtack.export(Doubling().eval(), (torch.ones(3), torch.tensor(1.0, dtype=torch.float16)), path=path)
    return hardtack.load(path, threads=1)


def test_torch_tensors_whose_memory_holds_their_negatives(doubling: hardtack.Model) -> None:
    x = torch.view_as_complex(torch.tensor([[1.0, 2], [3, 4], [5, 6]])).conj().imag
    assert x.is_neg()
    assert torch.equal(doubling(x, 0.5), torch.tensor([-3.5, -7.5, -11.5]))


def test_a_small_torch_tensor_whose_memory_holds_its_negative(tmp_path: Path) -> None:
    path = tmp_path / "scalar.pkg"
    hardtack.export(Doubling().eval(), (torch.tensor(1.0), torch.tensor(1.0)), path=path)
    x = torch.view_as_complex(torch.tensor([1.0, 2])).conj().imag
    assert x.is_neg()
    assert hardtack.load(path, threads=1)(x, 1.0).item() == -3


def test_parameters_and_subclasses_are_torch_tensors(doubling: hardtack.Model) -> None:
    x = torch.nn.Parameter(torch.ones(3))
    assert torch.equal(doubling(x, np.float16(1)), torch.full((3,), 3.0))
    assert type(doubling(x.detach().numpy(), np.float16(1))) is np.ndarray


def test_torch_tensors_without_memory_are_refused(doubling: hardtack.Model) -> None:
    sparse = "Cannot access data pointer of Tensor that doesn't have storage"
    for x, said in ((torch.ones(3).to_sparse(), sparse), (torch.ones(3, device="meta"), "Cannot pack tensors on meta")):
        with pytest.raises(hardtack.InputError) as caught:
            doubling(x, 1.0)
        assert str(caught.value) == f"input 'x': torch cannot show its memory: {said}"


def test_torch_tensors_without_elements(model: hardtack.Model) -> None:
    out = model.session("forward")(torch.empty(0, 4))
    assert (out["y"].shape, int(out["calls"])) == ((0, 4), 5)


@pytest.mark.parametrize(("number", "wanted"), [(0.5, 2.5), (-1.0, 1.0), (1e-8, 2.0)])
def test_python_numbers(doubling: hardtack.Model, number: float, wanted: float) -> None:
    np.testing.assert_array_equal(doubling(np.ones(3, np.float32), number), np.full(3, wanted, np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint16", "uint32", "int16", "int32", "int64", "bool"])
def test_python_integers_fill_their_dtype(dtype: str, tmp_path: Path) -> None:
    """The bounds come back as they are, what lies beyond is refused."""

    class Same(torch.nn.Module):
        def forward(self, n: torch.Tensor) -> torch.Tensor:
            return n.clone()

    path = tmp_path / "same.pkg"
    hardtack.export(Same().eval(), (torch.zeros((), dtype=getattr(torch, dtype)),), path=path)
    model = hardtack.load(path, threads=1)
    if dtype == "bool":
        assert [bool(model(b)) for b in (True, False)] == [True, False]
        return
    info = np.iinfo(dtype)
    assert [int(model(int(n))) for n in (info.min, info.max)] == [info.min, info.max]
    name = dtype.replace("uint", "u").replace("int", "i")
    for n in (int(info.min) - 1, int(info.max) + 1, 1 << 80):
        with pytest.raises(hardtack.InputError) as caught:
            model(n)
        assert str(caught.value) == f"input n: {name}[] cannot hold {n}"
    with pytest.raises(hardtack.InputError) as caught:
        model(True)
    assert str(caught.value) == f"input n: {name}[] cannot be the Python bool True"


def test_a_python_number_too_large(doubling: hardtack.Model) -> None:
    with pytest.raises(hardtack.InputError, match=r"^input n: f16\[\] cannot hold 100000\.0$"):
        doubling(np.ones(3, np.float32), 100000.0)


def test_any_dlpack_tensor(model: hardtack.Model) -> None:
    class Foreign:
        def __init__(self, array: np.ndarray[Any, Any]) -> None:
            self.array = array

        def __dlpack__(self) -> Any:
            return self.array.__dlpack__()

    out = model.session("copy")(Foreign(np.array([1, 2, 3], np.float32)))
    np.testing.assert_array_equal(out, [1, 2, 3])


def test_results_are_not_overwritten_by_the_next_run(model: hardtack.Model) -> None:
    session = model.session("copy")
    first = session(np.array([1, 2, 3], np.float32))
    second = session(np.array([4, 5, 6], np.float32))
    np.testing.assert_array_equal(first, [1, 2, 3])
    np.testing.assert_array_equal(second, [4, 5, 6])
    assert first.flags.writeable
    assert first.ctypes.data % 64 == 0


def test_results_outlive_session_and_model(bundle: Path) -> None:
    own = hardtack.load(bundle)
    out = own.session("forward")(rows(2))
    del own
    gc.collect()
    np.testing.assert_array_equal(out["y"], rows(2) * SCALE * SCALE)


def test_inputs_are_given_back(model: hardtack.Model) -> None:
    import sys
    import weakref

    x = np.array([1, 2, 3], np.float32)
    t = torch.tensor([1.0, 2, 3])
    alive = weakref.ref(t)
    session = model.session("copy")
    before = sys.getrefcount(x)
    session(x)
    session(t)
    assert sys.getrefcount(x) == before
    del t
    gc.collect()
    assert alive() is None


def test_states_belong_to_the_session(model: hardtack.Model) -> None:
    one, other = model.session("forward"), model.session("forward")
    assert [int(one(rows(1))["calls"]) for _ in range(3)] == [5, 6, 7]
    assert int(other(rows(1))["calls"]) == 5
    assert int(one.read_state("calls")) == 8
    one.write_state("calls", np.array(40))
    assert int(one(rows(1))["calls"]) == 40
    one.reset()
    assert int(one(rows(1))["calls"]) == 5


def test_half_written_states_are_not_used(model: hardtack.Model) -> None:
    session = model.session("forward")
    session.write_state("calls", np.array(1_000_000))
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session(rows(1))
    torn = 'state "calls" is half written: a run of entry "forward" failed; '
    torn += "reset the session, or write every state that is"
    with pytest.raises(hardtack.RunError, match=f'^entry "forward": {torn}$'):
        session(rows(1))
    with pytest.raises(hardtack.RunError, match=f"^{torn}$"):
        session.read_state("calls")
    np.testing.assert_array_equal(session.run("copy", np.ones(3, np.float32)), [1, 1, 1])
    session.reset()
    assert int(session(rows(1))["calls"]) == 5


def test_another_entry_point_in_the_same_session(model: hardtack.Model) -> None:
    session = model.session("copy")
    assert int(session.run("forward", rows(1))["calls"]) == 5
    assert int(session.run("forward", rows(1))["calls"]) == 6
    np.testing.assert_array_equal(session(np.ones(3, np.float32)), [1, 1, 1])


def test_by_name(model: hardtack.Model) -> None:
    session = model.session("forward")
    out = session.run_tensors({"x": rows(2)})
    assert list(out) == ["y", "calls"]
    with pytest.raises(hardtack.InputError, match=r"^forward lacks the input 'x'; its inputs are: x$"):
        session.run_tensors({})
    with pytest.raises(hardtack.InputError, match=r"^forward has no input 'z'; its inputs are: x$"):
        session.run_tensors({"x": rows(2), "z": rows(2)})


@pytest.mark.parametrize(
    "x",
    [
        rows(8)[:, ::-1],
        rows(8)[::2],
        np.asfortranarray(rows(5)),
        np.arange(64, dtype=np.float32).reshape(8, 8)[2:, ::2],
        np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4)),
        rows(4).T,
    ],
    ids=["backwards", "every other row", "column-major", "a window", "one row repeated", "transposed"],
)
def test_any_strides_are_taken(model: hardtack.Model, x: np.ndarray[Any, Any]) -> None:
    wanted = np.ascontiguousarray(x) * SCALE * SCALE
    np.testing.assert_array_equal(model.session("forward")(x)["y"], wanted)
    if min(x.strides) >= 0 and x.flags.writeable:  # torch has neither negative strides nor read-only tensors
        given = torch.from_numpy(x)
        np.testing.assert_array_equal(model.session("forward")(given)["y"].numpy(), wanted)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones((3, 5), np.float32), 'input "x" (0 of entry "forward"): dimension 1 is 5, expected 4'),
        (np.ones((3, 4)), 'input "x" (0 of entry "forward"): dtype is f64, expected f32'),
        (np.ones((65, 4), np.float32), 'input "x" (0 of entry "forward"): dimension 0 is 65, expected 0 to 64 (n)'),
        ("text", "input 'x': is a str, not a tensor: pass a numpy array or an object with __dlpack__"),
        (np.ones((2, 4), ">f4"), "input 'x': numpy dtype >f4 is not one that models take"),
        (np.ones((2, 4), np.complex64), 'input "x" (0 of entry "forward"): dtype is c64, expected f32'),
        (np.ones((2, 4), np.complex256), "input 'x': numpy dtype complex256 is not one that models take"),
        (3.0, "input x: f32[n, 4] cannot be the Python float 3.0"),
        (
            np.ones((13, 4), np.float32),
            'entry "forward" requires n must not be 13; with n = 13 the left side is 13, expected other than 13',
        ),
    ],
)
def test_refused_inputs(model: hardtack.Model, x: Any, message: str) -> None:
    session = model.session("forward")
    with pytest.raises(hardtack.InputError) as caught:
        session(x)
    assert str(caught.value) == message
    assert int(session(rows(1))["calls"]) == 5  # nothing was run


def test_a_stride_between_elements(model: hardtack.Model) -> None:
    packed = np.zeros(5, np.dtype([("a", "f4"), ("b", "u1")]))["a"][:3]
    with pytest.raises(hardtack.InputError) as caught:
        model.session("copy")(packed)
    assert str(caught.value) == ("input 'x': its stride of 5 bytes in dimension 0 is not a multiple of its itemsize, 4")


def test_wrong_names(model: hardtack.Model) -> None:
    with pytest.raises(hardtack.InputError, match=r"^there is no entry point 'back'; there are: forward, copy$"):
        model.session("back")
    with pytest.raises(hardtack.InputError, match=r"^the bundle has several entry points, name one: forward, copy$"):
        model(rows(1))
    with pytest.raises(hardtack.InputError, match=r"^there is no state 'x'; there are: calls$"):
        model.session("copy").read_state("x")
    with pytest.raises(hardtack.InputError, match=r"^state calls: i64\[\] cannot take an array int32\[\]$"):
        model.session("copy").write_state("calls", np.array(1, np.int32))


def test_a_kernel_that_refuses_its_data(model: hardtack.Model) -> None:
    session = model.session("forward")
    session.write_state("calls", np.array(1000000))
    with pytest.raises(hardtack.RunError):
        session(rows(1))


def test_memory_limit(model: hardtack.Model) -> None:
    session = model.session("forward", max_nbytes=200)
    with pytest.raises(hardtack.RunError, match="200"):
        session(rows(4))


def test_memory_is_told_and_given_back(model: hardtack.Model) -> None:
    session = model.session("forward")
    session(rows(4))
    assert session.memory["arena_nbytes"] >= 1088
    session.trim()
    assert session.memory["arena_nbytes"] == 0
    assert int(session(rows(4))["calls"]) == 6


def test_threads_is_checked(bundle: Path) -> None:
    with pytest.raises(ValueError, match="threads is 0; it must be at least 1"):
        hardtack.load(bundle, threads=0)


def test_device_is_checked(bundle: Path) -> None:
    with pytest.raises(hardtack.LoadError, match="toaster"):
        hardtack.load(bundle, device="toaster")


def test_observer_sees_every_step(model: hardtack.Model) -> None:
    session = model.session("forward")
    seen: list[dict[str, Any]] = []
    session.observe(seen.append)
    session(rows(2))
    session.observe(None)
    session(rows(2))
    assert [(s["op"], s["kernel"], list(s["values"])) for s in seen] == [
        ("launch", "k_scale", ["t"]),
        ("launch", "k_scale", ["y"]),
        ("launch", "k_count", ["calls", "before"]),
    ]
    np.testing.assert_array_equal(seen[0]["values"]["t"], rows(2) * SCALE)
    first = seen[0]
    assert (first["file"], first["line"], first["source_op"]) == ("model.py", 12, "aten.mul.Tensor")


def test_an_error_in_an_observer_ends_the_run(model: hardtack.Model) -> None:
    session = model.session("forward")

    def stop(step: dict[str, Any]) -> None:
        raise KeyError("enough")

    session.observe(stop)
    with pytest.raises(KeyError, match="enough"):
        session(rows(2))
    session.observe(None)
    session.reset()
    assert int(session(rows(2))["calls"]) == 5


def test_a_session_is_not_for_two_threads(model: hardtack.Model) -> None:
    session = model.session("forward")
    found: list[str] = []

    def again(step: dict[str, Any]) -> None:
        try:
            session(rows(1))
        except RuntimeError as error:
            found.append(str(error))

    session.observe(again)
    session(rows(2))
    assert found[0] == "the session is running; each thread needs a session of its own (model.session())"


def test_many_threads_share_a_model(bundle: Path) -> None:
    shared = hardtack.load(bundle, threads=2)
    wrong: list[str] = []

    def work(seed: int) -> None:
        session = shared.session("forward")
        for i in range(200):
            n = 12 - (seed + i) % 13  # never 13
            out = session(rows(n))
            if not np.array_equal(out["y"], rows(n) * SCALE * SCALE) or int(out["calls"]) != 5 + i:
                wrong.append(f"thread {seed}, run {i}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_what_cannot_be_sent_to_another_process_says_so(model: hardtack.Model) -> None:
    with pytest.raises(TypeError) as caught:
        pickle.dumps(model)
    where = f"send its path, {model.path!r}, and load it where it is used"
    assert str(caught.value) == f"a Model cannot be pickled; {where}"
    with pytest.raises(TypeError, match=r"^a Session cannot be pickled; send the path of its model, and what"):
        copy.deepcopy(model.session("forward"))
    entry = pickle.loads(pickle.dumps(model.entries["copy"]))
    assert entry == model.entries["copy"]
    size = pickle.loads(pickle.dumps(model.entries["forward"].inputs[0].shape[0]))
    assert (size, size.lo, size.hi) == ("n", 0, 64)


def test_a_device_of_torch_and_the_bytes_of_a_bundle(bundle: Path) -> None:
    assert hardtack.load(bundle, device=torch.device("cpu")).device == "cpu"  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^load takes the path of a file, not bytes; it may lie in memory"):
        hardtack.load(bundle.read_bytes())  # type: ignore[arg-type]
