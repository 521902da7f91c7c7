"""The wheel: it holds every file of the package and names the command."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build", reason="the extra dev is not installed")
ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    """``make wheel`` also installs it into an empty environment."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("noonward-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    own = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "noonward").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".nbi", ".nbc")
    }
    assert own <= held
    assert "noonward/data/tables/coast.json" in held
    assert not any(name.split("/")[0] not in ("noonward", wheel.name.rsplit("-", 3)[0] + ".dist-info") for name in held)
    info = next(name for name in held if name.endswith("entry_points.txt"))
    assert "noonward = noonward.cli.main:main" in zipfile.ZipFile(wheel).read(info).decode()
