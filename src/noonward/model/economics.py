"""Economics: what a GPU-hour earns and what a tonne of carbon costs."""

from __future__ import annotations

from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from noonward.model.spec import NonNegative, Spec, without_defaults


class Economics(Spec):
    """Prices of the utility U = U1 - U2 - U3 - U4 - U5 (MASAC, Eqs. 2-7)."""

    revenue_usd_per_gpu_hour: NonNegative
    """Revenue alpha, USD per GPU and hour of a job that runs."""
    carbon_usd_per_t: NonNegative
    """Carbon price mu, USD per tonne of CO2."""
    waiting_usd_per_hour: NonNegative = 0.0
    """What an hour is worth that a job waits between arrival and start, USD per job; 0: waiting is only counted. The
    ledger settles it for every policy alike; policies do not see it."""
    gpu_usd_per_hour: NonNegative = 0.0
    """What a GPU costs per hour whether it runs or not: bought or rented, its building included, without electricity,
    USD; 0: not said. The answer shows savings as a share of it; nothing else reads it."""

    @model_serializer(mode="wrap")
    def _as_stated(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_defaults(self, write, "waiting_usd_per_hour", "gpu_usd_per_hour")
