"""What a service was told, replayed: the same arrivals, ends and commands give the same decisions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from noonward.arrays import F8
from noonward.errors import NoonwardError, ScenarioError
from noonward.live.books import OPENED, Opening, named, restore, restore_curves
from noonward.live.grid.keeper import HISTORY_H
from noonward.live.names import Names
from noonward.live.setup import Setup
from noonward.live.states import from_bytes
from noonward.live.store.store import Store
from noonward.live.world.bending import DECIDED as OF_RUNNING
from noonward.live.world.hours import Hours
from noonward.live.world.seats import OVERDUE, Note, seats_of
from noonward.live.world.world import World
from noonward.model.signals import Signals
from noonward.seeding import stream
from noonward.units import HOUR_S

DECIDED: Final = ("start decided", "sent", "infeasible answer", OVERDUE, *OF_RUNNING)
"""Events that a decision leaves in the store."""


class _Known(NamedTuple):
    """Signals as they were known at the time, and the prices that were known ahead in every hour."""

    signals: Signals
    published: dict[int, F8]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a replay found.

    Attributes:
        compared: Events of decisions that were compared: starts, journeys, drops, refused answers.
        since_s: Where the replay begins, s since the service's start: at its first job, or where its books were opened
            since then and what was before has been deleted.
        policies: Policies that decided, in order.
        recorded: The first event that differs, as it was recorded; None: none, or nothing was recorded.
        replayed: The same as it was replayed; None: none, or nothing came of the replay.
    """

    compared: int
    since_s: float
    policies: tuple[str, ...]
    recorded: Note | None = None
    replayed: Note | None = None

    @property
    def same(self) -> bool:
        """Whether all decisions came out as they were recorded."""
        return self.recorded is None and self.replayed is None


def replay_journal(setup: Setup, store: Store) -> Replayed:
    """Asks fresh schedulers about what a service was told, and compares their decisions with those recorded.

    The books are told the same in the same order: arrivals, ends of jobs as their clusters said, failures and jobs
    queued again, cancellations, holds, pins, vetoes, sites that were drained or lost, withheld GPUs, other policies,
    restarts and slots that were skipped. Signals are as they were known at the time. It ends at the first difference.
    What was decided while the fleet had other sites, classes or ingress points is passed over.

    Args:
        setup: Parts of the service.
        store: Its store.

    Raises:
        ScenarioError: Nothing was recorded, or the journal does not fit together.
    """
    world, compared, policies = None, 0, []
    recorded: Iterator[Note] = iter(())
    since_s, began = 0.0, False
    names = Names.of(setup.scenario.fleet, setup.scenario.tenants)
    known = _signals(setup, store)
    for row in store.read("SELECT opened_s, after_event, inputs FROM journal ORDER BY id"):
        for what, *how in msgspec.msgpack.decode(row["inputs"]):
            if what == OPENED:
                opening, began = msgspec.convert(how[0], Opening), True
                if opening.fleet != names.as_text():
                    world = None
                    continue
                policies.append(opening.policy)
                if world is None:
                    recorded, since_s = _recorded(store, row["after_event"]), row["opened_s"]
                world = _opened(setup, known, world, opening)
            elif world is not None:
                with contextlib.suppress(NoonwardError):  # a question that failed then fails again
                    world.again(what, *how)
            elif not began:
                raise ScenarioError(
                    f"the journal in {store.database.title} does not begin where books were opened; it was changed by "
                    "hand"
                )
        if world is None:
            continue
        for note in world.drain_changes()[2]:
            if note.kind not in DECIDED:
                continue
            before = next(recorded, None)
            if before != _plain(named(note, names)):
                return Replayed(
                    compared=compared, since_s=since_s, policies=_each_once(policies), recorded=before, replayed=note
                )
            compared += 1
    if not compared:
        raise ScenarioError(f"{store.database.title} holds no job that was decided about; there is nothing to replay")
    return Replayed(compared=compared, since_s=since_s, policies=_each_once(policies), recorded=next(recorded, None))


def _recorded(store: Store, after: int) -> Iterator[Note]:
    """Yields the events of decisions after one, in the order in which they were stored."""
    kinds = ", ".join(f"'{kind}'" for kind in DECIDED)
    query = f"SELECT at_s, job, kind, data FROM events WHERE kind IN ({kinds}) AND id > ? ORDER BY id"
    for row in store.read(query, after):
        yield Note(row["at_s"], row["job"], row["kind"], json.loads(row["data"]))


def _plain(note: Note) -> Note:
    """Returns a note as it comes back from the store."""
    return note._replace(data=json.loads(json.dumps(note.data)))


def _each_once(policies: list[str]) -> tuple[str, ...]:
    return tuple(name for n, name in enumerate(policies) if n == 0 or name != policies[n - 1])


def _signals(setup: Setup, store: Store) -> _Known | None:
    """Returns the signals as they were known at the time, up to the last question."""
    keeper = setup.keeper(store)
    if keeper is None:
        return None
    hours = int((store.value("asked_s") or 0.0) // HOUR_S) + 1
    return _Known(keeper.signals(-HISTORY_H, hours), keeper.published(0, hours))


def _opened(setup: Setup, known: _Known | None, before: World | None, opening: Opening) -> World:
    """Returns the books after a start of the service, or after another policy was chosen.

    Args:
        setup: Parts of the service.
        known: Signals as they were known.
        before: The books until then; None at first.
        opening: Where the service stood.

    Raises:
        ScenarioError: Arrivals are missing between the books until then and these.
    """
    if before is not None and before.serial != opening.serial:
        raise ScenarioError(
            f"the journal lacks {opening.serial - before.serial} arrivals before the books of {opening.policy} were "
            "opened; it was changed by hand"
        )
    if before is not None and not opening.anew:
        before.forget_outside()
        return before
    scheduler = setup.scheduler(opening.policy)
    seed, zones = setup.config.seed, [site.zone for site in setup.scenario.fleet.sites]
    brief, hours = setup.brief(scheduler.needs), None
    if known is not None:
        rng = stream(seed, "forecast", 0)
        hours = Hours(
            known.signals, setup.start, zones, scheduler.needs.forecast, rng, brief.pue, known.published, brief.prices
        )
    world = World(
        brief,
        scheduler,
        hours,
        stream(seed, "policy", 0),
        [executor.exact_ends for executor in setup.executors],
        [executor.keeps_gpus for executor in setup.executors],
        setup.part_s,
    )
    scheduler.load_state(from_bytes(opening.state))
    restore_curves(world, opening.curves)
    restore(world, opening, seats_of(opening.seats))
    return world
