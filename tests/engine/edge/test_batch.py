"""The edge batch engine: every row does what a run by itself does; rewards, masks, states."""

import numpy as np
import pytest

from engine.edge.cells import environments, scenario_of
from noonward.data.edge.environments import build_edge_environment
from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.engine.edge.batch import EdgeBatch
from noonward.engine.edge.engine import run_edge_environment
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.ledger.edge import settle_edge

STEPS = (10.0, 20.0, 24.0)


def batch_of(drawn, **options):
    options = {"steps": STEPS, "price_of": lambda each: 50.0 + each.index, **options}
    return EdgeBatch(drawn, seeds=[0] * len(drawn), **options)


def play(batch, rng, rewards=None):
    """Plays random feasible choices to the end; returns the choices of each row and adds up the rewards."""
    taken = [[] for _ in batch.environments]
    while not batch.done_B.all():
        choice_BN = np.zeros((len(taken), 1), np.int64)
        for row in np.flatnonzero(~batch.done_B):
            choice_BN[row, 0] = rng.choice(np.flatnonzero(batch.mask_BNA[row, 0]))
            taken[row].append(int(choice_BN[row, 0]))
        batch.step(choice_BN)
        if rewards is not None:
            rewards += batch.reward_B
    return taken


class Replayed(EdgeScheduler):
    """Answers what a row of a batch chose."""

    def __init__(self, choices):
        self.choices = list(choices)

    def decide(self, view, answers):
        place, level = divmod(self.choices.pop(0), len(STEPS))
        if place:
            answers.launch(place - 1, STEPS[level])


@pytest.mark.parametrize("end", ["drained", "limit"])
def test_a_row_is_the_run_by_itself_and_its_rewards_sum_to_the_ledgers_figures(end):
    drawn = environments(6, end=end, limit_s=150.0)
    batch = batch_of(drawn)
    rewards = batch.reward_B.copy()
    taken = play(batch, np.random.default_rng(1), rewards)
    for row, (environment, choices) in enumerate(zip(drawn, taken, strict=True)):
        scheduler = Replayed(choices)
        ledger = settle_edge(run_edge_environment(environment, scheduler))
        assert scheduler.choices == []
        assert batch.total("launched")[row] == ledger.images
        assert batch.total("response_s")[row] == pytest.approx(ledger.response_s * ledger.images)
        assert batch.total("loaded")[row] == ledger.loads
        if end == "drained":
            worth = (50.0 + environment.index) * (ledger.quality - 0.26) - ledger.response_s
            assert rewards[row] == pytest.approx(worth * ledger.images / 100.0)


def test_a_launch_costs_its_run_at_once_and_time_costs_a_second_a_waiting_task():
    scenario = scenario_of(1, tasks={"source": "paper", "count": 2, "first": 2, "rate_per_s": 0.01, "sizes": (1,)})
    batch = batch_of([build_edge_environment(scenario)], price_of=lambda _: 0.0)
    assert batch.reward_B[0] == pytest.approx(-0.02)  # two tasks have waited 1 s
    batch.step(np.array([[3 + 2]]))  # 24 steps: 24 s load and 7.56 s, and the other task waits until it is done
    assert batch.reward_B[0] == pytest.approx(-(31.56 + 31.6) / 100.0)
    assert batch.elapsed_s_B[0] == pytest.approx(31.6)
    batch.step(np.array([[3 + 2]]))
    assert batch.reward_B[0] == pytest.approx(-7.56 / 100.0)
    assert batch.done_B[0]
    assert not batch.global_BG[0].any()


def test_the_published_reward_is_that_of_the_public_simulator():
    scenario = scenario_of(1, tasks={"source": "paper", "count": 2, "first": 2, "rate_per_s": 0.01, "sizes": (1,)})
    batch = batch_of([build_edge_environment(scenario)], price_of=lambda _: 0.0, published=True)
    assert batch.reward_B[0] == 0.0
    batch.step(np.array([[3 + 2]]))
    quality = 0.16 * np.log(24.0) / np.log(6.0) - 0.02
    assert batch.reward_B[0] == pytest.approx(250.0 / (1.0 + 1.0 + 31.56) + 10.0 * quality)


def test_the_mask_is_the_views_and_an_infeasible_choice_changes_nothing():
    batch = batch_of(environments(3))
    fits = batch.row_view(0).mask_A
    assert (batch.mask_BNA[0, 0].reshape(-1, 3)[1:].all(-1) == (fits[1:] != 0)).all()
    assert batch.mask_BNA[0, 0, :3].tolist() == [1, 0, 0]  # a wait has one level
    before = batch.state()
    wrong = int(np.flatnonzero(batch.mask_BNA[1, 0] == 0)[0])
    with pytest.raises(InfeasibleActionError, match=rf"row 1: choice {wrong} is infeasible"):
        batch.step(np.array([[0], [wrong], [0]]))
    after = batch.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    with pytest.raises(ValueError, match="give integers of shape"):
        batch.step(np.zeros((3, 1)))


def test_a_batch_resumes_bit_for_bit_also_after_a_longer_run_took_a_row():
    drawn, longer = (
        environments(3),
        build_edge_environment(scenario_of(8, tasks={**scenario_of(8).tasks.model_dump(), "count": 30})),
    )
    batch = batch_of(drawn)
    batch.reset(1, longer, 0)
    kept = batch.state()
    again = batch_of([drawn[0], longer, drawn[2]])
    again.load_state(kept)
    assert play(batch, np.random.default_rng(3)) == play(again, np.random.default_rng(3))
    first, second = batch.state(), again.state()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    with pytest.raises(ScenarioError, match="another batch"):
        batch_of(environments(2)).load_state(kept)


def test_a_row_with_more_servers_than_the_observation_shows_is_refused():
    with pytest.raises(ScenarioError, match="at most 8 servers"):
        batch_of(environments(3), servers=8)
