"""hardtack serve"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import click

from hardtack.cli.common import WrongUse

PROGRAM = "hardtack-server"


def find_program() -> str:
    """The server among this Python's scripts, where the wheel puts it, or on PATH. Raises WrongUse without one."""
    for folder in (sysconfig.get_path("scripts"), str(Path(sys.executable).parent)):
        program = shutil.which(PROGRAM, path=folder)
        if program is not None:
            return program
    program = shutil.which(PROGRAM)
    if program is None:
        raise WrongUse(
            f"{PROGRAM} was not found among the scripts of {sys.executable} nor on PATH; build it with "
            "cmake -DHARDTACK_SERVER=ON and put it on PATH (docs/server.md)"
        )
    return program


@click.command(
    name="serve",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Serve bundles over HTTP and gRPC: starts hardtack-server with these arguments (hardtack serve --help lists them).

    The program takes this process's place: signals and the exit status are its own.
    """
    program = find_program()
    sys.stdout.flush()
    os.execv(program, [PROGRAM, *arguments])
