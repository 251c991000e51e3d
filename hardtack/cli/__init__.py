"""The command `hardtack`. One file a subcommand; each is loaded when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from hardtack.cli.common import WrongUse, error_line, known_errors

_COMMANDS = {
    "export": "Compile a model into a bundle.",
    "tune": "Time kernels on this machine and keep the fastest in a table.",
    "inspect": "Show what a bundle holds and takes.",
    "verify": "Prove a bundle sound without running it.",
    "run": "Run a bundle on .npy files.",
    "bench": "Measure load time and latency.",
    "serve": "Serve bundles over HTTP and gRPC.",
    "compare": "Compare a bundle with eager PyTorch.",
    "diff": "Show how two bundles differ.",
    "weights": "List the weights that can be replaced, or replace some.",
    "keygen": "Make a key pair for signing.",
    "sign": "Sign a bundle.",
}


class _Commands(click.Group):
    """Subcommands by name, imported on first use, and the mapping of errors to exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"hardtack.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except WrongUse as error:
            error_line(str(error))
            sys.exit(2)
        except known_errors() as error:
            error_line(str(error))
            sys.exit(1)


@click.group(
    name="hardtack", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="hardtack")
def main() -> None:
    """Compile PyTorch models ahead of time into one file, and look after such files.

    \b
    hardtack export model.pt2 -o model.pkg     compile
    hardtack inspect model.pkg                 what it takes and gives
    hardtack run model.pkg -i x=x.npy -o out   run it

    Exit status: 0 good, 1 the bundle, the model or the result is bad, 2 wrong use.
    """
