"""Shows another scheduler the price of the next kWh at each site instead of that of energy (protocol each-slot)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from noonward.arrays import F8
from noonward.decision.brief import Brief
from noonward.decision.cluster.power_price import PowerPrices
from noonward.decision.cluster.view import PRICE, Answers, ClusterView
from noonward.decision.scheduler import Scheduler, State
from noonward.errors import ScenarioError
from noonward.schedule.cluster.bid_price import BidPrice
from noonward.schedule.cluster.planned_power import least_and_most_kw
from noonward.units import DAY_H, HOUR_S


class PowerPriced(Scheduler):
    """Answers as another scheduler does that is shown what the next kWh costs at sites with tariffs.

    The prices of now and of the forecast are raised by what ``PowerPrices.marginal_price`` says beyond the price of
    energy: peaks, coincident peaks as they are forecast, sun, battery, announced events. The load of this hour is that
    of now, that of an hour to come is what was drawn a day before it, or is drawn now where that is unknown. A busy GPU
    counts as one that draws the most that its type does. Without tariffs nothing changes.

    Args:
        base: Scheduler of protocol each-slot that does not price power itself.

    Raises:
        ScenarioError: The base answers another protocol, or prices power itself.
    """

    def __init__(self, base: Scheduler) -> None:
        if "each-slot" not in base.needs.protocols:
            raise ScenarioError("power is priced for a scheduler of protocol each-slot; choose another one")
        if isinstance(base, BidPrice) and base.peaks:
            raise ScenarioError("bid prices price power themselves; name the policy alone, or with peaks=no")
        self._base = base
        self.needs = replace(base.needs, protocols=("each-slot",))
        self._power: PowerPrices | None = None

    def reset(self, brief: Brief, rng: np.random.Generator) -> None:
        """Prepares both for a run."""
        self._base.reset(brief, rng)
        foresight = self.needs.forecast is not None and self.needs.forecast.foresight
        self._power = PowerPrices.of(brief, foresight=foresight) if self.needs.signals else None
        self._idle_kw_S, self._most_kw_S = least_and_most_kw(brief)
        self._gpus_S = np.array([site.gpus for site in brief.fleet.sites])
        self._hour, self._since_s = 0, 0.0
        self._drawn_kw_HS, self._kwh_S = np.zeros((0, len(brief.sites))), np.zeros(len(brief.sites))
        self._kw_S = self._idle_kw_S.copy()
        self._shown: ClusterView | None = None

    def remarks(self, brief: Brief) -> tuple[str, ...]:
        """Returns those of the scheduler below."""
        return self._base.remarks(brief)

    def state(self) -> State:
        """Returns what was drawn and the state of the scheduler below."""
        return {
            "hour": self._hour,
            "since_s": self._since_s,
            "drawn_kw_HS": self._drawn_kw_HS.copy(),
            "kwh_S": self._kwh_S.copy(),
            "kw_S": self._kw_S.copy(),
            "base": self._base.state(),
        }

    def load_state(self, state: State) -> None:
        """Restores both from ``state()``."""
        if set(state) != {"hour", "since_s", "drawn_kw_HS", "kwh_S", "kw_S", "base"}:
            raise ScenarioError(
                f"the state holds {', '.join(sorted(state)) or 'nothing'}; restore the state of a scheduler that was "
                "made in the same way"
            )
        self._hour, self._since_s = int(state["hour"]), float(state["since_s"])
        self._drawn_kw_HS, self._kwh_S, self._kw_S = (
            np.array(state[name]) for name in ("drawn_kw_HS", "kwh_S", "kw_S")
        )
        self._base.load_state(state["base"])

    def decide(self, view: ClusterView, answers: Answers) -> None:
        """Answers as the scheduler below at the prices of power."""
        if self._power is None:
            self._base.decide(view, answers)
            return
        self._note_drawn(view)
        shown = self._copy(view)
        for s in self._power.sites:
            self._show(view, shown, s, self._power)
        self._base.decide(shown, answers)

    def _note_drawn(self, view: ClusterView) -> None:
        """Adds what was drawn since the last question to the hours that have passed; the load was that of then."""
        now_s = view.now_s
        while (self._hour + 1) * HOUR_S <= now_s:
            end_s = (self._hour + 1) * HOUR_S
            self._kwh_S += self._kw_S * (end_s - self._since_s) / HOUR_S
            self._drawn_kw_HS = np.concatenate([self._drawn_kw_HS, self._kwh_S[None]])
            self._kwh_S, self._hour, self._since_s = np.zeros(len(self._kwh_S)), self._hour + 1, end_s
        self._kwh_S += self._kw_S * (now_s - self._since_s) / HOUR_S
        self._since_s = now_s
        busy_S = 1.0 - view.free_S / self._gpus_S
        self._kw_S = self._idle_kw_S + busy_S * (self._most_kw_S - self._idle_kw_S)

    def _copy(self, view: ClusterView) -> ClusterView:
        """Returns the view with prices of its own, at the same place as before, so that compiled rules find them."""
        held = self._shown
        if held is None or held.forecast_KSL.shape != view.forecast_KSL.shape:
            held = view._replace(site_S=view.site_S.copy(), forecast_KSL=view.forecast_KSL.copy())
        np.copyto(held.site_S, view.site_S)
        np.copyto(held.forecast_KSL, view.forecast_KSL)
        self._shown = view._replace(site_S=held.site_S, forecast_KSL=held.forecast_KSL)
        return self._shown

    def _show(self, view: ClusterView, shown: ClusterView, s: int, power: PowerPrices) -> None:
        """Raises a site's prices of now and of the forecast by what the next kWh costs beyond energy."""
        price_H = np.diff(view.forecast_KSL[PRICE, s]) / HOUR_S
        price_H = price_H[: int(np.isnan(price_H).argmax())] if np.isnan(price_H).any() else price_H
        if not len(price_H):
            price_H = np.array([float(view.site_S["price"][s])])
        more_H = power.marginal_price(
            s, self._hour, self._expected_kw(s, max(len(price_H), DAY_H))[: len(price_H)], price_H,
            self._drawn_kw_HS[:, s], float(self._most_kw_S[s]),
        ) - price_H  # fmt: skip
        shown.site_S["price"][s] += more_H[0]
        reach = min(len(more_H), view.forecast_KSL.shape[2] - 1)
        if reach > 0:
            added = np.cumsum(more_H[:reach]) * HOUR_S
            shown.forecast_KSL[PRICE, s, 1 : reach + 1] += added
            shown.forecast_KSL[PRICE, s, reach + 1 :] += added[-1]

    def _expected_kw(self, s: int, hours: int) -> F8:
        """Returns the load of a site from this hour on: now, then what was drawn a day before each hour, kW."""
        at_H = self._hour + np.arange(hours)
        at_H -= DAY_H * -(-(at_H - self._hour + 1) // DAY_H)
        known_H = at_H >= 0
        drawn_H = self._drawn_kw_HS[np.where(known_H, at_H, 0), s] if len(self._drawn_kw_HS) else np.zeros(hours)
        kw_H = np.where(known_H, drawn_H, self._kw_S[s])
        kw_H[0] = self._kw_S[s]
        return np.asarray(kw_H)
