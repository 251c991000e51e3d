"""hardtack export"""

from __future__ import annotations

import os
from typing import Any

import click

from hardtack.cli.common import (
    WrongUse,
    activations_option,
    cache_option,
    calibration_option,
    check_few_bits,
    check_target_path,
    chosen_plugins,
    few_bits_embeddings_option,
    few_bits_option,
    json_option,
    keep_activations_option,
    keep_cache_option,
    keep_weights_option,
    plugin_options,
    print_json,
)
from hardtack.cli.export_report import print_report, report_document
from hardtack.cli.spec import HELP, load_calibration, load_spec
from hardtack.codegen.targets import STAGES
from hardtack.codegen.tune.table import NONE
from hardtack.options import COMPUTES, Options
from hardtack.schemes import METHODS


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
    "--memory-budget",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="What the intermediate values of an entry point may take at the largest declared sizes. Kernels are put in "
    "another order where that keeps it; an export that cannot says which values are in the way.",
)
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
    help="With --weights or --embeddings: how integers are chosen. nearest: scales by the largest weight; hqq: scales "
    "so that the error of the weights is small; gptq: codes so that the error of linear layers' results is small at "
    "the data of --calibration, the best for int4.",
)
@activations_option
@keep_activations_option
@cache_option
@keep_cache_option
@calibration_option
@click.option(
    "--written-input",
    "written_inputs",
    multiple=True,
    metavar="INPUT",
    help="An input that forward writes to in place: runs do so in the caller's memory; may be repeated.",
)
@plugin_options
@click.option(
    "--stop-after", type=click.Choice(STAGES), help="Print the text of this stage and stop; nothing is written."
)
@json_option
def command(
    spec: str,
    output: str | None,
    targets: tuple[str, ...],
    stop_after: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    chosen = _options(**given)
    if stop_after is not None:
        _check_targets(targets, None)
        _check_targets(targets[:1], chosen.tuning)
        _check_stage(targets[0], stop_after)
        _print_stage(stop_after, spec, targets[0], chosen, as_json)
        return

    if output is None:
        raise WrongUse("name the bundle to write with -o, or a stage with --stop-after")
    check_target_path(output)
    _check_targets(targets, chosen.tuning)
    _check_tools(targets, chosen.compiler)
    found = load_spec(spec, chosen.plugins)
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
        print_json(report_document(info))
        return
    print_report(info)


def _options(
    *,
    keep_f32: tuple[str, ...],
    compute: str,
    calibration: str | None,
    plugins: tuple[str, ...],
    no_plugins: bool,
    **given: Any,
) -> Options:
    """The options that were given; those of Options have its names. WrongUse for what does not go together."""
    if keep_f32 and compute == "f32":
        raise WrongUse("--keep-f32 leaves products out of --compute, which is f32 for all")
    asked = {"--weights": given["weights"], "--embeddings": given["embeddings"]}
    names = ("keep_weights", "weights_method", "activations", "keep_activations", "cache", "keep_cache")
    keep_weights, method, activations, keep_activations, *caches = (given[name] for name in names)
    beside = (calibration is not None, keep_activations, *caches)
    check_few_bits(asked, keep_weights, compute, method, activations, *beside)
    data = load_calibration(calibration) if calibration is not None else None
    chosen = chosen_plugins(plugins, no_plugins)
    return Options(keep_f32=keep_f32, compute=compute, calibration=data, plugins=chosen, **given)


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
    found = load_spec(spec, chosen.plugins)
    from hardtack.api import stage_texts

    texts = stage_texts(
        stage,
        found.module,
        found.args,
        found.kwargs,
        dynamic_shapes=found.dynamic_shapes,
        target=target,
        options=chosen,
    )
    if as_json:
        print_json(texts)
        return
    for name, text in texts.items():
        click.echo(text if len(texts) == 1 else f"entry {name}\n{text}")
