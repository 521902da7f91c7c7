"""Rules played on sampled tasks before a run: the same figures as the engine's, on tasks that no run sees."""

import numpy as np
import pytest

from noonward.data.environments import FIXED_START
from noonward.data.scenarios.load import load_scenario
from noonward.decision.edge.brief import EdgeBrief
from noonward.engine.edge.engine import run_edge_environment
from noonward.ledger.edge import settle_edge
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.tasks import ImageTasks
from noonward.schedule.edge.rehearsal import SEED, rehearse, sample_tasks
from noonward.schedule.policies import make_scheduler
from noonward.seeding import stream

EIGHT = ["servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1"]


@pytest.mark.parametrize("policy", ["fifo", "reuse-first", "lookahead", "greedy-corrected"])
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("edge-inference-reference", ()),
        ("edge-inference", [*EIGHT, "tasks.models.count=3"]),
        ("edge-inference-real", ()),
    ],
)
def test_a_rehearsal_yields_what_the_engine_does(name, more, policy):
    setting = load_scenario(name, list(more))
    sample = sample_tasks(setting, episodes=3)
    sums = np.zeros(3)
    for record_K, count in zip(*sample, strict=True):
        environment = environment_of(setting, record_K[:count])
        ledger = settle_edge(run_edge_environment(environment, make_scheduler(policy, "edge")))
        sums += ledger.images * np.array([1.0, ledger.response_s, ledger.quality])
    scheduler = make_scheduler(policy, "edge")
    scheduler.reset(EdgeBrief.of(environment), stream(0, "policy"))
    assert rehearse(setting, scheduler.rule, scheduler.memory, sample) == pytest.approx(sums)
    assert sums[0] == sum(sample.count_E)


def environment_of(setting, record_K):
    """An environment of given tasks."""
    return EdgeEnvironment(setting=setting, index=0, seed=SEED, start=FIXED_START, tasks=ImageTasks(record_K=record_K))


def test_a_sample_ends_at_the_tasks_wanted():
    setting = load_scenario("edge-inference-reference")
    assert sample_tasks(setting, episodes=4).task_EK.shape == (4, 32)
    assert len(sample_tasks(setting, episodes=9, tasks=90).count_E) == 3
    assert np.array_equal(sample_tasks(setting, episodes=2).task_EK, sample_tasks(setting, episodes=4).task_EK[:2])
