"""Changed environments, and what trade-off curves and sensitivities say of them."""

import dataclasses
import re
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest

from noonward import build_environment, compare, load_scenario, make_scheduler, run, settle
from noonward.data.scenarios.load import scenario_from
from noonward.errors import ScenarioError
from noonward.evaluate.answer import savings
from noonward.evaluate.report.what_if_page import what_if_charts
from noonward.evaluate.statistics import Estimate
from noonward.evaluate.what_if.changes import AS_IT_IS, Change
from noonward.evaluate.what_if.run import _without_slack, sensitivity, trade_off
from noonward.evaluate.what_if.study import Case, Curve, Study
from noonward.evaluate.what_if.words import saves, words
from noonward.runtime.by_kind import environment_digest

POLICY = "booked-persistence"


@pytest.fixture(scope="module")
def tiny():
    return build_environment(load_scenario("tiny"))


def test_no_change_changes_nothing(tiny):
    for change in (Change(), Change(slack_factor=1.0), Change(carbon_usd_per_t=100.0)):
        assert environment_digest(change.applied(tiny)) == environment_digest(tiny)


@pytest.mark.parametrize("change", [Change(slack_h=1.0), Change(slack_factor=0.5)])
def test_slack_is_changed_for_jobs_and_for_those_that_planners_draw(tiny, change):
    changed = change.applied(tiny)
    for before, after in (
        (tiny.jobs, changed.jobs),
        tuple(each.sample_jobs(np.random.default_rng(4)) for each in (tiny, changed)),
    ):
        asked_s = np.full(len(before), 3600.0) if change.slack_h else 0.5 * before.slack_s_J
        np.testing.assert_allclose(after.slack_s_J, np.maximum(asked_s, -before.arrival_s_J % 60.0))
        np.testing.assert_array_equal(after.arrival_s_J, before.arrival_s_J)


def test_without_slack_jobs_start_in_their_first_slot_or_never(tiny):
    outcome = run(Change(slack_factor=0.0).applied(tiny), make_scheduler("local-backfill"))
    start_s, arrival_s = outcome.job_J["start_s"], tiny.jobs.arrival_s_J
    started = np.isfinite(start_s)
    assert started.sum() > 10
    assert (start_s[started] - arrival_s[started] < 60.0).all()


@pytest.mark.parametrize("policy", ["random", "cheapest-feasible", POLICY, "bid-price-regression"])
def test_without_moves_every_job_runs_where_it_arrives(tiny, policy):
    moved = settle(run(tiny, make_scheduler(policy), seed=1))
    stayed = Change(stay=True).applied(tiny)
    outcome = run(stayed, make_scheduler(policy), seed=1)
    ledger = settle(outcome)
    assert moved.moves > 0
    assert ledger.moves == 0
    site_J = outcome.job_J["site"]
    ran = np.isfinite(outcome.job_J["start_s"])
    assert ran.sum() > 15
    assert (site_J[ran] == tiny.jobs.origin_J[ran]).all()


def test_without_moves_a_policy_that_never_moves_does_the_same(tiny):
    ledgers = [settle(run(each, make_scheduler("local-fcfs"))) for each in (tiny, Change(stay=True).applied(tiny))]
    assert ledgers[0].utility_usd == ledgers[1].utility_usd
    assert ledgers[0].energy_usd == ledgers[1].energy_usd


def test_constraints_that_name_classes_are_refused(tiny):
    from noonward.model.limits import Constraints

    held = dataclasses.replace(tiny, constraints=Constraints())
    with pytest.raises(ScenarioError, match="Leave the constraints out"):
        Change(stay=True).applied(held)


def case(name="base", usd=(10.0, 20.0), kg=(5.0, 5.0), gpu_hours=(100.0, 100.0), at=0.0, title="", unfinished=0):
    change = {"base": Change(), "stay": Change(stay=True)}.get(name) or Change(carbon_usd_per_t=float(name))
    records = [
        SimpleNamespace(
            ledger=SimpleNamespace(
                energy_usd=u, move_usd=0.0, result_usd=0.0, carbon_kg=k, gpu_hours=g, unfinished=unfinished
            )
        )
        for u, k, g in zip(usd, kg, gpu_hours, strict=True)
    ]
    return Case(change=change, title=title or f"{name} USD/t", at=at, records=records)


