"""Tariffs: bills to the cent by hand, charges against their linear programs, NREL's ``utilityrate5`` as an oracle."""

from datetime import UTC, datetime

import numpy as np
import pytest
from pydantic import ValidationError

from noonward.ledger.bill import MeteredSite, bill_of
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.devices import BehindMeter
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.program import Program
from noonward.model.cluster.tariff import Coincident, Demand, Fee, Tariff

HOUR_S = 3600.0
DAYS = ["all", "weekdays", "weekends"]


def metered(
    tariff, *, start=datetime(2022, 6, 1, tzinfo=UTC), hours=30 * 24, step_s=HOUR_S, zone="UTC", price=50.0, **meter
):
    """A site with a tariff, whose window is all of the run."""
    count = round(hours * HOUR_S / step_s)
    calendar = site_calendar(zone, start, hours * HOUR_S, step_s, count)
    tariff = Tariff.model_validate(tariff)
    price_N = (price if tariff.by_signal else 0.0) + tariff.added_usd_per_mwh(calendar)
    return MeteredSite(
        meter=Meter.model_validate({"interval_min": round(step_s / 60), **meter}),
        tariff=tariff,
        calendar=calendar,
        price_N=np.asarray(price_N),
        behind=BehindMeter(),
        solar_share_N=np.zeros(count),
        export_price_N=np.full(count, np.nan),
    )


def test_a_month_of_energy_and_demand_to_the_cent():
    site = metered(
        {"adder_usd_per_mwh": 8, "usd_per_month": 120, "demand": [{"usd_per_kw_month": 7.4, "interval_min": 60}]}
    )
    kw_N = np.full(720, 100.0)
    kw_N[100] = 130.0
    bill = bill_of(site, kw_N)
    assert bill.energy_usd == pytest.approx((720 * 100 + 30) * 0.058)
    assert bill.demand_usd == pytest.approx(962.00)
    assert bill.fixed_usd == pytest.approx(120.00)
    assert bill.total_usd == pytest.approx(4177.74 + 962.00 + 120.00)


def test_half_a_month_costs_half_of_its_demand_charge():
    site = metered({"usd_per_month": 120, "demand": [{"usd_per_kw_month": 10, "interval_min": 60}]}, hours=15 * 24)
    bill = bill_of(site, np.full(360, 100.0))
    assert (bill.demand_usd, bill.fixed_usd) == pytest.approx((500.0, 60.0))


def test_a_longer_interval_averages_and_hours_and_days_are_local():
    # Wednesday 1 June 2022 in New York; the window begins at 20:00 of 31 May
    charge = {"usd_per_kw_month": 1.0, "interval_min": 30, "hours": [16, 17, 18, 19], "days": "weekdays"}
    site = metered({"demand": [charge]}, hours=24, step_s=900.0, zone="America/New_York")
    kw_N = np.zeros(96)
    kw_N[4 * 3] = 999.0  # 23:00: outside the hours
    kw_N[4 * 20 : 4 * 20 + 3] = (10.0, 30.0, 50.0)  # 16:00 local: half hours of 20 and 25 kW
    june = 20 / (30 * 24)
    assert bill_of(site, kw_N).demand_usd == pytest.approx(25.0 * june)
    weekend = metered({"demand": [{**charge, "days": "weekends"}]}, hours=24, step_s=900.0, zone="America/New_York")
    assert bill_of(weekend, kw_N).demand_usd == 0.0


def test_a_ratchet_and_a_least_share_raise_the_power_charged():
    demand = {"usd_per_kw_month": 1.0, "interval_min": 60, "ratchet": 0.8, "least_share": 0.85}
    hours = (30 + 31) * 24  # June and July
    kw_N = np.full(hours, 50.0)
    kw_N[10] = 200.0
    charged = bill_of(metered({"demand": [{**demand, "least_share": 0.0}]}, hours=hours), kw_N).demand_usd
    assert charged == pytest.approx(200 + 160)
    least = bill_of(metered({"demand": [demand], "contract_kw": 220}, hours=hours), kw_N).demand_usd
    assert least == pytest.approx(200 + 187)
    past = bill_of(metered({"demand": [demand | {"least_share": 0}]}, hours=hours, past_peak_kw=300), kw_N).demand_usd
    assert past == pytest.approx(240 + 240)


