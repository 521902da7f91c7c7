"""A day whose jobs took longer or shorter than planned, failed, and were steered: replayed with the same decisions."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from noonward.errors import ScenarioError
from noonward.live.executors.model import ModelExecutor
from noonward.live.executors.protocol import Status
from noonward.live.journal import replay_journal
from noonward.live.operator import cancel_job, drain_site, hold_job, steer_job

CROWDED = ("jobs.count=60", "jobs.demand=0.9")
FEWER = ("jobs.classes.inference.rate_per_s=0.002", "jobs.classes.training.rate_per_s=0.002")
SMALL_DAY = ("jobs.cluster_gpus=150", "jobs.mean_gpus=24", "jobs.slack_s=10800")


class UnevenExecutor(ModelExecutor):
    """Jobs take between a third and one and a half of what the model says; every seventh fails when its site fails."""

    def statuses(self, orders):
        return [self._status_of(order) for order in orders]

    def _status_of(self, order):
        ended_s = order.start_s + order.run_s * (0.3 + 0.2 * (order.job * 7 % 7 + order.job % 7))
        phase = "running"
        if ended_s <= self._now_s():
            phase = "node-failed" if order.job % 7 == 3 and order.token.endswith("-0") else "done"
        return Status(
            token=order.token, handle=order.token, phase=phase, began_s=order.start_s,
            ended_s=ended_s if phase == "done" else None,
        )  # fmt: skip


def uneven(live):
    for agent in live.controller.agents:
        agent.executor = UnevenExecutor(live.store.now_s)


def play(live, hours, step_s, events=()):
    """Plays the environment's first jobs, a step at a time; ``events`` are (step, what is done)."""
    jobs, coming = live.environment.jobs, 0
    events = dict(events)
    uneven(live)
    for step in range(int(hours * 3600 / step_s)):
        if step in events:
            events[step](live)
            uneven(live)
        live.set_time(step * step_s)
        while coming < len(jobs) and jobs.arrival_s_J[coming] <= step * step_s:
            live.submit(msgspec.structs.replace(live.request(coming), retries=1))
            coming += 1
        live.steps()


def open_jobs(live, *states):
    marks = ", ".join("?" * len(states))
    return [row["id"] for row in live.store.read(f"SELECT id FROM jobs WHERE state IN ({marks}) ORDER BY id", *states)]


def cancel_some(live):
    for job in open_jobs(live, "waiting", "starting", "running")[::4]:
        cancel_job(live.controller, job, "me")


def steer_some(live):
    for job in open_jobs(live, "waiting"):
        if job % 2:
            hold_job(live.controller, job, True, "me")
        else:
            steer_job(live.controller, job, "me", veto=("north",))


def let_go(live):
    for row in live.store.read("SELECT id FROM jobs WHERE held = 1 AND state = 'waiting'"):
        hold_job(live.controller, row["id"], False, "me")


SLOTS = (
    (30, cancel_some),
    *((step, steer_some) for step in range(40, 200, 9)),
    (70, lambda live: drain_site(live.controller, "south", True, "me")),
    (90, lambda live: live.restart()),
    (120, let_go),
    (150, lambda live: live.set_time(live.store.now_s() + 4000.0)),
    (200, lambda live: drain_site(live.controller, "south", False, "me")),
    (230, lambda live: live.restart()),
)
"""By step, what is done to a day in slots."""


def assert_replays(live, *policies):
    found = replay_journal(live.controller.setup, live.store)
    assert found.same, (found.recorded, found.replayed)
    assert found.policies == policies
    assert (
        found.compared
        == live.store.read(
            "SELECT count(*) AS n FROM events WHERE kind IN ('start decided', 'sent', 'overdue', 'infeasible answer')"
        )[0]["n"]
    )
    assert found.compared > 20


