"""What of the service's environment its jobs are given: what a command needs, and nothing that may be secret."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from noonward.live.executors.protocol import Order

PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR")
"""Variables that every job is given where the service has them, beside those whose names begin with ``LC_``."""


def own_variables(order: Order) -> dict[str, str]:
    """Returns the variables that every job is given by the service, whatever runs it, and those it asked for.

    Example:
        >>> one = Order(token="t", job=7, name="a", command="", gpus=2, run_s=1.0, start_s=0.0)
        >>> own_variables(one)
        {'NOONWARD_JOB': '7', 'NOONWARD_GPUS': '2'}
    """
    terms = order.terms
    task = {} if terms.task is None else {"NOONWARD_TASK": str(terms.task), "NOONWARD_TASKS": str(terms.tasks)}
    return {**terms.environment, "NOONWARD_JOB": str(order.job), "NOONWARD_GPUS": str(order.gpus), **task}


def job_environment(order: Order, names: Sequence[str] = (), of: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a job that takes over the service's.

    Args:
        order: The job; its number and GPUs are in ``NOONWARD_JOB`` and ``NOONWARD_GPUS``.
        names: Further variables that are passed on.
        of: Environment of the service.

    Example:
        >>> one = Order(token="t", job=7, name="a", command="", gpus=2, run_s=1.0, start_s=0.0)
        >>> job_environment(one, ["DATA"], {"PATH": "/bin", "PGPASSWORD": "secret", "DATA": "/data"})
        {'PATH': '/bin', 'DATA': '/data', 'NOONWARD_JOB': '7', 'NOONWARD_GPUS': '2'}
    """
    return passed_on(names, of) | own_variables(order)


def passed_on(names: Sequence[str] = (), of: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns what of the service's environment every job is given.

    Args:
        names: Further variables that are passed on.
        of: Environment of the service.
    """
    return {name: value for name, value in of.items() if name in (*PASSED_ON, *names) or name.startswith("LC_")}


def working_folder() -> Path:
    """Returns where jobs of the service's user may write: its home, or ``/tmp`` where it has none of its own."""
    home = Path.home()
    return home if home != Path("/") and home.is_dir() and os.access(home, os.W_OK) else Path("/tmp")
