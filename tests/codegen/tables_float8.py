"""Rows of the op table: floats of 8 bits, which are stored, moved and converted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from tests.codegen.compare import E8M0, FLOAT8, FLOATS, Function, Suite
from tests.codegen.tables_scalar import DTYPES, INF, NAN


def float8_rows(dtype: torch.dtype) -> dict[str, Function]:
    """x: floats, codes: each code of `dtype`; what eager does with these beside conversions from and to all others."""
    rows: dict[str, Function] = {}
    for other in (*DTYPES, *FLOAT8):
        rows[f"from_{str(other)[6:]}"] = lambda x, codes, other=other: (
            x.clamp(-9e4, 9e4).nan_to_num(1).to(other).to(dtype)
        )
        rows[f"to_{str(other)[6:]}"] = lambda x, codes, other=other: finite(codes).to(other)
    rows["from_far"] = lambda x, codes: [  # bfloat16 need not keep a NaN's sign
        x.to(dtype),
        x.double().to(dtype),
        x.half().to(dtype),
        x.nan_to_num(2.0, INF, -INF).bfloat16().to(dtype),
    ]
    rows["to_all_codes"] = lambda x, codes: [codes.to(d) for d in (*FLOATS, torch.bool, *FLOAT8)]
    rows["views"] = lambda x, codes: (codes.t(), codes[1:, ::3], codes.roll(1, 1), codes.reshape(8, 32), codes[None])
    rows["joins"] = lambda x, codes: (
        torch.cat([codes, codes]),
        torch.stack([codes, codes.flip(0)], 1),
        F.pad(codes, (1, 2)),
        F.pad(codes, (2, 1), value=1.5),
    )
    rows["pick"] = lambda x, codes: (
        codes[torch.tensor([3, 1])],
        codes.index_select(1, torch.tensor([5, 0])),
        F.embedding(torch.tensor([[1, 2]]), codes),
    )
    rows["picked_as_numbers"] = lambda x, codes: F.embedding(torch.tensor([[1, 2]]), codes).float() * 0.5
    rows["write"] = lambda x, codes: (
        torch.slice_scatter(codes, codes[:2], 0, 1, 3),
        torch.select_scatter(codes, codes[0], 0, 2),
    )
    rows["where"] = lambda x, codes: torch.where(codes.float() > 1, codes, codes.roll(1, 1))
    rows["fill"] = lambda x, codes: (
        torch.zeros_like(codes),
        torch.full_like(codes, 2.5),
        torch.full((3,), -7.1, dtype=dtype),
    )
    rows["equal"] = lambda x, codes: (codes == codes, codes != codes.roll(1, 1))
    rows["special"] = lambda x, codes: (codes.isnan(), codes.bool(), codes.any(1), codes.all())
    rows["item"] = lambda x, codes: x[:2] * codes[0, 33].item()
    rows["bits"] = lambda x, codes: (codes.view(torch.uint8) ^ 1, (codes.view(torch.int8) & 127).view(dtype))
    rows["computed"] = lambda x, codes: ((codes.float() * 2).to(dtype), (codes.bfloat16() * 3).to(dtype).float())
    return rows


def e8m0_rows() -> dict[str, Function]:
    """The same of powers of 2, which have one NaN and neither zero nor sign."""
    return {
        "to_e8m0": lambda x, codes: [x.to(E8M0), x.double().to(E8M0), x.half().to(E8M0), x.bfloat16().to(E8M0)],
        "from_e8m0": lambda x, codes: [codes.to(d) for d in (*FLOATS, torch.bool, *FLOAT8)],
        "e8m0_views": lambda x, codes: (codes.t(), codes[1:, ::3], codes.roll(1, 1), codes.reshape(8, 32)),
        "e8m0_joins": lambda x, codes: (torch.cat([codes, codes]), torch.stack([codes, codes.flip(0)], 1)),
        "e8m0_pick": lambda x, codes: (codes[torch.tensor([3, 1])], F.embedding(torch.tensor([[1, 2]]), codes)),
        "e8m0_where": lambda x, codes: torch.where(codes.float() > 1, codes, codes.roll(1, 1)),
        "e8m0_equal": lambda x, codes: (codes == codes, codes != codes.roll(1, 1), codes.isnan()),
        "e8m0_bits": lambda x, codes: (codes.view(torch.uint8) ^ 1, (codes.view(torch.uint8) & 127).view(E8M0)),
        "e8m0_fill": lambda x, codes: (torch.full_like(codes, 2.5), torch.full((3,), 8.0, dtype=E8M0)),
        "e8m0_scales": lambda x, codes: x * codes[1, 40].float(),
    }


def e8m0_numbers() -> torch.Tensor:
    """Each number, those half way between two, their neighbours, of both signs, and special ones."""
    known = torch.arange(255).to(torch.uint8).view(E8M0).float()
    exact = torch.cat([known, known * 1.5, known * 1.25, torch.tensor([2.0**-128, 2.0**-129, 2.0**-149])])
    beside = torch.cat([exact.nextafter(torch.tensor(s * INF)) for s in (1, -1)])
    x = torch.cat([exact, beside, -exact, torch.tensor([INF, -INF, NAN, 0.0, -0.0, 3.4e38])])
    return F.pad(x, (0, -x.numel() % 64)).reshape(-1, 64)


def finite(codes: torch.Tensor) -> torch.Tensor:
    """With ones for what no integer is."""
    x = codes.float()
    return torch.where(x - x == 0, x, 1.0).to(codes.dtype)


def float8_numbers(dtype: torch.dtype) -> torch.Tensor:
    """Each number, those half way between two and their neighbours, beyond both ends, and special ones."""
    codes = torch.arange(256).to(torch.uint8).view(dtype).float()
    least = torch.finfo(dtype).smallest_normal / 8
    known = torch.cat([codes[codes.isfinite()].unique(), torch.tensor([480.0, 57344.0 + 8192.0, least / 2])])
    ties = (known[1:] + known[:-1]) / 2
    exact = torch.cat([known, ties, ties.sort().values / 2])
    beside = torch.cat([exact.nextafter(torch.tensor(s * INF)) for s in (1, -1)])
    far = torch.tensor([INF, -INF, NAN, 1e30, -1e30, 1e-30, 1e-45, -1e-45, 0.0, -0.0, 464.0, 61440.0, 3.4e38])
    random = (
        torch.randint(-(2**31), 2**31, (4096,), generator=torch.Generator().manual_seed(9)).int().view(torch.float32)
    )
    x = torch.cat([exact, beside, far, random])
    return F.pad(x, (0, -x.numel() % 64)).reshape(64, -1)


def suites() -> Iterator[Suite]:
    """All suites of this file."""
    for dtype in FLOAT8:
        codes = torch.arange(256).to(torch.uint8).view(dtype).reshape(4, 64)
        yield Suite(f"float8_{str(dtype)[13:]}", float8_rows(dtype), [[float8_numbers(dtype), codes]], None, 0.0, True)
    codes = torch.arange(256).to(torch.uint8).view(E8M0).reshape(4, 64)
    yield Suite("float8_e8m0fnu", e8m0_rows(), [[e8m0_numbers(), codes]], None, 0.0, True)
