"""The network: latency, throughput, money and energy of the links from ingress points to sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from noonward.arrays import F8
from noonward.model.cluster.fleet import Fleet
from noonward.model.spec import NonNegative, Positive, Spec
from noonward.units import MINUTE_S

Matrix = Annotated[tuple[tuple[NonNegative, ...], ...], Field(min_length=1)]


class Network(Spec):
    """Links between ingress points (rows) and sites (columns): one number for all links, or a matrix.

    Source: MASAC, Sec. II "Communication network" (throughput xi, cost coefficient psi, energy epsilon);
    CHSAC-AF's simulator (latency). A job that stays at the site its ingress belongs to travels over no link.
    """

    latency_ms: NonNegative | Matrix = 0.0
    """Time before a job's data start to flow, ms."""
    throughput_gb_per_min: Positive | Matrix | None = None
    """Throughput, GB per minute; none: transfers take no time."""
    queued: bool = False
    """Whether a link carries the data of one job at a time, first come, first served (protocol on-arrival): a job then
    waits until the link is free. Otherwise every job has the whole throughput. Results return without a queue."""
    usd_per_gb: NonNegative | Matrix = 0.0
    """Price of a transfer, USD per GB (psi)."""
    kwh_per_gb: NonNegative | Matrix = 0.0
    """Energy of a transfer, kWh per GB (epsilon); its emissions use the mean of both ends' carbon intensities."""

    @model_validator(mode="after")
    def _queue_of_data(self) -> Self:
        if self.queued and self.throughput_gb_per_min is None:
            raise ValueError(
                "network.queued needs network.throughput_gb_per_min: without it data take no time and nothing queues; "
                "give a throughput, or leave queued out"
            )
        return self

    def links(self, fleet: Fleet) -> Links:
        """Returns the links as arrays, with zeros where ingress and site are at home with each other.

        Raises:
            ValueError: A matrix does not have a row per ingress and a column per site, or a throughput is 0.
        """
        shape = (len(fleet.ingress_points), len(fleet.sites))
        home = np.array(
            [[point.home == site.name for site in fleet.sites] for point in fleet.ingress_points], dtype=bool
        )

        def table(name: str) -> F8:
            value = getattr(self, name)
            allowed = f"give one number or {shape[0]} rows (ingress points) of {shape[1]} values (sites)"
            if isinstance(value, tuple) and len({len(row) for row in value}) > 1:
                raise ValueError(f"network.{name} has rows of unequal length; {allowed}")
            array = np.asarray(value, dtype=np.float64)
            if array.ndim not in (0, 2) or (array.ndim == 2 and array.shape != shape):
                raise ValueError(f"network.{name} has shape {array.shape}; {allowed}")
            return np.where(home, 0.0, np.broadcast_to(array, shape))

        if self.throughput_gb_per_min is None:
            seconds_per_gb = np.zeros(shape)
        else:
            throughput = table("throughput_gb_per_min")
            if (throughput[~home] <= 0).any():
                raise ValueError(
                    "network.throughput_gb_per_min has a value of 0 GB/min; it must be above 0 on every link"
                )
            seconds_per_gb = np.divide(MINUTE_S, throughput, out=np.zeros(shape), where=~home)
        return Links(
            latency_s_IS=table("latency_ms") / 1000.0,
            seconds_per_gb_IS=seconds_per_gb,
            usd_per_gb_IS=table("usd_per_gb"),
            kwh_per_gb_IS=table("kwh_per_gb"),
            queued=self.queued,
        )


@dataclass(frozen=True, kw_only=True)
class Links:
    """The network as arrays, ingress points x sites.

    Attributes:
        latency_s_IS: Latency, s.
        seconds_per_gb_IS: Transfer time, s per GB.
        usd_per_gb_IS: Price, USD per GB.
        kwh_per_gb_IS: Energy, kWh per GB.
        queued: Whether a link carries the data of one job at a time (``Network.queued``).
    """

    latency_s_IS: F8
    seconds_per_gb_IS: F8
    usd_per_gb_IS: F8
    kwh_per_gb_IS: F8
    queued: bool = False
