"""Draws the picture of docs/own-event.md: a made job log, a fleet from it, and one grid event on the fleet.

    python tools/event_picture.py [--work FOLDER] [--out docs/images/own-event.png]

Needs Chromium, which makes an image of the report that ``noonward event`` writes.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

SEED = 7
START = datetime(2024, 5, 6, tzinfo=UTC)
DAYS = 21
LONGEST_S = 36 * 3600
CLASSES = {"training": (5, 14.0, 0.6, (8, 16, 32)), "finetune": (24, 1.6, 0.8, (1, 2, 4, 8))}
"""Jobs per workday and site, median run time in hours, its sigma, and gangs, by class."""
FREEDOMS = (
    "fleet.freedoms={training: {interruptible: true, caps: emerald-a100-pretraining-7b}, "
    "finetune: {interruptible: true, caps: emerald-a100-fine-tuning}}"
)


def write_log(path: Path) -> None:
    """Writes a made log of two sites: more jobs by day than by night, and fewer on weekends."""
    rng, rows = np.random.default_rng(SEED), []
    for site in ("texas", "berlin"):
        for day in range(DAYS):
            midnight = START + timedelta(days=day)
            part = 0.4 if midnight.weekday() > 4 else 1.0
            for name, (count, median_h, sigma, gangs) in CLASSES.items():
                for _ in range(rng.poisson(count * part)):
                    time = midnight + timedelta(hours=float(np.clip(rng.normal(14, 4), 0, 23.9)))
                    gpus = int(rng.choice(gangs))
                    seconds = round(
                        float(np.clip(3600 * median_h * np.exp(sigma * rng.standard_normal()), 300, LONGEST_S))
                    )
                    rows.append((f"{time:%Y-%m-%dT%H:%M:%SZ}", site, name, gpus, seconds))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("job_id", "submit_time", "start_time", "origin", "class", "gpus", "duration_s"))
        writer.writerows((n, time, time, *rest) for n, (time, *rest) in enumerate(sorted(rows)))


def main() -> None:
    """Makes the log, the fleet and the event, and draws the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/own-event"), help="folder for log, scenario and report")
    parser.add_argument("--out", type=Path, default=Path("docs/images/own-event.png"))
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no Chromium is installed (Debian: chromium)")
    work, out = given.work.resolve(), given.out.resolve()
    work.mkdir(parents=True, exist_ok=True)
    write_log(work / "jobs.csv")

    def noonward(*arguments: str) -> None:
        subprocess.run([str(Path(sys.executable).with_name("noonward")), *arguments], cwd=work, check=True)

    noonward(
        "init", "fleet.yaml", "--site", "texas=US-TEX-ERCO:96xA100-80-SXM", "--site", "berlin=DE:96xA100-80-SXM",
        "--jobs", "jobs.csv", "--gpu-usd-per-hour", "2", "--force",
    )  # fmt: skip
    noonward(
        "event", "fleet.yaml", "--cut", "25%", "--hours", "3h", "--notice", "10min", "--start-h", "42h",
        "--set", FREEDOMS,
    )  # fmt: skip
    report = work / "runs" / "event-fleet-seed0" / "report.html"
    subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000",
            "--window-size=1000,1040", f"--screenshot={out}", report.as_uri(),
        ],
        check=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
