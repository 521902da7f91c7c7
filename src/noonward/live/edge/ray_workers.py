"""Workers as Ray actors: one a server, all in one placement group, on this machine or on a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psutil

from noonward.errors import MissingExtraError, NoonwardError
from noonward.live.edge.orders import Facts
from noonward.live.edge.ray_watch import RayWatch
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
            os.environ.setdefault("RAY_worker_niceness", "0")  # a Ray of our own runs nothing but the images
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "edge") from error
        self._ray, self._post, self._local = ray, post, address == LOCAL
        self._count, self._address, self._device, self._precision = count, address, device, precision
        self._folder: Path | None = None
        self._actors: dict[int, Any] = {}
        self._facts: dict[int, Facts] = {}
        self._pids: dict[int, int] = {}
        """Processes of workers on this machine, also of those that still start."""
        self._group: Any = None
        self._watch: RayWatch | None = None
        self._lock = threading.Lock()
        """Held around calls of Ray: one that meets Ray's end ends this process."""
        self._references: dict[int, Any] = {}
        """Ray's references to the answers of calls. To let one go is a call of Ray as well, so none is let go while
        Ray ends, and none by a future: one that holds an exception is freed by the garbage collector, at any time."""
        self._numbers = itertools.count()
        self._thread = ThreadPoolExecutor(1, "ray-restart")
        """Where Ray is started again. The thread stays: Ray's processes are killed when the thread ends that began
        them."""
        self._begin()

    def _begin(self) -> None:
        """Starts or joins Ray and takes the room of all servers."""
        ray, count = self._ray, self._count
        self._folder = Path(tempfile.mkdtemp(prefix="noonward-")) if self._local else None
        try:
            self._connect(self._address, count)
            gpus = int(ray.cluster_resources().get("GPU", 0))
            device = self._device
            if device == "auto":
                device = "cuda" if gpus >= count else "cpu"
            self._group = self._place(count, device)
        except BaseException:
            self._end()
            raise
        threads = max(1, (os.cpu_count() or 1) // count) if self._local and device == "cpu" else 0
        self._given = {"device": device, "precision": self._precision, "threads": threads}
        self._own_node = ray.get_runtime_context().get_node_id()
        self._watch = RayWatch(ray, self._own_node, self._local)

    def outage(self) -> str | None:
        """Returns why no worker can be started or reached any longer; None while they can."""
        return None if self._watch is None else self._watch.outage()

    def restart(self, reply: Reply) -> None:
        """Ends all workers and restarts what runs them, in a thread; replies with None or an exception."""

        def work() -> None:
            answer: Exception | None = None
            try:
                self._end()
                self._begin()
            except Exception as error:
                answer = error
            self._post(functools.partial(reply, answer))

        self._thread.submit(work)

    def cpu_s(self, n: int) -> float | None:
        """Returns the CPU seconds that a worker on this machine has used; None for one on another, or stopped."""
        try:
            times = psutil.Process(self._pids[n]).cpu_times()
        except (KeyError, psutil.Error):
            return None
        return float(times.user + times.system)

    def start(self, n: int, reply: Reply) -> None:
        """Starts the worker of a server; replies with its ``Facts`` once it is ready."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self._facts.pop(n, None)
        self._pids.pop(n, None)
        with self._lock:
            if self._group is None:
                self._post(functools.partial(reply, WorkerDiedError("cannot be started: Ray is started again")))
                return
            if n in self._actors:  # one that could not be reached may be there still
                with contextlib.suppress(Exception):
                    self._ray.kill(self._actors.pop(n))
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

        def placed(answer: Any) -> None:
            if isinstance(answer, tuple) and answer[1] == self._own_node:
                self._pids[n] = answer[0]

        self._call(n, "place", (), placed)
        self.call(n, "facts", reply=ready)

    def call(self, n: int, name: str, *arguments: Any, reply: Reply) -> None:
        """Calls a method of a worker; replies with ``WorkerDiedError`` if it dies meanwhile."""
        self._call(n, "call", (name, arguments), reply)

    def _call(self, n: int, name: str, arguments: tuple[Any, ...], reply: Reply) -> None:
        """Calls a method of an actor; replies in the controller's thread."""
        try:
            with self._lock:
                reference = getattr(self._actors[n], name).remote(*arguments)
                number, answer = next(self._numbers), reference.future()
                self._references[number], answer.object_ref = reference, None
                del reference
        except Exception as error:
            self._post(functools.partial(reply, WorkerDiedError(f"could not be called: {error}")))
            return
        answer.add_done_callback(
            lambda done: self._post(functools.partial(self._answered, number, reply, self._result(done)))
        )

    def _answered(self, number: int, reply: Reply, answer: Any) -> None:
        """Lets go of the reference to an answer and passes the answer on, in the controller's thread."""
        with self._lock:
            if self._group is not None:
                self._references.pop(number, None)
        reply(answer)

    def kill(self, n: int) -> None:
        """Ends a worker's process, also one that is stopped or hangs."""
        if n in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[n], signal.SIGKILL)
        with self._lock, contextlib.suppress(Exception):  # a Ray that is gone has no actors; ``outage`` tells that
            self._ray.kill(self._actors[n])

    def close(self) -> None:
        """Ends all workers, and Ray if it was started here."""
        self._thread.submit(self._end).result()
        self._thread.shutdown()

    def _end(self) -> None:
        """Ends all workers; leaves or ends Ray."""
        watch, self._watch = self._watch, None
        gone = watch is not None and watch.outage() is not None
        if watch is not None:
            watch.close()
        for n in list(self._pids.keys() | self._facts.keys()):
            self.kill(n)
        with self._lock:
            if self._group is not None and not gone:
                with contextlib.suppress(Exception):
                    self._ray.util.remove_placement_group(self._group)
            self._facts.clear()
            self._pids.clear()
            self._actors.clear()  # from here on no other thread calls Ray
            self._group = None
        self._ray.shutdown()
        self._references.clear()
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
        except self._ray.exceptions.ActorDiedError:
            return WorkerDiedError("died")
        except self._ray.exceptions.RayTaskError as error:
            return error.cause
        except Exception as error:  # Ray's own trouble, none of the worker's code
            return WorkerDiedError(f"cannot be reached: {type(error).__name__}: {str(error).strip().splitlines()[0]}")


class _Actor:
    """Holds a worker in a Ray process; torch is imported there alone, once the process has said where it is."""

    def __init__(self, given: dict[str, Any], local: bool) -> None:
        import ray

        host = "127.0.0.1" if local else ray.util.get_node_ip_address()
        self._given = {**given, "host": host, "node": ray.get_runtime_context().get_node_id()}
        self._making = threading.Lock()
        self._worker: Any = None

    def place(self) -> tuple[int, str]:
        """Returns the process and the machine."""
        return os.getpid(), self._given["node"]

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Calls a method of the worker, which is made for the first call."""
        with self._making:
            if self._worker is None:
                from noonward.live.edge.worker import Worker

                self._worker = Worker(**self._given)
        return getattr(self._worker, name)(*arguments)
