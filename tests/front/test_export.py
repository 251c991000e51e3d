"""hardtack.export: a module to a bundle and back, determinism, entry points that share, errors."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hardtack
from hardtack.api import stage_texts
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.lower.rules import rules_on
from hardtack.codegen.machine.machine import Cpu
from hardtack.codegen.targets import TargetError

TARGETS = ("cpu:x86-64-v3",)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, *, shift: torch.Tensor) -> dict[str, Any]:
        hidden = torch.relu(self.first(x)) * scale
        return {"y": self.second(hidden) + shift, "parts": (hidden, None, 3)}


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.weight = nn.Parameter(torch.arange(4.0))


class Add(nn.Module):
    def __init__(self, shared: Counter) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shared.total.add_(x * self.shared.weight)
        return self.shared.total.clone()


class Read(nn.Module):
    def __init__(self, shared: Counter) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared.total + x * self.shared.weight


@pytest.fixture(scope="module")
def small() -> Small:
    return Small().eval()


ARGS = (torch.ones(3, 8), torch.tensor(2.0))
SHIFT = {"shift": torch.ones(4)}


@pytest.fixture(scope="module")
def exported(small: Small, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    path = tmp_path_factory.mktemp("export") / "small.pkg"
    batch = torch.export.Dim("batch", max=32)
    shapes = {"x": {0: batch}, "scale": None, "shift": None}
    return hardtack.export(small, ARGS, SHIFT, path=path, dynamic_shapes=shapes, targets=TARGETS), path


def test_same_structure_and_numbers_as_eager(small: Small, exported: tuple[Any, Path]) -> None:
    model = hardtack.load(exported[1])
    for n in (0, 1, 5, 32):
        x = torch.randn(n, 8)
        with torch.no_grad():
            eager = small(x, torch.tensor(3.0), shift=torch.full((4,), 2.0))
        ours = model(x, torch.tensor(3.0), shift=torch.full((4,), 2.0))
        assert list(ours) == list(eager)
        torch.testing.assert_close(ours["y"], eager["y"])
        torch.testing.assert_close(ours["parts"][0], eager["parts"][0])
        assert ours["parts"][1:] == (None, 3)


def test_info(exported: tuple[Any, Path]) -> None:
    info, path = exported
    assert (info.path, info.entries, info.targets) == (path, ("forward",), TARGETS)
    assert info.nbytes == path.stat().st_size
    assert info.weights_nbytes >= 4 * (8 * 16 + 16 + 16 * 4 + 4)
    assert str(path) in str(info)


def test_twice_gives_the_same_bytes(small: Small, exported: tuple[Any, Path], tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", max=32)
    shapes = {"x": {0: batch}, "scale": None, "shift": None}
    hardtack.export(small, ARGS, SHIFT, path=tmp_path / "again.pkg", dynamic_shapes=shapes, targets=TARGETS)
    assert (tmp_path / "again.pkg").read_bytes() == exported[1].read_bytes()


def test_exported_program_and_saved_file(small: Small, tmp_path: Path) -> None:
    program = torch.export.export(small, ARGS, SHIFT)
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    for name, source in (("a.pkg", program), ("b.pkg", torch.export.load(saved))):
        hardtack.export(source, path=tmp_path / name, targets=TARGETS)
        ours = hardtack.load(tmp_path / name)(*ARGS, **SHIFT)
        torch.testing.assert_close(ours["y"], small(*ARGS, **SHIFT)["y"].detach())


def test_entry_points_share_weights_and_states(tmp_path: Path) -> None:
    shared = Counter()
    x = torch.ones(4)
    modules = {"add": Add(shared).eval(), "read": Read(shared).eval()}
    path = tmp_path / "two.pkg"
    hardtack.export(modules, {"add": (x,), "read": (x,)}, path=path, targets=TARGETS)
    model = hardtack.load(path)
    assert sorted(model.entries) == ["add", "read"]
    session = model.session("add")
    session(x)
    torch.testing.assert_close(session(2 * x), 3 * torch.arange(4.0))
    torch.testing.assert_close(session.run("read", x), 4 * torch.arange(4.0))
    torch.testing.assert_close(model.session("read")(x), torch.arange(4.0))
    session.reset()
    torch.testing.assert_close(session.run("read", x), torch.arange(4.0))


def test_place_is_refused_before_the_model_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(hardtack.OutputError, match="it is a directory"):
        hardtack.export(object(), (), path=tmp_path)


def test_errors_are_the_exporters(tmp_path: Path) -> None:
    with pytest.raises(hardtack.ExportError):
        hardtack.export(Small().train(), ARGS, SHIFT, path=tmp_path / "m.pkg", targets=TARGETS)
    from hardtack.exporter.errors import TrainingModeError

    assert hardtack.TrainingModeError is TrainingModeError


def test_the_name_is_the_functions() -> None:
    from hardtack.api import export

    assert hardtack.export is export


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match=r"Options.jobs is 0; it must be at least 1, or None for one a core"):
        hardtack.Options(jobs=0)


def test_debug_option_adds_listings_only(small: Small, tmp_path: Path) -> None:
    from hardtack.codegen.package.bundle import open_bundle

    options = hardtack.Options(debug=True)
    hardtack.export(small, ARGS, SHIFT, path=tmp_path / "d.pkg", targets=TARGETS, options=options)
    with open_bundle(tmp_path / "d.pkg") as bundle:
        listings = [name for name in bundle.entries if name.startswith("debug/")]
        assert "debug/forward.plan.txt" in listings
        assert b"launch" in bytes(bundle.view("debug/forward.plan.txt"))


def test_an_export_for_nothing(tmp_path: Path, small: Small) -> None:
    with pytest.raises(TargetError, match=r'^no target to build for; "cpu" is x86-64-v4 and x86-64-v3$'):
        hardtack.export(small, path=tmp_path / "m.pkg", targets=())


def test_a_bug_of_code_generation_says_so(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed, at which line of the model, in which entry, and that it is ours; a target that is wrong is not."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of all things")

    def model(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    monkeypatch.setitem(rules_on(Cpu), "sin", broken)
    for attempt in (
        lambda: hardtack.export(model, (torch.ones(3),), path=tmp_path / "m.pkg"),
        lambda: stage_texts("plan", model, (torch.ones(3),)),
    ):
        with pytest.raises(hardtack.InternalError) as caught:
            attempt()
        what, where, entry, last = str(caught.value).splitlines()
        assert what == "the code generation failed with ZeroDivisionError: of all things"
        assert where.startswith("  in the lowering of aten.sin at ")
        assert "test_export.py:" in where
        assert entry == "  in entry forward for cpu"
        assert last == "  This is a bug of Hardtack: please report it with the traceback above"
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    monkeypatch.delitem(rules_on(Cpu), "max")
    with pytest.raises(UnsupportedOp, match="max has no kernel"):
        hardtack.export(torch.relu, (torch.ones(3),), path=tmp_path / "m.pkg")
