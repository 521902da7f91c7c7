"""What a comparison rests on is said: made prices, one window of jobs under several draws, how to get more."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward import compare
from noonward.data.scenarios.load import load_scenario, with_files
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.evaluate.answer import headline, plainly, verdict_of
from noonward.evaluate.asked import currency_given
from noonward.evaluate.comparison import cases_told, one_window, summary_rows
from noonward.evaluate.evidence import assumed, how_to_run_more, made_prices
from noonward.evaluate.noted import grouped
from noonward.evaluate.report.meeting import write_meeting_report

FIRST = datetime(2022, 10, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Twelve hours of dated jobs under four draws of prices, by least cost."""
    path: Path = tmp_path_factory.mktemp("jobs") / "jobs.csv"
    hours = [FIRST + timedelta(minutes=40 * n) for n in range(16)]
    jobs = {"submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours], "origin": ["north", "south"] * 8}
    pl.DataFrame({**jobs, "gpus": 2, "duration_s": 3600.0, "slack_s": 8 * 3600.0}).write_csv(path)
    scenario = with_files(load_scenario("tiny", ["goal=least-cost"]), [], path)
    return compare(scenario, ["local-fcfs", "booked-persistence"], environments=4, bound=False)


def cheaper(comparison: Any) -> Any:
    """The same with every total of ``booked-persistence`` a little below today's."""
    records = []
    for record, today in zip(comparison.records["booked-persistence"], comparison.records["local-fcfs"], strict=True):
        figures = {f.name: getattr(today.ledger, f.name) for f in dataclasses.fields(today.ledger)}
        figures["job_energy_usd"] *= 0.9
        records.append(dataclasses.replace(record, ledger=dataclasses.replace(today.ledger, **figures)))
    return dataclasses.replace(comparison, records={**comparison.records, "booked-persistence": records})


def test_one_window_under_several_draws_of_prices_is_no_reason_to_adopt(drawn: Any, tmp_path: Path) -> None:
    found = cheaper(drawn)
    assert one_window(found)
    assert verdict_of(found).kind == "draws"
    assert cases_told(found, 4) == "4 draws of prices"
    assert summary_rows(found).caption.startswith("Means of 4 draws of prices;")
    said = headline(found)
    assert said[0].startswith("booked-persistence was better in this window: ")
    assert "under 4 draws of prices (the interval is over these); one window of jobs cannot tell more" in said[1]
    told = " ".join(said)
    assert "Adopt" not in told
    assert "a year" not in told
    assert any(each.startswith("Worst of these draws of prices: ") for each in said)
    html = write_meeting_report(found, tmp_path / "report.html", command="noonward compare").read_text(encoding="utf-8")
    assert "Draw by draw" in html
    assert all(f">draw {n}<" in html for n in range(4))


def test_made_prices_are_said_in_the_headline_and_in_the_notes(drawn: Any, tmp_path: Path) -> None:
    made = made_prices(drawn.scenario)
    assert made.startswith("Prices and carbon intensities are drawn from the statistics of the year 2022, not recorded")
    for comparison in (drawn, cheaper(drawn)):
        assert made in headline(comparison)
    html = write_meeting_report(drawn, tmp_path / "report.html", command="noonward compare").read_text(encoding="utf-8")
    about = html[html.index("About the data") :]
    assert made in about[: about.index("</div>")]


def test_more_windows_are_asked_for_by_the_option_that_works(drawn: Any, tmp_path: Path) -> None:
    assert how_to_run_more(load_scenario("tiny")) == "-n"
    assert how_to_run_more(drawn.scenario) == "--windows, on recorded prices: --signals FILE"
    signals = generate_signals(("CA-ON", "SG"), FIRST - timedelta(days=3), 10 * 24, np.random.default_rng(0))
    write_generated_signals(signals, tmp_path / "signals.csv")
    recorded = with_files(drawn.scenario, [tmp_path / "signals.csv"], None)
    assert how_to_run_more(recorded) == "--windows"
    assert how_to_run_more(recorded.model_copy(update={"windows": 2})).startswith("--windows: shorter ones, or of a")
    assert made_prices(recorded) == ""


def test_what_an_own_fleet_assumes_is_said(drawn: Any) -> None:
    assert "jobs may run in any zone (CA-ON, SG), across borders" in assumed(drawn.scenario)
    fleet = drawn.scenario.fleet
    kept = dict.fromkeys(fleet.classes, ("north",))
    bound = drawn.scenario.model_copy(update={"fleet": fleet.model_copy(update={"ranges": kept})})
    assert "no job may run in another zone than the one where it arrives" in assumed(bound)


def test_cost_and_carbon_are_drawn_in_the_currency_given(drawn: Any, tmp_path: Path) -> None:
    euros = dataclasses.replace(drawn, currency=currency_given("EUR=2"))
    html = [
        write_meeting_report(each, tmp_path / "report.html", command="noonward compare").read_text(encoding="utf-8")
        for each in (drawn, euros)
    ]
    charts = [page[page.index("Cost and carbon") :].split("</svg>")[0] for page in html]
    assert "paid for energy and transfers (EUR)" in charts[1]
    assert "(USD)" not in charts[1]
    assert charts[0].replace("USD", "EUR") != charts[1]  # half the amounts: other places on the axis


def test_notes_that_differ_in_numbers_alone_are_one() -> None:
    notes = [f"{n:,} jobs ran on {day}" for n, day in ((1200, "2022-10-08"), (9, "2022-10-01"), (40, "2022-10-15"))]
    assert grouped([[note, "other"] for note in notes]) == (
        "in 3 environments: 9 to 1,200 jobs ran on 2022-10-01 to 2022-10-15",
        "other",
    )


def test_a_note_says_in_how_many_environments_it_is_unless_in_all() -> None:
    notes_E = [["a", "b", "b"], ["a", "4 jobs"], ["a", "9 jobs", "b"], ["a", "4 jobs"], ["a", "5 GPUs", "7 GPUs"]]
    assert grouped(notes_E, "window") == (
        "a",
        "in 2 of 5 windows: b",
        "in 3 of 5 windows: 4 to 9 jobs",
        "in 1 of 5 windows: 5 GPUs",
        "in 1 of 5 windows: 7 GPUs",
    )
    assert grouped([["5 GPUs", "7 GPUs"]]) == ("5 GPUs", "7 GPUs")
    assert grouped([["SE1: 5 h", "SE3: 1 h"], ["SE1: 6 h", "SE3: 1 h"]]) == (
        "in 2 environments: SE1: 5 to 6 h",
        "SE3: 1 h",
    )
    assert grouped([]) == ()


def test_a_summary_is_told_without_symbols_of_papers() -> None:
    summary = "S2: local first; without room, to the site of lowest carbon intensity (MASAC, Sec. IV.A)."
    assert plainly(summary) == "Local first; without room, to the site of lowest carbon intensity."
    assert plainly("Starts each job (where it arrived).") == "Starts each job (where it arrived)."
