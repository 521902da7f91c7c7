"""The only loop: an environment under a scheduler, asked by the engine until the run's end."""

from __future__ import annotations

import numpy as np

from noonward.blas import one_thread
from noonward.decision.partly_compiled import OnTop, PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.cluster.engine import ClusterEngine
from noonward.ledger.segments import Outcome
from noonward.model.cluster.environment import Environment
from noonward.seeding import stream


@one_thread()
def run(
    environment: Environment,
    scheduler: Scheduler,
    *,
    seed: int = 0,
    rewards: bool = False,
    compiled: bool | None = None,
) -> Outcome:
    """Runs an environment under a scheduler.

    Args:
        environment: What to run.
        scheduler: Who answers.
        seed: Seed of the policy's and the forecasts' random streams; arrivals and signals do not depend on it.
        rewards: Record the reward of every step (one step at a time, in Python).
        compiled: Run engine and rule as one compiled loop; by default where the scheduler has a rule and no rewards
            are asked for. Both ways give the same bytes.

    Returns:
        What became of every job.

    Raises:
        ScenarioError: Scheduler and environment do not fit.
        InfeasibleActionError: The scheduler gave an infeasible answer.
    """
    engine = ClusterEngine(environment, scheduler, seed=seed, rewards=rewards)
    scheduler.reset(engine.brief, stream(seed, "policy", environment.index))
    if compiled is None:
        compiled = isinstance(scheduler, CompiledScheduler | PartlyCompiledScheduler | OnTop) and not rewards
    if compiled:
        engine.run_compiled()
        return engine.outcome()
    earned: list[float] = []
    while engine.step():
        if rewards:
            earned.append(engine.reward_usd)
        scheduler.decide(engine.view, engine.answers)
    if rewards:
        earned.append(engine.reward_usd)
    return engine.outcome(np.array(earned) if rewards else None)
