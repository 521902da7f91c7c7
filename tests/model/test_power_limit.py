"""Connections by time, priced and hard, by hand: the meter's energy above them, starts they put off, and bounds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from ledger.test_meters import metered
from ledger.test_pue_by_hour import PUE
from ledger.two_jobs import HOUR_S, START, played
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.scenarios.load import load_scenario, scenario_from
from noonward.engine.run import run
from noonward.errors import DataError
from noonward.ledger.ledger import settle
from noonward.ledger.record import environment_digest
from noonward.model.cluster.meter import KwStep, Meter
from noonward.model.cluster.power_limit import limit_w, within_power
from noonward.schedule.policies import make_scheduler
from reference.cluster_utility import Replay, random_environment
from reference.small_worlds import plain


def steps(*kw_by_minute):
    """Steps of a connection: kW from some minutes after the start on."""
    return [{"from": START + timedelta(minutes=minutes), "kw": kw} for minutes, kw in kw_by_minute]


def starts_s(gpus, jobs, connections, policy="local-fcfs", **options):
    """When the jobs of a small world start, in minutes; 100 W per GPU, free GPUs draw nothing."""
    world = plain(gpus, jobs, **options)
    world.connections = connections
    outcome = run(world.environment(), make_scheduler(policy))
    return [start_s / 60 for start_s in outcome.job_J["start_s"].tolist()]


def test_a_connection_by_time_by_hand():
    meter = Meter(interval_min=30, connection_kw=steps((-60, 4.0), (60, 2.0), (75, 1.0)))
    assert meter.connection_at(START, np.array([0.0, 3599.0, 3600.0, 9e9])).tolist() == [4.0, 4.0, 2.0, 1.0]
    assert meter.connection_by_interval(START, 4).tolist() == [4.0, 4.0, 1.5, 1.0]  # 15 minutes at 2, 15 at 1
    late = Meter(interval_min=30, connection_kw=steps((60, 2.0), (120, 1.0)))
    assert late.connection_by_interval(START, 5).tolist() == [2.0, 2.0, 2.0, 2.0, 1.0]  # the first holds before it


def test_a_file_is_read_and_its_clock_is_told(tmp_path):
    path = tmp_path / "feeder.csv"
    path.write_text("time,kw\n2022-12-25T00:00,0.4\n2022-12-25T01:00,0.4\n2022-12-25T03:30,0.25\n")
    said = f"{{connection_kw: {{path: {path}, timezone: '+01:00'}}, hard_connection: true}}"
    scenario = load_scenario("tiny", [f"fleet.sites.0.meter={said}"])
    steps = scenario.fleet.sites[0].meter.connection
    assert [(step.from_.isoformat(), step.kw) for step in steps] == [
        ("2022-12-24T23:00:00+00:00", 0.4), ("2022-12-25T02:30:00+00:00", 0.25)
    ]  # fmt: skip
    assert scenario_from(scenario.model_dump(mode="json", by_alias=True)).fleet == scenario.fleet
    path.write_text("time,kw\n2022-12-25T00:00Z,0.4\n")
    assert load_scenario("tiny", [f"fleet.sites.0.meter.connection_kw={path}"]).fleet.sites[0].meter.connection == (
        KwStep(from_=datetime(2022, 12, 25, tzinfo=UTC), kw=0.4),
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("2022-12-25T00:00Z,4\n2022-12-25T00:00Z,3\n", "line 3: this time is not after the one before"),
        ("2022-12-25T00:00Z,0\n", "is no power above 0"),
        ("2022-12-25T00:00Z,inf\n", "kw"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, rows, says):
    path = tmp_path / "feeder.csv"
    path.write_text(f"time,kw\n{rows}")
    with pytest.raises(DataError, match=says):
        load_scenario("tiny", [f"fleet.sites.0.meter.connection_kw={path}"])


def test_energy_above_a_connection_by_time_is_counted_and_priced():
    # half hours of site a: 1.0, 2.35, 2.35, 1.0 kW
    by_time = {"connection_kw": steps((0, 2.0), (60, 1.0)), "over_connection_usd_per_kwh": 3.0}
    lines = settle(played(fleet=metered(base_kw=0.7, **by_time))).meters["a"]
    assert lines.over_connection_kwh == pytest.approx(0.5 * (0.35 + 1.35))
    assert lines.over_connection_usd == pytest.approx(1.5 * (0.35 + 1.35))


def test_a_meter_says_its_steps_again_and_a_plain_one_no_more_than_before():
    meter = Meter(connection_kw=steps((0, 2.0), (60, 1.0)), hard_connection=True)
    assert Meter.model_validate_json(meter.model_dump_json()) == meter
    assert "hard" not in Meter(connection_kw=2.0).model_dump_json()
    soft, hard = (metered(connection_kw=9.0, hard_connection=each) for each in (False, True))
    world = plain([1], [{}]).environment()
    assert len({environment_digest(replace(world, fleet=fleet)) for fleet in (soft, hard)}) == 2


def test_a_multiple_of_a_connection():
    meter = Meter(connection_kw=steps((0, 2.0), (60, 1.0)))
    assert [step.kw for step in meter.connection_scaled(1.5).connection] == [3.0, 1.5]
    assert Meter(connection_kw=4.0).connection_scaled(0.5).connection_kw == 2.0
    assert Meter().connection_scaled(0.5) == Meter()


@pytest.mark.parametrize(
    ("meter", "words"),
    [
        ({"connection_kw": []}, "holds no step"),
        ({"connection_kw": steps((60, 1.0), (0, 2.0))}, "do not ascend"),
        ({"hard_connection": True}, "needs a connection_kw"),
        ({"connection_kw": 2e6, "hard_connection": True}, "at most 1,000,000 kW"),
    ],
)
def test_connections_that_make_no_sense_are_refused(meter, words):
    with pytest.raises(ValueError, match=words):
        Meter.model_validate(meter)


def test_the_limit_of_gpus_is_what_base_load_and_pue_leave():
    world = plain([4], [{}]).environment()
    fleet = metered(connection_kw=steps((0, 2.0), (60, 1.0)), base_kw=0.4, hard_connection=True)
    time_s_X = np.array([0.0, HOUR_S])
    assert limit_w(replace(world, fleet=fleet), time_s_X)[:, 0].tolist() == [1600.0, 600.0]
    assert np.isinf(limit_w(replace(world, fleet=fleet), time_s_X)[:, 1]).all()
    by_hour = limit_w(replace(world, fleet=fleet, pue=PUE), time_s_X)[:, 0]
    assert by_hour.tolist() == [1600.0, 500.0]  # a PUE 1.2 times that of the site in the second hour


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
class TestStarts:
    """Jobs of ten minutes; 0.25 kW carry two GPUs at 100 W."""

    def start(self, protocol, *said, **options):
        policy = {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}[protocol]
        return starts_s(*said, policy=policy, protocol=protocol, **options)

    def test_no_start_lifts_power_above_a_hard_connection(self, protocol):
        assert self.start(protocol, [4], [{}] * 5, [[(0.0, 0.25)]]) == [0, 0, 10, 10, 20]
        assert self.start(protocol, [4], [{}] * 5, None) == [0, 0, 0, 0, 10]

    def test_jobs_start_when_the_connection_carries_more(self, protocol):
        assert self.start(protocol, [4], [{}] * 4, [[(0.0, 0.15), (240.0, 0.35)]]) == [0, 4, 4, 10]

    def test_jobs_run_on_when_it_carries_less(self, protocol):
        assert self.start(protocol, [4], [{}] * 5, [[(0.0, 0.4), (240.0, 0.1)]]) == [0, 0, 0, 0, 10]

    def test_a_gang_takes_what_power_is_left(self, protocol):
        world = plain([4], [{"gpus_max": 4, "gpus_min": 1}], protocol=protocol)
        world.connections = [[(0.0, 0.35)]]
        policy = {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}[protocol]
        assert run(world.environment(), make_scheduler(policy)).job_J["gpus"].tolist() == [3]


def test_gpus_within_power_by_hand():
    world = plain([4], [{}], more=(((0.0, 0.0, 200.0), None),), withheld=[[(0.0, 0), (1200.0, 3)]])
    world.rows.append(world.rows[0] | {"class_": 1})
    world.connections = [[(0.0, 0.35), (600.0, 0.1)]]
    environment = world.environment()
    tables = environment.fleet.tables(1)
    most, surely = (within_power(environment, tables, surely=each) for each in (False, True))
    assert most.from_s_K.tolist() == [0.0, 600.0, 1200.0]
    assert (4 - most.gpus_KS[:, 0]).tolist() == [3, 1, 1]  # 100 W each
    assert (4 - surely.gpus_KS[:, 0]).tolist() == [1, 0, 0]  # 200 W each


def hard_environment(seed):
    """A small world of the bounds' tests with a hard connection at every site, by time in half of them."""
    rng = np.random.default_rng(7000 + seed)
    environment = random_environment(seed)
    sites = []
    for s, site in enumerate(environment.fleet.sites):
        tables = environment.fleet.tables(int(environment.jobs.gpus_max_J.max()))
        gpu_w = float(np.nanmax(tables.power_w_SCGF[s, :, 1]))
        most_kw = site.gpus * max(gpu_w, float(tables.free_w_S[s])) * site.pue / 1000
        times = (0.0, 3600.0) if rng.random() < 0.5 else (0.0,)
        said = [
            {"from": environment.start + timedelta(seconds=time_s), "kw": float(rng.uniform(0.3, 1.1) * most_kw)}
            for time_s in times
        ]
        sites.append(site.model_copy(update={"meter": Meter(connection_kw=said, hard_connection=True)}))
    return replace(environment, fleet=environment.fleet.model_copy(update={"sites": tuple(sites)}))


def test_no_policy_is_above_the_bound_and_its_schedule_can_be_carried_out():
    booked = tighter = 0
    for seed in range(40):
        environment = hard_environment(seed)
        found = utility_bound(environment, iterations=60)
        for policy in ("local-fcfs", "random"):
            earned = settle(run(environment, make_scheduler(policy), seed=seed)).utility_usd
            assert earned <= found.upper_usd + 1e-6
        tighter += found.upper_usd < utility_bound(random_environment(seed), iterations=60).upper_usd - 1e-6
        if environment.protocol == "each-slot" and found.schedule is not None:
            outcome = run(environment, Replay(found.schedule))
            runs_J = found.schedule.site_J >= 0
            assert outcome.job_J["start_s"][runs_J] == pytest.approx(found.schedule.start_s_J[runs_J])
            booked += int(runs_J.sum())
    assert booked > 20
    assert tighter > 5
