"""Which convolutions Winograd's filtering is taken for, and what the Decision says."""

from __future__ import annotations

import pytest
import torch

from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.lower.winograd_cost import winograd_cost
from hardtack.codegen.machine.data import X86_64_V3, X86_64_V4
from hardtack.codegen.machine.machine import Cpu
from tests.codegen.template_nests import lowered, ones


@pytest.mark.parametrize("machine", [X86_64_V4, X86_64_V3], ids=lambda m: m.name)
@pytest.mark.parametrize(("size", "channels"), [(56, 64), (28, 128), (14, 256), (224, 64)])
def test_layers_with_many_tiles_and_channels_are_worth_it(machine: Cpu, size: int, channels: int) -> None:
    assert winograd_cost(machine, (1, size, size), channels, channels).pays


@pytest.mark.parametrize(
    ("size", "channels", "outputs"), [(7, 512, 512), (224, 3, 64), (112, 8, 64), (1, 512, 512), (4, 16, 16)]
)
def test_others_are_not(size: int, channels: int, outputs: int) -> None:
    assert not winograd_cost(X86_64_V4, (1, size, size), channels, outputs).pays


@pytest.mark.parametrize(
    ("size", "kind", "reason"),
    [
        (20, "winograd", "5.41e+05 cycles by Winograd's filtering, 9.22e+05 directly"),
        (3, "conv", "4.98e+04 cycles by Winograd's filtering, 2.07e+04 directly"),
    ],
)
def test_a_decision_has_both_counts(size: int, kind: str, reason: str) -> None:
    made = lowered(torch.nn.Conv2d(64, 64, 3, padding=1).eval(), ones(2, 64, size, size))
    templates = [n.template.kind for n in made.nests if isinstance(n, TemplateNest)]
    assert templates == [kind]
    assert [(d.partner, d.reason) for d in made.decisions if d.kind == "template"] == [(kind, reason)]


def test_what_it_does_not_compute_has_no_decision() -> None:
    made = lowered(torch.nn.Conv2d(64, 64, 3, stride=2).eval(), ones(1, 64, 40, 40))
    assert not [d for d in made.decisions if d.kind == "template"]
