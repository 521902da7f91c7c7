"""Jobs that bend against what others published: on small tables of our own, and on theirs where they are at hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from command_line import CommandLine
from noonward.errors import DataError, ScenarioError
from noonward.studies.flexible_jobs.carbonscaler import Profile, hold_against_carbonscaler
from noonward.studies.flexible_jobs.emerald import JOBS, MINUTES, hold_against_field_test, modelled_share
from noonward.studies.flexible_jobs.gaia import (
    AT_ONCE,
    THRESHOLD,
    WAIT_AWHILE,
    GaiaJobs,
    hold_against_gaia,
    published_carbon_g,
)
from noonward.studies.flexible_jobs.reproduce import flexible_table, reproduce_flexible

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
THEIRS = SHARED / "flexible"
needs_theirs = pytest.mark.skipif(not THEIRS.is_dir(), reason=f"needs the published tables in {THEIRS}")


@pytest.fixture
def jobs_file(tmp_path):
    """Sixty jobs of one minute to two days, in GAIA's format."""
    rng = np.random.default_rng(3)
    arrival_s = np.sort(rng.uniform(0, 2 * 86400, 60)).round()
    length_s = rng.lognormal(9.0, 1.3, 60).clip(60, 172800).round()
    rows = [f"{a},{n},{c}" for a, n, c in zip(arrival_s, length_s, rng.integers(1, 5, 60), strict=True)]
    path = tmp_path / "jobs.csv"
    path.write_text("arrival_time,length,cpus\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def profile_file(tmp_path):
    """A program that scales to three nodes."""
    path = tmp_path / "program.csv"
    path.write_text("nodes,throughput,power\n0,0,0\n1,10,50\n2,19,100\n3,25,151\n\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(3))
def test_the_engine_emits_what_gaia_defines(jobs_file, seed):
    found = hold_against_gaia(jobs_file, [], seed)
    assert found.relative_error < 1e-12
    assert min(found.suspensions[name] for name in (WAIT_AWHILE, THRESHOLD)) > 10
    assert found.engine_g[WAIT_AWHILE] < found.engine_g[THRESHOLD] < found.engine_g[AT_ONCE]


def test_gaias_definitions_by_hand(tmp_path):
    """An hour's job that may wait for six: 3 W through hours of 5, 2, 2, 3... g/kWh from half past on."""
    path = tmp_path / "jobs.csv"
    path.write_text("arrival_time,length,cpus\n1800,3600,3\n", encoding="utf-8")
    jobs = GaiaJobs.of(path)
    assert (jobs.arrival_J[0], jobs.length_J[0], jobs.wait_J[0]) == (360, 720, 6 * 720)
    carbon_H = np.array([5.0, 2.0, 2.0, 3.0, 1.5, 5.0, 5.0, 1.0, *[9.0] * 60])
    found = published_carbon_g(jobs, carbon_H)
    assert found[AT_ONCE] == pytest.approx(3e-3 * (2.5 + 1.0))
    assert found[WAIT_AWHILE] == pytest.approx(3e-3 * (0.5 * 1.0 + 0.5 * 1.5))  # the window ends in hour 7
    assert found[THRESHOLD] == pytest.approx(3e-3 * 2.0)  # the quantile, by which 30% of the day count less, is 5


def test_schedules_equal_those_of_carbonscaler(profile_file):
    found = hold_against_carbonscaler(profile_file, [])
    assert (found.schedules, found.difference) == (120, 0)
    assert found.saved > 0.1
    assert Profile.of(profile_file).work_N.tolist() == [0, 10, 19, 25]


def field_test(tmp_path, power_w=10_000.0):
    """A table in which every job draws what the model says, minute by minute in its mean."""
    rows = ["a title", "timestamp," + ",".join(job.column for job in JOBS)]
    late_w = [(power_w * modelled_share(job) - 30 * power_w) / (MINUTES - 30) for job in JOBS]
    for minute in range(MINUTES):
        rows.append(f"{minute}," + ",".join(str(power_w if minute < 30 else watts) for watts in late_w))
    path = tmp_path / "aps.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_job_that_draws_what_the_model_says_has_no_error(tmp_path):
    found = hold_against_field_test(field_test(tmp_path))
    assert [job.error for job in found] == pytest.approx([0.0] * 6, abs=1e-9)
    assert found[3].measured_kwh == pytest.approx(10.0 * MINUTES / 60)  # the job that nothing was done to


def test_parts_without_a_file_are_named(profile_file, jobs_file):
    found = reproduce_flexible(jobs_file, [profile_file], None, [])
    assert [words.split(",")[0] for words in found.left_out] == ["the field test"]
    names = {metric.name for metric in found.metrics()}
    assert {"gaia/carbon_relative_error", "carbonscaler/schedule_difference"} <= names
    assert "aps/largest_job_energy_error" not in names
    assert len(flexible_table(found).rows) == 4
    with pytest.raises(ScenarioError, match=r"nothing to compare with.*--gaia.*--carbonscaler.*--aps"):
        reproduce_flexible(None, [], None, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_time,length\n0,600\n", "has no column 'cpus'"),
        ("arrival_time,length,cpus\n", "has no rows"),
        ("arrival_time,length,cpus\n0,600,1\n0,long,1\n", "line 3, column 'length': 'long' is not a finite number"),
        ("arrival_time,length,cpus\n0,2,1\n", "column 'length': 2 is not allowed; give at least 5 s"),
        ("arrival_time,length,cpus\n0,600,1.5\n", "column 'cpus': 1.5 is not allowed; give a whole number"),
    ],
)
def test_tables_that_are_wrong_are_refused(tmp_path, text, message):
    path = tmp_path / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        GaiaJobs.of(path)


def test_a_profile_with_a_gap_and_a_short_event_are_refused(tmp_path, profile_file):
    profile_file.write_text("nodes,throughput,power\n0,0,0\n2,19,100\n", encoding="utf-8")
    with pytest.raises(DataError, match="column 'nodes'"):
        Profile.of(profile_file)
    short = field_test(tmp_path)
    short.write_text("\n".join(short.read_text(encoding="utf-8").splitlines()[:100]), encoding="utf-8")
    with pytest.raises(DataError, match="has 98 rows; the event's table has 400"):
        hold_against_field_test(short)


@needs_theirs
def test_the_published_tables(monkeypatch, capsys):
    noonward = CommandLine(monkeypatch, capsys)
    profiles = [f"--carbonscaler={THEIRS / f'carbonscaler_{name}.csv'}" for name in ("nbody10k", "nbody100k")]
    tables = [f"--gaia={THEIRS / 'gaia_pai_1k.csv'}", f"--aps={THEIRS / 'emerald' / 'aps_jobs_by_minute.csv'}"]
    signals = f"--signals={SHARED / 'signals.parquet'}"
    printed = noonward("reproduce", "flexible-jobs", *tables, *profiles, signals, "--json").out
    value = {figure["name"]: figure["value"] for figure in json.loads(printed)["figures"]}
    assert value["gaia/carbon_relative_error"] < 1e-12
    assert value["gaia/carbon_g/wait-awhile"] == pytest.approx(306.7115745997686)
    assert value["carbonscaler/schedule_difference"] == 0
    assert value["aps/largest_job_energy_error"] == pytest.approx(0.0107790, abs=1e-6)
