"""What works without torch, and what says that it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT_TORCH = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "ziglang", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

sys.meta_path.insert(0, Blocked())
import numpy as np
import hardtack
"""


def run(program: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + program, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_load_and_run_without_torch(bundle: Path) -> None:
    program = """
model = hardtack.load(sys.argv[1])
print(model.session("copy")(np.array([1, 2, 3], np.float32)).tolist())
assert "torch" not in sys.modules
"""
    assert run(program, str(bundle)) == "[1.0, 2.0, 3.0]\n"


def test_commands_without_torch(bundle: Path) -> None:
    program = """
from hardtack.cli import main
main(["verify", sys.argv[1]], standalone_mode=False)
"""
    assert " is sound: " in run(program, str(bundle))


def test_export_without_torch_says_what_to_install() -> None:
    program = """
for name in ("export", "ExportError"):
    try:
        getattr(hardtack, name)
    except ImportError as error:
        print(error)
"""
    line = "exporting needs torch; to install it: pip install 'hardtack[export]'\n"
    assert run(program) == line * 2


def test_importing_hardtack_is_light() -> None:
    program = "import sys, hardtack; print('torch' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False False\n"


def test_every_public_name_is_there() -> None:
    import hardtack

    for name in hardtack.__all__:
        assert getattr(hardtack, name) is not None


def test_pinned_versions_agree() -> None:
    """What is tested lies within what the extras allow."""
    import tomllib

    from packaging.requirements import Requirement

    from hardtack.codegen.backends.cpp.compiler import ZIG_REQUIREMENT

    root = Path(__file__).resolve().parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = (root / "requirements" / "dev.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    assert ZIG_REQUIREMENT in extras["export"]
    for requirement in (Requirement(r) for extra in extras.values() for r in extra):
        assert requirement.specifier.contains(pinned[requirement.name]), requirement


def test_the_package_is_sent_by_its_name() -> None:
    """cloudpickle, which Ray and Dask send functions with, sends a plain module by its name, and all of one of another
    class.
    """
    assert run("print(type(hardtack))") == "<class 'module'>\n"
