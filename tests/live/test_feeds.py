"""Publishers asked over HTTP: what they say in every shape, and what becomes of a service when they fail."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from live.grid_server import GridServer, carbon, price
from noonward.errors import FileError, ScenarioError
from noonward.live.clock import ManualClock
from noonward.live.config import checked_config
from noonward.live.grid.feed_source import feed_source
from noonward.live.grid.feeds.catalogue import FEEDS
from noonward.live.grid.feeds.settings import SignalFeed
from noonward.live.grid.keeper import EXPECTED, HISTORY_H, STAND_IN, SignalKeeper
from noonward.live.grid.sources import SourceError
from noonward.live.grid.web import FIRST_PAUSE_S, MOST_REDIRECTS
from noonward.live.setup import Setup
from noonward.live.store.store import Store
from noonward.model.markets import day_ahead_market

NOW = datetime(2026, 11, 20, 18, 20, tzinfo=UTC)
START = NOW.replace(minute=0)
ZONE = "CA-ON"
KEYS = {"electricity-maps": "key", "watttime": "me:secret", "entsoe": "key"}
FIXED = {"usd_per": {"EUR": 2.0, "AUD": 2.0, "CAD": 2.0}}
AREAS = {"entsoe": "10YFR-RTE------C", "aemo": "NSW1", "watttime": "CAISO_NORTH"}


@pytest.fixture
def server():
    made = GridServer(NOW)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path, server):
    """A store whose time stands still, and sources over the stand-in server."""

    class World:
        clock = ManualClock(START)
        zones = (ZONE, "SG")

        def set_time(self, seconds):
            self.clock.seconds = seconds
            server.now = START + timedelta(seconds=seconds)

        def said(self, *names, **more):
            """Returns what a configuration says of feeds."""
            found = []
            for name in names:
                one = {"source": name, "url": server.url, "zones": {z: AREAS.get(name, z) for z in self.zones}}
                one |= FIXED if FEEDS[name].quantity == "price" else {}
                if name in KEYS:
                    (tmp_path / name).write_text(KEYS[name] + "\n")
                    one["key_file"] = str(tmp_path / name)
                if name == "carbon-aware-sdk":
                    one["basis"] = "average"
                found.append(one | more.get(name.replace("-", "_"), {}))
            return found

        def config(self, signals):
            sites = {site: {"executor": "model"} for site in ("north", "south")}
            content = {"scenario": "tiny", "policy": "local-fcfs", "sites": sites, "signals": signals}
            return checked_config(content, "mine.yaml", tmp_path)[0]

        def source(self, *names, **more):
            others = {"price": "entsoe", "carbon": "gb-carbon-intensity"}
            for name in names:
                others.pop(FEEDS[name].quantity)
            return feed_source(self.config(self.said(*names, *others.values(), **more)).signals, self.store)

        def keeper(self, *names, **more):
            return SignalKeeper(self.store, self.source(*names, **more), self.zones)

    made = World()
    made.store = Store(tmp_path / "store", made.clock)
    made.set_time(20 * 60.0)
    yield made
    made.store.close()


@pytest.mark.parametrize("quantity", ["price", "carbon"])
def test_a_feed_of_zeros_is_not_believed(world, server, monkeypatch, quantity):
    keeper = world.keeper()
    keeper.refresh(0)
    keeper.update(0)
    monkeypatch.setattr(f"live.grid_server.{quantity}", lambda time: 0.0)
    world.set_time(25 * 3600.0)
    keeper.refresh(25)
    keeper.update(25)
    said = keeper.problem
    assert f"is exactly 0{' for 24 hours in a row' if quantity == 'price' else ''} at 2026-11-2" in said
    assert "so the reply is not used" in said
    column = {"price": 0, "carbon": 1}[quantity]
    signals = keeper.signals(0, 26)
    value_ZH = (signals.price_usd_per_mwh_ZH, signals.carbon_g_per_kwh_ZH)[column]
    assert (value_ZH != 0.0).all(), "an earlier day stands in"


def test_some_hours_without_a_price_are_believed(world, server, monkeypatch):
    right = price
    monkeypatch.setattr("live.grid_server.price", lambda time: 0.0 if time.hour < 12 else right(time))
    keeper = world.keeper()
    keeper.refresh(0)
    keeper.update(0)
    assert keeper.problem == ""
    price_H = keeper.signals(-HISTORY_H, 1).price_usd_per_mwh_ZH[0]
    assert (price_H == 0.0).sum() == HISTORY_H // 2


@pytest.mark.parametrize("name", sorted(FEEDS))
def test_every_publisher_says_the_hours_in_our_units(world, server, name):
    source = world.source(name)
    begin = START - timedelta(hours=HISTORY_H)
    source.refresh((ZONE,), begin, HISTORY_H + 1)
    known = source.fetch((ZONE,), begin, HISTORY_H)
    hours = [begin + timedelta(hours=h) for h in range(HISTORY_H)]
    quantity = FEEDS[name].quantity
    found = known.price_usd_per_mwh_ZH[0] if quantity == "price" else known.carbon_g_per_kwh_ZH[0]
    wanted = [2.0 * price(hour) if quantity == "price" else carbon(hour) for hour in hours]
    assert found == pytest.approx(wanted, rel=1e-12)
    ahead = [START + timedelta(hours=h) for h in range(6)]
    for held in (source.fetch((ZONE,), START, 6), source.expected((ZONE,), START, 6)):
        value = held.price_usd_per_mwh_ZH[0] if quantity == "price" else held.carbon_g_per_kwh_ZH[0]
        forecast = [2.0 * price(hour) if quantity == "price" else carbon(hour) for hour in ahead]
        off = 1.0 if name == "gb-carbon-intensity" else 0.0
        assert np.nanmax(np.abs(np.append(value, 0.0) - np.append(forecast, 0.0))) <= off + 1e-9


def test_an_hour_that_is_known_for_good_is_asked_for_once(world, server):
    keeper = world.keeper()
    keeper.refresh(0)
    keeper.update(0)
    asked = len(server.seen)
    for minute in range(20, 26):
        world.set_time(60.0 * minute)
        keeper.refresh(0)
        keeper.update(0)
    later = server.seen[asked:]
    assert {path.split("/")[1] for path, _ in later} <= {"intensity"}  # prices of the day ahead are known
    assert len(later) == len(world.zones)
    begins = {path.split("/")[2] for path, _ in later}
    assert begins == {"2026-11-20T17:00Z"}  # the hour that has not ended and the one before


def test_an_hour_that_has_begun_takes_what_its_publisher_expects_until_the_truth_is_known(world, server):
    keeper = world.keeper()
    keeper.refresh(0)
    keeper.update(0)
    row = world.store.read("SELECT * FROM signals WHERE zone = ? AND hour = 0", ZONE)[0]
    assert row["source"] == f"{EXPECTED} (carbon)"
    assert row["carbon"] == carbon(START) + 1.0
    assert (row["true_price"], row["true_carbon"]) == (2.0 * price(START), None)
    world.set_time(3700.0)
    keeper.refresh(1)
    keeper.update(1)
    row = world.store.read("SELECT * FROM signals WHERE zone = ? AND hour = 0", ZONE)[0]
    assert (row["carbon"], row["true_carbon"]) == (carbon(START) + 1.0, carbon(START))
    assert keeper.late_h() == len(world.zones)


GARBAGE = {
    "down": (500, b"oops", {}),
    "page": (200, b"<html>Please log in</html>", {}),
    "half": (200, b'{"data": [{"from": "2026-11-20T1', {}),
    "list": (200, b"[1, 2, 3]", {}),
    "null": (200, b"null", {}),
    "text": (200, b'{"data": [{"from": "2026-11-20T18:00Z", "intensity": {"actual": "low", "forecast": 1}}]}', {}),
    "negative": (200, b'{"data": [{"from": "2026-11-20T18:00Z", "intensity": {"actual": -5, "forecast": 1}}]}', {}),
    "no number": (200, b'{"data": [{"from": "2026-11-20T18:00Z", "intensity": {"actual": NaN, "forecast": 1}}]}', {}),
    "bytes": (200, b"\xff\xfe\x00", {}),
    "empty": (200, b"", {}),
}


@pytest.mark.parametrize("name", ["gb-carbon-intensity", "electricity-maps", "carbon-aware-sdk", "entsoe", "ieso"])
def test_errors_and_garbage_are_no_values(world, server, name):
    source = world.source(name)
    for n, trouble in enumerate(GARBAGE.values()):
        server.trouble = trouble
        world.set_time(3600.0 * n)  # the pause after the failure before is over
        asked = len(server.seen)
        with pytest.raises(SourceError):
            source.refresh((ZONE,), START, n + 1)
        assert len(server.seen) > asked
        for held in (source.fetch((ZONE,), START, n + 1), source.expected((ZONE,), START, n + 1)):
            assert np.isnan(held.price_usd_per_mwh_ZH).all()
            assert np.isnan(held.carbon_g_per_kwh_ZH).all()


@pytest.mark.parametrize("trouble", ["down", "page"])
def test_six_hours_without_publishers_are_priced_shown_and_made_up_for(world, server, trouble):
    keeper = world.keeper()
    keeper.refresh(0)
    keeper.update(0)
    server.trouble = GARBAGE[trouble]
    asked = len(server.seen)
    for minute in range(20, 28 * 60, 10):
        world.set_time(60.0 * minute)
        keeper.refresh(minute // 60)
        keeper.update(minute // 60)
        assert keeper.problem or minute < 70
    rows = world.store.read("SELECT * FROM signals WHERE zone = ? AND hour = 26", ZONE)
    assert rows[0]["source"] == f"{STAND_IN} (carbon)" or rows[0]["source"] == STAND_IN
    assert rows[0]["true_carbon"] is None
    before = world.store.read("SELECT carbon FROM signals WHERE zone = ? AND hour = 2", ZONE)[0]["carbon"]
    assert rows[0]["carbon"] == pytest.approx(before + 1.0)  # the intensities of two days in a row differ by 1
    assert len(server.seen) - asked < 120  # the pauses grow to half an hour
    server.trouble = None
    for minute in range(28 * 60, 29 * 60, 5):
        world.set_time(60.0 * minute)
        keeper.refresh(28)
        keeper.update(28)
    assert keeper.problem == ""
    settled = keeper.settled(1, 28)
    hours = [START + timedelta(hours=h) for h in range(1, 28)]
    assert settled.carbon_g_per_kwh_ZH[0].tolist() == [carbon(hour) for hour in hours]
    assert settled.price_usd_per_mwh_ZH[0].tolist() == [2.0 * price(hour) for hour in hours]


def test_one_publisher_that_fails_leaves_the_others_alone(world, server):
    keeper = world.keeper(entsoe={"url": "http://127.0.0.1:1"})
    keeper.refresh(0)
    assert "ENTSO-E" in keeper.problem
    assert np.isfinite(keeper.source.fetch((ZONE,), START - timedelta(hours=3), 3).carbon_g_per_kwh_ZH).all()


def test_a_publisher_is_left_alone_as_long_as_it_asks_for(world, server):
    source = world.source()
    server.trouble = (429, b"", {"Retry-After": "1200"})
    with pytest.raises(SourceError, match="status 429"):
        source.refresh((ZONE,), START, 1)
    asked = len(server.seen)
    server.trouble = None
    world.set_time(20 * 60.0 + 1199.0)
    with pytest.raises(SourceError, match="asked again in 1 s"):
        source.refresh((ZONE,), START, 1)
    assert len(server.seen) == asked
    world.set_time(20 * 60.0 + 1201.0)
    source.refresh((ZONE,), START, 1)
    assert len(server.seen) > asked


def test_pauses_grow_with_failures(world, server):
    web = world.source()._feeds[0].web
    pauses = []
    for _ in range(8):
        web.failed("no")
        pauses.append(web._resume_s - world.store.now_s())
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == 1800.0


def test_a_key_goes_to_no_other_host_and_a_redirect_within_one_is_followed(world, server):
    source = world.source("electricity-maps")
    other = GridServer(NOW)
    try:
        server.trouble = 302, b"", {"Location": f"{other.url}/stolen"}
        with pytest.raises(SourceError, match=r"redirects .* to 127\.0\.0\.1; give that address"):
            source.refresh((ZONE,), START, 1)
        assert other.seen == []
    finally:
        other.close()
    server.trouble = 302, b"", {"Location": "/v3/round"}
    world.set_time(FIRST_PAUSE_S * 30)
    with pytest.raises(SourceError, match="again and again"):
        source.refresh((ZONE,), START, 1)
    assert [path for path, _ in server.seen].count("/v3/round") >= MOST_REDIRECTS - 1


def test_the_quota_is_kept(world, server):
    source = world.source(entsoe={"quota_per_hour": 1}, gb_carbon_intensity={"quota_per_hour": 1})
    with pytest.raises(SourceError, match="quota of 1 requests an hour is used up"):
        source.refresh(world.zones, START, 1)
    assert len(server.seen) == 2


def test_a_token_is_used_until_it_is_refused_or_old(world, server):
    source = world.source("watttime")
    source.refresh((ZONE,), START, 1)
    world.set_time(20 * 60.0 + 600.0)
    source.refresh((ZONE,), START, 1)
    assert server.tokens == 1
    server.tokens = 7
    world.set_time(20 * 60.0 + 1200.0)
    with pytest.raises(SourceError, match="status 401"):
        source.refresh((ZONE,), START, 1)
    world.set_time(20 * 60.0 + 2400.0)
    source.refresh((ZONE,), START, 1)
    assert server.tokens == 8


@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        (("entsoe", "watttime", "gb-carbon-intensity"), {}, "average and marginal intensities are mixed"),
        (("entsoe",), {}, "0 feeds give the carbon intensity of zone CA-ON"),
        (("entsoe", "aemo", "gb-carbon-intensity"), {}, "2 feeds give the price of zone CA-ON"),
        (("entsoe", "gb-carbon-intensity"), {"entsoe": {"key_file": None}}, "entsoe needs a key"),
        (("entsoe", "carbon-aware-sdk"), {"carbon_aware_sdk": {"basis": None}}, "does not say whether"),
        (("entsoe", "watttime"), {"watttime": {"basis": "average"}}, "are marginal, not average"),
        (("entsoe", "watttime"), {"watttime": {"zones": {"CA-OM": "x"}}}, "did you mean 'CA-ON'"),
        (("entsoe", "watttime"), {"watttime": {"url": "ftp://x"}}, "signals.1.url"),
        (("entsoe", "watttime"), {"watttime": {"source": "wattime"}}, "did you mean 'watttime'"),
    ],
)
def test_feeds_that_do_not_fit_are_refused(world, names, more, words):
    with pytest.raises(ScenarioError, match=words):
        world.config(world.said(*names, **more))


def test_a_key_that_is_missing_is_said(world, tmp_path):
    config = world.config(world.said("entsoe", "gb-carbon-intensity"))
    (tmp_path / "entsoe").unlink()
    with pytest.raises(FileError, match="key file"):
        feed_source(config.signals, world.store)


def test_a_service_decides_by_its_publishers(world):
    from noonward.data.scenarios.load import load_scenario
    from noonward.live.controller import Controller

    config = world.config(world.said("entsoe", "gb-carbon-intensity"))
    controller = Controller(Setup.of(config, load_scenario("tiny"), world.store), world.store)
    controller.decide()
    controller.world.hours.show(controller.world.view, 0)
    assert controller.world.view.site_S["price"].tolist() == [2.0 * price(START)] * 2
    assert controller.problems == {}


def french(world, name, day_ahead=None):
    """A source of French prices: those of ENTSO-E are known a day ahead, AEMO's are not."""
    (told,) = world.said(name)
    return feed_source([SignalFeed.model_validate(told | {"zones": {"FR": AREAS[name]}})], world.store, day_ahead)


