"""What works without torch, and what says that it is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


def test_the_exporter_waits_for_neither_dynamo_nor_triton() -> None:
    """Both take seconds to import, and Triton's interpreter must be chosen before Triton is imported."""
    program = "import sys, hardtack.api; print('torch._dynamo' in sys.modules, 'triton' in sys.modules)"
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


BESIDE_TORCH = """
import json, os, sys, traceback
import sympy, torch, torch.fx.experimental.symbolic_shapes, torch.export.graph_signature

for line in sys.stdin:
    told, tell = os.pipe()
    if not os.fork():
        status = 1
        try:
            os.dup2(tell, 1)
            os.dup2(tell, 2)
            exec(json.loads(line), {"__name__": "__main__"})
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.close(tell)
    with open(told) as said:
        text = said.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), text]), flush=True)
"""


@pytest.fixture(scope="module")
def beside_torch() -> Iterator[Callable[[str], str]]:
    """What a program prints in a process of its own that has torch and sympy, which take seconds to import, and
    nothing of Hardtack."""
    command = [sys.executable, "-c", BESIDE_TORCH]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        programs, answers = process.stdin, process.stdout

        def run(program: str) -> str:
            print(json.dumps(f"import sys; assert 'hardtack' not in sys.modules\n{program}"), file=programs, flush=True)
            status, said = json.loads(answers.readline())
            assert status == 0, said
            return str(said)

        yield run
        programs.close()


@pytest.mark.parametrize(
    "line",
    [
        "import hardtack.export",
        "from hardtack import export",
        "from hardtack.export import to_graphs, ExportError",
        "from hardtack.export.reference import run, ReferenceFailure",
        "from hardtack.export import errors",
        "hardtack.export; import hardtack.export.errors",
        "from hardtack.export import *",
        "importlib.import_module('hardtack.export')",
    ],
)
def test_the_name_export_is_the_function_whoever_imports_it(line: str, beside_torch: Callable[[str], str]) -> None:
    beside_torch(f"""
import importlib.util, sys, hardtack
{line}
import pickle
from hardtack.api import export
assert hardtack.export is export and pickle.loads(pickle.dumps(export)) is export
assert importlib.util.find_spec("hardtack.export").name == "hardtack.export"
assert "re" not in globals()
from hardtack import export as again
assert again is export
""")


def test_what_the_package_export_held_is_the_same_in_exporter(beside_torch: Callable[[str], str]) -> None:
    printed = beside_torch("""
import warnings, hardtack
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    from hardtack.export import to_graphs
    from hardtack.export.errors import CaptureError
import hardtack.exporter, hardtack.exporter.errors
assert to_graphs is hardtack.exporter.to_graphs and CaptureError is hardtack.exporter.errors.CaptureError
print(*(f"{w.category.__name__} in {w.filename}: {w.message}" for w in found if "hardtack" in str(w.message)))
""")
    assert printed == (
        "DeprecationWarning in <string>: hardtack.export is a function; the exporter's parts are in hardtack.exporter: "
        "import them from there\n"
    )
