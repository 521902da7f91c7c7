"""The tour: from job logs and price files as they are downloaded to a comparison and its report, unedited."""

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from command_line import CommandLine
from readme_path import fleet_commands

FIRST = datetime(2022, 10, 20, tzinfo=UTC)
HOURS = 24 * 20
"""Twenty days with the end of summer time in Europe in the night to 30 October."""
MAPS_HEAD = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,Data Estimated\r\n"
)
BRUSSELS = ZoneInfo("Europe/Brussels")


def carbon_of(zone: str, level: float, rng: np.random.Generator) -> str:
    """Returns a yearly export of Electricity Maps: CRLF, a subscript, empty values, estimates."""
    rows = []
    for hour in range(HOURS):
        value = "" if hour == 150 else f"{level * (1 + 0.4 * np.sin(hour / 24 * 2 * np.pi)) + rng.normal(0, 5):.2f}"
        rows.append(
            f"{FIRST + timedelta(hours=hour):%Y-%m-%d %H:%M:%S},C,C,{zone},1,{value},1,1,entsoe.eu,{hour % 7 == 0}"
        )
    return MAPS_HEAD + "\r\n".join(rows).replace("True", "true").replace("False", "false") + "\r\n"


def old_prices(level: float, rng: np.random.Generator) -> str:
    """Returns an export of ENTSO-E's old platform: local hours, one of them twice, and missing values."""
    rows = ['"MTU (CET/CEST)","Day-ahead Price [EUR/MWh]","Currency","BZN|DE-LU"']
    for hour in range(HOURS):
        at = (FIRST + timedelta(hours=hour)).astimezone(BRUSSELS)
        price = "N/A" if hour == 151 else f"{level + 30 * np.sin(hour / 12 * np.pi) + rng.normal(0, 4):.2f}"
        rows.append(f'"{at:%d.%m.%Y %H:%M} - {at:%d.%m.%Y %H:%M}","{price}","EUR"')
    return "\n".join(rows) + "\n"


def new_prices(level: float, rng: np.random.Generator) -> str:
    """Returns an export of ENTSO-E's new platform: quarter-hours, two auctions, marks near the change of the clock."""
    head = '"MTU (CET/CEST)","Area","Sequence","Day-ahead Price (EUR/MWh)","Intraday Period (CET/CEST)","x"'
    rows = []
    for quarter in range(4 * HOURS):
        at = (FIRST + timedelta(minutes=15 * quarter)).astimezone(BRUSSELS)
        mark = f" ({at:%Z})" if at.day == 30 and at.hour in (1, 2, 3) else ""
        price = level + 20 * np.cos(quarter / 48 * np.pi) + rng.normal(0, 4)
        for sequence, value in (("Sequence 2", 999.0), ("Sequence 1", price)):
            rows.append(f'"{at:%d/%m/%Y %H:%M:%S}{mark} - later","BZN|FR","{sequence}","{value:.2f}","",""')
    return "\n".join([head, *rows]) + "\n"


def log(rng: np.random.Generator) -> str:
    """Returns sacct's output: Berlin's clock, steps, an array, jobs without GPUs, cancelled and still waiting."""
    rows = ["JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Cluster|State|JobName"]
    for n in range(160):
        submitted = (FIRST + timedelta(hours=24 + 2.2 * n)).astimezone(ZoneInfo("Europe/Berlin"))
        start, seconds = submitted + timedelta(minutes=3), int(rng.integers(600, 9000))
        end = (start.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(ZoneInfo("Europe/Berlin"))
        times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (submitted, start, end))
        gpus = int(rng.integers(1, 5))
        job, cluster = f"{n // 2}_{n % 2}", ("bln", "par")[n % 3 == 0]
        tres = "cpu=8" if n % 20 == 0 else f"cpu=8,gres/gpu={gpus},gres/gpu:a100={gpus}"
        rows.append(f"{job}|{times}|{seconds}|{tres}|{cluster}|COMPLETED|train|it")
        rows.append(f"{job}.batch|{times}|{seconds}|cpu=8||COMPLETED|batch")
    rows.append("99|2022-10-30T00:00:00|Unknown|Unknown|0||bln|PENDING|wait")
    return "\n".join(rows) + "\n"


def test_from_downloaded_files_to_a_report(noonward: CommandLine) -> None:
    rng = np.random.default_rng(0)
    Path("DE_2022_hourly.csv").write_text(carbon_of("DE", 380, rng), encoding="utf-8")
    Path("FR_2022_hourly.csv").write_text(carbon_of("FR", 60, rng), encoding="utf-8")
    Path("Day-ahead Prices.csv").write_text(old_prices(95, rng))
    Path("GUI_ENERGY_PRICES.csv").write_text(new_prices(80, rng))
    Path("sacct.txt").write_text(log(rng))

    steps = [shlex.split(line)[1:] for line in fleet_commands()]
    assert [words[0] for words in steps] == ["import", "init", "compare", "sensitivity", "when"]
    answer = noonward(*steps[0])
    assert answer.code == 0, answer.err
    assert f"dropped {4 * HOURS:,}: prices of a second auction" in answer.out
    accounts = json.loads(Path("mine/import.json").read_text())
    assert [each["rows_out"] for each in accounts] == [152] + [HOURS] * 4

    answer = noonward(*steps[1])
    assert answer.code == 0, answer.err

    policies = ["--policies", "booked-persistence"]
    answer = noonward(*steps[2], *policies, "-n", 2, "--no-bound", "--json", "--workers", 1)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    figures = {figure["name"]: figure["value"] for figure in found["figures"]}
    assert found["environments"] == 2
    assert figures["saved_usd/what-happened"] == 0
    for figure in ("saved_usd", "saved_kg", "mean_delay_s", "late_jobs"):
        assert {f"{figure}/what-happened", f"{figure}/booked-persistence"} <= set(figures)
    assert figures["saved_usd/booked-persistence"] > 0
    assert figures["completed_jobs/what-happened"] > 15
    assert 180 <= figures["mean_delay_s/what-happened"] < 180 + 2 * 300  # as logged, then the next slot with room
    report = Path(found["report"])
    assert report.stat().st_size > 10_000

    answer = noonward(*steps[3], "-n", 1, "--json", "--workers", 1)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["baseline"] == "what-happened"
    shares = {figure["name"]: figure["value"] for figure in json.loads(answer.out)["figures"]}
    assert shares["saved_share/base"] > shares["saved_share/stay"]

    answer = noonward(*steps[4])
    assert answer.code == 0, answer.err
    assert answer.out.startswith("Run it at ")
    assert "· forecast" in answer.out, "at 09:00 the next day's prices are not published"
