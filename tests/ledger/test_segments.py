"""Segments and transfers of any engine, settled by hand, and what the cluster engine emits."""

from dataclasses import replace

import numpy as np
import pytest

from ledger.two_jobs import HOUR_S, SIGNALS, environment, played
from noonward.decision.cluster.observation import Observation
from noonward.decision.scheduler import Scheduler
from noonward.engine.cluster.batch import BatchEngine
from noonward.engine.run import run
from noonward.ledger.ledger import Account, Ledger, settle, settle_run
from noonward.ledger.segments import LOAD, OWN_JOURNEY, RESULT, Overhead, PowerSegments
from noonward.ledger.settle import settle_power

WATER = {**SIGNALS.value_ZH, "water_l_per_kwh": np.array([[1.0, 2.0, 3.0, 3.0], [0.5, 0.5, 4.0, 4.0]])}


class ToAndFro(Scheduler):
    """Moves every job to the other site whenever it is asked and may, and starts none."""

    protocols = ("each-slot",)

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.allowed(site, 1 - site):
                answers.send(site, 1 - site)


def segments(kind=PowerSegments, **columns):
    given = {"gpus_K": [1] * len(columns["site_K"])} | columns
    ints = ("site_K", "job_K", "gpus_K", "kind_K")
    return kind(**{name: np.array(column, np.int32 if name in ints else float) for name, column in given.items()})


def test_the_engine_emits_a_segment_a_job_and_its_transfers():
    outcome = played()
    power = outcome.power
    assert (power.site_K.tolist(), power.job_K.tolist(), power.gpus_K.tolist()) == ([0, 1], [0, 1], [1, 1])
    assert (power.from_s_K / HOUR_S).tolist() == [0.5, 1.5]
    assert (power.to_s_K / HOUR_S).tolist() == [1.5, 2.5]
    assert power.watts_K.tolist() == [1500.0, 2000.0]
    assert len(outcome.overhead) == 0
    assert outcome.transfer_X.tolist() == [(OWN_JOURNEY, 1, 0, 1, 10.0, 0.0), (RESULT, 1, 0, 1, 5.0, 2.5 * HOUR_S)]


def test_a_segment_ends_with_the_run():
    cut = played(drained=False)
    assert (cut.power.to_s_K / HOUR_S).tolist() == [1.5, 2.0]
    assert cut.job_J["finish_s"][1] == 2.5 * HOUR_S
    assert cut.units_J.tolist() == [3600.0, 1800.0]


def test_a_run_shorter_than_its_times_are_exact_is_done():
    outcome = played()
    job_J = outcome.job_J.copy()
    job_J["finish_s"][0] = job_J["start_s"][0]
    job_J["start_s"][1] = np.nan
    assert replace(outcome, job_J=job_J).units_J.tolist() == [3600.0, 0.0]


def test_segments_of_one_job_add_up_at_any_sites_and_times():
    signals = environment().site_signals
    # Job 1 draws 1 kW at site a in hour 0, at the same time 2 kW at b, and 1 kW at a for the first half of hour 1.
    table = segments(
        site_K=[0, 1, 0], job_K=[1, 1, 1], from_s_K=[0.0, 0.0, HOUR_S], to_s_K=[HOUR_S, HOUR_S, 1.5 * HOUR_S],
        watts_K=[1000.0, 2000.0, 1000.0], gpus_K=[1, 2, 1],
    )  # fmt: skip
    settled = settle_power(table, signals, 2, free_w_S=np.array([100.0, 200.0]), window_s=1.25 * HOUR_S)
    assert settled.job_JA[0].tolist() == [0.0, 0.0, 0.0]
    assert settled.job_JA[1] == pytest.approx([1 + 2 + 0.5, 0.1 + 0.1 + 0.1, 0.4 + 0.2 + 0.3])
    assert settled.gpu_s_J.tolist() == [0.0, (1 + 2 + 0.5) * HOUR_S]
    # Free, the GPUs would have drawn 0.1 kW, 0.4 kW and, up to the window's end, 0.1 kW for a quarter of an hour.
    assert settled.displaced_JA[1] == pytest.approx([0.525, 0.01 + 0.02 + 0.005, 0.04 + 0.04 + 0.015])


def test_a_gang_that_restarts_is_settled_by_both_of_its_segments():
    outcome = played()
    power = outcome.power
    halves = segments(
        site_K=[0, 0, 1], job_K=[0, 0, 1], from_s_K=[0.5 * HOUR_S, HOUR_S, 1.5 * HOUR_S],
        to_s_K=[HOUR_S, 1.5 * HOUR_S, 2.5 * HOUR_S], watts_K=power.watts_K[[0, 0, 1]],
    )  # fmt: skip
    whole, split = settle(outcome), settle(replace(outcome, power=halves))
    for name, value in vars(whole).items():
        assert getattr(split, name) == pytest.approx(value), name


