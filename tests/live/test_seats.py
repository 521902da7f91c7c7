"""Jobs in sight: what each takes of memory, and that older stores are read."""

import gc
import math
import sys

import msgspec

from noonward.live.world.seats import NOWHERE, STARTING, TRANSIT, WAITING, Arrival, Seat, Seats, seats_of

ABOUT = Arrival(
    7, 1, 30.0, 0, 0, 1, 4, work=600.0, max_delay_s=math.inf, move_gb=0.5, result_gb=0.0, vetoed=frozenset()
)


def test_a_job_that_waits_takes_little_memory():
    seat = Seat.of(ABOUT, 3, 5)
    assert seat.about == ABOUT
    assert sys.getsizeof(seat) + sys.getsizeof(seat.packed) < 400  # 808 as a data class beside a tuple and a set
    assert seat.vetoed is NOWHERE
    assert not gc.is_tracked(seat)


def test_what_an_operator_wants_of_a_job_that_arrives_holds_at_its_seat():
    seat = Seat.of(ABOUT._replace(held=True, pinned=1, vetoed=frozenset({0})), 3, 5, state="waiting")
    assert (seat.held, seat.pinned, seat.vetoed, seat.state) == (True, 1, {0}, "waiting")


def test_jobs_in_sight_of_an_older_journal_are_read():
    seat = Seat.of(ABOUT, 3, 5, site=1, reach_s=60.0)
    assert seats_of(msgspec.msgpack.encode([seat])) == [seat]
    older = msgspec.structs.asdict(seat) | {"about": ABOUT[:-2]}
    del older["packed"], older["asked"]
    (read,) = seats_of(msgspec.msgpack.encode([older]))
    assert (read.about, read.site, read.reach_s) == (ABOUT, 1, 60.0)


RARE = {
    "earliest_s": 40.0,
    "gpus": 2,
    "level": 3,
    "moves": 1,
    "held": True,
    "pinned": 1,
    "vetoed": frozenset({0, 2}),
}


def waiting(serial, **more):
    """A job that waits in a queue."""
    return Seat.of(ABOUT, serial, 5, state=WAITING, site=1, place=8, reach_s=60.0, asked=True, **more)


def packed(*seats):
    """Seats that have been kept through a decision."""
    found = Seats()
    for seat in seats:
        found[seat.serial] = seat
    found.pack()
    return found


def test_a_packed_seat_is_as_it_was():
    of_runs = {"start_s", "run_s", "power_w", "freed_s", "resumed_s", "finish_s", "running_place", "cap", "life"}
    usual = {"packed", "serial", "slot", "state", "site", "place", "reach_s", "asked"}
    assert usual | set(RARE) | of_runs == set(Seat.__struct_fields__)
    each = [msgspec.structs.replace(waiting(n), **dict(some)) for n, some in enumerate([(), *zip(RARE.items())])]
    seats = packed(*each)
    assert list(seats.each()) == each
    assert [seats[n] for n in range(len(each))] == each
    assert seats[0].vetoed is NOWHERE


def test_only_what_waits_in_a_queue_is_packed():
    runs, travels, unrouted = waiting(1), waiting(2), waiting(3)
    runs.state, travels.state, unrouted.site = STARTING, TRANSIT, -1
    seats = packed(runs, travels, unrouted, waiting(4))
    assert [type(seat) for seat in seats._seats.values()] == [Seat, Seat, Seat, bytes]
    assert (seats[1], seats[2], seats[3]) == (runs, travels, unrouted)
    assert list(seats.begun()) == [runs]
    travels.state = WAITING
    seats.pack()
    assert [type(seat) for seat in seats._seats.values()] == [Seat, bytes, Seat, bytes]
    assert list(seats) == [seat.serial for seat in seats.each()] == [1, 2, 3, 4]


def test_what_is_changed_of_a_seat_that_was_asked_for_is_kept():
    seats = packed(waiting(1), waiting(2))
    seats[1].held = True
    assert (seats[1].held, seats[2].held) == (True, False)
    seats.pack()
    seats[1].site = 0
    seats.pack()
    assert (seats[1].held, seats[1].site) == (True, 0)
    del seats[2]
    seats.pack()
    assert list(seats) == [1]


def test_a_packed_seat_takes_a_third_of_the_memory():
    (seat,) = packed(waiting(1))._seats.values()
    assert sys.getsizeof(seat) < 140  # a seat, what it holds packed, three numbers and a time: 400


def test_nothing_is_packed_where_all_are_asked_for_in_every_slot():
    seats = Seats(packs=False)
    seats[1] = seat = waiting(1)
    seats.pack()
    assert seats[1] is seat
