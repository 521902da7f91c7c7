"""Edge scenarios through the same commands as all others: drawn, run, settled, recorded, compared, reported."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.engine.edge.engine import EdgeEngine, run_edge_environment
from noonward.errors import InfeasibleActionError, ScenarioError
from noonward.evaluate.answer import headline
from noonward.evaluate.compare import compare
from noonward.evaluate.report.page import write_report
from noonward.ledger.edge import EdgeLedger, settle_edge, settle_tasks
from noonward.ledger.edge_record import task_table
from noonward.model.edge.tasks import ImageTasks
from noonward.schedule.edge.lookahead import Lookahead
from noonward.schedule.edge.rules import Fifo, FirstFit, PatientReuse, RandomTries, ReuseFirst
from noonward.schedule.policies import make_scheduler

TEXT = """
kind: edge
name: four-servers
servers: {count: 4, zone: SG, idle_w: 60, load_w: 120, active_w: 300, pue: 1.2}
gang_times:
  "1": {load_s: 24, step_s: 0.315}
  "2": {load_s: 24, step_s: 0.15625}
  "4": {load_s: 32, step_s: 0.14}
tasks: {source: paper, count: 12, first: 4, rate_per_s: 0.05, sizes: [1, 2, 4]}
signals: {source: generated}
carbon_usd_per_t: 100
baseline: reuse-first
"""
RULES = {
    "fifo": Fifo,
    "first-fit": FirstFit,
    "reuse-first": ReuseFirst,
    "patient-reuse": PatientReuse,
    "lookahead": Lookahead,
    "random": RandomTries,
}


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edge.yaml").write_text(TEXT, encoding="utf-8")
    return load_scenario("edge.yaml")


def test_policies_are_compared_bounded_recorded_and_reported(scenario, tmp_path):
    found = compare(scenario, list(RULES), environments=3, out=tmp_path / "runs")
    assert found.paired
    lower, best = found.bound_values("response_s"), found.bound_values("best_known_s")
    for name in ("fifo", "first-fit", "reuse-first", "patient-reuse", "lookahead"):
        assert (found.values(name, "response_s") >= lower - 1e-9).all()
    assert (best >= lower).all()
    assert (best <= found.values("patient-reuse", "response_s") + 1e-9).all()
    names = {metric.name for metric in found.metrics()}
    assert {"response_s/patient-reuse", "improvement_share/lookahead", "j_per_image/fifo", "response_s/bound"} <= names
    (change,) = (m.value for m in found.metrics() if m.name == "g_per_image_change/fifo")
    fifo, base = (found.values(name, "g_per_image") for name in ("fifo", "reuse-first"))
    assert change == pytest.approx(fifo.sum() / base.sum() - 1)
    text = write_report(found, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Lower bound" in text
    assert "Quality against response" in text


def test_a_name_of_both_kinds_is_the_scenarios(scenario, tmp_path):
    found = compare(scenario, ["random", "reuse-first"], environments=1, out=tmp_path)
    assert found.mean("random", "quality").value < found.mean("reuse-first", "quality").value


@pytest.mark.parametrize("name", ["edge-inference", "edge-inference-reference"])
@pytest.mark.parametrize("more", [(), ("servers.count=8", "tasks.sizes=[1,2,4,8]", "tasks.rate_per_s=0.1")])
def test_packaged_scenarios_run_under_their_policies(name, more, tmp_path):
    scenario = load_scenario(name, ["tasks.count=8", "tasks.first=4", *more])
    found = compare(scenario, environments=1, out=tmp_path)
    assert set(found.records) == set(scenario.policies)
    assert not np.isnan(found.bound_values("response_s")).any()


@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_compiled_rules_answer_as_in_python(scenario, make):
    environment = build_edge_environment(scenario, 1, 5)
    outcomes = [run_edge_environment(environment, make(), seed=2, compiled=how) for how in (True, False)]
    assert outcomes[0].task_K.tobytes() == outcomes[1].task_K.tobytes()


def test_the_same_draw_is_the_same_and_another_is_not(scenario):
    first, again, other = (build_edge_environment(scenario, index, 3) for index in (0, 0, 1))
    assert first.tasks.record_K.tobytes() == again.tasks.record_K.tobytes()
    assert first.tasks.record_K.tobytes() != other.tasks.record_K.tobytes()


def test_energy_by_hand(scenario):
    """Watts times seconds of every task, and idle servers for the rest of the window."""
    environment = build_edge_environment(scenario, 0, 0)
    outcome = run_edge_environment(environment, PatientReuse())
    ledger, settled = settle_edge(outcome), settle_tasks(outcome)
    gang, load_s = environment.tasks.gang_K, outcome.load_s_K
    run_s = outcome.task_K["duration_s"] - load_s
    assert ledger.run_kwh == pytest.approx((gang * run_s).sum() * 300 * 1.2 / 3.6e6)
    assert ledger.load_kwh == pytest.approx((gang * load_s).sum() * 120 * 1.2 / 3.6e6)
    idle_s = 4 * 3600 - (gang * (run_s + load_s)).sum()
    assert ledger.idle_kwh == pytest.approx(idle_s * 60 * 1.2 / 3.6e6)
    assert ledger.fixed_usd == pytest.approx(4 * 60 * 1.2 * environment.site_signals.price_SH[0, 0] / 1e6)
    table = task_table(outcome)
    assert table["energy_kwh"].sum() == pytest.approx(ledger.run_kwh + ledger.load_kwh)
    assert table["energy_usd"].sum() == pytest.approx(float((settled.run_KA + settled.load_KA)[:, 1].sum()))
    assert EdgeLedger.from_dict(ledger.as_dict()) == ledger


def test_an_infeasible_answer_is_refused_and_changes_nothing(scenario):
    environment = build_edge_environment(scenario, 0, 0)
    engine = EdgeEngine(environment, Fifo())
    assert engine.step() == 1
    engine.answers.launch(0, steps=31.0)
    with pytest.raises(InfeasibleActionError, match="allowed: 0 to the task's steps_max"):
        engine.step()
    engine.answers.launch(9, steps=24.0)
    with pytest.raises(InfeasibleActionError, match="feasible now"):
        engine.step()
    assert not engine.outcome().launched_K.any()


def test_a_wait_until_a_time_is_asked_again_then(scenario):
    environment = build_edge_environment(scenario, 0, 0)
    engine = EdgeEngine(environment, Fifo())
    engine.step()
    now = engine.view.now_s
    engine.answers.wait(until_s=now + 0.5)
    engine.step()
    assert engine.view.now_s == pytest.approx(now + 0.5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["tasks.sizes=[1,8]"], "gang_times has 1, 2, 4"),
        (["gang_times.8={load_s: 1, step_s: 1}", "tasks.sizes=[8]"], "allowed: 1 to 4"),
        (["steps=31"], "steps is 31; allowed: 0 .steps_min. to 30"),
        (["tasks.rate_per_s=11"], "at most one task a tick"),
        (["servers.count=63"], "less than or equal to 62"),
    ],
)
def test_wrong_scenarios_say_what_is_wrong(scenario, settings, words):
    with pytest.raises(ScenarioError, match=words):
        load_scenario("edge.yaml", settings)


def test_a_scheduler_of_another_kind_is_refused(scenario, tmp_path):
    with pytest.raises(ScenarioError, match="is of kind edge"):
        compare(scenario, ["local-fcfs"], environments=1, out=tmp_path)


def test_a_wait_has_an_end(scenario):
    """A scheduler that always waits is refused once nothing can happen and the last hour is over."""
    environment = build_edge_environment(scenario, 0, 0)
    engine = EdgeEngine(environment, Fifo())

    def wait_on():
        while engine.step():
            engine.answers.wait(until_s=engine.view.now_s + 600.0)

    with pytest.raises(InfeasibleActionError, match=f"until {environment.latest_s:g} s"):
        wait_on()
    assert engine.view.now_s <= environment.latest_s
    engine.answers.launch(0, steps=24.0)
    assert engine.step() == 1
    far = EdgeEngine(environment, Fifo())
    far.step()
    far.answers.wait(until_s=1e15)
    with pytest.raises(InfeasibleActionError, match="a wait until"):
        far.step()


def test_models_loads_deadlines_and_least_steps_are_drawn_and_kept(scenario):
    several = load_scenario(
        "edge.yaml",
        [
            "tasks.models={count: 3, exponent: 0, shift: 0}",
            "tasks.load_sigma=0.3",
            "tasks.deadline_s=40",
            "steps_min=5",
        ],
    )
    rows = np.concatenate([build_edge_environment(several, n, 0).tasks.record_K for n in range(100)])
    assert np.bincount(rows["model"]) / len(rows) == pytest.approx(np.full(3, 1 / 3), abs=0.05)
    assert np.log(rows["load_s"][rows["gang"] == 1] / 24).std() == pytest.approx(0.3, abs=0.03)
    assert rows["load_s"][rows["gang"] == 4].mean() == pytest.approx(32, rel=0.05)
    assert (rows["deadline_s"] == rows["stamp_s"] + 40).all()
    environment = build_edge_environment(several, 0, 0)
    assert (run_edge_environment(environment, RandomTries()).task_K["steps"] >= 5).all()
    outcome = run_edge_environment(environment, PatientReuse())
    ledger = settle_edge(outcome)
    assert ledger.late == (outcome.response_s_K > 40).sum() > 0
    assert ledger.utility == pytest.approx(10 * ledger.quality - 0.004 * ledger.response_s)
    assert settle_edge(run_edge_environment(environment, PatientReuse(steps=6.0))).below_quality_min == 0
    strict = several.model_copy(update={"quality_min": 0.2})
    poor = settle_edge(run_edge_environment(build_edge_environment(strict, 0, 0), PatientReuse(steps=6.0)))
    assert poor.below_quality_min == poor.images
    assert poor.utility == pytest.approx(10 * poor.quality - 0.004 * poor.response_s - 1)
    engine = EdgeEngine(environment, Fifo())
    engine.step()
    engine.answers.launch(0, steps=4.0)
    with pytest.raises(InfeasibleActionError, match="allowed: 5 to the task's steps_max"):
        engine.step()


@pytest.mark.parametrize("name", ["random", "reuse-first", "greedy-corrected", "genetic"])
def test_a_task_that_may_have_fewer_steps_than_the_fewest_gets_its_most(scenario, name):
    strict = load_scenario("edge.yaml", ["steps_min=5"])
    environment = build_edge_environment(strict, 0, 0)
    record_K = environment.tasks.record_K.copy()
    record_K["steps_max"][::2] = 1.0
    few = replace(environment, tasks=ImageTasks(record_K=record_K))
    outcome = run_edge_environment(few, make_scheduler(name, "edge"))
    assert (outcome.task_K["steps"][::2] == 1).all()
    assert (outcome.task_K["steps"][1::2] >= 5).all()


def test_a_model_is_reused_by_tasks_of_that_model_alone(scenario):
    one = settle_edge(run_edge_environment(build_edge_environment(scenario, 0, 0), PatientReuse()))
    many = load_scenario("edge.yaml", ["tasks.models={count: 12, exponent: 0}"])
    other = settle_edge(run_edge_environment(build_edge_environment(many, 0, 0), PatientReuse()))
    assert other.reload_rate > one.reload_rate


def test_a_limit_leaves_tasks_unlaunched(scenario):
    short = load_scenario("edge.yaml", ["end=limit", "limit_s=30"])
    outcome = run_edge_environment(build_edge_environment(short, 0, 0), Fifo())
    ledger = settle_edge(outcome)
    assert ledger.unlaunched == ledger.tasks - ledger.images > 0
    assert np.isnan(outcome.response_s_K).sum() == ledger.unlaunched


def test_policies_that_miss_the_quality_are_ranked_last_and_never_proposed(tmp_path):
    """Six steps respond far sooner than 24, and are not what to adopt."""
    setting = load_scenario("edge-inference", ["tasks.count=10", "tasks.first=4", "steps=12"])
    found = compare(setting, [HASTY, "reuse-first", "priced-lookahead"], environments=2, out=tmp_path, bound=False)
    hasty, _, priced = found.records
    assert found.mean(hasty, "response_s").value < found.mean(priced, "response_s").value
    assert found.ranked()[0] == priced
    said = headline(found)
    assert said[0].startswith(f"Adopt {priced}: ")
    told = " ".join(said)
    assert "reuse-first itself does not meet the constraints: mean quality 0.2019 [0.2019, 0.2019], the goal" in told
    assert f"not proposed, as constraints are not met: {hasty} (mean quality 0.14" in told
    assert "10.0 images per environment below the least quality of 0.2)" in told
    assert any(note.startswith("ranked after all others, however soon they respond: ") for note in found.notes)
    missed = {m.name: m.value for m in found.metrics() if m.name.startswith("constraints_missed/")}
    assert list(missed.values()) == [2, 1, 0]


def test_without_goals_the_response_alone_ranks(tmp_path):
    setting = load_scenario("edge-inference", ["tasks.count=10", "tasks.first=4", "quality_goal=0", "quality_min=0"])
    found = compare(setting, [HASTY, "priced-lookahead"], environments=2, out=tmp_path, bound=False)
    assert found.ranked()[0] == next(iter(found.records))
    assert not [note for note in found.notes if "ranked after" in note]


class Hasty(PatientReuse):
    """Six steps for every image."""

    def __init__(self) -> None:
        super().__init__(steps=6.0)


HASTY = Hasty()
