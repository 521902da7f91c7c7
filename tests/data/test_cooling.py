"""PUE by the hour from files, stated or from the weather, and what scenarios make of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from noonward.bound.cluster_utility.lagrangian import utility_bound
from noonward.data.cooling import SYSTEMS, pue_by_hour, pue_hours, wet_bulb_c
from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario, with_settings
from noonward.engine.run import run
from noonward.errors import DataError, ScenarioError, SignalRangeError
from noonward.ledger.ledger import Ledger, settle
from noonward.ledger.record import environment_digest
from noonward.model.cluster.pue import PueFile
from noonward.schedule.policies import make_scheduler

FIRST = datetime(2022, 2, 25, tzinfo=UTC)
DAYS = 16


def stamp(hour: int) -> str:
    return f"{FIRST + timedelta(hours=hour):%Y-%m-%dT%H:%MZ}"


def pue_file(folder: Path, pue_H: np.ndarray) -> Path:
    rows = [f"{stamp(hour)},{pue!r}" for hour, pue in enumerate(pue_H.tolist())]
    path = folder / "pue.csv"
    path.write_text("\n".join(["time,pue", *rows]))
    return path


def scenario(folder: Path, pue: object, *settings: str):
    """The scenario tiny in a fixed window, the PUE of whose first site is as given."""
    return load_scenario("tiny", ["start=2022-03-01", f"fleet.sites.0.pue={pue}", *settings])


def day_and_night(day: float, night: float) -> np.ndarray:
    return np.tile([night] * 8 + [day] * 12 + [night] * 4, DAYS)


def played(made, policy: str) -> Ledger:
    return settle(run(build_environment(made), make_scheduler(policy)))


@pytest.mark.parametrize(
    ("system", "bulb_c", "pue"),
    [
        ("air-economizer", 18.0, 1.12),
        ("air-economizer", 27.0, 1.12 + 1 / (4.0 * 0.97**2)),  # all heat by chillers
        ("air-economizer", 22.5, 1.12 + 0.5 / (4.0 * 0.97**-2.5)),
        ("water-economizer", 10.0, 1.10),
        ("water-economizer", 20.0, 1.10 + 1 / 7.0),
        ("chiller", 25.0, 1.12 + 1 / 4.0),
        ("chiller", -10.0, 1.12 + 1 / (4.0 * 0.97**-15)),  # as at 10 degrees
    ],
)
def test_cooling_systems_by_hand(system: str, bulb_c: float, pue: float) -> None:
    assert SYSTEMS[system].pue(np.array([bulb_c])) == pytest.approx(pue, abs=5e-5)


def test_the_wet_bulb_is_stulls() -> None:
    assert wet_bulb_c(np.array([20.0]), np.array([50.0])) == pytest.approx(13.7, abs=0.05)
    assert wet_bulb_c(np.array([30.0]), np.array([99.0])) == pytest.approx(29.9, abs=0.1)


def test_weather_files_of_wet_bulb_or_humidity_and_local_times(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text("time,dry_bulb_c,relative_humidity_pct\n2022-02-25 02:00,20,50\n2022-02-25 03:00,35,40\n")
    first, pue_H = pue_hours(PueFile(path=path, cooling="water-economizer", timezone="+02:00"))
    assert first == FIRST
    wet_c_H = wet_bulb_c(np.array([20.0, 35.0]), np.array([50.0, 40.0]))
    assert pue_H.tolist() == SYSTEMS["water-economizer"].pue(wet_c_H).tolist()
    _, pue_H = pue_hours(PueFile(path=path, cooling="chiller", timezone="UTC"))
    assert pue_H.tolist() == SYSTEMS["chiller"].pue(np.array([20.0, 35.0])).tolist()


@pytest.mark.parametrize(
    ("text", "cooling", "says"),
    [
        ("time,pue\n2022-02-25T00:00Z,0.9\n", None, "line 2, column 'pue': the value '0.9' is no PUE"),
        ("time,pue\n2022-02-25T00:00Z,\n", None, "the value is empty; give facility power"),
        ("time,pue\n2022-02-25T00:30Z,1.2\n", None, "line 2: the time is off the full hour"),
        ("time,pue\n2022-02-25T00:00Z,1.2\n2022-02-25T02:00Z,1.2\n", None, "line 3: this row is 2 h after the one"),
        ("time,pue\n2022-02-25 00:00,1.2\n", None, "has no time zone"),
        ("time,dry_bulb_c\n2022-02-25T00:00Z,99\n", "chiller", "'99' is not allowed; give -90 to 60 degrees C"),
        ("time,dry_bulb_c\n2022-02-25T00:00Z,20\n", "water-economizer", "relative_humidity_pct"),
        ("time,dry_bulb_c\n2022-02-25T00:00Z,20\n", None, "no column 'pue'"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, cooling: object, says: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"bad\.csv") as error:
        pue_hours(PueFile(path=path, cooling=cooling))
    assert says in str(error.value)


def test_a_constant_file_is_the_number_bit_for_bit(tmp_path: Path) -> None:
    constant = build_environment(scenario(tmp_path, pue_file(tmp_path, np.full(24 * DAYS, 1.3))))
    number = build_environment(scenario(tmp_path, 1.3))
    assert environment_digest(constant) == environment_digest(number)
    ledgers = [settle(run(one, make_scheduler("booked-persistence"))) for one in (constant, number)]
    assert ledgers[0] == ledgers[1]


def test_a_scenario_keeps_its_file_through_settings_and_lets_go_of_it(tmp_path: Path) -> None:
    path = pue_file(tmp_path, day_and_night(1.6, 1.2))
    made = scenario(tmp_path, path)
    assert made.fleet.sites[0].pue == pytest.approx(1.4)  # the median of half days of 1.6 and 1.2
    kept = with_settings(made, ["jobs.count=5"])
    assert kept.fleet == made.fleet
    assert with_settings(made, ["fleet.sites.0.pue=1.25"]).fleet.sites[0].pue_by_hour is None
    (tmp_path / "mine.yaml").write_text("extends: tiny\nstart: 2022-03-01\n")
    beside = load_scenario(tmp_path / "mine.yaml", ["fleet.sites.0.pue={path: pue.csv}"])
    assert beside.fleet.sites[0].pue_by_hour.path == path


def test_the_digest_is_of_the_hours_and_not_of_the_place_of_their_file(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made = [
        build_environment(scenario(at, pue_file(at, day_and_night(1.6, 1.2)))) for at in (tmp_path, tmp_path / "other")
    ]
    assert environment_digest(made[0]) == environment_digest(made[1])
    cooler = build_environment(scenario(tmp_path, pue_file(tmp_path, day_and_night(1.5, 1.3))))
    assert environment_digest(cooler) != environment_digest(made[0])


def test_turning_the_hours_turns_the_result_and_the_ledger_equals_the_meters(tmp_path: Path) -> None:
    ledgers = []
    for day, night in ((1.6, 1.2), (1.2, 1.6)):
        environment = build_environment(scenario(tmp_path, pue_file(tmp_path, day_and_night(day, night))))
        assert environment.pue is not None
        outcome = run(environment, make_scheduler("random"), rewards=True)
        ledger, meters = settle(outcome), outcome.meters
        metered = {
            "job_kwh": meters.busy_kwh_S.sum(), "free_kwh": meters.free_kwh_S.sum(),
            "job_energy_usd": meters.busy_usd_S.sum(), "job_kg": meters.busy_kg_S.sum(),
            "move_kg": meters.move_kg, "utility_usd": meters.utility_usd,
        }  # fmt: skip
        for name, value in metered.items():
            assert getattr(ledger, name) == pytest.approx(value, rel=1e-9), name
        ledgers.append(ledger)
    assert ledgers[0].energy_kwh != pytest.approx(ledgers[1].energy_kwh, rel=1e-3)


def test_no_policy_earns_more_than_the_bound(tmp_path: Path) -> None:
    made = scenario(tmp_path, pue_file(tmp_path, day_and_night(2.4, 1.0)))
    environment = build_environment(made)
    bound_usd = utility_bound(environment).upper_usd
    for policy in ("booked-perfect", "cheapest-feasible"):
        assert settle(run(environment, make_scheduler(policy))).utility_usd <= bound_usd + 1e-9
    assert bound_usd != pytest.approx(utility_bound(replace(environment, pue=None)).upper_usd, rel=1e-4)


def test_hours_that_the_file_lacks_are_said(tmp_path: Path) -> None:
    made = scenario(tmp_path, pue_file(tmp_path, day_and_night(1.6, 1.2)))
    with pytest.raises(SignalRangeError, match="the PUE of site 'north' is needed from 2022-05-31"):
        build_environment(with_settings(made, ["start=2022-06-01"]))
    with pytest.raises(ScenarioError, match="pue"):
        scenario(tmp_path, 0.5)
    # A service begins within its file and goes on with its last day.
    end = FIRST + timedelta(days=DAYS)
    found = pue_by_hour(made.fleet, end - timedelta(days=1), None)
    assert found.window(end + timedelta(hours=12), 1)[0] == pytest.approx(1.6 / 1.4)
