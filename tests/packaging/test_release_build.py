"""What the build that ./dev demo makes asks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.builds import ROOT

SERVING = ("Boost", "CLI11", "OpenSSL", "Protobuf", "ZLIB", "gRPC", "nlohmann_json")
"""What ./dev setup does not install."""


def test_the_demo_builds_without_the_packages_of_the_server(tmp_path: Path) -> None:
    """Its preset built the fuzz targets, too, which need nlohmann_json: a fresh machine had no demo."""
    absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in SERVING]
    done = subprocess.run(
        ["cmake", "--preset", "release", "-B", str(tmp_path / "build"), *absent],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