def test_power_above_a_level_is_charged_and_weekends_may_have_other_hours():
    tiers = [
        {"usd_per_kw_month": 4.0, "interval_min": 60},
        {"usd_per_kw_month": 3.0, "interval_min": 60, "above_kw": 100},
    ]
    low, high = np.full(720, 90.0), np.full(720, 130.0)
    assert bill_of(metered({"demand": tiers}), low).demand_usd == pytest.approx(360)
    assert bill_of(metered({"demand": tiers}), high).demand_usd == pytest.approx(520 + 90)
    least = {**tiers[1], "least_share": 0.85}
    assert bill_of(metered({"demand": [least], "contract_kw": 200}), low).demand_usd == pytest.approx(3 * 70)
    site = metered({"fees": [{"usd_per_mwh": 9, "hours": [8], "weekend_hours": [20, 21]}], "energy": 1}, hours=24 * 7)
    assert np.flatnonzero(site.price_N == 10).tolist() == [8, 32, 56, 92, 93, 116, 117, 128, 152]  # Wednesday first
    with pytest.raises(ValidationError, match="leave days out"):
        Fee.model_validate({"usd_per_mwh": 1, "days": "weekdays", "weekend_hours": [3]})


def test_months_that_are_not_charged_still_count_for_the_ratchet():
    demand = {"usd_per_kw_month": 1.0, "interval_min": 60, "ratchet": 0.5, "months": [7]}
    kw_N = np.concatenate([np.full(720, 100.0), np.full(744, 10.0)])
    site = metered({"demand": [demand]}, hours=61 * 24)
    assert bill_of(site, kw_N).demand_usd == pytest.approx(10.0)  # only intervals of July set a peak


def test_blocks_of_energy_by_month():
    tariff = {
        "energy": [{"up_to_kwh": 1000, "usd_per_mwh": 50}, {"up_to_kwh": 3000, "usd_per_mwh": 80}, {"usd_per_mwh": 200}]
    }
    assert bill_of(metered(tariff), np.full(720, 5.0)).energy_usd == pytest.approx(50 + 160 + 120)
    half = metered(tariff, hours=360)  # half a month: blocks of 500 and 1500 kWh
    assert bill_of(half, np.full(360, 5.0)).energy_usd == pytest.approx(25 + 80 + 60)


def test_fees_by_hour_and_contracts_in_place_of_the_signal():
    tariff = {
        "energy": 70,
        "fees": [{"usd_per_mwh": 20, "hours": [8, 9], "months": [6]}, {"usd_per_mwh": -5, "days": "weekends"}],
    }
    site = metered(tariff, hours=24 * 7)  # Wednesday 1 to Tuesday 7 June
    assert site.price_N[[7, 8, 9, 10]].tolist() == [70, 90, 90, 70]
    assert site.price_N[24 * 3 + 8] == 85  # Saturday
    assert bill_of(site, np.ones(168)).energy_usd == pytest.approx((168 * 70 + 14 * 20 - 48 * 5) / 1000)


def test_coincident_peaks_cost_the_power_drawn_in_them():
    tariff = {"coincident": [{"usd_per_kw_year": 120, "peaks": 4, "interval_min": 60}]}
    peaks = (("2022-06-03T15:00Z", "2022-06-20T16:30Z", "2022-08-01T12:00Z", "2022-05-31T12:00Z"),)
    site = metered(tariff, step_s=1800.0, system_peaks=peaks)
    kw_N = np.full(1440, 100.0)
    kw_N[2 * 63] = 300.0  # 3 June 15:00 to 15:30
    kw_N[2 * (19 * 24 + 16) : 2 * (19 * 24 + 17)] = 40.0
    assert bill_of(site, kw_N).coincident_usd == pytest.approx(30 * (200 + 40))


def test_a_kw_costs_as_much_a_peak_whatever_the_law():
    assert Coincident(usd_per_kw_year=120, peaks=5).usd_per_kw_peak == 24
    assert Coincident(usd_per_kw_year=120, peaks=1, per="month", months=(6, 7, 8, 9)).usd_per_kw_peak == 30


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"energy": [{"up_to_kwh": 10, "usd_per_mwh": 50}]}, "last one has none"),
        ({"energy": [{"up_to_kwh": 10, "usd_per_mwh": 50}, {"usd_per_mwh": 40}]}, "must rise"),
        ({"energy": ()}, "no block"),
        ({"demand": [{"usd_per_kw_month": 1, "least_share": 0.5}]}, "contract_kw"),
        ({"demands": []}, "demands"),
    ],
)
def test_wrong_tariffs_are_refused(wrong, words):
    with pytest.raises(ValidationError, match=words):
        Tariff.model_validate(wrong)


