"""Windows over the days of a job table: without overlap, spread, refused where there are none; jobs left alone."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from noonward import compare, trade_off
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_days, with_files, with_settings
from noonward.data.signals.generate import generate_signals
from noonward.data.signals.load import write_generated_signals
from noonward.errors import ScenarioError
from noonward.evaluate.answer import headline
from noonward.evaluate.asked import count_of, windows_given
from noonward.evaluate.cluster_objective import carbon_scope
from noonward.evaluate.report.meeting import write_meeting_report

FIRST = datetime(2022, 10, 1, tzinfo=UTC)
DAYS = 30
MINUTES = 10.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """``tiny`` with a job every two hours for thirty days, every other one of 10 minutes, the rest of 2 hours."""
    folder: Path = tmp_path_factory.mktemp("fleet")
    drawn = generate_signals(("CA-ON", "SG"), FIRST - timedelta(days=3), (DAYS + 6) * 24, np.random.default_rng(0))
    write_generated_signals(drawn, folder / "signals.csv")
    hours = [FIRST + timedelta(hours=2 * n) for n in range(12 * DAYS)]
    jobs = pl.DataFrame(
        {
            "submit_time": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
            "origin": ["north", "south"] * (6 * DAYS),
            "gpus": 2,
            "duration_s": [60 * MINUTES, 7200.0] * (6 * DAYS),
            "slack_s": 6 * 3600.0,
        }
    )
    jobs.write_csv(folder / "jobs.csv")
    return with_files(load_scenario("tiny", ["goal=least-cost"]), [folder / "signals.csv"], folder / "jobs.csv")


def test_windows_do_not_overlap_and_leave_the_first_week_as_past(fleet: Any) -> None:
    scenario = windows_given(fleet, None, 3)
    assert (scenario.window_h, scenario.windows, scenario.start) == (168, 3, None)
    starts = [build_environment(scenario, index).start for index in range(3)]
    assert starts == [FIRST + timedelta(days=7 + 7 * n) for n in range(3)]
    with pytest.raises(ScenarioError, match="environment 3 of 3 windows"):
        build_environment(scenario, 3)


def test_windows_are_spread_over_the_days(fleet: Any) -> None:
    starts = [build_environment(windows_given(fleet, 4, None), n).start for n in range(4)]
    assert starts[0] == FIRST + timedelta(days=7)
    assert starts[-1] >= FIRST + timedelta(days=DAYS - 2)
    assert min(b - a for a, b in itertools.pairwise(starts)) >= timedelta(days=7)


def test_a_window_that_holds_the_whole_log_is_divided(fleet: Any) -> None:
    whole = with_days(fleet, FIRST.date(), (FIRST + timedelta(days=DAYS - 1)).date())
    divided = windows_given(whole, 5, None)
    assert divided.window_h == 24 * ((DAYS - 7) // 5)
    assert len({build_environment(divided, n).start for n in range(5)}) == 5


def test_more_windows_than_there_are_is_refused_with_their_number(fleet: Any) -> None:
    with pytest.raises(ScenarioError, match=r"10 windows of 168 h were asked for; .* hold 3 that do not overlap"):
        build_environment(windows_given(fleet, None, 10), 0)
    for windows, weeks, says in ((2, 2, "one of the two"), (0, None, "at least 1")):
        with pytest.raises(ScenarioError, match=says):
            windows_given(fleet, windows, weeks)
    with pytest.raises(ScenarioError, match=r"ask for environments \(-n\)"):
        windows_given(load_scenario("tiny"), 3, None)


def test_a_pinned_window_is_not_run_ten_times(fleet: Any) -> None:
    pinned = with_days(fleet, (FIRST + timedelta(days=8)).date())
    assert count_of(pinned, None) == 1
    for call in (
        lambda: compare(pinned, ["local-fcfs"], environments=4, bound=False),
        lambda: trade_off(pinned, "cheapest-feasible", environments=4),
    ):
        with pytest.raises(ScenarioError, match="--windows N, or --weeks N"):
            call()
    assert count_of(load_scenario("tiny"), None) == 10
    assert count_of(windows_given(fleet, None, 2), None) == 2


def test_a_note_of_some_windows_is_said_once_with_their_number(fleet: Any, tmp_path: Path) -> None:
    day = pl.col("submit_time").str.slice(0, 10)
    large = day.is_in(["2022-10-09", "2022-10-16", "2022-10-17"])
    jobs = pl.read_csv(fleet.jobs.path).with_columns(gpus=pl.when(large).then(4096).otherwise("gpus"))
    jobs.write_csv(tmp_path / "jobs.csv")
    scenario = windows_given(with_files(fleet, list(fleet.signals.paths), tmp_path / "jobs.csv"), None, 3)
    compared = compare(scenario, ["local-fcfs", "cheapest-feasible"], bound=False)
    studied = trade_off(scenario, "cheapest-feasible", carbon_prices=[0, 100])
    for found in (compared, studied):
        (note,) = [note for note in found.notes if "need more GPUs at once" in note]
        assert note.startswith("in 2 of 3 windows: 12 to 24 of 84 jobs of jobs.csv need more GPUs at once")


def test_windows_are_compared(fleet: Any, tmp_path: Path) -> None:
    found = compare(fleet, ["local-fcfs", "cheapest-feasible"], windows=3, bound=False, currency="EUR=1.08")
    assert len(found.bounds) == 3
    assert len({record.manifest["start"] for record in found.records["local-fcfs"]}) == 3
    assert headline(found)[0] in str(found)
    assert "Total cost (EUR)" in str(found)
    assert not any("distinct" in note or "overlap" in note or "left out" in note for note in found.notes)
    html = write_meeting_report(found, tmp_path / "report.html", command="noonward compare").read_text(encoding="utf-8")
    adopted = headline(found)[0].startswith("Keep") is False
    assert ("Window by window" in html) == adopted
    assert adopted
    days = [record.manifest["start"][:10] for record in found.records["local-fcfs"]]
    assert all(day in html[html.index("Window by window") :] for day in days)


def test_how_emissions_are_counted_is_said_in_a_sentence(fleet: Any, tmp_path: Path) -> None:
    assert carbon_scope(fleet).startswith(
        "location-based, average carbon intensity of each hour's electricity (the sig"
    )
    signals = pl.read_csv(fleet.signals.paths[0]).with_columns(carbon_kind=pl.lit("marginal"))
    signals.write_csv(tmp_path / "signals.csv")
    marginal = with_files(fleet, [tmp_path / "signals.csv"], None)
    assert carbon_scope(marginal).startswith(
        "location-based, marginal carbon intensity of each hour's electricity, life"
    )
    assert "average carbon intensity" in carbon_scope(load_scenario("tiny"))


def test_jobs_left_alone_have_no_slack(fleet: Any) -> None:
    alone = with_settings(fleet, [f"jobs.leave_alone_min={MINUTES + 1}"])
    slack_s, other_s = (build_environment(each, 0).jobs.slack_s_J for each in (alone, fleet))
    assert set(other_s) == {6 * 3600.0}
    assert sorted(set(slack_s)) == [0.0, 6 * 3600.0]
    assert (slack_s == 0).mean() == 0.5
    assert fleet.digest == with_settings(fleet, ["jobs.leave_alone_min=0"]).digest
