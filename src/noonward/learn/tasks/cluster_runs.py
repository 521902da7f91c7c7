"""Whole runs of cluster scenarios for learners that play them: what became of every job, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from noonward.arrays import F4, F8, Records
from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.engine.cluster.build import forecast_issuer
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import ScenarioError
from noonward.forecasts.forecast import Forecast
from noonward.learn.core.experience import Credit, Played, Studied
from noonward.ledger.ledger import SettledRun, late_gpu_hours_of, settle_run, total
from noonward.ledger.segments import Outcome
from noonward.ledger.utility import utility_usd
from noonward.model.cluster.environment import Environment
from noonward.schedule.cluster.choices.layout import INPUTS, PRICE_INPUTS
from noonward.schedule.cluster.choices.policy import ChoicePolicy
from noonward.schedule.cluster.choices.prices import PRICED_H, price_inputs, write_costs
from noonward.units import HOUR_S


class ClusterRuns:
    """Training and validation windows as whole runs.

    Args:
        training: Environment and seed of a draw's number.
        validation: The same of validation windows.
    """

    def __init__(
        self, training: Callable[[int], tuple[Environment, int]], validation: Callable[[int], tuple[Environment, int]]
    ) -> None:
        self.training, self.validation = training, validation
        self._window: dict[int, tuple[Environment, int]] = {}
        self._price: dict[int, F8] = {}

    def study(self, number: int, scheduler: ChoicePolicy) -> tuple[Studied, F8]:
        """Finds the capacity duals of a training window, and what forecasts of its costs looked like at its start.

        Args:
            number: Number of the window.
            scheduler: Policy that is to learn; its costs are reckoned with the signals as they came.

        Returns:
            What the price net is fed and fitted to; the duals, USD per GPU-hour, [S, H].
        """
        environment, price_SH = self._environment(number)[0], self._price_SH(number)
        inputs_RI, hours = _price_inputs(environment, scheduler, price_SH.shape[1])
        return Studied(inputs_RI, price_SH[:, :hours].T.ravel() / _revenue(environment)), price_SH

    def play(
        self, number: int, scheduler: ChoicePolicy, credit: Credit, draw: int, price_SH: F8 | None = None
    ) -> Played:
        """Runs a training window under a policy that notes its questions.

        Args:
            number: Number of the window.
            scheduler: Policy.
            credit: How returns are counted.
            draw: Seed of the policy's stream.
            price_SH: The window's capacity duals from ``study``; None: they are found here.
        """
        environment, _ = self._environment(number)
        outcome = run(environment, scheduler, seed=draw)
        settled = settle_run(outcome)
        if credit.capacity_price <= 0.0:
            price_SH = np.zeros((len(environment.sites), 1))
        elif price_SH is None:
            price_SH = self._price_SH(number)
        value_J = job_values_usd(outcome, settled) - credit.capacity_price * capacity_usd(outcome.job_J, price_SH)
        notes_QX, questions = scheduler.noted
        job_Q, hour_Q = notes_QX[:, INPUTS].astype(np.int64), notes_QX[:, INPUTS + 1].astype(np.float64)
        size_J = environment.jobs.gpus_max_J * environment.jobs.work_J / HOUR_S
        start_h_J = outcome.job_J["start_s"] / HOUR_S
        slots = HOUR_S / environment.slot_s
        waited_Q = np.nan_to_num(start_h_J[job_Q] - hour_Q)
        revenue = _revenue(environment)
        own_Q = credit.gamma ** (slots * np.maximum(waited_Q, 0.0)) * value_J[job_Q] / (revenue * size_J[job_Q])
        return Played(
            inputs_QI=notes_QX[:, :INPUTS].copy(),
            own_Q=own_Q,
            team_Q=discounted_from(value_J, start_h_J, hour_Q, credit.gamma**slots) / (revenue * float(size_J.mean())),
            gpu_hours_Q=size_J[job_Q],
            utility_usd=total(outcome, settled).utility_usd,
            questions=questions,
        )

    def worth(self, number: int, scheduler: ChoicePolicy) -> float:
        """Returns the utility of a validation run, USD."""
        environment, seed = self.validation(number)
        outcome = run(environment, scheduler, seed=seed)
        return float(total(outcome, settle_run(outcome)).utility_usd)

    def _environment(self, number: int) -> tuple[Environment, int]:
        """Returns a training window, drawn once."""
        if number not in self._window:
            environment, seed = self.training(number)
            if not environment.drained:
                raise ScenarioError(
                    f"scenario {environment.scenario!r} ends with its window, so the capacity prices that masac-credit "
                    "learns from are not known; set end=drained, or train another algorithm"
                )
            self._window[number] = environment, seed
        return self._window[number]

    def _price_SH(self, number: int) -> F8:
        """Returns the capacity duals of a training window, USD per GPU-hour, found once."""
        if number not in self._price:
            bound = utility_bound(self._environment(number)[0], schedule=False)
            self._price[number] = bound.price_usd_per_gpu_hour_SH
        return self._price[number]


def _revenue(environment: Environment) -> float:
    """Returns the revenue of a GPU-hour, USD."""
    assert environment.economics is not None
    return environment.economics.revenue_usd_per_gpu_hour


def _price_inputs(environment: Environment, scheduler: ChoicePolicy, known: int) -> tuple[F4, int]:
    """Returns what the price net is fed at a window's start about every priced hour and site, and how many hours.

    The costs are those of the signals as they came (``perfect``): the net learns what cheap hours are worth. It is fed
    forecasts when it is used.
    """
    shown = ChoicePolicy(scheduler.nets, Forecast("perfect"))
    engine = ClusterEngine(environment, shown)
    issuer = forecast_issuer(environment, shown.needs, 0)
    assert issuer is not None
    view = engine.view
    issuer.issue(0, view.forecast_KSL[:, None])
    sites = len(environment.sites)
    table_XY = np.zeros((4 * sites + 1, engine.brief.lookahead_h + 2))
    write_costs(view, table_XY)
    hours = min(PRICED_H, known, table_XY.shape[1])
    inputs_HSI = np.zeros((hours, sites, PRICE_INPUTS), np.float32)
    price_inputs(view, table_XY, environment.window_s / HOUR_S, float(environment.start.hour), inputs_HSI)
    return inputs_HSI.reshape(-1, PRICE_INPUTS), hours


def job_values_usd(outcome: Outcome, settled: SettledRun) -> F8:
    """Returns what every job of a run earned over leaving its GPUs free, journeys and lateness paid, USD, [J].

    With the utility of a fleet that runs nothing, they sum to the run's utility.
    """
    economics = outcome.environment.economics
    assert economics is not None
    net_JA = settled.power.job_JA - settled.power.displaced_JA
    journey_JA = settled.move_JA + settled.result_JA
    revenue_J = economics.revenue_usd_per_gpu_hour * settled.power.gpu_s_J / HOUR_S
    energy_usd_J, kg_J = net_JA[:, 1], net_JA[:, 2] + journey_JA[:, 2]
    cost_J = utility_usd(0.0, economics.carbon_usd_per_t, 0.0, energy_usd_J, kg_J, journey_JA[:, 1])  # type: ignore[arg-type]
    late_usd_J = outcome.environment.late_usd_per_gpu_hour * late_gpu_hours_of(outcome)
    return np.asarray(revenue_J + cost_J - late_usd_J)


def capacity_usd(job_J: Records, price_SH: F8) -> F8:
    """Returns what the GPU-hours of every job cost at prices by site and hour, USD, [J]; later hours cost nothing.

    Args:
        job_J: JOB_OUTCOME records.
        price_SH: Prices, USD per GPU-hour.
    """
    out_J = np.zeros(len(job_J))
    started = np.flatnonzero(np.isfinite(job_J["start_s"]))
    site, hours = job_J["site"][started], price_SH.shape[1]
    paid_SR = np.concatenate([np.zeros((len(price_SH), 1)), np.cumsum(price_SH, axis=1)], axis=1)

    def integral(time_s: F8) -> F8:
        at_h = np.minimum(time_s / HOUR_S, hours)
        hour = np.minimum(at_h.astype(np.int64), hours - 1)
        return np.asarray(paid_SR[site, hour] + price_SH[site, hour] * (at_h - hour))

    out_J[started] = job_J["gpus"][started] * (
        integral(job_J["finish_s"][started]) - integral(job_J["start_s"][started])
    )
    return out_J


def discounted_from(value_J: F8, start_h_J: F8, hour_Q: F8, gamma_h: float) -> F8:
    """Returns the discounted value of all jobs that start at or after each question, USD, [Q]."""
    started = np.flatnonzero(np.isfinite(start_h_J))
    order = started[np.argsort(start_h_J[started], kind="stable")]
    start_h, value = start_h_J[order], value_J[order]
    if gamma_h <= 0.0:
        return np.zeros(len(hour_Q))
    return_from = np.zeros(len(order) + 1)
    for k in range(len(order) - 1, -1, -1):
        gap = start_h[k + 1] - start_h[k] if k + 1 < len(order) else 0.0
        return_from[k] = value[k] + gamma_h**gap * return_from[k + 1]
    first = np.searchsorted(start_h, hour_Q - 1e-6, side="left")
    next_h = np.append(start_h, np.inf)[first]
    until_h = np.where(first < len(order), next_h - hour_Q, 0.0)
    return np.asarray(gamma_h**until_h * return_from[first])
