"""Grid events at a live service: called, obeyed, held against the meter; a simulation decides the same."""

import contextlib
import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import numpy as np
import pytest
from pydantic import ValidationError

from data.vtn_server import VtnServer
from live.callers import local_client
from live.test_pages import word_of
from live.test_running_jobs import Bending
from live.test_running_jobs import to as killed_to
from live.test_simulation_equals_live import assert_as_simulated, lives
from noonward.cli import live_events
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError, ScenarioError
from noonward.live.client import Client
from noonward.live.config import LiveConfig
from noonward.live.demand.events import EventCall
from noonward.live.demand.feeds import MeterReadings
from noonward.live.demand.settings import MeterFeed, check_demand
from noonward.live.demand.shown import event_list, meter_list, power_lines, remark
from noonward.live.grid.sources import SourceError
from noonward.live.journal import replay_journal
from noonward.live.refusals import NoSuchJobError, TooLateError
from noonward.live.requests import JobRequest

POLICY = "event-response(base=local-fcfs)"
METER = "fleet.sites.0.meter={interval_min: 5}"
FREE = "fleet.freedoms={fine-tuning: {interruptible: true, checkpoint: {stop_s: 60, dark_s: 60, load_s: 60}}}"
DAY = (FREE, METER, "slot_s=300")
HOUR_S = 3600.0


def to(live, until_s, every_s=300.0):
    """Lets time pass, slot by slot."""
    while live.clock.seconds < until_s:
        live.set_time(live.clock.seconds + every_s)
        live.steps()


def busy(live, count=4, gpus=2):
    """A service whose first site is full of jobs that run for eight hours and may wait long."""
    for _ in range(count):
        live.submit(
            JobRequest(name="a", work=8 * HOUR_S, origin="north", gpus_min=gpus, gpus_max=gpus, max_delay_s=9e5)
        )
    to(live, HOUR_S)
    assert live.controller.meters.of["north"].estimate[1] == pytest.approx(8 * 80 * 1.1 / 1000)


@pytest.fixture
def live(service):
    return service(POLICY, *DAY, live={"events": {}})


def states(live):
    return [row["state"] for row in live.store.read("SELECT state FROM jobs ORDER BY id")]


def call(live, **given):
    given = {"site": "north", "cut": 0.5, "hours": 1.0, "notice_min": 10.0, "ramp_min": 0.0, **given}
    return live.controller.grid_events.call(EventCall(**given), "operator")


def test_an_event_is_obeyed_and_its_jobs_run_on_after_it(live):
    busy(live)
    assert call(live) == 1
    (event,) = event_list(live.controller)
    assert (event.state, event.baseline_kw, event.target_kw) == (
        "announced",
        pytest.approx(0.704),
        pytest.approx(0.352),
    )
    to(live, HOUR_S + 600)
    assert states(live) == ["running"] * 4
    to(live, HOUR_S + 1200)
    assert states(live).count("suspended") == 3  # free GPUs draw 8 W: two jobs with them are above half
    (meter,) = meter_list(live.controller)
    assert (meter.counted, meter.event, meter.limit_kw) == ("estimated", 1, pytest.approx(0.352))
    to(live, 2 * HOUR_S + 1800)
    (event,) = event_list(live.controller)
    assert (event.state, event.unknown) == ("over", 0)
    assert event.asked_kwh == pytest.approx(0.352)
    assert event.left_out_kwh == pytest.approx(0.352, rel=0.15)
    assert states(live) == ["running"] * 4
    to(live, 12 * HOUR_S)
    assert states(live) == ["done"] * 4
    assert replay_journal(live.controller.setup, live.store).same


def test_a_cancelled_event_lets_jobs_run_on_at_once(live):
    busy(live)
    call(live, notice_min=0.0)
    to(live, HOUR_S + 900)
    assert "suspended" in states(live)
    live.controller.grid_events.cancel(1, "operator")
    to(live, HOUR_S + 1500)
    assert states(live) == ["running"] * 4
    assert event_list(live.controller)[0].state == "cancelled"
    with pytest.raises(TooLateError, match="cancelled before"):
        live.controller.grid_events.cancel(1, "operator")
    with pytest.raises(NoSuchJobError, match="no grid event 7"):
        live.controller.grid_events.cancel(7, "operator")
    to(live, 12 * HOUR_S)
    assert replay_journal(live.controller.setup, live.store).same


