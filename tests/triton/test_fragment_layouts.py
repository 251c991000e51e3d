"""What tensor cores take has to lie in the lanes that a kernel's text means: read in what Triton made of it."""

from __future__ import annotations

import pytest

from hardtack.codegen.backends.triton.fragments import count_fragments

LAYOUTS = """\
#blocked = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [32, 1], warpsPerCTA = [4, 1], order = [1, 0]}>
#plain = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
#wide = #ttg.blocked<{sizePerThread = [2], threadsPerWarp = [32], warpsPerCTA = [2], order = [0]}>
#turned = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [16, 2], warpsPerCTA = [4, 1], order = [1, 0]}>
#shared = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [32, 1], warpsPerCTA = [2, 2], order = [1, 0]}>
#linear = #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>
#shuffled = #ttg.linear<{register = [], lane = [[2], [1], [4], [8], [16]], warp = [[32], [64]], block = []}>
"""
USE = (
    '    %d:4 = tt.elementwise_inline_asm "mma.sync.aligned {$0}, {$1};" {constraints = "=f,r", packed_element = 1 : '
    "i32, pure = true} %a, %b : LEFT, RIGHT -> LEFT loc(#loc1)\n"
)


def text(left: str, right: str) -> str:
    """An instruction with operands of two types."""
    return LAYOUTS + USE.replace("LEFT", left).replace("RIGHT", right)


IN_PLACE = "tensor<128xi32, #linear>"


def test_lanes_in_their_order() -> None:
    sliced = "tensor<128xi32, #ttg.slice<{dim = 1, parent = #blocked}>>"
    assert count_fragments(text(IN_PLACE, sliced)) == 1
    assert count_fragments(text(IN_PLACE, "tensor<128xi32, #plain>")) == 1
    assert count_fragments(LAYOUTS) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "tensor<128xi32, #ttg.slice<{dim = 1, parent = #turned}>>",
        "tensor<128xi32, #ttg.slice<{dim = 1, parent = #shared}>>",
        "tensor<128xi32, #ttg.slice<{dim = 0, parent = #blocked}>>",
        "tensor<128xi32, #shuffled>",
        "tensor<128xi32, #wide>",
        "tensor<16xi32, #linear>",
        "tensor<128x1xi32, #plain>",
        "tensor<128xi32, #unknown>",
    ],
)
def test_lanes_in_another_order_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^Triton gave what tensor cores take to other lanes: tensor<"):
        count_fragments(text(IN_PLACE, wrong))
    with pytest.raises(ValueError, match=r"^Triton gave what tensor cores take to other lanes: tensor<"):
        count_fragments(text(wrong, IN_PLACE))


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no layout is known for an instruction of tensor cores: "):
        count_fragments(text("i32", "i32"))
    with pytest.raises(ValueError, match=r"^1 instructions of tensor cores in the text, 0 were read$"):
        count_fragments('%0 = other.op "mma.sync"')
