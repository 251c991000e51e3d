"""Plug-ins, passes and decompositions, through the public functions and the command; docs/extending.md's examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import hardtack
from hardtack import GraphPass, Options, Plugin
from hardtack.cli import main
from hardtack.codegen.backends.triton.nvrtc import NvrtcError, nvrtc
from hardtack.codegen.dump.folder import VARIABLE
from hardtack.comparison import compare
from hardtack.exporter import InputSpecError, PluginError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@torch.library.custom_op("hardtack_front::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() + 3)


shifted.register_fake(torch.empty_like)


class Shifts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return shifted(x) * 2


PLUGIN = Plugin("shifts", "0.3", decompositions={"hardtack_front::shifted": lambda x: x + 3})
WRONG = Plugin("wrong", "0.1", decompositions={shifted: lambda x: x + 4})


SHORT = 'it must be a short text without spaces, as "1.0"'
PLUGINS = "Options.plugins is 'shifts'; it must be a tuple of Plugins and names of installed ones"


def same(graph: Any, store: Any) -> Any:
    return graph


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Plug-ins that packages seem to have, by name; what is added is installed."""
    found: dict[str, Any] = {}

    class Offer(EntryPoint):
        def load(self) -> Any:
            if isinstance(found[self.name], Exception):
                raise found[self.name]
            return found[self.name]

    def offers(group: str) -> list[EntryPoint]:
        return [Offer(name, f"package:{name}", group) for name in found]

    monkeypatch.setattr("hardtack.extending.entry_points", offers)
    return found


def producer(path: Path) -> dict[str, str]:
    return dict(hardtack.load(path).producer)


def exported(path: Path, x: Tensor, **given: Any) -> dict[str, str]:
    """The manifest's producer of a bundle that gives what the module does."""
    hardtack.export(Shifts().eval(), (x,), path=path, targets=("cpu:native",), **given)
    assert torch.equal(torch.as_tensor(hardtack.load(path)(x)), Shifts()(x))
    return producer(path)


def installed_nvrtc() -> bool:
    """True where users' CUDA kernels can be compiled."""
    try:
        nvrtc()
    except NvrtcError:
        return False
    return True


