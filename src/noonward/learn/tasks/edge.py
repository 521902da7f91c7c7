"""Training in edge scenarios: draws over servers and arrival rates, observation, reward, and advice."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from noonward.arrays import F8, I8
from noonward.data.edge.environments import build_edge_environment
from noonward.data.scenarios.load import load_scenario
from noonward.data.splits import split_seed
from noonward.decision.edge.observation import TOKEN, EdgeObservation
from noonward.engine.edge.batch import EdgeBatch
from noonward.engine.edge.engine import run_edge_environment
from noonward.errors import ScenarioError
from noonward.learn.core.experience import ActionSpec, Tokens
from noonward.learn.core.settings import at_least, between, one_of
from noonward.learn.tasks.edge_advice import Room, advise_rows, make_room
from noonward.learn.tasks.source import Source
from noonward.learn.tasks.task import Task
from noonward.ledger.edge import settle_edge
from noonward.model.edge.environment import EdgeEnvironment
from noonward.model.edge.quality import steps_for, steps_least
from noonward.model.edge.scenario import EdgeScenario
from noonward.schedule.edge.trained_policy import EdgePolicy, write_policy
from noonward.seeding import stream

RATES_PER_S: Final = {
    4: (0.01, 0.03, 0.05, 0.07, 0.09),
    8: (0.06, 0.08, 0.10, 0.12, 0.14),
    12: (0.11, 0.13, 0.15, 0.17, 0.19),
}
"""Arrival rates of the paper by number of servers (EAT, Tables IX to XI)."""
SIZES: Final = {4: (1, 2, 4), 8: (1, 2, 4, 8), 12: (1, 2, 4, 8)}
"""Gang sizes by number of servers."""
PRICES_S: Final = (20.0, 1000.0)
"""Least and highest price of quality that are tried when a policy is exported, s per unit."""
FIRST_S: Final = 120.0
"""The price that is tried first where a step of a gang of one takes ``FIRST_STEP_S``; it grows with that time."""
FIRST_STEP_S: Final = 0.315
ROUNDS: Final = (20, 30, 50)
"""Training episodes of the rounds in which a scenario's price is sought."""
SLOPES: Final = (0.02, 0.05, 0.09)
"""Least, first and highest slope of the mean quality over the logarithm of the price; 0.089 is that of the quality
over the logarithm of the steps."""
MARGIN: Final = 0.004
"""Mean quality above the target that is aimed for: three standard errors of the mean of 40 episodes, so that the means
of some dozens of scenarios rarely lie below the target; about the quality of 24 steps."""
ACTOR_LOSSES: Final = ("hindsight_loss", "soft_loss", "actor_loss", "imitation_loss")
"""Names of an actor's losses in the curves of a run; the first that an epoch has is its loss in the paper's figure."""
Advice = Literal["none", "patient", "lookahead"]


