"""Two sites, two jobs, and numbers that are easy to reckon with; what becomes of the jobs is written down beforehand.

Job 0 runs at its own site from 0:30 to 1:30. Job 1 moves at once, waits from 0:10 on and runs from 1:30 to 2:30, half
an hour past the window of two hours; its result goes home. A GPU draws 1 kW busy and 0.1 kW free, before PUE.
"""

from datetime import UTC, datetime

import numpy as np

from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.run import run
from noonward.model.cluster.environment import Environment
from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.jobs import Jobs
from noonward.model.economics import Economics
from noonward.model.network import Network
from noonward.model.signals import Signals

START = datetime(2022, 3, 1, tzinfo=UTC)
HOUR_S = 3600.0
FLEET = Fleet.model_validate(
    {
        "gpu_types": {"T": {"idle_w": 100, "classes": {"c": {"power": {"constant_w": 1000}}}}},
        "sites": [
            {"name": "a", "zone": "A", "gpu_type": "T", "gpus": 2, "pue": 1.5},
            {"name": "b", "zone": "B", "gpu_type": "T", "gpus": 1, "pue": 2.0},
        ],
    }
)
NETWORK = Network(throughput_gb_per_min=1, usd_per_gb=0.01, kwh_per_gb=0.02)
ECONOMICS = Economics(revenue_usd_per_gpu_hour=1.0, carbon_usd_per_t=100.0)
SIGNALS = Signals(
    start=START,
    zones=("A", "B"),
    value_ZH={
        "price_usd_per_mwh": np.array([[100.0, 200.0, 300.0, 300.0], [50.0, -50.0, 10.0, 10.0]]),
        "carbon_g_per_kwh": np.array([[400.0, 600.0, 800.0, 800.0], [100.0, 200.0, 400.0, 400.0]]),
    },
)
PLAN = {0: (0, 0.5 * HOUR_S), 1: (1, 1.5 * HOUR_S)}
"""Job -> (site, start s)."""


class Script(Scheduler):
    """Moves jobs at once (or at a time) and starts them when a plan says so."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self, plan, moves_at_s=0.0):
        self.plan = plan
        self.moves_at_s = moves_at_s

    def decide(self, view, answers):
        for site, _ in view.asked():
            goal, start_s = self.plan.get(int(view.serial_N[site]), (site, np.inf))
            due_s = self.moves_at_s if site != goal else start_s
            if view.now_s >= due_s and view.allowed(site, goal):
                answers.send(site, goal)


def environment(**changes):
    """The environment, some parts changed."""
    jobs = Jobs.build(
        arrival_s=np.zeros(2),
        work=np.full(2, HOUR_S),
        slack_s=np.array([1.0, 1.75]) * HOUR_S,
        data_gb=8.0,
        model_gb=2.0,
        result_gb=np.array([3.0, 5.0]),
    )
    parts = {
        "scenario": "two-jobs", "index": 0, "seed": 0, "start": START, "protocol": "each-slot", "slot_s": 60.0,
        "window_s": 2 * HOUR_S, "drained": True, "fleet": FLEET, "links": NETWORK.links(FLEET), "jobs": jobs,
        "signals": SIGNALS, "economics": ECONOMICS,
    }  # fmt: skip
    return Environment(**(parts | changes))


def played(plan=PLAN, *, moves_at_s=0.0, **changes):
    """What became of the jobs."""
    return run(environment(**changes), Script(plan, moves_at_s))
