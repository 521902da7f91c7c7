"""The utility in one place: what a run, a job or a journey earns (MASAC, Eqs. 2-7)."""

from __future__ import annotations

from noonward.compiled import kernel
from noonward.units import KG_PER_TONNE


def utility_usd(
    usd_per_gpu_hour: float,
    usd_per_t: float,
    gpu_hours: float = 0.0,
    energy_usd: float = 0.0,
    kg: float = 0.0,
    journeys_usd: float = 0.0,
    late_usd: float = 0.0,
) -> float:
    """Returns ``U = U1 - U2 - U3 - U4 - U5``: revenue less energy, emissions at the carbon price, and journeys, USD.

    The price of lateness, where a scenario states one, is taken off too.

    U1 is the revenue less the energy of the jobs, U2 the energy of free GPUs, U3 the emissions of both, U4 the journeys
    of jobs and U5 those of results, each with its emissions. The utility is linear, so parts of a run can be valued
    alone: what is left out counts 0.

    Args:
        usd_per_gpu_hour: Revenue of a GPU-hour, alpha.
        usd_per_t: Price of a tonne of CO2, mu.
        gpu_hours: GPU-hours of jobs.
        energy_usd: Energy of jobs and of free GPUs, USD.
        kg: Emissions of energy and journeys, kgCO2.
        journeys_usd: Links' price of journeys of jobs and results, USD.
        late_usd: Price of jobs' late starts, USD.

    Example:
        >>> utility_usd(0.05, 100.0, gpu_hours=100.0, energy_usd=2.0, kg=10.0, journeys_usd=0.5)
        1.5
    """
    return usd_per_gpu_hour * gpu_hours - energy_usd - usd_per_t / KG_PER_TONNE * kg - journeys_usd - late_usd


utility_kernel = kernel(inline=True, allocates=False)(utility_usd)
"""``utility_usd`` for compiled functions."""
