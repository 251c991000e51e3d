"""Seeds for the fuzz targets out of bundles: make_corpus.py FOLDER FILE.pkg...

FOLDER/bundle gets the bundles, FOLDER/plan each manifest and plan with a zero byte between, FOLDER/weights each weights
member. Large weights make slow seeds: give small models.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def write_seeds(folder: Path, bundle: Path) -> None:
    """Writes the seeds of one bundle, named after it."""
    seeds = {"bundle": folder / "bundle", "plan": folder / "plan", "weights": folder / "weights"}
    for path in seeds.values():
        path.mkdir(parents=True, exist_ok=True)
    (seeds["bundle"] / bundle.stem).write_bytes(bundle.read_bytes())
    with zipfile.ZipFile(bundle) as archive:
        manifest = archive.read("manifest.json")
        for name in archive.namelist():
            stem = f"{bundle.stem}-{Path(name).stem}"
            if name.startswith("plans/"):
                (seeds["plan"] / stem).write_bytes(manifest + b"\0" + archive.read(name))
            elif name.endswith(".safetensors"):
                (seeds["weights"] / stem).write_bytes(archive.read(name))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for argument in sys.argv[2:]:
        write_seeds(Path(sys.argv[1]), Path(argument))
