"""Power and time curves by hand, the oracle clock, and the check values of the DVFS setting."""

import numpy as np
import pytest
from pydantic import ValidationError

from noonward.data.scenarios.load import load_scenario
from noonward.model.cluster.power import ClassProfile, PowerCurve, TimeCurve, energy_optimal_level

CURVE = PowerCurve(cubic_w=80, linear_w=40, constant_w=10)
TIME = TimeCurve(constant_s=1.0, per_clock_s=2.0, per_gpu_s=0.5)


@pytest.mark.parametrize(
    ("gpus", "clock", "power_w"),
    [(1, 1.0, 130.0), (3, 1.0, 390.0), (1, 0.5, 40.0), (4, 0.5, 160.0)],  # 80/8 + 40/2 + 10 = 40
)
def test_power_is_gpus_times_the_cubic_of_the_clock(gpus, clock, power_w):
    assert CURVE.power_w(gpus, clock) == power_w


@pytest.mark.parametrize(
    ("gpus", "clock", "seconds"),
    [
        (1, 1.0, 3.0),  # one GPU talks to nobody
        (1, 0.5, 5.0),
        (2, 1.0, 2.0),  # (3 + 1) / 2
        (2, 0.5, 3.0),  # (5 + 1) / 2
        (4, 1.0, 1.25),  # (3 + 2) / 4
    ],
)
def test_time_pays_for_communication_from_two_gpus_on(gpus, clock, seconds):
    assert TIME.seconds_per_unit(gpus, clock) == seconds


@pytest.mark.parametrize("coefficients", [{}, {"per_gpu_s": 0.5}, {"constant_s": 0.0, "per_clock_s": 0.0}])
def test_work_that_takes_no_time_is_refused(coefficients):
    with pytest.raises(ValidationError, match=r"constant_s \+ per_clock_s is 0 s per unit.*at least one of them"):
        TimeCurve(**coefficients)
    assert TimeCurve(constant_s=1.0).seconds_per_unit(1, 0.5) == 1.0
    assert TimeCurve(per_clock_s=1.0).seconds_per_unit(1, 0.5) == 2.0


def test_curves_broadcast_gangs_against_clocks():
    gangs, clocks = np.array([[1.0], [2.0], [4.0]]), np.array([0.5, 1.0])
    assert TIME.seconds_per_unit(gangs, clocks).tolist() == [[5.0, 3.0], [3.0, 2.0], [1.75, 1.25]]
    assert CURVE.power_w(gangs, clocks).tolist() == [[40.0, 130.0], [80.0, 260.0], [160.0, 520.0]]


def test_a_fixed_duration_takes_a_second_per_unit_whatever_the_gang_and_the_clock():
    profile = ClassProfile(power=CURVE)
    assert profile.seconds_per_unit(np.array([[1.0], [8.0]]), np.array([0.3, 1.0])).tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_the_oracle_takes_the_level_of_least_energy_and_the_lower_clock_on_ties():
    power_NF = np.array([[4.0, 3.0, 5.0], [2.0, 3.0, 6.0], [9.0, 1.0, 1.0]])
    seconds_NF = np.array([[1.0, 1.0, 1.0], [3.0, 2.0, 1.0], [1.0, 2.0, 2.0]])
    assert energy_optimal_level(power_NF, seconds_NF).tolist() == [1, 0, 1]


@pytest.fixture(scope="module")
def dvfs():
    """Fleet and tables of the packaged DVFS scenario."""
    fleet = load_scenario("dvfs-training").fleet
    return fleet, fleet.tables(8)


def oracle_clocks(tables, gpus):
    return [tables.clock_SF[s, tables.oracle_level_SCG[s, 0, gpus]] for s in range(8)]


def test_oracle_clocks_of_the_dvfs_setting(dvfs):
    fleet, tables = dvfs
    assert fleet.classes[0] == "training"
    assert oracle_clocks(tables, 1) == [0.8, 0.8, 0.8, 0.8, 0.7, 0.8, 0.8, 0.8]  # L4 stands fifth
    assert oracle_clocks(tables, 8) == [0.7] * 8


def test_energy_per_unit_of_the_dvfs_setting(dvfs):
    _, tables = dvfs
    energy_j_S = [
        (tables.power_w_SCGF * tables.seconds_per_unit_SCGF)[s, 0, 1, tables.oracle_level_SCG[s, 0, 1]]
        for s in range(8)
    ]
    assert np.round(energy_j_S, 3).tolist() == [9.452, 8.992, 8.102, 9.761, 6.403, 9.887, 8.148, 6.836]


def test_the_dvfs_fleet_asleep_draws_what_the_paper_says(dvfs):
    _, tables = dvfs
    assert tables.gpus_S.sum() == 1488
    assert (tables.gpus_S * tables.free_w_S).sum() == 21152.0
