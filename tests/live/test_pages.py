"""The pages: what they show, who may do what with their forms, and what a browser does with them."""

import re

import pytest
from starlette.testclient import TestClient

from live.callers import PEER, local_client
from noonward.live.accounts import Day, Interval, Savings
from noonward.live.api.app import make_app
from noonward.live.requests import JobRequest
from noonward.live.tokens import make_token, revoke_token
from noonward.live.web.words import headline

PATHS = ("/", "/jobs", "/jobs/1", "/sites/north", "/plan", "/signals", "/savings", "/decisions", "/submit")
OWN = re.compile(r"""(?:src|href|action|hx-get)=["']([^"']*)""")


@pytest.fixture
def live(service):
    made = service("booked-persistence")
    made.submit(made.request(0), JobRequest(name='<b>"&', work=600.0, origin="north", gpus_min=8))
    made.set_time(60.0)
    made.steps()
    return made


@pytest.fixture
def browser(live):
    with local_client(live, follow_redirects=False) as client:
        yield client


def word_of(page):
    return re.search(r'name="word" value="([^"]+)"', page.text)[1]


@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_shown_and_names_no_other_host(live, browser, path):
    page = browser.get(path)
    assert page.status_code == 200, page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert all(target.startswith("/") or target == "#main" for target in OWN.findall(page.text))
    assert "style=" not in page.text
    assert "<b>" not in page.text
    for target in set(OWN.findall(page.text)):
        if target.startswith("/static/"):
            assert browser.get(target).status_code == 200


def test_pages_of_a_service_without_signals_or_jobs(service):
    live = service("local-fcfs")
    live.controller.keeper = None
    with local_client(live) as browser:
        for path in ("/", "/jobs", "/plan", "/signals", "/savings", "/decisions", "/sites/south"):
            assert browser.get(path).status_code == 200


def test_failed_jobs_are_counted_and_their_pages_show_it(live, browser):
    assert 'class="bad"' not in browser.get("/").text
    live.store.do(
        lambda connection, now_s: (
            connection.execute("UPDATE jobs SET state = 'failed', ended_s = 1.0 WHERE id = 1") and None
        )
    )
    assert '<li class="bad"><a id="count-failed" href="/jobs?state=failed"><strong>1</strong>' in browser.get("/").text
    page = browser.get("/jobs/1").text
    assert '<p class="answer bad">It failed' in page
    assert re.search(r"<dt>Work</dt><dd>a run of [\d.]+ (min|h), class ", page)


def test_a_job_is_submitted_by_a_form_once(live, browser):
    page = browser.get("/submit")
    fields = {"word": word_of(page), "key": "one", "name": "mine", "work": "60", "gpus_min": "1", "origin": "north"}
    assert "north" in page.text
    done = browser.post("/submit", data=fields)
    assert (done.status_code, done.headers["location"]) == (303, "/jobs/3")
    assert "Job 3 is submitted." in browser.get("/jobs/3").text
    assert "Job 3 is submitted." not in browser.get("/jobs/3").text
    assert browser.post("/submit", data=fields).headers["location"] == "/jobs/3"
    assert len(live.store.read("SELECT id FROM jobs")) == 3
    for changed, words in (
        ({"work": "-1"}, "the job is not valid"),
        ({"work": "long"}, "work is &#39;long&#39;; it must be a number"),
        ({"origin": "nowhere"}, "is unknown"),
        ({"gpus_min": "999"}, "gang"),
    ):
        refused = browser.post("/submit", data={**fields, "key": "two", **changed})
        assert refused.status_code == 422
        assert words in refused.text
        assert 'value="mine"' in refused.text
    assert len(live.store.read("SELECT id FROM jobs")) == 3


