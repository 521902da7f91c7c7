"""Jobs in sight: what the service keeps of each, and what it reports of them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

SUBMITTED: Final = "submitted"
TRANSIT: Final = "transit"
WAITING: Final = "waiting"
STARTING: Final = "starting"
SUSPENDED: Final = "suspended"
OVERDUE: Final = "overdue"
NOWHERE: Final[frozenset[int]] = frozenset()
"""The sites that most jobs are kept from: one empty set for all of them, since each new one takes 216 bytes."""


class Arrival(NamedTuple):
    """A job that arrives."""

    job: int
    """Its number in the store."""
    attempt: int
    arrival_s: float
    origin: int
    class_: int
    gpus_min: int
    gpus_max: int
    work: float
    max_delay_s: float
    """Infinite for none."""
    move_gb: float
    result_gb: float
    held: bool = False
    pinned: int = -1
    vetoed: frozenset[int] = NOWHERE
    told: tuple[float, ...] = ()
    """What the scheduler is told of its work, units: the mean; the work in all when it arrives, and then each time it
    has outlived what was told (as ``model.cluster.jobs.TOLD``). Empty: it is told the work that was stated."""
    tenant: int = 0
    """Whose it is, by number; 0 where no tenants are stated."""
    priority: int = 0
    """Jobs of a higher one come first, where priorities are stated."""

    @property
    def expected(self) -> float:
        """Work that the scheduler is told of when it arrives, units."""
        return self.told[1] if self.told else self.work

    def columns(self) -> dict[str, float]:
        """Returns the fields of its JOB record, as the engine is told of them."""
        return {
            "arrival_s": self.arrival_s, "deadline_s": self.arrival_s + self.max_delay_s, "work": self.expected,
            "expected": self.told[0] if self.told else self.work, "move_gb": self.move_gb, "result_gb": self.result_gb,
            "origin": self.origin, "class_": self.class_, "gpus_min": self.gpus_min, "gpus_max": self.gpus_max,
        }  # fmt: skip


_arrival: Final = msgspec.msgpack.Decoder(Arrival)


class Seat(msgspec.Struct, gc=False):
    """A job in sight. Very many may wait, so each takes little memory, and what is rarely asked of one is packed."""

    packed: bytes
    """The job as it arrived, an ``Arrival`` as MessagePack."""
    serial: int
    slot: int
    state: str = SUBMITTED
    site: int = -1
    place: int = -1
    """Its place in the order in which jobs joined queues."""
    gpus: int = 0
    level: int = -1
    earliest_s: float = 0.0
    reach_s: float | None = None
    start_s: float | None = None
    run_s: float | None = None
    power_w: float | None = None
    freed_s: float | None = None
    """When its GPUs were given back in the books, s."""
    resumed_s: float | None = None
    """When its present run was decided, of a job that has been suspended, s."""
    finish_s: float | None = None
    """When it ends by the model, where jobs may be suspended or capped, s."""
    running_place: int = -1
    """Its place in the order in which jobs began to run, or to run on."""
    cap: int = 0
    """Power cap that was decided for it; 0: full power."""
    life: dict[str, float] | None = None
    """What it has lived through (``ToldEngine.life``), of a job that has run and may be suspended or capped."""
    moves: int = 0
    held: bool = False
    pinned: int = -1
    vetoed: frozenset[int] = NOWHERE
    asked: bool = False
    """Whether its scheduler has been asked about it."""

    @classmethod
    def of(cls, about: Arrival, serial: int, slot: int, **stands: Any) -> Seat:
        """Returns the seat of a job that has arrived; further fields say where it stands."""
        steered: dict[str, Any] = {"held": about.held, "pinned": about.pinned, "vetoed": about.vetoed or NOWHERE}
        return cls(msgspec.msgpack.encode(about), serial, slot, **steered, **stands)

    @property
    def about(self) -> Arrival:
        """The job as it arrived."""
        return _arrival.decode(self.packed)

    @property
    def order(self) -> tuple[bool, int, int]:
        """Where it comes among all jobs that are put back: those in queues by their places, then those that run."""
        runs = self.state == STARTING
        return runs, self.running_place if runs else 0, self.place

    @property
    def ends_s(self) -> float:
        """When its present run is expected to end, s."""
        if self.finish_s is not None:
            return self.finish_s
        return float(self.start_s or 0.0) + float(self.run_s or 0.0)


def seats_of(content: bytes) -> list[Seat]:
    """Returns the jobs in sight that MessagePack holds; older stores hold what arrived unpacked, as ``about``."""
    rows = msgspec.msgpack.decode(content)
    for row in rows:
        if "about" in row:
            row["packed"] = msgspec.msgpack.encode(row.pop("about"))
    return msgspec.convert(rows, list[Seat])


class Decision(NamedTuple):
    """An answer of the scheduler that was carried out, or the first time that a job was held."""

    at_s: float
    job: int
    attempt: int
    serial: int
    asker: int
    choice: int
    """0: hold; 1 + s: site s."""
    gpus: int
    level: int
    earliest_s: float
    candidates: str
    """As JSON, a row per site: whether it was feasible, free GPUs, waiting jobs, price and intensity of the hour."""


class Note(NamedTuple):
    """Something that happened to a job in the service's books."""

    at_s: float
    job: int
    kind: str
    data: dict[str, object]
