"""Keeps sites with demand charges below a target for their peak, on top of another scheduler (protocol each-slot)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Final

import numpy as np
from pydantic import Field

from noonward.arrays import F8, Records
from noonward.decision.brief import Brief
from noonward.decision.cluster.view import ASK_SLOT, DARK, ORACLE, POWER_W, WAITS, Answers, ClusterView
from noonward.decision.scheduler import Scheduler, State
from noonward.errors import ScenarioError
from noonward.model.cluster.jobs import Jobs
from noonward.model.cluster.site_prices import calendar_of
from noonward.model.cluster.tariff import Demand
from noonward.units import DAY_H, HOUR_S

DRAWS: Final = 4
"""Draws of the jobs to come whose mean power is the forecast."""
WEEK_S: Final = 7 * DAY_H * HOUR_S
"""What a draw of a run without an end holds."""
Headroom = Annotated[float, Field(ge=0, le=10, description="share of the forecast mean power of jobs")]
RUNNING: Final = np.dtype([("slot", "i8"), ("serial", "i8"), ("site", "i8"), ("watts", "f8")])
"""A job that was started: its slot in the view, its site, and its facility power, W."""
W_PER_KW: Final = 1000.0


class PeakShave(Scheduler):
    """Answers as another scheduler does, and holds starts that would lift a site's power above a target.

    The target is the site's forecast mean power and a margin, or its highest power so far in the month if that is more:
    a peak that is paid for may be used. The forecast draws the jobs to come: their energy over the window, shared out
    over the sites by their GPUs, with free GPUs and base load. It holds at sites with demand charges, at the times and
    in the months at which these count. A job is held while more than a share of its slack is left. Power at a time
    stands for its mean over the charge's interval, which it is never below. The battery is dispatched by the ledger.

    Args:
        base: Scheduler that decides everything else, of protocol each-slot.
        headroom: Margin of the target, as a share of the mean power of the jobs to come.
        kept: Share of a job's slack that is left unused.

    Raises:
        ScenarioError: The base does not answer protocol each-slot.
    """

    def __init__(self, base: Scheduler, headroom: float = 0.15, kept: float = 0.3) -> None:
        if "each-slot" not in base.needs.protocols:
            raise ScenarioError("peaks are shaved on top of a scheduler of protocol each-slot; choose another one")
        self._base, self._headroom, self._kept = base, headroom, kept
        self.needs = replace(base.needs, protocols=("each-slot",), samples=True)
        self._target_kw: dict[int, float] = {}
        self._free_kw_S = np.zeros(0)
        self._runs_K: Records = np.zeros(0, RUNNING)
        self._peak_kw: dict[tuple[int, int], float] = {}

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Prepares both for a run, and forecasts the sites' mean power."""
        self._base.reset(brief, rng)
        assert brief.sample_jobs is not None, "runs are checked against what a scheduler needs"
        self._brief = brief
        tables = brief.fleet.tables(1)
        self._free_kw_S = tables.free_w_S * tables.pue_S / W_PER_KW
        self._runs_K, self._peak_kw, self._target_kw = np.zeros(0, RUNNING), {}, {}
        if any(self._charges(s) for s in range(len(brief.sites))):
            draws = [mean_added_w(brief, brief.sample_jobs(draw)) for draw in rng.spawn(DRAWS)]
            added_w_S = (1 + self._headroom) * np.mean(draws, axis=0)
            for s in range(len(brief.sites)):
                if self._charges(s):
                    self._target_kw[s] = self._idle_kw(s, brief.fleet.sites[s].gpus) + float(added_w_S[s]) / W_PER_KW

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns those of the scheduler below."""
        return self._base.remarks(brief)

    def state(self) -> State:
        """Returns the targets, the peaks so far, the jobs that run, and the state of the scheduler below."""
        return {
            "targets": np.array([self._target_kw[s] for s in self._target_kw]),
            "months": np.array(list(self._peak_kw), dtype=np.int64).reshape(-1, 2),
            "peaks": np.array(list(self._peak_kw.values())),
            "runs": np.column_stack([self._runs_K[name].astype(np.float64) for name in RUNNING.names or ()]),
            "base": self._base.state(),
        }

    def load_state(self, state: State) -> None:
        """Restores both from ``state()``."""
        if set(state) != {"targets", "months", "peaks", "runs", "base"}:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state)) or 'nothing'}; restore the state of a scheduler that was "
                "made in the same way"
            )
        self._target_kw = dict(zip(self._target_kw, state["targets"].tolist(), strict=True))
        months = [(s, month) for s, month in state["months"].tolist()]
        self._peak_kw = dict(zip(months, state["peaks"].tolist(), strict=True))
        self._runs_K = np.zeros(len(state["runs"]), RUNNING)
        for x, name in enumerate(RUNNING.names or ()):
            self._runs_K[name] = state["runs"][:, x]
        self._base.load_state(state["base"])

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers as the scheduler below, then holds starts that would set a peak."""
        self._base.decide(view, answers)
        if view.kind != ASK_SLOT or not self._target_kw:
            return
        self._forget_ended(view)
        for s, job in view.asked():
            if s in self._target_kw:
                starts = int(answers.answer_N["choice"][s]) == 1 + s
                self._decide_start(view, answers, s, job, starts=starts)

    def _decide_start(self, view: ClusterView, answers: Answers, s: int, job: int, *, starts: bool) -> None:
        """Holds a start that would lift a site's power above its target while charges count, or notes it."""
        record, answer = view.job_J[job], answers.answer_N[s]
        gpus, watts = 0, 0.0
        if starts:
            gpus = min(int(answer["gpus"]) or int(record["gpus_max"]), int(record["gpus_max"]), int(view.free_S[s]))
            level = int(answer["level"])
            level = int(view.oracle_SCG[s, record["class_"], gpus]) if level == ORACLE else level
            watts = float(view.speed_KSCGF[POWER_W, s, record["class_"], gpus, level] * view.site_S["pue"][s])
        running_w = float(self._runs_K["watts"][self._runs_K["site"] == s].sum())
        kw = self._idle_kw(s, int(view.free_S[s]) - gpus) + (running_w + watts) / W_PER_KW
        month, floor_kw = self._month(s, view.now_s)
        if floor_kw < np.inf:
            peak_kw = max(self._peak_kw.get((s, month), 0.0), floor_kw)
            slack_s = float(record["deadline_s"] - record["arrival_s"])
            left_s = float(record["deadline_s"]) - view.now_s
            if starts and kw > max(peak_kw, self._target_kw[s]) and left_s > self._kept * slack_s:
                answers.hold(s)
                return
            self._peak_kw[s, month] = max(self._peak_kw.get((s, month), 0.0), kw)
        if starts:
            new_1 = np.array([(job, record["serial"], s, watts)], RUNNING)
            self._runs_K = np.concatenate([self._runs_K, new_1])

    def _forget_ended(self, view: ClusterView) -> None:
        """Forgets jobs that no longer hold GPUs."""
        slot_K = self._runs_K["slot"]
        runs_K = view.job_J["serial"][slot_K] == self._runs_K["serial"]
        if len(view.life_J) > 1:
            runs_K &= ~np.isin(view.life_J["state"][slot_K], (DARK, WAITS))
        self._runs_K = self._runs_K[runs_K]

    def _charges(self, s: int) -> tuple[Demand, ...]:
        """Returns a site's demand charges."""
        tariff = self._brief.fleet.tariff_of(s)
        return () if tariff is None else tariff.demand

    def _idle_kw(self, s: int, free: int) -> float:
        """Returns a site's base load and the power of some free GPUs, kW."""
        meter = self._brief.fleet.sites[s].meter
        return (0.0 if meter is None else meter.base_kw) + free * float(self._free_kw_S[s])

    def _month(self, s: int, now_s: float) -> tuple[int, float]:
        """Returns the month at a site, and the power that it pays for anyway now; infinite where no charge counts."""
        brief = self._brief
        hour = brief.start + timedelta(hours=int(now_s // HOUR_S))
        calendar = calendar_of(brief.fleet, s, hour, HOUR_S, HOUR_S, 1)
        month = int(calendar.day_N.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)[0])
        tariff, meter, floor_kw = brief.fleet.tariff_of(s), brief.fleet.sites[s].meter, np.inf
        assert tariff is not None, "only sites with a demand charge are asked about"
        assert meter is not None, "a tariff is named by a meter"
        past_kw = max([kw for (at, when), kw in self._peak_kw.items() if at == s and when < month], default=0.0)
        for charge in tariff.demand:
            if charge.holds(calendar)[0] and charge.rate_M(calendar)[0] > 0:
                known = charge.floors_kw(calendar, tariff.contract_kw or 0.0, max(meter.past_peak_kw, past_kw))
                floor_kw = min(floor_kw, float(known[0]))
        return month, floor_kw


def mean_added_w(brief: Brief, jobs: Jobs) -> F8:
    """Returns the mean power that jobs add to the sites if these share them by their GPUs, W, (S,).

    Every job counts with its largest gang, at the clock of least energy.
    """
    tables, window_s = brief.fleet.tables(brief.largest_gang), brief.window_s
    span_s = window_s if np.isfinite(window_s) else WEEK_S
    added_w_S = np.zeros(len(brief.sites))
    for s, gpus in enumerate(tables.gpus_S.tolist()):
        gang_J = np.minimum(jobs.gpus_max_J, gpus)
        fits_J = (jobs.gpus_min_J <= gpus) & (tables.range_CS[jobs.class_J, s] == 1)
        class_J, gang_J = jobs.class_J[fits_J], gang_J[fits_J]
        level_J = tables.oracle_level_SCG[s, class_J, gang_J]
        run_s_J = jobs.work_J[fits_J] * tables.seconds_per_unit_SCGF[s, class_J, gang_J, level_J]
        more_w_J = tables.power_w_SCGF[s, class_J, gang_J, level_J] - gang_J * tables.free_w_S[s]
        added_w_S[s] = float(run_s_J @ more_w_J) * tables.pue_S[s] / span_s
    return np.asarray(added_w_S * tables.gpus_S / tables.gpus_S.sum())
