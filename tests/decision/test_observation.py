"""Observations: hand-made worlds in numbers, sizes and names that agree, entries of order 1."""

import math
import random

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.observation import Observation
from noonward.engine.cluster.batch import BatchEngine
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from reference import small_worlds
from reference.small_worlds import plain


def first(world, observation, forecast=None):
    """The engine at its first question, and both parts by name (own: of the first site)."""
    engine = BatchEngine([world.environment()], observation, seeds=[0], forecast=forecast)
    sites = engine.environments[0].sites
    points = [point.name for point in engine.environments[0].fleet.ingress_points]
    seen = dict(zip(observation.names(sites, points), engine.global_BG[0].tolist(), strict=True))
    own = dict(zip(observation.own_names(sites), engine.own_BNO[0, 0].tolist(), strict=True))
    return engine, seen, own


def two_sites(**job):
    """A job of 2 GPUs for 6 h with 4 h of slack at the first of two sites; the second is cheap and clean."""
    job = {"gpus": 2, "work": 6 * 3600.0, "slack_s": 4 * 3600.0, "move_gb": 60.0, "result_gb": 5.0} | job
    network = {"usd_per_gb": ((0.0, 0.01), (0.01, 0.0))}
    price, carbon = [[100.0, 100.0, 300.0], [50.0]], [[500.0], [250.0]]
    return plain([8, 4], [job], price=price, carbon=carbon, network=network, mu=0.0)


def test_the_papers_state_in_numbers():
    _, seen, own = first(two_sites(), Observation(kind="paper"))
    assert own == {}
    assert seen == pytest.approx(
        {
            "gang/site0": 0.25,
            "run_time/site0": 0.5,  # sqrt(6 / 24)
            "slack/site0": 0.5,
            "free/site0": 1.0,
            "queue/site0": 0.5,  # sqrt(2 / 8)
            "price/site0": 1.0,
            "carbon/site0": 1.0,
            "gang/site1": 0.0,
            "run_time/site1": 0.0,
            "slack/site1": 0.0,
            "free/site1": 1.0,
            "queue/site1": 0.0,
            "price/site1": 2 / 3,
            "carbon/site1": 0.5,
        }
    )


def signed(x):
    return 2 * x / (abs(x) + 1)


def test_the_extended_state_in_numbers():
    observation = Observation(kind="extended", forecast_h=2)
    _, seen, own = first(two_sites(), observation, Forecast("perfect"))
    assert (seen["hour_sin"], seen["hour_cos"]) == pytest.approx((0.0, 1.0))
    assert seen["price+1/site0"] == pytest.approx(1.0)
    assert seen["price+2/site0"] == pytest.approx(1.5)
    assert seen["carbon+2/site1"] == pytest.approx(0.5)
    assert own["slack"] == pytest.approx(0.5)  # at home no result travels
    assert own["deadline"] == pytest.approx(0.5)
    assert (own["gang"], own["run_time"], own["data"], own["result"]) == pytest.approx((0.25, 0.5, 6.0, 0.5))
    # 12 GPU-hours earn 12 USD; 0.2 kW for 6 h are 1.2 kWh; travel is 0.65 USD.
    unit = 12 * 0.05
    here, there = 12 - 0.12, 12 - 0.06 - 0.65
    assert own["now/site0"] == own["now/hold"] == pytest.approx(signed(here / unit))
    assert own["now/site1"] == pytest.approx(signed(there / unit))
    # From hour 2 on the price is 300: a start at once runs two cheap hours, a start after the next slot less.
    at_once = 12 - 0.2e-3 * (2 * 100 + 4 * 300)
    next_slot = 12 - 0.2e-3 * ((2 - 1 / 60) * 100 + (4 + 1 / 60) * 300)
    assert own["best/site0"] == pytest.approx(signed(at_once / unit), rel=1e-6)
    assert own["best/hold"] == pytest.approx(signed(next_slot / unit), rel=1e-6)
    assert own["best/site1"] == pytest.approx(signed(there / unit))


