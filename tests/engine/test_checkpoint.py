"""Runs that are broken off and resumed from a checkpoint give the bytes of unbroken ones; other checkpoints do not."""

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest

from noonward.data.environments import build_environment
from noonward.data.scenarios.load import load_scenario
from noonward.decision.brief import Needs
from noonward.decision.scheduler import Scheduler
from noonward.engine.checkpoint import Checkpoint
from noonward.engine.cluster.engine import ClusterEngine
from noonward.engine.run import run
from noonward.errors import DataError, FileError, ScenarioError
from noonward.files import stored_arrays, write_arrays
from noonward.ledger.machine import versions
from noonward.ledger.record import record_files
from noonward.notices import ask_to_stop, listening
from noonward.schedule.policies import make_scheduler, policies
from noonward.seeding import stream
from schedule.test_state import environment_for

FREE = "fleet.freedoms={fine-tuning: {interruptible: true, moves: true, caps: zeus-v100-bert}}"
EVENTS = (
    "fleet.tariffs={t: {usd_per_month: 20}}",
    "fleet.sites.0.meter={tariff: t, base_kw: 0.2}",
    "events=[{site: north, start_h: 3, hours: 2, notice_min: 10, baseline_kw: 0.9, target_kw: 0.4}]",
)
CROWD = "jobs.count=90"
LEARNED = ("jobs.knowledge.run_time=learned", "jobs.knowledge.limit={law: uniform, from: 1, to: 4}")
WORLDS = {
    "rule": ("most-free", "tiny", [CROWD]),
    "random rule": ("random", "tiny", [CROWD]),
    "forecast": ("booked-noisy", "tiny", [CROWD]),
    "cut off": ("local-fcfs", "tiny", [CROWD, "end=window"]),
    "in Python": ("wait-awhile", "tiny", [CROWD]),
    "bid prices": ("bid-price-regression", "tiny", [CROWD]),
    "learned run times": ("bid-price-persistence", "tiny", [CROWD, *LEARNED]),
    "learned run times, rule": ("patient", "tiny", [CROWD, *LEARNED]),
    "failures": ("patient", "tiny", [CROWD, "jobs.failures={per_gpu_hour: 0.05, share: 0.2, at: 0.3, retries: 3}"]),
    "suspension": ("suspend-threshold", "tiny", [CROWD, FREE]),
    "suspension by prices": ("bid-price(forecast=persistence,suspends=yes)", "tiny", [CROWD, FREE]),
    "caps by prices": ("bid-price(forecast=persistence,caps=yes,suspends=yes)", "tiny", [CROWD, FREE]),
    "events": ("event-response(base=most-free)", "tiny", [CROWD, FREE, *EVENTS]),
    "events, partly compiled": ("event-response(base=bid-price-persistence)", "tiny", [CROWD, FREE, *EVENTS]),
    "routes": ("ucb1", "dvfs-training", ["window_h=1"]),
    "curves": ("plan(curves=hard,samples=3)", "load-shaping", ["window_h=25"]),
    "curves by the hour": ("plan(replan=hourly,samples=3)", "load-shaping", ["window_h=25"]),
}
"""What is checked: policy, scenario and settings."""


@pytest.fixture(autouse=True)
def written_often(monkeypatch):
    """Writing takes a second on the clocks below, which is not to make checkpoints rare."""
    monkeypatch.setattr("noonward.engine.checkpoint.WRITES", 0.0)


class CutOffError(Exception):
    """Breaks a run off, wherever it is, as a crash does."""


def clock_of(looks=None, seconds=1.0):
    """A clock that passes some seconds whenever it is looked at, and breaks the run off after some looks."""
    times = itertools.count()

    def clock():
        time = next(times)
        if looks is not None and time >= looks:
            raise CutOffError
        return seconds * time

    return clock


