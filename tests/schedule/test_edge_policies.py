"""Policies of edge scenarios: what each decides, that it keeps its state, and what its settings change."""

import numpy as np
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.engine.edge.engine import EdgeEngine, run_edge_environment
from noonward.errors import ScenarioError
from noonward.ledger.edge import settle_edge
from noonward.model.edge.quality import quality
from noonward.model.edge.reward import launch_reward
from noonward.schedule.edge.carbon import CarbonAware
from noonward.schedule.edge.greedy import Greedy
from noonward.schedule.edge.metaheuristics import Genetic, genetic_search, harmony_search, rater
from noonward.schedule.edge.rules import PatientReuse
from noonward.schedule.edge.sequences import LENGTH, blank_servers, numbers_of, play_sequence
from noonward.schedule.policies import make_scheduler, policies
from noonward.seeding import stream

SMALL = ["tasks.count=10", "tasks.first=4"]

pytestmark = pytest.mark.usefixtures("few_sampled_tasks")


@pytest.fixture(scope="module")
def setting():
    return load_scenario("edge-inference-reference", SMALL)


def play(environment, name, restart=-1):
    """Answers and outcome of a run in which the scheduler is replaced by a restored one after some questions."""

    def begin(seed):
        made = make_scheduler(name, "edge")
        made.reset(EdgeBrief.of(environment, made.forecast, seed), stream(seed, "policy", environment.index))
        return made

    scheduler = begin(3)
    engine = EdgeEngine(environment, scheduler)
    answers = []
    while engine.step():
        before = [array.tobytes() for array in engine.view]
        if len(answers) == restart:
            state = scheduler.state()
            scheduler = begin(8)
            scheduler.load_state(state)
        scheduler.decide(engine.view, engine.answers)
        assert [array.tobytes() for array in engine.view] == before  # it never writes the view
        answers.append(engine.answers.answer_1.tobytes())
    return answers, engine.outcome().task_K.tobytes()