def test_what_an_operator_does_with_the_forms(live, browser):
    number = live.submit(JobRequest(name="a", work=600.0, origin="south"))[0]
    word = {"word": word_of(browser.get("/"))}

    def row():
        return live.store.read("SELECT * FROM jobs WHERE id = ?", number)[0]

    def post(path, **fields):
        done = browser.post(path, data={**word, **fields})
        assert done.status_code == 303, done.text
        return done.headers["location"]

    assert post(f"/jobs/{number}/hold") == f"/jobs/{number}"
    assert row()["held"] == 1
    post(f"/jobs/{number}/release")
    assert row()["held"] == 0
    post(f"/jobs/{number}/steer", site="south", not_north="on")
    assert (row()["pinned"], row()["vetoed"]) == ("south", '["north"]')
    post(f"/jobs/{number}/steer", site="")
    assert (row()["pinned"], row()["vetoed"]) == (None, "[]")
    post(f"/jobs/{number}/cancel")
    assert row()["state"] == "cancelled"
    assert post("/sites/south/switch", what="drain", back="/sites/south") == "/sites/south"
    assert post("/sites/south/switch", what="dispatch-off", back="//evil.example") == "/"
    south = live.store.read("SELECT * FROM sites WHERE name = 'south'")[0]
    assert (south["drained"], south["dispatch"]) == (1, 0)
    text = browser.get("/").text
    assert "south is drained" in text
    assert "Dispatch to south is off" in text
    post("/policy", policy="local-fcfs")
    assert live.controller.policy == "local-fcfs"
    assert browser.post("/policy", data={**word, "policy": "nonsense"}).status_code == 422
    assert browser.post(f"/jobs/{number}/steer", data={**word, "site": "south"}).status_code == 409
    assert browser.post(f"/jobs/{number}/dance", data=word).status_code == 404
    assert browser.post("/sites/atlantis/switch", data={**word, "what": "drain"}).status_code == 422
    assert browser.get("/jobs/99").status_code == 404
    assert browser.get("/sites/atlantis").status_code == 404
    who = {row["who"] for row in live.store.read("SELECT who FROM audit")}
    assert who == {"loopback"}


def test_a_form_without_its_word_or_from_another_page_does_nothing(live, browser):
    fields = {"what": "drain", "back": "/"}
    assert browser.post("/sites/north/switch", data=fields).status_code == 403
    assert browser.post("/sites/north/switch", data={**fields, "word": "guess"}).status_code == 403
    good = {**fields, "word": word_of(browser.get("/"))}
    assert browser.post("/sites/north/switch", data=good, headers={"Origin": "http://evil.example"}).status_code == 403
    assert browser.post("/sites/north/switch", data=good, headers={"Origin": "null"}).status_code == 403
    assert browser.get("/", headers={"Host": "evil.example"}).status_code == 403
    json_type = {"Content-Type": "application/json"}
    assert browser.post("/sites/north/switch", content=b"{}", headers=json_type).status_code == 415
    form_type = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.post("/sites/north/switch", content=b"word=%ff", headers=form_type).status_code == 400
    many = b"&".join(b"a=1" for _ in range(1000))
    assert browser.post("/sites/north/switch", content=many, headers=form_type).status_code == 400
    assert live.store.read("SELECT drained FROM sites WHERE name = 'north'")[0]["drained"] == 0


def test_a_session_has_the_scope_of_its_token_and_ends_with_it(live):
    tokens = {scope: make_token(live.store, scope, scope) for scope in ("read", "submit")}
    with TestClient(
        make_app(live.controller), base_url="https://noonward.example", client=PEER, follow_redirects=False
    ) as browser:
        for path in PATHS:
            refused = browser.get(path)
            assert (refused.status_code, refused.headers["location"]) == (303, f"/login?next={path}")
        assert browser.get("/", headers={"HX-Request": "true"}).headers["hx-redirect"] == "/login?next=/"
        assert browser.get("/login").status_code == 200
        assert browser.post("/login", data={"token": "nwt_wrong"}).status_code == 401
        done = browser.post("/login", data={"token": tokens["read"], "next": "/jobs"})
        assert (done.status_code, done.headers["location"]) == (303, "/jobs")
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "secure" in cookie
        assert tokens["read"] not in cookie
        page = browser.get("/")
        assert page.status_code == 200
        assert "Drain" not in page.text
        assert "Submit a job" not in page.text
        word = {"word": word_of(page)}
        assert browser.get("/submit").status_code == 403
        assert browser.post("/submit", data={**word, "name": "a", "work": "1"}).status_code == 403
        assert browser.post("/sites/north/switch", data={**word, "what": "drain"}).status_code == 403
        assert browser.get("/v1/jobs").status_code == 401  # cookies are for pages alone
        assert browser.post("/logout", data=word).headers["location"] == "/login"
        assert browser.get("/").status_code == 303
        browser.post("/login", data={"token": tokens["submit"]})
        word = {"word": word_of(browser.get("/submit"))}
        sent = {**word, "key": "k", "name": "a", "work": "1", "gpus_min": "1", "origin": "north"}
        assert browser.post("/submit", data=sent).status_code == 303
        assert browser.post("/policy", data={**word, "policy": "local-fcfs"}).status_code == 403
        revoke_token(live.store, "submit")
    with TestClient(
        make_app(live.controller), base_url="https://noonward.example", client=PEER, follow_redirects=False
    ) as other:
        other.cookies = browser.cookies
        assert other.get("/").status_code == 303


