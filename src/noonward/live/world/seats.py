"""Jobs in sight: what the service keeps of each, and what it reports of them."""

from __future__ import annotations

import operator
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from noonward.live.turns import give_way

if TYPE_CHECKING:
    from noonward.live.world.candidates import Seen

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


class _Waiting(msgspec.Struct, array_like=True, omit_defaults=True):
    """What is kept of a seat that waits in a queue; what most do not need comes last, and is left out."""

    packed: bytes
    slot: int
    site: int
    place: int
    reach_s: float | None
    asked: bool
    earliest_s: float = 0.0
    gpus: int = 0
    level: int = -1
    moves: int = 0
    held: bool = False
    pinned: int = -1
    vetoed: frozenset[int] = NOWHERE


_kept: Final = operator.attrgetter(*_Waiting.__struct_fields__)
_waiting: Final = msgspec.msgpack.Decoder(_Waiting)


def _unpacked(serial: int, content: bytes) -> Seat:
    """Returns a seat that waits from what is kept of it."""
    kept = _waiting.decode(content)
    return Seat(
        kept.packed,
        serial,
        kept.slot,
        WAITING,
        kept.site,
        kept.place,
        kept.gpus,
        kept.level,
        kept.earliest_s,
        kept.reach_s,
        moves=kept.moves,
        held=kept.held,
        pinned=kept.pinned,
        vetoed=kept.vetoed or NOWHERE,
        asked=kept.asked,
    )


class Seats(MutableMapping[int, Seat]):
    """Jobs in sight by the number of their arrival, in the order in which they came.

    Those that wait in a queue and that nobody has asked for since ``pack`` are kept packed, in a third of the memory.
    Once a seat has been asked for by its number, it is the same object until the next ``pack``.

    Args:
        packs: Whether any are packed; where all are asked for in every slot, that would only take time.
    """

    def __init__(self, *, packs: bool = True) -> None:
        self._packs = packs
        self._seats: dict[int, Seat | bytes] = {}
        self._loose: list[int] = []

    def __getitem__(self, serial: int) -> Seat:
        seat = self._seats[serial]
        if isinstance(seat, bytes):
            seat = self[serial] = _unpacked(serial, seat)
        return seat

    def __setitem__(self, serial: int, seat: Seat) -> None:
        self._seats[serial] = seat
        if self._packs:
            self._loose.append(serial)

    def __delitem__(self, serial: int) -> None:
        del self._seats[serial]

    def __contains__(self, serial: object) -> bool:
        return serial in self._seats

    def __iter__(self) -> Iterator[int]:
        return iter(self._seats)

    def __len__(self) -> int:
        return len(self._seats)

    def each(self) -> Iterator[Seat]:
        """Yields all seats, to be read only: what is changed of one may be forgotten."""
        for serial, seat in self._seats.items():
            yield _unpacked(serial, seat) if isinstance(seat, bytes) else seat

    def begun(self) -> Iterator[Seat]:
        """Yields the seats of jobs that have been started."""
        return (seat for seat in self._seats.values() if not isinstance(seat, bytes) and seat.state == STARTING)

    def pack(self) -> None:
        """Packs what waits in queues; nobody may hold on to a seat for longer."""
        loose, self._loose = self._loose, []
        for serial in dict.fromkeys(loose):
            give_way()
            seat = self._seats.get(serial)
            if isinstance(seat, Seat) and seat.state == WAITING and seat.site >= 0:
                self._seats[serial] = msgspec.msgpack.encode(_Waiting(*_kept(seat)))
            elif isinstance(seat, Seat) and seat.state != STARTING:
                self._loose.append(serial)


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
    seen: Seen
    """What was seen of the sites."""
    feasible: str
    """For each site 1 where it was feasible, else 0."""


class Note(NamedTuple):
    """Something that happened to a job in the service's books."""

    at_s: float
    job: int
    kind: str
    data: dict[str, object]