def test_feeds_of_day_ahead_prices_say_which_hours_are_published(world, server):
    source = french(world, "entsoe")
    source.refresh(("FR",), START - timedelta(hours=2), 3)
    ahead = [START + timedelta(hours=h) for h in range(1, 49)]
    published_H = source.published(("FR",), ahead[0], 48).price_usd_per_mwh_ZH[0]
    known = (day_ahead_market("FR").known_until(START) - ahead[0]) // timedelta(hours=1)
    assert known == 28  # 19:00 in Paris: to the end of tomorrow
    assert published_H[:known] == pytest.approx([2.0 * price(hour) for hour in ahead[:known]], rel=1e-12)
    assert np.isnan(published_H[known:]).all()
    other = french(world, "aemo")
    other.refresh(("FR",), START - timedelta(hours=2), 3)
    assert np.isfinite(other.fetch(("FR",), START - timedelta(hours=2), 2).price_usd_per_mwh_ZH).all()
    assert np.isnan(other.published(("FR",), START - timedelta(hours=2), 48).price_usd_per_mwh_ZH).all()


def test_prices_of_the_next_day_are_asked_for_once_they_are_published(world, server):
    source = french(world, "entsoe")
    source.refresh(("FR",), START - timedelta(hours=2), 3)
    asked = len(server.seen)
    world.set_time(3 * 3600.0)
    source.refresh(("FR",), START, 4)
    assert len(server.seen) == asked  # all that is published is known
    world.set_time(18 * 3600.0)
    source.refresh(("FR",), START, 19)
    assert len(server.seen) == asked + 1
    noon = START + timedelta(hours=18)  # 13:00 in Paris
    found = source.published(("FR",), noon, 48).price_usd_per_mwh_ZH[0]
    assert np.isfinite(found).sum() == 35


def test_prices_that_are_not_day_ahead_by_the_scenario_are_not_missed_once_a_market_has_published(world, server):
    source = french(world, "entsoe", {"FR": False})
    source.refresh(("FR",), START - timedelta(hours=2), 3)
    asked = len(server.seen)
    world.set_time(18 * 3600.0)
    source.refresh(("FR",), START, 19)
    assert len(server.seen) == asked
