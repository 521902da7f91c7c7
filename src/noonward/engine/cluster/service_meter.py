"""Energy and constraint costs per decision of protocol on-arrival: what a constrained learner is rewarded by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.kernels.service_meter import Open, Readings, read_service
from noonward.model.limits import Constraints

MAY_EXCEED: Final = 0.01
"""Share of jobs that may be later than the limit of the 99th percentile, of decisions that may exceed a power cap."""
PLACES: Final = 64
WORK, DECISIONS = "work", "decisions"
"""Names of the last two columns."""


def cost_names(constraints: Constraints | None, sites: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the costs that a ``ServiceMeter`` reads: one a limit, in the order of its columns."""
    return () if constraints is None else tuple(constraints.named(sites))


@dataclass(frozen=True, kw_only=True)
class EnergyMix:
    """What a joule counts: ``energy + usd price / 100 USD/MWh + carbon intensity / 500 g/kWh``, J.

    So a weight of 1 makes price or carbon as heavy as the energy itself where a MWh costs 100 USD or a kWh emits 500 g;
    in other words a USD counts 3.6e7 J times ``usd`` and a kgCO2 7.2e6 J times ``carbon``.

    Attributes:
        energy: Weight of the energy.
        usd: Weight of its price; needs signals.
        carbon: Weight of its carbon intensity; needs signals.
    """

    energy: float = 1.0
    usd: float = 0.0
    carbon: float = 0.0

    @property
    def needs_signals(self) -> bool:
        """Whether prices or intensities count."""
        return self.usd > 0 or self.carbon > 0


ENERGY_ALONE: Final = EnergyMix()
"""A joule counts as such wherever and whenever it is used."""


class ServiceMeter:
    """Reads rewards and constraint costs of the rows of a batch engine, protocol on-arrival.

    **Reward** of a decision: minus the energy of the job's whole run beyond what its GPUs would draw free, over the
    mean size of a job: J per unit of work, weighted by the job's size, so that rewards sum to the energy of Eq. 3 of
    CHSAC-AF but for what no decision changes. Under an ``EnergyMix`` each joule is weighed by the price and the carbon
    intensity of its hour and site, as the ledger settles them.

    **Costs** are relative excesses over the limits, so that a constraint holds where their mean is at most 0:

    | limit | cost of a decision |
    |---|---|
    | mean latency | end-to-end latency of the job / limit - 1 |
    | 99th percentile | (1 if the job's latency exceeds the limit) / 0.01 - 1 |
    | queue of a site | jobs that wait / limit - 1 at the next decision; the jobs that wait for a limit of 0 |
    | power cap of a site | (1 if it sent the job there and the power then exceeds the cap) / 0.01 - 1 |

    The power is that at the next decision. A decision is not charged for a site that it leaves alone: there the power
    falls as jobs finish, minutes after any choice could answer for it, and a cost that comes whatever is chosen teaches
    nothing.

    Where arrivals are Poisson at a constant rate (``dvfs-training``), what they find is the mean over time; where the
    rate varies (``dvfs-mixed``), busy hours count more. Two columns follow: the work of the job decided on over the
    mean size, and 1. A job is credited whole when it is decided on; see ``read_service``.

    Args:
        engine: Rows; each at its first question.
        constraints: Limits; the same for all rows.
        unit_work: Mean size of a job, units.
        mix: What a joule counts.
    """

    def __init__(
        self,
        engine: BatchEngine,
        constraints: Constraints | None,
        unit_work: float,
        mix: EnergyMix = ENERGY_ALONE,
    ) -> None:
        rows, self.sites = engine.rows, engine.environments[0].sites
        limits = constraints or Constraints()
        self.engine, self.unit_work = engine, unit_work
        self._weight_3 = np.array(astuple(mix))
        self.mean_s, self.p99_s = limits.mean_latency_s, limits.p99_latency_s
        queue = [limits.queue_limit(site) for site in self.sites]
        self.queue_S = np.array([np.nan if limit is None else limit for limit in queue])
        self.cap_S = np.array([limits.power_cap_w.get(site, np.nan) for site in self.sites])
        self._open = Open(
            np.full(rows, -1, np.int64),
            np.zeros(rows, np.int64),
            np.zeros((rows, PLACES), np.int64),
            np.zeros((rows, PLACES, 3)),
        )
        zero_B, zero_BS = np.zeros(rows), np.zeros((rows, len(self.sites)))
        self._readings = Readings(
            joules_B=zero_B,
            latency_B=zero_B.copy(),
            late_B=zero_B.copy(),
            work_B=zero_B.copy(),
            decided_B=zero_B.copy(),
            site_B=np.full(rows, -1, np.int64),
            waiting_BS=zero_BS,
            power_BS=zero_BS.copy(),
        )
        for row in range(rows):
            self.begin(row)

    def begin(self, row: int) -> None:
        """Forgets a row, which has been started anew."""
        self._open.count_B[row] = 0
        self._open.last_B[row] = self.engine.row_view(row).asked_N[0] if self.engine.asked_BN[row, 0] else -1

    def read(self) -> tuple[F8, F8]:
        """Returns rewards [B] and costs [B, K + 2] of the last step."""
        if int(self._open.count_B.max()) + 1 > self._open.job_BP.shape[1]:
            self._widen(2 * self._open.job_BP.shape[1])
        limit_s = np.inf if self.p99_s is None else self.p99_s
        read_service(
            self.engine.places,
            self.engine.asked_BN,
            self._open,
            self._readings,
            float(limit_s),
            self._weight_3,
            np.zeros(3),
        )
        found = self._readings
        columns: list[F8] = []
        if self.mean_s is not None:
            columns.append(found.latency_B / self.mean_s - found.decided_B)
        if self.p99_s is not None:
            columns.append(found.late_B / MAY_EXCEED - found.decided_B)
        for s in np.flatnonzero(~np.isnan(self.queue_S)):
            limit = self.queue_S[s]
            columns.append(found.decided_B * (found.waiting_BS[:, s] - limit) / (limit or 1.0))
        for s in np.flatnonzero(~np.isnan(self.cap_S)):
            over_B = (found.site_B == s) & (found.power_BS[:, s] > self.cap_S[s])
            columns.append(found.decided_B * (over_B / MAY_EXCEED - 1.0))
        columns += [found.work_B / self.unit_work, found.decided_B]
        return -found.joules_B / self.unit_work, np.column_stack(columns)

    def _widen(self, places: int) -> None:
        """Makes room for more jobs that have not started."""
        rows, used = self._open.job_BP.shape
        job_BP, credit_BPX = np.zeros((rows, places), np.int64), np.zeros((rows, places, 3))
        job_BP[:, :used], credit_BPX[:, :used] = self._open.job_BP, self._open.credit_BPX
        self._open = self._open._replace(job_BP=job_BP, credit_BPX=credit_BPX)

    def state(self) -> dict[str, Any]:
        """Returns a copy of what is credited of jobs that have not started."""
        return {name: array.copy() for name, array in self._open._asdict().items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        self._open = Open(**{name: np.array(state[name]) for name in Open._fields})