def test_the_best_start_is_found_among_full_hours():
    price = [[300.0, 300.0, 300.0, 50.0, 300.0]]
    world = plain([2], [{"gpus": 2, "work": 3600.0, "slack_s": 5 * 3600.0}], price=price)
    _, _, own = first(world, Observation(kind="extended", forecast_h=1), Forecast("perfect"))
    assert own["best/hold"] == pytest.approx(signed((2 - 0.2e-3 * 50) / 0.1), rel=1e-6)
    world = plain([2], [{"gpus": 2, "work": 3600.0, "slack_s": 2.5 * 3600.0}], price=price)
    _, _, own = first(world, Observation(kind="extended", forecast_h=1), Forecast("perfect"))
    assert own["best/hold"] == pytest.approx(signed((2 - 0.2e-3 * 175) / 0.1), rel=1e-6)  # the latest start


def test_own_parts_are_zero_where_nothing_is_asked_or_allowed():
    engine, _, own = first(two_sites(gpus=6), Observation(kind="extended", forecast_h=2), Forecast("perfect"))
    assert not engine.own_BNO[0, 1].any()
    assert (own["now/site1"], own["best/site1"]) == (0.0, 0.0)  # six GPUs do not fit there
    assert own["now/site0"] != 0.0
    _, _, own = first(two_sites(result_gb=0.0, slack_s=0.0), Observation(kind="extended"))
    assert own["now/hold"] == 0.0  # in the next slot it would be too late
    assert own["now/site0"] != 0.0


def on_arrival(**options):
    jobs = [{"work": 7200.0, "arrival_s": 6 * 3600.0}]
    world = plain(
        [4, 2],
        jobs,
        protocol="on-arrival",
        clocks=(0.5, 1.0),
        time=(0.0, 1.0, 0.0),
        network={"latency_ms": ((0.0, 200.0), (200.0, 0.0))},
        **options,
    )
    for row in world.rows:
        row["gpus_max"] = 3
    return world


def test_the_dispatchers_state_in_numbers():
    _, seen, _ = first(on_arrival(price=[[100.0], [50.0]]), Observation(kind="paper", protocol="on-arrival"))
    assert seen == pytest.approx(
        {
            "gpus/site0": 4 / 500,
            "busy/site0": 0.0,
            "free/site0": 1.0,
            "clock/site0": 1.0,
            "queue/site0": 0.0,
            "gpus/site1": 2 / 500,
            "busy/site1": 0.0,
            "free/site1": 1.0,
            "clock/site1": 1.0,
            "queue/site1": 0.0,
            "hour_sin": 1.0,
            "hour_cos": 0.0,
            "size": math.sqrt(2 / 24),
            "from/ingress0": 1.0,
            "from/ingress1": 0.0,
        },
        abs=1e-7,
    )


def test_the_dispatchers_extended_state_in_numbers():
    observation = Observation(kind="extended", protocol="on-arrival", gpus_max=4, signals=True)
    _, seen, _ = first(on_arrival(price=[[100.0], [50.0]]), observation)
    # P(n) T(n) = 100 n W x 1 / n s: the same for every gang.
    assert [seen[f"energy_{gpus}/site0"] for gpus in range(1, 5)] == pytest.approx([0.0] * 4)
    times = [math.sqrt(2 / n / 24) for n in (1, 2, 3)]
    assert [seen[f"time_{gpus}/site0"] for gpus in range(1, 5)] == pytest.approx([*times, 0.0])
    assert [seen[f"time_{gpus}/site1"] for gpus in range(1, 5)] == pytest.approx([*times[:2], 0.0, 0.0])
    assert (seen["delay/site0"], seen["delay/site1"]) == pytest.approx((0.0, 1.0))
    assert (seen["price/site0"], seen["price/site1"], seen["carbon/site0"]) == pytest.approx((1.0, 2 / 3, 0.0))


def test_every_clock_is_shown_where_clocks_are_chosen():
    observation = Observation(kind="extended", protocol="on-arrival", gpus_max=4, levels=2)
    _, seen, _ = first(on_arrival(), observation)
    # 100 n W at any clock, 1 / (n f) s: half the clock takes twice the energy.
    for gpus, there in ((1, 1.0), (2, 1.0), (3, 1.0), (4, 0.0)):
        energy = [seen[f"energy_{gpus}_{level}/site0"] for level in range(2)]
        assert energy == pytest.approx([0.5 * there, 0.0])
        times = [math.sqrt(2 / (gpus * clock) / 24) * there for clock in (0.5, 1.0)]
        assert [seen[f"time_{gpus}_{level}/site0"] for level in range(2)] == pytest.approx(times)
    assert seen["time_3_1/site1"] == 0.0
    assert seen["delay/site1"] == pytest.approx(1.0)


