"""The command line in this process: its output, or the exact words that it refuses with."""

from __future__ import annotations

from click.testing import CliRunner, Result

from hardtack.cli import main


def run(*arguments: object) -> Result:
    """One run, whatever came of it."""
    return CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")


def good(*arguments: object) -> str:
    """The standard output of a run that succeeds."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object, status: int = 2) -> str:
    """The error of a run that ends with `status`."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    return result.stderr.removeprefix("error: ").rstrip("\n")