def study(*cases, base=None, reference=None, curve="carbon", name="trade-off"):
    curves = (Curve(name=curve, quantity="carbon price", cases=cases),) if name == "trade-off" else ()
    return Study(
        name=name, scenario=load_scenario("tiny"), seed=0, folder=None, policy="mine", today="theirs",
        base=base or case(), reference=reference or case(usd=(20.0, 40.0), kg=(10.0, 10.0)), curves=curves,
        cases=cases if name == "sensitivity" else (),
    )  # fmt: skip


def test_a_saving_is_against_what_as_many_gpu_hours_cost_today():
    half = case("100", usd=(5.0, 10.0), gpu_hours=(50.0, 50.0))
    found = study(half)
    assert found.saved(half).value == 0.5  # 10 + 20 USD would be due for 50 GPU-hours each; 15 are paid
    assert found.saved(found.base).value == 0.5
    assert found.change_of_saving(half).value == 0.0
    assert found.work(half) == -0.5


def test_intervals_avoid_no_more_than_all_emissions_and_emit_no_less_than_none():
    found = study(case("100", kg=(0.1, 9.0)))
    wide = found.saved(found.curves[0].cases[0], "kg")
    assert wide.low < 0
    assert wide.high == 1.0
    assert found.per_gpu_hour(found.curves[0].cases[0], "kg").low == 0.0
    assert found.saved(found.curves[0].cases[0], "usd").high is not None


def test_a_tonne_avoided_has_the_price_of_the_step():
    clean = case("100", usd=(14.0, 24.0), kg=(3.0, 3.0))
    found = study(case("0"), clean)
    price = found.price_of_step(found.curves[0].cases[0], clean)
    assert price.value == pytest.approx(4.0 / 0.002)
    assert price.low == pytest.approx(price.high)
    assert np.isnan(found.price_of_step(clean, found.curves[0].cases[0]).value)
    assert any("a tonne of CO2 that is avoided costs 2,000 USD" in sentence for sentence in words(found))


def test_a_curve_that_changes_nothing_is_said_to():
    assert any("changes its emissions little" in each for each in words(study(case("0"), case("100"))))


def test_prices_at_which_jobs_are_left_out_are_named_and_kept_out_of_the_words():
    clean = case("100", usd=(14.0, 24.0), kg=(3.0, 3.0))
    gone = case("800", usd=(1.0, 1.0), kg=(0.1, 0.1), gpu_hours=(80.0, 90.0))
    found = words(study(case("0"), clean, gone))
    assert "at 100 USD/t it saves" in found[0]
    assert found[-1] == "At 800 USD/t, mine serves 15% fewer GPU-hours, so this point is left out above."


def test_points_of_both_lines_that_lie_on_each_other_are_named_together():
    fewer = {"gpu_hours": (90.0, 90.0), "usd": (9.0, 18.0), "kg": (4.5, 4.5)}
    ((_, _, svg),) = what_if_charts(study(case("0", **fewer), case("100"), case("200", **fewer)))
    assert "leaves jobs out" in svg
    assert ">0 to 200<" in svg
    assert 'text-anchor="start">100<' not in svg


def test_points_that_leave_jobs_out_come_last_and_without_a_cause():
    few = case("0", usd=(9.0, 19.0), gpu_hours=(98.0, 98.0))
    fewer = case("400", usd=(9.0, 19.0), gpu_hours=(96.0, 96.0))
    found = words(study(few, case("50"), case("100", usd=(11.0, 21.0), kg=(3.0, 3.0)), fewer))
    assert found[0].startswith("At a carbon price of 50 USD/t, mine saves")
    assert found[-1] == (
        "At 0 USD/t and 400 USD/t, mine serves 2 to 4% fewer GPU-hours, so these points are left out above."
    )


def test_a_slack_that_leaves_jobs_out_is_in_no_sentence_about_the_curve(monkeypatch):
    monkeypatch.setattr(Case, "delay_s", property(lambda self: Estimate(60.0)))
    none = case("0", usd=(30.0, 60.0), gpu_hours=(70.0, 70.0), at=0.0, title="0 h")
    some, own = (case(f"{at}", usd=(10.0 - at, 20.0 - at), at=at, title=f"{at:g} h") for at in (1.0, 2.0))
    found = words(study(none, some, own, curve="slack"))
    assert found[0].startswith("With a slack of 1 h, mine saves")
    assert found[-1].startswith("With a slack of 0 h, mine serves 30% fewer GPU-hours")


