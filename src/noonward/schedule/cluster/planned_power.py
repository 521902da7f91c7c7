"""The load of sites with tariffs under a plan, and what the next kW costs at it: for planners that price power."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from noonward.arrays import F8, I8, Records
from noonward.decision.brief import Brief
from noonward.decision.cluster.power_price import PowerPrices
from noonward.decision.cluster.view import POWER_W, PRICE, ClusterView
from noonward.decision.scheduler import State
from noonward.schedule.cluster.capacity_prices import DAY_H, PRICED_H
from noonward.units import HOUR_S

LOAD_STEP: Final = 0.1
"""Weight of a round's load in the mean over the rounds that power is priced at."""
W_PER_KW: Final = 1000.0
W_PER_MW: Final = 1e6


class PlannedPower:
    """Load of a run's sites by the hours that are priced: what the plan adds, and what was drawn so far.

    Args:
        brief: Brief of a run.
        power: Prices of power.
    """

    def __init__(self, brief: Brief, power: PowerPrices) -> None:
        self._power, self._per_hour = power, round(HOUR_S / brief.slot_s)
        self._hour = -1
        sites = len(brief.sites)
        self._load_w_SH, self._booked_w_SH = np.zeros((2, sites, PRICED_H))
        self._drawn_kw_HS = np.zeros((0, sites))
        self._idle_kw_S, self._most_kw_S = least_and_most_kw(brief)

    @classmethod
    def of(cls, brief: Brief, *, foresight: bool) -> PlannedPower | None:
        """Returns the load of a run's sites; None where power has no price beyond that of energy."""
        power = PowerPrices.of(brief, foresight=foresight)
        return None if power is None else cls(brief, power)

    @property
    def kept(self) -> State:
        """What a state of a run holds of it."""
        return {
            "load_w_SH": self._load_w_SH,
            "booked_w_SH": self._booked_w_SH,
            "drawn_kw_HS": self._drawn_kw_HS,
            "power_hour": self._hour,
        }

    def restore(self, state: State) -> None:
        """Restores it from what ``kept`` gave."""
        self._load_w_SH, self._booked_w_SH, self._drawn_kw_HS = (
            np.array(state[name]) for name in ("load_w_SH", "booked_w_SH", "drawn_kw_HS")
        )
        self._hour = int(state["power_hour"])

    def move(self, hour: int, ahead_H: I8) -> None:
        """Moves on to an hour; what was booked last for the hours before it counts as drawn.

        Args:
            hour: Hour since the run's start.
            ahead_H: Which of the priced hours stands for each from there on.
        """
        past = np.minimum(np.arange(hour - self._hour), PRICED_H - 1)
        drawn_kw_SH = self._idle_kw_S[:, None] + self._booked_w_SH[:, past] / W_PER_KW
        self._drawn_kw_HS = np.concatenate([self._drawn_kw_HS, drawn_kw_SH.T])
        self._load_w_SH[:] = self._load_w_SH[:, ahead_H]
        self._hour = hour

    def begin(self, hour: int) -> None:
        """Begins at an hour; nothing is known of what was drawn before it."""
        self._hour = hour
        self._drawn_kw_HS = np.zeros((hour, len(self._idle_kw_S)))

    def note_plan(self, added_w_SH: F8) -> None:
        """Adds a round's plan to the mean load.

        Args:
            added_w_SH: Facility power that running and planned jobs add by site and priced hour, W.
        """
        self._load_w_SH += LOAD_STEP * (added_w_SH - self._load_w_SH)

    def note_books(self, view: ClusterView, plan_J: Records) -> None:
        """Keeps what the bookings of all jobs add: of the hours that pass, what they drew."""
        self._booked_w_SH[:] = self.booked_w(view, plan_J, np.flatnonzero(plan_J["site"] >= 0))

    def booked_w(self, view: ClusterView, plan_J: Records, jobs: I8) -> F8:
        """Returns the mean facility power that the bookings of some jobs add by site and priced hour, W."""
        plan, class_ = plan_J[jobs], view.job_J["class_"][jobs]
        s, gpus = plan["site"], plan["gpus"]
        full_w = view.speed_KSCGF[POWER_W, s, class_, gpus, view.oracle_SCG[s, class_, gpus]]
        power_w = full_w * view.freedom_C["cap_power"][class_, plan["cap"]]
        added_w = view.site_S["pue"][s] * (power_w - gpus * view.site_S["free_w"][s])
        slots, slot_0 = PRICED_H * self._per_hour, self._hour * self._per_hour
        step_w_ST = np.zeros((len(view.site_S), slots + 1))
        np.add.at(step_w_ST, (s, np.clip(plan["slot"] - slot_0, 0, slots)), added_w)
        np.subtract.at(step_w_ST, (s, np.clip(plan["slot"] + plan["slots"] - slot_0, 0, slots)), added_w)
        by_slot = step_w_ST.cumsum(axis=1)[:, :-1]
        return np.asarray(by_slot.reshape(len(view.site_S), PRICED_H, self._per_hour).mean(axis=2))

    def add_to(self, view: ClusterView, energy_SR: F8) -> None:
        """Adds what power costs beyond the forecast price of energy to running integrals of the latter, USD per W."""
        for s in self._power.sites:
            price_L = np.diff(view.forecast_KSL[PRICE, s]) / HOUR_S
            unknown_L = np.isnan(price_L)
            known = int(unknown_L.argmax()) if unknown_L.any() else len(price_L)
            price_H = price_L[repeated(PRICED_H, known)]
            kw_H = self._idle_kw_S[s] + self._load_w_SH[s] / W_PER_KW
            most_kw = float(self._most_kw_S[s])
            next_H = self._power.marginal_price(s, self._hour, kw_H, price_H, self._drawn_kw_HS[:, s], most_kw)
            more_R = (next_H - price_H)[repeated(energy_SR.shape[1], PRICED_H)] / W_PER_MW
            energy_SR[s, 1:] += np.cumsum(more_R[:-1])


def least_and_most_kw(brief: Brief) -> tuple[F8, F8]:
    """Returns the power of every site with all GPUs free, and with all at their largest power, kW; with base load."""
    tables = brief.fleet.tables(brief.largest_gang)
    base_kw_S = np.array([0.0 if site.meter is None else site.meter.base_kw for site in brief.fleet.sites])
    gangs_G = np.arange(1, brief.largest_gang + 1)[:, None]
    busy_w_S = np.nanmax(tables.power_w_SCGF[:, :, 1:] / gangs_G, axis=(1, 2, 3))
    kw_S = tables.gpus_S * tables.pue_S / W_PER_KW
    return base_kw_S + kw_S * tables.free_w_S, base_kw_S + kw_S * np.maximum(busy_w_S, tables.free_w_S)


def repeated(hours: int, known: int) -> I8:
    """Returns which of some known hours, at least 1, stands for each of some hours: those beyond repeat the last day.

    Example:
        >>> repeated(6, 4).tolist()
        [0, 1, 2, 3, 0, 1]
    """
    hour_H: Any = np.arange(hours)
    day = min(DAY_H, known)
    return np.asarray(np.where(hour_H < known, hour_H, known - day + (hour_H - known) % day))
