"""What a fleet can give up: times, baselines, losses, the grid of cases and its commands."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from command_line import CommandLine
from noonward.data.environments import build_environment
from noonward.data.events import INTERVAL_S
from noonward.data.scenarios.load import load_scenario, with_files, with_settings
from noonward.errors import ScenarioError
from noonward.evaluate.events.flexibility import flexibility, flexibility_table, utility_page_table
from noonward.evaluate.events.one import event_figure, event_table, play_event, ways_of
from noonward.evaluate.events.play import (
    Case,
    PlayedRun,
    events_of,
    late_or_not_done,
    least_loss,
    playable,
    policy_of,
    ride_through,
    starts_of,
    work_gpu_hours,
    worth_of_gpu_hour,
)
from noonward.evaluate.events.words import by_site, event_words, missing, site_table, told_for_events
from noonward.evaluate.table import UNDEFINED
from noonward.ledger.segments import DONE
from noonward.notices import listening
from noonward.units import HOUR_S

SETTINGS = ["fleet.freedoms={fine-tuning: {interruptible: true, caps: zeus-v100-bert}}", "jobs.slack_ratio=8"]
BASE = "cheapest-feasible"


@pytest.fixture(scope="module")
def tiny():
    return load_scenario("tiny", SETTINGS)


@pytest.fixture(scope="module")
def ride(tiny):
    return ride_through(tiny, 0, 0, BASE)


def test_work_without_events_is_all_gpu_hours(ride):
    whole = [(0.0, 1e9)]
    assert work_gpu_hours(ride.outcome, whole) == pytest.approx(ride.ledger.gpu_hours)
    halves = [(0.0, 4 * HOUR_S), (4 * HOUR_S, 1e9)]
    assert work_gpu_hours(ride.outcome, halves) == pytest.approx(ride.ledger.gpu_hours)


def test_a_long_window_has_an_event_on_each_whole_day_after_the_notice():
    environment = build_environment(load_scenario("training-days"))
    starts = starts_of(environment, 10.0, 24.0)
    assert len(starts) == 6
    assert [int(start // (24 * HOUR_S)) for start in starts] == [1, 2, 3, 4, 5, 6]
    assert all(start % (24 * HOUR_S) + 10 * HOUR_S <= 24 * HOUR_S for start in starts)
    assert starts == starts_of(environment, 10.0, 24.0)


def test_a_short_window_has_one_event_in_its_middle(ride):
    assert starts_of(ride.environment, 2.0) == (5 * HOUR_S,)
    with pytest.raises(ScenarioError, match="too short for an event"):
        starts_of(ride.environment, 11.5)


def test_targets_are_shares_of_what_is_drawn_without_events(ride):
    (first, second) = events_of(ride, Case(0.25, 2.0, 10.0), (5 * HOUR_S,))
    assert (first.site, second.site) == ride.environment.sites
    mean = ride.kw_SN[0, 60:84].mean()
    assert first.event.baseline_kw == pytest.approx(mean)
    assert first.event.target_kw == pytest.approx(0.75 * mean)
    assert first.event.known_s == 5 * HOUR_S - 600


def test_no_lever_loses_less_than_the_least_where_all_of_it_is_attained(tiny):
    for levers in (("hold", "cap"), ("hold", "suspend"), ("hold", "cap", "suspend")):
        found = PlayedRun(tiny, 0, 0, BASE, Case(0.25, 3.0, 0.0), (5 * HOUR_S,), levers).run()
        assert found.delivered_mwh == pytest.approx(found.asked_mwh)
        assert found.lost_gpu_hours >= found.least_gpu_hours > 0
        assert found.cut_mwh >= found.least_cut_mwh


def test_jobs_that_start_late_and_are_done_count_as_late():
    late = load_scenario("tiny", ["lateness.rule=wait", "jobs.slack_ratio=0.5"])
    outcome = ride_through(late, 0, 0, "local-fcfs").outcome
    jobs = outcome.environment.jobs
    waited_s_J = outcome.job_J["start_s"] - jobs.arrival_s_J
    assert outcome.count(DONE) == len(jobs)
    assert late_or_not_done(outcome) == (waited_s_J > jobs.slack_s_J + 1e-3).sum() == 6


def test_the_least_loss_grows_with_the_cut(ride):
    lost = [least_loss(ride, events_of(ride, Case(cut, 3.0, 0.0), (5 * HOUR_S,)))[0] for cut in (0.1, 0.2, 0.4)]
    assert 0 < lost[0] < lost[1] < lost[2]


def test_parts_hold_the_same_prices(tiny):
    environment = build_environment(tiny)
    finer = playable(environment)
    assert finer.site_signals.part_s == INTERVAL_S
    assert np.allclose(finer.site_signals.value_QSH, environment.site_signals.value_QSH, rtol=1e-12)
    with pytest.raises(ScenarioError, match="protocol on-arrival"):
        playable(build_environment(load_scenario("dvfs-training", ["window_h=1"])))


def test_the_grid_holds_every_case(tiny):
    found = flexibility(tiny, BASE, cuts=(0.1, 0.3), hours=(1.0,), notices_min=(0.0, 60.0))
    names = [metric.name for metric in found.metrics()]
    assert "flexibility/share_attained@10/1/0" in names
    assert "flexibility/bound_usd_per_mwh@30/1/60" in names
    assert len(flexibility_table(found).rows) == 4
    assert len(utility_page_table(found).rows) == 2
    for cell in found.cells:
        assert 0 <= cell.least <= cell.attained <= 1


def test_the_page_for_a_utility_says_the_mean_power_of_one_event(tiny):
    found = flexibility(with_settings(tiny, ["window_h=50"]), BASE, cuts=(0.1,), hours=(1.0,), notices_min=(0.0,))
    (cell,) = found.cells
    assert found.events == 1
    (run,) = cell.runs
    twice = replace(cell, runs=(replace(run, asked_mwh=2 * run.asked_mwh, delivered_mwh=2 * run.delivered_mwh),))
    tables = [utility_page_table(replace(found, cells=(each,), events=n)) for n, each in ((1, cell), (2, twice))]
    assert tables[0].rows[0][1] == tables[1].rows[0][1] != UNDEFINED
    assert tables[0].rows[0][4] == "1 in 2.08 days"


def test_deeper_cuts_cost_more(tiny):
    found = flexibility(tiny, BASE, cuts=(0.1, 0.5), hours=(2.0,), notices_min=(0.0,))
    low, high = (cell.bound_usd_per_mwh for cell in found.cells)
    assert 0 < low < high


@pytest.mark.parametrize("case", [{"cuts": (0.0,)}, {"cuts": (1.2,)}, {"hours": (24.0,)}, {"notices_min": (1e6,)}])
def test_cases_that_cannot_be_are_refused(tiny, case):
    with pytest.raises(ScenarioError, match="must be above 0% and at most 100%"):
        flexibility(tiny, BASE, **case)


@pytest.fixture
def noonward(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capsys)


def test_the_command_plays_one_event(noonward):
    told = ("event", "tiny", "--set", SETTINGS[0], "--hours", 1, "--start-h", 4)
    figures = {f["name"]: f["value"] for f in json.loads(noonward(*told, "--cut", "25%", "--json").out)["figures"]}
    deeper = {f["name"]: f["value"] for f in json.loads(noonward(*told, "--cut", "0.5", "--json").out)["figures"]}
    assert deeper["event/asked_mwh"] == pytest.approx(2 * figures["event/asked_mwh"])
    assert "hold-suspend" in noonward(*told).out
    assert "does not lie in the window" in noonward(*told[:-2], "--start-h", 40).err
    assert "is no share" in noonward(*told, "--cut", "deep").err
    assert "is not a duration" in noonward(*told, "--notice", "soon").err


def test_sites_that_cannot_give_what_is_asked_are_named(tiny):
    deep = play_event(tiny, BASE, Case(1.0, 1.0, 10.0), 4 * HOUR_S)
    words = " ".join(event_words(deep, drawn=False))
    assert all(f"At {site} the jobs draw only " in words for site in tiny.fleet.site_names)
    shares = load_scenario("tiny", [*SETTINGS, "jobs.origin_shares={north: 1, south: 0}"])
    alone = play_event(shares, "local-fcfs", Case(0.25, 1.0, 10.0), 4 * HOUR_S)
    said = " ".join(event_words(alone, drawn=False))
    assert "At south no job runs during the event, so nothing can be cut there." in said
    assert "At north" not in said


def test_an_event_tells_what_is_played(tiny):
    told = []
    with listening(lambda kind, about: told.append(about) if kind == "progress" else None):
        play_event(tiny, BASE, Case(0.25, 1.0, 10.0), 4 * HOUR_S, progress=lambda way: told.append(f"{way} done"))
    assert told == [each for way in ways_of(controls=False, moves=False) for each in (way, f"{way} done")]


def test_moves_say_where_they_change_nothing(noonward):
    told = ("event", "tiny", "--set", SETTINGS[0], "--hours", 1, "--start-h", 4, "--moves")
    assert "name the one that is (--site north)" in noonward(*told).err
    told = (*told, "--site", "north")
    dear = noonward(*told, "--set", "network.usd_per_gb=1000").out
    assert "no class of running jobs may go to another site" in dear
    assert "Moves change nothing in this event" in dear
    moving = noonward(*told, "--set", "fleet.freedoms.fine-tuning.moves=true").out
    assert "no class of running jobs" not in moving
    assert "all-move" in moving
    alone = ("--set", "fleet.sites=[{name: north, zone: CA-ON, gpu_type: T4-class, gpus: 8, pue: 1.1}]")
    assert "this fleet has one" in noonward(*told, *alone, "--set", "jobs.origin_shares={north: 1}").err


def test_the_command_refuses_lists_that_are_none(noonward):
    assert (
        "Invalid value for '--hours': 'long' is not a duration"
        in noonward("flexibility", "tiny", "--hours", "long").err
    )
    assert "takes scenarios of kind cluster" in noonward("flexibility", "edge-inference").err


def test_the_policy_is_the_baseline_unless_one_is_named(tiny):
    assert policy_of(tiny, None) == "local-fcfs"
    assert policy_of(tiny, BASE) == BASE
    with pytest.raises(ScenarioError, match="states no baseline"):
        policy_of(load_scenario("tiny", ["baseline=null"]), None)


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A fleet as ``noonward init`` writes it: least cost, dated jobs with limits, run times learned."""
    path = tmp_path_factory.mktemp("own") / "jobs.csv"
    hours = [datetime(2022, 10, 1, tzinfo=UTC) + timedelta(minutes=30 * n) for n in range(96)]
    jobs = {"submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours], "origin": ["north", "south"] * 48}
    frame = pl.DataFrame({**jobs, "gpus": 1, "duration_s": 21600.0, "limit_s": 43200.0, "slack_s": 6 * HOUR_S})
    frame.write_csv(path)
    settings = ["goal=least-cost", "window_h=24", "start=2022-10-02", "slot_s=60", "baseline=local-fcfs"]
    scenario = with_files(load_scenario("tiny", settings), [], path)
    return with_settings(scenario, ["jobs.knowledge.run_time=learned"])


FREEDOMS = "fleet.freedoms={fine-tuning: {interruptible: true, caps: zeus-v100-bert}}"


def test_a_fleet_whose_run_times_are_learned_plays_events_by_limits(own):
    free = with_settings(own, [FREEDOMS])
    plain, unchanged = told_for_events(own)
    assert (plain, unchanged) == (own, [])
    played, said = told_for_events(free)
    assert played.jobs.knowledge.run_time == "limit"
    assert "told as limits here" in said[0]
    found = play_event(played, None, Case(0.25, 1.0, 10.0), 10 * HOUR_S)
    each = found.played["all"]
    assert each.delivered_mwh > found.played["hold"].delivered_mwh
    assert np.isnan(each.usd_per_gpu_hour)  # nobody said what a GPU-hour costs, and the revenue is in no figure
    table = event_table(found)
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert {row["USD per MWh"] for row in rows} == {UNDEFINED}
    assert "costs more, USD" in table.header
    assert not any(cell == "-0" for row in table.rows for cell in row)
    first, second, third = event_words(found, drawn=True)
    held, capped = found.played["hold"], found.played["hold-cap"]
    assert third.startswith(f"By what is done: starts wait ({held.delivered_mwh / held.asked_mwh:.0%} of the energy")
    assert f"running jobs are capped ({capped.delivered_mwh / capped.asked_mwh:.0%} of the energy asked" in third
    lines = {trace.name: trace for trace in event_figure(found).plot.data}
    assert list(lines)[:2] == ["limit", "without the event"]
    assert list(lines["limit"].y) == pytest.approx([base_kw(found), 0.75 * base_kw(found), 0.75 * base_kw(found)])
    assert first.startswith("The event: 2022-10-02 10:00 to 2022-10-02 11:00 UTC; drawn by the seed")
    base_S, asked_S, given_S = by_site(found)
    np.testing.assert_allclose(asked_S, 0.25 * base_S)
    np.testing.assert_allclose(base_S, found.ride.kw_SN[:, 120:132].mean(axis=1))
    assert ((given_S >= 0) & (given_S <= asked_S)).all()
    assert f"it asks for {asked_S.sum():,.2f} kW less" in second
    assert [row[0] for row in site_table(found).rows] == ["north", "south"]
    priced = with_settings(played, ["economics.gpu_usd_per_hour=1.5"])
    assert worth_of_gpu_hour(priced) == 1.5
    assert missing(priced) == []


def base_kw(found):
    """Mean power of all sites without the event, kW."""
    return by_site(found)[0].sum()


def test_what_a_fleet_must_state_is_said(own):
    said = missing(own)
    assert said[0].startswith("no class of jobs may be suspended or capped, so all levers only hold starts")
    assert "fleet.freedoms={fine-tuning: {interruptible: true" in said[0]
    assert "state economics.gpu_usd_per_hour" in said[1]
    assert missing(load_scenario("tiny", SETTINGS)) == []
