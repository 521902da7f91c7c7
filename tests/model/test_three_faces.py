"""Three faces: on random dispatches the physics lies within the convex set, and no settled cost is below its own."""

import importlib
import inspect
import pkgutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import noonward.model.cluster
from model.test_tariff import random_tariff
from noonward.errors import InfeasiblePlanError
from noonward.ledger.bill import MeteredSite, events_of
from noonward.ledger.dispatch import add_site, balance, check_flows, dispatched, marginal_price, settled
from noonward.model.cluster.books import Ppa
from noonward.model.cluster.calendar import site_calendar
from noonward.model.cluster.devices import Battery, BehindMeter, Export, Flows, Solar
from noonward.model.cluster.event import GridEvent
from noonward.model.cluster.meter import Meter
from noonward.model.cluster.program import Program
from noonward.model.cluster.tariff import Tariff

START = datetime(2022, 1, 30, tzinfo=UTC)


def site(
    count=48,
    *,
    tariff=None,
    price_N=None,
    share_N=None,
    export_price=0.0,
    step_s=1800.0,
    meter=None,
    plant=None,
    zone_price_N=None,
    **behind,
):
    """A site with devices, whose window is all of the run."""
    tariff = Tariff() if tariff is None else tariff
    calendar = site_calendar("Europe/Berlin", START, count * step_s, step_s, count)
    price_N = np.full(count, 50.0) if price_N is None else np.asarray(price_N, dtype=float)
    return MeteredSite(
        meter=meter or Meter(interval_min=round(step_s / 60)),
        tariff=tariff,
        calendar=calendar,
        price_N=price_N + tariff.added_usd_per_mwh(calendar),
        behind=BehindMeter(**behind),
        solar_share_N=np.zeros(count) if share_N is None else np.asarray(share_N, dtype=float),
        export_price_N=np.full(count, export_price),
        plant=plant,
        zone_price_N=price_N if zone_price_N is None else zone_price_N,
    )


def random_steps(rng):
    """Three powers of a connection in turn."""
    times = sorted(rng.uniform(-6.0, 48.0, 3))
    return [{"from": START + timedelta(hours=hours), "kw": float(rng.uniform(20, 120))} for hours in times]


def random_site(rng, count=96):
    """A site with random devices and a random tariff."""
    tariff = random_tariff(rng)
    meter = Meter(
        interval_min=30,
        past_peak_kw=float(rng.uniform(0, 90)),
        connection_kw=(None, float(rng.uniform(20, 120)), random_steps(rng))[rng.integers(3)],
        over_connection_usd_per_kwh=float(rng.uniform(0, 3)),
        system_peaks=(("2022-01-30T17:00Z", "2022-01-31T08:30Z"),),
    )
    solar = Solar(kw=float(rng.uniform(10, 150)), profile="sun.csv") if rng.random() < 0.7 else None
    battery = Battery(
        kw=float(rng.uniform(5, 60)),
        kwh=float(rng.uniform(10, 200)),
        round_trip=float(rng.uniform(0.7, 1.0)),
        reserve=0.1,
        start=float(rng.uniform(0.1, 1.0)),
        usd_per_mwh_through=float(rng.choice([0, 20])),
    )
    export = Export(allowed_kw=float(rng.uniform(5, 80)), price=10.0) if rng.random() < 0.5 else None
    return site(
        count,
        tariff=tariff,
        price_N=rng.uniform(30, 200, count),
        share_N=np.maximum(0, np.sin(np.arange(count) / 48 * 2 * np.pi)) * rng.uniform(0.3, 1, count),
        export_price=5.0,
        meter=meter,
        solar=solar,
        export=export,
        battery=battery if rng.random() < 0.8 else None,
        plant=(random_contract(rng), rng.uniform(0, 1, count)),
        zone_price_N=rng.uniform(10, 200, count),
    )


def random_contract(rng):
    """A contract for a plant's output of either kind."""
    delivery = {"kind": "physical", "delivery_usd_per_mwh": float(rng.choice([0, 15]))} if rng.random() < 0.6 else {}
    return Ppa(kw=float(rng.uniform(10, 90)), profile="wind.csv", usd_per_mwh=60.0, **delivery)


