"""A demonstrator: a scheduler that is asked what it does in a batch engine, so that agents can imitate it."""

from __future__ import annotations

import numpy as np

from noonward.arrays import I8
from noonward.decision.brief import Brief, check_fit
from noonward.decision.cluster.view import HOLD, ORACLE
from noonward.engine.cluster.batch import BatchEngine
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.schedule.registry import make_scheduler
from noonward.seeding import stream


class SchedulerDemonstrator:
    """Asks a scheduler what it does; the agents execute it.

    Args:
        policy: Name of the policy, or module:Class.
        engine: Engine of one row; its seed is that of the scheduler's stream ``policy``.

    Raises:
        ScenarioError: The policy cannot answer the row's questions.
    """

    def __init__(self, policy: str, engine: BatchEngine) -> None:
        if engine.rows != 1:
            raise ValueError(f"an engine of {engine.rows} rows; a demonstrator follows one")
        self.policy, self.engine = policy, engine
        self.begin()

    def begin(self) -> None:
        """Makes a fresh scheduler for the run that has just started."""
        environment = self.engine.environments[0]
        self.scheduler = make_scheduler(self.policy)
        brief = Brief.of(environment, self.scheduler.needs)
        check_fit(brief, self.scheduler.needs, repr(self.policy))
        self.scheduler.reset(brief, stream(self.engine.seeds[0], "policy", environment.index))

    def choices(self) -> I8:
        """Returns the scheduler's choices, [N]; -1 where an agent is not asked or the answer is no feasible choice."""
        engine = self.engine
        if engine.done_B[0]:
            return np.full(engine.agents, -1)
        answers = engine.row_answers(0)
        answers.answer_N[:] = (HOLD, 0, ORACLE, 0.0)
        self.scheduler.decide(engine.row_view(0), answers)
        choice_N = engine.choices_of(0)
        inside_N = engine.asked_BN[0] & (choice_N >= 0) & (choice_N < engine.choices)
        feasible_N = inside_N & (engine.mask_BNA[0, np.arange(engine.agents), choice_N.clip(0)] != 0)
        return np.where(feasible_N, choice_N, -1)


def forecast_with(policy: str, shown: Forecast | None) -> Forecast | None:
    """Returns the forecast of an engine in which a policy is imitated.

    Args:
        policy: The policy.
        shown: What the observation shows, or None.

    Raises:
        ScenarioError: Policy and observation want different forecasts.
    """
    wanted = make_scheduler(policy).needs.forecast
    if wanted is not None and shown is not None and wanted != shown:
        raise ScenarioError(
            f"the observation has the forecast {shown.kind!r}, but {policy!r} plans by {wanted.kind!r}; a run has one "
            f"forecast: set forecast={wanted.kind}, or imitate a policy that plans by {shown.kind!r}"
        )
    return shown if wanted is None else wanted
