"""An executor that runs nothing: a job ends after the run time that the model expects (dry run, shadow, demo)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noonward.live.executors.protocol import Order, Status
from noonward.live.executors.running import EVERY_LEVER, RunningJobs
from noonward.live.terms import EVERY


class ModelExecutor(RunningJobs):
    """Says that every job runs from its decided start for the run time of the model.

    It keeps nothing: what it says follows from the order and the time, so it survives any crash.

    Args:
        now_s: The service's time, s since its start.
    """

    at_once = 1
    takes = EVERY
    exact_ends = True
    levers = EVERY_LEVER
    fresh = False

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def find(self, order: Order) -> str | None:
        """Returns the token: every order is known."""
        return order.token

    def submit_held(self, order: Order) -> str:
        """Returns the token."""
        return order.token

    def release(self, order: Order) -> None:
        """Does nothing: a job runs from its decided start."""

    def cancel(self, order: Order) -> None:
        """Does nothing: the service stops asking about it."""

    def resume(self, order: Order) -> bool:
        """Returns True: what the books say happens."""
        return True

    def cap(self, order: Order, share: float) -> str:
        """Does nothing."""
        return ""

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job stands by the model."""
        now_s = self._now_s()
        return [self._by_model(order, now_s) for order in orders]

    def _by_model(self, order: Order, now_s: float) -> Status:
        ends_s = order.start_s + order.run_s if order.finish_s is None else order.finish_s
        over = ends_s <= now_s
        return Status(
            token=order.token,
            handle=order.token,
            phase="done" if over else "running",
            began_s=order.start_s,
            ended_s=ends_s if over else None,
            exit_code=0 if over else None,
        )

    def strays(self) -> list[Order]:
        """Returns none."""
        return []

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns None: all GPUs of the site."""
        return None