LITTLE = "More slack gains little here"


@pytest.mark.parametrize(
    ("without", "own", "last"),
    [
        (20.0, 18.0, "What slack gains (6.2 points [-41.4, 53.9]) cannot be told from 2 environments: run more (-n)."),
        (20.0, 20.0, f"{LITTLE}."),
        (10.0, 10.0, f"{LITTLE}: the saving comes from where jobs run, not from when."),
    ],
)
def test_what_slack_gains_is_said_as_surely_as_it_is_known(monkeypatch, without, own, last):
    monkeypatch.setattr(Case, "delay_s", property(lambda self: Estimate(60.0)))
    second = {20.0: 40.0, 18.0: 39.0, 10.0: 20.0}
    none, all_ = (
        case(f"{at}", usd=(usd, second[usd]), at=at, title=f"{at:g} h") for at, usd in ((0.0, without), (2.0, own))
    )
    assert words(study(none, all_, curve="slack"))[-1] == last


def test_what_a_saving_rests_on_comes_first():
    stay = case("stay", usd=(19.0, 38.0), kg=(9.0, 9.0), title="no moves: jobs run where they arrive")
    other = case("50", title="carbon at 50 in place of 100 USD/t")
    found = words(study(stay, other, name="sensitivity"))
    assert "The saving depends most on this: with no moves it saves 5.0% [5.0, 5.0] of the bill." in found
    assert any("It hardly depends on: carbon at 50" in each for each in found)


def test_jobs_that_a_change_makes_late_are_said_where_cost_hardly_changes(monkeypatch):
    late = {AS_IT_IS: 3.0, "slack=0x": 202.0}
    monkeypatch.setattr(Case, "not_in_time", property(lambda self: Estimate(late[self.change.name])))
    stay = case("stay", usd=(19.0, 38.0), kg=(9.0, 9.0), title="no moves: jobs run where they arrive")
    none = dataclasses.replace(case("0", title="no slack: late"), change=Change(slack_factor=0.0))
    found = words(study(stay, none, name="sensitivity"))
    assert "It hardly depends on: no slack (but 202 jobs are then late or not done; as it is: 3)." in found


def test_no_slack_says_what_becomes_of_jobs():
    patient = load_scenario("tiny", ["lateness.rule=wait"])
    assert _without_slack(patient).startswith("a job that does not start at once is late")
    assert _without_slack(load_scenario("tiny")).startswith("jobs start at once")


def test_dearer_is_said_as_dearer():
    assert saves(Estimate(-0.2, -0.3, -0.1)) == "raises the bill by 20% [10, 30]"


@pytest.fixture(scope="module")
def curves():
    return trade_off("tiny", POLICY, environments=2, carbon_prices=(0, 100, 400))


def test_the_scenario_as_it_is_saves_what_a_comparison_says(curves):
    found = compare("tiny", ["local-fcfs", POLICY], environments=2, bound=False)
    base_E, today_E = (found.values(policy, "gpu_hours") for policy in (POLICY, "local-fcfs"))
    mine = {c.change.name: c for c in curves.all_cases}
    np.testing.assert_array_equal(mine["base"].values("gpu_hours"), base_E)
    np.testing.assert_array_equal(curves.reference.values("gpu_hours"), today_E)
    np.testing.assert_allclose(
        curves.reference.bills_E - mine["base"].bills_E, [savings(found, POLICY).usd.value] * 2, rtol=2
    )
    same = [mine[name] for name in ("carbon=100", "slack=1x")]
    for each in same:  # both are the scenario as it is, under another name
        np.testing.assert_array_equal(each.bills_E, mine["base"].bills_E)


def test_windows_and_jobs_are_the_same_in_every_case(curves):
    starts = {tuple(r.manifest["start"] for r in each.records) for each in (*curves.all_cases, curves.reference)}
    counts = {tuple(r.ledger.jobs for r in each.records) for each in (*curves.all_cases, curves.reference)}
    assert len(starts) == len(counts) == 1


def test_the_page_says_draws_and_folds(curves, tmp_path):
    html = curves.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 2
    assert "<script" not in html
    assert len(html) < 60_000
    first = re.search(r"<h1>(.*?)</h1>", html, re.DOTALL)[1].replace("&nbsp;", " ")
    assert first == f"What {POLICY} trades: cost, carbon and delay"
    assert f"<p class='lead'>{curves.words()[0]}</p>" in html.replace("&nbsp;", " ")


