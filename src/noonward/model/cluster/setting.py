"""The setting of a run: all that holds before its first job, said once for simulations, plans and live services."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from noonward.model.cluster.fleet import Fleet
from noonward.model.cluster.pue import PueByHour
from noonward.model.cluster.site_prices import SitePrices
from noonward.model.cluster.solar import SolarByHour
from noonward.model.cluster.system_load import SystemLoadByHour
from noonward.model.cluster.tenant import Tenants
from noonward.model.cluster.water import WaterByHour
from noonward.model.cluster.withheld import Withheld
from noonward.model.economics import Economics
from noonward.model.limits import Constraints
from noonward.model.network import Links
from noonward.paging import leave_memory

Protocol = Literal["each-slot", "on-arrival"]
FORECAST_H: Final = 240
"""Hours that forecasts reach where nothing else is stated or known."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run holds before its first job; an environment adds jobs and signals, a brief what a scheduler is told.

    A field that is added here reaches environments, briefs, the live service and the digests of records at once.

    Attributes:
        scenario: Name of the scenario it is of; a label, no part of the digest.
        start: UTC time of second 0, a full hour.
        protocol: When the scheduler is asked.
        slot_s: Length of a slot, s (``each-slot``).
        window_s: Horizon over which free GPUs are charged, s; whole hours, infinite for a service. With ``drained``
            false the run stops there; with it true the run continues until every job is done or overdue.
        drained: See ``window_s``.
        fleet: Sites and GPU types.
        links: Network, ingress points x sites.
        economics: Revenue and carbon price; None where there are none (utility is then not reported).
        constraints: Limits that policies are held against and targets that some policies use, or None.
        latency_weight_w: Joules that a second of a job's time in system counts, per class; empty: none is stated.
        late_until_s: Time until which jobs may start after their latest start, s; -inf: they are dropped then.
        late_usd_per_gpu_hour: Price of an hour that a job starts late, per GPU of its smallest gang, USD.
        pue: PUE of the sites by the hour, or None where it is one number at all of them.
        solar: Yield of the sites' solar cells by the hour, or None where no site has any.
        water: On-site water of the sites by the hour, or None where no site states any.
        plants: Output of the plants that sites have contracts for, or None where no site has one.
        system_load: Load of the systems of sites whose tariffs charge for its peaks, or None where no file states any.
        withheld: GPUs that no job may take, by time, as they were announced before the run: schedulers know of them.
            None where every site has its GPUs throughout.
        tenants: Quotas and fair shares of tenants, which limit every start; None where none are stated.
        priorities: Priorities of jobs by class, which order queues; None where jobs have none.
        forecast_h: Hours that forecasts reach at least, where stated or known from past jobs; None: ``FORECAST_H``, or
            what is known of the jobs in place of their run times (``JobKnowledge.reach_s``). It is known before the
            run, so that it tells nothing of the jobs to come.
    """

    scenario: str
    start: datetime
    protocol: Protocol
    slot_s: float
    window_s: float
    drained: bool
    fleet: Fleet
    links: Links
    economics: Economics | None = None
    constraints: Constraints | None = None
    latency_weight_w: Mapping[str, float] = field(default_factory=dict)
    late_until_s: float = -np.inf
    late_usd_per_gpu_hour: float = 0.0
    pue: PueByHour | None = None
    withheld: Withheld | None = None
    solar: SolarByHour | None = None
    plants: SolarByHour | None = None
    water: WaterByHour | None = None
    system_load: SystemLoadByHour | None = None
    tenants: Tenants | None = None
    priorities: Mapping[str, int] | None = None
    forecast_h: int | None = None

    @property
    def stated(self) -> dict[str, Any]:
        """The fields of the setting by name, also of a subclass: what another object of this setting is made with."""
        return {each.name: getattr(self, each.name) for each in fields(Setting)}

    @functools.cached_property
    def prices(self) -> SitePrices | None:
        """How the sites' prices of energy follow from their zones', by their tariffs; None: they are the same."""
        return SitePrices.of(self.fleet)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self.fleet.site_names

    def add_to(self, digest: hashlib._Hash) -> None:
        """Adds all fields but the label to a digest; a field that holds its default adds nothing."""
        for each in fields(Setting):
            value = getattr(self, each.name)
            if each.name != "scenario" and not _is_default(each, value):
                digest.update(f"{each.name}=".encode())
                _add(digest, value)


def _is_default(each: Any, value: object) -> bool:
    """Returns whether a field holds what it holds where nothing is said."""
    if each.default_factory is not MISSING:
        return bool(value == each.default_factory())
    return each.default is not MISSING and bool(value == each.default)


def _add(digest: hashlib._Hash, value: object) -> None:
    """Adds a value to a digest: a model, arrays, a mapping, a time or a number."""
    if isinstance(value, Fleet):  # of a PUE by the hour its values count, not where its file is
        digest.update(value.model_dump_json(exclude={"sites": {"__all__": {"pue_by_hour"}}}).encode())
    elif isinstance(value, BaseModel):
        digest.update(value.model_dump_json().encode())
    elif isinstance(value, datetime):
        digest.update(value.isoformat().encode())
    elif isinstance(value, Links | PueByHour | Withheld | SolarByHour | WaterByHour | SystemLoadByHour):
        for name, part in vars(value).items():
            digest.update(name.encode())
            _add(digest, part)
    elif isinstance(value, np.ndarray):
        add_array(digest, value)
    else:
        said = sorted(value.items()) if isinstance(value, Mapping) else value
        digest.update(json.dumps(said).encode())


def add_array(digest: hashlib._Hash, array: NDArray[np.generic]) -> None:
    """Adds an array to a digest; of one that is constant, as many columns of jobs are, one value and the shape."""
    flat = array.ravel() if any(array.strides) else array.flat[:1]  # a repeated value takes no memory
    constant = array.size > 1 and bool((flat == flat[0]).all())
    digest.update(f"{array.dtype.str} {array.shape} {constant}".encode())
    digest.update((flat[:1] if constant else flat).data)
    leave_memory()