def test_examples_of_the_page_run(tmp_path: Path) -> None:
    """In a process of their own, where Triton compiles: that of the tests may interpret it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 8
    if not installed_nvrtc():
        blocks = [b for b in blocks if "CudaKernel" not in b]
    code = tmp_path / "page.py"
    code.write_text("\n".join(blocks))
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run([sys.executable, str(code)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_decomposition_by_argument_by_plugin_and_by_an_installed_one(tmp_path: Path, installed: Any) -> None:
    path, x = tmp_path / "m.pkg", torch.randn(3, 4)
    plain = exported(path, x, decompositions={shifted: lambda x: x + 3})
    assert plain["decomposition hardtack_front.shifted.default"].endswith("<lambda>")
    assert exported(path, x, options=Options(plugins=(PLUGIN,)))["plugin shifts"] == "0.3"
    installed["shifts"] = PLUGIN
    assert exported(path, x)["plugin shifts"] == "0.3"
    first = path.read_bytes()
    installed["shifts"], installed["idle"] = lambda: PLUGIN, Plugin("idle", "1", lowerings={"aten::erf.default": same})
    assert exported(path, x, options=Options(plugins=("shifts",)))["plugin shifts"] == "0.3"
    assert path.read_bytes() == first
    exported(path, x)
    assert path.read_bytes() == first
    with pytest.raises(hardtack.exporter.UnsupportedOpError):
        exported(path, x, options=Options(plugins=()))


def test_compare_finds_what_a_decomposition_gets_wrong(tmp_path: Path, installed: Any) -> None:
    path, x = tmp_path / "m.pkg", torch.randn(3, 4)
    for plugin, good in ((PLUGIN, True), (WRONG, False)):
        hardtack.export(Shifts().eval(), (x,), path=path, targets=("cpu:native",), options=Options(plugins=(plugin,)))
        found = compare(hardtack.load(path), Shifts().eval(), (x,), plugins=(plugin,), steps=True)
        assert all(d.good for d in found.outputs) is good


def test_passes_stand_in_the_dump_and_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: Any
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "dump"))
    options = Options(passes=(GraphPass("graph", "2.1", same),), plugins=(PLUGIN,))
    assert exported(tmp_path / "m.pkg", torch.randn(3, 4), options=options)["pass graph"] == "2.1"
    folder = tmp_path / "dump" / "forward"
    assert (folder / "01-pass-graph.txt").read_text() == (folder / "02-graph.txt").read_text()
    assert "pass-graph" in (folder / "index.html").read_text()


def test_two_plugins_for_one_op_are_told(tmp_path: Path, installed: Any) -> None:
    installed.update(shifts=PLUGIN, wrong=WRONG)
    with pytest.raises(InputSpecError) as caught:
        exported(tmp_path / "m.pkg", torch.randn(3, 4))
    assert caught.value.what == (
        "there are two functions for one op: the decomposition of hardtack_front.shifted.default of the plug-in shifts "
        "0.3, and the decomposition of hardtack_front.shifted.default of the plug-in wrong 0.1"
    )


def test_two_plugins_of_one_name_are_told(tmp_path: Path, installed: Any) -> None:
    both = (PLUGIN, Plugin("shifts", "0.4"))
    with pytest.raises(InputSpecError) as caught:
        exported(tmp_path / "m.pkg", torch.randn(3, 4), options=Options(plugins=both))
    assert caught.value.what == "there are two plug-ins shifts: 0.3, 0.4"


def test_two_packages_with_one_plugin_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offers = [EntryPoint("shifts", f"{package}:plugin", "hardtack.plugins") for package in ("one", "two")]
    monkeypatch.setattr("hardtack.extending.entry_points", lambda group: offers)
    with pytest.raises(PluginError) as caught:
        exported(tmp_path / "m.pkg", torch.randn(3, 4))
    assert caught.value.what == "two packages offer a plug-in 'shifts': one:plugin and two:plugin"


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (ImportError("no module named that"), "the plug-in 'bad' does not load: ImportError: no module named that"),
        (lambda: 3, "the plug-in 'bad' is a int, not a hardtack.Plugin"),
        (3, "the plug-in 'bad' does not load: TypeError: 'int' object is not callable"),
    ],
)
def test_an_installed_plugin_that_does_not_load_is_told(offer: Any, words: str, tmp_path: Path, installed: Any) -> None:
    installed["bad"] = offer
    with pytest.raises(PluginError) as caught:
        exported(tmp_path / "m.pkg", torch.randn(3, 4))
    assert caught.value.what == words
    assert not (tmp_path / "m.pkg").exists()


def test_a_plugin_that_is_not_there_is_told(tmp_path: Path, installed: Any) -> None:
    installed.update(shifts=PLUGIN)
    with pytest.raises(InputSpecError) as caught:
        exported(tmp_path / "m.pkg", torch.randn(3, 4), options=Options(plugins=("shift",)))
    assert str(caught.value) == (
        "there is no plug-in 'shift' among those that are installed: shifts\n"
        "  To fix: install the package that offers it by an entry point of the group hardtack.plugins, or pass the "
        "Plugin"
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Plugin("Shifts", "1"),
            "Plugin.name is 'Shifts'; it must be small letters, digits, - and _, and begin with a letter",
        ),
        (lambda: Plugin("shifts", ""), f"Plugin.version of shifts is ''; {SHORT}"),
        (lambda: GraphPass("mine", 1, same), f"GraphPass.version of mine is 1; {SHORT}"),  # type: ignore[arg-type]
        (
            lambda: GraphPass("mine", "1", None),  # type: ignore[arg-type]
            "GraphPass.apply of mine is a NoneType; it must be a function",
        ),
        (
            lambda: Plugin("shifts", "1", passes=(same,)),  # type: ignore[arg-type]
            "Plugin.passes of shifts has a function; it must have GraphPasses",
        ),
        (
            lambda: Plugin("shifts", "1", api=2),
            "the plug-in shifts 1 is written for API 2 of plug-ins, and this Hardtack has 1: use a version of the "
            "plug-in for it, or a newer Hardtack",
        ),
        (lambda: Options(plugins="shifts"), PLUGINS),  # type: ignore[arg-type]
        (lambda: Options(passes=[]), "Options.passes is []; it must be a tuple of GraphPasses"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_is_no_plugin_is_told(make: Any, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    assert str(caught.value) == words


def test_the_command_takes_names_of_plugins(tmp_path: Path, installed: Any) -> None:
    installed.update(shifts=PLUGIN, wrong=WRONG)
    spec = tmp_path / "spec.py"
    spec.write_text(
        "import torch\nfrom tests.front.test_plugins import Shifts\n"
        "def make():\n    return Shifts().eval(), (torch.ones(3, 4),)\n"
    )
    out = str(tmp_path / "m.pkg")
    common = ["export", f"{spec}:make", "-o", out, "--target", "cpu:native"]
    good = CliRunner().invoke(main, [*common, "--plugin", "shifts"])
    assert good.exit_code == 0, good.output
    assert producer(Path(out))["plugin shifts"] == "0.3"
    for given, status, words in (
        (["--plugin", "shifts"], 0, ""),
        (["--plugin", "wrong"], 0, ""),  # the bundle is what it was; of the steps nothing is asked
        (["--plugin", "shifts", "--no-plugins"], 2, "--no-plugins leaves out what --plugin names"),
        ([], 1, "there are two functions for one op"),
    ):
        compared = CliRunner().invoke(main, ["compare", out, f"{spec}:make", *given])
        assert compared.exit_code == status, compared.output
        assert words in compared.output
    none = CliRunner().invoke(main, [*common, "--no-plugins"])
    assert none.exit_code == 1
    assert "a custom op: its code is unknown to the compiler" in none.output
    both = CliRunner().invoke(main, [*common, "--no-plugins", "--plugin", "shifts"])
    assert both.exit_code == 2
    assert "--no-plugins leaves out what --plugin names" in both.output
    text = CliRunner().invoke(main, [*common[:2], "--plugin", "shifts", "--stop-after", "graph"])
    assert "= add(" in text.output
