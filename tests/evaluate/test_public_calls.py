"""Import, init and when from Python: the same as on the command line."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import noonward

HEAD = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES|Partition\n"
ROW = "{}|2024-01-{:02d}T12:00:00|2024-01-{:02d}T12:00:00|2024-01-{:02d}T13:00:00|3600|gres/gpu=1|{}\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A job a day for six days, every second one in the partition dev."""
    path = tmp_path / "sacct.txt"
    path.write_text(HEAD + "".join(ROW.format(n, n + 1, n + 1, n + 1, "dev" if n % 2 else "gpu") for n in range(6)))
    return path


def test_files_are_imported_and_a_fleet_is_made_of_them(tmp_path: Path, log: Path) -> None:
    found = noonward.import_files([log], timezone={"sacct.txt": "Europe/Berlin"}, origins="berlin", anonymous=True)
    assert found.jobs is not None
    assert found.jobs["submit_time"][0] == "2024-01-01T11:00:00Z"
    assert found.zones.is_empty()
    found.write(tmp_path)
    made = noonward.init_fleet(
        tmp_path / "mine.yaml",
        sites=["berlin=DE:8xA30"],
        jobs=tmp_path / "jobs.csv",
        classes=["interactive=partition==dev"],
        slack_h=1.0,
    )
    assert (made.path.name, made.table, made.gpus) == ("mine.yaml", tmp_path / "mine-jobs.csv", 8)
    assert "classes of jobs: 3 " in str(made.notes)
    scenario = noonward.load_scenario(str(made.path))
    assert scenario.fleet.classes == ("interactive", "job")
    assert set(noonward.build_environment(scenario).jobs.slack_s_J) == {3600.0}
    with pytest.raises(noonward.NoonwardError, match=r"mine.yaml exists; choose another name"):
        noonward.init_fleet(tmp_path / "mine.yaml", sites=["berlin=DE:8xA30"])


def test_what_is_told_of_a_file_that_is_not_there_is_refused(log: Path) -> None:
    with pytest.raises(noonward.NoonwardError, match=r"names the file 'sact.txt', which is not imported; did you mean"):
        noonward.import_files([log], timezone={"sact.txt": "UTC"})
    with pytest.raises(noonward.NoonwardError, match=r"--origin names 'bln', where no job of sacct.txt comes from"):
        noonward.import_files([log], timezone="UTC", origins={"bln": "berlin"})
    jobs = noonward.import_files([log], timezone="UTC", origins={"sacct.txt": "x"}).jobs
    assert jobs is not None
    assert jobs["origin"].unique().to_list() == ["x"]


def test_when_finds_the_cheapest_hours(tmp_path: Path) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    path = tmp_path / "signals.csv"
    prices = [100.0] * 72
    prices[54:57] = [10.0] * 3
    hours = [start + timedelta(hours=hour) for hour in range(-24, 48)]
    pl.DataFrame(
        {
            "timestamp": [f"{hour:%Y-%m-%dT%H:%M:%SZ}" for hour in hours],
            "zone": "DE",
            "price_usd_per_mwh": prices,
            "carbon_intensity_g_per_kwh": 300.0,
        }
    ).write_csv(path)
    answer = noonward.when(
        gpus=8, hours=3, by=start + timedelta(hours=40), now="2024-01-01 20:00", zones=["DE"], gpu="A30", signals=[path]
    )
    assert answer.advice.best.start == start + timedelta(hours=30)
    assert answer.advice.now.start == start + timedelta(hours=20)
    assert answer.advice.now.usd == pytest.approx(10 * answer.advice.best.usd)
    assert str(answer).startswith("Run it at DE from 2024-01-02 06:00 to 2024-01-02 09:00 UTC: ")
    with pytest.raises(noonward.NoonwardError, match="either --zones DE,FR,SE-SE3 or --fleet"):
        noonward.when(gpus=1, hours=1, by=start, now="2023-12-31")