@pytest.mark.parametrize("policy", policies(kind="edge", trained=True), ids=lambda policy: policy.name)
def test_every_trained_policy_repeats_itself_and_a_restored_one_answers_alike(policy):
    """In a small world that it was trained for; tests/evaluate/test_edge_conformance.py checks the others."""
    environment = build_edge_environment(load_scenario(policy.trained.meta["scenario"], SMALL), 1, 2)
    whole = play(environment, policy.name)
    assert len(whole[0]) >= 10
    assert play(environment, policy.name) == whole
    assert play(environment, policy.name, restart=len(whole[0]) // 2) == whole
    compiled = run_edge_environment(environment, make_scheduler(policy.name, "edge"), seed=3)
    assert compiled.task_K.tobytes() == whole[1]
    assert compiled.launched_K.all()


@pytest.mark.parametrize("policy", policies(kind="edge", trained=False), ids=lambda policy: policy.name)
def test_every_policy_launches_all_tasks(policy, setting):
    environment = build_edge_environment(setting, 1, 2)
    assert run_edge_environment(environment, make_scheduler(policy.name, "edge"), seed=3).launched_K.all()


def rewards_by_hand(view, setting, blind):
    """Reward of every launch and whole number of steps, in plain Python."""
    waits = [view.now_s - view.task_Q[q]["stamp_s"] for q in view.tasks()]
    weights, out = setting.utility, {}
    for q in view.tasks():
        if not view.allowed(q):
            continue
        task = view.task_Q[q]
        others = waits[:q] + waits[q + 1 :]
        loaded = any(
            s["gang"] == n and s["size"] == task["gang"] and s["model"] == task["model"] and view.idle_N[n]
            for n, s in enumerate(view.server_N)
        )
        for steps in range(1, int(task["steps_max"]) + 1):
            run_s = steps * view.step_s_G[task["gang"]] + (0 if loaded else view.load_s_G[task["gang"]])
            cost = 0.004 * (waits[q] + (0 if blind else run_s)) + 0.004 * (np.mean(others) if others else 0.0)
            out[q, steps] = weights.quality * quality(float(steps), 1) + min(10.0, 1 / cost if cost > 0 else np.inf)
    return out


@pytest.mark.parametrize("blind", [True, False])
def test_greedy_takes_the_best_reward(setting, blind):
    environment = build_edge_environment(setting, 0, 0)
    scheduler = Greedy(blind=blind)
    engine = EdgeEngine(environment, scheduler)
    scheduler.reset(EdgeBrief.of(environment), stream(0, "policy"))
    count = 0
    while engine.step():
        scheduler.decide(engine.view, engine.answers)
        rewards = rewards_by_hand(engine.view, setting, blind)
        choice, steps, _ = engine.answers.answer_1[0].item()
        assert rewards[choice - 1, int(steps)] == pytest.approx(max(rewards.values()))
        count += 1
    assert count == 10


def test_the_blind_greedy_ignores_what_loads_and_steps_cost(setting):
    environments = [build_edge_environment(setting, n, 0) for n in range(10)]
    blind, seeing = (
        [settle_edge(run_edge_environment(each, Greedy(blind=how))) for each in environments] for how in (True, False)
    )
    assert {round(one.quality, 4) for one in blind} == {round(quality(30.0, 1), 4)}
    assert np.mean([one.response_s for one in seeing]) < np.mean([one.response_s for one in blind])


def test_the_reward_is_the_papers():
    assert launch_reward(0.2, 0.0, 0.0, 10.0, 0.004, 0.004, 1.0, 0.0) == 12.0
    assert launch_reward(0.2, 40.0, 10.0, 10.0, 0.004, 0.008, 1.0, 0.3) == pytest.approx(2 - 1 + 1 / 0.24)


def test_a_sequence_earns_in_the_engine_what_the_search_rates_it_at(setting):
    environment = build_edge_environment(setting, 4, 1)
    sequence_X3 = np.random.default_rng(0).random((LENGTH, 3))

    class Fixed(Genetic):
        def search(self, rate, rng):
            return sequence_X3

    outcome = run_edge_environment(environment, Fixed())
    stamp_s = environment.tasks.stamp_s_K
    total = 0.0
    for k in np.argsort(outcome.task_K["start_t"], kind="stable"):
        start_s = outcome.start_s_K[k]
        same = (outcome.task_K["start_t"] == outcome.task_K["start_t"][k]).sum()
        assert same == 1 or total >= 0
        left = [j for j in range(len(stamp_s)) if environment.tasks.record_K["ready_t"][j] * 0.1 <= start_s + 1e-9]
        order = launch_order(outcome)
        left = [j for j in left if order[j] > order[k]][:10]
        queue_s = float(np.mean(start_s - stamp_s[left])) if left else 0.0
        one = outcome.task_K["quality"][k], outcome.response_s_K[k], queue_s
        total += launch_reward(*map(float, one), 10.0, 0.004, 0.004, 1.0, 0.0)
    waiting_K = np.zeros(len(stamp_s), [("task", "i8")])
    rated = play_sequence(
        sequence_X3, environment.tasks.record_K, blank_servers(4), waiting_K, numbers_of(setting), 10**6
    )
    assert rated == pytest.approx(total)


def launch_order(outcome):
    """Position of every task among the launches; of those at one tick, those on lower servers were launched first."""
    record = outcome.task_K
    order = np.lexsort((record["servers"] & -record["servers"], record["start_t"]))
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    return place


@pytest.mark.parametrize("search", [genetic_search, harmony_search])
def test_a_search_finds_more_than_its_first_sequences(setting, search):
    rate = rater(setting)
    first = rate(np.random.default_rng(5).random((64, LENGTH, 3)))
    found = rate(search(rate, np.random.default_rng(5))[None])[0]
    assert found > first.max()
    less = {"generations": 0} if search is genetic_search else {"improvisations": 0}
    assert rate(search(rate, np.random.default_rng(5), **less)[None])[0] == pytest.approx(first.max())


@pytest.mark.parametrize(
    "changed",
    [{"parents": 2}, {"mutation": 0.5}, {"elites": 5}, {"population": 32}],
    ids=lambda changed: next(iter(changed)),
)
def test_every_setting_of_the_genetic_algorithm_changes_what_it_finds(setting, changed):
    rate = rater(setting)
    usual, other = (genetic_search(rate, np.random.default_rng(1), generations=3, **more) for more in ({}, changed))
    assert not np.array_equal(usual, other)


@pytest.mark.parametrize(
    "changed",
    [{"memory": 8}, {"considering": 0.5}, {"adjusting": 0.9}, {"bandwidth": 0.1}],
    ids=lambda changed: next(iter(changed)),
)
def test_every_setting_of_harmony_search_changes_what_it_finds(setting, changed):
    rate = rater(setting)
    usual, other = (harmony_search(rate, np.random.default_rng(1), **more) for more in ({}, changed))
    assert not np.array_equal(usual, other)


def test_metaheuristics_need_a_law(setting, tmp_path):
    content = {**setting.model_dump(mode="json"), "tasks": {"source": "trace", "path": "x.csv", "sizes": [1]}}
    with pytest.raises(ScenarioError, match="no law to sample episodes from"):
        rater(type(setting).model_validate(content))


@pytest.fixture(scope="module")
def promised():
    """Tasks that may wait for twelve hours, in a zone whose carbon follows the sun."""
    return load_scenario(
        "edge-inference-reference", [*SMALL, "servers.zone=DE", "tasks.deadline_s=43200", "window_h=14"]
    )


def test_carbon_aware_launches_in_cleaner_hours_and_keeps_deadlines(promised):
    environments = [build_edge_environment(promised, n, 0) for n in range(6)]
    at_once = [settle_edge(run_edge_environment(each, PatientReuse())) for each in environments]
    later = [settle_edge(run_edge_environment(each, CarbonAware("perfect"))) for each in environments]
    assert sum(one.late for one in later) == 0
    assert np.mean([one.g_per_image for one in later]) < np.mean([one.g_per_image for one in at_once])
    assert np.mean([one.response_s for one in later]) > 3600
    issued = [settle_edge(run_edge_environment(each, CarbonAware())) for each in environments]
    assert [one.g_per_image for one in issued] != [one.g_per_image for one in later]


def test_carbon_aware_is_patient_reuse_without_promises(setting):
    environment = build_edge_environment(setting, 0, 0)
    found = [run_edge_environment(environment, made).task_K.tobytes() for made in (CarbonAware(), PatientReuse())]
    assert found[0] == found[1]


def test_carbon_aware_needs_signals(setting):
    bare = setting.model_copy(update={"signals": None})
    with pytest.raises(ScenarioError, match="has no signals"):
        run_edge_environment(build_edge_environment(bare, 0, 0), CarbonAware())