def broken(environment, policy, path, looks, every_s=5.0, **options):
    """Runs on for some looks at the clock; returns the outcome where that is enough, else None."""
    checkpoint = Checkpoint(path, every_s=every_s, clock=clock_of(looks), about={"policy": policy})
    with suppress(CutOffError):
        return run(environment, make_scheduler(policy), seed=3, checkpoint=checkpoint, **options)
    return None


def files_of(outcome):
    """The record of a run, byte for byte."""
    return record_files(outcome, policy="any", seed=3, scenario_digest="any")


def resumed_from(notices):
    return [about for kind, about in notices if kind == "checkpoint"]


@pytest.mark.parametrize("world", WORLDS)
def test_a_run_that_is_broken_off_again_and_again_gives_the_same_record(world, tmp_path):
    policy, scenario, settings = WORLDS[world]
    environment, looks = build_environment(load_scenario(scenario, settings)), 2000 if "curves" in world else 60
    whole = run(environment, make_scheduler(policy), seed=3)
    for compiled in (None, False):
        path, tries, outcome, notices = tmp_path / f"{compiled}.npz", 0, None, []
        with listening(lambda kind, about, notices=notices: notices.append((kind, about))):
            while outcome is None:
                outcome = broken(environment, policy, path, looks, compiled=compiled)
                assert path.exists()
                tries += 1
        assert tries > 1
        assert len(resumed_from(notices)) == tries - 1
        assert outcome.tobytes() == whole.tobytes()
        assert files_of(outcome) == files_of(whole)


