"""Every registered edge scheduler keeps the rules, and one that breaks a rule is told which."""

import pytest

from noonward.decision.edge.scheduler import EdgeScheduler
from noonward.errors import ConformanceError, InfeasibleActionError
from noonward.evaluate.conformance import check_scheduler
from noonward.evaluate.edge_conformance import check_edge_scheduler
from noonward.schedule.policies import make_scheduler, policies


@pytest.mark.parametrize("name", [policy.name for policy in policies(kind="edge", trained=False)])
def test_every_policy_keeps_the_rules(name):
    check_scheduler(make_scheduler(name, "edge"), seeds=[0])


class Plain(EdgeScheduler):
    """Launches the oldest task that fits."""

    def __init__(self):
        self.count = 0

    def decide(self, view, answers):
        self.count += 1
        for q in view.tasks():
            if view.allowed(q):
                answers.launch(q, steps=self.steps(view))
                return

    def steps(self, view):
        return 24.0


class Forgetful(Plain):
    def steps(self, view):
        return 10.0 + self.count % 7


class Writer(Plain):
    def steps(self, view):
        view.run_1["waiting"] += 1
        return 24.0


class Greedy(Plain):
    def steps(self, view):
        return 99.0


class Unrestored(Plain):
    def reset(self, brief, rng):
        self.count = 0

    def steps(self, view):
        return 10.0 + self.count % 7


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Forgetful, "differently when run again with the same seed"),
        (Writer, "writes the view"),
        (Unrestored, "restored from its state"),
    ],
)
def test_what_is_broken_is_said(made, words):
    with pytest.raises(ConformanceError, match=f"{made.__name__} .*{words}"):
        check_edge_scheduler(made(), seeds=[0])


def test_an_infeasible_answer_is_refused():
    check_edge_scheduler(Plain(), seeds=[0])
    with pytest.raises(InfeasibleActionError, match=r"99\.0 steps"):
        check_edge_scheduler(Greedy(), seeds=[0])
