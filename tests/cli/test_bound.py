"""``noonward bound`` where no schedule is looked for: what is said, and that nothing undefined is printed."""

import json

import pytest

from command_line import CommandLine
from noonward.bound.cluster_utility.nonclairvoyant import NonclairvoyantBound
from noonward.errors import ScenarioError
from noonward.evaluate.nonclairvoyant import NonclairvoyantRun


def test_a_bound_without_a_schedule_prints_no_nan(noonward: CommandLine) -> None:
    """Jobs of load-shaping differ in class, for which no schedule is looked for."""
    asked = ("bound", "load-shaping", "--set", "window_h=24", "-n", 1, "--workers", 1)
    for more in ((), ("--json",)):
        answer = noonward(*asked, *more)
        assert answer.code == 0, answer.err
        assert "nan" not in answer.out.lower()
    assert "no schedule was looked for, so its optimality gap is not known" in noonward(*asked).out


def test_a_mean_over_few_environments_is_refused_as_a_bound(noonward: CommandLine) -> None:
    answer = noonward("bound", "fine-tuning", "--non-clairvoyant", "-n", 3)
    assert answer.code == 2
    assert "--non-clairvoyant with 3 environments" in answer.err
    assert "give at least 10 (-n 10)" in answer.err


FREE = ("--set", "fleet.freedoms.fine-tuning={interruptible: true, caps: zeus-v100-bert}")


def test_the_table_of_freedoms_shows_every_name_asked_for_in_order(noonward: CommandLine) -> None:
    asked = ("bound", "tiny", *FREE, "-n", 2, "--workers", 1, "--freedom", "caps,suspend")
    answer = noonward(*asked)
    assert answer.code == 0, answer.err
    assert "tiny: what freedoms of jobs are worth, 2 environments, seed 0" in " ".join(answer.out.split())
    rows = [line.strip("│| ").split() for line in answer.out.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("none", "suspend", "caps")] == ["none", "suspend", "caps"]
    figures = {each["name"]: each for each in json.loads(noonward(*asked, "--json").out)["figures"]}
    for name in ("suspend", "caps"):
        upper, known = (figures[f"utility_usd/{kind}@{name}"]["value"] for kind in ("bound", "best-known"))
        assert figures["utility_usd/bound@none"]["value"] <= upper + 1e-9
        assert figures["utility_usd/best-known@none"]["value"] <= known + 1e-9 <= upper + 2e-9
        most = upper - figures["utility_usd/best-known@none"]["value"]
        assert abs(figures[f"worth_usd/most@{name}"]["value"] - most) < 1e-9


POLICIES = ("patient", "suspend-threshold", "cap-threshold")
ONLY = {
    "none": "{}",
    "suspend": "{fine-tuning: {interruptible: true}}",
    "caps": "{fine-tuning: {caps: zeus-v100-bert}}",
}


def figures_of(answer) -> dict:
    """Figures of a command by their names."""
    assert answer.code == 0, answer.err
    return {each["name"]: each for each in json.loads(answer.out)["figures"]}


def test_the_value_of_freedoms_equals_what_bound_and_compare_say_of_each_fleet(noonward: CommandLine) -> None:
    few = ("-n", 2, "--workers", 1, "--json")
    asked = ("bound", "tiny", *FREE, *few, "--freedom", "suspend,caps")
    found = figures_of(noonward(*asked, "--policies", ",".join(POLICIES), "--loads", "30%,60%"))
    for load, setting in (("load=30%", "jobs.demand=0.3"), ("load=60%", "jobs.demand=0.6")):
        bounds = figures_of(noonward(*asked, "--set", setting))
        assert bounds == {name: {**found[f"{name}@{load}"], "name": name} for name in bounds}
        value, base = {}, found[f"utility_usd/patient@none@{load}"]["value"]
        for name, freedoms in ONLY.items():
            compared = ("compare", "tiny", "--set", f"fleet.freedoms={freedoms}", "--set", setting, *few, "--no-bound")
            known = figures_of(noonward(*compared, "--policies", ",".join(POLICIES)))
            upper = found[f"utility_usd/bound@{name}@{load}"]["value"]
            for policy in POLICIES:
                value[policy, name] = known[f"utility_usd/{policy}"]["value"]
                assert found[f"utility_usd/{policy}@{name}@{load}"] == {
                    **known[f"utility_usd/{policy}"],
                    "name": f"utility_usd/{policy}@{name}@{load}",
                }
                assert value[policy, name] <= upper + 1e-9
                share = found[f"improvement_share/{policy}@{name}@{load}"]["value"]
                assert share == pytest.approx((value[policy, name] - base) / (upper - base))
                if name != "none":
                    worth = found[f"worth_usd/{policy}@{name}@{load}"]["value"]
                    assert worth == pytest.approx(value[policy, name] - value[policy, "none"])
        assert value["suspend-threshold", "suspend"] != value["suspend-threshold", "none"]
        assert value["suspend-threshold", "caps"] == value["suspend-threshold", "none"]
        assert value["cap-threshold", "caps"] != value["cap-threshold", "none"]
        assert found[f"demand_share@{load}"]["value"] == pytest.approx(float(setting[-3:]), abs=0.02)


