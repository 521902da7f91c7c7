"""An adviser: any scheduler, asked about every row of a batch engine, so that agents learn beside it."""

from __future__ import annotations

import numpy as np

from noonward.arrays import I8
from noonward.decision.brief import Brief, check_fit
from noonward.decision.cluster.view import HOLD, ORACLE
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.batch import BatchEngine
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.schedule.registry import make_scheduler
from noonward.seeding import stream


class SchedulerAdviser:
    """Asks a fresh scheduler per row what it would do; what it answers does not move the world.

    Args:
        policy: Name of the policy, or module:Class.
        engine: Engine whose rows are asked about; their seeds are those of the schedulers' streams ``policy``.

    Raises:
        ScenarioError: The policy cannot answer the rows' questions.
    """

    def __init__(self, policy: str, engine: BatchEngine) -> None:
        self.policy, self.engine = policy, engine
        self.schedulers: list[Scheduler] = [make_scheduler(policy) for _ in range(engine.rows)]
        for row in range(engine.rows):
            self.begin(row)

    def begin(self, row: int) -> None:
        """Starts the scheduler of a row anew, for the episode the row has just started."""
        environment = self.engine.environments[row]
        needs = self.schedulers[row].needs
        brief = Brief.of(environment, needs)
        check_fit(brief, needs, repr(self.policy))
        self.schedulers[row] = make_scheduler(self.policy)
        self.schedulers[row].reset(brief, stream(self.engine.seeds[row], "policy", environment.index))

    def advise(self, rows: I8) -> I8:
        """Returns the choices of some rows, [rows, N]; -1 where an agent is not asked or the answer is infeasible."""
        engine = self.engine
        out_BN = np.full((len(rows), engine.agents), -1)
        for place, row in enumerate(rows.tolist()):
            if engine.done_B[row]:
                continue
            answers = engine.row_answers(row)
            answers.answer_N[:] = (HOLD, 0, ORACLE, 0.0)
            self.schedulers[row].propose(engine.row_view(row), answers)
            choice_N = engine.choices_of(row)
            inside_N = engine.asked_BN[row] & (choice_N >= 0) & (choice_N < engine.choices)
            feasible_N = inside_N & (engine.mask_BNA[row, np.arange(engine.agents), choice_N.clip(0)] != 0)
            out_BN[place] = np.where(feasible_N, choice_N, -1)
        return out_BN

    def heed(self, choice_BN: I8) -> None:
        """Tells each row's scheduler what is about to be carried out."""
        engine = self.engine
        for row in np.flatnonzero(~engine.done_B).tolist():
            view, answers = engine.row_view(row), engine.row_answers(row)
            engine.answer(row, choice_BN[row])
            self.schedulers[row].heed(view, answers)


def adviser_forecast(policy: str, shown: Forecast | None) -> Forecast | None:
    """Returns the forecast of an engine whose rows an adviser is asked about.

    Args:
        policy: The adviser.
        shown: What the observation shows or another adviser plans by, or None.

    Raises:
        ScenarioError: Adviser and observation want different forecasts.
    """
    wanted = make_scheduler(policy).needs.forecast
    if wanted is not None and shown is not None and wanted != shown:
        raise ScenarioError(
            f"the observation or another adviser has the forecast {shown.kind!r}, {policy!r} plans by {wanted.kind!r}; "
            f"runs have one forecast: set forecast={wanted.kind}, or take policies that plan by {shown.kind!r}"
        )
    return shown if wanted is None else wanted
