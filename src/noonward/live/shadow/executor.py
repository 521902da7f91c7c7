"""An executor that runs nothing: a watched job takes as long as it took in fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noonward.live.executors.model import ModelExecutor
from noonward.live.executors.protocol import Order, Status
from noonward.live.executors.slurm import SlurmExecutor
from noonward.live.shadow.watcher import LEFT_OUT, facts
from noonward.live.store.database import Row
from noonward.live.store.store import Store


class ShadowExecutor(ModelExecutor):
    """Says that a job ran from its decided start for as long as it ran at its cluster.

    Where it ran on other GPUs there, that time is scaled by what the model says of both. As long as a job has not ended
    there, it has not here. Jobs that were not watched take what the model says.

    Args:
        store: Store.
        slurm: The site's cluster.
        site: Name of the site.
        now_s: The service's time, s since its start.
    """

    def __init__(self, store: Store, slurm: SlurmExecutor, site: str, now_s: Callable[[], float]) -> None:
        super().__init__(now_s)
        self.store, self.slurm, self.site = store, slurm, site

    def statuses(self, orders: Sequence[Order]) -> list[Status]:
        """Returns where each job would stand."""
        found = facts(self.store, [order.job for order in orders])
        modelled = [order for order in orders if order.job not in found]
        return super().statuses(modelled) + [
            self._status(order, found[order.job]) for order in orders if order.job in found
        ]

    def _status(self, order: Order, fact: Row) -> Status:
        start_s, end_s, expected_s = (fact[name] for name in ("start_s", "end_s", "expected_s"))
        if end_s is None:
            return Status(token=order.token, handle=order.token, phase="running", began_s=order.start_s)
        if start_s is None:
            return Status(token=order.token, handle=order.token, phase="cancelled", reason="cancelled at its cluster")
        ran_s = (end_s - start_s) / expected_s
        ended_s = order.start_s + ran_s * order.run_s
        over = ended_s <= self._now_s()
        return Status(
            token=order.token,
            handle=order.token,
            phase="done" if over else "running",
            began_s=order.start_s,
            ended_s=ended_s if over else None,
            exit_code=0 if over else None,
        )

    def usable_gpus(self, running_gpus: int) -> int | None:
        """Returns the GPUs of nodes that are up, less those of jobs that are not decided about."""
        rows = self.store.read(
            "SELECT coalesce(sum(gpus), 0) AS n FROM watched WHERE site = ? AND job = ? AND start_s IS NOT NULL AND "
            "end_s IS NULL",
            self.site,
            LEFT_OUT,
        )
        return max(0, self.slurm.up_gpus() - int(rows[0]["n"]))