@pytest.mark.parametrize(
    "policy", [each for each in policies(kind="cluster") if "-seed" not in each.name], ids=lambda policy: policy.name
)
def test_every_packaged_policy_can_be_kept(policy, tmp_path):
    environment = environment_for(policy)
    times = itertools.count()
    often = Checkpoint(tmp_path / "never.npz", every_s=np.inf, clock=lambda: float(next(times)))
    whole = run(environment, policy.make(), seed=3, checkpoint=often, compiled=False)
    path = tmp_path / "kept.npz"
    assert broken(environment, policy.name, path, max(8, next(times) // 2), compiled=False) is None
    assert path.exists()
    assert broken(environment, policy.name, path, None).tobytes() == whole.tobytes()


def test_a_run_without_interruptions_is_the_same_with_checkpoints_and_leaves_its_last_one(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    kept = Checkpoint(tmp_path / "kept.npz", every_s=20.0, clock=clock_of())
    outcome = run(environment, make_scheduler("most-free"), checkpoint=kept)
    assert outcome.tobytes() == run(environment, make_scheduler("most-free")).tobytes()
    assert [path.name for path in tmp_path.iterdir()] == ["kept.npz"]
    kept.remove()
    kept.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_short_run_writes_nothing(tmp_path):
    kept = Checkpoint(tmp_path / "kept.npz", clock=clock_of(seconds=0.001))
    run(build_environment(load_scenario("tiny")), make_scheduler("most-free"), checkpoint=kept)
    assert list(tmp_path.iterdir()) == []


def test_a_compiled_run_pauses_as_seldom_as_the_clock_allows(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    steps = run(environment, make_scheduler("most-free")).steps
    looks = {}
    for seconds in (0.001, 1.0):
        times = itertools.count()
        kept = Checkpoint(tmp_path / "kept.npz", clock=lambda times=times, seconds=seconds: seconds * next(times))
        run(environment, make_scheduler("most-free"), checkpoint=kept)
        looks[seconds] = next(times)
    assert looks[0.001] < 25 < steps / 2 < looks[1.0]


def test_what_is_not_used_yet_is_not_written(tmp_path):
    environment = build_environment(load_scenario("tiny", ["jobs.count=2000", "window_h=100"]))
    assert broken(environment, "local-fcfs", tmp_path / "kept.npz", 40) is None
    arrays = stored_arrays(tmp_path / "kept.npz")
    arrived = int(arrays["engine_1"]["next_arrival"][0])
    assert 0 < arrived < 500
    assert len(arrays["outcome_R"]) == arrived
    assert len(arrays["heap_E"]) + len(arrays["journey_E"]) < 3 * arrived


OTHERS = {
    "seed": {"seed": 4},
    "policy": {"about": {"policy": "another"}},
    "scheduler": {"policy": "local-fcfs"},
    "environment": {"settings": ["jobs.count=29"]},
}


@pytest.mark.parametrize("what", OTHERS)
def test_the_checkpoint_of_another_run_is_refused(what, tmp_path):
    path = tmp_path / "kept.npz"
    assert broken(build_environment(load_scenario("tiny")), "most-free", path, 30) is None
    changed = {"seed": 3, "about": {"policy": "most-free"}, "policy": "most-free", "settings": []} | OTHERS[what]
    environment = build_environment(load_scenario("tiny", changed["settings"]))
    message = rf"kept\.npz cannot be continued from: it is of another {what}; remove it or name another file"
    kept, seed = Checkpoint(path, about=changed["about"]), changed["seed"]
    with pytest.raises(DataError, match=message):
        run(environment, make_scheduler(changed["policy"]), seed=seed, checkpoint=kept)
    notices = []
    with listening(lambda kind, about: notices.append((kind, about))):
        lax = Checkpoint(path, about=changed["about"], strict=False)
        outcome = run(environment, make_scheduler(changed["policy"]), seed=seed, checkpoint=lax)
    assert [about.rpartition(": ")[2] for about in resumed_from(notices)] == [
        f"it is of another {what}; the run begins again"
    ]
    assert outcome.tobytes() == run(environment, make_scheduler(changed["policy"]), seed=seed).tobytes()


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    environment, path = build_environment(load_scenario("tiny")), tmp_path / "kept.npz"
    assert broken(environment, "most-free", path, 30) is None
    monkeypatch.setattr("noonward.engine.checkpoint.package_digest", lambda: "another")
    says = r"it is of another version of this package or its libraries \(both are noonward \S+, but their source files"
    with pytest.raises(DataError, match=says):
        broken(environment, "most-free", path, None)
    here = versions()
    monkeypatch.setattr("noonward.engine.checkpoint.versions", lambda: here | {"noonward": "9.9", "numpy": "9.8"})
    says = rf"\(written with noonward {here['noonward']}, numpy {here['numpy']}; this is noonward 9\.9, numpy 9\.8\)"
    with pytest.raises(DataError, match=says):
        broken(environment, "most-free", path, None)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    environment, path = build_environment(load_scenario("tiny")), tmp_path / "kept.npz"
    assert broken(environment, "most-free", path, 30) is None
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damaged in (content[: len(content) // 2], bytes(flipped), b"", b"no archive"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"kept\.npz cannot be continued from: it is no archive of plain arrays"):
            broken(environment, "most-free", path, None)
        lax = Checkpoint(path, strict=False)
        assert run(environment, make_scheduler("most-free"), checkpoint=lax).steps > 0
    write_arrays(path, {"content": np.frombuffer(json.dumps({"run": {}}).encode(), np.uint8)})
    with pytest.raises(DataError, match=r"another version of this package \(it does not say which; this is noonward 0"):
        broken(environment, "most-free", path, None)


class Counts(Scheduler):
    """Moves on every seventh question, and remembers them without saying so."""

    needs = Needs(protocols=("each-slot",))

    def __init__(self):
        self.count = 0

    def decide(self, view, answers):
        for site, _ in view.asked():
            self.count += 1
            if self.count % 7 and view.allowed(site, site):
                answers.send(site, site)


class Remembers(Counts):
    """Says so."""

    def state(self):
        return {"count": self.count}

    def load_state(self, state):
        self.count = state["count"]


class Settings(Counts):
    """Holds what never changes, and something that cannot be compared."""

    def __init__(self):
        self.ask = lambda site: site

    def decide(self, view, answers):
        for site, _ in view.asked():
            if view.allowed(site, site):
                answers.send(site, self.ask(site))


def test_a_scheduler_that_remembers_without_saying_so_cannot_be_kept(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    message = r"Counts cannot be kept in a checkpoint: Counts changes count while it runs, but has no state\(\); give"
    with pytest.raises(ScenarioError, match=message):
        run(environment, Counts(), checkpoint=Checkpoint(tmp_path / "kept.npz", every_s=5.0, clock=clock_of()))
    with pytest.raises(ScenarioError, match=r"Settings has no state.*whether ask changes cannot be found out"):
        run(environment, Settings(), checkpoint=Checkpoint(tmp_path / "kept.npz", every_s=5.0, clock=clock_of()))
    assert list(tmp_path.iterdir()) == []
    with suppress(CutOffError):
        run(environment, Remembers(), checkpoint=Checkpoint(tmp_path / "kept.npz", every_s=5.0, clock=clock_of(30)))
    outcome = run(environment, Remembers(), checkpoint=Checkpoint(tmp_path / "kept.npz"))
    assert outcome.tobytes() == run(environment, Remembers()).tobytes()


def test_rewards_are_not_kept(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    with pytest.raises(ScenarioError, match="a checkpoint holds no rewards"):
        run(environment, make_scheduler("most-free"), rewards=True, checkpoint=Checkpoint(tmp_path / "kept.npz"))


def test_a_checkpoint_that_cannot_be_written_ends_the_run_only_if_it_is_strict(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "kept.npz"
    with pytest.raises(FileError, match=r"file is a file, not a folder"):
        run(environment, make_scheduler("most-free"), checkpoint=Checkpoint(path, every_s=5.0, clock=clock_of()))
    notices = []
    with listening(lambda kind, about: notices.append((kind, about))):
        lax = Checkpoint(path, every_s=5.0, strict=False, clock=clock_of())
        outcome = run(environment, make_scheduler("most-free"), checkpoint=lax)
    assert outcome.tobytes() == run(environment, make_scheduler("most-free")).tobytes()
    assert "is a file, not a folder" in resumed_from(notices)[0]


def test_the_state_of_another_engine_is_refused():
    engines = []
    for settings in ([], LEARNED):
        scheduler = make_scheduler("most-free")
        engine = ClusterEngine(build_environment(load_scenario("tiny", settings)), scheduler)
        scheduler.reset(engine.brief, stream(0, "policy", 0))
        engine.step()
        engines.append(engine)
    with pytest.raises(ScenarioError, match="the state is of another run"):
        engines[0].load_state(engines[1].state())


def test_what_was_learned_of_run_times_is_restored():
    environment = build_environment(load_scenario("tiny", [CROWD, *LEARNED]))

    def begun():
        scheduler = make_scheduler("most-free")
        engine = ClusterEngine(environment, scheduler, seed=3)
        scheduler.reset(engine.brief, stream(3, "policy", environment.index))
        return engine

    def played(engine, questions, asked=False):
        while questions and (asked or engine.step()):
            asked, questions = False, questions - 1
            engine.scheduler.decide(engine.view, engine.answers)
        return engine

    whole, half, again = played(begun(), -1), played(begun(), 40), begun()
    half.step()
    assert half.world.engine_1["estimated"][0] < len(environment.jobs) / 2
    again.load_state(pickle.loads(pickle.dumps(half.state())))
    played(again, -1, asked=True)
    assert again.outcome().tobytes() == whole.outcome().tobytes()
    assert again.world.submitted_R.tobytes() == whole.world.submitted_R.tobytes()


def stopping(after, by):
    """A clock on which a run is to stop after some looks."""
    times = itertools.count()

    def clock():
        if (time := next(times)) == after:
            by()
        return float(time)

    return clock


def test_a_run_that_is_stopped_too_early_says_what_the_same_command_does(tmp_path):
    environment, place = build_environment(load_scenario("tiny")), tmp_path / "kept.npz"

    def stopped():
        notices = []
        kept = Checkpoint(place, clock=stopping(3, ask_to_stop))
        with listening(lambda kind, about: notices.append(about)), pytest.raises(KeyboardInterrupt):
            run(environment, make_scheduler("most-free"), checkpoint=kept)
        return notices[-1]

    assert stopped().endswith("too early to be kept; the same command begins again")
    assert not place.exists()
    with pytest.raises(KeyboardInterrupt):
        run(environment, make_scheduler("most-free"), checkpoint=Checkpoint(place, clock=stopping(30, ask_to_stop)))
    before = place.read_bytes()
    assert stopped().endswith(f"the same command continues from the checkpoint in {place}")
    assert place.read_bytes() == before


@pytest.mark.parametrize("policy", ["most-free", "wait-awhile"])
def test_a_run_that_is_to_stop_writes_a_last_checkpoint_first(policy, tmp_path):
    environment, notices = build_environment(load_scenario("tiny")), []
    kept = Checkpoint(tmp_path / "kept.npz", clock=stopping(30, ask_to_stop))
    with listening(lambda kind, about: notices.append((kind, about))), pytest.raises(KeyboardInterrupt):
        run(environment, make_scheduler(policy), checkpoint=kept)
    assert "kept.npz; the same command continues from there" in resumed_from(notices)[0]
    outcome = run(environment, make_scheduler(policy), checkpoint=Checkpoint(tmp_path / "kept.npz"))
    assert outcome.tobytes() == run(environment, make_scheduler(policy)).tobytes()
    assert not ask_to_stop()


def test_a_run_that_is_to_stop_at_once_writes_nothing(tmp_path):
    environment = build_environment(load_scenario("tiny"))
    kept = Checkpoint(tmp_path / "kept.npz", clock=stopping(5, ask_to_stop))
    with pytest.raises(KeyboardInterrupt):
        run(environment, make_scheduler("most-free"), checkpoint=kept)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_a_run_and_then_do_what_they_did_before(by, tmp_path):
    environment, heard = build_environment(load_scenario("tiny")), []
    before = signal.signal(by, lambda number, frame: heard.append(number))
    try:
        kept = Checkpoint(tmp_path / "kept.npz", clock=stopping(30, lambda: os.kill(os.getpid(), by)))
        with pytest.raises(KeyboardInterrupt):
            run(environment, make_scheduler("most-free"), checkpoint=kept)
        assert heard == [by]
        assert kept.path.exists()
        os.kill(os.getpid(), by)
        assert heard == [by, by]
    finally:
        signal.signal(by, before)


KILLED = """
import hashlib, itertools, os, signal, sys
from noonward import Checkpoint, build_environment, load_scenario, make_scheduler, run

times = itertools.count()
path, kills = sys.argv[1], sys.argv[2] == "killed"

def clock():
    if (time := next(times)) >= 200 and kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(time)

environment = build_environment(load_scenario("tiny", ["jobs.count=90"]))
outcome = run(environment, make_scheduler("bid-price-noisy"), checkpoint=Checkpoint(path, every_s=30.0, clock=clock))
print(hashlib.sha256(outcome.tobytes()).hexdigest())
"""


def test_a_process_that_was_killed_is_continued_in_a_new_one(tmp_path):
    def called(path, how):
        command = [sys.executable, "-c", KILLED, str(tmp_path / path), how]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert called("kept.npz", "killed").returncode == -signal.SIGKILL
    assert (tmp_path / "kept.npz").exists()
    resumed, whole = called("kept.npz", "not"), called("other.npz", "not")
    assert resumed.returncode == whole.returncode == 0, resumed.stderr
    assert len(resumed.stdout.strip()) == 64
    assert resumed.stdout == whole.stdout