def test_prices_that_were_published_late_are_replayed_as_they_were_known(service):
    live = service("booked-published", *CROWDED, "fleet.sites.0.zone=DE", "fleet.sites.1.zone=FR")
    source = live.controller.setup.source
    whole = source.published
    unknown = {"price_usd_per_mwh": np.full((2, 1), np.nan)}

    def late(zones, start, hours):
        found = whole(zones, start, hours)
        return found if start.hour % 3 else replace(found, value_ZH=unknown)

    source.published = late
    play(live, 10, 60.0)
    assert_replays(live, "booked-published")
    live.store.do(lambda connection, now_s: connection.execute("DELETE FROM published"))
    assert not replay_journal(live.controller.setup, live.store).same


@pytest.mark.parametrize("policy", ["random", "booked-persistence", "bid-price-persistence"])
def test_a_day_in_slots_is_replayed_whatever_happened(service, policy):
    live = service(policy, *CROWDED)
    play(live, 10, 60.0, SLOTS)
    kinds = {row["kind"] for row in live.store.read("SELECT kind FROM events")}
    assert {"queued again", "cancelled"} <= kinds
    assert kinds & {"steered", "held"}
    assert_replays(live, policy)


def test_a_day_on_arrival_is_replayed_whatever_happened(service):
    live = service("ucb1", "window_h=1", *FEWER, scenario="dvfs-mixed")
    play(live, 1.2, 20.0, [(40, cancel_some), (90, lambda live: live.restart())])
    assert_replays(live, "ucb1")


def test_a_planned_day_is_replayed_with_its_curves(service):
    live = service("plan-hard", *SMALL_DAY, scenario="load-shaping")
    play(live, 24, 600.0, [(40, cancel_some), (75, lambda live: live.restart())])
    assert_replays(live, "plan-hard")


def test_other_policies_and_policies_begun_anew_are_replayed(service):
    live = service("random", *CROWDED)
    changes = [(100, "booked-persistence"), (200, "booked-persistence"), (300, "random")]
    play(live, 8, 60.0, [(step, lambda live, to=to: live.controller.use_policy(to)) for step, to in changes])
    assert_replays(live, "random", "booked-persistence", "random")


def test_the_first_decision_that_differs_is_shown(service):
    live = service("random", *CROWDED)
    play(live, 6, 60.0)
    rows = live.store.read("SELECT id, job, data FROM events WHERE kind = 'start decided' ORDER BY id")
    data = json.loads(rows[5]["data"]) | {"gpus": 99}
    change = "UPDATE events SET data = ? WHERE id = ?"
    live.store.do(lambda connection, now_s: connection.execute(change, (json.dumps(data), rows[5]["id"])) and None)
    found = replay_journal(live.controller.setup, live.store)
    assert not found.same
    assert (found.recorded.job, found.recorded.data["gpus"], found.replayed.job) == (rows[5]["job"], 99, rows[5]["job"])
    assert found.compared == np.searchsorted(
        [row["id"] for row in live.store.read(
            "SELECT id FROM events WHERE kind IN ('start decided', 'sent', 'overdue', 'infeasible answer') ORDER BY id"
        )], rows[5]["id"],
    )  # fmt: skip


def test_an_incomplete_record_and_an_empty_one_are_refused(service):
    live = service("local-fcfs")
    with pytest.raises(ScenarioError, match="nothing to replay"):
        replay_journal(live.controller.setup, live.store)
    live.play()
    live.store.do(lambda connection, now_s: connection.execute("DELETE FROM journal") and None)
    live.submit(live.request(0))
    live.set_time(live.store.now_s() + 60.0)
    live.steps()
    with pytest.raises(ScenarioError, match="does not begin where books were opened"):
        replay_journal(live.controller.setup, live.store)
    live.store.do(lambda connection, now_s: connection.execute("DELETE FROM journal") and None)
    live.restart()
    live.submit(live.request(1))
    live.set_time(live.store.now_s() + 60.0)
    live.steps()
    assert replay_journal(live.controller.setup, live.store).compared == 1