def test_the_raw_state_is_what_the_view_says():
    observation = Observation(kind="raw", protocol="on-arrival")
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1", "jobs.rate_per_s=0.3"]))
    engine = BatchEngine([environment], observation, seeds=[0])
    names = observation.names(environment.sites)
    for _ in range(900):
        engine.step(np.array([[int(engine.mask_BNA[0, 0].argmax())]]))
    view, seen = engine.row_view(0), dict(zip(names, engine.global_BG[0].tolist(), strict=True))
    assert len(seen) == 41
    assert seen["time"] == pytest.approx(view.now_s)
    assert (seen["gpus/us-west"], seen["busy/us-west"], seen["free/us-west"]) == (16.0, 16.0, 0.0)
    assert seen["clock/us-west"] == pytest.approx(0.8)
    assert [seen[f"queue/{site}"] for site in environment.sites] == view.waiting_S.tolist()


def test_signals_and_the_class_of_the_arriving_job_are_shown():
    observation = Observation(kind="extended", protocol="on-arrival", signals=True, classes=2)
    environment = build_environment(load_scenario("dvfs-mixed", ["window_h=1"]))
    engine = BatchEngine([environment], observation, seeds=[0])
    names, seen_classes = observation.names(environment.sites), set()
    for _ in range(60):
        seen = dict(zip(names, engine.global_BG[0].tolist(), strict=True))
        view = engine.row_view(0)
        class_ = int(view.job_J["class_"][view.job])
        assert (seen["class/0"], seen["class/1"]) == ((1.0, 0.0) if class_ == 0 else (0.0, 1.0))
        site = view.site_S[6]
        assert seen["carbon/sa-east"] == pytest.approx(site["carbon"] / 500)
        assert seen["price/sa-east"] == pytest.approx(signed(site["price"] / 100))
        seen_classes.add(class_)
        engine.step(np.array([[int(engine.mask_BNA[0, 0].argmax())]]))
    assert seen_classes == {0, 1}


def test_the_weight_of_the_arriving_jobs_class_is_shown():
    observation = Observation(kind="extended", protocol="on-arrival", preferences=True)
    weights = ["window_h=1", "latency_weight_w={training: 25, inference: 300}"]
    environment = build_environment(load_scenario("dvfs-mixed", weights))
    engine = BatchEngine([environment], observation, seeds=[0])
    names, seen = observation.names(environment.sites), set()
    assert len(names) == Observation(kind="extended", protocol="on-arrival").global_size(8) + 1
    for _ in range(60):
        shown = dict(zip(names, engine.global_BG[0].tolist(), strict=True))["preference"]
        view = engine.row_view(0)
        name = environment.fleet.classes[int(view.job_J["class_"][view.job])]
        assert shown == pytest.approx({"training": 0.2, "inference": 0.75}[name])
        seen.add(name)
        engine.step(np.array([[int(engine.mask_BNA[0, 0].argmax())]]))
    assert seen == {"training", "inference"}


@pytest.mark.parametrize(
    ("scenario", "observation"),
    [
        ("fine-tuning", Observation(kind="paper")),
        ("fine-tuning", Observation(kind="extended", forecast_h=6)),
        ("dvfs-training", Observation(kind="extended", protocol="on-arrival")),
    ],
)
def test_entries_of_a_real_run_are_of_order_one(scenario, observation):
    environment = build_environment(load_scenario(scenario, ["window_h=24"]))
    engine = BatchEngine([environment], observation, seeds=[0], forecast=Forecast("persistence"))
    rng, largest, sums, steps = np.random.default_rng(0), 0.0, np.zeros(engine.global_BG.shape[1]), 0
    while not engine.done_B[0]:
        assert np.isfinite(engine.global_BG).all()
        assert np.isfinite(engine.own_BNO).all()
        largest = max(largest, float(np.abs(engine.global_BG).max()), float(np.abs(engine.own_BNO).max(initial=0.0)))
        assert not engine.own_BNO[~engine.asked_BN].any()
        sums += np.abs(engine.global_BG[0])
        steps += 1
        engine.step((engine.mask_BNA * rng.random(engine.mask_BNA.shape)).argmax(2))
    assert steps > 1000
    assert 1.0 < largest < 8.0
    assert (sums / steps < 2.0).all()


