"""Classifiers of timm, one of each family, in the smallest size that it names: the batch varies."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch

from tests.coverage.cases import Case, Made
from tests.coverage.small_configs import words
from tests.models.stubs import imported_timm

SIZES = {
    64: words(
        "convnext_atto convnextv2_atto cspresnet50 densenet121 dla46_c dpn48b edgenext_xx_small efficientnet_lite0 "
        "ese_vovnet19b_dw fbnetc_100 ghostnet_050 hardcorenas_a hgnetv2_b0 hrnet_w18_small inception_next_atto "
        "lcnet_050 mnasnet_small mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small_035 mobileone_s0 "
        "nf_regnet_b0 poolformerv2_s12 regnetx_002 regnety_002 repghostnet_050 repvgg_a0 resnet10t resnetv2_50d_gn "
        "rexnet_100 selecsls42 seresnext26t_32x4d skresnet18 starnet_s050 tinynet_e mobilevit_xxs mobilevitv2_050 "
        "test_vit test_resnet test_byobnet test_efficientnet test_convnext"
    ),
    224: words(
        "crossvit_tiny_240 eva02_tiny_patch14_224 fastvit_t8 gmlp_s16_224 levit_128s mixer_s32_224 pit_ti_224 "
        "resmlp_12_224 vit_tiny_patch16_224 xcit_nano_12_p16_224 efficientformerv2_s0 efficientvit_b0 "
        "efficientvit_m0 pvt_v2_b0 tiny_vit_5m_224 gcvit_xxtiny twins_svt_small"
    ),
}
"""The side of the pictures -> models. Attention over positions has tables for one side."""


def cases() -> Iterator[Case]:
    imported_timm()  # here, and not in each of the processes that begin as this one
    for side, names in SIZES.items():
        for name in names:
            yield Case("timm", name, functools.partial(_made, name, side), whole=True)


def _made(name: str, side: int) -> Made:
    torch.manual_seed(0)
    model = imported_timm().create_model(name, pretrained=False, num_classes=10).eval()
    drawn = torch.Generator().manual_seed(1)
    side = model.default_cfg["input_size"][-1] if side == 224 or name.startswith("test_") else side
    first, *others = ((torch.randn(n, 3, side, side, generator=drawn),) for n in (2, 1, 3))
    return Made(model, first, {}, ({0: torch.export.Dim.DYNAMIC},), others)
