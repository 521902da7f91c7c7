"""``noonward bound`` where no schedule is looked for: what is said, and that nothing undefined is printed."""

import json

import pytest

from command_line import CommandLine
from noonward.bound.cluster_utility.nonclairvoyant import NonclairvoyantBound
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


def test_policies_stand_beside_the_bounds_of_freedoms_at_each_value(noonward: CommandLine) -> None:
    policies = ("--policies", "patient,suspend-threshold")
    asked = ("bound", "tiny", *FREE, "-n", 2, "--workers", 1, "--freedom", "suspend", *policies)
    many = (*asked, "--each", "jobs.demand=0.3,0.6")
    figures = {each["name"]: each for each in json.loads(noonward(*many, "--json").out)["figures"]}
    for setting in ("jobs.demand=0.3", "jobs.demand=0.6"):
        own = json.loads(noonward(*asked, "--set", setting, "--json").out)["figures"]
        assert [{**each, "name": f"{each['name']}@{setting}"} for each in own] == [
            figures[f"{each['name']}@{setting}"] for each in own
        ]
        patient, suspends = (figures[f"utility_usd/{name}@{setting}"] for name in ("patient", "suspend-threshold"))
        assert figures[f"worth_usd/suspend-threshold@{setting}"]["value"] == pytest.approx(
            suspends["value"] - patient["value"]
        )
        assert max(patient["value"], suspends["value"]) <= figures[f"utility_usd/bound@suspend@{setting}"]["value"]
    compared = ("compare", "tiny", *FREE, "-n", 2, "--workers", 1, "--no-bound", *policies, "--set", "jobs.demand=0.6")
    known = {each["name"]: each for each in json.loads(noonward(*compared, "--json").out)["figures"]}
    for name in ("patient", "suspend-threshold"):
        assert known[f"utility_usd/{name}"]["value"] == figures[f"utility_usd/{name}@jobs.demand=0.6"]["value"]
    text = " ".join(noonward(*many).out.split())
    assert "tiny with jobs.demand=0.3: what freedoms of jobs are worth, 2 environments" in text
    assert "jobs.demand=0.6: what policies make of it" in text


def test_freedoms_that_cannot_be_bounded_are_refused_with_a_reason(noonward: CommandLine) -> None:
    for asked, said in (
        (("tiny", "--freedom", "suspend"), "the fleet states none; state it, for example with --set"),
        (("tiny", "--freedom", "suspnd"), "unknown freedom 'suspnd'; did you mean 'suspend'"),
        (("tiny", *FREE, "--freedom", "caps", "--non-clairvoyant"), "leave out --non-clairvoyant"),
        (("tiny", *FREE, "--freedom", "caps", "--bound-seconds", 9), "--freedom takes no --bound-seconds"),
        (("tiny", *FREE, "--freedom", "caps", "--each", "jobs.demand"), "--each 'jobs.demand' is no KEY=VALUE,VALUE"),
        (("tiny", "--policies", "patient"), "--each and --policies go with --freedom"),
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