def test_a_missed_target_is_an_alarm_a_metric_and_an_event(service):
    live = service("local-fcfs", *DAY, live={"events": {}})
    busy(live)
    call(live, target_kw=0.3, cut=None, baseline_kw=0.7, notice_min=0.0)
    to(live, HOUR_S + 1200)
    assert live.controller.meters.missed["north"] == 4
    assert "grid event 1 allows 0.3 kW" in live.controller.problems["target of north"]
    assert lives(live)["target missed"] == 4
    with local_client(live) as http:
        page = http.get("/metrics").text
        assert 'noonward_event_missed_total{site="north"} 4' in page
        assert 'noonward_site_target_kw{site="north"} 0.3' in page
        assert 'noonward_site_power_kw{site="north",by="estimated"} 0.704' in page
        assert "missed its target: 0.704 kW" in http.get("/", headers={"Accept": "text/html"}).text
        grid = http.get("/grid", headers={"Accept": "text/html"}).text
    assert "policy local-fcfs does not follow grid events".capitalize() in grid
    assert "0.3 kW allowed" in grid
    assert max(kw for kw in power_lines(live.controller)["north"]["limit"] if kw) == 0.3
    to(live, 3 * HOUR_S)
    assert "target of north" not in live.controller.problems
    assert event_list(live.controller)[0].missed == 12


WRONG = (
    ({"site": "nord"}, "unknown site 'nord'.*north"),
    ({"site": "south"}, "south has no meter"),
    ({"notice_min": None, "start": "2022-01-01T00:00Z"}, "which is past"),
    ({"start": "2022-01-01T00:00Z"}, "not both"),
    ({"notice_min": None, "start": "soon"}, "is not a time"),
    ({"target_kw": 0.2}, "target_kw or cut"),
    ({"cut": 1.5}, "cut"),
    ({"hours": 30.0}, "hours"),
    ({"cut": None, "target_kw": 9.0}, "above its baseline_kw"),
    ({"notice_min": 6e6}, "within the next year"),
    ({"notice_min": 40.0}, "overlaps grid event 1"),
)


def test_wrong_events_are_refused(live):
    call(live, baseline_kw=0.7, notice_min=30.0)
    for given, words in WRONG:
        with pytest.raises(DataError, match=words):
            call(live, **{"baseline_kw": 0.7, **given})
    assert len(event_list(live.controller)) == 1


def test_a_baseline_needs_readings_or_a_word(live):
    with pytest.raises(DataError, match=r"nothing is known of what north drew.*--baseline-kw"):
        call(live)


def test_a_cluster_that_cannot_cap_jobs_is_asked_to_suspend_them_alone(service, monkeypatch):
    monkeypatch.setattr(Bending, "levers", frozenset({"suspend"}))
    freedoms = "fleet.freedoms={fine-tuning: {interruptible: true, caps: emerald-a100-fine-tuning}}"
    made = {"executors": {"north": Bending()}, "live": {"events": {}}}
    with pytest.raises(ScenarioError, match="wants to cap running jobs, which site north"):
        service(POLICY, freedoms, METER, "slot_s=300", **made)
    live = service("event-response(base=local-fcfs,levers=hold-suspend)", freedoms, METER, "slot_s=300", **made)
    assert remark(live.controller).startswith("no class of jobs may be capped")


def test_a_service_without_events_takes_none(service):
    with pytest.raises(DataError, match="takes no grid events"):
        call(service(POLICY, *DAY))


