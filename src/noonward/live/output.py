"""What a job has printed, as far as the service can read it."""

from __future__ import annotations

from typing import Final

import msgspec

from noonward.live.controller import Controller
from noonward.live.executors.protocol import ClusterError
from noonward.live.orders import ORDERS, order_of
from noonward.live.refusals import ClusterAwayError, NoSuchJobError, NotYoursError

MOST_BYTES: Final = 2**20
"""Most of what a job has printed that is shown at once, bytes."""


class JobOutput(msgspec.Struct, kw_only=True):
    """The end of what a job has printed."""

    job: int
    site: str
    text: str
    """What is not UTF-8 is replaced."""
    cut: bool
    """Whether there is more before it."""


def job_output(controller: Controller, job: int, most: int, *, only_of: str | None = None) -> JobOutput:
    """Returns the end of what a job has printed.

    Args:
        controller: Controller.
        job: Number of the job.
        most: How much, bytes.
        only_of: Owner whose jobs alone are shown; None: all are.

    Raises:
        NoSuchJobError: There is no such job, or nothing of it can be read.
        NotYoursError: It is another owner's.
        ClusterAwayError: Its cluster does not answer.
        StoreError: The store cannot be read now.
    """
    rows = controller.store.read("SELECT owner, site FROM jobs WHERE id = ?", job)
    if not rows:
        raise NoSuchJobError(f"there is no job {job}")
    owner, site = rows[0]["owner"], rows[0]["site"]
    if only_of not in (None, owner):
        raise NotYoursError(f"job {job} is of {owner or 'nobody'}; its owner and administrators read what it prints")
    orders = controller.store.read(f"{ORDERS} WHERE j.id = ?", job)
    if not orders or site not in controller.setup.sites:
        raise NoSuchJobError(f"job {job} has not been handed to a cluster of this service: it has printed nothing")
    agent = controller.agents[controller.setup.sites.index(site)]
    try:
        content = agent.executor.printed(order_of(orders[0]), most + 1)
    except ClusterError as error:
        raise ClusterAwayError(f"what job {job} has printed cannot be read now: {error}") from error
    if content is None:
        raise NoSuchJobError(
            f"the service cannot read what job {job} has printed at {site}: it has printed nothing yet, names a file "
            "of its own, or only its cluster keeps it; look there"
        )
    return JobOutput(job=job, site=site, text=content[-most:].decode(errors="replace"), cut=len(content) > most)