def test_what_was_run_and_bounded_is_read_back(noonward: CommandLine, monkeypatch) -> None:
    asked = ("bound", "tiny", *FREE, "--freedom", "all", "--policies", ",".join(POLICIES), "--workers", 1, "--json")
    first = noonward(*asked, "-n", 2)

    def forbidden(*args, **more):
        raise ScenarioError("computed again")

    monkeypatch.setattr("noonward.evaluate.freedoms.freedom_bounds", forbidden)
    monkeypatch.setattr("noonward.runtime.runs.run", forbidden)
    assert noonward(*asked, "-n", 2).out == first.out
    for more in (("-n", 3), ("-n", 2, "--set", "jobs.demand=0.4")):
        assert "computed again" in noonward(*asked, *more).err


def test_the_value_of_freedoms_is_printed_at_each_value_of_a_key(noonward: CommandLine) -> None:
    asked = ("bound", "tiny", *FREE, "-n", 1, "--workers", 1, "--freedom", "suspend", "--policies", "patient")
    text = " ".join(noonward(*asked, "--each", "jobs.slack_ratio=0.3,0.6").out.split())
    for value in ("0.3", "0.6"):
        assert f"tiny with jobs.slack_ratio={value}: value of freedoms, 1 environment, seed 0" in text
    assert "from patient without freedoms up to the bound with the freedom" in text
    assert "records: runs" in text


def test_freedoms_that_cannot_be_bounded_are_refused_with_a_reason(noonward: CommandLine) -> None:
    for asked, said in (
        (("tiny", "--freedom", "suspend"), "the fleet states none; state it, for example with --set"),
        (("tiny", "--freedom", "suspnd"), "unknown freedom 'suspnd'; did you mean 'suspend'"),
        (("tiny", *FREE, "--freedom", "caps", "--non-clairvoyant"), "leave out --non-clairvoyant"),
        (("tiny", *FREE, "--freedom", "caps", "--bound-seconds", 9), "--freedom takes no --bound-seconds"),
        (("tiny", *FREE, "--freedom", "caps", "--each", "jobs.demand"), "--each 'jobs.demand' is no KEY=VALUE,VALUE"),
        (("tiny", "--policies", "patient", "--loads", "50%"), "--loads, --policies only with --freedom"),
        (("tiny", *FREE, "--freedom", "caps", "--loads", "50%", "--each", "jobs.count=9"), "leave one of them out"),
        (("tiny", *FREE, "--freedom", "caps", "--loads", "50%,much"), "--loads 'much' is no load"),
        (("tiny", *FREE, "--freedom", "caps", "--loads", "0"), "--loads '0' is no load"),
        (("tiny", *FREE, "--freedom", "caps", "--loads", ","), "--loads ',' names no load"),
        (("tiny", *FREE, "--freedom", "caps", "--policies", "patent"), "did you mean 'patient'"),
        (("tiny", "--freedom", "caps", "--policies", "patient"), "the fleet states none"),
        (("edge-inference", "--freedom", "caps"), "--freedom is for scenarios of kind cluster"),
        (("dvfs-training", "--freedom", "caps"), "has no economics"),
    ):
        answer = noonward("bound", *asked, "-n", 1)
        assert answer.code == 2
        assert said in " ".join(answer.err.split())


def test_a_mean_over_enough_environments_is_printed_with_its_interval(noonward: CommandLine, monkeypatch) -> None:
    def drawn(self):
        return NonclairvoyantBound(penalised_usd=100.0 + self.index, clairvoyant_usd=120.0 + 2 * self.index)

    monkeypatch.setattr(NonclairvoyantRun, "run", drawn)
    answer = noonward("bound", "fine-tuning", "--non-clairvoyant", "-n", 10, "--workers", 1)
    assert answer.code == 0, answer.err
    assert "mean nonclairvoyant_bound_usd: 104.50 [102.33, 106.67] USD" in answer.out
    assert "in which a policy may earn more" in answer.out