def random_flows(rng, one, load_N):
    """A dispatch that the devices' physics allows, drawn interval by interval."""
    hours, behind = one.calendar.step_h, one.behind
    flows = np.zeros((5, len(load_N)))  # grid, export, charge, discharge, solar
    battery = behind.battery
    stored = 0.0 if battery is None else battery.start * battery.kwh
    for n, load in enumerate(load_N):
        sun = 0.0 if behind.solar is None else behind.solar.kw * one.solar_share_N[n]
        charge = discharge = 0.0
        if battery is not None:
            # at the end only charging is left, so that it ends with what it began with
            late = n >= len(load_N) - 24
            room = (battery.kwh - stored) / battery.efficiency / hours
            left = (stored - battery.reserve * battery.kwh) * battery.efficiency / hours
            share = rng.random()
            charge = min(share * battery.kw, room) if late or rng.random() < 0.5 else 0.0
            discharge = 0.0 if late else min((1 - share) * battery.kw, left, load)
            charge = min(charge, battery.kw - discharge)
            stored = battery.step(stored, charge, discharge, hours)
        need = load + charge - discharge
        most = need + (0.0 if behind.export is None else behind.export.allowed_kw)
        used = min(sun, rng.uniform(0, most))
        flows[:, n] = max(0.0, need - used), max(0.0, used - need), charge, discharge, used
    if battery is not None and stored < battery.start * battery.kwh:
        return None
    return Flows(load_N, *flows)


def convex_classes():
    """All classes of the model with a convex face."""
    names = [info.name for info in pkgutil.iter_modules(noonward.model.cluster.__path__)]
    modules = [importlib.import_module(f"noonward.model.cluster.{name}") for name in names]
    found = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    return {each for each in found if any(name.startswith("convex") for name in vars(each))}


def random_events(rng, end_s, most_kw):
    """Events that follow each other, of random depth and price."""
    edges_s = np.sort(rng.uniform(0, end_s, 4))
    found = []
    for begin_s, until_s in (edges_s[:2], edges_s[2:]):
        baseline_kw = float(rng.uniform(0.2, 1.5) * most_kw)
        found.append(
            GridEvent(
                start_s=begin_s, end_s=until_s, baseline_kw=baseline_kw, target_kw=float(rng.uniform(0, baseline_kw)),
                ramp_s=float(rng.uniform(0, 0.5) * (until_s - begin_s)), usd_per_mwh=float(rng.uniform(0, 2000)),
                penalty_usd_per_mwh=float(rng.uniform(0, 4000)),
            )
        )  # fmt: skip
    return tuple(found)


def dispatches(rng, tries, changed=lambda one: one):
    """Yields random sites, loads and dispatches that their physics allows; some tries find none.

    ``changed`` returns what a site is changed to.
    """
    for _ in range(tries):
        plain, load_N = random_site(rng), rng.uniform(0, 100, 96)
        one = changed(plain)
        flows = random_flows(rng, one, load_N)
        if flows is not None:
            yield one, load_N, flows


def paid_usd(one, flows):
    """What a dispatch settles at, without fixed charges and events."""
    bill, over_usd, wear_usd, export_usd = settled(one, flows)
    return bill.total_usd - bill.fixed_usd + over_usd + wear_usd - export_usd + one.ppa_usd(flows.grid_N)


def convex_usd(one, load_N, flows):
    """What the convex program with these very flows costs: it has a solution, so they lie within its set."""
    program = Program()
    columns = add_site(program, one, float(load_N.max()))
    program.rows(96, balance(columns), lower=load_N, upper=load_N)
    for of, value in zip(columns.all, flows[1:], strict=True):
        if of is not None:
            program.rows(96, [(of, 1.0)], lower=value - 1e-6, upper=value + 1e-6)
    return program.solved("the very flows").value


def test_physics_lies_in_the_convex_set_and_no_cost_is_below_its_convex_cost():
    drawn = 0
    for one, load_N, flows in dispatches(np.random.default_rng(5), 60):
        drawn += 1
        check_flows(one, flows)
        paid = paid_usd(one, flows)
        assert convex_usd(one, load_N, flows) == pytest.approx(paid, abs=1e-3)
        least = dispatched(one, load_N)
        assert least.cost_usd <= paid + 1e-6
        # the least cost is that of flows which the physics allows
        check_flows(one, least.flows)
        assert paid_usd(one, least.flows) == pytest.approx(least.cost_usd, rel=1e-7, abs=1e-5)
    assert drawn >= 30


