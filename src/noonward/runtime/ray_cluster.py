"""An executor on Ray: a cluster by its address, or Ray processes of this machine."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.errors import MissingExtraError, NoonwardError
from noonward.runtime.carry_out import (
    THREAD_VARIABLES,
    TRIES,
    carry_out,
    first_error,
    lost,
    new_call,
    next_of,
    packed,
    unpacked,
)
from noonward.runtime.executor import Spec
from noonward.sources import package_digest

LOCAL: Final = "local"
"""Address that starts Ray on this machine."""
STORE_BYTES: Final = 80_000_000
"""Object store of a local Ray: records are small."""


class RayCluster:
    """Carries out specs as Ray tasks, one core each.

    Ray runs the task of a worker or node that dies again. Nodes need this package in the same version; files that a
    scenario names need to lie at the same paths there. Specs that are not portable run in this process.

    Args:
        address: ``local``, ``auto``, ``host:port`` or ``ray://host:port``.

    Raises:
        MissingExtraError: Ray is not installed.
        NoonwardError: There is no Ray cluster at the address.
    """

    def __init__(self, address: str) -> None:
        if address == LOCAL:  # no other machine can reach it; a cluster's tokens are the user's to set
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "ray") from error
        self._ray: Any = ray
        options: dict[str, Any] = {"address": address}
        variables = dict.fromkeys(THREAD_VARIABLES, "1")
        if address == LOCAL:
            options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
            variables["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        try:
            ray.init(
                **options,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": variables},
            )
        except Exception as error:
            raise NoonwardError(
                f"no Ray cluster answers at {address!r}: {error}; give the address that 'ray start' printed, or 'local'"
            ) from error
        self._task = ray.remote(num_cpus=1, max_retries=TRIES - 1)(_task)
        self._digest = package_digest()

    @property
    def cores(self) -> int:
        """Cores of the nodes that are there now; 1 while there is none."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def each(self, specs: Sequence[Spec]) -> Iterator[tuple[int, Any]]:
        """Yields (position, result) of every spec, in the order they finish."""
        todo = [place for place, spec in enumerate(specs) if spec.portable]
        for place in (place for place, spec in enumerate(specs) if not spec.portable):
            yield place, specs[place].run()
        call = new_call()
        errors: dict[int, BaseException] = {}
        running: dict[Any, int] = {}
        try:
            while todo or running:
                at_once = 2 * self.cores
                while todo and len(running) < at_once:
                    place = next_of(todo, specs, None, set())
                    running[self._task.remote(packed(specs[place], call), self._digest)] = place
                for reference in self._ray.wait(list(running))[0]:
                    place = running.pop(reference)
                    try:
                        found = unpacked(self._ray.get(reference))
                    except self._ray.exceptions.WorkerCrashedError as error:
                        errors[place] = lost(specs[place], str(error).splitlines()[0])
                    except Exception as error:
                        errors[place] = error
                    else:
                        yield place, found
                        continue
                    todo = [other for other in todo if other < min(errors)]
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)
        first_error(errors)

    def close(self) -> None:
        """Leaves the cluster; ends a local one."""
        self._ray.shutdown()


def _task(spec: bytes, digest: str) -> bytes:
    """Carries out a spec on a node, if its package is that of the caller."""
    if package_digest() != digest:
        error = NoonwardError("a Ray node has another version of noonward; install the same one on every node")
        return pickle.dumps((False, error))
    return carry_out(spec)