def random_tariff(rng):
    """A tariff with random charges of every kind."""
    demand = [
        Demand(
            usd_per_kw_month=float(rng.uniform(1, 20)),
            interval_min=int(rng.choice([30, 60])),
            months=tuple(sorted(rng.choice(np.arange(1, 13), 8, replace=False).tolist())),
            hours=tuple(sorted(rng.choice(24, 10, replace=False).tolist())),
            **({"weekend_hours": (5, 18)} if rng.random() < 0.3 else {"days": str(rng.choice(DAYS))}),
            ratchet=float(rng.choice([0, 0.6])),
            least_share=float(rng.choice([0, 0.5])),
            above_kw=float(rng.choice([0, 25])),
        )
        for _ in range(int(rng.integers(0, 3)))
    ]
    blocks = [
        {"up_to_kwh": float(rng.uniform(100, 3000)), "usd_per_mwh": 30},
        {"usd_per_mwh": float(rng.uniform(30, 200))},
    ]
    return Tariff(
        energy=blocks if rng.random() < 0.5 else "signal",
        fees=(Fee(usd_per_mwh=float(rng.uniform(-20, 60)), hours=(7, 8, 20)),),
        demand=demand,
        coincident=(Coincident(usd_per_kw_year=float(rng.uniform(0, 150)), peaks=2, interval_min=30),),
        contract_kw=float(rng.uniform(1, 80)),
    )


def charges_program(site, kw_N):
    """The program of all charges of a site whose power is given."""
    program = Program()
    draw_N = program.columns(len(kw_N), site.price_N * site.calendar.step_h / 1000, lower=kw_N, upper=kw_N)
    for charge in site.tariff.demand:
        charge.convex(program, draw_N, site.calendar, site.contract_kw, site.meter.past_peak_kw)
    for charge, peaks in zip(site.tariff.coincident, site.meter.system_peaks, strict=True):
        charge.convex(program, draw_N, site.calendar, peaks)
    site.tariff.convex_blocks(program, draw_N, site.calendar)
    return program


def test_the_convex_face_of_every_charge_is_what_it_settles():
    """For given power the least cost of the rows is the bill: no gap, so no bound is lost."""
    rng = np.random.default_rng(7)
    for _ in range(40):
        peaks = (("2022-02-03T15:00Z", "2022-02-20T16:30Z"),)
        start = datetime(2022, 1, 25, tzinfo=UTC)
        site = metered(
            random_tariff(rng), start=start, hours=24 * 40, step_s=1800.0, zone="Europe/Berlin",
            price=float(rng.uniform(-20, 90)), system_peaks=peaks, past_peak_kw=float(rng.uniform(0, 90)),
        )  # fmt: skip
        kw_N = rng.uniform(0, 100, 24 * 40 * 2) * (rng.random(24 * 40 * 2) < 0.3)
        bill = bill_of(site, kw_N)
        least = charges_program(site, kw_N).solved("charges").value
        assert least == pytest.approx(bill.energy_usd + bill.demand_usd + bill.coincident_usd, rel=1e-9, abs=1e-7)


def test_a_step_of_a_demand_charge_is_the_running_maximum():
    charge = Demand(usd_per_kw_month=2.0, interval_min=60)
    site = metered({"demand": [charge.model_dump()]})
    kw_N = np.random.default_rng(1).uniform(0, 50, 720)
    peak_kw_M = np.zeros(1)
    for kw in kw_N:
        peak_kw_M = charge.step(peak_kw_M, 0, float(kw))
    assert 2.0 * peak_kw_M[0] == pytest.approx(bill_of(site, kw_N).demand_usd)


def sam_bill(kw_N, rates):
    """What NREL's System Advisor Model bills for a year's load: energy, demand and fixed charges, USD."""
    utilityrate5 = pytest.importorskip("PySAM.Utilityrate5", reason="NREL-PySAM is missing: extra oracles")
    model, flat = utilityrate5.new(), [[1] * 24 for _ in range(12)]
    plain = {
        "analysis_period": 1, "inflation_rate": 0, "system_use_lifetime_output": 0, "degradation": [0],
        "gen": [0.0] * len(kw_N), "load": kw_N.tolist(), "load_escalation": [0], "rate_escalation": [0],
        "ur_metering_option": 2, "ur_monthly_min_charge": 0, "ur_annual_min_charge": 0, "ur_sell_eq_buy": 0,
        "ur_en_ts_buy_rate": 0, "ur_en_ts_sell_rate": 0, "ur_dc_enable": 1,
        **{f"ur_{kind}_sched_{days}": flat for kind in ("ec", "dc") for days in ("weekday", "weekend")},
        "ur_dc_tou_mat": [[1, 1, 1e38, 0.0]],
    }  # fmt: skip
    for name, value in (plain | rates).items():
        model.value(name, value)
    model.execute(0)
    energy, *demand, fixed = (
        sum(getattr(model.Outputs, f"year1_monthly_{name}_without_system"))
        for name in ("ec_charge", "dc_fixed", "dc_tou", "fixed")
    )
    return energy, sum(demand), fixed


