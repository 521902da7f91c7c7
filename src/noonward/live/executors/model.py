"""An executor that runs nothing: a job ends after the run time that the model expects (dry run, shadow, demo)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noonward.live.executors.protocol import Order, Status
from noonward.live.terms import EVERY


class ModelExecutor:
    """Says that every job runs from its decided start for the run time of the model.

    It keeps nothing: what it says follows from the order and the time, so it survives any crash.

    Args:
        now_s: The service's time, s since its start.
    """

    at_once = 1
    takes = EVERY
    exact_ends = True

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

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job stands by the model."""
        now_s = self._now_s()
        return [
            Status(
                token=order.token,
                handle=order.token,
                phase="done" if order.start_s + order.run_s <= now_s else "running",
                began_s=order.start_s,
                ended_s=order.start_s + order.run_s if order.start_s + order.run_s <= now_s else None,
                exit_code=0 if order.start_s + order.run_s <= now_s else None,
            )
            for order in orders
        ]

    def strays(self) -> list[Order]:
        """Returns none."""
        return []

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns None: all GPUs of the site."""
        return None
