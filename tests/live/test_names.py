"""Rows name sites, classes and ingress points: a fleet may change, and no job goes to another cluster."""

import pytest

from live.callers import local_client
from noonward.errors import ScenarioError
from noonward.live.journal import replay_journal
from noonward.live.operator import cancel_job
from noonward.live.requests import JobRequest

PATHS = ("/", "/jobs", "/jobs/1", "/plan", "/signals", "/savings", "/decisions", "/v1/jobs", "/v1/sites", "/v1/savings",
         "/v1/decisions", "/v1/events", "/metrics")  # fmt: skip


def with_sites(live, *names):
    """Gives a service's scenario other sites, in this order; new ones are like the first."""
    fleet = live.first_fleet = getattr(live, "first_fleet", live.scenario.fleet)
    known = {site.name: site for site in fleet.sites}
    sites = tuple(known.get(name, fleet.sites[0].model_copy(update={"name": name})) for name in names)
    live.scenario = live.scenario.model_copy(update={"fleet": fleet.model_copy(update={"sites": sites})})


def shown(live):
    with local_client(live) as http:
        for path in PATHS:
            assert http.get(path).status_code == 200, path
        return {job["id"]: (job["state"], job["site"], job["pinned"]) for job in http.get("/v1/jobs").json()["jobs"]}


def submit(live, **given):
    return live.submit(JobRequest(**{"name": "a", "work": 600.0, "origin": "south", **given}))[0]


def test_a_site_more_leaves_jobs_where_they_are(service):
    live = service("local-fcfs")
    runs, waits = submit(live), submit(live, site="north", held=True)
    live.set_time(60.0)
    live.steps()
    live.steps()
    assert shown(live) == {runs: ("running", "south", None), waits: ("waiting", "south", "north")}
    with_sites(live, "east", "south", "north")
    live.restart()
    assert shown(live) == {runs: ("running", "south", None), waits: ("waiting", "south", "north")}
    world = live.controller.world
    assert world.view.site_S["gpus"].tolist() == [8, 8, 8]
    assert world.engine.taken_S.tolist() == [0, 1, 0]
    live.set_time(660.0)
    live.steps()
    live.steps()
    assert shown(live)[runs] == ("done", "south", None)
    assert live.controller.world.engine.taken_S.tolist() == [0, 0, 0]


def test_a_site_leaves_once_no_open_job_names_it(service):
    live = service("local-fcfs")
    submit(live)
    kept = submit(live, origin="north")
    pinned = submit(live, site="south", held=True, origin="north")
    live.set_time(60.0)
    live.steps()
    live.steps()
    cancel_job(live.controller, pinned, "me")
    with_sites(live, "north")
    live.store.close()
    with pytest.raises(ScenarioError, match="1 jobs that have not ended, such as 1, are at site 'south'"):
        live.open()
    with_sites(live, "north", "south")
    live.store.close()
    live.open()
    live.set_time(660.0)
    live.steps()
    live.steps()
    with_sites(live, "north")
    live.restart()
    assert shown(live) == {
        1: ("done", "south", None),
        kept: ("done", "north", None),
        pinned: ("cancelled", "north", "south"),
    }


def test_a_replay_begins_with_the_fleet_as_it_is(service):
    live = service("local-fcfs")
    for _ in range(5):
        submit(live)
    live.set_time(60.0)
    live.steps()
    with_sites(live, "east", "south", "north")
    live.restart()
    live.set_time(120.0)
    submit(live)
    live.set_time(180.0)
    live.steps()
    found = replay_journal(live.controller.setup, live.store)
    assert (found.same, found.compared, found.since_s) == (True, 1, 60.0)
