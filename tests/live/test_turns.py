"""Turns: a thread that computes for long rests, and for longer while others compute."""

from types import SimpleNamespace

import pytest

from noonward.live import turns


@pytest.fixture
def clock(monkeypatch):
    """A clock of which time passes in rests alone; ``others`` says how much other threads compute in each."""
    made = SimpleNamespace(now_s=0.0, used_s=0.0, rests=0, others=[])
    made.perf_counter, made.process_time = lambda: made.now_s, lambda: made.used_s

    def sleep(seconds):
        made.now_s += seconds
        made.used_s += seconds * (made.others[made.rests] if made.rests < len(made.others) else 0.0)
        made.rests += 1

    made.sleep = sleep
    monkeypatch.setattr(turns, "time", made)
    return made


def rests_after(clock, work_s):
    clock.rests, before = 0, clock.now_s
    clock.now_s += work_s
    turns.give_way()
    assert clock.now_s == pytest.approx(before + work_s + clock.rests * turns.REST_S)
    return clock.rests


def test_it_rests_once_where_others_do_not_compute(clock):
    with turns.in_turns():
        assert rests_after(clock, 0.9 * turns.WORK_S) == 0
        assert rests_after(clock, 0.2 * turns.WORK_S) == 1
        assert rests_after(clock, 0.9 * turns.WORK_S) == 0


def test_it_rests_until_the_others_have_done_their_work(clock):
    with turns.in_turns():
        clock.others = [1.0, 0.3, 0.2]
        assert rests_after(clock, turns.WORK_S) == 3


def test_it_goes_on_after_a_while_however_much_they_compute(clock):
    with turns.in_turns():
        clock.others = [1.9] * 100
        assert rests_after(clock, turns.WORK_S) == turns.MOST_RESTS
        assert rests_after(clock, turns.WORK_S) == turns.MOST_RESTS
