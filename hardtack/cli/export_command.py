"""hardtack export"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from hardtack.cli.common import (
    WrongUse,
    check_few_bits,
    check_target_path,
    console,
    few_bits_embeddings_option,
    few_bits_option,
    json_option,
    keep_weights_option,
    print_json,
    size_text,
    table,
)
from hardtack.cli.spec import HELP, load_spec
from hardtack.codegen.targets import STAGES
from hardtack.codegen.tune.table import NONE
from hardtack.options import COMPUTES, METHODS, Options

if TYPE_CHECKING:
    from hardtack.api import ExportInfo
    from hardtack.exporter.precision import Accuracy
    from hardtack.narrowing import Narrowed
    from hardtack.quantisation import Quantised
    from hardtack.widened import Widened

_SHOWN = 5
"""The most weights of a table."""


class _TableName(click.Path):
    """The path of a file that is there, or "none"."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        return value if value == NONE else super().convert(value, param, ctx)


@click.command(name="export", help=f"Compile a model into a bundle.\n\n{HELP}")
@click.argument("spec")
@click.option("-o", "--output", help="The bundle to write, such as model.pkg.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="cpu (x86-64-v4 and x86-64-v3), cpu:amx, cpu:x86-64-v4-bf16, cpu:x86-64-v4, cpu:x86-64-v3, "
    "cpu:aarch64-bf16, cpu:aarch64, cpu:native, cuda:sm_80, cuda:sm_90, cuda:sm_100 or hip:gfx942 (compiled and "
    "checked, not run); may be repeated. With --stop-after: the first of them.",
)
@click.option("--strict", is_flag=True, help="Capture in torch.export's strict mode.")
@click.option("--compiler", help="A system C++ compiler to use instead of the ziglang package.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once; default: one a core.")
@click.option("--debug", is_flag=True, help="Keep a listing of every stage in the bundle, under debug/.")
@click.option(
    "--external-weights", is_flag=True, help="Keep the weights not in the bundle but in a .safetensors file beside it."
)
@click.option(
    "--tuning",
    type=_TableName(exists=True, dir_okay=False),
    metavar="FILE|none",
    help="A table of hardtack tune: its plans come before all others. none: look into no table, not even into the "
    "one that comes with Hardtack.",
)
@click.option(
    "--compute",
    type=click.Choice(COMPUTES),
    default="f32",
    show_default=True,
    help="What products of a float32 model take their operands in, where that is safe; results stay float32.",
)
@click.option(
    "--keep-f32",
    "keep_f32",
    multiple=True,
    metavar="MODULE",
    help="With --compute: a module, by its path, whose products stay float32; may be repeated, and hold *.",
)
@few_bits_option
@few_bits_embeddings_option
@keep_weights_option
@click.option(
    "--weights-method",
    type=click.Choice(METHODS),
    default="nearest",
    show_default=True,
    help="With --weights or --embeddings: how scales are chosen, by the largest weight or so that the error is small.",
)
@click.option(
    "--stop-after", type=click.Choice(STAGES), help="Print the text of this stage and stop; nothing is written."
)
@json_option
def command(
    spec: str,
    output: str | None,
    targets: tuple[str, ...],
    strict: bool,
    compiler: str | None,
    jobs: int | None,
    debug: bool,
    external_weights: bool,
    tuning: str | None,
    compute: str,
    keep_f32: tuple[str, ...],
    weights: str | None,
    embeddings: str | None,
    keep_weights: tuple[str, ...],
    weights_method: str,
    stop_after: str | None,
    as_json: bool,
) -> None:
    if keep_f32 and compute == "f32":
        raise WrongUse("--keep-f32 leaves products out of --compute, which is f32 for all")
    check_few_bits({"--weights": weights, "--embeddings": embeddings}, keep_weights, compute, weights_method)
    chosen = Options(
        strict=strict,
        compiler=compiler,
        jobs=jobs,
        debug=debug,
        external_weights=external_weights,
        tuning=tuning,
        compute=compute,
        keep_f32=keep_f32,
        weights=weights,
        embeddings=embeddings,
        keep_weights=keep_weights,
        weights_method=weights_method,
    )
    if stop_after is not None:
        _check_targets(targets, None)
        _check_targets(targets[:1], tuning)
        _check_stage(targets[0], stop_after)
        _print_stage(stop_after, spec, targets[0], chosen, as_json)
        return

    if output is None:
        raise WrongUse("name the bundle to write with -o, or a stage with --stop-after")
    check_target_path(output)
    _check_targets(targets, tuning)
    _check_tools(targets, compiler)
    found = load_spec(spec)
    from hardtack.api import export

    info = export(
        found.module,
        found.args,
        found.kwargs,
        path=output,
        dynamic_shapes=found.dynamic_shapes,
        targets=targets,
        options=chosen,
    )
    if as_json:
        print_json(_without_infinities(dataclasses.asdict(info)))
        return
    _print_info(info)


