"""What an export made, for people and as a document."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from hardtack.cli.common import console, size_text, table

if TYPE_CHECKING:
    from hardtack.api import ExportInfo
    from hardtack.caches import Cached
    from hardtack.exporter.precision import Accuracy
    from hardtack.narrowing import Narrowed
    from hardtack.quantisation import Quantised, QuantisedLayer
    from hardtack.widened import Widened

_SHOWN = 5
"""The most layers or weights of a table."""


def report_document(info: ExportInfo) -> Any:
    """For JSON."""
    return _without_infinities(dataclasses.asdict(info))


def print_report(info: ExportInfo) -> None:
    """For people, on standard output."""
    out = table(str(info.path), "what", ">size")
    beside = f" in {info.weights_path}" if info.weights_path is not None else ""
    out.add_row(f"weights{beside}", size_text(info.weights_nbytes))
    out.add_row(f"code for {', '.join(info.targets)}", size_text(info.code_nbytes))
    out.add_row("plans", size_text(info.plans_nbytes))
    out.add_row("the file", size_text(info.nbytes))
    shown = console()
    shown.print(out)
    shown.print(
        f"{info.num_kernels} kernels in {info.num_launches} launches; "
        f"{info.num_fused} fusions made, {info.num_refused} refused"
    )
    if info.num_shapes:
        shown.print(f"shapes: {info.num_shapes}, of which a tuning table has {info.num_tuned}")
    if info.narrowed is not None:
        _print_narrowed(info.narrowed, shown)
    if info.quantised is not None:
        _print_quantised(info.quantised, shown)
    if info.cached is not None:
        _print_cached(info.cached, shown)
    if info.widened:
        _print_widened(info.widened, shown)
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in info.seconds.items())
    shown.print(f"time: {times}")


def _print_narrowed(narrowed: Narrowed, shown: Console) -> None:
    """What --compute did, and what it cost."""
    kept = "".join(f"; {count} stay f32: {reason}" for reason, count in sorted(narrowed.num_kept.items()))
    shown.print(f"{narrowed.num_products} products of {narrowed.dtype}{kept}")
    _print_accuracy(narrowed.accuracy, shown)


def _print_quantised(quantised: Quantised, shown: Console) -> None:
    """What was quantised, the layers that it cost most, those that are kept, and what it cost all in all."""
    from hardtack.quantised_layers import EMBEDDING, LINEAR, reasons_text

    layers = quantised.layers
    kept = f"; {reasons_text(quantised.kept)}" if quantised.kept else ""
    made_of: list[str] = []
    for kind, scheme in ((LINEAR, quantised.scheme), (EMBEDDING, quantised.embeddings)):
        count = sum(x.kind == kind.one for x in layers)
        made_of += [f"{count} {kind.one if count == 1 else kind.several} as {scheme}"] if scheme is not None else []
    sizes = f"{size_text(quantised.nbytes)} -> {size_text(quantised.stored_nbytes)}"
    inputs = f", activations as {quantised.activations}" if quantised.activations is not None else ""
    wide = [x.name for x in layers if x.kind == LINEAR.one and x.activations is None]
    if quantised.activations is not None and wide:
        inputs += f" but of {len(wide)}"
    shown.print(f"{' and '.join(made_of)}{inputs}: {sizes}{kept}")
    _print_layers(quantised, shown)
    few = [x.name for x in layers if x.kind == LINEAR.one and x.method != quantised.method]
    if few and quantised.scheme != "fp8":
        more = f" and {len(few) - _SHOWN} more" if len(few) > _SHOWN else ""
        shown.print(
            f"given fewer rows than they have inputs, and so by the method nearest: {', '.join(few[:_SHOWN])}{more}"
        )
    if quantised.kept:
        made = table("layers that stay as they are", "layer", "why")
        for x in quantised.kept[:_SHOWN]:
            made.add_row(x.name, x.reason)
        if len(quantised.kept) > _SHOWN:
            made.add_row(f"{len(quantised.kept) - _SHOWN} more", "--json names all")
        shown.print(made)
    _print_figures(quantised, shown)


def _print_cached(cached: Cached, shown: Console) -> None:
    """Which states are stored as codes, those that are not, and what it cost."""
    count = len(cached.states)
    sizes = f"{size_text(cached.nbytes)} -> {size_text(cached.stored_nbytes)}"
    reading = f"{cached.num_attentions} attention{'s' if cached.num_attentions != 1 else ''} read codes"
    more = f" and {len(cached.widened) - _SHOWN} more" if len(cached.widened) > _SHOWN else ""
    numbers = f"; numbers are made for {', '.join(cached.widened[:_SHOWN])}{more}" if cached.widened else ""
    shown.print(f"{count} cache{'s' if count > 1 else ''} as {cached.scheme}: {sizes} a session; {reading}{numbers}")
    if cached.kept:
        made = table("states that stay as they are", "state", "why")
        for x in cached.kept[:_SHOWN]:
            made.add_row(x.name, x.reason)
        if len(cached.kept) > _SHOWN:
            made.add_row(f"{len(cached.kept) - _SHOWN} more", "--json names all")
        shown.print(made)
    _print_figures(cached, shown)


def _print_figures(report: Quantised | Cached, shown: Console) -> None:
    """The accuracy of the outputs, and the perplexity where that is known."""
    examples = f"{report.num_examples} calibration example{'s' if report.num_examples > 1 else ''}"
    _print_accuracy(report.accuracy, shown, examples if report.num_examples else "example inputs")
    for entry, p in report.perplexity.items():
        name = p.output if len(report.accuracy) == 1 else f"{entry} {p.output}"
        shown.print(f"perplexity by {name}: {p.exact:.4g} -> {p.found:.4g}, of {p.num_tokens:,} tokens")


def _print_layers(quantised: Quantised, shown: Console) -> None:
    """Those with the largest errors: of their results, where data showed these, else of their weights."""
    by_output = any(x.output_error is not None for x in quantised.layers)
    title = f"those with the largest errors, by the method {quantised.method}"
    made = table(title, "layer", "shape", "from", "to", ">error", *([">of results"] if by_output else []))

    def figure(x: QuantisedLayer) -> float:
        return x.error if not by_output else x.output_error or 0.0

    for x in sorted(quantised.layers, key=lambda x: -figure(x))[:_SHOWN]:
        shape = ", ".join(map(str, x.shape))
        of_results = "" if x.output_error is None else f"{x.output_error:.2%}"
        figures = [f"{x.error:.2%}", *([of_results] if by_output else [])]
        made.add_row(x.name, f"[{shape}]", size_text(x.nbytes), size_text(x.stored_nbytes), *figures)
    shown.print(made)


def _print_accuracy(
    accuracy: Mapping[str, Sequence[Accuracy]], shown: Console, examples: str = "example inputs"
) -> None:
    """Of each output, by entry point. examples: what the figures are of."""
    if not accuracy:
        shown.print("without example inputs the accuracy is not known")
        return
    columns = (">largest difference", ">relative", ">SNR", ">lost", ">cosine", ">top 1")
    made = table(f"at the {examples}, from f32", "output", *columns)
    for entry, outputs in accuracy.items():
        for a in outputs:
            name = a.output if len(accuracy) == 1 else f"{entry} {a.output}"
            figures = (f"{a.absolute:.3g}", f"{a.relative:.3g}", f"{a.snr:.1f} dB", f"{a.num_lost:,}")
            made.add_row(name, *figures, f"{a.cosine:.6f}", "" if a.top1 is None else f"{a.top1:.1%}")
    shown.print(made)


def _print_widened(widened: Sequence[Widened], shown: Console) -> None:
    """The largest few of the quantised weights that are stored in floating point."""
    made = table(f"{len(widened)} quantised weights are stored in floating point", "weight", "from", "to")
    largest = sorted(widened, key=lambda w: -w.stored_nbytes)
    for w in largest[:_SHOWN]:
        made.add_row(w.name, f"{w.dtype} {size_text(w.nbytes)}", f"{w.stored_dtype} {size_text(w.stored_nbytes)}")
    if len(widened) > _SHOWN:
        sizes = (size_text(sum(s)) for s in zip(*((w.nbytes, w.stored_nbytes) for w in widened), strict=True))
        made.add_row(f"all {len(widened)}", *sizes)
    shown.print(made)


def _without_infinities(value: Any) -> Any:
    """For JSON, which has no infinity: that is given as text."""
    if isinstance(value, Mapping):
        return {k: _without_infinities(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(v) for v in value]
    return str(value) if value in (math.inf, -math.inf) else value
