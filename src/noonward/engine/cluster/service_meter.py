"""Energy and constraint costs per decision of protocol on-arrival: what a constrained learner is rewarded by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from noonward.arrays import F8
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.cluster.kernels.service_meter import Open, Readings, read_service
from noonward.model.limits import Limit

PLACES: Final = 64
WORK, DECISIONS = "work", "decisions"
"""Names of the last two columns."""


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
    intensity of its hour and site, as the ledger settles them. Where the environment states preferences
    (``latency_weight_w``), the reward is less by the job's time in system, a second weighed by the job's class.

    **Costs** are relative excesses over the limits, one column a limit, so that a limit holds where their mean is at
    most 0; each ``Limit`` says what a decision costs. Queues and powers are those at the next decision.

    Where arrivals are Poisson at a constant rate (``dvfs-training``), what they find is the mean over time; where the
    rate varies (``dvfs-mixed``), busy hours count more. Two columns follow: the work of the job decided on over the
    mean size, and 1. A job is credited whole when it is decided on; see ``read_service``.

    Args:
        engine: Rows; each at its first question.
        limits: Limits (``Constraints.limits``); the same for all rows.
        unit_work: Mean size of a job, units.
        mix: What a joule counts.
    """

    def __init__(
        self,
        engine: BatchEngine,
        limits: Sequence[Limit],
        unit_work: float,
        mix: EnergyMix = ENERGY_ALONE,
    ) -> None:
        rows, sites = engine.rows, len(engine.environments[0].sites)
        self.engine, self.limits, self.unit_work = engine, tuple(limits), unit_work
        self._weight_3 = np.array(astuple(mix))
        first = engine.environments[0]
        self._second_C = np.array([first.latency_weight_w.get(name, 0.0) for name in first.fleet.classes])
        self._late_after_s = min((limit.late_after_s for limit in limits), default=np.inf)
        self._open = Open(
            np.full(rows, -1, np.int64),
            np.zeros(rows, np.int64),
            np.zeros(rows, np.int64),
            np.zeros((rows, PLACES), np.int64),
            np.zeros((rows, PLACES), np.int64),
            np.zeros((rows, PLACES, 3)),
        )
        zero_B, zero_BS = np.zeros(rows), np.zeros((rows, sites))
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
        """Forgets a row, which has been started again."""
        self._open.count_B[row] = 0
        view = self.engine.row_view(row)
        self._open.slot_B[row] = view.job
        self._open.last_B[row] = view.serial_N[0] if self.engine.asked_BN[row, 0] else -1

    def read(self) -> tuple[F8, F8]:
        """Returns rewards [B] and costs [B, K + 2] of the last step."""
        if int(self._open.count_B.max()) + 1 > self._open.slot_BP.shape[1]:
            self._widen(2 * self._open.slot_BP.shape[1])
        read_service(
            self.engine.places,
            self.engine.asked_BN,
            self._open,
            self._readings,
            float(self._late_after_s),
            self._weight_3,
            self._second_C,
            np.zeros(3),
        )
        found = self._readings
        columns = [limit.cost(found) for limit in self.limits]
        columns += [found.work_B / self.unit_work, found.decided_B]
        return -found.joules_B / self.unit_work, np.column_stack(columns)

    def _widen(self, places: int) -> None:
        """Makes room for more jobs that have not started."""
        more = {}
        for name in ("slot_BP", "serial_BP", "credit_BPX"):
            old = getattr(self._open, name)
            more[name] = np.zeros((len(old), places, *old.shape[2:]), old.dtype)
            more[name][:, : old.shape[1]] = old
        self._open = self._open._replace(**more)

    def state(self) -> dict[str, Any]:
        """Returns a copy of what is credited of jobs that have not started."""
        return {name: array.copy() for name, array in self._open._asdict().items()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        self._open = Open(**{name: np.array(state[name]) for name in Open._fields})