def test_with_events_too_no_dispatch_settles_below_its_convex_cost():
    rng, drawn = np.random.default_rng(11), 0

    def paid(one, flows):
        events = events_of(one, flows.grid_N)
        return paid_usd(one, flows) + events.penalty_usd - events.payment_usd

    def called(site):
        return replace(site, events=random_events(rng, 96 * 1800.0, 100.0))

    for one, load_N, flows in dispatches(rng, 40, called):
        drawn += 1
        assert convex_usd(one, load_N, flows) <= paid(one, flows) + 1e-3
        least = dispatched(one, load_N)
        assert least.cost_usd <= min(paid(one, flows), paid(one, least.flows)) + 1e-6
    assert drawn >= 20


def test_every_device_tariff_and_event_is_drawn_and_has_three_faces():
    rng, drawn = np.random.default_rng(5), set()
    for _ in range(20):
        one = random_site(rng)
        plant = () if one.plant is None else one.plant[:1]
        behind = (one.behind.battery, one.behind.solar, one.behind.export)
        tariff = one.tariff
        events = random_events(rng, 3600.0, 100.0)
        drawn |= {
            type(each) for each in (one.meter, tariff, *tariff.demand, *tariff.coincident, *behind, *plant, *events)
        }
    assert convex_classes() == drawn - {type(None)}
    for each in convex_classes():
        assert any(name.startswith("settle") for name in vars(each)), each


def test_a_battery_shaves_a_peak_by_hand():
    tariff = Tariff.model_validate({"demand": [{"usd_per_kw_month": 744.0, "interval_min": 30}]})
    one = site(48, tariff=tariff, battery=Battery(kw=10, kwh=20, round_trip=1.0, start=1.0))
    load_N = np.full(48, 20.0)
    load_N[10:12] = 40.0  # one hour, 20 kWh above the rest
    best = dispatched(one, load_N)
    assert best.flows.grid_N.max() == pytest.approx(30.0, abs=1e-6)
    assert best.cost_usd == pytest.approx(48 * 0.5 * 20 * 0.05 + 20 * 0.05 + 24 * 30.0 * (47 / 48) * 48 / 47, rel=1e-6)


def test_a_battery_buys_cheap_and_serves_dear_hours():
    price_N = [10.0] * 4 + [100.0] * 4
    one = site(8, price_N=price_N, step_s=3600.0, battery=Battery(kw=5, kwh=10, round_trip=0.81, start=0.0))
    best = dispatched(one, np.full(8, 10.0))
    # 10 kWh stored take 10 / 0.9 of cheap energy and give 9 of dear energy
    assert best.cost_usd == pytest.approx((40 * 10 + 10 / 0.9 * 10 + (40 - 9) * 100) / 1000)


def test_with_surplus_sun_a_kwh_costs_what_its_export_would_bring():
    share_N = [0.0, 1.0, 1.0, 0.0]
    solar, export = Solar(kw=100, profile="sun.csv"), Export(allowed_kw=30, price=20.0)
    load_N = np.array([10.0, 10.0, 80.0, 10.0])
    one = site(4, share_N=share_N, step_s=3600.0, solar=solar, export=export, export_price=20.0)
    best = dispatched(one, load_N)
    assert best.flows.export_N.tolist() == pytest.approx([0, 30, 20, 0])
    assert best.price_N.tolist() == pytest.approx([50, 0, 20, 50])  # curtailed: 0; exported: 20; bought: 50
    assert marginal_price(one, 2, load_N) == pytest.approx(20)
    alone = site(4, share_N=share_N, step_s=3600.0, solar=solar)
    assert dispatched(alone, load_N).price_N.tolist() == pytest.approx([50, 0, 0, 50])


