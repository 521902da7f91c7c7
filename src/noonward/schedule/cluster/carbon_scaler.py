"""CarbonScaler: each job on more GPUs in cheap hours, on fewer or none in the others, by marginal work per cost."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arguments import checked
from noonward.arrays import F8, I8
from noonward.decision.brief import Brief, Needs
from noonward.decision.cluster.lives import progress_s, resume_gang
from noonward.decision.cluster.value import energy_usd
from noonward.decision.cluster.view import (
    ASK_RUNNING,
    CARBON,
    POWER_W,
    PRICE,
    RUNS,
    SECONDS,
    Answers,
    ClusterView,
    latest_start_s,
    lead_integral,
)
from noonward.decision.scheduler import Scheduler, State, forecast_remarks
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.schedule.cluster.capacity_prices import PRICED_H
from noonward.schedule.cluster.marginal_greedy import marginal_greedy
from noonward.schedule.cluster.suspending import Measure
from noonward.units import HOUR_S

LEAST_SHARE: Final = 1e-9
"""What an hour that costs nothing or less counts, as a share of the most expensive one: such hours are taken first."""
NEAR_H: Final = 1e-6
"""Hours below which rounding does not make an hour incomplete."""


class CarbonScaler(Scheduler):
    """Gives each job the gangs by the hour that do its work at the least forecast cost, as CarbonScaler does.

    Hanafy et al., "CarbonScaler" (SIGMETRICS'24), by :func:`~noonward.schedule.cluster.marginal_greedy`: from no GPUs
    at all, the hour whose next larger gang adds most work per cost gets it, until the work is done. The plan is made
    again for every clock hour, from what the job has done and the forecast then issued, over the hours in which it must
    end. In an hour without a gang the job waits, or is suspended; on another gang it is suspended and resumed. Jobs of
    classes that are not elastic keep their gang, those that may not be suspended run on.

    As published the plan knows one job: neither other jobs nor what stops and resumptions take. Here a job grows only
    into GPUs that are free, starts on its own gang, and runs on once an hour of its slack is left. It stays where it
    arrives, unless it cannot run there.

    Args:
        forecast: Forecast of the hours to come.
        measure: What makes an hour cheap: ``cost`` (energy at its price and its carbon at the carbon price), ``price``
            or ``carbon`` alone.
    """

    @checked
    def __init__(self, forecast: Forecast, *, measure: Measure = "carbon") -> None:
        self.needs = Needs(
            protocols=("each-slot",), signals=True, economics=measure == "cost", forecast=forecast,
            levers=("suspend", "resize"), lookahead_h=0 if forecast.foresight else PRICED_H,
        )  # fmt: skip
        self._measure = measure
        self._hour = -1
        self._gang_of: dict[int, int] = {}

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Forgets all plans."""
        self._hour, self._gang_of = -1, {}

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns a note where the run lies in months or hours that a learned forecast was trained on."""
        return forecast_remarks(self.needs.forecast, brief)

    def state(self) -> State:
        """Returns the gangs of this hour by the jobs' serials."""
        gangs = list(self._gang_of.values())
        return {
            "hour": self._hour,
            "serials": np.array(list(self._gang_of), dtype=np.int64),
            "gangs": np.array(gangs, dtype=np.int64),
        }

    def load_state(self, state: State) -> None:
        """Restores the gangs from ``state()``."""
        if set(state) != {"hour", "serials", "gangs"}:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state)) or 'nothing'}; restore the state of a CarbonScaler"
            )
        self._hour = int(state["hour"])
        self._gang_of = dict(zip(state["serials"].tolist(), state["gangs"].tolist(), strict=True))

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Gives every job that is asked about the gang that this hour's plan has for it, as far as GPUs are there."""
        hour = int(view.now_s // HOUR_S)
        if hour != self._hour:
            self._hour, self._gang_of = hour, {}
        until_s = (hour + 1) * HOUR_S
        for site, job in view.asked():
            serial = int(view.job_J["serial"][job])
            if serial not in self._gang_of:
                self._gang_of[serial] = self._gang(view, job, site)
            gang = self._gang_of[serial]
            if view.kind == ASK_RUNNING:
                held = int(view.life_J["gpus"][job])
                if view.allowed(site, site) and gang != held and gang - held <= view.free_S[site]:
                    answers.suspend(site)
            elif not _runs_here(view, job, site):
                others = [d for d in range(len(view.site_S)) if d != site and view.allowed(site, d)]
                if others:
                    answers.send(site, others[0])
            elif gang == 0:
                answers.hold(site, until_s)
            elif view.allowed(site, site):
                answers.send(site, site, gpus=gang if _resized(view, job, gang) else 0)

    def _gang(self, view: ClusterView, job: int, site: int) -> int:
        """Returns the gang that the next hour of a job's cheapest schedule has, GPUs; 0 for none."""
        own, _ = _own_gang(view, job, site)
        gang_N, speed_N, power_N = _gangs(view, job, site)
        left_s, slack_s = _left_s(view, job, site), float(latest_start_s(view, job, site)) - view.now_s
        if view.kind == ASK_RUNNING:
            slack_s += progress_s(view, job)
        if np.isinf(slack_s) or left_s <= 0 or not (np.diff(power_N) > 0).all():
            return own
        cost_H = self._costs(view, site, int((slack_s + left_s) / HOUR_S + NEAR_H))
        work = left_s / HOUR_S
        if len(cost_H) * speed_N[-1] < work:
            return own
        planned = int(gang_N[marginal_greedy(cost_H, speed_N, power_N, work)[0]])
        return max(planned, own) if slack_s < HOUR_S else planned

    def _costs(self, view: ClusterView, site: int, hours: int) -> F8:
        """Returns what a watt costs in each of the hours from now on that the forecast knows, above 0."""
        forecast_KSL, ahead_s = view.forecast_KSL, view.now_s % HOUR_S
        known_h = int((forecast_KSL.shape[2] - 1) - ahead_s / HOUR_S)
        edge_s = ahead_s + HOUR_S * np.arange(min(hours, known_h) + 1)
        price_H, carbon_H = (
            np.diff([lead_integral(forecast_KSL, kind, site, float(edge)) for edge in edge_s])
            for kind in (PRICE, CARBON)
        )
        if self._measure == "cost":
            cost_H = np.array(
                [energy_usd(view, *pair) for pair in zip(price_H.tolist(), carbon_H.tolist(), strict=True)]
            )
        else:
            cost_H = price_H if self._measure == "price" else carbon_H
        unknown_H = np.isnan(cost_H)
        cost_H = cost_H[: int(unknown_H.argmax())] if unknown_H.any() else cost_H
        most = float(cost_H.max(initial=0.0))
        if most <= 0.0:
            return np.ones(len(cost_H))
        return np.where(cost_H > 0.0, cost_H, LEAST_SHARE * most)


def _life(view: ClusterView, job: int) -> Any:
    """Returns what a job has lived through (LIFE), or None of one that has not started."""
    return view.life_J[job] if len(view.life_J) > 1 and view.life_J["own_gpus"][job] > 0 else None


def _resized(view: ClusterView, job: int, gang: int) -> bool:
    """Returns whether a job was suspended and may be resumed on so many GPUs at most."""
    life = _life(view, job)
    return life is not None and bool(life["suspensions"] > 0) and resume_gang(view, job, gang) > 0


def _runs_here(view: ClusterView, job: int, site: int) -> bool:
    """Returns whether a site is large enough for a job, and in its range."""
    record = view.job_J[job]
    return bool(record["gpus_min"] <= view.site_S["gpus"][site] and view.range_CS[record["class_"], site])


def _own_gang(view: ClusterView, job: int, site: int) -> tuple[int, int]:
    """Returns (GPUs, clock level) that a job started on, or is to start on: the largest gang that it asks for."""
    life = _life(view, job)
    if life is not None:
        return int(life["own_gpus"]), int(life["level"])
    own = int(min(view.job_J["gpus_max"][job], view.site_S["gpus"][site]))
    return own, int(view.oracle_SCG[site, view.job_J["class_"][job], own])


def _gangs(view: ClusterView, job: int, site: int) -> tuple[I8, F8, F8]:
    """Returns (GPUs, throughput over that on its own gang, power in W) of a job's gangs; the first is none at all.

    Only a job that asks for one number of GPUs, which its class lists, has others than its own.
    """
    record, freedom, life = view.job_J[job], view.freedom_C[view.job_J["class_"][job]], _life(view, job)
    own, level = _own_gang(view, job, site)
    listed = freedom["gang_gpus"][: freedom["gangs"]].tolist()
    one = bool(record["gpus_min"] == record["gpus_max"])
    stopped_before = life is not None and bool(life["suspensions"] > 0)  # it then shows what it may be resized to
    gangs, speeds = [0, own], [0.0, 1.0]
    if own in listed and one != stopped_before:
        fits = [n for n, gpus in enumerate(listed) if gpus <= view.site_S["gpus"][site]]
        speed_N = freedom["gang_speed"] / freedom["gang_speed"][listed.index(own)]
        gangs, speeds = [0, *(listed[n] for n in fits)], [0.0, *(float(speed_N[n]) for n in fits)]
    gang_N = np.array(gangs, dtype=np.int64)
    power_N = np.where(gang_N > 0, view.speed_KSCGF[POWER_W, site, record["class_"], gang_N, level], 0.0)
    return gang_N, np.array(speeds), power_N


def _left_s(view: ClusterView, job: int, site: int) -> float:
    """Returns how long what is left of a job takes on its own gang at full power, s, by the run time that is told."""
    record, life = view.job_J[job], _life(view, job)
    own, level = _own_gang(view, job, site)
    left_s = float(record["work"] * view.speed_KSCGF[SECONDS, site, record["class_"], own, level])
    if life is not None and life["state"] == RUNS:
        left_s -= progress_s(view, job)
    return left_s
