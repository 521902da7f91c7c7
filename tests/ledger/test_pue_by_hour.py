"""A PUE that changes by the hour: energy, money, carbon and power by hand, and what schedulers are shown."""

from datetime import timedelta

import numpy as np
import pytest

from ledger.two_jobs import START, environment, played
from noonward.bound.cluster_energy import _at_least_pue
from noonward.data.signals.generate import generate_signals
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.assembly import make_view
from noonward.decision.cluster.forecasts import ForecastIssuer
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.record import hour_table
from noonward.ledger.service import power_totals
from noonward.live.world.hours import Hours
from noonward.model.cluster.pue import PueByHour

FACTOR_SH = np.array([[1.0, 1.2, 1.0, 1.0], [1.0, 0.9, 1.1, 1.0]])
PUE = PueByHour(start=START, factor_SH=FACTOR_SH)


def test_energy_money_and_carbon_by_hand():
    ledger = settle(played(pue=PUE))
    # job 0: 1.5 kW from 0:30 to 1:30 at a; job 1: 2 kW from 1:30 to 2:30 at b
    assert ledger.job_kwh == pytest.approx(1.5 * (0.5 + 0.6) + 2.0 * (0.45 + 0.55))
    assert ledger.job_energy_usd == pytest.approx(1.5 * (0.05 + 0.12) + 2.0 * (-0.0225 + 0.0055))
    assert ledger.job_kg == pytest.approx(1.5 * (0.2 + 0.36) + 2.0 * (0.09 + 0.22))
    # free GPUs over two hours: 0.3 kW at a, 0.2 kW at b, less those in use
    assert ledger.fixed_kwh == pytest.approx(0.3 * 2.2 + 0.2 * 1.9)
    assert ledger.free_kwh == pytest.approx(0.3 * 2.2 + 0.2 * 1.9 - 0.15 * 1.1 - 0.2 * 0.45)


def test_the_hours_add_up_to_the_ledger():
    outcome = played(pue=PUE)
    table, ledger = hour_table(outcome), settle(outcome)
    assert table["job_kwh"].sum() == pytest.approx(ledger.job_kwh)
    assert table["free_kwh"].sum() == pytest.approx(ledger.free_kwh)


def test_power_is_that_of_its_hour():
    cap_w_S = np.array([1700.0, np.inf])
    joules, peak_w, above_s, seconds = power_totals(played(pue=PUE), cap_w_S)[0]
    assert joules == pytest.approx(3.6e6 * (0.3 * 2.2 + 1.35 * 1.1))
    assert peak_w == pytest.approx(1.2 * (300 + 1350))
    assert above_s == pytest.approx(1800.0)  # 1650 W before 1:00, 1980 W after
    assert seconds == 7200.0


def test_an_engine_shows_what_a_watt_costs_in_the_hour():
    shown = environment(pue=PUE).site_signals
    assert shown.price_SH[:, 1].tolist() == pytest.approx([240.0, -45.0])
    assert shown.carbon_SH[:, 1].tolist() == pytest.approx([720.0, 180.0])
    assert environment().site_signals.factor_SH.shape == (2, 0)


def test_a_live_service_shows_the_same():
    made = environment(pue=PUE)
    view = make_view(Brief.of(made, Needs()), 4)
    hours = Hours(made.signals, START, ["A", "B"], None, np.random.default_rng(0), PUE)
    hours.show(view, 1)
    assert view.site_S["price"].tolist() == made.site_signals.price_SH[:, 1].tolist()
    assert view.site_S["carbon"].tolist() == made.site_signals.carbon_SH[:, 1].tolist()


def test_the_energy_bound_takes_the_least_hour():
    assert [site.pue for site in _at_least_pue(environment(pue=PUE)).sites] == pytest.approx([1.5, 1.8])


@pytest.mark.parametrize("kind", ["perfect", "persistence"])
def test_forecasts_count_the_hours_to_come(kind):
    signals = generate_signals(("SG",), START - timedelta(hours=48), 96, np.random.default_rng(0))
    factor_H = np.linspace(0.8, 1.2, 72)  # from a day before the start on
    pue = PueByHour(start=START - timedelta(hours=24), factor_SH=factor_H[None])
    leads, hours = 30, 3
    with_pue, without = np.empty((2, 2, hours, 1, leads + 1))
    for out, told in ((with_pue, pue), (without, None)):
        issuer = ForecastIssuer(Forecast(kind), signals, START, ["SG"], np.random.default_rng(0), told)
        assert issuer.issue(0, out) == hours
    for hour in range(hours):
        lead_L = np.arange(leads)
        known_L = (
            lead_L if kind == "perfect" else np.where(lead_L == 0, 0, np.where(lead_L <= 24, lead_L - 24, lead_L - 48))
        )
        factor_L = factor_H[24 + hour + known_L]
        found = np.diff(with_pue[:, hour, 0], axis=-1)
        assert found == pytest.approx(np.diff(without[:, hour, 0], axis=-1) * factor_L)
