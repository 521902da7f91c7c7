"""Takes the picture of docs/live.md: the overview of ``noonward serve --demo`` once it has saved something.

    python tools/live_picture.py [--jobs 100] [--out docs/images/live.png]

Needs the extra ``live`` and Chromium. It takes about three minutes; the picture differs a little from run to run.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NOONWARD = str(Path(sys.executable).with_name("noonward"))
SIZE = "1280,1640"
"""Width and height of the picture, pixels."""
LONGEST_S = 600
"""The demo has failed if it has not saved anything after this time, s."""


def jobs_saved(address: str) -> int:
    """Returns how many jobs the savings of a demo rest on so far; 0 while it does not answer."""
    asked = [NOONWARD, "savings", "--address", address, "--json"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return sum(day["jobs"] for day in json.loads(found.stdout)["days"]) if found.returncode == 0 else 0


def main() -> None:
    """Starts a demo, waits for its savings, and takes the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100, help="jobs that the savings shall rest on")
    parser.add_argument("--out", type=Path, default=Path("docs/images/live.png"))
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium is installed (Debian: chromium)")
    with tempfile.TemporaryDirectory() as folder:
        serve = [NOONWARD, "serve", "--demo", "--folder", folder, "--port", "0"]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as demo:
            try:
                lines = iter(demo.stdout or ())
                address = next(found[0] for line in lines if (found := re.search(r"http://[\d.]+:\d+", line)))
                last = time.monotonic() + LONGEST_S
                while jobs_saved(address) < given.jobs:
                    if time.monotonic() > last:
                        sys.exit(f"the demo has not saved anything with {given.jobs} jobs within {LONGEST_S} s")
                    time.sleep(2)
                picture = [
                    browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--timeout=5000",
                    f"--window-size={SIZE}", f"--screenshot={given.out.resolve()}", f"{address}/",
                ]  # fmt: skip
                subprocess.run(picture, check=True)
            finally:
                demo.terminate()


if __name__ == "__main__":
    main()
