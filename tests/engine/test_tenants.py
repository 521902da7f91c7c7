"""Tenants in the engine: quotas and turns against the slow oracles, worked examples of Kueue's pages, and theory."""

from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_settings
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError
from noonward.ledger.record import environment_digest
from noonward.ledger.segments import DONE
from noonward.model.cluster.tenant import Tenants
from noonward.schedule.policies import make_scheduler
from reference.small_worlds import plain
from reference.tenants import Tenant


def crowd(tenants, jobs, *, gpus, protocol="each-slot", half_life_s=None, **options):
    """A world whose tenants submit `jobs`: (tenant, how many, keywords of a job) at second 0, in this order."""
    rows = [{"tenant": t, "slack_s": 36000.0, **row} for t, count, row in jobs for _ in range(count)]
    world = plain(gpus, rows, protocol=protocol, **options)
    world.tenants, world.half_life_s = tenants, half_life_s
    return world


def held_T(world, at_s=0.0, policy=None):
    """GPUs that each tenant holds just after a time."""
    policy = policy or {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}[world.protocol]
    outcome = run(world.environment(), make_scheduler(policy))
    track, tenant_J = outcome.job_J, outcome.environment.tenant_J
    runs_J = (track["start_s"] <= at_s) & (track["finish_s"] > at_s)
    return [int(track["gpus"][runs_J & (tenant_J == t)].sum()) for t in range(len(world.tenants))]


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
class TestKueue:
    """Examples of Kueue's page on cluster queues: team-a is guaranteed 9, team-b 12, cohort team-ab."""

    @pytest.mark.parametrize(
        ("limits_a", "limits_b", "expected"),
        [
            ({}, {}, 21),  # 12 + 9: all that team-b does not use
            ({"borrow": 1}, {}, 10),  # 9 + 1: borrowing limit
            ({}, {"lend": 1}, 10),  # 9 + 1: lending limit of the other
            ({"borrow": 0}, {}, 9),
            ({"borrow": 5}, {"lend": 2}, 11),
        ],
    )
    def test_a_team_alone_may_hold(self, protocol, limits_a, limits_b, expected):
        teams = [Tenant(9, "team-ab", **limits_a), Tenant(12, "team-ab", **limits_b)]
        assert held_T(crowd(teams, [(0, 30, {})], gpus=[30], protocol=protocol)) == [expected, 0]

    def test_a_team_without_a_cohort_neither_borrows_nor_lends(self, protocol):
        assert held_T(crowd([Tenant(9), Tenant(12)], [(0, 30, {})], gpus=[30], protocol=protocol)) == [9, 0]

    def test_a_guarantee_comes_before_a_loan(self, protocol):
        teams = [Tenant(9, "team-ab"), Tenant(12, "team-ab")]
        jobs = [(0, 30, {"arrival_s": 1.0}), (1, 30, {"arrival_s": 2.0})]
        world = crowd(teams, jobs, gpus=[21], protocol=protocol)
        if protocol == "on-arrival":  # there the first 21 start before team-b has arrived
            world = crowd(teams, [(0, 1, {"gpus": 21, "work": 60.0}), *jobs], gpus=[21], protocol=protocol)
        assert held_T(world, at_s=60.0) == [9, 12]

    def test_a_loan_is_given_back_when_its_job_ends(self, protocol):
        teams = [Tenant(9, "team-ab"), Tenant(12, "team-ab")]
        jobs = [(0, 21, {"work": 600.0}), (0, 30, {"work": 600.0}), (1, 30, {"arrival_s": 120.0})]
        world = crowd(teams, jobs, gpus=[21], protocol=protocol)
        assert held_T(world, at_s=300.0) == [21, 0]
        assert held_T(world, at_s=600.0) == [9, 12]

    def test_what_is_lent_to_others_is_missing_to_its_owner_but_for_what_it_keeps(self, protocol):
        teams = [Tenant(0, "team-ab"), Tenant(12, "team-ab", lend=4)]
        jobs = [(0, 20, {"work": 1200.0}), (1, 20, {"arrival_s": 60.0})]
        assert held_T(crowd(teams, jobs, gpus=[30], protocol=protocol), at_s=120.0) == [4, 8]

    @pytest.mark.parametrize(
        ("weights", "expected"), [((1.0, 1.0), [6, 6]), ((2.0, 1.0), [8, 4]), ((1.0, 3.0), [3, 9])]
    )
    def test_borrowers_share_by_weight(self, protocol, weights, expected):
        # A pool of 12 that nobody uses himself: who holds least over its weight comes first.
        teams = [Tenant(0, "all", weight=weights[0]), Tenant(0, "all", weight=weights[1]), Tenant(12, "all")]
        first = [(2, 1, {"gpus": 12, "work": 60.0})]
        jobs = [*first, (0, 20, {"arrival_s": 1.0}), (1, 20, {"arrival_s": 2.0})]
        world = crowd(teams, jobs, gpus=[12], protocol=protocol, half_life_s=0.0)
        assert held_T(world, at_s=60.0) == [*expected, 0]

    @pytest.mark.parametrize(
        ("pool", "weights", "expected"), [(300, (1, 1), [150, 150]), (150, (1, 1, 3), [30, 30, 90])]
    )
    def test_a_backlog_of_every_queue_shares_the_pool_as_in_its_story_of_fair_sharing(
        self, protocol, pool, weights, expected
    ):
        # KEP-1714, story 3: 300 GPUs for two cohorts of equal weight, 150 each; 150 for three queues, the third of
        # three times the weight of the others. Cohorts are flat here, so that either level is a world of its own.
        teams = [*(Tenant(0, "cs", weight=float(weight)) for weight in weights), Tenant(pool, "cs")]
        first = [(len(weights), 1, {"gpus": pool, "work": 60.0})]
        jobs = [*first, *((t, pool, {"arrival_s": 1.0 + t}) for t in range(len(weights)))]
        world = crowd(teams, jobs, gpus=[pool], protocol=protocol, half_life_s=0.0)
        assert held_T(world, at_s=60.0) == [*expected, 0]

    def test_use_decays_as_its_samples_do(self, protocol):
        # KEP-4136: u <- (1 - A) u + A (use now), A = 1 - 0.5^(sampling / half-life), here every 5 minutes and 168 h.
        half_life_s, sample_s = 168 * 3600.0, 300.0
        a = 1 - 0.5 ** (sample_s / half_life_s)
        usage = 0.0
        for used in [8.0] * 12 + [3.0] * 12 + [0.0] * 12:
            usage = (1 - a) * usage + a * used
        jobs = [(0, 1, {"gpus": 5, "work": 3600.0}), (0, 1, {"gpus": 3, "work": 7200.0})]
        jobs += [(t, 1, {"arrival_s": 3 * 3600.0 - 30.0, "work": 60.0}) for t in (0, 1)]
        world = crowd([Tenant(8), Tenant(8)], jobs, gpus=[8], protocol=protocol, half_life_s=half_life_s)
        policy = make_scheduler({"each-slot": "local-fcfs"}.get(protocol, "dp-max-clock"))
        engine = ClusterEngine(world.environment(), policy)
        tenant = engine.world.tenant_T[:1]
        while tenant["average_s"][0] < 3 * 3600.0 - 30.0 and engine.step():
            for asker, _ in engine.view.asked():
                engine.answers.send(asker, 0)
        since_s = tenant["average_s"][0] - 3 * 3600.0
        assert abs(since_s) <= 60.0, "it is read when its next job starts"
        assert tenant["average"][0] == pytest.approx(usage * 0.5 ** (since_s / half_life_s), rel=1e-12)


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_past_use_counts_for_its_half_life(protocol):
    # Tenant 0 held the GPU for an hour; a day later both want it again: with a long memory tenant 1 comes first.
    jobs = [(0, 1, {"work": 3600.0}), (1, 1, {"arrival_s": 7200.0, "work": 60.0})]
    jobs += [(0, 1, {"arrival_s": 7201.0, "work": 120.0}), (1, 1, {"arrival_s": 7202.0, "work": 120.0})]
    first = []
    for half_life_s in (0.0, 7 * 86400.0):
        world = crowd([Tenant(1), Tenant(1)], jobs, gpus=[1], protocol=protocol, half_life_s=half_life_s)
        start_s_J = run(
            world.environment(), make_scheduler({"each-slot": "local-fcfs"}.get(protocol, "dp-max-clock"))
        ).job_J["start_s"]
        first.append(int(start_s_J[2:].argmin()))
    assert first == [0, 1]