def test_events_survive_a_restart_and_are_audited(live):
    busy(live)
    call(live, notice_min=0.0)
    live.restart()
    to(live, HOUR_S + 900)
    assert "suspended" in states(live)
    live.restart()
    to(live, 12 * HOUR_S)
    assert states(live) == ["done"] * 4
    said = [tuple(row) for row in live.store.read("SELECT who, action, detail FROM audit")]
    assert said == [("operator", "grid event", "number 1 at north")]


SIMULATED = (
    "fleet.freedoms={fine-tuning: {interruptible: true, caps: emerald-a100-fine-tuning}}",
    "jobs.slack_ratio=8",
    "slot_s=300",
    "fleet.sites.0.meter={interval_min: 5, tariff: t}",
    "fleet.tariffs={t: {demand: [{usd_per_kw_month: 10}]}}",
    "events=[{site: north, start_h: 3, hours: 2, notice_min: 10, baseline_kw: 0.5, target_kw: 0.2, ramp_min: 5}]",
)


def test_a_simulation_and_a_service_follow_an_event_alike(service):
    live = service(POLICY, *SIMULATED, live={"events": {}})
    live.play(25)
    assert_as_simulated(live, POLICY)
    happened = lives(live)
    assert min(happened["suspended"], happened["cap decided"]) > 3
    assert replay_journal(live.controller.setup, live.store).same


def test_the_command_line_calls_lists_and_cancels(live, noonward, monkeypatch):
    busy(live)
    with local_client(live) as inner:

        def pass_on(request):
            path, headers = request.url.raw_path.decode(), {"Content-Type": "application/json"}
            answer = inner.request(request.method, path, content=request.content, headers=headers)
            return httpx.Response(answer.status_code, content=answer.content)

        transport = httpx.MockTransport(pass_on)
        monkeypatch.setattr(
            live_events, "open_client", lambda address: Client("http://localhost:8470", transport=transport)
        )
        said = noonward("live", "event", "north", "--cut", "25%", "--hours", "3", "--notice", "10min")
        assert "grid event 1 at north: 0.528 kW at most (baseline 0.704 kW)" in said.out
        assert "no class of jobs may be capped" in said.err
        assert '"told_by": ' in noonward("live", "events", "--json").out
        assert "announced" in noonward("live", "events").out
        assert "overlaps grid event 1" in noonward("live", "event", "north", "--cut", "25%", "--notice", "1h").err
        assert "is cancelled" in noonward("live", "event", "north", "--cancel").out
        assert "no grid event of north is open" in noonward("live", "event", "north", "--cancel").err
        assert "--cut or --target-kw" in noonward("live", "event", "north").err


def test_the_forms_of_the_page_call_and_cancel_events(live):
    busy(live)
    with local_client(live, follow_redirects=False) as browser:
        page = browser.get("/grid")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "style=" not in page.text
        word = {"word": word_of(page)}
        asked = {**word, "site": "north", "cut_percent": "25", "target_kw": "", "hours": "2", "notice_min": "10"}
        assert browser.post("/grid-events", data={**asked, "hours": "two"}).status_code == 422
        assert browser.post("/grid-events", data=asked).headers["location"] == "/grid"
        (event,) = event_list(live.controller)
        assert (event.state, event.target_kw) == ("announced", pytest.approx(0.75 * 0.704))
        assert 'id="cancel-1"' in browser.get("/grid").text
        assert browser.post("/grid-events/1/cancel", data=word).status_code == 303
        assert event_list(live.controller)[0].state == "cancelled"
        assert browser.post("/grid-events/1/cancel", data=word).status_code == 409


