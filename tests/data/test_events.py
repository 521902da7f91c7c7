"""Grid events of scenarios: stated, from a file, drawn; their place in the window, their baselines, what is refused."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.events import drawn_begins, read_events
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import DataError, ScenarioError
from noonward.ledger.record import environment_digest
from noonward.model.cluster.event import EventLines, GridEvent
from noonward.model.cluster.stated_events import DrawnEvents, EventFile, EventTerms
from noonward.schedule.policies import make_scheduler

TERMS = {"site": "warsaw", "hours": 2, "baseline_kw": 10, "cut": 0.25}
METERS = [
    'fleet.tariffs={"t": {}}',
    'fleet.sites.0.meter={"tariff": "t", "interval_min": 15}',
]


@pytest.fixture(scope="module")
def site():
    return load_scenario("tiny").fleet.sites[0].name


def scenario(events, *more):
    return load_scenario("tiny", [*METERS, f"events={json.dumps(events)}", *more])


def test_an_event_stands_where_it_is_stated(site):
    made = build_environment(scenario([{**TERMS, "site": site, "start_h": 4, "notice_min": 30, "usd_per_mwh": 100}]))
    (one,) = made.events
    assert one.site == site
    assert (one.event.start_s, one.event.end_s, one.event.known_s) == (14400.0, 21600.0, 12600.0)
    assert (one.event.baseline_kw, one.event.target_kw, one.event.ramp_s) == (10.0, 7.5, 900.0)
    assert made.site_signals.part_s == 300.0


def test_dated_events_outside_a_window_are_left_out(site):
    stated = {**TERMS, "site": site}
    inside, outside = ({**stated, "start": f"2022-06-{day}T06:00+02:00"} for day in (14, 16))
    made = build_environment(scenario([inside, outside], "start=2022-06-14", "window_h=12"))
    assert [each.event.start_s for each in made.events] == [4 * 3600.0]


def test_a_scenario_without_events_is_what_it_was():
    plain = load_scenario("tiny")
    assert "events" not in plain.model_dump()
    assert build_environment(plain).events == ()
    asked = build_environment(scenario([{**TERMS, "site": plain.fleet.sites[0].name, "start_h": 4}]))
    less = replace(asked, events=())
    assert environment_digest(asked) != environment_digest(less)


def test_drawn_events_follow_their_law():
    def begins(index=0, **law):
        terms = (EventTerms(**TERMS),)
        return drawn_begins(
            DrawnEvents(sites=terms, **law), datetime(2022, 1, 3, tzinfo=UTC), 7 * 86400.0 * 40, index, 1
        )

    often, seldom = begins(per_week=5.0), begins(per_week=1.0)
    assert set(seldom) < set(often)
    assert 25 < len(seldom) < 60
    assert {int(each % 86400 // 3600) for each in often} == set(range(14, 21))
    assert begins(per_week=5.0) == often != begins(index=1, per_week=5.0)
    weekdays = begins(per_week=5.0, days="weekdays")
    assert len(weekdays) == 200
    assert {int(each // 86400) % 7 for each in weekdays} == {0, 1, 2, 3, 4}


def test_a_file_of_events_is_a_list_of_them(tmp_path, site):
    (tmp_path / "events.csv").write_text(
        "site,time,hours,baseline_kw,target_kw,usd_per_mwh\n"
        f"{site},2022-06-14T06:00Z,2,10,7,500\n{site},2022-06-14T09:00+01:00,1,10,5,\n"
    )
    first, second = read_events(EventFile(path=tmp_path / "events.csv"))
    assert (first.target_kw, first.usd_per_mwh, second.start) == (7.0, 500.0, datetime(2022, 6, 14, 8, tzinfo=UTC))
    content = load_scenario("tiny", [*METERS, "start=2022-06-14", "window_h=12"]).model_dump(mode="json")
    made = build_environment(scenario_from({**content, "events": "events.csv"}, base=tmp_path))
    assert [each.event.start_s for each in made.events] == [6 * 3600.0, 8 * 3600.0]
    (tmp_path / "bad.csv").write_text(f"site,time,hours,baseline_kw\n{site},2022-06-14T06:00Z,2,10\n")
    with pytest.raises(DataError, match=r"bad.csv, line 2: .*needs target_kw or cut"):
        read_events(EventFile(path=tmp_path / "bad.csv"))
    (tmp_path / "odd.csv").write_text(f"site,time,depth\n{site},2022-06-14T06:00Z,2\n")
    with pytest.raises(DataError, match=r"odd.csv, line 2: column 'baseline_kw'|column 'depth'"):
        read_events(EventFile(path=tmp_path / "odd.csv"))
    (tmp_path / "far.csv").write_text("site,time,baseline_kw,cut\nnowhere,2022-06-14T06:00Z,2,0.5\n")
    with pytest.raises(ScenarioError, match=r"far.csv: unknown site 'nowhere'"):
        scenario_from({**content, "events": "far.csv"}, base=tmp_path)


def test_a_measured_baseline_looks_at_five_days_of_the_same_kind(site):
    stated = {**TERMS, "site": site, "baseline": "high-4-of-5"}
    # Monday 13 June 2022 is the first day; the event is on the Tuesday of the week after, another on Friday
    events = [{**stated, "start_h": 24 * 8 + 12}, {**TERMS, "site": site, "start_h": 24 * 4 + 13}]
    made = build_environment(scenario(events, "start=2022-06-13", "window_h=216", "jobs.count=5"))
    late = made.events[1].event
    assert [int(each // 86400) for each in late.past_s] == [7, 3, 2, 1, 0]
    more = [{**events[1], "start_h": 24 * 3 + 13}, {**events[1], "start_h": 13}]
    with pytest.raises(ScenarioError, match="the window holds 4"):
        build_environment(scenario([events[0], *more], "start=2022-06-13", "window_h=216", "jobs.count=5"))


def test_a_measured_baseline_by_hand():
    day = 86400.0
    one = GridEvent(
        start_s=5 * day + 43200, end_s=5 * day + 46800, baseline_kw=50, target_kw=10, usd_per_mwh=1000,
        past_s=tuple(d * day + 43200 for d in (4, 3, 2, 1, 0)),
    )  # fmt: skip
    kw_N = np.full(6 * 24, 20.0)
    kw_N[[d * 24 + 12 for d in range(5)]] = [30.0, 31.0, 32.0, 33.0, 9.0]
    kw_N[5 * 24 + 8 : 5 * 24 + 11] = 22.0  # two more than on the days before
    kw_N[5 * 24 + 12] = 15.0
    measured = one.measured(kw_N, 3600.0)
    assert measured.baseline_kw == pytest.approx((30 + 31 + 32 + 33) / 4 + 2.0)
    lines = one.settle(kw_N, 3600.0)
    assert isinstance(lines, EventLines)
    assert lines.asked_mwh == pytest.approx((33.5 - 10) / 1000)
    assert lines.delivered_mwh == pytest.approx((33.5 - 15) / 1000)
    assert (lines.payment_usd, lines.missed) == (pytest.approx(18.5), 1)
    _, slope, constant = one.convex(3600.0, 6 * 24, 33.0)
    assert not slope.any()
    assert constant <= -lines.payment_usd


@pytest.mark.parametrize(
    "change",
    [{"hours": 1}, {"notice_min": 5}, {"baseline_kw": 11}, {"cut": 0.5}, {"cut": None, "target_kw": 5},
     {"ramp_min": 5}, {"usd_per_mwh": 1}, {"penalty_usd_per_mwh": 1}, {"start_h": 5}],
)  # fmt: skip
def test_every_term_of_an_event_changes_it(site, change):
    stated = {**TERMS, "site": site, "start_h": 4}
    one, other = (build_environment(scenario([each])).events for each in (stated, stated | change))
    assert one != other


def test_the_law_says_the_hours(site):
    law = {"per_week": 7, "first_hour": 1, "last_hour": 1, "sites": [{**TERMS, "site": site}]}
    (one,) = build_environment(scenario(law, "window_h=24")).events
    (other,) = build_environment(scenario(law | {"last_hour": 2, "first_hour": 2}, "window_h=24")).events
    assert (one.event.start_s, other.event.start_s) == (3600.0, 7200.0)


def test_a_file_may_state_its_clock(tmp_path, site):
    (tmp_path / "events.csv").write_text(f"site,time,baseline_kw,cut\n{site},2022-06-14 06:00,2,0.5\n")
    (one,) = read_events(EventFile(path=tmp_path / "events.csv", timezone="+02:00"))
    assert one.start == datetime(2022, 6, 14, 4, tzinfo=UTC)
    with pytest.raises(DataError, match=r"timezone|clock"):
        read_events(EventFile(path=tmp_path / "events.csv"))


def test_nothing_is_known_before_the_notice(site):
    made = build_environment(scenario([{**TERMS, "site": site, "start_h": 4, "notice_min": 60}]))
    engine = ClusterEngine(made, make_scheduler("local-fcfs"))
    seen = {}
    scheduler = engine.scheduler
    scheduler.reset(engine.brief, np.random.default_rng(0))
    while engine.step():
        seen.setdefault(engine.view.now_s >= 3 * 3600, set()).add(len(engine.brief.announced.events))
        scheduler.decide(engine.view, engine.answers)
    assert seen == {False: {0}, True: {1}}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"cut": None}], "needs target_kw or cut"),
        ([{"cut": 0.2, "target_kw": 5}], "needs target_kw or cut"),
        ([{"cut": None, "target_kw": 11}], "above its baseline_kw"),
        ([{"ramp_min": 120}], "is not shorter than"),
        ([{"start": "2022-01-01"}], "needs start or start_h"),
        ([{"start_h": None}], "needs start or start_h"),
        ([{"start_h": 11}], "does not end in the window"),
        ([{}, {"start_h": 5}], "overlap"),
        ([{"site": "nowhere"}], "unknown site 'nowhere'"),
        ([{"depth": 1}], "unknown key"),
    ],
)
def test_events_that_cannot_be_are_refused(site, events, said):
    stated = [{**TERMS, "site": site, "start_h": 4, **each} for each in events]
    with pytest.raises(ScenarioError, match=said):
        build_environment(scenario(stated))


def test_a_site_with_events_needs_a_tariff():
    other = load_scenario("tiny").fleet.sites[1].name
    with pytest.raises(ScenarioError, match="no meter with a tariff"):
        scenario([{**TERMS, "site": other, "start_h": 4}])


@pytest.mark.parametrize(
    ("law", "said"),
    [
        ({"per_week": 6, "days": "weekdays"}, "there are 5 of them"),
        ({"per_week": 2, "first_hour": 20, "last_hour": 4}, "swap them"),
        ({"per_week": 9}, "less than or equal to 7"),
    ],
)
def test_laws_that_cannot_be_are_refused(site, law, said):
    with pytest.raises(ScenarioError, match=said):
        scenario({**law, "sites": [{**TERMS, "site": site}]})
