"""A worker: one process on one server that keeps a model in memory and computes its rows of images, alone or in a gang.

Its controller calls ``load``, ``meet`` and ``generate`` one at a time. ``beat`` and ``leave`` are called beside them
from other threads: ``leave`` ends a run by closing the gang's connections, which frees a member that waits for a dead
one. A gang's process group is kept after a run, for the next one of the same gang.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from noonward.live.edge.backends import load_model
from noonward.live.edge.image_model import ImageModel
from noonward.live.edge.orders import Beat, Facts, Order, Part


class StoppedError(Exception):
    """The run was ended by ``leave``."""


class Worker:
    """A worker.

    Args:
        device: ``cpu`` or ``cuda``.
        precision: Type of weights.
        threads: Threads of torch on a CPU; 0 leaves torch's choice.
        host: Address at which the other workers reach this one.
        node: Id of its machine.
    """

    def __init__(
        self, device: str = "cpu", precision: str = "float32", threads: int = 1, host: str = "127.0.0.1", node: str = ""
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        import diffusers  # its parts are loaded when they are named

        assert diffusers.PixArtTransformer2DModel is not None
        self._device, self._precision, self._host, self._node = device, precision, host, node
        self._model: ImageModel | None = None
        self._joined: ImageModel | None = None
        """Model that has been told of the process group."""
        self._folder = ""
        self._store: Any = None
        self._lock = threading.Lock()
        self._attempt, self._step, self._stopped, self._group = 0, 0, 0, 0

    def facts(self) -> Facts:
        """Returns what this worker is; the first call that it answers says that it is ready."""
        device = torch.cuda.get_device_name() if self._device == "cuda" else "cpu"
        return Facts(pid=os.getpid(), host=self._host, node=self._node, device=device)

    def beat(self) -> Beat:
        """Returns what it is doing and what it holds."""
        import psutil

        process = psutil.Process()
        return Beat(
            attempt=self._attempt,
            step=self._step,
            rss_mb=process.memory_info().rss / 1e6,
            descriptors=process.num_fds(),
            groups=int(dist.is_initialized()),
            model=self._folder,
        )

    def load(self, folder: str, again: bool = False) -> float:
        """Loads a model unless it is loaded; returns the seconds that took.

        Args:
            folder: The model's folder.
            again: Load it even so.
        """
        if folder == self._folder and not again:
            return 0.0
        begin = time.perf_counter()
        self._model, self._joined, self._folder = None, None, ""
        gc.collect()
        if self._device == "cuda":
            torch.cuda.empty_cache()
        self._model = load_model(folder, self._device, self._precision)
        self._folder = folder
        return time.perf_counter() - begin

    def meet(self, attempt: int) -> tuple[str, int]:
        """Opens the meeting point of a gang, as its first member; returns its host and a free port."""
        with self._lock:
            self._dissolve()
            self._attempt, self._step = attempt, 0
            self._store = TCPStore(self._host, 0, is_master=True, wait_for_workers=False)
            return self._host, self._store.port

    def generate(self, order: Order, rank: int) -> Part:
        """Computes the rows of one member of a gang; forms the gang unless it stands already.

        Args:
            order: The image; the model must be loaded.
            rank: Number of the member, from 0.

        Raises:
            StoppedError: The controller called ``leave``.
            RuntimeError: Another member failed, or did not answer in time.
        """
        self._attempt = order.attempt
        try:
            self._check(order, 0)
            begin = time.perf_counter()
            self._join(order, rank)
            joined = time.perf_counter()
            return self._draw(order, rank, joined - begin)
        except BaseException as error:
            with self._lock:
                self._dissolve()
            if isinstance(error, RuntimeError) and self._stopped >= order.attempt:
                raise StoppedError(f"attempt {order.attempt} was stopped") from error
            raise
        finally:
            with self._lock:
                self._attempt = 0

    def leave(self, attempt: int) -> None:
        """Ends an attempt: its gang's connections are closed, so nobody waits for this worker any longer."""
        self._stopped = max(self._stopped, attempt)
        with self._lock:
            if self._attempt == attempt:
                self._dissolve(abort=True)

    def _join(self, order: Order, rank: int) -> None:
        """Forms the gang unless it stands; returns when all members have come."""
        if order.group == self._group:
            return
        if order.address is None:
            with self._lock:
                self._dissolve()
            if order.size > 1:
                raise RuntimeError(f"the process group {order.group} is gone")
            return
        store = self._store
        if rank > 0 or store is None:
            with self._lock:
                self._dissolve()
            self._store = store = TCPStore(*order.address, is_master=False, timeout=timedelta(seconds=order.join_s))
        store.set_timeout(timedelta(seconds=order.join_s))
        dist.init_process_group(
            "nccl" if self._device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=order.size,
            timeout=timedelta(seconds=order.group_s),
        )
        self._group = order.group
        self._check(order, 0)

    def _draw(self, order: Order, rank: int, join_s: float) -> Part:
        """Generates the image with the gang that is formed."""
        assert self._model is not None, "no model is loaded"
        if order.size > 1 and self._joined is not self._model:
            self._model.joined(rank, order.size)
            self._joined = self._model
        drawn = self._model.draw(order, rank, lambda step: self._check(order, step))
        return Part(join_s=join_s, **vars(drawn))

    def _check(self, order: Order, step: int) -> None:
        """Notes the steps done; raises StoppedError if the controller has ended the attempt."""
        self._step = step
        if self._stopped >= order.attempt:
            raise StoppedError(f"attempt {order.attempt} was stopped")

    def _dissolve(self, abort: bool = False) -> None:
        """Closes the gang's connections.

        Args:
            abort: An exchange may be under way. NCCL would wait for it to end; gloo closes its connections even so (its
                own abort does not return while another member is stopped).
        """
        if not abort and self._joined is not None:
            self._joined.left()
            self._joined = None
        if dist.is_initialized():
            if abort and self._device == "cuda":
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()
        self._store, self._group = None, 0