def assert_billed_alike(tariff, kw_N, rates):
    """Whether a tariff and SAM's rates come to the same bill for 2018: it begins on a Monday, as SAM's year does."""
    step_s = 8760 * HOUR_S / len(kw_N)
    ours = bill_of(metered(tariff, start=datetime(2018, 1, 1, tzinfo=UTC), hours=8760, step_s=step_s), kw_N)
    theirs = sam_bill(kw_N, rates)
    assert (ours.energy_usd, ours.demand_usd, ours.fixed_usd) == pytest.approx(theirs, abs=0.005)


def test_utilityrate5_bills_the_same_by_period():
    """NREL's System Advisor Model: energy by period, demand by period and month, fixed charges; random loads."""
    rng = np.random.default_rng(11)
    for _ in range(3):
        peak_hours, summer = tuple(range(12, 18)), (6, 7, 8, 9)
        low, high = rng.uniform(0.03, 0.2, 2).round(4).tolist()
        flat, tou, fixed = rng.uniform(1, 20, 3).round(2).tolist()
        peak = {"hours": peak_hours, "months": summer, "days": "weekdays"}
        tariff = {
            "energy": 1000 * low,
            "fees": [{"usd_per_mwh": 1000 * (high - low), **peak}],
            "demand": [
                {"usd_per_kw_month": flat, "interval_min": 60},
                {"usd_per_kw_month": tou, "interval_min": 60, **peak},
            ],
            "usd_per_month": fixed,
        }
        on = [[2 if m + 1 in summer and h in peak_hours else 1 for h in range(24)] for m in range(12)]
        rates = {
            "ur_monthly_fixed_charge": fixed, "ur_ec_sched_weekday": on, "ur_dc_sched_weekday": on,
            "ur_ec_tou_mat": [[1, 1, 1e38, 0, low, 0], [2, 1, 1e38, 0, high, 0]],
            "ur_dc_flat_mat": [[m, 1, 1e38, flat] for m in range(12)],
            "ur_dc_tou_mat": [[1, 1, 1e38, 0.0], [2, 1, 1e38, tou]],
        }  # fmt: skip
        assert_billed_alike(tariff, rng.gamma(2.0, 40.0, 8760), rates)


def test_utilityrate5_bills_the_same_by_blocks_and_quarter_hours():
    """The same: three blocks of a month's energy, and demand by the quarter hour; random loads."""
    rng = np.random.default_rng(12)
    for _ in range(3):
        ends = np.sort(rng.uniform(2e4, 7e4, 2)).round().tolist()
        prices = np.sort(rng.uniform(0.03, 0.2, 3)).round(4).tolist()
        flat, fixed = rng.uniform(1, 20, 2).round(2).tolist()
        blocks = [{"up_to_kwh": end, "usd_per_mwh": 1000 * usd} for end, usd in zip((*ends, None), prices, strict=True)]
        demand = [{"usd_per_kw_month": flat, "interval_min": 15}]
        rates = {
            "ur_monthly_fixed_charge": fixed,
            "ur_ec_tou_mat": [
                [1, n + 1, end, 0, usd, 0] for n, (end, usd) in enumerate(zip((*ends, 1e38), prices, strict=True))
            ],
            "ur_dc_flat_mat": [[m, 1, 1e38, flat] for m in range(12)],
        }
        tariff = {"energy": blocks, "demand": demand, "usd_per_month": fixed}
        assert_billed_alike(tariff, rng.gamma(2.0, 40.0, 4 * 8760), rates)


def fleet(meter, tariffs):
    """A fleet of one site."""
    return Fleet.model_validate(
        {
            "gpu_types": {"T": {"idle_w": 100, "classes": {"c": {"power": {"constant_w": 1000}}}}},
            "sites": [{"name": "a", "zone": "DE", "gpu_type": "T", "gpus": 2, "meter": meter}],
            "tariffs": tariffs,
        }
    )


@pytest.mark.parametrize(
    ("meter", "tariffs", "words"),
    [
        ({"tariff": "larg"}, {"large": {}}, "did you mean 'large'|large"),
        (
            {"tariff": "t", "interval_min": 20},
            {"t": {"demand": [{"usd_per_kw_month": 1, "interval_min": 30}]}},
            "divides",
        ),
        ({"tariff": "t"}, {"t": {"coincident": [{"usd_per_kw_year": 1}]}}, "system_load"),
    ],
)
def test_meters_that_do_not_fit_their_tariff_are_refused(meter, tariffs, words):
    with pytest.raises(ValidationError, match=words):
        fleet(meter, tariffs)


def test_a_fleet_without_tariffs_is_written_as_before():
    assert "tariff" not in fleet({"interval_min": 15}, {}).model_dump_json()