@dataclass(frozen=True, kw_only=True)
class EdgeTask:
    """What is trained in: edge scenarios, and what a scheduler is shown and earns there.

    Attributes:
        sources: Where environments come from, in turn.
        cells: ``paper``: every source with the paper's fifteen pairs of servers and arrival rate in turn; ``own``: as
            the source says.
        servers_shown: Server tokens of the observation (``EdgeObservation``).
        steps_low: Least inference steps of a launch.
        steps_high: Most.
        target: Mean quality that images are to have.
        price_low_s: Least price of quality in training, s per unit. Each environment has a price of its own between the
            two, even in its logarithm, which the observation shows.
        price_high_s: Highest.
        reward: ``priced`` (``EdgeBatch``) or ``published`` (the public simulator's).
        advice: What the learner is told of its choices in training (``edge_advice``): nothing, or their costs by the
            tasks known now and in hindsight, played on with patient reuse or with the known-queue lookahead.
        replayed: Every run is the first draw, as the public simulator trains.
    """

    sources: tuple[Source, ...]
    kind: str = "edge"
    cells: Literal["paper", "own"] = "paper"
    servers_shown: int = 12
    steps_low: int = 5
    steps_high: int = 30
    target: float = 0.26
    price_low_s: float = 60.0
    price_high_s: float = 600.0
    reward: Literal["priced", "published"] = "priced"
    advice: Advice = "patient"
    replayed: bool = False

    def __post_init__(self) -> None:
        if not self.sources:
            raise ScenarioError("no source of environments; name a scenario")
        one_of(self, "kind", ("edge",))
        one_of(self, "cells", ("paper", "own"))
        one_of(self, "reward", ("priced", "published"))
        one_of(self, "advice", ("none", "patient", "lookahead"))
        at_least(self, 1, "servers_shown", "steps_low")
        between(self, 0.0, 0.28, "target")
        at_least(self, 1e-3, "price_low_s")
        if self.steps_high < self.steps_low:
            raise ScenarioError(f"steps_high is {self.steps_high}, below steps_low {self.steps_low}")
        if not self.price_low_s <= self.price_high_s < math.inf:
            raise ScenarioError(
                f"price_high_s is {self.price_high_s}; it must be at least price_low_s, {self.price_low_s}"
            )

    @property
    def steps(self) -> tuple[float, ...]:
        """Steps of the levels, one a whole number."""
        return tuple(float(each) for each in range(self.steps_low, self.steps_high + 1))

    def price_of(self, environment: EdgeEnvironment) -> float:
        """Returns the price of quality in an environment, s per unit."""
        tasks = environment.setting.tasks
        where = f"{environment.setting.servers.count} {getattr(tasks, 'rate_per_s', 0.0)} {environment.index}"
        share = stream(environment.seed, "learner", "price", where).random()
        return float(self.price_low_s * (self.price_high_s / self.price_low_s) ** share)

    def open(self, seed: int) -> Task:
        """Returns the task.

        Args:
            seed: Number of the draw of training environments.

        Raises:
            ScenarioError: Scenarios do not fit.
        """
        scenarios = [each for source in self.sources for each in self._cells(source)]
        validated = [each for source in self.sources for each in self._cells(source)]
        training = EdgeDraws(scenarios, split_seed("train", seed), replayed=self.replayed)
        validation = EdgeDraws(validated, split_seed("validation", 0))
        first = scenarios[0]
        observation = EdgeObservation(servers=self.servers_shown, places=first.visible)

        def engine(environments: Sequence[EdgeEnvironment], seeds: Sequence[int]) -> EdgeBatch:
            return AdvisedBatch(self, environments, seeds)

        return Task(
            training=training,
            validation=validation,
            engine=engine,
            actions=ActionSpec.of(place=1 + first.visible, level=len(self.steps)),
            figures={name: functools.partial(_total, name) for name in ("response_s", "quality", "loaded", "launched")},
            slot_s=1.0,
            tokens=Tokens((1, observation.servers, observation.places), TOKEN),
            advised=self.advice != "none",
            reward_name="validation_reward",
            about={
                "kind": "edge",
                "scenario": Path(self.sources[0].scenario).stem,
                "observation": {"servers": observation.servers, "places": observation.places},
                "steps": [self.steps_low, self.steps_high],
                "target": self.target,
                "prices": [],
            },
            record={"seeds": {"train": training.seed, "validation": validation.seed}},
            write=functools.partial(self._write, training),
            judged=functools.partial(_judged, validation),
        )

    def _cells(self, source: Source) -> list[EdgeScenario]:
        """Returns the scenarios that a source stands for.

        Raises:
            ScenarioError: It is no edge scenario, or has files.
        """
        if source.signals or source.jobs is not None:
            raise ScenarioError(
                f"edge scenario {source.scenario!r} trains on generated tasks; leave out --signals and --jobs"
            )
        scenario = load_scenario(source.scenario, source.settings)
        if not isinstance(scenario, EdgeScenario):
            raise ScenarioError(f"scenario {scenario.name!r} is of kind {scenario.kind}, not edge; name another")
        if self.cells == "own" or scenario.tasks.source != "paper":
            return [scenario.model_copy(update={"signals": None})]
        return [
            _cell(scenario, servers, rate)
            for servers, rates in RATES_PER_S.items()
            for rate in rates
            if servers <= self.servers_shown
        ]

    def _write(
        self, training: EdgeDraws, path: Path, weights: Any, biases: Any, meta: dict[str, Any], *, half: bool = False
    ) -> None:
        """Writes a policy's file, with the price at which its mean quality in training is the target, by scenario."""
        record = meta["record"]
        for curve in (record["curve"], *(each["curve"] for each in record.get("from_scratch", []))):
            add_episode_figures(curve)
        write_policy(path, weights, biases, meta, half=half)
        if meta["prices"]:
            return
        if self.price_low_s < self.price_high_s:
            meta["prices"] = calibrated(path, training, self.target)
        else:
            meta["prices"] = [price_row(scenario, self.price_low_s) for scenario in training.scenarios]
        write_policy(path, weights, biases, meta, half=half)


