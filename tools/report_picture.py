"""Takes the picture of the README: the first screen of the report that ``noonward compare tiny`` writes.

    python tools/report_picture.py [--out docs/images/report.png]

Needs Chromium. The report is that of the default seed, so the picture is the same every time.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SIZE = "1280,460"
"""Width and height of the picture, pixels: headline, tiles and what the policy does."""


def main() -> None:
    """Compares, and takes the picture of the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images/report.png"))
    out = parser.parse_args().out.resolve()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium is installed (Debian: chromium)")
    with tempfile.TemporaryDirectory() as folder:
        compare = [sys.executable, "-m", "noonward.cli.main", "compare", "tiny"]
        subprocess.run(compare, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (report,) = Path(folder).glob("runs/*/report-*.html")
        picture = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={SIZE}", f"--screenshot={out}", report.as_uri(),
        ]  # fmt: skip
        subprocess.run(picture, check=True)


if __name__ == "__main__":
    main()