def test_frames_have_a_row_a_case_and_environment(curves):
    frame = curves.to_frame()
    assert frame.height == 2 * len(curves.all_cases)
    assert set(frame["case"]) >= {"base", "carbon=0", "slack=0.25x"}


def test_a_sensitivity_changes_one_thing_at_a_time(tmp_path):
    found = sensitivity("tiny", POLICY, environments=1, out=tmp_path)
    assert [each.change.name for each in found.cases] == [
        "slack=0x", "slack=0.5x", "stay", "carbon=0", "carbon=200",
        "freedom=suspend", "freedom=resize", "freedom=cap", "freedom=move",
    ]  # fmt: skip
    assert found.report(tmp_path / "s.html").read_text().count("<svg") == 1
    assert "One environment gives no interval" in found.words()[-1]


@pytest.mark.parametrize("lever", ["suspend", "resize", "cap", "move"])
def test_jobs_of_all_classes_have_the_freedom_and_keep_what_they_state(lever):
    freedoms = "fleet.freedoms={fine-tuning: {min_run_s: 900, interruptible: true}}"
    stated = build_environment(load_scenario("tiny", [freedoms]))
    freed = Change(freedom=lever).applied(stated)
    free = freed.fleet.freedoms["fine-tuning"]
    assert (free.interruptible, free.min_run_s) == (True, 900)
    assert (free.elastic is not None, free.cap_curve is not None) == (lever == "resize", lever == "cap")
    assert free.moves == (lever == "move")
    assert environment_digest(dataclasses.replace(freed, fleet=stated.fleet)) == environment_digest(stated)


def test_jobs_that_stay_keep_their_freedoms():
    """Without moves every ingress point has classes of its own, each with what its class allows."""
    stated = build_environment(load_scenario("training-days", ["fleet.freedoms.tune-8.preempts=[train-128]"]))
    fleet = Change(stay=True).applied(stated).fleet
    points = [point.name for point in fleet.ingress_points]
    assert set(fleet.freedoms) == {f"{name}@{point}" for name in stated.fleet.classes for point in points}
    for point in points:
        free, before = fleet.freedoms[f"tune-8@{point}"], stated.fleet.freedoms["tune-8"]
        assert (free.interruptible, free.elastic, free.caps) == (True, before.elastic, before.caps)
        assert free.preempts == tuple(f"train-128@{each}" for each in points)


def test_what_a_freedom_is_worth_is_held_against_the_same_policy_without_it(tmp_path):
    """A rule that suspends jobs is held against itself where they may not be suspended."""
    settings = ["jobs.slack_ratio=8", "window_h=24", "jobs.count=30"]
    found = sensitivity(load_scenario("tiny", settings), "cheapest-feasible", environments=2, out=tmp_path)
    cases = {case.change.name: case for case in found.cases}
    suspended = cases["freedom=suspend"]
    assert all(record.ledger.interruptions.suspensions > 0 for record in suspended.records)
    assert [record.ledger.interruptions for record in suspended.without.records] == [None, None]
    by_hand = found.saved(suspended).value - found.saved(suspended.without).value
    assert found.change_of_saving(suspended).value == pytest.approx(by_hand, abs=0.1)
    assert cases["carbon=0"].without is None
    assert "jobs could be suspended, suspend-threshold " in " ".join(found.words())


def test_where_nobody_is_asked_about_running_jobs_they_have_no_freedom():
    with pytest.raises(ScenarioError, match="cannot be changed: its protocol is on-arrival"):
        Change(freedom="cap").applied(build_environment(load_scenario("tiny", ["protocol=on-arrival"])))


@pytest.mark.parametrize(
    ("scenario", "told", "says"),
    [
        ("dvfs-training", {}, "no prices with a carbon price"),
        ("edge-inference", {}, "no prices with a carbon price"),
        ("tiny", {"policy": "local-fcfs"}, "would be compared with itself"),
        ("tiny", {"carbon_prices": (100,)}, "give at least two"),
        ("tiny", {"carbon_prices": (0, -5)}, "give numbers of at least 0"),
        ("tiny", {"slacks_h": (1, 1)}, "give at least two, each once"),
        ("tiny", {"environments": 0}, "ask for at least 1"),
    ],
)
def test_what_cannot_be_studied_is_refused(scenario, told, says):
    with pytest.raises(ScenarioError, match=says):
        trade_off(scenario, **told)


