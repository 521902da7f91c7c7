"""Many runs side by side: each row is, to the bit, a run of its own; rewards sum to the ledger's utility."""

import random
from dataclasses import replace

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.observation import Observation
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.ledger.ledger import settle, settle_run
from noonward.ledger.utility import utility_usd
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream
from reference import small_worlds

PROTOCOLS = ("each-slot", "on-arrival")
SHOWN = ("global_BG", "own_BNO", "mask_BNA", "asked_BN", "reward_B", "reward_BN", "elapsed_s_B", "now_s_B", "done_B")


def draw(seed, protocol, *, sites=None, **options):
    """A small random environment with signals; with `sites`, the first one of so many sites and ingress points."""
    while True:
        world = small_worlds.draw(seed, protocol, signals=True, history_h=24, **options)
        if sites is None or (len(world.sites) == sites and world.homes == list(range(sites))):
            return world.environment()
        seed += 1000


def alike(count, protocol):
    """Environments of one fleet's names with different jobs, signals and lengths."""
    names = [draw(seed, protocol, sites=2, drained=True) for seed in range(count)]
    assert len({len(each.jobs) for each in names}) > 1
    return names


def observation(protocol, kind="extended", forecast_h=3):
    signals = protocol == "on-arrival" and kind == "extended"
    return Observation(kind=kind, protocol=protocol, forecast_h=forecast_h, gpus_max=13, signals=signals)


def batch(environments, protocol, *, kind="extended", reward="utility"):
    forecast_h = 3 if kind == "extended" else 0
    return BatchEngine(
        environments,
        observation(protocol, kind, forecast_h),
        seeds=range(len(environments)),
        reward=reward,
        forecast=Forecast("noisy"),
    )


def pick(engine, row, rng):
    """A random feasible choice per agent of a row."""
    out = np.zeros(engine.agents, np.int64)
    for n in range(engine.agents):
        if engine.asked_BN[row, n]:
            out[n] = rng.choice(np.flatnonzero(engine.mask_BNA[row, n]).tolist())
    return out


def step(engine, rngs):
    engine.step(np.stack([pick(engine, row, rng) for row, rng in enumerate(rngs)]))


def finish(engine, seeds):
    """Runs all rows to their ends under random choices; returns what was shown after each step, and the rewards."""
    rngs = [random.Random(seed) for seed in seeds]
    trace = [[shown(engine, row)] for row in range(engine.rows)]
    rewards = [[float(engine.reward_B[row])] for row in range(engine.rows)]
    while not engine.done_B.all():
        live = np.flatnonzero(~engine.done_B)
        step(engine, rngs)
        for row in live:
            trace[row].append(shown(engine, row))
            rewards[row].append(float(engine.reward_B[row]))
    return trace, rewards


def shown(engine, row):
    return [getattr(engine, name)[row].tobytes() for name in SHOWN]


def state(outcome):
    return outcome.tobytes()