def test_sites_asked_in_one_step_never_exceed_a_quota():
    # Four sites could start a job each at once; two GPUs are allowed.
    jobs = [(0, 1, {"origin": s, "gpus": 2}) for s in range(4)]
    engine = ClusterEngine(crowd([Tenant(4)], jobs, gpus=[2] * 4).environment(), make_scheduler("local-fcfs"))
    engine.step()
    asked = []
    while engine.view.now_s == 0.0:
        asked.append(engine.view.asked_N.tolist())
        for site, _ in engine.view.asked():
            if engine.view.allowed(site, site):
                engine.answers.send(site, site)
        engine.step()
    assert sum(engine.view.job_J["serial"] >= 0) == 4
    assert engine.world.tenant_T["used"].tolist() == [4]
    assert asked == [[0, 1, -1, -1], [-1, -1, 2, 3]]


@pytest.mark.parametrize("by", ["a cohort", "jobs"])
def test_two_priorities_wait_as_cobham_says(by):
    # M/M/c with two classes, not preempted (Cobham 1954; equal service rates): W_k = W_0 / ((1 - s_{k-1}) (1 - s_k)),
    # W_0 = C(c, a) / (c mu), s_k the load of the classes up to k. A guarantee of all GPUs goes before one of none, and
    # so does a job of a higher priority.
    gpus, load, mean_s, count = 3, (0.3, 0.4), 100.0, 80_000
    means = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rate = sum(load) * gpus / mean_s
        arrival_s = np.cumsum(rng.exponential(1 / rate, count))
        tenant_J = (rng.random(count) > load[0] / sum(load)).astype(int)
        means.append(waits_s(gpus, arrival_s, rng.exponential(mean_s, count), tenant_J, by)[:, None])
    mean_T, spread_T = np.mean(means, axis=0)[:, 0], np.std(means, axis=0, ddof=1)[:, 0]
    wait_s = erlang_c(gpus, sum(load) * gpus) * mean_s / gpus
    expected = [wait_s / (1 - load[0]), wait_s / ((1 - load[0]) * (1 - sum(load)))]
    half_T = 5.41 * spread_T / np.sqrt(len(means))  # 99.9 % of Student's t with 7 degrees of freedom
    assert (half_T < 0.1 * np.array(expected)).all(), "the intervals are too wide to show anything"
    assert (np.abs(mean_T - expected) < half_T).all(), (mean_T, expected, half_T)


