"""An executor on Ray: a cluster by its address, or Ray processes of this machine."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from noonward.errors import MissingExtraError, NoonwardError
from noonward.runtime.carry_out import (
    THREAD_VARIABLES,
    TRIES,
    built,
    carry_out,
    first_error,
    lost,
    new_call,
    next_of,
    packed,
    unpacked,
)
from noonward.runtime.executor import Spec, comes_last, shares_of
from noonward.runtime.parts import Parts, apart
from noonward.runtime.shared import KEPT, kept
from noonward.runtime.work import Cost, Work, measured
from noonward.sources import package_digest

LOCAL: Final = "local"
"""Address that starts Ray on this machine."""


class RayCluster:
    """Carries out specs as Ray tasks, one core each.

    What several specs share (an environment) is built once, by a task of its own or earlier by this process, and lies
    in Ray's object store: the workers of a node read the same bytes. If a worker or node dies, Ray runs its tasks again
    and rebuilds what only that node had. Nodes need this package in the same version; files that a scenario
    names need to lie at the same paths there. Specs that are not portable run in this process.

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
            options |= {"include_dashboard": False}
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
        often = ray.remote(num_cpus=1, max_retries=TRIES - 1)
        self._task, self._build = often(_task), often(_build).options(num_returns=2)
        self._digest = package_digest()
        self.work = Work()

    @property
    def cores(self) -> int:
        """Cores of the nodes that are there now; 1 while there is none."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def each(self, specs: Sequence[Spec]) -> Iterator[tuple[int, Any]]:
        """Yields (position, result) of every spec, in the order they finish."""
        with self.work.under_way():
            for spec_place, spec in enumerate(specs):
                if not spec.portable:
                    found, cost = measured(spec.run)
                    self.work.add(cost)
                    yield spec_place, found
            yield from self._on_nodes(specs, [place for place, spec in enumerate(specs) if spec.portable])

    def _on_nodes(self, specs: Sequence[Spec], todo: list[int]) -> Iterator[tuple[int, Any]]:
        """Carries out specs as tasks."""
        store = _Store(self._ray, self._build, self._digest, new_call())
        errors: dict[int, BaseException] = {}
        running: dict[Any, int] = {}
        try:
            while todo or running:
                self.work.offered = max(self.work.offered, self.cores)
                while todo and len(running) < 2 * self.cores:
                    place = next_of(todo, specs, None, set())
                    given = store.given(specs[place], [specs[other] for other in todo])
                    running[self._task.remote(packed(specs[place], store.call), self._digest, given)] = place
                for reference in self._ray.wait(list(running))[0]:
                    place = running.pop(reference)
                    try:
                        found, cost = unpacked(self._ray.get(reference))
                    except self._ray.exceptions.WorkerCrashedError as error:
                        errors[place] = lost(specs[place], str(error).splitlines()[0])
                    except Exception as error:
                        errors[place] = error
                    else:
                        self.work.add(cost)
                        yield place, found
                        continue
                    todo = [other for other in todo if other < min(errors)]
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)
        first_error(errors)
        for cost in self._ray.get(store.costs):
            self.work.add(cost, runs=0)

    def close(self) -> None:
        """Leaves the cluster; ends a local one."""
        self._ray.shutdown()


class _Store:
    """What specs share, in Ray's object store: what the specs that begin now need, and the next ones.

    Args:
        ray: Ray.
        build: Task that builds what a spec shares.
        digest: Digest of this package.
        call: Call of ``map_runs``.

    Attributes:
        costs: References to what building took.
    """

    def __init__(self, ray: Any, build: Any, digest: str, call: str) -> None:
        self._ray, self._build, self._digest, self.call = ray, build, digest, call
        self.costs: list[Any] = []
        self._reference: dict[Hashable, Any] = {}

    def given(self, spec: Spec, rest: Sequence[Spec]) -> Any:
        """Returns a reference to what a spec shares with some of the rest, or None; begins the next group's."""
        found = self._put(spec, rest)
        following = next((n for n, other in enumerate(rest) if other.group != spec.group), None)
        if following is not None:
            self._put(rest[following], rest[following + 1 :])
        return found

    def _put(self, spec: Spec, rest: Sequence[Spec]) -> Any:
        common = shares_of(spec)
        if common is None:
            return None
        key = common.key
        if key not in self._reference:
            known = kept(key)
            if known is None and not any(other.group == spec.group and not comes_last(other) for other in rest):
                return None  # nobody shares it: the spec's own task builds it
            if known is None:
                cost, made = self._build.remote(packed(spec, self.call), self._digest)
                self.costs.append(cost)
            else:
                made = self._ray.put(apart(known))
            while len(self._reference) >= KEPT:
                del self._reference[next(iter(self._reference))]
            self._reference[key] = made
        return self._reference[key]


def _task(spec: bytes, digest: str, given: Parts | None) -> bytes:
    """Carries out a spec on a node, if its package is that of the caller."""
    import ray

    if package_digest() != digest:
        error = NoonwardError("a Ray node has another version of noonward; install the same one on every node")
        return pickle.dumps((False, error))
    return carry_out(spec, given, ray.get_runtime_context().get_node_id())


def _build(spec: bytes, digest: str) -> tuple[Cost, Parts | None]:
    """Builds what a spec shares on a node; None if it fails there, by which the spec's own task will say why."""
    import ray

    def build() -> Parts | None:
        try:
            return None if package_digest() != digest else built(spec)
        except Exception:
            return None

    made, cost = measured(build, ray.get_runtime_context().get_node_id())
    return cost, made
