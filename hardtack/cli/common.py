"""What the subcommands share: consoles, JSON, sizes, errors."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from hardtack.codegen.package.errors import KeyFileError, LoadError, OutputError, ReplaceError
from hardtack.errors import HardtackError, InputError, RunError

BUNDLE = click.Path(exists=True, dir_okay=False)
device_option = click.option(
    "--device", default="cpu", show_default=True, help='Where to run: "cpu", "cuda" or "cuda:1".'
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")

weights_option = click.option(
    "--weights", type=BUNDLE, metavar="FILE", help="The bundle's weights, when they are outside and not beside it."
)


def plugin_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--plugin and --no-plugins."""
    named = click.option(
        "--plugin",
        "plugins",
        multiple=True,
        metavar="NAME",
        help="The name of an installed plug-in; others are not used; may be repeated. Default: all that are installed.",
    )
    return named(click.option("--no-plugins", is_flag=True, help="Use no installed plug-in.")(command))


def chosen_plugins(plugins: tuple[str, ...], no_plugins: bool) -> tuple[str, ...] | None:
    """Options.plugins, as the two options say it."""
    if plugins and no_plugins:
        raise WrongUse("--no-plugins leaves out what --plugin names")
    return plugins or (() if no_plugins else None)


few_bits_option = click.option(
    "--weights",
    metavar="int8|fp8|int4[:GROUP]",
    help="Weights of linear layers in few bits: int8 and fp8 have a scale for each row, int4 one for so many of a row: "
    "32, 64, 128 or 256; default: 128.",
)
few_bits_embeddings_option = click.option(
    "--embeddings",
    metavar="int8|fp8|int4[:GROUP]",
    help="Embeddings (nn.Embedding) in few bits, as --weights has linear layers.",
)
keep_weights_option = click.option(
    "--keep-weights",
    multiple=True,
    metavar="MODULE",
    help="With --weights or --embeddings: a module, by its path, whose weights stay as they are; may be repeated, and "
    "hold *.",
)
activations_option = click.option(
    "--activations",
    metavar="int8|int8:dynamic|int8:static|fp8",
    help="Linear layers round their inputs, too: to int8 with --weights int8, so that products are of integers; to fp8 "
    "with --weights fp8. Each row has a scale, computed as the model runs (dynamic), or each layer has one from the "
    "data of --calibration (static); int8 is static where there are data.",
)
keep_activations_option = click.option(
    "--keep-activations",
    multiple=True,
    metavar="MODULE",
    help="With --activations: a module, by its path, whose linear layers take their inputs as they are, with weights "
    "of few bits; may be repeated, and hold *.",
)
cache_option = click.option(
    "--cache",
    metavar="int8|fp8",
    help="Caches of keys and values as codes of 8 bits, with a scale for each row along the last dimension: states to "
    "which whole rows are written in place, and that attention or another product reads.",
)
keep_cache_option = click.option(
    "--keep-cache",
    multiple=True,
    metavar="BUFFER",
    help="With --cache: a buffer, or a module that has some, whose states stay as they are; may be repeated, and hold "
    "*.",
)
calibration_option = click.option(
    "--calibration",
    metavar="FILE|MODULE:FUNCTION",
    help="Inputs like those that the model will see, some dozens: .npz or .safetensors with an array for each "
    "parameter of forward, whose first dimension counts the examples; .pt with a list of tensors, tuples of args and "
    "dicts of kwargs; or a function that returns such a list.",
)


class WrongUse(Exception):
    """A command line that asks for something that makes no sense: exit status 2."""


def known_errors() -> tuple[type[Exception], ...]:
    """Errors that say all there is to say: shown without a traceback, exit status 1."""
    errors: list[type[Exception]] = [LoadError, OutputError, ReplaceError, KeyFileError]
    errors += [InputError, RunError, HardtackError]
    if "hardtack.exporter.errors" in sys.modules:
        errors.append(sys.modules["hardtack.exporter.errors"].ExportError)
    known = (
        ("backends.cpp.toolchain", "ToolchainError"),
        ("backends.cpp.compiler", "CompilerError"),
        ("cache", "CacheError"),
        ("backends.triton.compile", "TritonError"),
        ("backends.triton.nvrtc", "NvrtcError"),
        ("lower.builder", "UnsupportedOp"),
        ("plan.budget", "OverBudget"),
    )
    for module, name in known:
        found = sys.modules.get(f"hardtack.codegen.{module}")
        if found is not None:
            errors.append(getattr(found, name))
    return tuple(errors)


def check_few_bits(
    options: Mapping[str, str | None],
    keep_weights: tuple[str, ...],
    compute: str,
    method: str = "nearest",
    activations: str | None = None,
    is_calibrated: bool = False,
    keep_activations: tuple[str, ...] = (),
    cache: str | None = None,
    keep_cache: tuple[str, ...] = (),
) -> None:
    """WrongUse for a scheme that is not known, or for what does not go with it. options: what a command
    has of --weights and --embeddings, as they are given.
    """
    from hardtack.schemes import check_cache, check_data, check_method, scheme_of

    def named(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    asked = {option: text for option, text in options.items() if text is not None}
    if keep_weights and not asked:
        none = "which is not there" if len(options) == 1 else "of which none is there"
        raise WrongUse(f"--keep-weights leaves layers out of {' or '.join(options)}, {none}")
    if keep_activations and activations is None:
        raise WrongUse("--keep-activations leaves layers out of --activations, which is not there")
    try:
        schemes = [scheme_of(text, option, "--external-weights") for option, text in asked.items()]
        check_method(method, schemes, "--weights-method")
        check_cache(cache, keep_cache, compute, named)
        texts = (options.get("--weights"), options.get("--embeddings"), activations, cache)
        check_data(*texts, method, is_calibrated, named)
    except ValueError as error:
        raise WrongUse(str(error)) from None
    for option, text in asked.items():
        if compute != "f32":
            raise WrongUse(f"{option} {text} is there with --compute f32 only so far, not with {compute}")


def signing() -> ModuleType:
    """hardtack.codegen.package.signing, which needs a package that nothing else does. Raises WrongUse without it."""
    try:
        return importlib.import_module("hardtack.codegen.package.signing")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        raise WrongUse(
            "signatures need the package cryptography; to install it: pip install 'hardtack[sign]'"
        ) from None


def error_line(text: str) -> None:
    """Prints an error on standard error, coloured on a terminal."""
    click.echo(click.style("error: ", fg="red", bold=True) + text, err=True)


def console() -> Console:
    """Standard output; colours only on a terminal, wide enough in a pipe that nothing is cut."""
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, soft_wrap=True)


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2, default=str))


def table(title: str, *columns: str) -> Table:
    """A plain table; a column whose name starts with > is set flush right."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for c in columns:
        made.add_column(c.lstrip(">"), justify="right" if c.startswith(">") else "left", overflow="fold")
    return made


def size_text(nbytes: int) -> str:
    """1234567 as "1.23 MB": decimal units, three digits."""
    if nbytes < 1000:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5 or unit == "GB":
            break
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"


def check_target_path(path: str) -> None:
    """Refuses an output path now, as wrong use."""
    from hardtack.codegen.package.output import check_output

    try:
        check_output(path)
    except OutputError as error:
        raise WrongUse(str(error)) from None