class Repeats(Scheduler):
    """Answers as a row's scheduler does; for a single engine beside a batch of one."""

    needs = Needs(forecast=Forecast("noisy"), lookahead_h=4)

    def decide(self, view, answers):
        raise NotImplementedError


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(12))
def test_a_batch_of_one_is_the_cluster_engine(protocol, seed):
    environment = draw(seed, protocol)
    many = batch([environment], protocol)
    one = ClusterEngine(environment, Repeats(), seed=0, rewards=True)
    rng = random.Random(seed)
    while one.step():
        assert one.reward_usd == many.reward_B[0]
        assert one.view.now_s == many.now_s_B[0]
        for name in one.view._fields:
            assert getattr(one.view, name).tobytes() == getattr(many.row_view(0), name).tobytes()
        choice_N = pick(many, 0, rng)
        for n, choice in enumerate(choice_N.tolist()):
            if protocol == "each-slot":
                one.answers.answer_N["choice"][n] = choice
            else:
                one.answers.send(0, choice // 13, gpus=choice % 13 + 1)
        many.step(choice_N[None])
    assert many.done_B[0]
    assert one.reward_usd == many.reward_B[0]
    assert state(one.outcome()) == state(many.outcome(0))


@pytest.mark.parametrize(("protocol", "name"), [("each-slot", "local-fcfs"), ("on-arrival", "most-free(gpus=1)")])
def test_any_scheduler_can_be_asked_about_a_row(protocol, name):
    environment = draw(3, protocol)
    many, scheduler = batch([environment], protocol, kind="paper"), make_scheduler(name)
    one = ClusterEngine(environment, make_scheduler(name), seed=0, rewards=True)
    scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
    one.scheduler.reset(Brief.of(environment, scheduler.needs), stream(0, "policy"))
    while one.step():
        one.scheduler.decide(one.view, one.answers)
        scheduler.decide(many.row_view(0), many.row_answers(0))
        many.step(many.choices_of(0)[None])
    assert state(one.outcome()) == state(many.outcome(0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_does_the_same_whatever_the_others_do(protocol):
    environments = alike(3, protocol)
    together, rewards = finish(batch(environments, protocol), range(3))
    for row, environment in enumerate(environments):
        alone = BatchEngine(
            [environment], observation(protocol), seeds=[row], forecast=Forecast("noisy"), reward="utility"
        )
        trace, earned = finish(alone, [row])
        assert trace[0] == together[row]
        assert earned[0] == rewards[row]
    others, _ = finish(batch(environments, protocol), [0, 7, 8])
    assert others[0] == together[0]
    assert others[1:] != together[1:]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("reward", ["utility", "at-start", "own"])
@pytest.mark.parametrize("seed", range(6))
def test_rewards_sum_to_the_ledgers_utility(protocol, reward, seed):
    environment = draw(seed, protocol)
    many = batch([environment], protocol, kind="paper", reward=reward)
    _, rewards = finish(many, [seed])
    ledger = settle(many.outcome(0))
    scale = abs(ledger.revenue_usd) + abs(ledger.fixed_usd) + 1.0
    assert sum(rewards[0]) == pytest.approx(ledger.utility_usd, abs=1e-9 * scale)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(12))
def test_own_rewards_are_the_jobs_values_by_agent_and_by_job(protocol, seed):
    environment = draw(seed, protocol)
    many = batch([environment], protocol, kind="paper", reward="own")
    earned_N, rng = many.reward_BN[0].copy(), random.Random(seed)
    while not many.done_B[0]:
        step(many, [rng])
        earned_N += many.reward_BN[0]
    outcome = many.outcome(0)
    settled = settle_run(outcome)
    value_J = value_usd_J(environment, settled, outcome.job_J["start_s"])
    scale = np.abs(value_J).sum() + 1.0
    np.testing.assert_allclose(many.job_usd(0), value_J, atol=1e-9 * scale)
    idle_usd = utility_usd(0.0, environment.economics.carbon_usd_per_t, 0.0, settled.fixed_A[1], settled.fixed_A[2])
    assert earned_N.sum() + idle_usd == pytest.approx(settle(outcome).utility_usd, abs=1e-9 * scale)


def value_usd_J(environment, settled, start_s_J):
    """What the ledger says every job earned over leaving its GPUs free, its journeys and lateness included."""
    jobs = environment.jobs
    late_s_J = start_s_J - (jobs.arrival_s_J + jobs.slack_s_J)
    late_h_J = jobs.gpus_min_J * np.where(late_s_J > 0, late_s_J, 0.0) / 3600.0
    net_JA = settled.power.job_JA - settled.power.displaced_JA
    journey_JA = settled.move_JA + settled.result_JA
    economics = environment.economics
    return np.array(
        [
            utility_usd(
                economics.revenue_usd_per_gpu_hour,
                economics.carbon_usd_per_t,
                settled.power.gpu_s_J[j] / 3600.0,
                net_JA[j, 1],
                net_JA[j, 2] + journey_JA[j, 2],
                journey_JA[j, 1],
                environment.late_usd_per_gpu_hour * late_h_J[j],
            )
            for j in range(len(net_JA))
        ]
    )


def test_an_agent_pays_for_the_journeys_it_begins_and_earns_what_it_starts():
    network = {"usd_per_gb": ((0.0, 0.25), (0.25, 0.0))}
    jobs = [{"work": 3600.0, "move_gb": 1.0, "slack_s": 1200.0}]
    world = small_worlds.plain([2, 2], jobs, price=[[100.0], [50.0]], network=network)
    many = BatchEngine([world.environment()], Observation(kind="paper"), seeds=[0], reward="own")
    many.step(np.array([[2, 0]]))
    assert many.reward_BN[0] == pytest.approx([-0.25, 0.0])
    many.step(np.array([[0, 2]]))
    assert many.done_B[0]
    assert many.reward_BN[0] == pytest.approx([0.0, 0.995])
    assert many.job_usd(0) == pytest.approx([0.745])
    assert many.reward_B[0] == pytest.approx(0.995)


def test_at_start_credits_a_job_when_it_starts():
    world = small_worlds.plain([2], [{"work": 3600.0, "slack_s": 1200.0}], price=[[100.0]], drained=True, window_h=3)
    environment = world.environment()
    found = {}
    for reward in ("utility", "at-start"):
        many = BatchEngine([environment], Observation(kind="paper"), seeds=[0], reward=reward)
        found[reward] = [float(many.reward_B[0])]
        for choice in (0, 1):
            many.step(np.array([[choice]]))
            found[reward].append(float(many.reward_B[0]))
        assert many.done_B[0]
    # One GPU-hour earns 1 USD and burns 0.1 kWh at 100 USD/MWh; free GPUs draw nothing.
    assert found["at-start"] == pytest.approx([0.0, 0.0, 0.99])
    assert found["utility"] == pytest.approx([0.0, 0.0, 0.99])
    many = BatchEngine([two_jobs()], Observation(kind="paper"), seeds=[0], reward="at-start")
    many.step(np.array([[1]]))
    early = float(many.reward_B[0])
    assert early == pytest.approx(0.99)  # asked about the second job while the first has an hour to run


def two_jobs():
    jobs = [{"work": 3600.0}, {"work": 3600.0, "arrival_s": 60.0}]
    return small_worlds.plain([2], jobs, price=[[100.0]]).environment()


def test_without_signals_there_is_no_reward():
    environment = build_environment(load_scenario("dvfs-training", ["window_h=1"]))
    many = BatchEngine([environment], Observation(kind="extended", protocol="on-arrival"), seeds=[0])
    rewards = []
    while not many.done_B[0]:
        many.step(many.mask_BNA.argmax(2))
        rewards.append(many.reward_B[0])
    assert np.isnan(rewards).all()
    assert len(rewards) > 100


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_that_has_ended_rests_until_it_is_reset(protocol):
    environments = alike(3, protocol)
    many = batch(environments, protocol)
    rngs = [random.Random(row) for row in range(3)]
    while not many.done_B.any():
        step(many, rngs)
    row = int(many.done_B.argmax())
    assert not many.done_B.all()
    assert not many.asked_BN[row].any()
    assert not many.mask_BNA[row].any()
    assert not many.global_BG[row].any()
    ended = state(many.outcome(row))
    step(many, rngs)
    assert state(many.outcome(row)) == ended
    assert (many.done_B[row], many.reward_B[row], many.elapsed_s_B[row]) == (True, 0.0, 0.0)
    before = [shown(many, other) for other in range(3) if other != row]
    many.reset(row, environments[(row + 1) % 3], 5)
    assert [shown(many, other) for other in range(3) if other != row] == before
    fresh = BatchEngine([environments[(row + 1) % 3]], observation(protocol), seeds=[5], forecast=Forecast("noisy"))
    assert shown(many, row) == shown(fresh, 0)
    assert (many.seeds[row], many.done_B[row]) == (5, False)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_saved_state_goes_on_bit_for_bit(protocol):
    environments = alike(3, protocol)
    many = batch(environments, protocol)
    rngs = [random.Random(row) for row in range(3)]
    for _ in range(5):
        step(many, rngs)
    saved = many.state()
    whole, rewards = finish(many, range(3))
    again = batch(environments, protocol)
    again.load_state(saved)
    resumed, same = finish(again, range(3))
    assert (resumed, same) == (whole, rewards)
    assert [state(again.outcome(row)) for row in range(3)] == [state(many.outcome(row)) for row in range(3)]


def test_a_state_of_another_batch_is_refused():
    environments = alike(3, "each-slot")
    saved = batch(environments, "each-slot").state()
    with pytest.raises(ScenarioError, match="state is of another batch"):
        batch(environments[:2], "each-slot").load_state(saved)
    other = BatchEngine(environments, observation("each-slot"), seeds=[9, 1, 2], forecast=Forecast("noisy"))
    with pytest.raises(ScenarioError, match="row 0 of the state ran another environment or forecast"):
        other.load_state(saved)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("choice", [-1, 999])
def test_an_infeasible_choice_is_named_and_changes_nothing(protocol, choice):
    many = batch(alike(2, protocol), protocol)
    before = [shown(many, row) for row in range(2)]
    choices = np.stack([pick(many, row, random.Random(1)) for row in range(2)])
    agent = int(many.asked_BN[1].argmax())
    choices[1, agent] = choice
    with pytest.raises(InfeasibleActionError, match=rf"row 1 .*agent {agent} .*choice {choice} \(no such choice\)"):
        many.step(choices)
    assert [shown(many, row) for row in range(2)] == before


def test_a_masked_choice_is_infeasible():
    environment = small_worlds.plain([1, 1], [{"gpus": 1, "slack_s": 0.0}], price=[[1.0], [1.0]]).environment()
    many = BatchEngine([environment], Observation(kind="paper"), seeds=[0])
    assert many.mask_BNA[0].tolist() == [[1, 1, 0], [0, 0, 0]]
    message = r"agent 0 \(site site0\), job 0 at 0 s: choice 2 \(site1\); feasible now: 0 \(hold\), 1 \(site0\)"
    with pytest.raises(InfeasibleActionError, match=message):
        many.step(np.array([[2, 0]]))
    many.step(np.array([[1, 2]]))  # site 1 is not asked: its choice is not read


def test_on_arrival_the_mask_wants_free_gpus_and_opens_where_there_are_none():
    jobs = [{"gpus_min": 1, "gpus_max": 3, "gpus": 1, "work": 7200.0, "arrival_s": 10.0 * j} for j in range(3)]
    for job in jobs:
        del job["gpus"], job["gpus_min"], job["gpus_max"]
    world = small_worlds.plain([2, 4], jobs, protocol="on-arrival", price=[[1.0], [1.0]])
    for row in world.rows:
        row["gpus_max"] = 3
    many = BatchEngine([world.environment()], Observation(kind="paper", protocol="on-arrival", gpus_max=4), seeds=[0])
    assert many.mask_BNA[0, 0].tolist() == [1, 1, 0, 0, 1, 1, 1, 0]
    many.step(np.array([[4 + 3 - 1]]))  # three GPUs at site 1, one stays free there
    assert many.mask_BNA[0, 0].tolist() == [1, 1, 0, 0, 1, 0, 0, 0]
    many.step(np.array([[1]]))  # both GPUs of site 0
    assert many.mask_BNA[0, 0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0]


def test_clocks_are_choices_where_they_are_shown_as_such():
    jobs = [{"work": 7200.0, "arrival_s": 10.0 * j} for j in range(3)]
    world = small_worlds.plain([2, 2], jobs, protocol="on-arrival", price=[[1.0], [1.0]], clocks=(0.5, 0.75, 1.0))
    world.sites[1] = replace(world.sites[1], clocks=(0.5, 1.0))
    for row in world.rows:
        row["gpus_max"] = 2
    environment = world.environment()
    many = BatchEngine([environment], Observation(kind="paper", protocol="on-arrival", gpus_max=3, levels=3), seeds=[0])
    assert many.mask_BNA[0, 0].reshape(2, 3, 3).tolist() == [
        [[1, 1, 1], [1, 1, 1], [0, 0, 0]],
        [[1, 1, 0], [1, 1, 0], [0, 0, 0]],
    ]
    oracle = environment.fleet.tables(2).oracle_level_SCG[1, 0, 2]
    many.row_answers(0).send(0, 1, gpus=2)
    assert many.choices_of(0).tolist() == [9 + 3 + oracle]
    many.row_answers(0).send(0, 0)  # all the job can use
    assert many.choices_of(0)[0] // 3 == 1
    for choice, answer in ((9 + 3 + 1, (2, 2, 1)), (2, (1, 1, 2))):
        many.answer(0, np.array([choice]))
        assert tuple(many.row_answers(0).answer_N[0])[:3] == answer
        assert many.choices_of(0).tolist() == [choice]
        many.step(np.array([[choice]]))
    with pytest.raises(InfeasibleActionError, match=r"site1 with 1 GPU at clock level 0\); feasible now: "):
        many.step(np.array([[9]]))
    many.step(np.array([[0]]))
    outcome = many.outcome(0)
    assert outcome.job_J["gpus"].tolist() == [2, 1, 1]
    assert outcome.job_J["level"].tolist() == [1, 2, 0]


def test_on_arrival_a_full_fleet_takes_every_gang():
    world = small_worlds.plain([2], [{"work": 7200.0}, {"arrival_s": 5.0}], protocol="on-arrival", price=[[1.0]])
    for row in world.rows:
        row["gpus_max"] = 2
    many = BatchEngine([world.environment()], Observation(kind="paper", protocol="on-arrival", gpus_max=2), seeds=[0])
    many.step(np.array([[1]]))
    assert many.row_view(0).free_S.tolist() == [0]
    assert many.mask_BNA[0, 0].tolist() == [1, 1]


def test_environments_that_do_not_fit_are_refused():
    two, three = draw(0, "each-slot", sites=2), draw(0, "each-slot", sites=3)
    with pytest.raises(ScenarioError, match=r"row 1 runs scenario 'small' .* all rows need"):
        BatchEngine([two, three], Observation(kind="paper"), seeds=[0, 1])
    with pytest.raises(ScenarioError, match=r"use Observation\(protocol='each-slot'\)"):
        BatchEngine([two], Observation(kind="paper", protocol="on-arrival"), seeds=[0])
    with pytest.raises(ScenarioError, match="no forecast was given"):
        BatchEngine([two], Observation(kind="extended", forecast_h=2), seeds=[0])
    with pytest.raises(ValueError, match="2 seeds"):
        BatchEngine([two], Observation(kind="paper"), seeds=[0, 1])
    with pytest.raises(ValueError, match="did you mean 'utility'"):
        BatchEngine([two], Observation(kind="paper"), seeds=[0], reward="utilty")
    with pytest.raises(ValueError, match=r"give integers of shape \(rows, agents\) = \(1, 2\)"):
        BatchEngine([two], Observation(kind="paper"), seeds=[0]).step(np.zeros((1, 2)))
