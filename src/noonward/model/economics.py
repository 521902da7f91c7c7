"""Economics: what a GPU-hour earns and what a tonne of carbon costs."""

from __future__ import annotations

from noonward.model.spec import NonNegative, Spec


class Economics(Spec):
    """Prices of the utility U = U1 - U2 - U3 - U4 - U5 (MASAC, Eqs. 2-7)."""

    revenue_usd_per_gpu_hour: NonNegative
    """Revenue alpha, USD per GPU and hour of a job that runs."""
    carbon_usd_per_t: NonNegative
    """Carbon price mu, USD per tonne of CO2."""