def test_the_order_of_settlement():
    flows = Flows(*(np.array([each]) for each in (50.0, 12.0, 0.0, 0.0, 8.0, 30.0)))
    assert [float(each[0]) for each in flows.sources_kw] == [30.0, 8.0, 12.0]
    surplus = Flows(*(np.array([each]) for each in (50.0, 0.0, 15.0, 5.0, 0.0, 70.0)))
    assert [float(each[0]) for each in surplus.sources_kw] == [50.0, 0.0, 0.0]
    assert surplus.unbalanced_kw == 0.0


def test_the_price_of_a_kwh_is_what_it_adds():
    rng = np.random.default_rng(2)
    for _ in range(8):
        one, load_N = random_site(rng, 48), rng.uniform(10, 100, 48)
        best, n = dispatched(one, load_N), int(rng.integers(48))
        more_N, less_N = load_N.copy(), load_N.copy()
        more_N[n] += 1e-3
        less_N[n] -= 1e-3
        up, down = dispatched(one, more_N).cost_usd - best.cost_usd, best.cost_usd - dispatched(one, less_N).cost_usd
        usd = best.price_N[n] * 1e-3 * 0.5 / 1000
        assert down - 1e-8 <= usd <= up + 1e-8


@pytest.mark.parametrize(
    ("powers", "words"),
    [
        ((12.0, 0.0), "cannot charge"),
        ((6.0, 6.0), "cannot charge"),
        ((-1.0, 0.0), "cannot"),
        ((0.0, 10.0), "would store"),
    ],
)
def test_what_a_battery_cannot_do_is_refused(powers, words):
    battery = Battery(kw=10, kwh=20, reserve=0.2, start=0.3, round_trip=1.0)
    with pytest.raises(InfeasiblePlanError, match=words):
        battery.step(6.0, *powers, 1.0)


def test_pypsa_finds_the_same_optimum():
    """PyPSA: a bus with load, grid, sun, export and a storage unit; random prices, loads and devices."""
    pypsa = pytest.importorskip("pypsa", reason="PyPSA is missing: extra oracles")
    pypsa.options.api.legacy_string_dtype = False  # unset, it warns under pandas 3
    rng = np.random.default_rng(9)
    for _ in range(6):
        price_N, load_N = rng.uniform(5, 200, 72), rng.uniform(0, 60, 72)
        share_N = np.maximum(0, np.sin(np.arange(72) / 24 * 2 * np.pi))
        battery = Battery(
            kw=float(rng.uniform(5, 40)), kwh=float(rng.uniform(20, 160)), round_trip=float(rng.uniform(0.7, 1.0)),
            start=float(rng.uniform(0, 1)), usd_per_mwh_through=float(rng.choice([0, 20])),
        )  # fmt: skip
        solar, export = Solar(kw=float(rng.uniform(10, 120)), profile="sun.csv"), Export(allowed_kw=20.0, price=4.0)
        one = site(72, price_N=price_N, share_N=share_N, step_s=3600.0, export_price=4.0, battery=battery, solar=solar,
                   export=export)  # fmt: skip
        ours = dispatched(one, load_N).cost_usd
        network = pypsa.Network()
        network.set_snapshots(range(72))
        network.add("Bus", "site")
        network.add("Load", "load", bus="site", p_set=load_N)
        network.add("Generator", "grid", bus="site", p_nom=1e4, marginal_cost=price_N / 1000)
        network.add("Generator", "sun", bus="site", p_nom=solar.kw, p_max_pu=share_N)
        network.add("Generator", "export", bus="site", p_nom=export.allowed_kw, sign=-1, marginal_cost=-0.004)
        end = np.full(72, np.nan)
        end[-1] = battery.start * battery.kwh
        network.add(
            "StorageUnit", "battery", bus="site", p_nom=battery.kw, max_hours=battery.kwh / battery.kw,
            efficiency_store=battery.efficiency, efficiency_dispatch=battery.efficiency,
            state_of_charge_initial=battery.start * battery.kwh, state_of_charge_set=end,
            marginal_cost=battery.usd_per_mwh_through / 1000,
        )  # fmt: skip
        network.optimize(
            solver_name="highs", solver_options={"output_flag": False}, log_to_console=False,
            include_objective_constant=False,
        )  # fmt: skip
        assert ours == pytest.approx(network.objective, rel=1e-6)
