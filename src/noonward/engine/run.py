"""The only loop: an environment under a scheduler, asked by the engine until the run's end."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from noonward.blas import one_thread
from noonward.decision.partly_compiled import OnTop, PartlyCompiledScheduler
from noonward.decision.scheduler import CompiledScheduler, Scheduler
from noonward.engine.checkpoint import REMEDY, Checkpoint
from noonward.engine.cluster.engine import ClusterEngine
from noonward.errors import DataError, ScenarioError
from noonward.ledger.segments import Outcome
from noonward.model.cluster.environment import Environment
from noonward.notices import tell
from noonward.seeding import stream


@one_thread()
def run(
    environment: Environment,
    scheduler: Scheduler,
    *,
    seed: int = 0,
    rewards: bool = False,
    compiled: bool | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Runs an environment under a scheduler.

    Args:
        environment: What to run.
        scheduler: Who answers.
        seed: Seed of the policy's and the forecasts' random streams; arrivals and signals do not depend on it.
        rewards: Record the reward of every step (one step at a time, in Python).
        compiled: Run engine and rule as one compiled loop; by default where the scheduler has a rule and no rewards
            are asked for. Both ways give the same bytes.
        checkpoint: Where the run is kept while it is under way, and continues from if it was interrupted; None:
            nowhere.

    Returns:
        What became of every job.

    Raises:
        ScenarioError: Scheduler and environment do not fit; or a checkpoint is to hold rewards, or a scheduler that
            remembers more than it says in ``state``.
        InfeasibleActionError: The scheduler gave an infeasible answer.
        DataError: The checkpoint is damaged or of another run.
        FileError: The checkpoint cannot be written.
    """
    if rewards and checkpoint is not None:
        raise ScenarioError("a checkpoint holds no rewards; leave out one of both")

    def begun() -> ClusterEngine:
        engine = ClusterEngine(environment, scheduler, seed=seed, rewards=rewards)
        scheduler.reset(engine.brief, stream(seed, "policy", environment.index))
        return engine

    engine, asked = begun(), False
    if checkpoint is not None:
        try:
            asked = checkpoint.resume(engine)
        except DataError as error:
            if checkpoint.strict:
                raise
            tell("checkpoint", f"{str(error).removesuffix(REMEDY)}; the run begins again")
            engine = begun()
    if compiled is None:
        compiled = isinstance(scheduler, CompiledScheduler | PartlyCompiledScheduler | OnTop) and not rewards
    earned: list[float] = []
    with nullcontext() if checkpoint is None else checkpoint.keeping(engine) as pauses:
        if compiled:
            engine.run_compiled(pauses, asked=asked)
            return engine.outcome()
        while asked or engine.step():
            asked = False
            if pauses is not None:
                pauses.look()
            if rewards:
                earned.append(engine.reward_usd)
            scheduler.decide(engine.view, engine.answers)
    if rewards:
        earned.append(engine.reward_usd)
    return engine.outcome(np.array(earned) if rewards else None)