def test_unknown_hours_repeat_the_last_known_one():
    price = [[10.0, 20.0, 30.0]]
    world = plain([1], [{"work": 60.0, "slack_s": 0.0}], price=price, window_h=3)
    observation = Observation(kind="extended", forecast_h=5)
    _, seen, _ = first(world, observation, Forecast("perfect"))
    shown = [seen[f"price+{lead}/site0"] for lead in range(1, 6)]
    assert shown == pytest.approx([signed(0.2), *[signed(0.3)] * 4])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_sizes_and_names_agree_with_what_is_written(protocol, seed):
    environment = small_worlds.draw(seed, protocol, signals=True, history_h=24).environment()
    signals = protocol == "on-arrival"
    observation = Observation(kind="extended", protocol=protocol, forecast_h=2, gpus_max=13, signals=signals)
    engine = BatchEngine([environment], observation, seeds=[0], forecast=Forecast("noisy"))
    engine.global_BG[:], rng, written = np.nan, random.Random(seed), True
    while not engine.done_B[0]:
        choices = [
            rng.choice(np.flatnonzero(engine.mask_BNA[0, n]).tolist()) if engine.asked_BN[0, n] else 0
            for n in range(engine.agents)
        ]
        engine.global_BG[:] = np.nan
        engine.step(np.array([choices]))
        written = written and not np.isnan(engine.global_BG).any()
    assert written
    assert len(set(observation.names(environment.sites))) == observation.global_size(len(environment.sites))


def test_choices_have_parts_and_parts_a_choice():
    for levels in (0, 3):
        observation = Observation(kind="paper", protocol="on-arrival", gpus_max=2, levels=levels)
        numbers = range(observation.choices(4))
        parts = [observation.parts(choice) for choice in numbers]
        assert len(set(parts)) == len(parts) == 4 * 2 * max(1, levels)
        assert [observation.choice_of(*each) for each in parts] == list(numbers)


def test_fields_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="did you mean 'paper'"):
        Observation(kind="papers")
    with pytest.raises(ValueError, match="unknown observation protocol"):
        Observation(kind="paper", protocol="slots")
    with pytest.raises(ValueError, match="at least 0 hours"):
        Observation(kind="extended", forecast_h=-1)
    with pytest.raises(ValueError, match="shows no forecasts, signals, classes or preferences"):
        Observation(kind="paper", forecast_h=1)
    with pytest.raises(ValueError, match="the observation 'raw' is for protocol on-arrival"):
        Observation(kind="raw")
    with pytest.raises(ValueError, match="0 levels"):
        Observation(kind="paper", protocol="on-arrival", levels=-1)
    with pytest.raises(ValueError, match="under each-slot the clock is always the oracle's"):
        Observation(kind="paper", levels=2)
    with pytest.raises(ValueError, match="signals are always shown, classes and preferences never"):
        Observation(kind="extended", signals=True)


def test_environments_that_do_not_fit_are_refused():
    environment = on_arrival().environment()
    with pytest.raises(ScenarioError, match=r"3 clock levels to choose from, but sites .* up to 2; use levels=2"):
        Observation(kind="paper", protocol="on-arrival", levels=3).numbers(Brief.of(environment, Needs()))
    with pytest.raises(ScenarioError, match="shows 3 job classes"):
        Observation(kind="extended", protocol="on-arrival", classes=3).numbers(Brief.of(environment, Needs()))
    with pytest.raises(ScenarioError, match=r"shows preferences, but scenario .* states none"):
        Observation(kind="extended", protocol="on-arrival", preferences=True).numbers(Brief.of(environment, Needs()))
    with pytest.raises(ScenarioError, match="has no signals"):
        Observation(kind="extended", protocol="on-arrival", signals=True).numbers(Brief.of(environment, Needs()))
    world = on_arrival()
    world.rows[0]["gpus_min"] = 3
    with pytest.raises(ScenarioError, match="needs 3 GPUs at once, but the choices end at 2"):
        Observation(kind="paper", protocol="on-arrival", gpus_max=2).numbers(Brief.of(world.environment(), Needs()))
    tiny = build_environment(load_scenario("tiny", ["economics=null"]))
    with pytest.raises(ScenarioError, match="has no economics"):
        Observation(kind="extended").numbers(Brief.of(tiny, Needs()))