def _print_info(info: ExportInfo) -> None:
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
    if info.widened:
        _print_widened(info.widened, shown)
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in info.seconds.items())
    shown.print(f"time: {times}")


def _without_infinities(value: Any) -> Any:
    """For JSON, which has no infinity: that is given as text."""
    if isinstance(value, Mapping):
        return {k: _without_infinities(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(v) for v in value]
    return str(value) if value in (math.inf, -math.inf) else value


def _print_narrowed(narrowed: Narrowed, shown: Console) -> None:
    """What --compute did, and what it cost."""
    kept = "".join(f"; {count} stay f32: {reason}" for reason, count in sorted(narrowed.num_kept.items()))
    shown.print(f"{narrowed.num_products} products of {narrowed.dtype}{kept}")
    _print_accuracy(narrowed.accuracy, shown)


def _print_quantised(quantised: Quantised, shown: Console) -> None:
    """What --weights and --embeddings did, the layers that it cost most, and what it cost all in all."""
    from hardtack.quantised_layers import EMBEDDING, LINEAR, reasons_text

    layers = quantised.layers
    sizes = (size_text(sum(s)) for s in zip(*((x.nbytes, x.stored_nbytes) for x in layers), strict=True))
    kept = f"; {reasons_text(quantised.kept)}" if quantised.kept else ""
    made_of: list[str] = []
    for kind, scheme in ((LINEAR, quantised.scheme), (EMBEDDING, quantised.embeddings)):
        count = sum(x.kind == kind.one for x in layers)
        made_of += [f"{count} {kind.one if count == 1 else kind.several} as {scheme}"] if scheme is not None else []
    shown.print(f"{' and '.join(made_of)}: {' -> '.join(sizes)}{kept}")
    title = f"those with the largest errors, by the method {quantised.method}"
    made = table(title, "layer", "shape", "from", "to", ">error")
    for x in sorted(layers, key=lambda x: -x.error)[:_SHOWN]:
        shape = ", ".join(map(str, x.shape))
        made.add_row(x.name, f"[{shape}]", size_text(x.nbytes), size_text(x.stored_nbytes), f"{x.error:.2%}")
    shown.print(made)
    _print_accuracy(quantised.accuracy, shown)


def _print_accuracy(accuracy: Mapping[str, Sequence[Accuracy]], shown: Console) -> None:
    """Of each output, by entry point."""
    if not accuracy:
        shown.print("without example inputs the accuracy is not known")
        return
    columns = (">largest difference", ">relative", ">SNR", ">lost", ">cosine", ">top 1")
    made = table("at the example inputs, from f32", "output", *columns)
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


def _check_targets(targets: tuple[str, ...], tuning: str | None) -> None:
    """WrongUse for a target that is not known, or that --tuning is not for.

    Raises LoadError for a file that is no tuning table.
    """
    from hardtack.codegen.targets import TargetError, backends_for
    from hardtack.codegen.tune.table import read_tables

    tables = read_tables(tuning)
    try:
        backends_for(targets, tables)
    except TargetError as error:
        raise WrongUse(str(error)) from None


def _check_stage(target: str, stage: str) -> None:
    """WrongUse for a stage that the target does not have."""
    from hardtack.codegen.targets import TargetError, stage_backend

    try:
        stage_backend(target, stage)
    except TargetError as error:
        raise WrongUse(str(error)) from None


def _check_tools(targets: tuple[str, ...], compiler: str | None) -> None:
    """WrongUse for a target whose kernels cannot be compiled on this machine.

    Raises CompilerError where no compiler for CPUs is there.
    """
    from hardtack.codegen.backends.triton.compile import TritonError
    from hardtack.codegen.targets import backends_for

    try:
        for backend in backends_for(targets, compiler=compiler):
            backend.tools()
    except TritonError as error:
        raise WrongUse(str(error)) from None


def _print_stage(stage: str, spec: str, target: str, chosen: Options, as_json: bool) -> None:
    found = load_spec(spec)
    from hardtack.api import stage_texts

    texts = stage_texts(
        stage,
        found.module,
        found.args,
        found.kwargs,
        dynamic_shapes=found.dynamic_shapes,
        strict=chosen.strict,
        target=target,
        tuning=chosen.tuning,
        compute=chosen.compute,
        keep_f32=chosen.keep_f32,
        weights=chosen.weights,
        embeddings=chosen.embeddings,
        keep_weights=chosen.keep_weights,
        weights_method=chosen.weights_method,
    )
    if as_json:
        print_json(texts)
        return
    for name, text in texts.items():
        click.echo(text if len(texts) == 1 else f"entry {name}\n{text}")
