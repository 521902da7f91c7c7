"""Plans followed by discrete jobs: exact small days, hard and advisory curves, ranges, receding horizon."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle
from noonward.ledger.segments import DONE, OVERDUE
from noonward.schedule.plan.follow import FollowPlan, Fractional, PerfectPlan
from noonward.schedule.plan.workload import Workload
from noonward.schedule.policies import make_scheduler, policies
from reference import small_worlds
from reference.small_worlds import plain

PERFECT = Forecast("perfect")
CHEAP_SECOND_HOUR = [[100.0, 10.0, 100.0], [50.0, 50.0, 50.0]]


def jobs_of(counts, slack_s=3600.0, **more):
    """Jobs of an hour and a GPU that come at full hours, so many an hour."""
    return [
        {"arrival_s": 3600.0 * hour, "work": 3600.0, "slack_s": slack_s} | more
        for hour, count in enumerate(counts)
        for _ in range(count)
    ]


def day(gpus, counts, *, expected=None, window_h=2, price=CHEAP_SECOND_HOUR, **more):
    """A world on arrival whose sampled days all have the same jobs: its own, or those expected."""
    options = {"protocol": "on-arrival", "price": price, "window_h": window_h}
    world = plain(gpus, jobs_of(counts, **more), **options)
    rows = plain(gpus, jobs_of(counts if expected is None else expected, **more), **options).rows
    world.another = lambda rng: rows
    return world


def planner(curves="advisory", **more):
    return FollowPlan(curves, **({"promise": 0.0, "beta": 1.0, "eps": 0.0, "samples": 2, "forecast": PERFECT} | more))


def starts(outcome):
    """Jobs started per (site, hour)."""
    track = outcome.job_J[outcome.job_J["status"] == DONE]
    keys, counts = np.unique(np.stack([track["site"], track["start_s"] // 3600]), axis=1, return_counts=True)
    return dict(zip(map(tuple, keys.T.astype(int).tolist()), counts.tolist(), strict=True))


@pytest.mark.parametrize("curves", ["advisory", "hard"])
@pytest.mark.parametrize("hourly", [False, True])
def test_jobs_go_where_and_when_the_plan_says(curves, hourly):
    """Site 0 is cheapest in hour 1 but takes 6 of the 8 jobs; the others run at site 1, all at the same price."""
    environment = day((6, 10), (4, 4)).environment()
    scheduler = planner(curves, hourly=hourly)
    outcome = run(environment, scheduler)
    placed = starts(outcome)
    assert placed.pop((0, 1)) == 6
    assert sum(placed.values()) == 2
    assert {site for site, _ in placed} == {1}
    assert settle(outcome).over_cap_gpu_hours == 0.0


def test_the_plan_costs_what_the_power_costs():
    scheduler = planner()
    run(day((6, 10), (4, 4)).environment(), scheduler)
    # 6 jobs at 10 USD/MWh and 2 at 50, each 0.1 kWh.
    assert scheduler.plan.objective == pytest.approx(6 * 0.1 * 0.010 + 2 * 0.1 * 0.050)
    assert scheduler.plan.curve_TD[1, 0] == pytest.approx(6.0)


def busy_beyond(environment, outcome, curve_SH):
    """Largest use above a curve, by going through all starts."""
    track, worst = outcome.job_J, -np.inf
    for start_s in np.unique(track["start_s"][~np.isnan(track["start_s"])]):
        runs = (track["start_s"] <= start_s) & (track["finish_s"] > start_s)
        busy_S = np.bincount(track["site"][runs], track["gpus"][runs], minlength=len(environment.sites))
        worst = max(worst, float((busy_S - curve_SH[:, int(start_s // 3600)]).max()))
    return worst


def test_a_hard_curve_is_never_exceeded_an_advisory_one_may_be():
    world = day((20, 20), (10, 6), expected=(4, 4))
    for curves in ("hard", "advisory"):
        scheduler = planner(curves)
        environment = world.environment()
        outcome = run(environment, scheduler)
        curve_SH = scheduler.plan.curve_TD.T
        if curves == "hard":
            assert busy_beyond(environment, outcome, curve_SH) < 1e-6
            assert settle(outcome).over_cap_gpu_hours == 0.0
            assert (outcome.job_J["status"] == OVERDUE).sum() == 8
        else:
            assert settle(outcome).over_cap_gpu_hours == pytest.approx(8.0)
            assert (outcome.job_J["status"] == DONE).all()


def test_an_environments_own_curves_stand():
    environment = day((20, 20), (4, 4)).environment()
    caps_SH = np.full((2, environment.hours), 3.0)
    capped = replace(environment, caps=make_caps(caps_SH))
    outcome = run(capped, planner("hard"))
    assert busy_beyond(capped, outcome, caps_SH) <= 0.0
    assert outcome.count(DONE) == 6


def make_caps(caps_SH):
    from noonward.model.cluster.environment import GpuCaps

    return GpuCaps(gpus_SH=caps_SH, hard=True)


def test_receding_equals_day_ahead_when_nothing_new_is_learned():
    rng = np.random.default_rng(4)
    price = rng.uniform(10.0, 90.0, (2, 10)).tolist()
    world = day((9, 7), (3, 4, 2, 5, 3, 4), window_h=6, price=price, slack_s=3 * 3600.0)
    one, other = (run(world.environment(), planner(hourly=hourly)) for hourly in (False, True))
    assert starts(one) == starts(other)
    assert settle(one).utility_usd == pytest.approx(settle(other).utility_usd)


def test_receding_makes_way_for_what_came_unexpectedly():
    """Twice the expected load comes in hour 0 and takes all of the cheap hour: later jobs are sent elsewhere."""
    world = day((8, 8), (8, 4), expected=(4, 4))
    expected, receding = (run(world.environment(), planner(hourly=hourly)) for hourly in (False, True))
    assert starts(expected)[0, 1] == 8  # the machines; the others wait too long
    assert expected.count(OVERDUE) + starts(expected).get((0, 2), 0) == 4
    assert receding.count(DONE) == 12
    assert starts(receding)[0, 1] == 8
    assert sum(count for (site, _), count in starts(receding).items() if site == 1) == 4


def test_each_day_is_planned_at_its_start():
    price = [[100.0] * 12 + [10.0] * 24 + [100.0] * 12, [50.0] * 48]
    world = day((4, 4), [1] * 48, window_h=48, price=price, slack_s=0.0)
    scheduler = planner()
    placed = starts(run(world.environment(), scheduler))
    assert placed == {(int(not 12 <= hour < 36), hour): 1 for hour in range(48)}
    assert scheduler.first == 24


def test_the_plan_with_foresight_knows_its_jobs():
    world = day((6, 10), (4, 4), expected=(1, 1))
    outcome = run(world.environment(), PerfectPlan())
    assert starts(outcome)[0, 1] == 6
    assert outcome.count(DONE) == 8


def test_baselines_run_at_once_or_spread():
    world = day((10, 10), (6, 6))
    assert starts(run(world.environment(), Fractional())) == {(s, t): 3 for s in range(2) for t in range(2)}
    placed = starts(run(world.environment(), Fractional(spread=True)))  # of 6 jobs 1 or 2 at each of 4 places
    assert sum(placed.values()) == 12
    assert all(2 <= placed[s, 1] <= 4 and 1 <= placed[s, 0] <= 2 and 1 <= placed[s, 2] <= 2 for s in range(2))


def test_cheapest_now_fills_the_cheapest_site_first():
    world = day((4, 10), (6, 0), price=[[10.0], [50.0]])
    assert starts(run(world.environment(), make_scheduler("cheapest-now"))) == {(0, 0): 4, (1, 0): 2}
    full = day((2, 1), (5, 0), price=[[10.0], [50.0]])
    placed = starts(run(full.environment(), make_scheduler("cheapest-now")))
    assert placed[0, 0] == 2
    assert placed[1, 0] == 1


def test_without_samples_or_with_too_much_load():
    with pytest.raises(ScenarioError, match="of at least 1"):
        FollowPlan(samples=0)
    crowd = day((2, 2), (9, 9), slack_s=3600.0)
    scheduler = planner("hard")
    outcome = run(crowd.environment(), scheduler)
    assert not scheduler.whole
    assert outcome.count(DONE) == 12  # all GPUs in hours 0 to 2: less load was expected, not less capacity used


def test_workload_counts_gpu_hours_where_they_may_run():
    world = plain((2, 8), jobs_of((2, 1), slack_s=7000.0, gpus=2), protocol="on-arrival", price=[[1.0], [1.0]])
    found = Workload.of(Brief.of(world.environment(), Needs()), [world.table()])
    assert found.load_NHC[0, :2, 0].tolist() == [4.0, 2.0]
    assert found.classes[0].flexibility_h == 1
    assert found.watts_S.tolist() == [100.0, 100.0]
    assert found.days(1, 30).shape == (1, 30, 1)
    assert found.days(1, 30).sum() == 2.0


def test_long_jobs_are_planned_for_all_their_hours():
    """Two GPUs and four jobs of two hours: hours 0 and 1 hold two of them, so the others must wait for hour 2."""
    world = day((2, 1), (4, 0), price=[[10.0], [90.0]], work=7200.0, slack_s=7200.0, window_h=2)
    scheduler = planner("hard")
    outcome = run(world.environment(), scheduler)
    assert starts(outcome) == {(0, 0): 2, (0, 2): 2}
    assert [one.run_hours for one in scheduler.workload.classes] == [2]
    assert scheduler.workload.load_NHC[0, :2, 0].tolist() == [4.0, 0.0]
    np.testing.assert_allclose(scheduler.plan.curve_TD[:4, 0], 2.0, atol=1e-6)


def test_a_class_of_mixed_run_times_is_planned_in_parts():
    """Runs of 1, 1.5 and 5 h with 2, 0 and 3 h of slack: parts of 1, 2 and 6 h with 2, 0 and 2 h."""
    rows = [
        {"arrival_s": 0.0, "work": 3600.0 * run, "slack_s": 3600.0 * slack, "gpus": gpus}
        for run, slack, gpus in ((1.0, 2.0, 1), (1.5, 0.0, 2), (5.0, 3.0, 3))
    ]
    world = plain((8,), rows, protocol="on-arrival", price=[[1.0]])
    found = Workload.of(Brief.of(world.environment(), Needs()), [world.table()])
    assert [(one.run_hours, one.flexibility_h) for one in found.classes] == [(1, 2), (2, 0), (6, 2)]
    assert found.fleet_class_C.tolist() == [0, 0, 0]
    assert found.load_NHC[0, 0].tolist() == [1.0, 3.0 / 2, 15.0 / 6]
    where = found.planned_as(
        np.zeros(5, int), np.array([0.2, 1.2, 3.0, 30.0, 1.0]), np.array([9.0, 9.0, 1.0, 2.0, 0.5])
    )
    assert where.tolist() == [0, 1, 2, 2, 0]
    again = Workload.of_state(found.state())
    assert again.fleet_class_C.tolist() == [0, 0, 0]


def test_jobs_of_mixed_run_times_follow_the_shares_of_their_part():
    """One GPU; hour 1 is cheap. The run of 2 h must start at once, so the run of 1 h, which may wait 2 h, goes last."""
    rows = [
        {"arrival_s": 0.0, "work": 7200.0, "slack_s": 0.0},
        {"arrival_s": 0.0, "work": 3600.0, "slack_s": 7200.0},
    ]
    world = plain((1,), rows, protocol="on-arrival", price=[[50.0, 10.0, 20.0, 90.0]], window_h=2)
    table = plain((1,), rows, protocol="on-arrival", price=[[50.0, 10.0, 20.0, 90.0]], window_h=2).rows
    world.another = lambda rng: table
    scheduler = planner("hard")
    outcome = run(world.environment(), scheduler)
    assert [one.run_hours for one in scheduler.workload.classes] == [1, 2]
    assert outcome.job_J["start_s"].tolist() == [0.0, 7200.0]


CLOCKED = ("dp", "dp-max-clock")
"""Policies that need a clock which the random sites do not offer; their sites are those of `uniform`."""


@pytest.mark.parametrize(
    "policy",
    [
        policy.name
        for policy in policies(trained=False, kind="cluster")
        if policy.name not in CLOCKED and small_worlds.serves(policy)
    ],
)
def test_no_policy_leaves_a_class_range(policy):
    scheduler = make_scheduler(policy)
    ran = 0
    for seed in range(12):
        world = small_worlds.draw(seed, scheduler.needs.protocols[0], signals=True, history_h=24)
        if not any(site.barred for site in world.sites):
            continue
        scheduler = make_scheduler(policy)
        if isinstance(scheduler, FollowPlan):
            scheduler.samples = min(scheduler.samples, 6)  # the ranges are the same in a plan from few days
        track = run(world.environment(), scheduler).job_J
        for record, row in zip(track, world.rows, strict=True):
            if record["gpus"] and not np.isnan(record["start_s"]):
                assert row["class_"] not in world.sites[record["site"]].barred
                ran += 1
    assert ran > (15 if not policy.startswith("local") else 5)


def test_the_bound_keeps_to_ranges():
    """One job, barred from the cheap site: the bound is what it earns at the dear one, not at the cheap one."""
    world = day((4, 4), (1,), price=[[10.0], [80.0]], slack_s=0.0)
    free = utility_bound(world.environment()).upper_usd
    world.sites[0] = replace(world.sites[0], barred=frozenset({0}))
    environment = world.environment()
    earned = settle(run(environment, make_scheduler("cheapest-now"))).utility_usd
    assert utility_bound(environment).upper_usd == pytest.approx(earned, abs=1e-6)
    assert free - earned == pytest.approx(0.1 * 0.070, abs=1e-6)


def test_policies_of_the_packaged_scenario_are_ordered():
    """On one day: plan with foresight, plan, greedy, spread; nobody beats the bound."""
    scenario = load_scenario("load-shaping")
    environment = build_environment(scenario)
    names = ("plan-perfect", "plan-advisory", "cheapest-now", "spread-evenly")
    ledgers = [settle(run(environment, make_scheduler(name))) for name in names]
    earned = [ledger.utility_usd for ledger in ledgers]
    assert earned == sorted(earned, reverse=True)
    assert all(ledger.done == len(environment.jobs) for ledger in ledgers)


def test_jobs_without_a_deadline_may_be_put_off_by_a_day():
    environment = build_environment(load_scenario("dvfs-mixed", ["window_h=2"]))
    assert np.isinf(environment.jobs.slack_s_J).all()
    workload = Workload.of(Brief.of(environment, Needs()), [environment.jobs])
    assert [each.flexibility_h for each in workload.classes] == [24] * len(workload.classes)


def test_the_sampled_weeks_of_a_service_repeat():
    environment = day((6, 10), (4, 4)).environment()
    brief = replace(Brief.of(environment, Needs(samples=True)), window_s=np.inf)
    workload = Workload.of(brief, [environment.sample_jobs(np.random.default_rng(0))])
    assert workload.load_NHC.shape[1] == 168
    assert workload.days(0, 3)[0, :, 0].tolist() == [4.0, 4.0, 0.0]
    assert workload.days(5 * 168 - 1, 3)[0, :, 0].tolist() == [0.0, 4.0, 4.0]
    again = Workload.of_state(workload.state())
    assert again.days(5 * 168 - 1, 3).tolist() == workload.days(5 * 168 - 1, 3).tolist()
    assert not Workload.of(Brief.of(environment, Needs(samples=True)), [environment.jobs]).repeats