def test_a_revoked_token_ends_its_session(live, monkeypatch):
    token = make_token(live.store, "a", "read")
    make_token(live.store, "other", "admin")
    with TestClient(
        make_app(live.controller), base_url="http://example.org", client=PEER, follow_redirects=False
    ) as browser:
        browser.post("/login", data={"token": token})
        assert browser.get("/").status_code == 200
        revoke_token(live.store, "a")
        monkeypatch.setattr("noonward.live.api.guard.KNOWN_S", -1.0)
        assert browser.get("/").status_code == 303


def test_a_session_outlives_a_restart_and_is_gone_after_logging_out(live):
    token = make_token(live.store, "a", "admin")

    def browser(cookies=None):
        made = TestClient(make_app(live.controller), base_url="http://example.org", client=PEER, follow_redirects=False)
        made.cookies.update(cookies or {})
        return made

    with browser() as first:
        first.post("/login", data={"token": token})
        page = first.get("/")
        cookies = dict(first.cookies)
    live.restart()
    rows = live.store.read("SELECT name, value FROM meta WHERE name LIKE 'session.%'")
    held = [(row["name"], bytes(row["value"])) for row in rows]
    assert len(held) == 1
    for secret in (token, *cookies.values()):
        assert not any(secret in name or secret.encode() in value for name, value in held), "hashes alone are stored"
    with browser(cookies) as again:
        assert word_of(again.get("/")) == word_of(page), "forms that were open still work"
        assert again.post("/logout", data={"word": word_of(page)}).status_code == 303
    live.restart()
    with browser(cookies) as later:
        assert later.get("/").status_code == 303


def test_a_session_ends_when_it_is_not_used_and_the_oldest_makes_room(live, monkeypatch):
    token = make_token(live.store, "a", "read")
    app = make_app(live.controller)
    monkeypatch.setattr("noonward.live.web.sessions.MOST_SESSIONS", 1)
    with TestClient(app, base_url="http://example.org", client=PEER, follow_redirects=False) as first:
        first.post("/login", data={"token": token})
        assert first.get("/").status_code == 200
        with TestClient(app, base_url="http://example.org", client=PEER, follow_redirects=False) as second:
            second.post("/login", data={"token": token})
            assert second.get("/").status_code == 200
            assert first.get("/").status_code == 303
            monkeypatch.setattr("noonward.live.web.sessions.IDLE_S", -1.0)
            assert second.get("/").status_code == 303


@pytest.mark.parametrize(
    ("usd", "kg", "said"),
    [
        (8.0, 4.0, "Saved 2.00 USD (20%) and 1.00 kg CO2 (20%) against local-fcfs: 3 jobs, 1 day."),
        (12.0, 6.0, "Cost 2.00 USD (20%) and 1.00 kg CO2 (20%) more against local-fcfs: 3 jobs, 1 day."),
        (8.0, 6.0, "Saved 2.00 USD (20%); 1.00 kg CO2 (20%) more against local-fcfs: 3 jobs, 1 day."),
        (12.0, 4.0, "Cost 2.00 USD (20%) more; saved 1.00 kg CO2 (20%) against local-fcfs: 3 jobs, 1 day."),
    ],
)
def test_the_headline_says_what_was_saved_and_what_was_not(usd, kg, said):
    day = Day(
        day="2026-01-01T00:00:00Z", jobs=3, energy_kwh=1.0, energy_usd=usd, carbon_kg=kg, wait_h=0.0,
        reference_kwh=1.0, reference_usd=10.0, reference_kg=5.0, reference_wait_h=0.0,
    )  # fmt: skip
    none = Interval(mean=0.0, low=None, high=None)
    found = Savings(
        reference="local-fcfs", policy="other", days=[day], left_out=0, saved_usd_a_day=none, saved_kg_a_day=none,
        run_times=None, remark="",
    )  # fmt: skip
    assert headline(found) == said
