"""``noonward fit-forecast``: errors on held-out hours, and a file that policies name."""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from command_line import CommandLine
from noonward.data.signals.load import write_generated_signals
from noonward.model.signals import Signals

fit = pytest.importorskip("noonward.learn.forecast_fit")


@pytest.fixture
def short(monkeypatch):
    """Sixty days suffice."""
    monkeypatch.setattr(fit, "LEAST_DAYS", 60)


def waves(days):
    """Signals of two zones."""
    hour = np.arange(24 * days)
    price = np.stack([50.0 + 20.0 * (hour % 33 < 11)] * 2)
    carbon = np.stack([300.0 + hour % 24] * 2)
    values = {"price_usd_per_mwh": price, "carbon_g_per_kwh": carbon}
    return Signals(start=datetime(2021, 1, 1, tzinfo=UTC), zones=("DE", "XX-OWN"), value_ZH=values)


def test_the_command_prints_held_out_errors_and_writes_a_forecast_that_policies_name(
    short, noonward: CommandLine, monkeypatch
):
    monkeypatch.delenv("NOONWARD_FORECASTS", raising=False)
    write_generated_signals(waves(days=70), "hours.csv")
    answer = noonward("fit-forecast", "mine", "--signals", "hours.csv", "--zones", "DE", "--passes", 1)
    assert answer.code == 0, answer.err
    assert "persistence" in answer.out
    assert "regression" in answer.out
    assert answer.out.count("*") == 2 * 8 + 1  # of two signals at eight leads the closest, and what * says
    assert Path("forecasts/mine.npz").is_file()
    again = noonward("fit-forecast", "mine", "--signals", "hours.csv")
    assert again.code == 2
    assert "exists" in again.err
    answer = noonward("fit-forecast", "mine", "--signals", "hours.csv", "--force", "--passes", 1, "--json")
    figures = {figure["name"]: figure["value"] for figure in json.loads(answer.out)["figures"]}
    assert figures["held_out_error/XX-OWN/price/persistence/24h"] > 0


def test_the_name_of_the_packaged_forecasts_mean_is_refused(noonward: CommandLine):
    answer = noonward("fit-forecast", "mean", "--signals", "hours.csv")
    assert answer.code == 2
    assert "'mean' names a packaged forecast" in answer.err
