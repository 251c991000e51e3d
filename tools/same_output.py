"""Whether another tree of this project makes the same of every model:

    same_output.py OTHER [--programs N] [--bundles] [--stages render,plan]

For changes that no user may see. In both trees the zoo, the tables of ops and N random programs are captured and
lowered for a CPU and a GPU, and the texts of all stages are compared; with --bundles, the zoo's files for a CPU, too,
byte for byte; with --stages, these texts alone, where the two have other passes. Prints what differs, by its first
stage, and exits with 1 if anything does. Models, tables and programs are this tree's, so that the other one may be
older.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("cpu:x86-64-v4", "cuda:sm_90")
FIRST_SEED = 7_000_000

Model = tuple[Any, Any, Any]
"""(module, args, dynamic_shapes)."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the root of the other tree")
    parser.add_argument("--programs", type=int, default=300, help="random programs, as of ./dev fuzz models")
    parser.add_argument("--bundles", action="store_true", help="compile the zoo for a CPU, and compare the files")
    parser.add_argument("--stages", default="", help="these stages alone, by name, such as render,plan")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        work(given.worker, given.programs, given.bundles)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        trees = {
            name: linked(Path(scratch) / name, root.resolve())
            for name, root in (("ours", ROOT), ("theirs", given.other))
        }
        workers = {name: started(tree, sys.argv[1:]) for name, tree in trees.items()}
        try:
            found = (map(json.loads, worker.stdout or ()) for worker in workers.values())
            wanted = known(given.stages)
            return compared(*(map(partial(only, wanted), items) for items in found))
        finally:
            for worker in workers.values():
                worker.kill()


def linked(tree: Path, root: Path) -> Path:
    """A folder in which the rooms of a source tree lie as they are installed, with the native module that is built."""
    import hardtack._native

    package = tree / "hardtack"
    package.mkdir(parents=True)
    for item in (*(root / "hardtack").iterdir(), Path(hardtack._native.__file__)):
        (package / item.name).symlink_to(item)
    for place, folder in rooms(root).items():
        (tree / place).symlink_to(root / folder)
    return tree


def rooms(root: Path) -> dict[str, str]:
    """Where a tree's rooms are installed -> their folders, as its pyproject.toml says; without hardtack itself."""
    wheel = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]["wheel"]
    places = {**wheel["packages"], **{place: folder for folder, place in wheel.get("force-include", {}).items()}}
    return {place: folder for place, folder in places.items() if place != "hardtack"}


def started(tree: Path, arguments: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *arguments, "--worker", str(tree)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}
    )


def known(stages: str) -> list[str]:
    """The names given; SystemExit for one that no target has."""
    from hardtack.codegen.targets import STAGES

    given = [s for s in stages.split(",") if s]
    if unknown := sorted(set(given) - set(STAGES)):
        raise SystemExit(f"no stage is called {', '.join(unknown)}; there are {', '.join(STAGES)}")
    return given


def only(wanted: list[str], item: dict[str, Any]) -> dict[str, Any]:
    """An item's texts of the stages that are wanted, all for none; and what has no stage."""
    return {k: v for k, v in item.items() if not wanted or " " not in k or k.rpartition(" ")[2] in wanted}


def compared(ours: Iterator[dict[str, Any]], theirs: Iterator[dict[str, Any]]) -> int:
    """Prints the items of which the two differ, and the counts."""
    items = differing = refused = 0
    for left, right in zip(ours, theirs, strict=True):
        assert left["item"] == right["item"]
        items += 1
        refused += "error" in left
        where = next((k for k in left if left[k] != right.get(k)), "" if left.keys() == right.keys() else "stages")
        if where:
            differing += 1
            print(f"{left['item']}: {where} differs", flush=True)
    print(f"{items} items, {differing} of which differ; of {refused} there is only an error")
    return int(differing > 0 or items == 0)


def work(tree: Path, programs: int, bundles: bool) -> None:
    """Prints a line for every item, {"item": its name, stage: the hash of its text, ..}, with a tree's packages."""
    lines, sys.stdout = sys.stdout, sys.stderr  # models may print
    sys.meta_path = [f for f in sys.meta_path if "editable" not in type(f).__module__]
    sys.path[:0] = [str(tree), str(ROOT)]
    import hardtack

    assert Path(hardtack.__file__).is_relative_to(tree), hardtack.__file__
    for name, make in every_item(programs):
        found: dict[str, str] = {"item": name}
        try:
            module, args, dynamic = make()
            found |= stages(module, args, dynamic)
            if bundles and name.startswith("zoo "):
                found["bundle"] = bundle(module, args, dynamic)
        except Exception as error:  # of both trees the same, or a difference
            found["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(found), file=lines, flush=True)


def every_item(programs: int) -> Iterator[tuple[str, Callable[[], Model]]]:
    """(name, what makes the model)."""
    from tests.export.rows import GROUPS, RowsModule
    from tests.fuzz.draw import draw
    from tests.fuzz.program import build
    from tests.models import zoo

    def of_zoo(name: str, dynamic: bool) -> Model:
        model = zoo.load(name)
        return model.module, model.args, model.dynamic[0] if dynamic else None

    def of_seed(seed: int) -> Model:
        program = draw(seed)
        return build(program), program.arguments(), program.dynamic_shapes()

    for name in zoo.NAMES:
        for dynamic in (False, True):
            yield f"zoo {name}{' dynamic' if dynamic else ''}", partial(of_zoo, name, dynamic)
    for rows in GROUPS:
        inputs = tuple(t for row in rows for t in row[2])
        yield f"ops {rows[0][0]} to {rows[-1][0]}", lambda rows=rows, inputs=inputs: (RowsModule(rows), inputs, None)  # type: ignore[misc]
    for seed in range(FIRST_SEED, FIRST_SEED + programs):
        yield f"program {seed}", partial(of_seed, seed)


def stages(module: Any, args: Any, dynamic: Any) -> dict[str, str]:
    """Target, entry point and stage -> the hash of the text."""
    from hardtack.api import sources_of, to_graphs  # by whichever name the tree's exporter has
    from hardtack.codegen.pipeline import compile_entry
    from hardtack.generation import generation

    exported = to_graphs(module, args, None, dynamic)
    sources = sources_of(exported, module, args, None)
    found: dict[str, str] = {}
    with generation():
        for target in TARGETS:
            backend = backend_of(target)
            for entry, s in sources.items():
                texts = compile_entry(s.graph, s.hints, backend).texts
                found |= {f"{target} {entry} {stage}": digest(text.encode()) for stage, text in texts.items()}
    return found


def backend_of(target: str) -> Any:
    """The backend of a target, in this tree or one before 2026-11-26."""
    from hardtack.codegen import targets

    if hasattr(targets, "backends_for"):
        (backend,) = targets.backends_for([target])
    else:
        (backend,) = targets.parse_targets([target]).backends().values()
    return backend


def bundle(module: Any, args: Any, dynamic: Any) -> str:
    """The hash of the file for a CPU."""
    import hardtack

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "m.pkg"
        hardtack.export(module, args, path=path, dynamic_shapes=dynamic, targets=TARGETS[:1])
        return digest(path.read_bytes())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
