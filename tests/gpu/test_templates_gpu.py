"""Every template against torch on the GPU of this machine, at real sizes. Skipped where there is none."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.template_sizes import CASES
from tests.triton.template_cases import close
from tests.triton.template_runs import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=f"no GPU for {len(CASES)} cases of templates"),
]


@pytest.mark.parametrize("name", CASES)
def test_template(name: str) -> None:
    torch.manual_seed(0)
    case = CASES[name]()
    major, minor = torch.cuda.get_device_capability()
    got = run(case.graph, case.tensors, case.sizes, f"sm_{major}{minor}", device="cuda")
    torch.cuda.synchronize()
    # eager on the GPU orders -0 and 0, and equal elements, in ways of its own
    device = "cpu" if case.exact else "cuda"
    close(case, [g.to(device) for g in got], case.want({k: v.to(device) for k, v in case.tensors.items()}))