def _cell(scenario: EdgeScenario, servers: int, rate_per_s: float) -> EdgeScenario:
    """Returns a scenario with other servers and another arrival rate."""
    content = scenario.model_dump(mode="json")
    content["servers"]["count"] = servers
    content["signals"] = None  # no learner sees them, and drawing them takes longer than an episode
    content["tasks"] |= {"rate_per_s": rate_per_s, "sizes": SIZES[servers]}
    return EdgeScenario.model_validate(content)


def _total(name: str, engine: Any) -> F8:
    """Returns a row's totals by name."""
    return engine.total(name)


class EdgeDraws:
    """Environments of edge scenarios in turn.

    Args:
        scenarios: Scenarios.
        seed: Seed of the environments.
        replayed: Every environment is the first.
    """

    def __init__(self, scenarios: Sequence[EdgeScenario], seed: int, *, replayed: bool = False) -> None:
        self.scenarios, self.seed, self.replayed = list(scenarios), seed, replayed

    def __call__(self, number: int) -> tuple[EdgeEnvironment, int]:
        """Returns environment and seed of a draw's number."""
        index, which = divmod(0 if self.replayed else number, len(self.scenarios))
        return build_edge_environment(self.scenarios[which], index, self.seed), self.seed


class AdvisedBatch(EdgeBatch):
    """An edge batch whose agents' own parts hold the advice of a task (``edge_advice``), X = 2 (A + L) numbers or none.

    Args:
        task: What is trained in.
        environments: What each row runs.
        seeds: A seed a row.
    """

    def __init__(self, task: EdgeTask, environments: Sequence[EdgeEnvironment], seeds: Sequence[int]) -> None:
        self.task = task
        self._play: Room | None = None
        self._advice = np.zeros((len(environments), 0), np.float32)
        super().__init__(
            environments,
            seeds=seeds,
            steps=task.steps,
            price_of=task.price_of,
            target=task.target,
            servers=task.servers_shown,
            published=task.reward == "published",
        )
        if task.advice != "none":
            places, levels = 1 + self.observation.places, len(self.step_L)
            self._advice = np.zeros((len(environments), 2 * (places + levels)), np.float32)
            self._cost_X = np.zeros(max(places, levels))
            self.own_BNO = self._advice[:, None, :]
            self._advise(0, len(environments))

    def _fill(self, row: int, environment: EdgeEnvironment) -> None:
        """Puts a fresh run into a row, whose launches get the steps that its least quality needs."""
        super()._fill(row, environment)
        setting = environment.setting
        self.rows.run_B["steps_min"][row] = steps_least(setting.steps_min, setting.quality_min)

    def _run(self, choice_BN: I8, first: int, until: int) -> None:
        """Steps some rows, and advises on their questions."""
        super()._run(choice_BN, first, until)
        if self._advice.shape[1]:
            self._advise(first, until)

    def _advise(self, first: int, until: int) -> None:
        tasks = self.rows.task_BK.shape[1]
        if self._play is None or self._play.pool_DP.shape[1] <= tasks:
            self._play = make_room(self.observation.servers, self.observation.places, tasks)
        nested = self.task.advice == "lookahead"
        advise_rows(
            *(self.rows, self.asked_BN, self._play, self.step_L, steps_for(self.target), nested),
            *(first, until, self._advice, self._cost_X),
        )

    def state(self) -> dict[str, Any]:
        """Returns a copy of all that changes."""
        return super().state() | {"advice": self._advice.copy()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores from ``state()``."""
        super().load_state(state)
        self._advice[:] = state["advice"]


def mean_figures(
    path: Path, scenario: EdgeScenario, seed: int, indices: Iterable[int], price_s: float | None
) -> tuple[float, float]:
    """Returns mean response and mean quality of a policy's file over draws of a scenario, images weighing the same.

    Args:
        path: File.
        scenario: Scenario.
        seed: Seed of the draws.
        indices: Numbers of the draws.
        price_s: Price of quality; None: the file's.
    """
    policy, response, quality, images = EdgePolicy(path, price_s), 0.0, 0.0, 0
    for index in indices:
        ledger = settle_edge(run_edge_environment(build_edge_environment(scenario, index, seed), policy))
        response += ledger.response_s * ledger.images
        quality += ledger.quality * ledger.images
        images += ledger.images
    return response / images, quality / images


def price_at(path: Path, scenario: EdgeScenario, seed: int, aimed: float) -> float:
    """Returns the price at which a policy's mean quality is a target, s per unit: dual ascent over fresh draws.

    After each round the next logarithm of the price is that at which the line through all rounds so far, weighed by
    their episodes, meets the target; its slope is kept within SLOPES.

    Args:
        path: File.
        scenario: Scenario.
        seed: Seed of the draws.
        aimed: Mean quality aimed for.
    """
    step_s = scenario.gang_times[min(scenario.gang_times)].step_s
    log_price, first = math.log(FIRST_S * step_s / FIRST_STEP_S), 0
    tried = np.zeros((0, 3))
    for count in ROUNDS:
        found = mean_figures(path, scenario, seed, range(first, first + count), math.exp(log_price))[1]
        tried = np.vstack([tried, (log_price, found, count)])
        first += count
        log_price = float(np.clip(_crossing(tried, aimed), math.log(PRICES_S[0]), math.log(PRICES_S[1])))
    return math.exp(log_price)


def _crossing(tried_R3: F8, aimed: float) -> float:
    """Returns where the line through rounds (logarithm of the price, quality, weight) meets a quality."""
    x_R, q_R, weight_R = tried_R3.T
    mean_x, mean_q = np.average(x_R, weights=weight_R), np.average(q_R, weights=weight_R)
    low, slope, high = SLOPES
    spread = float(weight_R @ (x_R - mean_x) ** 2)
    if spread > 0.0:
        slope = min(max(float(weight_R @ ((x_R - mean_x) * (q_R - mean_q))) / spread, low), high)
    return float(mean_x + (aimed - mean_q) / slope)


def calibrated(path: Path, draws: EdgeDraws, target: float) -> list[list[float]]:
    """Returns, for each scenario of some draws, the price at which a written policy's mean quality is a target.

    The target includes a margin, so that the mean over a few dozen episodes is rarely below the goal.

    Args:
        path: File.
        draws: Draws of training.
        target: Mean quality wanted.

    Returns:
        Rows of servers, arrivals per s, seconds to load a gang of one, price in s per unit of quality.
    """
    return [price_row(scenario, price_at(path, scenario, draws.seed, target + MARGIN)) for scenario in draws.scenarios]


def price_row(scenario: EdgeScenario, price_s: float) -> list[float]:
    """Returns a scenario's row of prices: servers, arrivals per s, seconds to load a gang of one, price."""
    load_s = scenario.gang_times[min(scenario.gang_times)].load_s
    return [float(scenario.servers.count), getattr(scenario.tasks, "rate_per_s", 0.0), load_s, round(price_s, 1)]


def add_episode_figures(curve: list[dict[str, Any]]) -> None:
    """Adds what the paper's Fig. 5 shows to every epoch of a curve: ``reward``, ``episode_length`` and ``loss``.

    The first two are means over the runs that ended in the epoch's collection, in units of reward and in questions;
    None where none ended. The loss is the actor's: of imitation, later of hindsight, or of the critics' or the
    advantages' gradient.
    """
    before = 0.0
    for row in curve:
        steps, episodes = float(row["environment_steps"] or 0) - before, float(row["episodes"] or 0)
        before += steps
        row["episode_length"] = steps / episodes if episodes else None
        row["reward"] = float(row["reward_per_step"] or 0.0) * steps / episodes if episodes else None
        row["loss"] = next((row[name] for name in ACTOR_LOSSES if row.get(name) is not None), None)


def _judged(draws: EdgeDraws, path: Path, count: int) -> dict[str, float]:
    """Returns mean response and quality of a written policy over validation draws, as many of every scenario."""
    each = range(max(1, count // len(draws.scenarios)))
    found = [mean_figures(path, scenario, draws.seed, each, None) for scenario in draws.scenarios]
    return dict(zip(("validation_response_s", "validation_quality"), np.mean(found, 0).tolist(), strict=True))
