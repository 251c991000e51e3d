"""The program of examples/plain_c in Go: the same model through the C interface, on several goroutines.

./dev demo go runs this; what it makes lies under build/demo/go. It needs Go and pkg-config, and no Go packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from examples.common import ROOT, folder_of, install_runtime, package_folder, run, step
from examples.plain_c.demo import Place, export, find_eager, load_model, report, write_photo


def main() -> None:
    photo = step("read the photograph", write_photo)
    program = step("build the runtime and the Go program", build_program)
    module = step("load the trained weights", load_model)
    bundle = step("export the model", lambda: export(module), spinner=False)
    ours = step("find the face with Hardtack, in Go", lambda: find(program, bundle))
    eager = step("find the face with eager PyTorch", lambda: find_eager(module, photo))
    report(ours, eager)


def build_program() -> Path:
    """`go build`, which asks pkg-config where Hardtack is installed; the program gets the library's folder with it."""
    (pc,) = install_runtime().rglob("hardtack.pc")
    folder, library = folder_of("go"), pc.parent.parent
    program = folder / "findface"
    environment = os.environ | {
        "PKG_CONFIG_PATH": str(pc.parent), "GOCACHE": str(folder / "cache"), "GOFLAGS": "-mod=mod",
        "GOPROXY": "off", "CGO_ENABLED": "1",
    }  # fmt: skip
    command = ["go", "build", "-ldflags", f"-r {library}", "-o", str(program), "."]
    built = subprocess.run(
        command, cwd=ROOT / "examples" / "go", env=environment, capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        sys.exit(f"error: {' '.join(command)} failed:\n{built.stdout}{built.stderr}")
    return program


def find(program: Path, bundle: Path) -> Place:
    """(x, y, size, probability), as the Go program prints it."""
    printed = run(program, bundle, package_folder("skimage") / "data" / "astronaut.png")
    found = re.fullmatch(r"x (\d+) y (\d+) size (\d+) probability ([\d.]+)\n", printed)
    assert found is not None, printed
    return int(found[1]), int(found[2]), int(found[3]), float(found[4])


if __name__ == "__main__":
    main()
