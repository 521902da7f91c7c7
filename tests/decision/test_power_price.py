"""The price of the next kW: peaks share a demand charge, sun that is left is worth its export, events cost."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.announced import Announced
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.power_price import SPREAD_H, PowerPrices, peak_shares
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.forecasts.system_peaks import peak_chances
from noonward.ledger.bill import metered_site
from noonward.ledger.dispatch import dispatched, marginal_price
from noonward.ledger.ledger import settle
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.event import GridEvent, SiteEvent
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.solar import PlantsByHour, SolarByHour
from noonward.model.cluster.system_load import SystemLoadByHour
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference.small_worlds import plain

HOUR_S = 3600.0
RATE = 1000.0
TARIFF = (
    "fleet.tariffs={t: {demand: [{usd_per_kw_month: 60}]}}",
    "fleet.sites.0.meter={interval_min: 15, tariff: t}",
    "fleet.sites.0.timezone=America/Toronto",
    "jobs.slack_ratio=4",
)


def metered(fleet, *, behind=None, **tariff):
    """A fleet whose first site has a meter with a tariff."""
    told = fleet.model_dump(mode="json")
    told["sites"][0] |= {"timezone": "UTC", "meter": {"interval_min": 60, "tariff": "t"}, "behind_meter": behind}
    told["sites"][0]["meter"]["system_peaks"] = [[] for _ in tariff.get("coincident", ())]
    told["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": RATE}], **tariff}}
    told["tariffs"]["t"]["demand"] = [{"interval_min": 60} | each for each in told["tariffs"]["t"]["demand"]]
    return Fleet.model_validate(told)


def world(rows=({"gpus": 1},), *, behind=None, solar=None, **tariff):
    """One site of two GPUs with a flat price, and some jobs."""
    made = plain([2], list(rows), price=[[50.0]], alpha=5.0).environment()
    blank = Jobs.build(arrival_s=np.zeros(1), work=np.full(1, 1.0), slack_s=np.zeros(1))
    changes = {} if solar is None else {"solar": SolarByHour(share_SH=np.array([solar]))}
    fleet = metered(made.fleet, behind=behind, **tariff)
    return replace(made, fleet=fleet, sample_jobs=lambda rng: blank, **changes)


def prices(environment, *, foresight=True):
    return PowerPrices.of(Brief.of(environment, Needs()), foresight=foresight)


def test_shares_of_a_peak_are_at_least_0_and_sum_to_1_unless_it_is_charged_anyway():
    rng = np.random.default_rng(5)
    for _ in range(100):
        kw_H, spread = rng.uniform(0, 10, 30), float(rng.uniform(0.1, 20))
        shares = peak_shares(kw_H, 0.0, spread)
        level = (kw_H - spread * shares)[shares > 0]
        assert shares.min() >= 0
        assert np.ptp(level) < 1e-9
        assert shares.sum() == pytest.approx(1.0 if level[0] > 1e-9 else kw_H.sum() / spread)
        assert (kw_H[shares == 0] <= level[0] + 1e-9).all()
        charged = peak_shares(kw_H, 9.0, spread)
        assert charged == pytest.approx(np.minimum(np.maximum(0, kw_H - 9.0) / spread, shares))


def test_with_no_spread_the_price_is_the_dual_of_the_sites_program():
    """The peak alone has the price of the demand charge, as the linear program of the bill says."""
    made = world()
    site = metered_site(made, 0)
    kw_N = np.linspace(1.0, 2.0, len(site.price_N))
    found = prices(made).marginal_price(0, 0, kw_N, site.price_N, np.zeros(0), 1e-6)
    assert found[-1] == pytest.approx(marginal_price(site, len(kw_N) - 1, kw_N))
    assert found[:-1] == pytest.approx(site.price_N[:-1])


def test_below_the_peak_so_far_power_costs_its_energy():
    made = world()
    kw_H, price_H = np.array([1.0, 2.0, 3.0]), np.full(3, 50.0)
    of = prices(made)
    fresh = of.marginal_price(0, 2, kw_H, price_H, np.zeros(2), 1.0)
    after = of.marginal_price(0, 2, kw_H, price_H, np.array([0.0, 2.5]), 1.0)
    assert fresh[2] > after[2] > 50.0
    assert after[:2] == pytest.approx([50.0, 50.0])
    rate = RATE * metered_site(made, 0).calendar.share_M[0]
    assert after[2] == pytest.approx(50.0 + 1000.0 * rate * 0.5 / SPREAD_H)


def test_a_charge_counts_at_its_hours_alone():
    made = world(demand=[{"usd_per_kw_month": RATE, "hours": [1]}])
    found = prices(made).marginal_price(0, 0, np.full(3, 2.0), np.full(3, 50.0), np.zeros(0), 1.0)
    assert found[1] > 50.0
    assert found[[0, 2]] == pytest.approx([50.0, 50.0])


def test_where_sun_is_left_a_kwh_costs_what_its_export_would_bring():
    sun = [0.0, 1.0, 1.0] * 16
    for export, worth in ((None, 0.0), ({"allowed_kw": 1.0, "price": 20.0}, 20.0)):
        behind = {"solar": {"kw": 3.0, "profile": "sun.csv"}, "export": export}
        made = world(behind=behind, solar=sun, demand=[])
        found = prices(made).marginal_price(0, 0, np.array([1.0, 1.0, 5.0]), np.full(3, 50.0), np.zeros(0), 5.0)
        assert found == pytest.approx([50.0, worth, 50.0])


def with_plant(made, share_H, resale_H):
    """The same with a physical contract for a plant of 3 kW, whose delivery costs 5 USD/MWh."""
    told = made.fleet.model_dump(mode="json")
    told["sites"][0]["ppa"] = {
        "kw": 3.0, "profile": "w.csv", "usd_per_mwh": 40.0, "kind": "physical", "delivery_usd_per_mwh": 5.0
    }  # fmt: skip
    plants = PlantsByHour(share_SH=np.array([share_H]), resale_usd_per_mwh_SH=np.array([resale_H]))
    return replace(made, fleet=Fleet.model_validate(told), plants=plants)


def test_where_a_plants_energy_is_left_a_kwh_costs_its_resale_and_delivery():
    made = with_plant(world(demand=[]), [0.0, 1.0, 1.0, 1.0] * 12, [20.0, 20.0, 48.0, 20.0] * 12)
    kw_H, price_H = np.array([1.0, 1.0, 1.0, 5.0]), np.full(4, 50.0)
    # none is made; it is sold at 20; selling at 48 brings more; all of it is taken
    assert prices(made).marginal_price(0, 0, kw_H, price_H, np.zeros(0), 5.0) == pytest.approx([50.0, 25.0, 50.0, 50.0])
    of_last_day = prices(made, foresight=False)
    assert of_last_day.marginal_price(0, 0, kw_H, price_H, np.zeros(0), 5.0) == pytest.approx(np.full(4, 50.0))
    assert of_last_day.marginal_price(0, 25, kw_H, price_H, np.zeros(0), 5.0) == pytest.approx([25.0, 50.0, 25.0, 50.0])


def test_with_a_plant_and_a_battery_the_price_is_the_dual_of_the_sites_program():
    behind = {"battery": {"kw": 1.0, "kwh": 2.0, "round_trip": 0.9}}
    made = with_plant(world(behind=behind, demand=[], energy=50.0), [0.0, 1.0, 0.6, 1.0] * 12, [20.0, 30.0, 48.0] * 16)
    value_ZH = {**made.signals.value_ZH, "price_usd_per_mwh": np.resize([20.0, 30.0, 48.0], (1, made.signals.hours))}
    signals = replace(made.signals, value_ZH=value_ZH)
    site = metered_site(replace(made, signals=signals), 0)
    kw_N = np.linspace(1.0, 2.5, len(site.price_N))
    found = prices(made).marginal_price(0, 0, kw_N, site.price_N, np.zeros(0), 5.0)
    assert found == pytest.approx(dispatched(site, kw_N).price_N)


def test_without_foresight_the_sun_is_that_of_the_last_day():
    sun = np.arange(48) / 100
    made = world(behind={"solar": {"kw": 1.0, "profile": "sun.csv"}}, solar=sun.tolist())
    assert prices(made, foresight=False).solar_kw(0, 24, 26) == pytest.approx([sun[24], *sun[1:24], sun[24], sun[1]])
    assert prices(made, foresight=False).solar_kw(0, 0, 4) == pytest.approx([sun[0], 0.0, 0.0, 0.0])
    assert prices(made).solar_kw(0, 2, 3) == pytest.approx(sun[2:5])


def test_an_announced_event_has_a_price_from_the_hour_after_its_notice_on():
    made = world(demand=[])
    event = GridEvent(
        start_s=4 * HOUR_S, end_s=6 * HOUR_S, notice_s=2 * HOUR_S, baseline_kw=2.0, target_kw=1.0, usd_per_mwh=2000.0
    )
    brief = Brief.of(made, Needs())
    brief = replace(brief, announced=Announced([SiteEvent(site=made.sites[0], event=event)], lambda: 9 * HOUR_S))
    of = PowerPrices.of(brief, foresight=True)

    def found(hour, kw):
        return of.marginal_price(0, hour, np.full(6, kw), np.full(6, 50.0), np.zeros(hour), 2.0)

    assert found(1, 2.0) == pytest.approx(np.full(6, 50.0))
    assert found(2, 2.0) == pytest.approx([50.0, 50.0, 2050.0, 2050.0, 50.0, 50.0])
    assert found(2, 0.5) == pytest.approx(np.full(6, 50.0))
    assert found(6, 2.0) == pytest.approx(np.full(6, 50.0))


def test_bid_prices_wait_for_the_end_of_a_run_where_a_peak_costs_more():
    rows = [
        {"work": 3 * HOUR_S, "slack_s": 0.0, "gpus": 1},
        {"work": HOUR_S, "slack_s": 6 * HOUR_S, "gpus": 1, "arrival_s": HOUR_S},
    ]
    made, started_h = world(rows=rows), {}
    for peaks in ("no", "yes"):
        outcome = run(made, make_scheduler(f"bid-price(forecast=perfect,peaks={peaks})"))
        started_h[peaks] = outcome.job_J["start_s"][1] / HOUR_S
        assert settle(outcome).done == 2
    assert started_h["no"] == 1.0
    assert started_h["yes"] == 3.0


def test_a_restored_planner_prices_power_as_the_one_that_was_stored():
    made = build_environment(load_scenario("tiny", TARIFF))
    answers, states = {}, {}
    for restart in (False, True):
        scheduler = make_scheduler("bid-price-persistence")
        engine = ClusterEngine(made, scheduler, seed=3)
        scheduler.reset(engine.brief, stream(3, "policy", 0))
        answers[restart] = []
        while engine.step():
            if restart and len(answers[restart]) == 60:
                state = scheduler.state()
                scheduler = make_scheduler("bid-price-persistence")
                scheduler.reset(engine.brief, stream(8, "policy", 0))
                scheduler.load_state(state)
            scheduler.decide(engine.view, engine.answers)
            answers[restart].append(engine.answers.answer_N.tobytes())
            if len(answers[restart]) == 61:
                states[restart] = scheduler.state()
    assert len(answers[True]) > 80
    assert answers[True] == answers[False]
    for name in ("load_w_SH", "booked_w_SH", "drawn_kw_HS", "power_hour"):
        np.testing.assert_array_equal(states[True][name], states[False][name])
    assert (states[True]["booked_w_SH"] > 0).any()


def test_without_a_tariff_or_an_end_power_has_no_price():
    made = world()
    free = replace(made, fleet=Fleet.model_validate(made.fleet.model_dump() | {"tariffs": {}, "sites": [
        {**made.fleet.sites[0].model_dump(), "meter": None, "behind_meter": None}]}))  # fmt: skip
    assert prices(free) is None
    brief = Brief.of(made, Needs())
    assert PowerPrices.of(replace(brief, window_s=np.inf), foresight=False) is None


def coincident(mw_H, *, peaks=5, behind=None):
    """A world whose first site pays 100 USD per kW and year for five peaks of a system."""
    made = world(demand=[], coincident=[{"usd_per_kw_year": 100.0, "peaks": peaks}], behind=behind)
    load = SystemLoadByHour(mw_SH=np.array([mw_H]), before_h=len(mw_H) - 48)
    return replace(made, system_load=load)


def system_mw(last_day=0.0):
    """Ten weeks of load that is highest at 17 h UTC, and two days more."""
    hour = np.arange(24 * 72)
    days = np.random.default_rng(2).normal(0, 5, 72)
    mw_H = 100 + (20 + days[hour // 24]) * np.exp(-0.5 * ((hour % 24 - 17) / 2.5) ** 2)
    mw_H[-72:-48] += last_day
    return mw_H


def test_a_coincident_peak_costs_its_price_times_its_chance():
    mw_H = system_mw(20.0)
    made = coincident(mw_H)
    of = prices(made, foresight=False)
    found = of.marginal_price(0, 0, np.full(24, 2.0), np.full(24, 50.0), np.zeros(0), 2.0)
    start = made.start - timedelta(hours=len(mw_H) - 48)
    calendar = site_calendar("UTC", start, len(mw_H) * HOUR_S, HOUR_S, len(mw_H) + 24)
    charge = made.fleet.tariff_of(0).coincident[0]
    chance_L = peak_chances(mw_H, calendar, charge, len(mw_H) - 48, 24)
    assert chance_L.max() > 0
    assert found == pytest.approx(50.0 + 1000.0 * 20.0 * chance_L)


def test_the_price_of_a_coincident_peak_reads_no_load_to_come():
    mw_H = system_mw(20.0)
    changed = mw_H.copy()
    changed[-47:] = 1e6
    found = []
    for each in (mw_H, changed):
        of = prices(coincident(each), foresight=False)
        found.append(of.marginal_price(0, 1, np.full(24, 2.0), np.full(24, 50.0), np.zeros(1), 2.0))
    assert found[0].max() > 50.0
    assert np.array_equal(found[0], found[1])
    assert prices(coincident(mw_H), foresight=True).marginal_price(
        0, 0, np.full(24, 2.0), np.full(24, 50.0), np.zeros(0), 2.0
    ) == pytest.approx(prices(coincident(mw_H), foresight=False).marginal_price(
        0, 0, np.full(24, 2.0), np.full(24, 50.0), np.zeros(0), 2.0
    ))  # fmt: skip


BATTERY = {"kw": 1.0, "kwh": 2.0, "round_trip": 1.0, "start": 0.5}


def test_with_a_battery_a_kwh_costs_what_it_costs_to_charge_it():
    """Two cheap hours around an expensive one: the battery serves it, and the next kWh comes from a cheap hour."""
    made = world(behind={"battery": BATTERY}, demand=[])
    price_H = np.array([20.0, 200.0, 20.0])
    found = prices(made).marginal_price(0, 0, np.array([1.0, 0.5, 1.0]), price_H, np.zeros(0), 2.0)
    assert found == pytest.approx([20.0, 20.0, 20.0])
    small = world(behind={"battery": {**BATTERY, "kw": 0.2}}, demand=[])
    found = prices(small).marginal_price(0, 0, np.array([1.0, 0.5, 1.0]), price_H, np.zeros(0), 2.0)
    assert found == pytest.approx(price_H)


def test_with_a_battery_the_price_is_the_dual_of_the_sites_program():
    made = world(behind={"battery": BATTERY})
    site = metered_site(made, 0)
    rng = np.random.default_rng(4)
    for _ in range(10):
        kw_N = rng.uniform(0.5, 2.0, min(48, len(site.price_N)))
        load_N = np.concatenate([kw_N, np.zeros(len(site.price_N) - len(kw_N))])
        found = prices(made).marginal_price(0, 0, load_N, site.price_N, np.zeros(0), 1e-6)
        n = int(kw_N.argmax())
        if len(load_N) <= 48:
            assert found[n] == pytest.approx(marginal_price(site, n, load_N), rel=1e-6)
        assert np.isfinite(found).all()
