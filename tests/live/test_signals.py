"""Signals of a live service: what stands in for late hours, what is corrected later, what refuses to start."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from noonward.errors import SignalRangeError
from noonward.live.clock import ManualClock
from noonward.live.grid.keeper import HISTORY_H, STAND_IN, SignalKeeper
from noonward.live.grid.sources import FileSource, SignalSource, SourceError
from noonward.live.states import from_bytes
from noonward.live.store.store import Store
from noonward.live.world.hours import KEPT_H
from noonward.model.cluster.scenario import SignalFiles
from noonward.model.signals import Signals

START = datetime(2026, 3, 1, tzinfo=UTC)
ZONES = ("A", "B")
DAY_BEFORE, DIFFERENCE = 4.0 - 24, 24.0
"""Price of hour 4 a day before, and by how much prices of two days in a row differ."""


class Source(SignalSource):
    """A source that knows hours up to one, and may be down."""

    name = "test"

    def __init__(self, until):
        self.until, self.down = until, False

    def fetch(self, zones, start, hours):
        if self.down:
            raise SourceError("down for maintenance")
        first = round((start - START) / timedelta(hours=1))
        hour_H = first + np.arange(hours)
        value = np.stack([hour_H + 1000.0 * z for z in range(len(zones))])
        value[:, hour_H > self.until] = np.nan
        return Signals(start=start, zones=zones, value_ZH={"price_usd_per_mwh": value, "carbon_g_per_kwh": value + 500})


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path, ManualClock(START))
    yield made
    made.close()


def stored(store, hour, zone="A"):
    row = store.read("SELECT * FROM signals WHERE zone = ? AND hour = ?", zone, hour)[0]
    return row["price"], row["true_price"], row["source"]


def test_known_hours_are_stored_once(store):
    keeper = SignalKeeper(store, Source(5), ZONES)
    keeper.update(5)
    keeper.update(5)
    assert stored(store, 5) == (5.0, 5.0, "test")
    assert stored(store, -HISTORY_H, "B") == (1000.0 - HISTORY_H, 1000.0 - HISTORY_H, "test")
    assert len(store.read("SELECT * FROM signals")) == 2 * (HISTORY_H + 6)
    assert keeper.late_h() == 0


def test_for_a_late_hour_the_day_before_stands_in_and_the_truth_replaces_it_in_the_accounts(store):
    source = Source(3)
    keeper = SignalKeeper(store, source, ZONES)
    keeper.update(5)
    assert stored(store, 4) == (DAY_BEFORE + DIFFERENCE, None, STAND_IN)
    assert keeper.late_h() == 4
    source.until = 5
    keeper.update(5)
    assert stored(store, 4) == (DAY_BEFORE + DIFFERENCE, 4.0, STAND_IN)
    assert keeper.signals(4, 5).price_usd_per_mwh_ZH[0, 0] == DAY_BEFORE + DIFFERENCE
    assert keeper.settled(4, 5).price_usd_per_mwh_ZH[0, 0] == 4.0
    assert keeper.late_h() == 0


def test_a_source_that_is_down_for_longer_than_a_day_never_means_zero(store):
    source = Source(100)
    keeper = SignalKeeper(store, source, ZONES)
    keeper.update(0)
    source.down = True
    for hour in range(1, 31):
        keeper.update(hour)
    assert keeper.problem == "down for maintenance"
    assert stored(store, 30)[:2] == (30.0 - 48 + 2 * DIFFERENCE, None)
    source.down = False
    keeper.update(31)
    assert keeper.problem == ""
    assert stored(store, 30)[1] == 30.0
    assert keeper.late_h() == 0


def test_a_service_does_not_begin_without_known_signals(store):
    with pytest.raises(SignalRangeError, match="no price of zone A"):
        SignalKeeper(store, Source(-1000), ZONES).update(0)
    assert store.read("SELECT * FROM signals") == []


def test_a_file_is_read_again_when_it_has_changed(store, tmp_path):
    path = tmp_path / "signals.csv"

    def write(hours):
        times = [START + timedelta(hours=h) for h in range(-HISTORY_H, hours)]
        rows = [
            {"timestamp": f"{time:%Y-%m-%dT%H:%M:%SZ}", "zone": zone, "carbon_intensity_g_per_kwh": 100.0 + n,
             "price_usd_per_mwh": float(n)}
            for zone in ZONES for n, time in enumerate(times)
        ]  # fmt: skip
        pl.DataFrame(rows).write_csv(path)

    write(1)
    keeper = SignalKeeper(store, FileSource(SignalFiles(source="files", paths=(path,))), ZONES)
    keeper.update(0)
    assert stored(store, 0)[0] == HISTORY_H
    keeper.update(1)
    assert stored(store, 1)[2] == STAND_IN
    write(2)
    keeper.update(1)
    assert stored(store, 1)[1] == HISTORY_H + 1
    path.unlink()
    keeper.update(2)
    assert "signals.csv" in keeper.problem
    assert stored(store, 2)[2] == STAND_IN


def test_a_forecast_is_issued_from_what_was_known(service):
    live = service("booked-persistence")
    live.play()
    hours = live.controller.world.hours
    assert hours.known_h > 3
    known = live.environment.site_signals.price_SH
    shown = [hours.signals.price_usd_per_mwh_ZH[hours.signals.zone_index(zone), HISTORY_H + 2] for zone in hours.zones]
    assert shown == known[:, 2].tolist()
    kept = {row["hour"]: from_bytes(row["value"])["value_KSL"] for row in live.store.read("SELECT * FROM forecasts")}
    assert min(kept) < 3
    for hour, value_KSL in kept.items():
        assert value_KSL.shape == (2, 2, KEPT_H)
        assert value_KSL[0, :, 0] == pytest.approx(known[:, hour], rel=1e-6)


def test_prices_known_ahead_are_kept_as_they_were_known_in_every_hour(store):
    source = Source(5)
    keeper = SignalKeeper(store, source, ZONES)
    keeper.update(0)
    source.until = 30
    keeper.update(2)
    found = keeper.published(0, 10)
    assert sorted(found) == [0, 1, 2]
    assert found[0].tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0], [1001.0, 1002.0, 1003.0, 1004.0, 1005.0]]
    assert found[2][0].tolist() == list(range(3, 31))
    others = SignalKeeper(store, source, ("B", "C")).published(0, 1)[0]
    assert others[0, 0] == 1001.0
    assert np.isnan(others[1]).all()


def test_where_no_hour_ahead_is_known_or_the_source_is_down_that_is_kept_too(store):
    source = Source(3)
    keeper = SignalKeeper(store, source, ZONES)
    keeper.update(3)
    source.down = True
    keeper.update(4)
    assert {hour: price_ZH.shape for hour, price_ZH in keeper.published(2, 9).items()} == {
        2: (2, 1), 3: (2, 0), 4: (2, 0)
    }  # fmt: skip
