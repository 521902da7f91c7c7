"""Workers as Ray actors: one a server, all in one placement group, on this machine or on a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from noonward.errors import MissingExtraError, NoonwardError
from noonward.live.edge.orders import Facts
from noonward.live.edge.workers import Reply, WorkerDiedError

LOCAL: Final = "local"
"""Address that starts Ray on this machine."""
STORE_BYTES: Final = 80_000_000
"""Object store of a local Ray: images and orders are small."""
PLACED_S: Final = 120.0
"""Seconds within which a cluster must have room for the servers."""
CALLS: Final = 4
"""Calls that a worker answers at once: its work, and health checks and leaves beside it."""


class RayWorkers:
    """Starts, calls and kills Ray actors.

    The placement group keeps one bundle a server for the service's life; a gang is formed inside the actors, so no
    gang change pays for a new process. Machines of a cluster need this package in the same version and the models'
    folders at the same paths.

    Args:
        count: Servers.
        address: ``local``, ``auto``, or ``host:port`` of a Ray cluster.
        device: ``cpu``, ``cuda``, or ``auto``: GPUs if there is one for every server.
        precision: Type of weights.
        post: Puts a function into the controller's thread.

    Raises:
        MissingExtraError: Ray is not installed.
        NoonwardError: There is no such cluster, or it has no room.
    """

    def __init__(
        self, count: int, address: str, device: str, precision: str, post: Callable[[Callable[[], None]], None]
    ) -> None:
        if address == LOCAL:  # no other machine can reach it; a cluster's tokens are the user's to set
            os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "edge") from error
        self._ray, self._post, self._local = ray, post, address == LOCAL
        self._folder = Path(tempfile.mkdtemp(prefix="noonward-")) if self._local else None
        try:
            self._connect(address, count)
            gpus = int(ray.cluster_resources().get("GPU", 0))
            if device == "auto":
                device = "cuda" if gpus >= count else "cpu"
            self._group = self._place(count, device)
        except BaseException:
            self.close()
            raise
        threads = max(1, (os.cpu_count() or 1) // count) if self._local and device == "cpu" else 0
        self._given = {"device": device, "precision": precision, "threads": threads}
        self._actors: dict[int, Any] = {}
        self._facts: dict[int, Facts] = {}
        self._own_node = ray.get_runtime_context().get_node_id()

    def start(self, n: int, reply: Reply) -> None:
        """Starts the worker of a server; replies with its ``Facts`` once it is ready."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._facts.pop(n, None)
        self._actors[n] = (
            self._ray.remote(_Actor)
            .options(
                num_cpus=1,
                num_gpus=1 if self._given["device"] == "cuda" else 0,
                max_concurrency=CALLS,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, n),
            )
            .remote(self._given, self._local)
        )

        def ready(answer: Any) -> None:
            if isinstance(answer, Facts):
                self._facts[n] = answer
            reply(answer)

        self.call(n, "facts", reply=ready)

    def call(self, n: int, name: str, *arguments: Any, reply: Reply) -> None:
        """Calls a method of a worker; replies with ``WorkerDiedError`` if it dies meanwhile."""
        answer = self._actors[n].call.remote(name, arguments).future()
        answer.add_done_callback(lambda done: self._post(functools.partial(reply, self._result(done))))

    def kill(self, n: int) -> None:
        """Ends a worker's process, also one that is stopped or hangs."""
        facts = self._facts.get(n)
        if facts is not None and facts.node == self._own_node:
            with contextlib.suppress(ProcessLookupError):
                os.kill(facts.pid, signal.SIGKILL)
        self._ray.kill(self._actors[n])

    def close(self) -> None:
        """Ends all workers, and Ray if it was started here."""
        for n in list(getattr(self, "_facts", {})):
            self.kill(n)
        if hasattr(self, "_group"):
            self._ray.util.remove_placement_group(self._group)
        self._ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _connect(self, address: str, count: int) -> None:
        """Starts Ray on this machine, or joins a cluster."""
        # Calls run in several threads; with an arena for each of them memory that is freed would not be used again.
        variables = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MALLOC_ARENA_MAX": "2"}
        options: dict[str, Any] = {"address": address}
        if self._local:
            options |= {
                "include_dashboard": False,
                "object_store_memory": STORE_BYTES,
                "num_cpus": count,
                "_temp_dir": str(self._folder),
            }
            variables["PYTHONPATH"] = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        try:
            self._ray.init(
                **options, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": variables}
            )
        except Exception as error:
            raise NoonwardError(
                f"no Ray cluster answers at {address!r}: {error}; give the address that 'ray start' printed, or 'local'"
            ) from error

    def _place(self, count: int, device: str) -> Any:
        """Returns a placement group with one bundle a server, on different machines where there are several."""
        bundle = {"CPU": 1.0, "GPU": 1.0} if device == "cuda" else {"CPU": 1.0}
        group = self._ray.util.placement_group([bundle] * count, strategy="SPREAD")
        if not group.wait(PLACED_S):
            have = {name: self._ray.cluster_resources().get(name, 0) for name in bundle}
            raise NoonwardError(
                f"Ray has no room for {count} servers of {bundle}: the cluster has {have}; lower servers.count, free "
                "some of it, or choose another --device"
            )
        return group

    def _result(self, done: Any) -> Any:
        """Returns what a call returned, or the exception that ended it."""
        try:
            return done.result()
        except self._ray.exceptions.ActorDiedError as error:
            told = str(error).strip().splitlines()
            why = f": {told[-1].strip()}" if "__init__" in str(error) else ""  # only a failed start has a cause of ours
            return WorkerDiedError(f"died{why}")
        except self._ray.exceptions.RayTaskError as error:
            return error.cause
        except Exception as error:
            return error


class _Actor:
    """Holds a worker in a Ray process; torch is imported there alone."""

    def __init__(self, given: dict[str, Any], local: bool) -> None:
        import ray

        from noonward.live.edge.worker import Worker

        host = "127.0.0.1" if local else ray.util.get_node_ip_address()
        self._worker = Worker(**given, host=host, node=ray.get_runtime_context().get_node_id())

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Calls a method of the worker."""
        return getattr(self._worker, name)(*arguments)