@pytest.mark.parametrize("when", ["crash_at", "crash_after"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_kill_at_any_call_of_an_event_strands_no_job(service, when, number):
    cluster = Bending()
    live = service(POLICY, *DAY, executors={"north": cluster}, live={"events": {}})
    busy_at(live, cluster)
    call(live, baseline_kw=0.7, notice_min=0.0)
    cluster.calls = 0
    setattr(cluster, when, number)
    killed_to(live, HOUR_S + 1500, every_s=300.0)
    assert cluster.calls > number
    assert sorted(states(live)) == ["running", *["suspended"] * 3]
    assert len(cluster.running()) == 1
    killed_to(live, 3 * HOUR_S, every_s=300.0)
    assert states(live) == ["running"] * 4
    assert len(cluster.running()) == 4
    assert all(len(runs) == 2 for job, runs in cluster.starts.items() if len(runs) > 1)
    assert lives(live)["suspended"] == 3


def busy_at(live, cluster):
    for _ in range(4):
        live.submit(JobRequest(name="a", work=8 * HOUR_S, origin="north", gpus_min=2, gpus_max=2, max_delay_s=9e5))
    to(live, HOUR_S)
    assert len(cluster.running()) == 4


CONTRACT = {"site": "north", "openadr_target": "dc-1", "baseline_kw": 0.7, "ramp_min": 0.0}


def openadr(start="2022-01-01T01:10:00Z", limit_kw=0.35):
    return {
        "programID": "7",
        "targets": ["dc-1"],
        "intervalPeriod": {"start": start, "duration": "PT1H"},
        "intervals": [{"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [limit_kw]}]}],
    }


@pytest.fixture
def vtn():
    server = VtnServer({"me": "secret"})
    yield server
    server.close()


def told(live):
    return [(one.state, one.start[11:16], one.target_kw, one.told_by) for one in event_list(live.controller)]


def test_a_vtn_is_asked_again_and_its_events_are_obeyed_changed_and_withdrawn(service, vtn, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    events = {"openadr": vtn.url, "client": "me", "secret_file": secret, "contracts": [CONTRACT]}
    live = service(POLICY, *DAY, live={"events": events})
    start = live.controller.setup.start.strftime("%Y-%m-%d")
    busy(live)
    made = vtn.created(openadr(f"{start}T01:10:00Z"))
    to(live, HOUR_S + 900)
    assert told(live) == [("active", "01:10", 0.35, "OpenADR")]
    assert "suspended" in states(live)
    vtn.events[0] |= openadr(f"{start}T01:10:00Z", 0.5)
    to(live, HOUR_S + 1800)
    assert told(live) == [("active", "01:10", 0.5, "OpenADR"), ("cancelled", "01:10", 0.35, "OpenADR")]
    vtn.trouble = b"<html>"
    with pytest.raises(SourceError, match="returned no JSON"):
        to(live, HOUR_S + 2100)
    live.controller.event_source._looked_s = 0.0
    with pytest.raises(SourceError, match="asked again in"):
        live.controller.look_for_events()
    assert told(live)[0][0] == "active"
    vtn.trouble = None
    vtn.events.clear()
    assert made["id"]
    to(live, HOUR_S + 3000)
    assert told(live)[0] == ("cancelled", "01:10", 0.5, "OpenADR")
    assert states(live) == ["running"] * 4


def test_a_file_of_events_is_read_again_when_it_changes(service, tmp_path):
    path = tmp_path / "calls.csv"
    head = "site,time,hours,baseline_kw,target_kw,ramp_min\n"
    path.write_text(f"{head}north,2022-12-25T02:00Z,1,0.7,0.4,0\n")
    live = service(POLICY, *DAY, "start=2022-12-25", live={"events": {"path": path}})
    to(live, 300)
    assert told(live) == [("announced", "02:00", 0.4, str(path))]
    path.write_text(f"{head}north,2022-12-25T03:00Z,1,0.7,0.4,0\nnorth,2022-12-25T03:30Z,1,0.7,0.4,0\n")
    with pytest.raises(DataError, match="overlaps grid event 2"):
        to(live, 600)
    assert told(live) == [("announced", "03:00", 0.4, str(path)), ("cancelled", "02:00", 0.4, str(path))]


def test_a_target_is_held_against_what_a_file_measures(service, tmp_path):
    path = tmp_path / "kw.csv"
    path.write_text("time,kw\n2022-12-25T00:00Z,700\n")
    live = service(
        POLICY, *DAY, "start=2022-12-25", live={"meters": {"north": {"path": path, "unit": "W"}}, "events": {}}
    )
    assert live.controller.meters.of["north"].by == "estimated"  # nothing runs there
    live.controller.meters.of["north"].modelled = False  # as if something did
    to(live, 600)
    (shown,) = meter_list(live.controller)
    assert (shown.counted, shown.measured_kw, shown.source) == ("measured", pytest.approx(0.7), str(path))
    call(live, baseline_kw=1.0, target_kw=0.5, cut=None, notice_min=0.0)
    path.write_text(
        "time,kw\n2022-12-25T00:00Z,700\n2022-12-25T00:10Z,600\n2022-12-25T00:15Z,400\n2022-12-25T00:20Z,400\n"
    )
    to(live, 1500)
    rows = live.store.read("SELECT from_s, measured_kw FROM power WHERE from_s >= 600 ORDER BY from_s")
    assert [tuple(row) for row in rows] == [(600.0, pytest.approx(0.6)), (900.0, 0.4)]
    (event,) = event_list(live.controller)
    assert (event.missed, event.counted) == (1, "measured")
    path.write_text("time,kw\nsoon,700\n")
    to(live, 1800)
    assert "is not a time" in live.controller.problems["meter of north"]


def prometheus(value):
    return {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": value}]}}


def test_a_meter_is_read_from_prometheus(live, tmp_path):
    said = {"answer": prometheus([live.controller.setup.start.timestamp() + 60, "700000"])}
    with served(said) as url:
        feed = MeterFeed(url=url, query="sum(watts)", unit="W")
        readings = MeterReadings(feed, "north", live.controller.setup.start, live.store.now_s)
        live.set_time(120.0)
        readings.refresh()
        assert (readings.problem, readings.last) == ("", (60.0, 700.0))
        assert said["path"] == "/api/v1/query?query=sum%28watts%29"
        said["answer"] = {"status": "success", "data": {"result": []}}
        readings.refresh()
        assert "returned no single value" in readings.problem
        assert readings.last == (60.0, 700.0)


@contextlib.contextmanager
def served(said):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            said["path"] = self.path
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said["answer"]).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("given", "settings", "words"),
    [
        ({"events": {"openadr": "https://vtn.example.com"}}, [METER], "need contracts"),
        ({"events": {"openadr": "https://vtn.example.com", "path": "a.csv"}}, [METER], "not both"),
        ({"events": {"client": "me"}}, [METER], "client and secret_file go together"),
        ({"events": {"contracts": [{"site": "nord", "baseline_kw": 1}]}}, [METER], "unknown site 'nord'"),
        ({"events": {"contracts": [{"site": "south", "baseline_kw": 1}]}}, [METER], "no meter in the scenario"),
        ({"events": {"contracts": [CONTRACT, CONTRACT]}}, [METER], "two contracts"),
        ({"events": {"reports": True}}, [METER], "reports go with openadr"),
        ({"events": {}}, [], "no site of scenario"),
        ({"events": {}}, [METER, "slot_s=720"], "slots last 720 s"),
        ({"events": {}}, [METER, "protocol=on-arrival"], "protocol each-slot"),
        ({"meters": {"south": {"path": "a.csv"}}}, [METER], "no meter in the scenario"),
        ({"meters": {"north": {}}}, [METER], "either path or url"),
        ({"meters": {"north": {"path": "a.csv", "query": "up"}}}, [METER], "go with url"),
    ],
)
def test_wrong_settings_are_refused(given, settings, words):
    scenario, sites = load_scenario("tiny", settings), {site: {"executor": "model"} for site in ("north", "south")}

    def check():
        config = LiveConfig(scenario="tiny", policy="local-fcfs", sites=sites, **given)
        check_demand(scenario, config.events, config.meters, "live.yaml")

    with pytest.raises((ScenarioError, ValidationError), match=words):
        check()


DAY_S = 24 * HOUR_S


def drawn(live, days, *, skip=()):
    """Writes what the first site drew: 1 + d kW on day d, and 10 kW more in the hours from 4 to 1 before noon."""

    def change(connection, now_s):
        for part in range(int(days * 288)):
            day, hour = part // 288, part % 288 / 12
            kw = 1.0 + day + (10.0 if 8 <= hour < 11 else 0.0)
            if day not in skip:
                connection.execute(
                    "INSERT INTO power (site, from_s, measured_kw, estimated_kw) VALUES (?, ?, ?, ?)",
                    ("north", 300.0 * part, None, kw),
                )

    live.store.do(change)


@pytest.fixture
def dated(service):
    """A service that begins on Saturday, 1 January 2022."""
    return service(POLICY, *DAY, "start=2022-01-01", live={"events": {}})


def test_a_baseline_is_measured_on_the_four_highest_of_five_days(dated):
    """The event is on Wednesday the 12th, the 11 days before drew more.

    Days of the same kind before it: 11, 10, 7, 6 and 5 January, of 11, 10, 7, 6 and 5 kW in the event's hours.
    """
    dated.set_time(11 * DAY_S + 6 * HOUR_S)
    drawn(dated, 11.25)
    call(dated, baseline="high-4-of-5", notice_min=6 * 60.0)
    (event,) = event_list(dated.controller)
    assert event.baseline_kw == pytest.approx(np.mean([11, 10, 7, 6]))
    dated.controller.grid_events.cancel(1, "operator")
    # From an hour before the event on the day itself counts: it drew 12 kW, 3.5 more than those four.
    dated.set_time(11 * DAY_S + 11 * HOUR_S)
    dated.store.do(lambda connection, now_s: connection.execute("DELETE FROM power"))
    drawn(dated, 11 + 11 / 24)
    call(dated, baseline="high-4-of-5", notice_min=60.0)
    assert event_list(dated.controller)[0].baseline_kw == pytest.approx(8.5 + 12 - 8.5)


def test_days_with_an_event_are_left_out_of_a_baseline(dated):
    dated.set_time(9 * DAY_S)
    assert call(dated, baseline_kw=1.0, notice_min=12 * 60.0 + DAY_S / 60) == 1  # Tuesday the 11th at noon
    dated.set_time(11 * DAY_S + 6 * HOUR_S)
    drawn(dated, 11.25)
    call(dated, baseline="high-4-of-5", notice_min=6 * 60.0)
    assert event_list(dated.controller)[0].baseline_kw == pytest.approx(np.mean([10, 7, 6, 5]))


def test_a_baseline_that_cannot_be_measured_is_refused(dated):
    dated.set_time(3 * DAY_S)
    with pytest.raises(DataError, match="measured on 5 days"):
        call(dated, baseline="high-4-of-5")
    dated.set_time(11 * DAY_S + 6 * HOUR_S)
    drawn(dated, 11.25, skip=(9,))
    with pytest.raises(DataError, match="not known well enough"):
        call(dated, baseline="high-4-of-5", notice_min=6 * 60.0)
    with pytest.raises(DataError, match="leave one out"):
        call(dated, baseline="high-4-of-5", baseline_kw=2.0)


@pytest.fixture
def reporting(service, vtn, tmp_path):
    """A service that reports, after an hour with a full site, and an event of its VTN from 01:10 to 02:10."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    events = {"openadr": vtn.url, "client": "me", "secret_file": secret, "contracts": [CONTRACT], "reports": True}
    cluster = Bending()
    live = service(POLICY, *DAY, executors={"north": cluster}, live={"events": events})
    busy_at(live, cluster)
    vtn.created(openadr(f"{live.controller.setup.start:%Y-%m-%d}T01:10:00Z"))
    return live


def test_a_vtn_is_told_once_what_a_site_drew_in_its_event(reporting, vtn):
    live = reporting
    to(live, 2 * HOUR_S + 2100)
    live.controller.event_reports.step()
    assert not vtn.reports
    to(live, 2 * HOUR_S + 2400)
    live.controller.event_reports.step()
    (report,) = vtn.reports
    assert (report["eventID"], report["clientName"]) == (vtn.events[0]["id"], "me")
    assert report["payloadDescriptors"][0]["readingType"] == "ESTIMATED"
    (resource,) = report["resources"]
    assert resource["resourceName"] == "dc-1"
    begins = [each["intervalPeriod"]["start"][11:16] for each in resource["intervals"]]
    assert (begins[0], begins[-1], len(begins)) == ("01:10", "02:05", 12)
    rows = live.store.read("SELECT estimated_kw FROM power WHERE from_s >= 4200 AND from_s < 7800 ORDER BY from_s")
    drawn_kw = [each["payloads"][0]["values"][0] for each in resource["intervals"]]
    assert drawn_kw == [pytest.approx(row["estimated_kw"], abs=1e-4) for row in rows]
    assert min(drawn_kw) < 0.4 < 0.7 < max(row["kw"] for row in live.store.read("SELECT estimated_kw AS kw FROM power"))
    assert {each["payloads"][1]["values"][0] for each in resource["intervals"]} == {0.7}
    live.restart()
    live.set_time(3 * HOUR_S)
    live.controller.event_reports.step()
    assert len(vtn.reports) == 1


def test_a_report_that_is_not_taken_is_sent_again_after_others(reporting, vtn):
    live = reporting
    to(live, 2 * HOUR_S + 900)
    vtn.created(openadr(f"{live.controller.setup.start:%Y-%m-%d}T02:20:00Z"))
    to(live, 4 * HOUR_S)
    gone = vtn.events.pop(0)
    with pytest.raises(SourceError, match="reports with status 404"):
        live.controller.event_reports.step()
    with pytest.raises(SourceError, match="asked again in"):
        live.controller.event_reports.step()
    to(live, 4 * HOUR_S + 600)  # events are asked for in the pause
    with pytest.raises(SourceError, match="status 404"):
        live.controller.event_reports.step()
    assert [each["eventID"] for each in vtn.reports] == [vtn.events[0]["id"]]
    vtn.events.append(gone)
    live.set_time(5 * HOUR_S)
    live.controller.event_reports.step()
    assert [each["eventID"] for each in vtn.reports] == [vtn.events[0]["id"], gone["id"]]


def test_a_vtn_is_not_told_what_nothing_drew(service, vtn):
    vtn.secrets = {}
    live = service(POLICY, *DAY, live={"events": {"openadr": vtn.url, "contracts": [CONTRACT], "reports": True}})
    busy(live)
    vtn.created(openadr(f"{live.controller.setup.start:%Y-%m-%d}T01:10:00Z"))
    to(live, 3 * HOUR_S)
    live.controller.event_reports.step()
    assert event_list(live.controller)[0].state == "over"
    assert not vtn.reports


def test_the_baseline_of_an_event_of_a_vtn_is_measured_as_its_contract_says(service, vtn):
    vtn.secrets = {}
    contract = {**CONTRACT, "baseline_kw": 20.0, "baseline": "high-4-of-5"}
    live = service(POLICY, *DAY, "start=2022-01-01", live={"events": {"openadr": vtn.url, "contracts": [contract]}})
    live.set_time(11 * DAY_S + 6 * HOUR_S)
    day = f"{live.store.start + timedelta(days=11):%Y-%m-%d}"
    vtn.created(openadr(f"{day}T12:00:00Z", limit_kw=5.0))
    with pytest.raises(DataError, match="not known well enough"):
        live.controller.look_for_events()
    drawn(live, 11.25)
    for passed_s in (60, 120):
        live.set_time(11 * DAY_S + 6 * HOUR_S + passed_s)
        live.controller.look_for_events()
        (event,) = event_list(live.controller)
        assert (event.baseline_kw, event.target_kw) == (pytest.approx(8.5), 5.0)
    vtn.events[0] |= openadr(f"{day}T12:00:00Z", limit_kw=9.0)
    live.set_time(11 * DAY_S + 7 * HOUR_S)
    live.controller.look_for_events()
    assert event_list(live.controller)[0].baseline_kw == 9.0  # at least the target, as in scenarios
