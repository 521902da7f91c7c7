"""How many jobs a workload may have: checked before any is drawn."""

from __future__ import annotations

from typing import Final

from noonward.errors import ScenarioError

MOST_JOBS: Final = 50_000_000
"""Most jobs that one environment may be expected to hold."""
BYTES_PER_JOB: Final = 600
"""Memory that a job takes while it is drawn, run and recorded, bytes."""
_GIB: Final = 2.0**30


def require_size(expected: float, key: str) -> None:
    """Raises ScenarioError if a workload would hold more jobs than an environment may.

    Args:
        expected: Jobs expected in the window.
        key: Value of the scenario that says how many, for the message.

    Example:
        >>> require_size(1e12, "jobs.count")
        Traceback (most recent call last):
        noonward.errors.ScenarioError: about 1e+12 jobs are expected in the window, which would take some 559,000 GiB \
of memory; at most 50,000,000 (28 GiB) are drawn: lower jobs.count or window_h
    """
    if expected > MOST_JOBS:
        size = float(f"{expected * BYTES_PER_JOB / _GIB:.3g}")
        raise ScenarioError(
            f"about {expected:.3g} jobs are expected in the window, which would take some {size:,.0f} GiB of memory; "
            f"at most {MOST_JOBS:,} ({MOST_JOBS * BYTES_PER_JOB / _GIB:.0f} GiB) are drawn: lower {key} or window_h"
        )