def test_loads_of_checkpoints_draw_energy_and_earn_nothing():
    load = segments(
        Overhead, site_K=[0], job_K=[0], from_s_K=[0.0], to_s_K=[0.5 * HOUR_S], watts_K=[3000.0], kind_K=[LOAD]
    )
    before, after = settle(played()), settle(replace(played(), overhead=load))
    assert after.job_kwh == pytest.approx(before.job_kwh + 1.5)
    assert after.job_energy_usd == pytest.approx(before.job_energy_usd + 0.15)
    assert after.free_kwh == pytest.approx(before.free_kwh - 0.15 * 0.5)  # its GPU is not free
    assert (after.gpu_hours, after.revenue_usd) == (before.gpu_hours, before.revenue_usd)


def test_a_further_signal_is_settled_by_its_name_alone():
    plain, wet = settle(played()), settle(played(signals=replace(SIGNALS, value_ZH=WATER)))
    account = wet.further["water_l"]
    # Job 0: 1.5 kW, half an hour at 1 l/kWh, half at 2. Job 1: 2 kW, half an hour at 0.5, half at 4.
    assert account.job == pytest.approx(0.75 + 1.5 + 0.5 + 4.0)
    assert account.fixed == pytest.approx(0.3 * 1 + 0.3 * 2 + 0.2 * 0.5 + 0.2 * 0.5)
    assert account.free == pytest.approx(account.fixed - 0.15 * (0.5 * 1 + 0.5 * 2) - 0.2 * 0.5 * 0.5)
    assert account.move == pytest.approx(0.2 * (1 + 0.5) / 2)  # 0.2 kWh in hour 0
    assert account.result == pytest.approx(0.1 * (3 + 4) / 2)  # 0.1 kWh in hour 2
    assert account.total == pytest.approx(account.job + account.free + account.move + account.result)
    assert replace(wet, further={}) == plain
    assert "further" not in plain.as_dict()
    assert Ledger.from_dict(wet.as_dict()) == wet


def test_an_unknown_hour_of_a_further_signal_stays_unknown_where_it_counts():
    gap = {**WATER, "water_l_per_kwh": np.where(np.arange(4) == 1, np.nan, WATER["water_l_per_kwh"])}
    ledger = settle(played(signals=replace(SIGNALS, value_ZH=gap)))
    assert np.isnan([ledger.further["water_l"].job, ledger.further["water_l"].fixed]).all()
    assert ledger.further["water_l"].move == pytest.approx(0.15)
    assert ledger.carbon_kg == settle(played()).carbon_kg
    assert Account(**ledger.as_dict()["further"]["water_l"]).job is None


def test_a_job_may_travel_more_often_than_there_was_room_for():
    world = environment(links=replace(environment().links, seconds_per_gb_IS=np.zeros((2, 2))))
    outcome = run(world, ToAndFro())
    journeys = outcome.transfer_X[outcome.transfer_X["kind"] == OWN_JOURNEY]
    moves_J = outcome.job_J["moves"]
    assert moves_J.min() > 50  # one a minute, up to the end of an hour's slack
    assert np.bincount(journeys["job"]).tolist() == moves_J.tolist()
    assert (np.diff(journeys["time_s"]) >= 0).all()
    settled = settle_run(outcome)
    np.testing.assert_allclose(settled.move_JA[:, 1], moves_J * 0.1)
    assert settled.move_JA[:, 2].sum() == pytest.approx(outcome.meters.move_kg)


def test_rows_of_a_batch_make_room_for_journeys_and_keep_them_in_their_state():
    world = environment(links=replace(environment().links, seconds_per_gb_IS=np.zeros((2, 2))))
    scheduler = ToAndFro()

    def play(engine, steps):
        for _ in range(steps):
            engine.answer(0, np.zeros(2, np.int64))
            scheduler.decide(engine.row_view(0), engine.row_answers(0))
            engine.step(engine.choices_of(0)[None])

    made = [BatchEngine([world], Observation(kind="paper"), seeds=[0]) for _ in range(2)]
    play(made[0], 40)
    made[1].load_state(made[0].state())
    for engine in made:
        play(engine, 10)
    first, second = (engine.outcome(0) for engine in made)
    assert len(first.transfer_X) == 50
    assert first.tobytes() == second.tobytes()