def erlang_c(servers, load):
    below, term = 0.0, 1.0
    for k in range(servers):
        below += term
        term *= load / (k + 1)
    above = term * servers / (servers - load)
    return above / (below + above)


def waits_s(gpus, arrival_s, work_s, tenant_J, by):
    """Mean wait of either class: the first is guaranteed all GPUs, or its jobs have a priority; the second none."""
    world = plain([gpus], [{}], protocol="on-arrival", drained=False)
    base = world.environment()
    hours = float(np.ceil(2 * arrival_s[-1] / 3600.0))
    jobs = base.jobs.build(arrival_s=arrival_s, work=work_s)
    tenants = Tenants.model_validate(
        {"of": {"first": {"gpus": gpus, "cohort": "all"}, "second": {"gpus": 0, "cohort": "all"}}}
    )
    ranks = {"tenants": tenants, "tenant_J": tenant_J}
    if by == "jobs":
        ranks = {"priorities": {}, "priority_J": np.where(tenant_J == 0, 10, -10)}
    environment = replace(base, jobs=jobs, **ranks, window_s=3600.0 * hours)
    wait_s_J = run(environment, make_scheduler("dp-max-clock")).job_J["start_s"] - arrival_s
    return np.array([wait_s_J[3000:][tenant_J[3000:] == t].mean() for t in range(2)])


STATED = (
    "tenants={of: {ours: {gpus: 4, cohort: all, borrow: 2}, theirs: {gpus: 6, cohort: all}, alone: {gpus: 4}}, "
    "half_life_h: 24}"
)


@pytest.mark.parametrize(
    "policy", ["random", "cheapest-feasible", "booked-persistence", "bid-price-persistence", "what-happened"]
)
def test_policies_keep_the_quotas(policy):
    environment = build_environment(load_scenario("tiny", [STATED]))
    if policy == "what-happened":
        jobs = replace(environment.jobs, recorded_start_s_J=environment.jobs.arrival_s_J + 60.0)
        environment = replace(environment, jobs=jobs)
    most_T = environment.tenants.most_gpus_T()
    assert most_T.tolist() == [6, 10, 4]
    track = run(environment, make_scheduler(policy)).job_J
    assert (track["status"] == DONE).sum() > 10
    for start_s in track["start_s"][np.isfinite(track["start_s"])]:
        runs_J = (track["start_s"] <= start_s) & (track["finish_s"] > start_s)
        for t, most in enumerate(most_T):
            assert track["gpus"][runs_J & (environment.tenant_J == t)].sum() <= most
        assert track["gpus"][runs_J & (environment.tenant_J < 2)].sum() <= 10


def test_quotas_change_a_run_and_its_digest_and_nothing_else_does():
    scenario = load_scenario("tiny")
    stated = with_settings(scenario, [STATED])
    assert scenario.digest != stated.digest
    without, within = build_environment(scenario), build_environment(stated)
    assert environment_digest(without) != environment_digest(within)
    np.testing.assert_array_equal(without.jobs.arrival_s_J, within.jobs.arrival_s_J)
    np.testing.assert_array_equal(without.jobs.work_J, within.jobs.work_J)
    free, held = (run(each, make_scheduler("local-fcfs")).job_J["start_s"] for each in (without, within))
    assert not np.array_equal(free, held, equal_nan=True)


