"""Weights: the safetensors library as a second reader, alignment, sharing, refusals."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantData
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import weights
from hardtack.codegen.package.errors import LoadError
from hardtack.exporter.dtypes import TORCH_DTYPE

NAMES = st.text("abcXYZ019._/", min_size=1, max_size=12)


@st.composite
def constants(draw: st.DrawFn) -> ConstantData:
    dtype = draw(st.sampled_from(list(DType)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    raw = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 2, shape)
    return ConstantData(dtype, raw.astype(NUMPY_DTYPE[dtype]))


def joined(tensors: dict[str, ConstantData]) -> bytes:
    return b"".join(bytes(piece) for piece in weights.write(tensors))


@given(st.dictionaries(NAMES, constants(), max_size=6))
def test_round_trip(tensors: dict[str, ConstantData]) -> None:
    data = memoryview(joined(tensors))
    found = weights.read(data, "w")
    assert sorted(found) == sorted(tensors)
    for name, t in found.items():
        assert (t.dtype, t.shape, t.begin % 256) == (tensors[name].dtype, tensors[name].array.shape, 0)
        np.testing.assert_array_equal(weights.array_of(data, t), tensors[name].array)


@given(st.dictionaries(NAMES, constants(), max_size=6))
def test_the_safetensors_library_reads_it(tensors: dict[str, ConstantData]) -> None:
    tensors = {n: c for n, c in tensors.items() if c.dtype is not DType.F8E8M0}  # which it lacks when it reads bytes
    found = safetensors.torch.load(joined(tensors))  # for numpy it lacks bf16 and float8
    assert {n for n in found if not n.startswith("__pad_")} == set(tensors)
    for name, c in tensors.items():
        assert (found[name].dtype, found[name].shape) == (TORCH_DTYPE[c.dtype], c.array.shape)
        np.testing.assert_array_equal(found[name].reshape(-1).view(torch.uint8), c.array.reshape(-1).view(np.uint8))


def test_a_file_of_the_safetensors_library_can_stand_in() -> None:
    # tensors of whole multiples of 256 bytes, in name order, lie as ours do; only the header needs its padding
    data = safetensors.numpy.save({"a": np.arange(64, dtype=np.float32), "b": np.ones(128, np.int16)})
    (length,) = struct.unpack_from("<Q", data)
    header = data[8 : 8 + length].rstrip(b" ")
    header += b" " * (-(len(header) + 8) % 256)
    again = struct.pack("<Q", len(header)) + header + data[8 + length :]
    assert {n: (t.dtype, t.shape) for n, t in weights.read(memoryview(again), "w").items()} == {
        "a": (DType.F32, (64,)),
        "b": (DType.I16, (128,)),
    }


def test_equal_contents_are_stored_once_under_the_first_name() -> None:
    ones = np.ones((2, 3), np.float32)
    same = (("b", ConstantData(DType.F32, ones)), ("a", ConstantData(DType.F32, ones.reshape(6))))
    other = (("c", ConstantData(DType.I32, ones.view(np.int32))), ("d", ConstantData(DType.F32, ones[:1])))
    assert weights.assign([*same, *other]) == {"a": "a", "b": "a", "c": "c", "d": "d"}


def test_negative_zero_and_nan_payloads_are_contents_of_their_own() -> None:
    bits = np.array([0, 0x80000000, 0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    named = [(f"c{i}", ConstantData(DType.F32, bits[i : i + 1])) for i in range(4)]
    assert len(set(weights.assign(named).values())) == 4


@pytest.mark.parametrize("name", ["__pad_0", "__metadata__"])
def test_reserved_names(name: str) -> None:
    with pytest.raises(ValueError, match=f"a constant cannot be named '{name}'"):
        weights.assign([(name, ConstantData(DType.F32, np.zeros(1, np.float32)))])


def member(header: dict[str, object], payload: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 256)
    return struct.pack("<Q", len(text)) + text + payload


def tensor(shape: list[int], begin: int, end: int, dtype: str = "U8") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234567", "w: has 7 bytes; a safetensors file has at least 8"),
        (struct.pack("<Q", 2**63), "w: its header of 9223372036854775808 bytes does not fit in its 8 bytes"),
        (struct.pack("<Q", 2) + b"{}", "w: its header ends at byte 10, not at a multiple of 256"),
        (member({}, b"x"), "w: its tensors end at byte 256, the member at 257"),
        (
            member({"a": tensor([2], 0, 1)}, b"x"),
            "w: tensor 'a' has offsets [0, 1], 1 bytes; its dtype and shape need 2",
        ),
        (member({"a": tensor([1], 1, 2)}, b"xx"), "w: tensor 'a' starts at byte 257 of the member, not at 256"),
        (
            member({"a": tensor([1], 0, 1), "b": tensor([1], 1, 2)}, b"xx"),
            "w: tensor 'b' starts at byte 257, not at a multiple of 256",
        ),
        (
            member({"b": tensor([256], 0, 256), "a": tensor([1], 256, 257)}, bytes(257)),
            "w: tensor 'a' lies after 'b', against the order of names",
        ),
        (
            member({"a": tensor([1], 0, 1), "__pad_0": tensor([255], 1, 256, "I8")}, bytes(256)),
            "w: padding '__pad_0' is i8, not u8",
        ),
        (
            member({"a": tensor([1], 0, 1, "F4")}, b"x"),
            "w: tensor 'a'.dtype is 'F4'; it must be one of F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, "
            "F8_E4M3, F8_E5M2, F8_E8M0, BOOL",
        ),
        (member({"a": {"dtype": "U8", "shape": [1]}}, b"x"), "w: tensor 'a' lacks the key 'data_offsets'"),
        (member({"a": {**tensor([1], 0, 1), "x": 1}}, b"x"), "w: tensor 'a' has an unknown key 'x'"),
        (member({"a": tensor([-1], 0, 1)}, b"x"), "w: tensor 'a'.shape[0] is -1; it must be at least 0"),
    ],
)
def test_refusals(data: bytes, message: str) -> None:
    with pytest.raises(LoadError) as caught:
        weights.read(memoryview(data), "w")
    assert str(caught.value) == message
