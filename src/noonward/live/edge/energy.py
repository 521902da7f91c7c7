"""Energy of a launch, estimated from the servers' powers and the times that were measured."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from noonward.ledger.segments import PowerSegments
from noonward.ledger.settle import settle_power
from noonward.model.edge.scenario import EdgeServers
from noonward.model.signals import SiteSignals
from noonward.units import HOUR_S

J_PER_KWH = 3.6e6


def energy_j(servers: EdgeServers, gang: int, load_s: float, run_s: float) -> float:
    """Returns the facility energy of a gang, J: its servers' power while they load and while they generate.

    Settled as every energy of this package is; nothing is metered.

    Args:
        servers: Powers of a server.
        gang: Servers of the gang.
        load_s: Seconds of loading.
        run_s: Seconds of generating.

    Example:
        >>> servers = EdgeServers(count=4, zone="SG", idle_w=60, load_w=100, active_w=300)
        >>> round(energy_j(servers, 2, 10.0, 20.0), 6)
        14000.0
    """
    hours = int(np.ceil((load_s + run_s) / HOUR_S)) + 1
    segments = PowerSegments(
        site_K=np.zeros(2, np.int64),
        job_K=np.zeros(2, np.int64),
        from_s_K=np.array([0.0, load_s]),
        to_s_K=np.array([load_s, load_s + run_s]),
        watts_K=np.array([servers.load_w, servers.active_w]) * servers.pue * gang,
        gpus_K=np.full(2, gang),
    )
    signals = SiteSignals.of(None, [servers.zone], datetime(2000, 1, 1, tzinfo=UTC), hours)
    return float(settle_power(segments, signals, 1).job_JA[0, 0] * J_PER_KWH)