def test_what_is_stated_of_tenants_is_checked():
    scenario = load_scenario("tiny")
    for said, why in (
        ("{of: {a: {gpus: 4, borrow: 2}}}", "give cohort"),
        ("{of: {a: {gpus: 4}}, default: b}", "unknown tenant 'b'"),
        ("{of: {a: {gpus: -1}}}", "greater than or equal to 0"),
        ("{of: {a: {gpus: 4, share: 0}}}", "sum to 0"),
    ):
        with pytest.raises(ScenarioError, match=why):
            with_settings(scenario, [f"tenants={said}"])
    with pytest.raises(ScenarioError, match=r"needs \d GPUs at once, but its tenant 'a' may hold at most 1"):
        build_environment(with_settings(scenario, ["tenants={of: {a: {gpus: 1}}}"]))


@pytest.mark.parametrize("protocol", ["each-slot", "on-arrival"])
def test_jobs_of_a_higher_priority_come_first_within_a_tenant_and_between_equal_ones(protocol):
    first = [(0, 1, {"gpus": 1, "work": 600.0})]
    jobs = [*first, *((t, 1, {"arrival_s": 1.0 + n, "work": 600.0}) for n, t in enumerate((0, 0, 1, 1)))]
    for tenants, priorities, expected in (
        ([Tenant(1), Tenant(1)], (0, 0, 5, 0, 5), [0, 3, 1, 4, 2]),  # 1 GPU; priority, then who joined first
        ([Tenant(1, "all"), Tenant(0, "all")], (0, 0, 5, 9, 9), [0, 2, 1, 3, 4]),  # borrowers come last all the same
    ):
        world = crowd(tenants, jobs, gpus=[1], protocol=protocol)
        for row, priority in zip(world.rows, priorities, strict=True):
            row["priority"] = priority
        world.ranked = True
        policy = {"each-slot": "local-fcfs", "on-arrival": "dp-max-clock"}[protocol]
        start_s_J = run(world.environment(), make_scheduler(policy)).job_J["start_s"]
        assert np.argsort(start_s_J).argsort().tolist() == expected, protocol


def test_a_job_has_the_priority_of_its_row_or_of_its_class(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        "arrival_s,origin,class,work,gpus_min,gpus_max,slack_s,priority\n"
        "0,north,fine-tuning,600,1,1,3600,7\n60,north,fine-tuning,600,1,1,3600,\n90,south,fine-tuning,600,1,1,3600,-3\n"
    )
    scenario = load_scenario("tiny", [f"jobs={{source: table, path: {path}}}"])
    assert build_environment(scenario).priority_J is None
    stated = with_settings(scenario, ["priorities={fine-tuning: 2}"])
    assert build_environment(stated).priority_J.tolist() == [7, 2, -3]
    drawn = load_scenario("tiny", ["priorities={}"])
    assert set(build_environment(drawn).priority_J.tolist()) == {0}
    assert environment_digest(build_environment(drawn)) != environment_digest(build_environment(load_scenario("tiny")))
    assert "priorities" not in load_scenario("tiny").model_dump_json()
    with pytest.raises(ScenarioError, match="priorities name the unknown class 'inference'"):
        with_settings(scenario, ["priorities={inference: 2}"])
    path.write_text(path.read_text().replace(",7", ",700"))
    with pytest.raises(DataError, match="whole number from -100 to 100"):
        build_environment(load_scenario("tiny", [f"jobs={{source: table, path: {path}}}", "priorities={}"]))


def test_a_table_names_the_tenants_of_its_jobs(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        "arrival_s,origin,class,work,gpus_min,gpus_max,slack_s,team,user\n"
        "0,north,fine-tuning,600,1,1,3600,blue,ada\n60,north,fine-tuning,600,1,1,3600,red,bob\n"
        "90,south,fine-tuning,600,1,1,3600,,bob\n"
    )
    scenario = load_scenario("tiny", [f"jobs={{source: table, path: {path}}}"])
    both = "blue: {gpus: 2}, red: {gpus: 2}"
    stated = with_settings(scenario, [f"tenants={{of: {{{both}}}, default: red}}"])
    assert build_environment(stated).tenant_J.tolist() == [0, 1, 1]
    by_user = with_settings(scenario, ["tenants={by: user, of: {bob: {gpus: 2}, ada: {gpus: 2}}}"])
    assert build_environment(by_user).tenant_J.tolist() == [1, 0, 0]
    with pytest.raises(ScenarioError, match=r"jobs.csv: a job names no team; known tenants: blue, red"):
        build_environment(with_settings(scenario, [f"tenants={{of: {{{both}}}}}"]))
