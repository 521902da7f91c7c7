"""``noonward when`` and ``noonward data show``: what they say, draw and write."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from command_line import Answer, CommandLine
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals

ASKED = ("--gpus", 8, "--gpu", "L40S", "--hours", 6, "--now", "2022-05-04 09:30", "--by", "2022-05-05 18:00")


@pytest.fixture
def hours(tmp_path: Path) -> Path:
    """Six days of two zones."""
    made = generate_signals(("CA-ON", "SG"), datetime(2022, 5, 1, tzinfo=UTC), 6 * 24, np.random.default_rng(0))
    write_generated_signals(made, tmp_path / "hours.csv")
    return tmp_path / "hours.csv"


def figures(answer: Answer) -> dict[str, float]:
    assert answer.code == 0, answer.err
    return {each["name"]: each["value"] for each in json.loads(answer.out)["figures"]}


def test_the_answer_is_a_sentence_and_the_json_says_the_same(noonward: CommandLine, hours: Path) -> None:
    asked = ("when", *ASKED, "--zones", "SG,CA-ON", "--signals", hours)
    found = figures(noonward(*asked, "--json"))
    assert found["usd/now"] - found["usd/best"] == pytest.approx(found["saved_usd/now"])
    assert found["usd/best"] + 0.1 * found["kg/best"] <= found["usd/cheapest"] + 0.1 * found["kg/cheapest"]
    shown = noonward(*asked).out.splitlines()
    assert shown[0].startswith("Run it at CA-ON from ")
    assert f"starting now at SG: {found['saved_usd/now']:,.2f} USD" in shown[1]
    assert f"{found['saved_kg/worst']:,.2f} kg CO2" in shown[2]


def test_the_chart_marks_the_run_where_it_is(noonward: CommandLine, hours: Path) -> None:
    answer = noonward("when", *ASKED, "--zones", "SG,CA-ON", "--signals", hours)
    told = json.loads(noonward("when", *ASKED, "--zones", "SG,CA-ON", "--signals", hours, "--json").out)
    lines = answer.out.splitlines()
    zone = told["choices"]["best"]["site"]
    row = next(n for n, line in enumerate(lines) if line.strip().startswith(zone) and "▁" in line)
    marked = lines[row + 1]
    drawn = lines[row].split("  ")[-2]
    begin = datetime.fromisoformat(told["choices"]["best"]["start"]) - datetime(2022, 5, 4, 9, tzinfo=UTC)
    at = marked.index("╰") - lines[row].index(drawn)
    assert at == int(begin / timedelta(hours=33) * len(drawn))
    assert marked.index("╯") - marked.index("╰") + 1 == round(6 / 33 * len(drawn))


def test_times_are_on_the_clock_that_is_told(noonward: CommandLine, hours: Path) -> None:
    local = ("--now", "2022-05-04 11:30", "--by", "2022-05-05T20:00+02:00", "--timezone", "Europe/Berlin")
    asked = ("when", *ASKED[:6], *local, "--zones", "SG,CA-ON", "--signals", hours)
    same = ("when", *ASKED, "--zones", "SG,CA-ON", "--signals", hours, "--json")
    assert figures(noonward(*asked, "--json")) == figures(noonward(*same))
    assert "(Europe/Berlin)" in noonward(*asked).out


@pytest.mark.parametrize("option", ["--by", "--now"])
def test_an_hour_that_the_clock_skips_is_refused(noonward: CommandLine, hours: Path, option: str) -> None:
    times = {"--now": "2022-03-26 09:30", "--by": "2022-03-28 18:00"} | {option: "2022-03-27 02:30"}
    asked = [each for pair in times.items() for each in pair]
    answer = noonward("when", *ASKED[:6], *asked, "--timezone", "Europe/Berlin", "--zones", "SG", "--signals", hours)
    assert answer.code == 2
    assert f"{option}: the time '2022-03-27 02:30' does not exist in Europe/Berlin" in answer.err


def test_forecast_hours_are_said_and_drawn(noonward: CommandLine, hours: Path) -> None:
    late = ("--now", "2022-05-06 20:00", "--by", "2022-05-07 12:00")
    answer = noonward("when", *ASKED[:6], *late, "--zones", "SG,CA-ON", "--signals", hours)
    assert "note: SG, CA-ON: 15 of 16 hours of price and 15 of 16 hours of carbon intensity are forecast" in answer.out
    assert "·  · forecast" in answer.out


def test_a_fleets_sites_prices_and_files_serve(noonward: CommandLine, hours: Path) -> None:
    asked = ("when", *ASKED[:2], *ASKED[4:], "--fleet", "tiny", "--signals", hours)
    found = figures(noonward(*asked, "--at", "south", "--json"))
    dear = figures(noonward(*asked, "--at", "south", "--json", "--carbon-price", 0))
    assert dear["usd/best"] <= found["usd/best"]
    assert "at once" not in noonward(*asked).out
    told = json.loads(noonward(*asked, "--json", "--set", "economics.carbon_usd_per_t=7").out)
    assert told["carbon_usd_per_t"] == 7


def test_a_job_that_may_be_suspended_gets_its_runs(noonward: CommandLine, hours: Path) -> None:
    """Nine hours until the next evening but one: not in the expensive hours between."""
    asked = ("when", "--gpus", 8, "--hours", 9, "--now", "2022-05-04 09:30", "--by", "2022-05-06 18:00")
    asked = (*asked, "--fleet", "tiny", "--signals", hours)
    freedoms = ("--set", "fleet.freedoms={fine-tuning: {interruptible: true}}")
    told = json.loads(noonward(*asked, *freedoms, "--json").out)
    found = {each["name"]: each["value"] for each in told["figures"]}
    runs = [[datetime.fromisoformat(time) for time in run] for run in told["interrupted"]["runs"]]
    assert len(runs) > 1
    assert sum((end - begin for begin, end in runs), timedelta()) == timedelta(hours=9)
    price = 100 / 1000  # USD per kg
    saved = found["saved_usd/interrupted"] + price * found["saved_kg/interrupted"]
    assert saved > 0
    shown = noonward(*asked, *freedoms).out.splitlines()
    assert shown[0].startswith(f"Suspended in between, run it at {told['interrupted']['site']} ")
    assert f"{saved:,.2f} USD less" in shown[1]
    assert "interrupted" not in json.loads(noonward(*asked, "--json").out)


def test_a_job_that_may_be_capped_gets_its_power_by_the_hour(noonward: CommandLine, hours: Path) -> None:
    asked = ("when", "--gpus", 8, "--hours", 9, "--now", "2022-05-04 09:30", "--by", "2022-05-06 18:00")
    asked = (*asked, "--fleet", "tiny", "--signals", hours)
    freedoms = ("--set", "fleet.freedoms={fine-tuning: {caps: emerald-a100-fine-tuning}}")
    told = json.loads(noonward(*asked, *freedoms, "--json").out)
    found = {each["name"]: each["value"] for each in told["figures"]}
    saved = found["saved_usd/capped"] + 0.1 * found["saved_kg/capped"]
    assert saved > 0
    shares = [share for _, share in told["capped"]["power"]]
    assert 0.25 <= min(shares) < 0.9
    shown = noonward(*asked, *freedoms).out.splitlines()
    assert shown[0].startswith(f"Under power caps, run it at {told['capped']['site']} ")
    assert f"{saved:,.2f} USD less, with emissions priced, than at full power" in shown[1]
    assert shown[2] == "Unbroken, at full power:"
    assert "capped" not in json.loads(noonward(*asked, "--json").out)


def test_one_line_a_zone_and_quantity(noonward: CommandLine, hours: Path) -> None:
    answer = noonward("data", "show", hours, "--zones", "SG", "--from", "2022-05-02", "--to", "2022-05-03")
    assert answer.code == 0
    rows = [line for line in answer.out.splitlines() if line.startswith("SG")]
    assert [len(row.split("  ")[1]) for row in rows] == [48, 48]
    assert "2022-05-02 00:00 to 2022-05-04 00:00 UTC, 48 hours" in answer.out
    assert "CA-ON" not in answer.out


def test_pictures_are_pages_and_drawings_without_programs(noonward: CommandLine, hours: Path) -> None:
    for name, begins in (("p.html", "<!DOCTYPE html>"), ("p.svg", "<svg xmlns=")):
        answer = noonward("data", "show", hours, "--out", name)
        assert answer.code == 0, answer.err
        text = Path(name).read_text(encoding="utf-8")
        assert text.startswith(begins)
        assert "<script" not in text
        assert text.count('stroke-width="1.8"') == 8  # two zones: course and usual day, price and carbon intensity
        assert len(text) < 100_000


def test_a_price_that_is_unknown_throughout_is_said(noonward: CommandLine, hours: Path) -> None:
    import polars as pl

    pl.read_csv(hours).drop("price_usd_per_mwh").write_csv("carbon.csv")
    answer = noonward("data", "show", "carbon.csv")
    assert answer.code == 0
    assert "price: unknown throughout" in answer.out