def with_one_slack(slack_h, tmp_path, hours=96):
    """The scenario tiny with a table of jobs of one slack, on files of signals."""
    from noonward.data.signals.generate import generate_signals
    from noonward.data.signals.load import write_generated_signals

    start = datetime(2022, 5, 1, tzinfo=UTC)
    write_generated_signals(
        generate_signals(("CA-ON", "SG"), start, hours, np.random.default_rng(0)), tmp_path / "s.csv"
    )
    rows = [f"2022-05-02T{n % 12:02d}:07:00Z,{('north', 'south')[n % 2]},2,3600" for n in range(24)]
    (tmp_path / "j.csv").write_text("submit_time,origin,gpus,duration_s\n" + "\n".join(rows) + "\n")
    content = load_scenario("tiny").model_dump(mode="json")
    content |= {"jobs": {"source": "table", "path": str(tmp_path / "j.csv"), "slack_h": slack_h}, "start": "2022-05-02"}
    return scenario_from(content | {"signals": {"source": "files", "paths": [str(tmp_path / "s.csv")]}})


@pytest.mark.parametrize(
    ("own_h", "hours", "slacks"), [(6.0, 96, [0, 1, 3, 6]), (2.5, 96, [0, 1, 2.5]), (0.0, 96, [0, 1, 3, 6, 12, 24, 48]),
                                   (0.0, 60, [0, 1, 3, 6, 12])]
)  # fmt: skip
def test_slacks_reach_up_to_the_jobs_own_or_as_far_as_the_signals(own_h, hours, slacks, tmp_path):
    scenario = with_one_slack(own_h, tmp_path, hours)
    found = trade_off(scenario, "cheapest-feasible", environments=1, carbon_prices=(0, 9))
    assert [each.at for each in found.curves[1].cases] == slacks


def test_twice_the_slack_is_tried_where_files_reach(tmp_path):
    for hours, there in ((96, True), (36 + 8, False)):
        found = sensitivity(with_one_slack(6.0, tmp_path, hours), "cheapest-feasible", environments=1)
        assert ("slack=2x" in [each.change.name for each in found.cases]) == there
        assert any("left out: twice the slack" in note for note in found.notes) != there


def metered(behind=None, **tariff):
    """The scenario tiny with a meter at its first site."""
    content = load_scenario("tiny").model_dump(mode="json")
    content["fleet"]["tariffs"] = {"t": {"demand": [{"usd_per_kw_month": 900, "interval_min": 30}], **tariff}}
    content["fleet"]["sites"][0]["meter"] = {
        "tariff": "t", "interval_min": 30, "connection_kw": 0.5, "over_connection_usd_per_kwh": 2.0,
    }  # fmt: skip
    content["fleet"]["sites"][0]["behind_meter"] = behind
    return scenario_from(content)


def test_what_is_at_the_meters_is_changed_as_if_it_had_never_been_there():
    battery = {"battery": {"kw": 0.2, "kwh": 0.8}}
    with_it = build_environment(metered(battery))
    cases = [
        (Change(without="battery"), metered({"battery": None})),
        (Change(without="peaks"), metered(battery, demand=[])),
    ]
    for change, other in cases:
        mine, its = (
            settle(run(each, make_scheduler("local-fcfs")))
            for each in (change.applied(with_it), build_environment(other))
        )
        assert mine.total_usd == pytest.approx(its.total_usd)
        assert mine.total_usd != pytest.approx(settle(run(with_it, make_scheduler("local-fcfs"))).total_usd)
    narrow = Change(connection_factor=0.8).applied(with_it)
    assert narrow.fleet.sites[0].meter.connection_kw == pytest.approx(0.4)
    assert Change(without="solar").of_meters(with_it.fleet) == with_it.fleet


def test_a_sensitivity_says_what_meters_change():
    found = sensitivity(metered({"battery": {"kw": 0.2, "kwh": 0.8}}), POLICY, environments=1)
    names = [case.change.name for case in found.cases]
    at = names.index("battery=none")
    assert names[at : at + 3] == ["battery=none", "peaks=none", "connection=0.8x"]
    base, bare, cheap, narrow = (found.base, *found.cases[at : at + 3])
    assert bare.bills_E[0] > base.bills_E[0] > cheap.bills_E[0]
    assert narrow.bills_E[0] > base.bills_E[0]
