"""power-priced: a policy is shown the price of the next kWh; without tariffs nothing changes."""

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.cluster.view import PRICE
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.schedule.cluster.power_priced import PowerPriced
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

TARIFF = (
    "fleet.tariffs={t: {demand: [{usd_per_kw_month: 60}]}}",
    "fleet.sites.0.meter={interval_min: 15, tariff: t}",
    "fleet.sites.0.timezone=America/Toronto",
    "jobs.slack_ratio=4",
)


@pytest.fixture(scope="module")
def metered():
    return build_environment(load_scenario("tiny", TARIFF))


@pytest.mark.parametrize("base", ["cheapest-feasible", "patient", "booked-persistence", "suspend-threshold"])
def test_without_a_tariff_nothing_changes(base):
    made = build_environment(load_scenario("tiny"))
    alone, priced = (run(made, make_scheduler(name)).job_J for name in (base, f"power-priced(base={base})"))
    assert alone.tobytes() == priced.tobytes()


class Seen(PowerPriced):
    """Keeps the prices of the first site, as they are and as they are shown."""

    def _show(self, view, shown, s, power):
        super()._show(view, shown, s, power)
        assert shown.free_S is not view.free_S
        assert np.array_equal(shown.free_S, view.free_S)
        prices = [float(each.site_S["price"][s]) for each in (view, shown)]
        self.seen.append((*prices, view.forecast_KSL[PRICE, s].copy(), shown.forecast_KSL[PRICE, s].copy()))


def test_prices_of_now_and_of_the_forecast_are_raised_alike(metered):
    scheduler = Seen(make_scheduler("booked-persistence"))
    scheduler.seen = []
    run(metered, scheduler)
    more = np.array([after - before for before, after, _, _ in scheduler.seen])
    assert more.min() >= -1e-9
    assert more.max() > 0
    for before, after, energy_L, shown_L in scheduler.seen[:50]:
        added_L = np.diff(shown_L - energy_L) / 3600
        assert added_L[0] == pytest.approx(after - before, abs=1e-6)
        assert added_L.min() >= -1e-6


def test_it_changes_runs_where_demand_is_charged():
    meters = [f"fleet.sites.{s}.meter={{interval_min: 15, tariff: t}}" for s in range(5)]
    settings = (TARIFF[0], *meters, "window_h=24", "jobs.count=200")
    made = build_environment(load_scenario("fine-tuning", settings))
    alone, priced = (run(made, make_scheduler(name)) for name in (BASE, f"power-priced(base={BASE})"))
    assert alone.job_J.tobytes() != priced.job_J.tobytes()


BASE = "cheapest-feasible"


def test_a_restored_one_answers_as_the_one_that_was_stored(metered):
    answers = {}
    for restart in (False, True):
        scheduler = make_scheduler(f"power-priced(base={BASE})")
        engine = ClusterEngine(metered, scheduler, seed=3)
        scheduler.reset(engine.brief, stream(3, "policy", 0))
        answers[restart] = []
        while engine.step():
            if restart and len(answers[restart]) == 30:
                state = scheduler.state()
                scheduler = make_scheduler(f"power-priced(base={BASE})")
                scheduler.reset(engine.brief, stream(8, "policy", 0))
                scheduler.load_state(state)
            scheduler.decide(engine.view, engine.answers)
            answers[restart].append(engine.answers.answer_N.tobytes())
    assert len(answers[True]) > 40
    assert answers[True] == answers[False]
    with pytest.raises(ScenarioError, match="made in the same way"):
        scheduler.load_state({"x": 1})


def test_policies_that_price_power_or_answer_on_arrival_are_refused():
    with pytest.raises(ScenarioError, match="price power themselves"):
        make_scheduler("power-priced(base=bid-price-persistence)")
    with pytest.raises(ScenarioError, match="protocol each-slot"):
        make_scheduler("power-priced(base=dp)")
    make_scheduler("power-priced(base=bid-price(forecast=persistence, peaks=no))")


def test_what_was_drawn_is_remembered_by_the_hour(metered):
    scheduler = make_scheduler(f"power-priced(base={BASE})")
    run(metered, scheduler)
    state = scheduler.state()
    assert len(state["drawn_kw_HS"]) == state["hour"] > 2
    assert (state["drawn_kw_HS"] > 0).all()
