"""What the demos of the examples share: steps that are shown, the runtime as installed, bundles that are kept.

Everything made lies under build/demo and is made again only when its sources have changed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "demo"
PREFIX = BUILD / "prefix"
console = Console(highlight=False)


def step(what: str, work: Callable[[], Any], spinner: bool = True) -> Any:
    """Runs one step, shown while it runs and with its time when it is done."""
    begin = time.perf_counter()
    if spinner:
        with console.status(what + " ..."):
            result = work()
    else:
        result = work()
    console.print(f"[green]done[/green]  {what}  [dim]{time.perf_counter() - begin:.1f} s[/dim]")
    return result


def run(*command: str | Path, given: str | bytes = b"") -> str:
    """Runs a command from the root and gives what it printed; ends the demo with all of it if it fails."""
    texts = [str(c) for c in command]
    stdin = given.encode() if isinstance(given, str) else given
    result = subprocess.run(texts, cwd=ROOT, input=stdin, capture_output=True, check=False)
    if result.returncode != 0:
        console.print((result.stdout + result.stderr).decode(errors="replace"), markup=False)
        sys.exit(f"error: {' '.join(texts)} failed with status {result.returncode}")
    return result.stdout.decode()


def install_runtime() -> Path:
    """The runtime, built and installed below PREFIX: library, headers, hardtack-rt, CMake package, hardtack.pc."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with FileLock(ROOT / "build" / "release.lock"):  # two demos may run at once
        run("cmake", "--preset", "release")
        run("cmake", "--build", "--preset", "release", "--target", "hardtack", "hardtack-rt")
        run("cmake", "--install", "build/release", "--prefix", PREFIX, "--component", "development", "--strip")
    return PREFIX


def build_example(name: str) -> Path:
    """examples/NAME built against the runtime as installed; gives the program, which has the example's name."""
    prefix, build = install_runtime(), BUILD / name / "program"
    # a moved source tree or another compiler leaves caches that CMake refuses
    if not (build / "build.ninja").exists():
        shutil.rmtree(build, ignore_errors=True)
    run("cmake", "-G", "Ninja", "-S", f"examples/{name}", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    return build / name


def folder_of(name: str) -> Path:
    """Where an example keeps what it makes."""
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def package_folder(name: str) -> Path:
    """Where an installed package lies, without importing it. ModuleNotFoundError if it is not installed."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if not places:
        raise ModuleNotFoundError(f"the package {name} is not installed; requirements/models.txt lists it", name=name)
    return Path(places[0])


def kept(path: Path, example: str, make: Callable[[Path], object]) -> Path:
    """`path` from the last time if nothing that goes into it has changed; else what `make` writes there."""
    stamp, wanted = path.with_suffix(".stamp"), sources_hash(example)
    if not (path.exists() and stamp.exists() and stamp.read_text() == wanted):
        stamp.unlink(missing_ok=True)
        make(path)
        stamp.write_text(wanted)
    return path


def sources_hash(example: str) -> str:
    """What a bundle of an example depends on: its script, Hardtack's Python and templates, the weights."""
    digest = hashlib.sha256((ROOT / "requirements" / "models.txt").read_bytes())
    for folder in ("hardtack", "export", "codegen", f"examples/{example}"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".h", ".cpp"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
