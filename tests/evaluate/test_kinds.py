"""A kind of scenarios is one registration: a toy kind is loaded, checked, run, compared, bounded and reported."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import plotly.graph_objects as go
import pytest

from command_line import CommandLine
from noonward.data.scenarios.load import load_scenario
from noonward.errors import DataError, ScenarioError
from noonward.evaluate.compare import compare
from noonward.evaluate.comparison import Bound, BoundValue, Objective, summary_rows
from noonward.evaluate.metrics import Metric
from noonward.evaluate.report.page import write_report
from noonward.evaluate.table import Column, Figure, Row, number, percent
from noonward.ledger.machine import machine, versions
from noonward.model.kinds import Kind, add_kind, find_kind, kinds
from noonward.model.spec import Count, Spec
from noonward.runtime import by_kind
from noonward.schedule.policies import register


class DiceScenario(Spec):
    """Dice that policies keep or throw again; few points are good."""

    kind: Literal["dice"]
    name: str
    description: str = "Dice."
    rolls: Count = 20
    baseline: str | None = None
    policies: tuple[str, ...] = ("keep", "throw-again")

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.name} {self.rolls}".encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Dice:
    """First and second throws."""

    kind: ClassVar[str] = "dice"
    setting: DiceScenario
    index: int
    points_R2: Any
    notes: tuple[str, ...] = ("dice are fair",)


@dataclasses.dataclass(frozen=True)
class Thrown:
    """Points of every roll."""

    environment: Dice
    points_R: Any


@dataclasses.dataclass(frozen=True)
class DiceLedger:
    """Mean points."""

    mean_points: float

    def as_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class DiceRecord:
    """A run read back."""

    folder: Path
    manifest: dict[str, Any]
    ledger: DiceLedger


class Keep:
    """Keeps every first throw."""

    most = 6


class ThrowAgain(Keep):
    """Throws fives and sixes again."""

    most = 4


def build_dice(scenario, index, seed):
    return Dice(scenario, index, np.random.default_rng([seed, index]).integers(1, 7, (scenario.rolls, 2)))


def check_dice(environment, scheduler, name):
    if not isinstance(scheduler, Keep):
        raise ScenarioError(f"scheduler {name} throws no dice; choose another policy")


def throw(environment, scheduler, *, seed=0):
    first_R, second_R = environment.points_R2.T
    return Thrown(environment, np.where(first_R <= scheduler.most, first_R, second_R))


def settle_dice(outcome):
    return DiceLedger(float(outcome.points_R.mean()))


def digest_dice(environment):
    return hashlib.sha256(environment.points_R2.tobytes()).hexdigest()[:16]


def dice_files(outcome, *, policy, seed, scenario_digest, code=None, notes=()):
    manifest = {
        "kind": "dice",
        "environment_digest": digest_dice(outcome.environment),
        "scenario_digest": scenario_digest,
        "policy": policy,
        "policy_seed": seed,
        "notes": [*outcome.environment.notes, *notes],
        "versions": {**versions(), "code": code},
        "machine": machine(),
    }
    files = {"manifest.json": manifest, "ledger.json": settle_dice(outcome).as_dict()}
    return {name: json.dumps(content).encode() for name, content in files.items()}


def read_dice(folder):
    try:
        manifest, ledger = (json.loads((folder / name).read_text()) for name in ("manifest.json", "ledger.json"))
    except OSError as error:
        raise DataError(f"{folder} is no record: {error}") from error
    return DiceRecord(folder, manifest, DiceLedger(**ledger))


class FewPoints(Objective):
    """Mean points, the fewer the better."""

    value = "mean_points"
    better = "down"
    bound_value = "least_points"
    bound_values = (BoundValue(name="least_points", metric="mean_points/bound", unit="points"),)
    bound_condition = "every scenario of dice has one"

    def compute_bound(self, environment):
        return Bound(least_points=float(environment.points_R2.min(axis=1).mean()))

    def describe_bound(self, bound):
        return f"at least {bound['least_points']:.2f} points"

    def columns(self, comparison):
        return (
            (Column("Points", "points", "down"), lambda c, p: number(c.mean(p, "mean_points"), 2)),
            (Column("Share of the gap", "%", "up"), lambda c, p: percent(c.improvement_share(p))),
        )

    def bound_rows(self, comparison):
        return [Row(name="least points", cells=("", "100.0"), kind="bound")]

    def metrics(self, comparison):
        policies = comparison.records
        return [Metric.of(f"mean_points/{p}", comparison.mean(p, "mean_points"), "points") for p in policies]

    def facts(self, comparison):
        return [("Rolls", str(comparison.scenario.rolls))]

    def name_environment(self, comparison, record):
        return "a handful of dice"

    def figures(self, comparison):
        return [Figure(name="points", title="Points thrown", caption="Fewer is better.", plot=go.Figure())]


@pytest.fixture
def dice(own_registry, tmp_path, monkeypatch):
    """The kind, two policies of it, and a scenario file."""
    add_kind(
        Kind(
            name="dice",
            scenario=DiceScenario,
            with_files=lambda scenario, signals, jobs: scenario.model_dump(mode="json"),
            environment=build_dice,
            check_fit=check_dice,
            remarks=lambda environment, scheduler: (),
            run=throw,
            settle=settle_dice,
            digest=digest_dice,
            record_files=dice_files,
            read_record=read_dice,
            describe=lambda environment: f"{len(environment.points_R2)} rolls",
            objective=lambda scenario: FewPoints(),
        )
    )
    register("keep", Keep, kind="dice")
    register("throw-again", ThrowAgain, kind="dice")
    monkeypatch.chdir(tmp_path)
    Path("dice.yaml").write_text("kind: dice\nname: some-dice\nrolls: 30\n", encoding="utf-8")
    yield load_scenario("dice.yaml")
    del kinds()["dice"]


def test_a_file_of_the_kind_is_loaded_by_its_own_model(dice):
    assert isinstance(dice, DiceScenario)
    assert load_scenario("dice.yaml", ["rolls=7"]).rolls == 7
    with pytest.raises(ScenarioError, match="rols: unknown key; did you mean 'rolls'"):
        load_scenario("dice.yaml", ["rols=7"])


def test_an_unknown_kind_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("kind: cluser\nname: x\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"x\.yaml: kind: unknown kind .* 'cluser'; did you mean 'cluster'"):
        load_scenario(tmp_path / "x.yaml")
    with pytest.raises(ValueError, match="named 'cluster' is there already"):
        add_kind(find_kind("cluster"))


def test_it_is_built_run_and_settled_by_kind(dice):
    environment = by_kind.build_environment(dice, 1, 5)
    outcome = by_kind.run(environment, ThrowAgain())
    assert by_kind.settle(outcome).mean_points == outcome.points_R.mean()
    assert outcome.points_R.mean() != by_kind.run(environment, Keep()).points_R.mean()
    assert len(list(by_kind.build_environments(dice, 3))) == 3


def test_it_is_compared_ranked_bounded_and_reported(dice, tmp_path):
    found = compare(dice, environments=4, out=tmp_path / "runs")
    assert found.ranked() == ["throw-again", "keep"]
    assert found.paired
    own, base = found.values("throw-again", "mean_points"), found.values("keep", "mean_points")
    least = found.bound_values("least_points")
    assert (least <= own).all()
    assert found.gain("throw-again").value == pytest.approx((own - base).sum() / base.sum())
    assert found.improvement_share("throw-again").value == pytest.approx((base - own).sum() / (base - least).sum())
    assert [row.name for row in summary_rows(found).rows] == ["least points", "throw-again", "keep"]
    assert [metric.name for metric in found.metrics()] == ["mean_points/keep", "mean_points/throw-again"]
    text = write_report(found, tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("Points thrown", "a handful of dice", "<dt>Rolls</dt><dd>30</dd>", "dice are fair", "Throws fives"):
        assert words in text
    again = compare(dice, environments=4, out=tmp_path / "runs")
    assert again.values("keep", "mean_points").tolist() == base.tolist()


def test_every_command_takes_it(dice, monkeypatch, capsys):
    noonward = CommandLine(monkeypatch, capsys)
    assert "30 rolls" in noonward("scenario", "check", "dice.yaml").out
    assert "rolls" in json.loads(noonward("scenario", "schema", "--kind", "dice").out)["properties"]
    assert "mean_points" in noonward("simulate", "dice.yaml", "--policy", "keep").out
    assert "mean mean_points/bound" in noonward("bound", "dice.yaml", "-n", 2).out
    answer = noonward("compare", "dice.yaml", "-n", 2)
    assert "throw-again" in answer.out
    assert next(Path("runs").rglob("report-*.html")).exists()


def test_policies_of_another_kind_are_refused(dice):
    with pytest.raises(ScenarioError, match="'random' runs in scenarios of kind cluster, but this one is of kind dice"):
        compare(dice, ["keep", "random"], environments=1)
    with pytest.raises(ScenarioError, match="'keep' runs in scenarios of kind dice, but this one is of kind cluster"):
        compare(load_scenario("tiny"), ["keep"], environments=1)


@pytest.mark.parametrize("command", [("capacity-plan", "dice.yaml"), ("data", "generate", "dice.yaml", "--out", "x")])
def test_commands_for_clusters_alone_say_so(dice, monkeypatch, capsys, command):
    answer = CommandLine(monkeypatch, capsys)(*command)
    assert answer.code == 2
    assert "takes scenarios of kind cluster; 'some-dice' is of kind dice" in answer.err
